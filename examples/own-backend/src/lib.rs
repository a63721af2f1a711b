//! A linear backend of one's own, in a crate outside the project. **INSECURE: a toy.** Its "encryption" adds a pad that both parties
//! know, so the server reads what the client sends. All else is what a real backend does.
//!
//! `[⌊(Σ w·x + bias) / 2^f⌉] mod 2^n  <-  Linear([x] mod 2^n)`, to the nearest integer, as the plaintext reference has it. Online: the
//! client's share up, its share of the output down, one round.
//!
//! 1. The client adds the pad to its share and sends it.
//! 2. The server takes the pad off, adds its own share, and computes the layer exactly.
//! 3. It draws its output share r, and sends y − r; the client's share is that.
//!
//! An operator of one's own is beside it: [`band_pass`].

pub mod band_pass;

use std::ops::Range;
use std::sync::Arc;

use jaguar::linear::Prg;
use jaguar::linear::backend::{
    Backend, BackendError, BackendId, BackendParty, ChosenRing, Domain, Geometry, Layer, LayerError, Layers,
    Model, Online, Output, Request, Rlwe, Traffic, Work,
};
use jaguar::linear::constants::{Constants, Impossible, Measured, Probe, ProbeError};
use jaguar::network::{Linear, Shape, Weights};
use jaguar::nonlinear::{Modulus, semantics::round_shift};
use jaguar::reference::linear_exact;
use jaguar::wire::{Channel, pack};
use jaguar::{Cpu, Hardware};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// What a kit is given.
pub const TOY: BackendId = BackendId::new(&Toy);

/// The "rings" that it leaves to the planner: they are only told apart by what they take.
pub const RINGS: [ChosenRing; 2] =
    [ChosenRing { ring_dim: 64, modulus_bits: 20 }, ChosenRing { ring_dim: 128, modulus_bits: 20 }];

/// Seconds of a value sent, by N of the ring. (A real backend measures them, with the code of its sessions.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Toys(pub Vec<(u32, f64)>);

impl Constants for Toys {
    const NAME: &'static str = "toy values";

    fn measure(_: Cpu) -> Result<Self, ProbeError> {
        Ok(Self(vec![(64, 3e-3), (128, 1e-3)]))
    }

    fn impossible(&self) -> Option<Impossible> {
        self.0.iter().find_map(|&(n, t)| Impossible::time(format_args!("a value in N = {n}"), t, 1e-12))
    }
}

/// **INSECURE**: the backend.
pub struct Toy;

impl Backend for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn about(&self) -> &'static str {
        "INSECURE: a toy, which adds a pad that everybody knows"
    }

    fn is_secure(&self) -> bool {
        false
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<Toys>()]
    }

    fn rings(&self) -> &'static [ChosenRing] {
        &RINGS
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        let layer = |r: &Request<'_>| {
            let output = r.spec.output_hw(r.in_shape).filter(|_| RINGS.contains(&r.ring))?;
            Some(ToyLayer {
                node: r.node,
                spec: r.spec.clone(),
                in_shape: r.in_shape,
                outputs: r.spec.out_channels * output[0] * output[1],
                modulus: Modulus::power_of_two(r.activation_bits),
                ring_dim: r.ring.ring_dim,
            })
        };
        let planned = |(at, r)| layer(r).ok_or((at, LayerError::Refused("no such ring".into())));
        Ok(Arc::new(ToyLayers(requests.iter().enumerate().map(planned).collect::<Result<_, _>>()?)))
    }
}

/// What both parties know of one layer.
#[derive(Clone, Debug)]
struct ToyLayer {
    node: usize,
    spec: Linear,
    in_shape: Shape,
    outputs: usize,
    /// 2^n.
    modulus: Modulus,
    ring_dim: u32,
}

impl ToyLayer {
    fn inputs(&self) -> usize {
        self.in_shape.iter().product()
    }

    /// The pad. (A real backend has a key here.)
    fn pad(&self) -> Zeroizing<Vec<u64>> {
        let mut prg = Prg::new([7; 32]);
        Zeroizing::new((0..self.inputs()).map(|_| self.modulus.reduce(prg.next_u64())).collect())
    }
}

impl Layer for ToyLayer {
    fn spec(&self) -> &Linear {
        &self.spec
    }

    fn input(&self) -> Domain {
        Domain::new(self.modulus)
    }

    fn output(&self) -> Domain {
        Domain::new(self.modulus)
    }

    fn geometry(&self) -> Geometry {
        Geometry::default()
    }

    fn traffic(&self) -> Traffic {
        let bytes = |values| pack::packed_len(values, self.modulus.bits());
        Traffic { online: (bytes(self.inputs()), bytes(self.outputs)), rounds: 1, ..Traffic::default() }
    }

    fn work(&self, machine: &Measured) -> Option<Work> {
        let (_, each) = machine.get::<Toys>()?.0.iter().find(|(n, _)| *n == self.ring_dim)?;
        Some(Work { online: [self.inputs() as f64 * each, 0.0], ..Work::default() })
    }

    fn noise_ulps(&self) -> f64 {
        0.0
    }

    fn rounding_ulps(&self) -> f64 {
        0.5
    }

    fn absorb(&self) -> Vec<u64> {
        vec![u64::from(self.ring_dim)]
    }

    fn block_size(&self) -> usize {
        1
    }

    fn model_bytes(&self) -> u64 {
        0
    }
}

/// All layers of a plan.
#[derive(Debug)]
struct ToyLayers(Vec<ToyLayer>);

impl ToyLayers {
    fn of(&self, node: usize) -> &ToyLayer {
        self.0.iter().find(|layer| layer.node == node).expect("a layer of this backend")
    }
}

impl Layers for ToyLayers {
    fn backend(&self) -> &'static str {
        "toy"
    }

    fn layer(&self, node: usize) -> Option<&(dyn Layer + 'static)> {
        self.0.iter().find(|layer| layer.node == node).map(|layer| layer as _)
    }

    fn describe(&self) -> String {
        "a pad that everybody knows (INSECURE)".into()
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        Vec::new()
    }

    fn model(
        self: Arc<Self>,
        hardware: &Hardware,
        _: [u8; 32],
        weights: &[Option<Weights>],
        _: u32,
    ) -> Arc<dyn Model> {
        Arc::new(ToyModel { layers: self, cpu: hardware.cpu, weights: weights.to_vec() })
    }

    fn client(self: Arc<Self>, _: Cpu, _: [u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Client(self))
    }
}

/// The server's layers.
struct ToyModel {
    layers: Arc<ToyLayers>,
    cpu: Cpu,
    weights: Vec<Option<Weights>>,
}

impl Model for ToyModel {
    fn prepare(&self, _: usize) {}

    fn hint(&self, _: usize, _: Range<usize>, _: &[u8; 32]) -> Vec<u8> {
        Vec::new()
    }

    fn party(self: Arc<Self>, _: &[u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Server(self))
    }
}

struct Client(Arc<ToyLayers>);

impl BackendParty for Client {
    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        Ok(Box::new(ClientOnline(self.0.of(node).clone())))
    }
}

struct ClientOnline(ToyLayer);

impl Online for ClientOnline {
    /// 1. The share under the pad.
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let (modulus, pad) = (self.0.modulus, self.0.pad());
        let sent =
            Zeroizing::new(x.iter().zip(&*pad).map(|(&x, &pad)| modulus.add(x, pad)).collect::<Vec<_>>());
        Ok(channel.send_packed(&sent, modulus.bits())?)
    }

    /// 3. The output share.
    fn finish(self: Box<Self>, channel: &mut Channel, _: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        Ok(Box::new(Zeroizing::new(channel.recv_packed(self.0.outputs, self.0.modulus.bits())?)))
    }
}

struct Server(Arc<ToyModel>);

impl BackendParty for Server {
    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        Ok(Box::new(ServerOnline { model: Arc::clone(&self.0), node, theirs: Zeroizing::default() }))
    }
}

struct ServerOnline {
    model: Arc<ToyModel>,
    node: usize,
    /// The client's share, under the pad.
    theirs: Zeroizing<Vec<u64>>,
}

impl Online for ServerOnline {
    /// 1.
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let bits = self.model.layers.of(self.node).modulus.bits();
        self.theirs = Zeroizing::new(channel.recv_packed(x.len(), bits)?);
        Ok(())
    }

    /// 2 and 3.
    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let layer = self.model.layers.of(self.node);
        let (modulus, pad) = (layer.modulus, layer.pad());
        let input = (x.iter().zip(&*self.theirs).zip(&*pad))
            .map(|((&x, &theirs), &pad)| modulus.open(modulus.sub(theirs, pad), x));
        let input = Zeroizing::new(input.collect::<Vec<i64>>());
        let weights = self.model.weights[self.node].as_ref().expect("the plan's layers have weights");
        let products =
            Zeroizing::new(linear_exact(self.model.cpu, &layer.spec, layer.in_shape, weights, &input));
        let mut prg = Prg::from_os();
        let mine = (0..layer.outputs).map(|_| modulus.reduce(prg.next_u64()));
        let mine = Zeroizing::new(mine.collect::<Vec<_>>());
        let theirs = products.iter().zip(&*mine).map(|(&product, &mine)| {
            let shift = layer.spec.shift;
            let y = modulus.from_signed(if shift == 0 { product } else { round_shift(product, shift) });
            modulus.sub(y, mine)
        });
        let theirs = Zeroizing::new(theirs.collect::<Vec<_>>());
        channel.send_packed(&theirs, modulus.bits())?;
        channel.flush()?;
        Ok(Box::new(mine))
    }
}
