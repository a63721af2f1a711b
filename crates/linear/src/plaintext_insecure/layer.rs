//! The backend as values: planning, the model at the server, and both parties of a session.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Weights};
use jaguar_mpc::share::Domain;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

use super::client::Client;
use super::server::Server;
use super::{Layer, PlaintextLayers, PlaintextModel, SEED_BYTES};
use crate::backend::{
    self, Backend, BackendId, BackendParty, Geometry, LayerError, Layers, Model, Request, Rlwe, Traffic, Work,
};
use crate::constants::{Measured, Probe};
use crate::product::Hardware;

/// **Insecure**: the client's share in the clear.
pub struct Plaintext {
    name: &'static str,
    prime: bool,
}

/// **Insecure**: both forms, for the kits of tests.
pub const ALL: [BackendId; 2] = [BackendId::new(&Plaintext::POWER_OF_TWO), BackendId::new(&Plaintext::PRIME)];

impl Plaintext {
    /// Shares modulo a power of two.
    pub(crate) const POWER_OF_TWO: Self = Self { name: "plaintext-insecure", prime: false };
    /// Shares modulo a prime.
    pub(crate) const PRIME: Self = Self { name: "plaintext-prime-insecure", prime: true };
}

impl Plaintext {
    pub(super) fn layers(&self, requests: &[Request<'_>]) -> Result<PlaintextLayers, (usize, LayerError)> {
        let mut by_node: Vec<Option<Layer>> = Vec::new();
        for (i, r) in requests.iter().enumerate() {
            let layer = Layer::new(r.spec, r.in_shape, r.activation_bits, self.prime);
            by_node.resize(by_node.len().max(r.node + 1), None);
            by_node[r.node] = Some(layer.map_err(|why| (i, LayerError::Refused(why)))?);
        }
        Ok(PlaintextLayers { name: self.name, by_node })
    }
}

impl Backend for Plaintext {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "INSECURE, for tests: the client's share of every layer's input goes to the server in the clear"
    }

    fn is_secure(&self) -> bool {
        false
    }

    fn keeps_products(&self) -> bool {
        false
    }

    /// It is not measured.
    fn probes(&self) -> Vec<Probe> {
        Vec::new()
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        Ok(Arc::new(self.layers(requests)?))
    }
}

impl PlaintextLayers {
    /// With the weights of its own layers.
    pub(super) fn with_weights(self: Arc<Self>, cpu: Cpu, weights: &[Option<Weights>]) -> PlaintextModel {
        let own = |(node, weights): (usize, &Option<Weights>)| {
            let weights = weights.as_ref().filter(|_| self.layer(node).is_some())?;
            Some(Arc::new(weights.clone()))
        };
        let weights = weights.iter().enumerate().map(own).collect();
        PlaintextModel { layers: self, cpu, weights }
    }
}

impl Layers for PlaintextLayers {
    fn backend(&self) -> &'static str {
        self.name
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        "no encryption at all (INSECURE)".into()
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        Vec::new()
    }

    fn model(
        self: Arc<Self>,
        &Hardware { cpu, .. }: &Hardware,
        _: [u8; 32],
        weights: &[Option<Weights>],
        _: u32,
    ) -> Arc<dyn Model> {
        Arc::new(self.with_weights(cpu, weights))
    }

    fn client(self: Arc<Self>, _: Cpu, _: [u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Client { layers: self })
    }
}

impl backend::Layer for Layer {
    fn spec(&self) -> &Linear {
        &self.spec
    }

    fn input(&self) -> Domain {
        Domain::new(self.modulus)
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.rounding.bits())
    }

    /// There is no ciphertext.
    fn geometry(&self) -> Geometry {
        Geometry::default()
    }

    fn traffic(&self) -> Traffic {
        Traffic { offline: (0, SEED_BYTES), online: (self.upload_bytes(), 0), ..Traffic::default() }
    }

    fn prepared_bytes(&self) -> [u64; 2] {
        [8 * self.out_shape.iter().product::<usize>() as u64; 2]
    }

    fn model_bytes(&self) -> u64 {
        crate::product::numbers_bytes(&self.spec, self.in_shape)
    }

    /// It is not measured.
    fn work(&self, _: &Measured) -> Option<Work> {
        None
    }

    fn noise_ulps(&self) -> f64 {
        0.0
    }

    fn rounding_ulps(&self) -> f64 {
        1.0 + self.scale_error()
    }

    fn absorb(&self) -> Vec<u64> {
        vec![self.modulus.value(), u64::from(self.rounding.bits())]
    }

    /// Blocks are dense weights to it.
    fn block_size(&self) -> usize {
        1
    }

    fn output_known_early(&self) -> bool {
        true
    }
}

impl Model for PlaintextModel {
    fn prepare(&self, _: usize) {}

    fn hint(&self, _: usize, _: Range<usize>, _: &[u8; 32]) -> Vec<u8> {
        Vec::new()
    }

    fn party(self: Arc<Self>, _: &[u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Server { model: self, prg: Prg::from_os() })
    }
}
