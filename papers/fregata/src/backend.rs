//! The backend as values: planning, the model at the server, and the two halves of a session.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

use super::Hme;
use super::client::Client;
use super::layer::{FregataLayers, FregataModel, Layer};
use super::places::Places;
use super::server::Server;
use jaguar_cheetah::Cheetah;
use jaguar_linear::backend::{
    self, Backend, BackendId, BackendParty, ChosenRing, LayerError, Layers, Model, Planned, Request, Rlwe,
};
use jaguar_linear::constants::Probe;
use jaguar_linear::inputs::{LISTED, MAX_LISTED};
use jaguar_linear::jaguar::{Jaguar, Rings};
use jaguar_linear::product::{Hardware, ProductShape};

/// Fregata: plain integers online, with an engine that multiplies before the input.
pub struct Fregata {
    name: &'static str,
    about: &'static str,
    engine: &'static dyn Backend,
}

impl Fregata {
    /// With the paper's engine.
    pub const HME: Self = Self {
        name: "fregata-hme",
        about: "as fregata-jaguar; offline the paper's homomorphic matrix product",
        engine: &Hme,
    };
    /// With Cheetah's layers as engine.
    pub const CHEETAH: Self = Self {
        name: "fregata-cheetah",
        about: "as fregata-jaguar; offline Cheetah's encoding of convolutions",
        engine: &Cheetah,
    };
    /// With Jaguar's layers as engine.
    pub const JAGUAR: Self = Self {
        name: "fregata-jaguar",
        about: "encryption before the input only: n + f bits a value online; offline Jaguar's parted halves, of which one is a hint",
        engine: &Jaguar,
    };
}

/// For kits: with each engine, the one first that serves most layers best.
pub const ALL: [BackendId; 3] =
    [BackendId::new(&Fregata::JAGUAR), BackendId::new(&Fregata::CHEETAH), BackendId::new(&Fregata::HME)];

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

    /// Its engine's, and Jaguar's for what it does online.
    fn probes(&self) -> Vec<Probe> {
        let mut probes = self.engine.probes();
        probes.push(Probe::of::<Rings>());
        probes
    }

    fn rings(&self) -> &'static [ChosenRing] {
        self.engine.rings()
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

    fn client(self: Arc<Self>, cpu: Cpu, public: [u8; 32]) -> Box<dyn BackendParty> {
        let engine = Arc::clone(&self.engine).client(cpu, public);
        Box::new(Client::new(self, engine, Prg::from_os()))
    }
}

impl Model for FregataModel {
    fn prepare(&self, node: usize) {
        self.engine.prepare(node);
    }

    fn hint(&self, node: usize, parts: Range<usize>, hint_key: &[u8; 32]) -> Vec<u8> {
        self.engine.hint(node, parts, hint_key)
    }

    fn party(self: Arc<Self>, hint_key: &[u8; 32]) -> Box<dyn BackendParty> {
        let engine = Arc::clone(&self.engine).party(hint_key);
        Box::new(Server::new(self, engine))
    }
}
