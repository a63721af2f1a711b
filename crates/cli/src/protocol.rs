//! `--backends`, `--prefer`.

use clap::ValueEnum;
use jaguar_plan::BackendId;
use jaguar_plan::predict::Aim;

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
