//! A model that is ready to be evaluated in one round, in a file: the calibrated description that `jaguar-fhe` reads (with the weights),
//! and under the name `jaguar` what its clients are told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jaguar_bundle::{FileError, ModelId, files};
use serde::{Deserialize, Serialize};

use crate::fhe::Fhe;
use crate::session::Facing;
use crate::{Description, ProgramError};

/// Changes whenever older files cannot be read.
const FORMAT: u32 = 2;

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
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The program refused the network, or is not there.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The disk.
    #[error(transparent)]
    File(#[from] FileError),
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
    /// Calibrates a network by `samples` (behind the affine map), and writes the model to `path`. `margin` is by how much values may
    /// exceed those of the samples.
    ///
    /// # Errors
    /// When the network does not fit the set, or the disk fails.
    pub fn make(
        fhe: &Fhe,
        (set, margin): (&str, f64),
        (description, facing): (&Description, Facing),
        samples: &[Vec<f32>],
        path: &Path,
    ) -> Result<Self, ModelError> {
        let of = |kind| Beside::new(path, kind);
        let (described, inputs, calibrated, public) =
            (of("described"), of("samples"), of("calibrated"), of("public"));
        described.write(description)?;
        inputs.write(&samples)?;
        let (margin, flag) = (margin.to_string(), OsStr::new);
        let own = [flag("--set"), flag(set)];
        let calibrate = [
            flag("calibrate"),
            own[0],
            own[1],
            flag("--network"),
            described.0.as_ref(),
            flag("--samples"),
            inputs.0.as_ref(),
        ];
        fhe.run(calibrate.into_iter().chain([
            flag("--margin"),
            flag(&margin),
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
        let public = String::from_utf8(public.read()?).map_err(|_| malformed("no text"))?;
        let Public { outputs } = serde_json::from_str(&public).map_err(|_| malformed("no public part"))?;
        let compiled = Self { format: FORMAT, set: set.to_owned(), public, outputs, facing };
        let mut network: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&calibrated.read()?).map_err(|_| malformed("no network"))?;
        network.insert("jaguar".into(), serde_json::to_value(&compiled).expect("plain data serialises"));
        files::replace(path, &serde_json::to_vec(&network).expect("plain data serialises"))?;
        Ok(compiled)
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
