//! What this machine and its links take, as the planner calculates with it: measured, kept, and looked up again.
//!
//! | module | what it does |
//! |---|---|
//! | [`measure`] | runs probes with the code that sessions run, and makes a `plan::machine::Machine` of their times |
//! | [`busy`] | how long a piece of work had a core, all threads that do it counted |
//! | [`store`] | files in the cache folder: the machine's constants, links to servers, what a server chose for a model |
//! | [`memory`] | what this machine has left |
//! | [`link`] | the links that can be planned for and imitated |
//!
//! Nothing here prints. What a person may like to know is told to the caller as a [`Note`].

pub mod busy;
pub mod link;
pub mod measure;
pub mod memory;
pub mod store;

use std::path::PathBuf;

use jaguar_graph::bundle::FileError;
use jaguar_linear::constants::ProbeError;
use jaguar_mpc::MpcError;
use jaguar_ot::OtError;
use jaguar_plan::UnknownName;
use jaguar_plan::machine::Impossible;
use jaguar_wire::WireError;

pub use link::{Between, Imitated};
pub use store::When;

/// Why a machine or a link could not be measured, or a figure not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The connection between the probes' two threads.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// What failed in the probes' oblivious transfer.
    #[error("oblivious transfer: {0}")]
    Ot(#[from] OtError),
    /// A probe of a nonlinear layer.
    #[error("nonlinear layer: {0}")]
    Mpc(#[from] MpcError),
    /// What a backend measures.
    #[error("measuring {0}: {1}")]
    Probe(&'static str, #[source] ProbeError),
    /// The probes' threads.
    #[error("starting a thread: {0}")]
    Thread(#[from] rayon::ThreadPoolBuildError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was measured fits no machine, however often it was tried.
    #[error(
        "what was measured cannot be: {0}. Other work disturbed it, {1} times. Measure again when the machine is \
         quiet (jaguar measure)"
    )]
    Disturbed(Impossible, usize),
    /// Figures that no file can hold.
    #[error("what is to be kept: {0}")]
    Format(#[from] serde_json::Error),
}

/// Why a kept file is of no use here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// It is no file of this kind, or was cut off.
    #[error("damaged ({0})")]
    Damaged(#[from] serde_json::Error),
    /// It has a figure that no machine has.
    #[error("damaged or measured while other work had the cores ({0})")]
    Impossible(#[from] Impossible),
    /// Another release or protocol version made it.
    #[error("made by another version")]
    Version,
    /// It names a backend that is not there.
    #[error(transparent)]
    Backend(#[from] UnknownName),
    /// It is of another processor.
    #[error("measured on another processor ({0})")]
    Processor(String),
    /// It is of other kernels.
    #[error("measured with the {0} kernels")]
    Kernel(String),
    /// It is of another number of threads.
    #[error("measured with {0} threads")]
    Threads(usize),
}

/// What a person may like to know while the profile is looked up.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// This machine is measured now, which takes seconds.
    Measuring,
    /// The file at this path is of no use; the machine is measured anew.
    MeasuringAnew(PathBuf, Unusable),
    /// What was measured cannot be: it is not used, nor kept.
    Refused(ProfileError),
    /// What was measured could not be kept, and will be measured again.
    MachineNotKept(ProfileError),
    /// The file at this path is of no use; the server chooses anew.
    ChoosingAnew(PathBuf, Unusable),
    /// What a server chose could not be kept.
    ChoicesNotKept(ProfileError),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Measuring => f.write_str("measuring this machine, once, for a few seconds"),
            Self::MeasuringAnew(path, why) => write!(f, "{}: {why}; measuring anew", path.display()),
            Self::Refused(e) => {
                write!(f, "{e}. Until then everything is done as by default, without a prediction")
            }
            Self::MachineNotKept(e) => write!(f, "what was measured could not be kept: {e}"),
            Self::ChoosingAnew(path, why) => write!(f, "{}: {why}; choosing anew", path.display()),
            Self::ChoicesNotKept(e) => write!(
                f,
                "what was chosen could not be kept, and clients may have to fetch their hints again: {e}"
            ),
        }
    }
}
