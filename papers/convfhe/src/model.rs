//! A model that is ready to be evaluated in one round, in a file: the calibrated description that `jaguar-fhe` reads (with the weights),
//! and under the name `jaguar` what its clients are told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jaguar_graph::bundle::{FileError, ModelId, files};
use serde::{Deserialize, Serialize};

use crate::fhe::Fhe;
use crate::session::Facing;
use crate::{Description, ProgramError};

/// Changes whenever older files cannot be read.
const FORMAT: u32 = 3;

/// What clients are told of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    format: u32,
    /// The parameter set, by name.
    pub set: String,
    /// JSON for the client's `jaguar-fhe`: no weights.
    pub public: String,
    /// How many logits there are.
    pub outputs: usize,
    /// For pictures and for people.
    pub facing: Facing,
}

/// Why a model cannot be compiled or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file is not one of these.
    #[error(
        "{}: no model for the protocol convfhe ({why}); `jaguar compile --protocol convfhe` makes one", path.display()
    )]
    NoModel {
        /// The file that is no such model.
        path: PathBuf,
        /// What is wrong with it, in words.
        why: String,
    },
    /// The program refused the network, or is not there.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What a network is calibrated with: inputs behind the affine map.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Inputs like those that will come.
    pub samples: &'a [Vec<f32>],
    /// By how much others may exceed them.
    pub margin: f64,
    /// Made-up ones ([`stress`](crate::stress)); there may be none.
    pub stress: &'a [Vec<f32>],
    /// By how much others may exceed those.
    pub stress_margin: f64,
}

/// What a calibration found.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Calibration {
    /// How many samples there were.
    pub samples: usize,
    /// How many made-up inputs.
    pub stress: usize,
    /// How many samples differ from those before them.
    pub distinct: usize,
    /// How far a sample reaches at most, by the bounds that all other inputs give: 1 is a bound.
    pub left_out: f64,
    /// How many bounds the made-up inputs set.
    pub stressed: usize,
    /// By how much they raise one at most.
    pub stretch: f64,
    /// For the operator.
    pub warnings: Vec<String>,
}

/// What an input does to a calibrated network without encryption.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Simulated {
    /// The largest absolute value before a ReLU, or of a logit, divided by its bound: above 1 an answer means nothing.
    pub reach: f64,
    /// Where that is.
    pub layer: String,
    /// The logits, by the polynomial that stands for ReLU; none above 1.
    pub logits: Option<Vec<f64>>,
    /// By ReLU itself.
    pub exact: Vec<f64>,
}

#[derive(Deserialize)]
struct File {
    jaguar: Compiled,
}

#[derive(Deserialize)]
struct Public {
    outputs: usize,
}

/// Files beside a model, while it is made. They are removed at the end.
struct Beside(PathBuf);

impl Beside {
    fn new(model: &Path, kind: &str) -> Self {
        let mut name = model.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{kind}", std::process::id()));
        Self(model.with_file_name(name))
    }

    fn write(&self, value: &impl Serialize) -> Result<(), FileError> {
        let text = serde_json::to_vec(value).expect("plain data serialises");
        files::replace(&self.0, &text)
    }

    fn read(&self) -> Result<Vec<u8>, FileError> {
        std::fs::read(&self.0).map_err(|e| FileError::new("reading", &self.0, e))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Compiled {
    /// Calibrates a network, and writes the model to `path`.
    ///
    /// # Errors
    /// When the network does not fit the set, or the disk fails.
    pub fn make(
        fhe: &Fhe,
        set: &str,
        (description, facing): (&Description, Facing),
        given: Inputs<'_>,
        path: &Path,
    ) -> Result<(Self, Calibration), ModelError> {
        let of = |kind| Beside::new(path, kind);
        let [described, samples, stress, calibrated, public] =
            ["described", "samples", "stress", "calibrated", "public"].map(of);
        described.write(description)?;
        samples.write(&given.samples)?;
        stress.write(&given.stress)?;
        let (margins, flag) =
            ([given.margin, given.stress_margin].map(|margin| margin.to_string()), OsStr::new);
        let own = [flag("--set"), flag(set)];
        let calibrate = [
            flag("calibrate"),
            own[0],
            own[1],
            flag("--network"),
            described.0.as_ref(),
            flag("--samples"),
            samples.0.as_ref(),
        ];
        let found = fhe.run(calibrate.into_iter().chain([
            flag("--margin"),
            flag(&margins[0]),
            flag("--stress"),
            stress.0.as_ref(),
            flag("--stress-margin"),
            flag(&margins[1]),
            flag("--out"),
            calibrated.0.as_ref(),
        ]))?;
        let arguments = [
            flag("public"),
            own[0],
            own[1],
            flag("--network"),
            calibrated.0.as_ref(),
            flag("--out"),
            public.0.as_ref(),
        ];
        fhe.run(arguments)?;
        let malformed = |what: &str| ProgramError::Malformed(what.to_owned());
        let found = serde_json::from_slice(&found).map_err(|_| malformed("no calibration"))?;
        let public = String::from_utf8(public.read()?).map_err(|_| malformed("no text"))?;
        let Public { outputs } = serde_json::from_str(&public).map_err(|_| malformed("no public part"))?;
        let compiled = Self { format: FORMAT, set: set.to_owned(), public, outputs, facing };
        let mut network: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&calibrated.read()?).map_err(|_| malformed("no network"))?;
        network.insert("jaguar".into(), serde_json::to_value(&compiled).expect("plain data serialises"));
        files::replace(path, &serde_json::to_vec(&network).expect("plain data serialises"))?;
        Ok((compiled, found))
    }

    /// Evaluates the model in the file `path` without encryption, for each of `inputs` (behind the affine map).
    ///
    /// # Errors
    /// When an input is beyond the bound of inputs, or the disk fails.
    pub fn simulate(
        fhe: &Fhe,
        set: &str,
        inputs: &[Vec<f32>],
        path: &Path,
    ) -> Result<Vec<Simulated>, ModelError> {
        let file = Beside::new(path, "tested");
        file.write(&inputs)?;
        let flag = OsStr::new;
        let told = fhe.run([
            flag("simulate"),
            flag("--set"),
            flag(set),
            flag("--network"),
            path.as_ref(),
            flag("--samples"),
            file.0.as_ref(),
        ])?;
        let found: Result<Vec<Simulated>, _> =
            serde_json::Deserializer::from_slice(&told).into_iter().collect();
        let found = found.map_err(|e| ProgramError::Malformed(format!("no simulation ({e})")))?;
        if found.len() != inputs.len() {
            return Err(
                ProgramError::Malformed(format!("{} of {} simulations", found.len(), inputs.len())).into()
            );
        }
        Ok(found)
    }

    /// Reads what clients are told, and the model's public name: a hash of the file.
    ///
    /// # Errors
    /// [`ModelError::NoModel`] and [`ModelError::File`].
    pub fn read(path: &Path) -> Result<(Self, ModelId), ModelError> {
        let text = std::fs::read(path).map_err(|e| FileError::new("reading", path, e))?;
        let no_model = |why: String| ModelError::NoModel { path: path.to_owned(), why };
        let File { jaguar } = serde_json::from_slice(&text).map_err(|e| no_model(e.to_string()))?;
        if jaguar.format != FORMAT {
            return Err(no_model(format!("its format is {}, not {FORMAT}", jaguar.format)));
        }
        jaguar.facing.check(jaguar.outputs).map_err(no_model)?;
        Ok((jaguar, ModelId(*blake3::hash(&text).as_bytes())))
    }
}
