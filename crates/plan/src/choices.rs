//! What a planner is free to choose, and both parties then follow.

use jaguar_graph::network::{Network, Op};
use jaguar_he::params::Parameters;
use jaguar_linear::layout::Packing;
use jaguar_linear::registry::BackendId;
use jaguar_mpc::cost::Instances;
use serde::{Deserialize, Serialize};

use crate::{Plan, PlanError};

/// The choices of one plan. They are public; the server makes them, its offer carries them, and the client takes only what
/// [`Choices::check`] accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// By node: which backend runs it, if it is linear.
    pub backends: Vec<BackendId>,
    /// N of the linear layers' ring.
    pub ring_dim: u32,
    /// k, where q = 2^k.
    pub modulus_bits: u32,
    /// By node: how far apart the maps of its input ciphertexts stand, if it is linear.
    pub packings: Vec<Packing>,
    /// By node: bits per digit of its comparisons, 1..=4. Four makes the fewest rounds, three fewer bytes.
    pub digits: Vec<u8>,
    /// Which LPN instances the session's correlations come from: larger bins send less, smaller ones stay in the cache.
    pub instances: Instances,
}

/// Bits per digit where nothing else was chosen: the fewest rounds.
pub const DIGIT: u32 = 4;

impl Choices {
    /// What a plan follows when nobody has measured anything: the default ring, the fewest rounds.
    pub fn standard(network: &Network, backend: BackendId) -> Self {
        let params = Parameters::DEFAULT;
        Self {
            backends: vec![backend; network.nodes.len()],
            ring_dim: params.ring_dim() as u32,
            modulus_bits: params.modulus_bits(),
            packings: vec![Packing::default(); network.nodes.len()],
            digits: vec![DIGIT as u8; network.nodes.len()],
            instances: Instances::default(),
        }
    }

    /// As [`standard`](Self::standard); each linear layer has the first of the `allowed` backends that can run it.
    ///
    /// # Errors
    /// When none is allowed, or none can run some layer: what the last one says.
    pub fn among(network: &Network, allowed: &[BackendId]) -> Result<Self, PlanError> {
        let first = *allowed.first().ok_or_else(|| PlanError::Choices("no backend is allowed".into()))?;
        let mut choices = Self::standard(network, first);
        loop {
            match Plan::new(network, choices.clone()) {
                Ok(_) => return Ok(choices),
                Err(error) => {
                    let PlanError::Layer { node, .. } = &error else { return Err(error) };
                    let node = *node;
                    let tried = allowed.iter().position(|&b| b == choices.backends[node]);
                    let next = tried.and_then(|at| allowed.get(at + 1)).ok_or(error)?;
                    choices.backends[node] = *next;
                }
            }
        }
    }

    /// The parameter set, if these choices are sound for `network`.
    ///
    /// # Errors
    /// When the parameter set is not on record as secure, a backend protects nothing, or a choice is out of range or for another
    /// network.
    pub fn check(&self, network: &Network) -> Result<Parameters, PlanError> {
        if let Some(backend) = self.backends.iter().find(|b| !b.backend().is_secure()) {
            return Err(PlanError::Choices(format!("the backend {backend} protects nothing")));
        }
        self.check_allowing_insecure_backends(network)
    }

    /// [`check`](Self::check) but for the backends: **some may protect nothing**.
    ///
    /// # Errors
    /// As `check`.
    pub(crate) fn check_allowing_insecure_backends(
        &self,
        network: &Network,
    ) -> Result<Parameters, PlanError> {
        let params = Parameters::new(self.ring_dim as usize, self.modulus_bits)?;
        for (what, count) in [
            ("digits", self.digits.len()),
            ("packings", self.packings.len()),
            ("backends", self.backends.len()),
        ] {
            if count != network.nodes.len() {
                return Err(PlanError::Choices(format!(
                    "{what} for {count} nodes of a network of {}",
                    network.nodes.len()
                )));
            }
        }
        if let Some(digit) = self.digits.iter().find(|d| !(1..=4).contains(*d)) {
            return Err(PlanError::Choices(format!(
                "comparisons in digits of {digit} bits (1 to 4 are possible)"
            )));
        }
        Ok(params)
    }

    /// The names of the backends that run linear layers of `network`, each once.
    pub fn names(&self, network: &Network) -> String {
        let linear = network.nodes.iter().zip(&self.backends).filter(|(n, _)| matches!(n.op, Op::Linear(_)));
        let used: Vec<BackendId> = linear.map(|(_, &backend)| backend).collect();
        let names = BackendId::all().filter(|b| used.contains(b)).map(BackendId::name);
        names.collect::<Vec<_>>().join("+")
    }
}
