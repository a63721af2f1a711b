//! Options for the planner that several commands have: `--backends`, `--prefer`, `--weight-memory`, `--lpn-noise`.

use clap::ValueEnum;
use jaguar::network::Network;
use jaguar::plan::predict::{Aim, Site};
use jaguar::plan::{Allowed, BackendId, Choices, PlanError, UnknownName, WEIGHT_MEMORY, planner};

use crate::kit;

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
    #[arg(long, hide = true, value_name = "SIZE", value_parser = jaguar::reports::terminal::size)]
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

/// Whether iterations of the correlations' LPN share the places of their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LpnNoise {
    /// Each has its own.
    #[default]
    Fresh,
    /// 16 of them have the same.
    Stationary,
}

/// `--lpn-noise`
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Noise {
    /// Whether iterations of the correlations' LPN share the places of their errors.
    ///
    /// Stationary noise has 16 iterations with errors in the same places: a correlation then takes 0.02 to 0.08 bytes instead of 0.06
    /// to 0.22, by an assumption that is younger than the others (docs/protocols/oblivious-transfer.md). Both parties must ask for it.
    #[arg(long, hide = true, value_enum, default_value_t)]
    lpn_noise: LpnNoise,
}

impl Noise {
    fn stationary(self) -> bool {
        self.lpn_noise == LpnNoise::Stationary
    }

    /// The same choices with it, if it was asked for; bins are chosen anew where a `site` tells which are best.
    pub fn apply(
        self,
        network: &Network,
        choices: Choices,
        site: Option<&Site<'_>>,
    ) -> Result<Choices, PlanError> {
        if self.stationary() {
            return planner::with_stationary_noise(network, choices, site);
        }
        Ok(choices)
    }

    /// What plans may have.
    pub fn allowed(self) -> Allowed {
        Allowed { stationary_noise: self.stationary(), ..Allowed::default() }
    }
}

/// `--backends`
#[derive(Clone, Debug, clap::Args)]
pub struct Backends {
    /// Which backends may run linear layers, with commas between.
    ///
    /// A layer has the first one that can run it, or, where this machine is measured, the one that makes the query faster. Clients
    /// follow. Without it: jaguar,cheetah. Others run only if they are named here: fregata (fregata-jaguar, fregata-cheetah and
    /// fregata-hme), hyena, hyena-padded, hyena-conventional, cirencode.
    #[arg(long, value_delimiter = ',', value_parser = group)]
    backends: Vec<Group>,
}

/// A backend, or all whose names begin alike.
#[derive(Clone, Debug)]
pub struct Group(Vec<BackendId>);

impl Backends {
    /// Whether any are named.
    pub fn are_given(&self) -> bool {
        !self.backends.is_empty()
    }

    /// Those that are named, or the standard ones, the first choice first.
    pub fn named(&self) -> Vec<BackendId> {
        match self.backends.as_slice() {
            [] => kit::standard(),
            groups => groups.iter().flat_map(|group| group.0.iter().copied()).collect(),
        }
    }
}

/// The backends of a name.
fn group(name: &str) -> Result<Group, UnknownName> {
    kit::kit().group(name).map(Group)
}

/// The backend of a name.
pub fn parse(name: &str) -> Result<BackendId, UnknownName> {
    kit::kit().backend(name)
}
