//! A model that is ready to be evaluated in one round, in a file: the calibrated description (with the weights) as JSON, and under
//! the name `jaguar` what its clients are told.

use std::path::{Path, PathBuf};

use jaguar_graph::bundle::{FileError, ModelId, files};
use serde::{Deserialize, Serialize};

use crate::description::Description;
use crate::network::{NetworkError, Plan};
use crate::session::Facing;
use crate::sets::Set;

/// Changes whenever older files cannot be read.
const FORMAT: u32 = 5;

/// What clients are told of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    format: u32,
    /// The parameter set, by name.
    pub set: String,
    /// JSON of [`network::Public`](crate::network::Public): no weights.
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
    /// The network does not fit, or an input does not fit the network.
    #[error(transparent)]
    Network(#[from] NetworkError),
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
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

#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    network: &'a Description,
    jaguar: &'a Compiled,
}

#[derive(Deserialize)]
struct File {
    jaguar: Compiled,
}

impl Compiled {
    /// Places a network in the ciphertexts of a set, and calibrates it.
    ///
    /// # Errors
    /// When the network does not fit the set, or as [`Plan::calibrate`].
    pub fn calibrate(
        set: &Set,
        description: Description,
        given: Inputs<'_>,
    ) -> Result<(Plan, Calibration), ModelError> {
        let params = set.params();
        let mut plan = Plan::new(description, params.values())?;
        plan.check(params)?;
        let found = plan.calibrate(given)?;
        Ok((plan, found))
    }

    /// Writes a calibrated network under a set to `path`.
    ///
    /// # Errors
    /// When the network does not fit the set or has no bounds, or the disk fails.
    pub fn write(set: &Set, plan: &Plan, facing: Facing, path: &Path) -> Result<Self, ModelError> {
        let public = plan.public(set.params())?;
        let compiled = Self {
            format: FORMAT,
            set: set.name().to_owned(),
            public: serde_json::to_string(&public).expect("plain data serialises"),
            outputs: public.outputs,
            facing,
        };
        let file = Written { network: plan.description(), jaguar: &compiled };
        files::replace(path, &serde_json::to_vec(&file).expect("plain data serialises"))?;
        Ok(compiled)
    }

    /// Reads what clients are told, and the model's public name: a hash of the file.
    ///
    /// # Errors
    /// [`ModelError::NoModel`] and [`ModelError::File`].
    pub fn read(path: &Path) -> Result<(Self, ModelId), ModelError> {
        let text = std::fs::read(path).map_err(|e| FileError::new("reading", path, e))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<(Self, ModelId), ModelError> {
        let no_model = |why: String| ModelError::NoModel { path: path.to_owned(), why };
        let File { jaguar } = serde_json::from_slice(text).map_err(|e| no_model(e.to_string()))?;
        if jaguar.format != FORMAT {
            return Err(no_model(format!("its format is {}, not {FORMAT}", jaguar.format)));
        }
        jaguar.facing.check(jaguar.outputs).map_err(no_model)?;
        Ok((jaguar, ModelId(*blake3::hash(text).as_bytes())))
    }

    /// Reads all of a model: its set and its network, too.
    ///
    /// # Errors
    /// [`ModelError`], when the network has no bounds or does not fit the set, too.
    pub fn load(path: &Path) -> Result<Loaded, ModelError> {
        let text = std::fs::read(path).map_err(|e| FileError::new("reading", path, e))?;
        let (compiled, id) = Self::parse(path, &text)?;
        let no_model = |why: String| ModelError::NoModel { path: path.to_owned(), why };
        let set = Set::by_name(&compiled.set).map_err(|e| no_model(e.to_string()))?;
        let description = serde_json::from_slice(&text).map_err(|e| no_model(e.to_string()))?;
        let plan = Plan::new(description, set.params().values())?;
        plan.check(set.params())?;
        plan.calibrated()?;
        if plan.outputs() != compiled.outputs {
            return Err(no_model(format!("{} outputs, and {} are told", plan.outputs(), compiled.outputs)));
        }
        // What is told follows from the network, so that neither can be changed without the other.
        let public = serde_json::to_string(&plan.public(set.params())?).expect("plain data serialises");
        Ok(Loaded { compiled: Self { public, ..compiled }, id, set, plan })
    }
}

/// A model as a server has it.
pub struct Loaded {
    /// What clients are told.
    pub compiled: Compiled,
    /// The model's public name.
    pub id: ModelId,
    /// The parameter set.
    pub set: Set,
    /// The network.
    pub plan: Plan,
}
