//! What both parties know of the layers, and what the server keeps of them.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape};
use jaguar_wire::pack;

use super::places::Places;
use jaguar_linear::backend::{self, Domain, Geometry, Layers, Model, Planned, Traffic, Work};
use jaguar_linear::constants::Measured;
use jaguar_linear::jaguar::{Rings, positions};
use jaguar_linear::product::{DeviceProduct, product_len};

/// What both parties know of one layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) spec: Linear,
    pub(super) in_shape: Shape,
    pub(super) out_shape: Shape,
    /// n: bits of the activations.
    pub(super) activation_bits: u32,
    /// The rows and columns of a channel that some output reads: what V holds.
    pub(super) read: [Places; 2],
    /// The engine's layer.
    pub(super) engine: Planned,
}

/// V leaves in parts of so many channels: whole bytes, however many bits a value has.
const CHANNELS_IN_PART: usize = 8;

impl Layer {
    /// l = n + f.
    pub(super) fn bits(&self) -> u32 {
        self.activation_bits + self.spec.shift
    }

    /// How many values the input has.
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
    fn work(&self, machine: &Measured) -> Option<Work> {
        let engine = self.engine.work(machine)?;
        let costs = machine.get::<Rings>()?.of(ONLINE_RING_DIM, self.bits())?;
        let before = |role: usize| engine.offline[role] + engine.online[role] + engine.online_parallel[role];
        let (words, outputs) = (self.sent() as f64, self.out_shape.iter().product::<usize>() as f64);
        let len = product_len(&self.spec, self.out_shape);
        let rate = costs.online.at(&self.spec, len);
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
        self.engine.model_bytes() + jaguar_linear::product::numbers_bytes(&self.spec, self.in_shape)
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
    pub(super) name: &'static str,
    pub(super) engine: Arc<dyn Layers>,
    pub(super) by_node: Vec<Option<Layer>>,
}

impl FregataLayers {
    pub(super) fn of(&self, node: usize) -> &Layer {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }
}

/// The server's layers, once per model.
pub(super) struct FregataModel {
    pub(super) layers: Arc<FregataLayers>,
    pub(super) engine: Arc<dyn Model>,
    /// By node; `None` where the backend has no layer.
    pub(super) products: Vec<Option<Arc<dyn DeviceProduct>>>,
}

impl FregataModel {
    pub(super) fn product(&self, node: usize) -> Arc<dyn DeviceProduct> {
        Arc::clone(self.products.get(node).and_then(Option::as_ref).expect("the plan's layers have weights"))
    }
}
