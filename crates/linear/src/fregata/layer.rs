//! The backend as values: planning, and the model at the server.

use std::ops::Range;
use std::sync::Arc;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_ring::prg::Prg;
use jaguar_wire::pack;

use super::Hme;
use super::client::Client;
use super::places::Places;
use super::server::Server;
use crate::backend::{
    self, Backend, Constants, Domain, Geometry, LayerError, Layers, Model, Party, Planned, Request, Rlwe,
    Traffic, WIDE, Work, positions,
};
use crate::cheetah::Cheetah;
use crate::inputs::{LISTED, MAX_LISTED};
use crate::jaguar::Jaguar;
use crate::product::{Hardware, Product, ProductShape, product_len};

/// Fregata: plain integers online, with an engine that multiplies before the input.
pub struct Fregata {
    name: &'static str,
    about: &'static str,
    engine: &'static dyn Backend,
}

impl Fregata {
    /// With the paper's engine.
    pub const HME: Self = Self {
        name: "fregata",
        about: "encryption before the input only: n + f bits a value online; offline a homomorphic matrix product",
        engine: &Hme,
    };
    /// With Cheetah's layers as engine.
    pub const CHEETAH: Self = Self {
        name: "fregata-cheetah",
        about: "as fregata; offline Cheetah's encoding of convolutions",
        engine: &Cheetah,
    };
    /// With Jaguar's layers as engine.
    pub const JAGUAR: Self = Self {
        name: "fregata-jaguar",
        about: "as fregata; offline Jaguar's parted halves, of which one is a hint",
        engine: &Jaguar,
    };
}

/// Shares have at most so many bits: what engines take.
const MOST_BITS: u32 = 48;

impl Backend for Fregata {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        // What the engine is asked for: products modulo 2^(n+f) that nothing truncated, to a layer that truncates as
        // one with f more guard bits and no shift.
        let truncates = !self.engine.keeps_products();
        let unshifted: Vec<Linear> = requests.iter().map(|r| Linear { shift: 0, ..r.spec.clone() }).collect();
        let mut inner = Vec::with_capacity(requests.len());
        for (i, (r, unshifted)) in requests.iter().zip(&unshifted).enumerate() {
            let bits = r.activation_bits + r.spec.shift;
            if bits > MOST_BITS {
                let why = format!("its products take {bits} bits; this backend takes {MOST_BITS}");
                return Err((i, LayerError::Refused(why)));
            }
            inner.push(match truncates {
                true => Request {
                    spec: unshifted,
                    activation_bits: bits,
                    guard_bits: r.guard_bits + r.spec.shift,
                    ..r.clone()
                },
                false => Request { product_bits: bits, ..r.clone() },
            });
        }
        let engine = self.engine.plan(&inner)?;
        let mut by_node: Vec<Option<Layer>> = Vec::new();
        let mut listed = 0;
        for (i, r) in requests.iter().enumerate() {
            let read = [0, 1].map(|axis| Places::read(r.spec, axis, r.in_shape[1 + axis]));
            listed += read.iter().map(Places::listed).sum::<usize>();
            if listed > MAX_LISTED {
                let total = format!("{listed} {LISTED} in the layers so far; at most {MAX_LISTED} are taken");
                return Err((i, LayerError::Refused(total)));
            }
            let [h, w] = r.spec.output_hw(r.in_shape).expect("a layer that fits its input");
            let layer = Layer {
                spec: r.spec.clone(),
                in_shape: r.in_shape,
                out_shape: [r.spec.out_channels, h, w],
                activation_bits: r.activation_bits,
                read,
                engine: Planned::new(Arc::clone(&engine), r.node).expect("the engine planned it"),
            };
            by_node.resize(by_node.len().max(r.node + 1), None);
            by_node[r.node] = Some(layer);
        }
        Ok(Arc::new(FregataLayers { name: self.name, engine, by_node }))
    }
}

/// What both parties know of one layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) spec: Linear,
    pub(super) in_shape: Shape,
    pub(super) out_shape: Shape,
    /// n.
    activation_bits: u32,
    /// The rows and columns of a channel that some output reads: what V holds.
    read: [Places; 2],
    /// The engine's layer.
    engine: Planned,
}

/// V leaves in parts of so many channels: whole bytes, however many bits a value has.
const CHANNELS_IN_PART: usize = 8;

impl Layer {
    /// l = n + f.
    pub(super) fn bits(&self) -> u32 {
        self.activation_bits + self.spec.shift
    }

    /// Values of the input.
    pub(super) fn inputs(&self) -> usize {
        self.in_shape.iter().product()
    }

    /// Values of V.
    pub(super) fn sent(&self) -> usize {
        self.in_shape[0] * self.sent_of_channel()
    }

    fn sent_of_channel(&self) -> usize {
        self.read[0].len() * self.read[1].len()
    }

    /// How many values of V can leave when the first `values` of the input's share are known.
    pub(super) fn ready(&self, values: usize) -> usize {
        let [channels, h, w] = self.in_shape;
        let known = if values >= self.inputs() {
            channels
        } else {
            values / (h * w).max(1) / CHANNELS_IN_PART * CHANNELS_IN_PART
        };
        known * self.sent_of_channel()
    }

    /// Where value `from` and those behind it up to `to` of V are in the input.
    pub(super) fn places(&self, values: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let [_, h, w] = self.in_shape;
        let [rows, columns] = &self.read;
        let (count, line) = (self.sent_of_channel().max(1), columns.len().max(1));
        values.map(move |i| {
            let at = i % count;
            i / count * h * w + rows.at(at / line) * w + columns.at(at % line)
        })
    }

    /// The client's share, from one modulo 2^l to one modulo 2^n: rounded down.
    pub(super) fn client_share(&self, share: u64) -> u64 {
        (share & (u64::MAX >> (64 - self.bits()))) >> self.spec.shift
    }

    /// The server's share, from one modulo 2^l to one modulo 2^n: rounded up.
    pub(super) fn server_share(&self, share: u64) -> u64 {
        let up = (1u64 << self.spec.shift) - 1;
        ((share & (u64::MAX >> (64 - self.bits()))) + up) >> self.spec.shift
            & (u64::MAX >> (64 - self.activation_bits))
    }

    /// How many units of the engine's last place make one of the network's.
    fn engine_ulps(&self) -> f64 {
        2f64.powi(self.spec.shift as i32 - self.engine.spec().shift as i32)
    }
}

impl backend::Layer for Layer {
    fn spec(&self) -> &Linear {
        &self.spec
    }

    fn input(&self) -> Domain {
        Domain::power_of_two(self.bits())
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.activation_bits)
    }

    fn geometry(&self) -> Geometry {
        self.engine.geometry()
    }

    fn traffic(&self) -> Traffic {
        let Traffic { hint, offline, online, rounds: _ } = self.engine.traffic();
        Traffic {
            hint,
            offline: (offline.0 + online.0, offline.1 + online.1),
            online: (pack::packed_len(self.sent(), self.bits()), 0),
            rounds: 0,
        }
    }

    /// Online by the constants of Jaguar's layers of so many bits, which compute the same products and pack as many
    /// words.
    fn work(&self, machine: &dyn Constants) -> Option<Work> {
        let engine = self.engine.work(machine)?;
        let costs = machine.power_of_two(ONLINE_RING_DIM, self.bits())?;
        let before = |role: usize| engine.offline[role] + engine.online[role] + engine.online_parallel[role];
        let (words, outputs) = (self.sent() as f64, self.out_shape.iter().product::<usize>() as f64);
        let len = product_len(&self.spec, self.out_shape);
        let rate = match () {
            () if self.spec.groups > 1 => costs.online.grouped,
            () if len >= WIDE => costs.online.wide,
            () => costs.online.narrow,
        };
        let taps = self.spec.kernel[0] * self.spec.kernel[1];
        let terms = self.in_shape[0] / self.spec.groups * taps;
        let products = self.out_shape[0] as f64 * terms as f64 * positions(len) as f64;
        Some(Work {
            model: engine.model,
            hint: engine.hint,
            offline: [before(0), before(1)],
            online: [words * costs.client_word, words * costs.server_word + outputs * costs.server_output],
            online_parallel: [0.0, products * rate],
        })
    }

    /// M and the output share at the client, r at the server. What the engine prepared is used up by then.
    fn prepared_bytes(&self) -> [u64; 2] {
        let outputs: usize = self.out_shape.iter().product();
        let words = |count: usize| (size_of::<u64>() * count) as u64;
        [words(self.inputs() + outputs), words(outputs)]
    }

    /// The engine's, and what the online product reads.
    fn model_bytes(&self) -> u64 {
        self.engine.model_bytes() + crate::product::numbers_bytes(&self.spec, self.in_shape)
    }

    /// The engine's offline (what it prepares too), or the product online.
    fn running_bytes(&self, threads: usize) -> [u64; 2] {
        let (engine, prepared) = (self.engine.running_bytes(threads), self.engine.prepared_bytes());
        [engine[0] + prepared[0], (engine[1] + prepared[1]).max(8 * self.inputs() as u64)]
    }

    fn noise_ulps(&self) -> f64 {
        self.engine.noise_ulps() / self.engine_ulps()
    }

    fn rounding_ulps(&self) -> f64 {
        1.0 + self.engine.rounding_ulps() / self.engine_ulps()
    }

    fn absorb(&self) -> Vec<u64> {
        let own = [u64::from(self.activation_bits), u64::from(self.spec.shift), self.sent() as u64];
        own.into_iter().chain(self.engine.absorb()).collect()
    }

    /// As its engine runs them.
    fn block_size(&self) -> usize {
        self.engine.block_size()
    }

    fn output_known_early(&self) -> bool {
        true
    }

    fn hint_parts(&self) -> (usize, usize) {
        self.engine.hint_parts()
    }
}

/// Where the online part's products are looked up: the rates of a multiply-add hardly depend on N.
const ONLINE_RING_DIM: usize = 2048;

/// Public: the layers by node.
#[derive(Debug)]
pub(super) struct FregataLayers {
    name: &'static str,
    engine: Arc<dyn Layers>,
    by_node: Vec<Option<Layer>>,
}

impl FregataLayers {
    pub(super) fn of(&self, node: usize) -> &Layer {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }
}

impl Layers for FregataLayers {
    fn backend(&self) -> &'static str {
        self.name
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        format!("before the input: {}", self.engine.describe())
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        self.engine.rlwe()
    }

    fn has_online_products(&self) -> bool {
        true
    }

    fn session_bytes(&self) -> (usize, usize) {
        self.engine.session_bytes()
    }

    fn query_bytes(&self) -> (usize, usize) {
        self.engine.query_bytes()
    }

    fn model(
        self: Arc<Self>,
        hardware: &Hardware,
        public: [u8; 32],
        weights: &[Option<Weights>],
        weight_bits: u32,
    ) -> Arc<dyn Model> {
        let products = self.by_node.iter().zip(weights).map(|(layer, weights)| {
            let (layer, weights) = (layer.as_ref()?, weights.as_ref()?);
            let (spec, in_shape, bits) = (&layer.spec, layer.in_shape, layer.bits());
            Some(hardware.device.load(ProductShape { spec, in_shape, bits, weight_bits }, weights))
        });
        let products = products.collect();
        let engine = Arc::clone(&self.engine).model(hardware, public, weights, weight_bits);
        Arc::new(FregataModel { layers: self, engine, products })
    }

    fn client(self: Arc<Self>, cpu: Cpu, public: [u8; 32]) -> Box<dyn Party> {
        let engine = Arc::clone(&self.engine).client(cpu, public);
        Box::new(Client::new(self, engine, Prg::from_os()))
    }
}

/// The server's layers, once per model.
pub(super) struct FregataModel {
    pub(super) layers: Arc<FregataLayers>,
    engine: Arc<dyn Model>,
    /// By node.
    products: Vec<Option<Arc<dyn Product>>>,
}

impl FregataModel {
    pub(super) fn product(&self, node: usize) -> Arc<dyn Product> {
        Arc::clone(self.products.get(node).and_then(Option::as_ref).expect("the plan's layers have weights"))
    }
}

impl Model for FregataModel {
    fn prepare(&self, node: usize) {
        self.engine.prepare(node);
    }

    fn hint(&self, node: usize, parts: Range<usize>, hint_key: &[u8; 32]) -> Vec<u8> {
        self.engine.hint(node, parts, hint_key)
    }

    fn party(self: Arc<Self>, hint_key: &[u8; 32]) -> Box<dyn Party> {
        let engine = Arc::clone(&self.engine).party(hint_key);
        Box::new(Server::new(self, engine))
    }
}
