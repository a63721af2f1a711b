//! Options for the planner that several commands have: `--backends`, `--prefer`, `--weight-memory`.

use clap::ValueEnum;
use jaguar_plan::predict::Aim;
use jaguar_plan::{BackendId, Choices, WEIGHT_MEMORY};

/// What is to be short.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Prefer {
    /// A whole query, the part before its input included.
    #[default]
    Query,
    /// The answer to an input: for clients that prepare queries ahead of their inputs.
    Online,
}

impl From<Prefer> for Aim {
    fn from(prefer: Prefer) -> Self {
        match prefer {
            Prefer::Query => Self::Query,
            Prefer::Online => Self::Online,
        }
    }
}

/// How much memory weights may take as polynomials, which are made once.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct WeightMemory {
    /// Memory that the server may take for weights as polynomials, such as 500M or 8G (default: 4G).
    ///
    /// Polynomials of further layers are made in every query.
    #[arg(long, hide = true, value_name = "SIZE", value_parser = jaguar_terminal::size)]
    weight_memory: Option<u64>,
}

impl WeightMemory {
    /// Bytes that were asked for, or the default.
    pub fn bytes(self) -> u64 {
        self.weight_memory.unwrap_or(WEIGHT_MEMORY)
    }

    /// The same choices with so much.
    pub fn apply(self, choices: Choices) -> Choices {
        Choices { weight_memory: self.bytes(), ..choices }
    }
}

/// What may run linear layers unless something else is asked for: every backend that protects both parties, the default one
/// first.
pub fn secure() -> Vec<BackendId> {
    BackendId::all().filter(|id| id.backend().is_secure()).collect()
}

/// The backend of a name; none that protects nothing.
pub fn parse(name: &str) -> Result<BackendId, String> {
    let secure = secure();
    secure.iter().find(|id| id.name() == name).copied().ok_or_else(|| {
        let names = secure.iter().map(|id| id.name()).collect::<Vec<_>>();
        format!("there are {}", names.join(" and "))
    })
}
