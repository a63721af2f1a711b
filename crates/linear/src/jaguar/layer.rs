//! The backend as values: planning, the model at the server, and both parties of a session.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::Estimate;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::{Prg, os_random};
use jaguar_ring::product::WideNtt;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::constants::{RINGS, RingCosts, Rings, on_line, parameters, positions};
use super::{ClientPrepared, Layer, ServerLayer, ServerPrepared, Upload, Widths, prepare};
use crate::backend::{
    self, Backend, BackendError, BackendId, BackendParty, ChosenRing, Domain, Geometry, LayerError, Layers,
    Model, Online, Output, Request, Rlwe, Traffic, Work,
};
use crate::constants::{Measured, Probe};
use crate::inputs::{LISTED, MAX_LISTED};
use crate::layout::Layout;
use crate::product::Hardware;

/// The main path: parted halves over Z_{2^k}, phase sharing.
pub struct Jaguar;

/// For kits.
pub const JAGUAR: BackendId = BackendId::new(&Jaguar);

impl Backend for Jaguar {
    fn name(&self) -> &'static str {
        "jaguar"
    }

    fn about(&self) -> &'static str {
        "phase sharing over a power-of-two ring, truncated; what needs no input is done before it"
    }

    fn keeps_products(&self) -> bool {
        false
    }

    fn takes_batches(&self) -> bool {
        true
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<Rings>()]
    }

    fn rings(&self) -> &'static [ChosenRing] {
        &RINGS
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        let ring = requests.first().map_or(RINGS[0], |r| r.ring);
        let params = parameters(ring).map_err(|e| (0, e.into()))?;
        let mut by_node: Vec<Option<Layer>> = Vec::new();
        let mut listed = 0;
        for (i, r) in requests.iter().enumerate() {
            let planned = Layout::of_images(params.ring_dim(), r.spec, r.in_shape, r.packing, r.images)
                .map_err(LayerError::from)
                .and_then(|layout| {
                    let widths = Widths {
                        activation_bits: r.activation_bits,
                        guard_bits: r.guard_bits,
                        weight_bits: r.weight_bits,
                    };
                    Layer::with_widths(params, layout, r.node, widths, r.opened)
                        .map_err(|e| LayerError::Refused(e.to_string()))
                })
                .and_then(|layer| {
                    listed += layer.listed_bytes();
                    let total =
                        || format!("{listed} {LISTED} in the layers so far; at most {MAX_LISTED} are taken");
                    if listed <= MAX_LISTED { Ok(layer) } else { Err(LayerError::Refused(total())) }
                });
            let layer = planned.map_err(|e| (i, e))?;
            by_node.resize(by_node.len().max(r.node + 1), None);
            by_node[r.node] = Some(layer);
        }
        Ok(Arc::new(JaguarLayers { params, by_node }))
    }
}

/// Public: the layers by node.
#[derive(Debug)]
struct JaguarLayers {
    params: Parameters,
    by_node: Vec<Option<Layer>>,
}

impl JaguarLayers {
    fn of(&self, node: usize) -> &Layer {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }

    /// Secrets of a query: as many as the layer needs that needs the most.
    fn secrets(&self) -> usize {
        self.by_node.iter().flatten().map(Layer::secrets).max().unwrap_or(1)
    }
}

impl Layers for JaguarLayers {
    fn backend(&self) -> &'static str {
        Jaguar.name()
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        let security = match self.params.estimate() {
            Estimate::TenthsOfBits(tenths) => format!("{:.1} bits of security", f64::from(tenths) / 10.0),
            Estimate::Insecure => "insecure".into(),
        };
        format!("ring N = {}, q = 2^{} ({security})", self.params.ring_dim(), self.params.modulus_bits())
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        let (ring_dim, modulus_bits) = (self.params.ring_dim(), self.params.modulus_bits());
        vec![Rlwe { ring_dim, modulus_bits, estimate: self.params.estimate() }]
    }

    fn query_bytes(&self) -> (usize, usize) {
        (self.secrets() * pack::packed_len(self.params.ring_dim(), self.params.modulus_bits()), 32)
    }

    fn model(
        self: Arc<Self>,
        &Hardware { cpu, .. }: &Hardware,
        public: [u8; 32],
        weights: &[Option<Weights>],
        weight_bits: u32,
    ) -> Arc<dyn Model> {
        let servers = self.by_node.iter().zip(weights).map(|(layer, weights)| {
            let (layer, weights) = (layer.as_ref()?, weights.as_ref()?);
            Some(Arc::new(ServerLayer::new(cpu, layer.clone(), weights, weight_bits)))
        });
        let servers = servers.collect();
        let ring = Ring::new(cpu, self.params);
        let public = PublicSeed(public);
        let p1 = ring.prepare_wide(&public.p1(&self.params));
        Arc::new(JaguarModel { layers: self, servers, ring, public, p1 })
    }

    fn client(self: Arc<Self>, cpu: Cpu, public: [u8; 32]) -> Box<dyn BackendParty> {
        let ring = Ring::new(cpu, self.params);
        let public = PublicSeed(public);
        let p1 = public.p1(&self.params);
        Box::new(Client { layers: self, ring, public, p1, query: None })
    }
}

impl backend::Layer for Layer {
    fn spec(&self) -> &Linear {
        self.layout.spec()
    }

    fn input(&self) -> Domain {
        Domain::power_of_two(self.input_bits())
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.output_bits())
    }

    fn geometry(&self) -> Geometry {
        let l = &self.layout;
        Geometry {
            ring_dim: l.ring_dim(),
            tiles: l.tiles().len(),
            maps_per_ciphertext: l.maps_per_ciphertext(),
            ciphertexts: l.ciphertexts(),
            responses: l.responses(),
            packing_distance: Some(l.map_distance()),
            interleaved: l.interleaved(),
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic { hint: self.hint_bytes(), online: (self.upload_bytes(), 0), ..Traffic::default() }
    }

    fn work(&self, machine: &Measured) -> Option<Work> {
        let costs = machine.get::<Rings>()?.of(self.params.ring_dim(), self.params.modulus_bits())?;
        Some(work(self, costs))
    }

    fn noise_ulps(&self) -> f64 {
        Layer::noise_ulps(self)
    }

    fn rounding_ulps(&self) -> f64 {
        1.0
    }

    fn absorb(&self) -> Vec<u64> {
        self.public_figures()
    }

    fn block_size(&self) -> usize {
        self.layout.parts()
    }

    fn output_known_early(&self) -> bool {
        true
    }

    fn prepared_bytes(&self) -> [u64; 2] {
        let output = 8 * self.layout.outputs() as u64;
        [8 * self.inputs.count() as u64 + output, output]
    }

    /// Weights as the kernels take them, and the a half.
    fn model_bytes(&self) -> u64 {
        let numbers = crate::product::numbers_bytes(self.layout.spec(), self.layout.in_shape());
        let a_half = size_of::<u32>() * self.hint_responses() * self.layout.ring_dim();
        numbers / self.layout.parts() as u64 + a_half as u64
    }

    /// At the server the limbs of b and of its share.
    fn running_bytes(&self, _: usize) -> [u64; 2] {
        [0, 8 * self.inputs.count() as u64]
    }

    fn hint_parts(&self) -> (usize, usize) {
        (self.hint_responses(), self.hint_response_bytes())
    }
}

/// Of what a response with a single output takes the server, the part that tiles under one hint share: u, drawn and transformed.
const DRAWN: f64 = 0.5;

fn work(layer: &Layer, costs: &RingCosts) -> Work {
    let layout = &layer.layout;
    let spec = layout.spec();
    let (per_tile, channels) = (layout.responses_per_tile() as f64, spec.out_channels as f64);
    let terms = layout.terms_per_output() as f64;
    let mut work = Work::default();
    // u is drawn once for all tiles of a hint.
    let drawn = DRAWN * on_line(&costs.server_response, 1);
    let shared = (layout.responses() - layer.hint_responses()) as f64;
    for tile in layout.tiles() {
        let len = layout.export_len(tile);
        // So many coefficients of a response are wanted.
        let wanted = layout.parts() * len;
        work.offline[0] += per_tile * on_line(&costs.client_response, wanted);
        work.offline[1] += per_tile * on_line(&costs.server_response, wanted);
        let rate = costs.online.at(spec, len);
        // In parts it may be by frequencies, which the machine's rates are not of.
        let share = if layout.parts() > 1 { layout.online_share(len) } else { 1.0 };
        work.online_parallel[1] += channels * terms * positions(len) as f64 * rate * share;
    }
    work.offline[1] -= shared * drawn;
    let words = layer.upload().0 as f64;
    work.offline[0] += layout.ciphertexts() as f64 * costs.ciphertext;
    work.online[0] = words * costs.client_word;
    work.online[1] = words * costs.server_word + layout.outputs() as f64 * costs.server_output;
    let responses = layer.hint_responses() as f64;
    let rate = costs.a_half.of(spec, layout.transforms());
    work.model = responses * terms * layout.ring_dim() as f64 * rate;
    work.hint = responses * costs.hint_response;
    work
}

/// The server's layers, once per model.
struct JaguarModel {
    layers: Arc<JaguarLayers>,
    /// By node; `None` where the backend has no layer.
    servers: Vec<Option<Arc<ServerLayer>>>,
    ring: Ring,
    public: PublicSeed,
    p1: WideNtt,
}

impl JaguarModel {
    fn of(&self, node: usize) -> &Arc<ServerLayer> {
        self.servers.get(node).and_then(Option::as_ref).expect("the plan's layers have weights")
    }
}

impl Model for JaguarModel {
    fn prepare(&self, node: usize) {
        self.of(node).prepare_model(&self.public);
    }

    fn hint(&self, node: usize, parts: Range<usize>, hint_key: &[u8; 32]) -> Vec<u8> {
        self.of(node).hint(&self.ring, &self.public, &self.p1, hint_key, parts)
    }

    fn party(self: Arc<Self>, hint_key: &[u8; 32]) -> Box<dyn BackendParty> {
        let secrets = self.layers.secrets();
        Box::new(Server { model: self, secrets, hint_key: Zeroizing::new(*hint_key), query: None })
    }
}

/// The client's side of a session.
struct Client {
    layers: Arc<JaguarLayers>,
    ring: Ring,
    public: PublicSeed,
    p1: Vec<u64>,
    /// The current query's secrets, and the seed of the server's masks.
    query: Option<(Vec<QuerySecret>, [u8; 32])>,
}

impl BackendParty for Client {
    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let mut secrets: Vec<_> =
            (0..self.layers.secrets()).map(|_| QuerySecret::fresh(&self.ring)).collect();
        for secret in &mut secrets {
            let p0 = secret.zero_key(&self.ring, &self.p1);
            channel.send_packed(&p0, self.ring.params().modulus_bits())?;
        }
        let mut mask_seed = [0; 32];
        channel.recv_into(&mut mask_seed)?;
        self.query = Some((secrets, mask_seed));
        Ok(())
    }

    fn prepare(
        &mut self,
        node: usize,
        hint: &[u8],
        _: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let (secrets, mask_seed) = self.query.as_mut().expect("a query has begun");
        let layer = self.layers.of(node);
        let prepared = prepare(layer, &self.ring, &self.public, hint, secrets, mask_seed);
        Ok(Box::new(ClientOnline { layers: Arc::clone(&self.layers), node, prepared }))
    }
}

struct ClientOnline {
    layers: Arc<JaguarLayers>,
    node: usize,
    prepared: ClientPrepared,
}

impl Online for ClientOnline {
    fn early_output(&self) -> Option<&[u64]> {
        Some(&self.prepared.output)
    }

    fn feed(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        Ok(self.prepared.send(self.layers.of(self.node), channel, x)?)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.feed(channel, x)
    }

    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let output = self.prepared.run(self.layers.of(self.node), channel, x)?;
        Ok(Box::new(Zeroizing::new(output)))
    }
}

/// The server's side of a session.
struct Server {
    model: Arc<JaguarModel>,
    /// Keys of a query.
    secrets: usize,
    hint_key: Zeroizing<[u8; 32]>,
    /// The client's keys for the current query, and the seed of this party's masks.
    query: Option<(Vec<ZeroKey>, [u8; 32])>,
}

impl BackendParty for Server {
    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let ring = &self.model.ring;
        let mut keys = Vec::with_capacity(self.secrets);
        for _ in 0..self.secrets {
            let p0 = channel.recv_packed(ring.params().ring_dim(), ring.params().modulus_bits())?;
            keys.push(ZeroKey::new(ring, &p0, &mut Prg::from_os()));
        }
        let mask_seed = os_random();
        channel.send(&mask_seed)?;
        self.query = Some((keys, mask_seed));
        Ok(())
    }

    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let (keys, mask_seed) = self.query.as_ref().expect("a query has begun");
        let server = Arc::clone(self.model.of(node));
        let prepared = server.prepare(&self.model.ring, &self.hint_key, keys, mask_seed);
        Ok(Box::new(ServerOnline { server, prepared, upload: Upload::default() }))
    }
}

struct ServerOnline {
    server: Arc<ServerLayer>,
    prepared: ServerPrepared,
    upload: Upload,
}

impl Online for ServerOnline {
    fn receive(&mut self, channel: &mut Channel, count: usize) -> Result<(), BackendError> {
        // It follows the client's last message of a block, which was waited for already.
        let receive = |channel: &mut Channel| self.server.receive_ready(&mut self.upload, channel, count);
        Ok(channel.alongside(receive)?)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        Ok(self.server.receive_ready(&mut self.upload, channel, x.len())?)
    }

    fn finish(self: Box<Self>, _: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { server, prepared, upload } = *self;
        Ok(Box::new(server.begin_shared(prepared, upload, x)))
    }
}
