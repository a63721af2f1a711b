//! The backend as values: planning, and the model at the server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Linear, Weights};
use jaguar_he::rns::Ring;
use jaguar_ring::prg::Prg;

use super::client::Client;
use super::search::{self, Chosen, Found, Wanted, Weighed};
use super::server::{Fixed, Server, ServerLayer};
use super::{AHEAD, Encoding, Form, Layer, Places};
use crate::backend::{
    self, Backend, Constants, Domain, Geometry, KeyBytes, LayerError, Layers, Model, Party, Request, Rlwe,
    Traffic, Work,
};
use crate::product::Hardware;

/// Hyena, in one of its forms.
pub struct Hyena {
    form: Form,
    about: &'static str,
}

impl Hyena {
    /// Numbers as weights, one output channel a ciphertext.
    pub const PADDED: Self = Self {
        form: Form::Padded,
        about: "SIMD slots, weights as numbers, one output channel a ciphertext: no model to store, many responses",
    };
    /// Numbers as weights and packed outputs, by Walsh-Hadamard.
    pub const PACKED: Self = Self {
        form: Form::Hyena,
        about: "SIMD slots, weights as numbers by Walsh-Hadamard, outputs packed: no model to store",
    };
    /// The paper's baseline.
    pub const CONVENTIONAL: Self = Self {
        form: Form::Conventional,
        about: "the baseline of Hyena: SIMD slots, weights as plaintexts, outputs packed",
    };
    /// PrivCirNet's.
    pub const BLOCKS: Self = Self {
        form: Form::Blocks,
        about: "CirEncode: circulant blocks transformed in SIMD slots, baby and giant steps across them",
    };

    /// Plans layers of all three forms.
    ///
    /// # Panics
    /// When a layer is one of another family's backend.
    pub(super) fn layers(requests: &[Request<'_>]) -> Result<HyenaLayers, (usize, LayerError)> {
        let wanted: Vec<Wanted<'_>> = requests
            .iter()
            .map(|r| Wanted {
                form: Form::of(r.backend).expect("a backend of this family"),
                spec: r.spec,
                in_shape: r.in_shape,
                activation_bits: r.activation_bits,
                weight_bits: r.weight_bits,
                weight_memory: r.weight_memory,
            })
            .collect();
        let refused = |(i, why)| (i, LayerError::Refused(why));
        let found = search::search(&wanted).map_err(refused)?;
        let nodes: Vec<usize> = requests.iter().map(|r| r.node).collect();
        HyenaLayers::new(&nodes, &wanted, found).map_err(refused)
    }
}

impl Backend for Hyena {
    fn name(&self) -> &'static str {
        self.form.name()
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn family(&self) -> &'static str {
        FAMILY
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        Ok(Arc::new(Self::layers(requests)?))
    }
}

/// The three backends' family.
const FAMILY: &str = Form::Hyena.name();

/// Public: the layers by node.
#[derive(Debug)]
pub(super) struct HyenaLayers {
    pub(super) ring: Chosen,
    /// The automorphisms that any layer takes, ascending.
    pub(super) elements: Vec<usize>,
    by_node: Vec<Option<Layer>>,
    /// What the search weighed, the best first.
    weighed: Vec<Weighed>,
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
            Form::Hyena => encoding.channels - 1,
            _ => 0,
        };
        let patterns = encodings.iter().map(patterns).sum::<usize>();
        let polys = patterns + layers().map(Layer::plaintexts).sum::<usize>();
        let words = self.ring.params.ring_dim() * self.ring.params.primes().len();
        (layers().map(weights).sum(), polys * words * size_of::<u64>())
    }

    /// How many layers have which form, where they differ.
    fn forms(&self) -> String {
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

    pub(super) fn with_weights(self: Arc<Self>, cpu: Cpu, weights: &[Option<Weights>]) -> HyenaModel {
        let ring = self.ring(cpu);
        let mut fixed: HashMap<Encoding, Arc<Fixed>> = HashMap::new();
        let servers = self.by_node.iter().zip(weights).map(|(layer, weights)| {
            let (layer, weights) = (layer.as_ref()?, weights.as_ref()?);
            let fixed = fixed.entry(layer.encoding()).or_insert_with(|| Arc::new(Fixed::new(&ring, layer)));
            Some(Arc::new(ServerLayer::new(&ring, layer, Arc::clone(fixed), weights)))
        });
        let servers = servers.collect();
        HyenaModel { layers: self, ring, servers }
    }
}

impl Layers for HyenaLayers {
    fn backend(&self) -> &'static str {
        FAMILY
    }

    fn backend_of(&self, node: usize) -> &'static str {
        self.by_node.get(node).and_then(Option::as_ref).map_or(FAMILY, |layer| layer.form().name())
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        let (kept, keys) = (self.ring.kept, self.elements.len());
        let digits = self.ring.digit_bits;
        let channels = self.by_node.iter().flatten().map(|layer| layer.packing().channels());
        let (least, most) = channels.fold((usize::MAX, 0), |(least, most), c| (least.min(c), most.max(c)));
        let ring = search::describe(&self.ring);
        format!(
            "{ring}, {kept} of them in responses, {keys} rotation keys with digits of {digits} bits, {least} to {most} channels a ciphertext{}",
            self.forms()
        )
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        let params = &self.ring.params;
        let (ring_dim, modulus_bits) = (params.ring_dim(), params.modulus_bits());
        vec![Rlwe { ring_dim, modulus_bits, estimate: params.estimate() }]
    }

    fn parameters(&self, name: &dyn Fn(usize) -> String) -> String {
        let mut lines = vec![self.describe(), String::new(), search::WEIGHED_HEAD.into()];
        lines.extend(self.weighed.iter().map(search::weighed_line));
        lines.extend([String::new(), search::FITTED_HEAD.into()]);
        let layers =
            self.by_node.iter().enumerate().filter_map(|(node, layer)| Some((node, layer.as_ref()?)));
        lines.extend(layers.map(|(node, layer)| layer.fitted.line(&layer.ring, &name(node))));
        let (numbers, polys) = self.model_bytes();
        let made: u64 =
            self.by_node.iter().flatten().filter(|layer| !layer.held).map(Layer::plaintext_bytes).sum();
        let mega = |bytes: usize| bytes as f64 / 1e6;
        let made = match made {
            0 => String::new(),
            made => format!(", {:.3} MB of these in every query", mega(made as usize)),
        };
        lines.extend([
            String::new(),
            format!(
                "model: {:.3} MB of weights as numbers, {:.3} MB of polynomials{made}",
                mega(numbers),
                mega(polys)
            ),
        ]);
        lines.join("\n")
    }

    fn client_keys(&self) -> KeyBytes {
        let keys = self.elements.len();
        let whole = self.ring.words_bytes(self.ring.params.primes().len());
        // Both halves, and of each automorphism the places that it moves.
        let moved = self.ring.params.ring_dim() * size_of::<u32>();
        let kept = 2 * whole + keys as u64 * (2 * self.ring.digits() as u64 * whole + moved as u64);
        KeyBytes { sent: self.ring.key_bytes(keys), kept }
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

    fn client(self: Arc<Self>, cpu: Cpu, _: [u8; 32]) -> Box<dyn Party> {
        Box::new(Client::new(self, cpu, Prg::from_os()))
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

    fn work(&self, machine: &dyn Constants) -> Option<Work> {
        let costs = machine.slots(self.packing().slots(), self.ring.limb_bits())?;
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
        let rest = [u64::from(self.activation_bits), u64::from(self.weight_bits)];
        let primes = ring.params.primes().iter().copied();
        own.into_iter().chain(rest).chain(primes).chain(self.packing().figures()).collect()
    }

    fn block_size(&self) -> usize {
        match self.packing() {
            // A channel in each part: blocks are dense weights to it.
            Places::Channels(_) => 1,
            Places::Blocks(packing) => packing.block_size(),
        }
    }
}

/// The server's layers, once per model.
pub(super) struct HyenaModel {
    pub(super) layers: Arc<HyenaLayers>,
    pub(super) ring: Ring,
    /// By node.
    servers: Vec<Option<Arc<ServerLayer>>>,
}

impl HyenaModel {
    pub(super) fn server(&self, node: usize) -> Arc<ServerLayer> {
        Arc::clone(self.servers.get(node).and_then(Option::as_ref).expect("the plan's layers have weights"))
    }
}

impl Model for HyenaModel {
    /// Done when the weights were taken.
    fn prepare(&self, _: usize) {}

    fn hint(&self, _: usize, _: Range<usize>, _: &[u8; 32]) -> Vec<u8> {
        Vec::new()
    }

    fn party(self: Arc<Self>, _: &[u8; 32]) -> Box<dyn Party> {
        Box::new(Server::new(self, Prg::from_os()))
    }
}
