//! The commands of `jaguar-fhe` that talk to nobody, and where the program is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::ProgramError;
use crate::program::shown;

/// The program's file name.
const PROGRAM: &str = "jaguar-fhe";

/// The program, found.
#[derive(Clone, Debug)]
pub struct Fhe {
    path: PathBuf,
    threads: Option<usize>,
}

/// Sizes of a parameter set, and memory, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The name of the parameter set.
    pub set: String,
    /// How secure it is, and by which record.
    pub security: String,
    /// Of the evaluation keys' file.
    pub keys: u64,
    /// Bytes of an encrypted input.
    pub input: usize,
    /// Bytes of an encrypted answer.
    pub answer: usize,
    /// What an evaluation takes, estimated.
    pub memory: u64,
    /// What making keys takes, estimated: more than any other of a client's commands.
    pub client_memory: u64,
    /// How many levels there are for ReLU's polynomial.
    pub relu_levels: u32,
}

impl Figures {
    /// Whether the set protects nothing: such sets are for tests, and say so in their names.
    pub fn is_insecure(&self) -> bool {
        self.set.starts_with("insecure")
    }
}

impl Fhe {
    /// Finds the program: as it is named, else beside this one (or a folder above, where `make fhe` puts it), else in `PATH`.
    ///
    /// # Errors
    /// [`ProgramError::NotFound`].
    pub fn find(named: Option<&Path>) -> Result<Self, ProgramError> {
        if let Some(named) = named {
            return Ok(Self { path: named.to_owned(), threads: None });
        }
        let own = std::env::current_exe().ok();
        let beside =
            own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(|folder| folder.join(PROGRAM));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).collect();
        let found = beside.chain(path).find(|file| file.is_file()).ok_or(ProgramError::NotFound)?;
        Ok(Self { path: found, threads: None })
    }

    /// Lets it compute on so many threads at a time, instead of one for each core. (Go's runtime calls that GOMAXPROCS.)
    #[must_use]
    pub fn on_threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// What starts it with these arguments.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        if let Some(threads) = self.threads {
            command.env("GOMAXPROCS", threads.to_string());
        }
        command
    }

    /// Sizes and memory of a set; with a network, of its evaluation.
    ///
    /// # Errors
    /// When there is no such set, or the network is malformed.
    pub fn about(&self, set: &str, network: Option<&Path>) -> Result<Figures, ProgramError> {
        let mut arguments: Vec<&OsStr> = vec!["about".as_ref(), "--set".as_ref(), set.as_ref()];
        if let Some(network) = network {
            arguments.extend([OsStr::new("--network"), network.as_ref()]);
        }
        let told = self.run(arguments)?;
        serde_json::from_slice(&told).map_err(|e| ProgramError::Malformed(format!("no figures ({e})")))
    }

    /// Runs a command to its end, and returns what it printed.
    ///
    /// # Errors
    /// When it cannot be started, or fails: with what it complains of.
    pub(crate) fn run<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Vec<u8>, ProgramError> {
        let output = self
            .command(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| ProgramError::Start { program: self.path.clone(), source })?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let complaint = shown(&output.stderr);
        let complaint = complaint.strip_prefix("jaguar-fhe: ").map_or(complaint.clone(), str::to_owned);
        Err(ProgramError::Failed(if complaint.is_empty() { output.status.to_string() } else { complaint }))
    }
}

/// Memory that the system can give now, and all that it has, in bytes; none where it does not say.
pub fn memory() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some([of("MemAvailable:")?, of("MemTotal:")?])
}
