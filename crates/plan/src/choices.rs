//! What a planner is free to choose, and both parties then follow.

use jaguar_graph::network::Network;
use jaguar_linear::backend::{BackendId, ChosenRing};
use jaguar_linear::layout::Packing;
use jaguar_mpc::cost::{Instances, Noise};
use serde::{Deserialize, Serialize};

use crate::comparison::{Comparison, ComparisonsId};
use crate::kit::{UnknownName, in_order, named, rings};
use crate::{Plan, PlanError};

/// Which weaknesses a plan may have. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Backends that protect nothing.
    pub insecure_backends: bool,
    /// Comparisons that tell a party something ([`Comparison::caveat`]).
    pub leaks: bool,
    /// Correlations with stationary noise ([`Noise::Stationary`]): secure by an assumption that is younger than the others.
    pub stationary_noise: bool,
}

/// The choices of one plan. They are public; the server makes them, its offer carries them, and the client takes only what
/// [`Choices::check`] accepts. As they are read, backends and comparisons are names ([`NamedChoices`]):
/// [`Choices::resolve`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices<B = BackendId, C = ComparisonsId> {
    /// By node: which backend runs it, if it is linear.
    pub backends: Vec<B>,
    /// N of the ring, for backends that leave a choice ([`Choices::ring`]).
    pub ring_dim: u32,
    /// log2 of the ciphertexts' modulus q.
    pub modulus_bits: u32,
    /// By node: how far apart the maps of its input ciphertexts stand, if it is linear.
    pub packings: Vec<Packing>,
    /// By node: bits per digit of its comparisons, 1..=4. Four makes the fewest rounds, three fewer bytes.
    pub digits: Vec<u8>,
    /// Which LPN instances the session's correlations come from: larger bins send less, smaller ones stay in the cache.
    pub instances: Instances,
    /// How nonlinear layers compare.
    pub comparison: Comparison<C>,
    /// Bytes that the server may keep of weights as polynomials ([`jaguar_linear::backend::Request::weight_memory`]).
    pub weight_memory: u64,
    /// How many images a query has, its *batch*: a power of two, at most [`MOST_IMAGES`].
    pub images: u32,
}

/// Images of a query at most.
pub const MOST_IMAGES: u32 = 64;

/// Values of one layer at most, of all images of a batch: indices have 32 bits.
const MOST_VALUES: usize = 1 << 30;

/// Bytes for weights as polynomials, where nothing else is said.
pub const WEIGHT_MEMORY: u64 = 4 << 30;

/// Bits per digit where nothing else was chosen: the fewest rounds.
pub const DIGIT: u32 = 4;

/// Choices as they are read from a file or a peer.
pub type NamedChoices = Choices<String, String>;

impl NamedChoices {
    /// What these are, where names mean these `backends` and `comparisons`.
    ///
    /// # Errors
    /// When a name is none of theirs.
    pub fn resolve(
        self,
        backends: &[BackendId],
        comparisons: &[ComparisonsId],
    ) -> Result<Choices, UnknownName> {
        let backend = |name: &String| named("no backend is", name, backends, BackendId::name);
        let comparison = match self.comparison {
            Comparison::Sealed => Comparison::Sealed,
            Comparison::By { name, extra_bits } => {
                let name = named("no comparisons are", &name, comparisons, |by| by.0.name())?;
                Comparison::By { name, extra_bits }
            }
        };
        Ok(Choices {
            backends: self.backends.iter().map(backend).collect::<Result<_, _>>()?,
            ring_dim: self.ring_dim,
            modulus_bits: self.modulus_bits,
            packings: self.packings,
            digits: self.digits,
            instances: self.instances,
            comparison,
            weight_memory: self.weight_memory,
            images: self.images,
        })
    }
}

impl Choices {
    /// What a plan follows when nobody has measured anything: the backend's first ring, the fewest rounds.
    pub fn standard(network: &Network, backend: BackendId) -> Self {
        let ChosenRing { ring_dim, modulus_bits } = rings(&[backend])[0];
        Self {
            backends: vec![backend; network.nodes.len()],
            ring_dim,
            modulus_bits,
            packings: vec![Packing::default(); network.nodes.len()],
            digits: vec![DIGIT as u8; network.nodes.len()],
            instances: Instances::default(),
            comparison: Comparison::Sealed,
            weight_memory: WEIGHT_MEMORY,
            images: 1,
        }
    }

    /// The weaknesses that these choices have, and no others.
    pub fn weaknesses(&self) -> Allowed {
        Allowed {
            insecure_backends: self.backends.iter().any(|b| !b.backend().is_secure()),
            leaks: self.comparison != Comparison::Sealed,
            stationary_noise: self.instances.noise == Noise::Stationary,
        }
    }

    /// The ring of linear layers whose backends leave a choice.
    pub fn ring(&self) -> ChosenRing {
        ChosenRing { ring_dim: self.ring_dim, modulus_bits: self.modulus_bits }
    }

    /// The same in another ring.
    #[must_use]
    pub fn in_ring(self, ChosenRing { ring_dim, modulus_bits }: ChosenRing) -> Self {
        Self { ring_dim, modulus_bits, ..self }
    }

    /// The same for queries of `images` images. What hints of single images are bound to, ring, packings and backends, stays.
    #[must_use]
    pub fn of_images(self, images: u32) -> Self {
        Self { images, ..self }
    }

    /// As [`standard`](Self::standard); each linear layer has the first of the `allowed` backends that can run it.
    ///
    /// # Errors
    /// When none is allowed, or none can run some layer: what the last one says.
    pub fn among(network: &Network, allowed: &[BackendId]) -> Result<Self, PlanError> {
        let first = *allowed.first().ok_or_else(|| PlanError::Choices("no backend is allowed".into()))?;
        let mut choices = Self::standard(network, first).in_ring(rings(allowed)[0]);
        // How far each node has come: a backend that is allowed twice is tried once.
        let mut tried = vec![0; network.nodes.len()];
        loop {
            match Plan::new(network, choices.clone()) {
                Ok(_) => return Ok(choices),
                Err(error) => {
                    let PlanError::Layer { node, .. } = &error else { return Err(error) };
                    let node = *node;
                    let refused = &allowed[..=tried[node]];
                    let next = allowed.iter().position(|b| !refused.contains(b)).ok_or(error)?;
                    (tried[node], choices.backends[node]) = (next, allowed[next]);
                }
            }
        }
    }

    /// The same by other comparisons, **with what they tell**: in shares of as many bits more as the ring and they take.
    /// Where it takes none, another one of the backends' rings is taken.
    ///
    /// # Errors
    /// When no ring can hold the network with one bit more: what the present one says.
    pub fn comparing_by(self, network: &Network, by: ComparisonsId) -> Result<Self, PlanError> {
        let mut error = None;
        for ring in std::iter::once(self.ring()).chain(rings(&self.backends)) {
            for extra_bits in (1..=by.0.most_extra_bits()).rev() {
                let comparison = Comparison::By { name: by, extra_bits };
                let choices = Self { comparison, ..self.clone() }.in_ring(ring);
                let allowed = Allowed { insecure_backends: true, leaks: true, stationary_noise: true };
                match Plan::allowing(network, choices.clone(), allowed) {
                    Ok(_) => return Ok(choices),
                    Err(e) if extra_bits == 1 => error = error.or(Some(e)),
                    Err(_) => {}
                }
            }
        }
        Err(error.expect("something was tried"))
    }

    /// Whether these choices are sound for `network`. (Its ring is looked at by the backends that compute in it, when they plan: they refuse
    /// one that is not on record as secure.)
    ///
    /// # Errors
    /// When a backend protects nothing, comparisons tell a party something, or a choice is out of range or for another
    /// network.
    pub fn check(&self, network: &Network) -> Result<(), PlanError> {
        self.check_allowing(network, Allowed::default())
    }

    /// [`check`](Self::check) but for what is `allowed`.
    ///
    /// # Errors
    /// As `check`.
    pub(crate) fn check_allowing(&self, network: &Network, allowed: Allowed) -> Result<(), PlanError> {
        let insecure = self.backends.iter().find(|b| !b.backend().is_secure());
        if let Some(backend) = insecure.filter(|_| !allowed.insecure_backends) {
            return Err(PlanError::Choices(format!("the backend {backend} protects nothing")));
        }
        self.comparison.check(allowed.leaks)?;
        match self.instances.noise {
            Noise::Stationary if !allowed.stationary_noise => {
                let text = "the correlations' noise is stationary, which both parties must ask for (--lpn-noise stationary)";
                return Err(PlanError::Choices(text.into()));
            }
            Noise::Stationary | Noise::Fresh => {}
        }
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
        self.check_images(network)?;
        if let Some(digit) = self.digits.iter().find(|d| !(1..=4).contains(*d)) {
            return Err(PlanError::Choices(format!(
                "comparisons in digits of {digit} bits (1 to 4 are possible)"
            )));
        }
        Ok(())
    }

    /// Whether a query may have so many images.
    fn check_images(&self, network: &Network) -> Result<(), PlanError> {
        if !self.images.is_power_of_two() || self.images > MOST_IMAGES {
            let text =
                format!("a batch of {} images (a power of two up to {MOST_IMAGES} is possible)", self.images);
            return Err(PlanError::Choices(text));
        }
        if self.images == 1 {
            return Ok(());
        }
        let linear = network.nodes.iter().zip(&self.backends).filter(|(n, _)| n.op.linear().is_some());
        if let Some((_, backend)) = linear.into_iter().find(|(_, b)| !b.backend().takes_batches()) {
            return Err(PlanError::Choices(format!("the backend {backend} takes no batches of images")));
        }
        let values = |shape: [usize; 3]| shape.iter().product::<usize>().saturating_mul(self.images as usize);
        match network.nodes.iter().find(|node| values(node.shape) > MOST_VALUES) {
            None => Ok(()),
            Some(node) => Err(PlanError::Choices(format!(
                "a batch of {} images has {} values in '{}' (at most {MOST_VALUES} are possible)",
                self.images,
                values(node.shape),
                node.name
            ))),
        }
    }

    /// The names of the backends that run linear layers of `network`, each once.
    pub fn names(&self, network: &Network) -> String {
        let linear = network.nodes.iter().zip(&self.backends).filter(|(n, _)| n.op.linear().is_some());
        let used = in_order(linear.map(|(_, &backend)| backend).collect());
        used.into_iter().map(BackendId::name).collect::<Vec<_>>().join("+")
    }
}
