//! `jaguar-fhe evaluate` behind a server's desk.

use std::path::{Path, PathBuf};

use crate::fhe::{Fhe, Figures, memory};
use crate::session::{Evaluation, Evaluator, Failure, Stopper};
use crate::{Program, ProgramError};

/// Evaluations by the program, which is started for a client's keys.
pub struct ByProgram {
    fhe: Fhe,
    figures: Figures,
    network: PathBuf,
}

impl ByProgram {
    /// Evaluates the calibrated network of this file under the set of `figures`.
    pub fn new(fhe: Fhe, figures: Figures, network: &Path) -> Self {
        Self { fhe, figures, network: network.to_owned() }
    }
}

/// A running program, and what it must not be heard saying.
struct Running {
    program: Program,
    keys: PathBuf,
    network: PathBuf,
}

impl Evaluation for ByProgram {
    fn open(&self, keys: &Path) -> Result<Box<dyn Evaluator>, Failure> {
        if let Some([free, _]) = memory()
            && free < self.figures.memory
        {
            let told = too_small("an evaluation", self.figures.memory, free);
            return Err(Failure { detail: told.clone(), told, spoilt_keys: false });
        }
        let arguments = ["evaluate", "--set", &self.figures.set, "--keys"].map(PathBuf::from);
        let arguments =
            arguments.into_iter().chain([keys.to_owned(), "--network".into(), self.network.clone()]);
        let started = Program::start(self.fhe.command(arguments));
        let program = started.map_err(|e| Failure {
            told: "the server cannot start the evaluation; ask its operator".into(),
            detail: e.to_string(),
            spoilt_keys: false,
        })?;
        Ok(Box::new(Running { program, keys: keys.to_owned(), network: self.network.clone() }))
    }

    fn answer_bytes(&self) -> usize {
        self.figures.answer
    }
}

/// A machine that is too small for something, with numbers.
pub fn too_small(what: &str, need: u64, free: u64) -> String {
    format!(
        "{what} takes about {:.1} GB of memory, and {:.1} GB are free",
        need as f64 / 1e9,
        free as f64 / 1e9
    )
}

impl Evaluator for Running {
    fn stopper(&self) -> Stopper {
        match self.program.stopper() {
            Ok(stop) => Box::new(stop),
            // Then it goes on to its end, or to the server's.
            Err(_) => Box::new(|| ()),
        }
    }

    fn answer(&mut self, input: &[u8], progress: &mut dyn FnMut(u32, u32)) -> Result<Vec<u8>, Failure> {
        let most = input.len();
        self.program.ask(input, most, progress).map_err(|e| {
            let detail = e.to_string();
            let spoilt_keys = matches!(&e, ProgramError::Ended(said) if said.contains("evaluate: keys: "));
            let mut told = detail.clone();
            for path in [&self.keys, &self.network] {
                told = told.replace(&path.display().to_string(), "a file");
            }
            Failure { told, detail: format!("evaluation: {detail}"), spoilt_keys }
        })
    }
}
