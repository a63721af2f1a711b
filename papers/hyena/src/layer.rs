//! What both parties know of the layers.

use std::collections::{BTreeMap, HashSet};

use jaguar_graph::network::Linear;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::Ring;

use super::search::{Chosen, Found, Wanted, Weighed};
use super::{AHEAD, Encoding, Form, Layer, Places, SlotRings};
use jaguar_linear::backend::{self, Domain, Geometry, Traffic, Work};
use jaguar_linear::constants::Measured;

/// Public: the layers by node.
#[derive(Debug)]
pub(super) struct HyenaLayers {
    pub(super) ring: Chosen,
    /// The automorphisms that any layer takes, ascending.
    pub(super) elements: Vec<usize>,
    pub(super) by_node: Vec<Option<Layer>>,
    /// What the search weighed, the best first.
    pub(super) weighed: Vec<Weighed>,
}

impl HyenaLayers {
    /// These layers, of these nodes, with what was found for them.
    pub(super) fn new(nodes: &[usize], wanted: &[Wanted<'_>], found: Found) -> Result<Self, (usize, String)> {
        let mut elements: Vec<usize> = found.layers.iter().flat_map(|fitted| fitted.elements()).collect();
        elements.sort_unstable();
        elements.dedup();
        let mut by_node: Vec<Option<Layer>> = Vec::new();
        // What the layers so far leave of memory.
        let (mut ahead, mut kept) = ([AHEAD; 2], 0);
        for (i, ((&node, wanted), fitted)) in nodes.iter().zip(wanted).zip(found.layers).enumerate() {
            let memory = wanted.weight_memory.saturating_sub(kept);
            let layer = Layer::new(wanted, fitted, found.ring.clone(), ahead, memory)
                .ok_or_else(|| (i, "no bits are left for the output".to_owned()))?;
            if layer.held {
                kept += layer.plaintext_bytes();
            }
            let each = found.ring.ahead_bytes();
            ahead = [0, 1].map(|i| ahead[i] - layer.ahead[i] as u64 * each[i]);
            by_node.resize(by_node.len().max(node + 1), None);
            by_node[node] = Some(layer);
        }
        Ok(Self { ring: found.ring, elements, by_node, weighed: found.weighed })
    }

    pub(super) fn of(&self, node: usize) -> &Layer {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }

    /// Bytes of a model: weights as numbers, and weights or patterns as polynomials.
    pub(super) fn model_bytes(&self) -> (usize, usize) {
        let layers = || self.by_node.iter().flatten();
        let weights =
            |layer: &Layer| layer.spec().weights_len(layer.in_shape()[0]).unwrap_or(0) * size_of::<i16>();
        let encodings: HashSet<Encoding> = layers().map(Layer::encoding).collect();
        let patterns = |encoding: &Encoding| match encoding.form {
            Form::WalshHadamard => encoding.channels - 1,
            _ => 0,
        };
        let patterns = encodings.iter().map(patterns).sum::<usize>();
        let polys = patterns + layers().map(Layer::plaintexts).sum::<usize>();
        let words = self.ring.params.ring_dim() * self.ring.params.primes().len();
        (layers().map(weights).sum(), polys * words * size_of::<u64>())
    }

    /// How many layers have which form, where they differ.
    pub(super) fn forms(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for layer in self.by_node.iter().flatten() {
            *counts.entry(layer.form().name()).or_default() += 1;
        }
        if counts.len() < 2 {
            return String::new();
        }
        let counts = counts.iter().map(|(name, count)| format!("{count} x {name}"));
        format!(" ({})", counts.collect::<Vec<_>>().join(", "))
    }

    /// The ring, its tables computed.
    pub(super) fn ring(&self, cpu: Cpu) -> Ring {
        Ring::new(cpu, self.ring.params.clone())
    }
}

impl backend::Layer for Layer {
    fn spec(&self) -> &Linear {
        Layer::spec(self)
    }

    fn input(&self) -> Domain {
        Domain::new(self.modulus)
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.activation_bits)
    }

    fn geometry(&self) -> Geometry {
        let packing = self.packing();
        Geometry {
            ring_dim: packing.slots(),
            tiles: packing.tile_count(),
            maps_per_ciphertext: packing.channels(),
            ciphertexts: packing.ciphertexts(),
            responses: packing.responses(),
            packing_distance: None,
            interleaved: 1,
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic { online: self.fitted.bytes(&self.ring), rounds: 1, ..Traffic::default() }
    }

    fn work(&self, machine: &Measured) -> Option<Work> {
        let costs = machine.get::<SlotRings>()?.of(self.packing().slots(), self.ring.limb_bits())?;
        let held = (self.plaintexts(), self.held);
        Some(self.fitted.work(self.ring.sizes(), self.ahead, held, costs))
    }

    fn prepared_bytes(&self) -> [u64; 2] {
        Layer::prepared_bytes(self)
    }

    fn model_bytes(&self) -> u64 {
        let numbers = self.spec().weights_len(self.in_shape()[0]).unwrap_or(0) * size_of::<i16>();
        numbers as u64 + if self.held { self.plaintext_bytes() } else { 0 }
    }

    fn running_bytes(&self, threads: usize) -> [u64; 2] {
        Layer::running_bytes(self, threads)
    }

    /// None reaches the output, but for an event of probability 2^-40.
    fn noise_ulps(&self) -> f64 {
        0.0
    }

    /// One of the rounding; and p is one more than a multiple of 2^(n+f).
    fn rounding_ulps(&self) -> f64 {
        1.0 + 2f64.powi(self.activation_bits as i32 - 1) / self.fitted.plain.p as f64
    }

    fn absorb(&self) -> Vec<u64> {
        let ring = &self.ring;
        let own = [u64::from(ring.digit_bits), ring.kept as u64, self.fitted.plain.p, self.factor()];
        let joint = [ring.joint.count as u64, u64::from(ring.joint.digit_bits)];
        let rest = [u64::from(self.activation_bits), u64::from(self.weight_bits)];
        let primes = ring.params.primes().iter().copied();
        own.into_iter().chain(joint).chain(rest).chain(primes).chain(self.packing().figures()).collect()
    }

    fn block_size(&self) -> usize {
        match self.packing() {
            // A channel in each part: blocks are dense weights to it.
            Places::Channels(_) | Places::Interleaved(_) => 1,
            Places::Blocks(packing) => packing.block_size(),
        }
    }
}
