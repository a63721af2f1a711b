//! The backend as values: planning, the model at the server, and both parties of a session.
//!
//! 1. *Once per session:* the client makes a secret for each ring that the layers use, and sends a key: an encryption
//!    of zero, as Cheetah's client does once. Ciphertexts of all queries are under it. (A fresh key per query would hide
//!    nothing more: its a halves are fresh, and so is the server's u. It would cost 30 KiB a query.)
//! 2. *Offline:* the client's `e − a·s`, the server's u and e1. Nothing passes.
//! 3. *Online, layer by layer:* ciphertexts up, responses down. One round.

use std::ops::Range;
use std::sync::Arc;

use jaguar_graph::network::{Linear, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::Estimate;
use jaguar_ring::he::rns::lanes::{self, SecretKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, Stage};
use zeroize::Zeroizing;

use super::{
    ClientPrepared, Encoding, Layer, MAX_WINDOWS, PublicKey, Response, RnsRings, Secret, ServerLayer,
    ServerPrepared, Upload, Windows,
};
use jaguar_linear::backend::{
    self, Backend, BackendError, BackendId, BackendParty, Domain, Geometry, LayerError, Layers, Model,
    Online, Output, Request, Rlwe, Traffic, Work,
};
use jaguar_linear::constants::{Measured, Probe};
use jaguar_linear::product::Hardware;

/// The baseline: Cheetah (Huang et al., USENIX Security 2022), everything at full width.
pub struct Cheetah;

/// For kits.
pub const CHEETAH: BackendId = BackendId::new(&Cheetah);

/// Memory that transformed weights may take. ResNet-18's take 2.7 GiB, MobileNetV2's 2.1; ResNet-50's would take 20.8.
const WEIGHT_MEMORY: usize = 4 << 30;

/// Noise may have a standard deviation of 2^-NOISE_GUARD units of the network's last place: eight of them are 2^-7 of what
/// the truncation rounds by. What is asked of a product that nothing truncates, a tenth of its own last place, is
/// hundreds of times less, and would take a third prime.
const NOISE_GUARD: i32 = 10;

impl Backend for Cheetah {
    fn name(&self) -> &'static str {
        "cheetah"
    }

    fn about(&self) -> &'static str {
        "the baseline: everything at full width, products truncated by a protocol of their own"
    }

    fn keeps_products(&self) -> bool {
        true
    }

    fn probes(&self) -> Vec<Probe> {
        vec![Probe::of::<RnsRings>()]
    }

    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)> {
        let mut by_node: Vec<Option<Layer>> = Vec::new();
        let mut windows_so_far = 0;
        for (i, r) in requests.iter().enumerate() {
            let noise = allowed_noise(r);
            let (spec, windows) = (r.spec, Windows::FewestBytes);
            let layer = Layer::with_noise(spec, r.in_shape, r.product_bits, r.weight_bits, windows, noise)
                .map_err(|e| (i, LayerError::Refused(e.to_string())))?;
            // Every layer lists its windows.
            windows_so_far += layer.layout().tiles().len();
            if windows_so_far > MAX_WINDOWS {
                let total =
                    format!("{windows_so_far} windows in the layers so far; at most {MAX_WINDOWS} are taken");
                return Err((i, LayerError::Refused(total)));
            }
            by_node.resize(by_node.len().max(r.node + 1), None);
            by_node[r.node] = Some(layer);
        }
        Ok(Arc::new(RnsLayers::new(self.name(), by_node)))
    }
}

/// Which standard deviation of its noise, in units of its products' last place, a layer may have whose products are truncated.
pub fn allowed_noise(request: &Request<'_>) -> f64 {
    let last_place = (request.spec.shift + request.guard_bits) as i32;
    2f64.powi(last_place - NOISE_GUARD).max(Layer::MAX_NOISE)
}

/// Whether `memory` bytes hold a layer's transformed weights besides those of the layers before it that they hold.
fn kept<E: Encoding>(by_node: &[Option<Layer<E>>], memory: usize) -> Vec<bool> {
    let mut left = memory;
    let layers = by_node.iter();
    let fits = |layer: &Layer<E>| left.checked_sub(layer.weight_bytes()).map(|rest| left = rest).is_some();
    layers.map(|layer| layer.as_ref()).scan(fits, |fits, layer| Some(layer.is_some_and(fits))).collect()
}

/// Public: layers over RNS rings, all of one encoding, by node.
#[derive(Debug)]
pub struct RnsLayers<E> {
    backend: &'static str,
    by_node: Vec<Option<Layer<E>>>,
}

impl<E: Encoding> RnsLayers<E> {
    /// Those of a backend. Says of each layer whether a server has memory for its transformed weights.
    pub fn new(backend: &'static str, mut by_node: Vec<Option<Layer<E>>>) -> Self {
        let kept = kept(&by_node, WEIGHT_MEMORY);
        for (layer, kept) in by_node.iter_mut().zip(kept) {
            layer.iter_mut().for_each(|layer| layer.weights_kept = kept);
        }
        Self { backend, by_node }
    }

    fn of(&self, node: usize) -> &Layer<E> {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }

    fn all(&self) -> impl Iterator<Item = &Layer<E>> {
        self.by_node.iter().flatten()
    }

    /// One layer for each ring that they use, by number of primes: each ring has a key of its own.
    fn rings(&self) -> Vec<&Layer<E>> {
        let mut rings: Vec<&Layer<E>> = Vec::new();
        for layer in self.all() {
            if rings.iter().all(|other| other.limbs() != layer.limbs()) {
                rings.push(layer);
            }
        }
        rings.sort_by_key(|layer| layer.limbs());
        rings
    }

    /// The server's layers: transformed as long as `memory` bytes hold them, the others to be transformed in every query.
    fn transform(
        &self,
        cpu: Cpu,
        weights: &[Option<Weights>],
        memory: usize,
    ) -> Vec<Option<Arc<ServerLayer<E>>>> {
        let layers = self.by_node.iter().zip(weights).zip(kept(&self.by_node, memory));
        layers
            .map(|((layer, weights), kept)| {
                let (layer, weights) = (layer.clone()?, weights.as_ref()?);
                let server = if kept { ServerLayer::new } else { ServerLayer::on_the_way };
                Some(Arc::new(server(cpu, layer, weights)))
            })
            .collect()
    }
}

impl<E: Encoding + 'static> Layers for RnsLayers<E> {
    fn backend(&self) -> &'static str {
        self.backend
    }

    fn layer(&self, node: usize) -> Option<&(dyn backend::Layer + 'static)> {
        self.by_node.get(node)?.as_ref().map(|layer| layer as &(dyn backend::Layer + 'static))
    }

    fn describe(&self) -> String {
        let ring = |layer: &&Layer<E>| {
            let (n, limbs) = (layer.layout().ring_dim(), layer.limbs());
            let count = self.all().filter(|l| l.limbs() == limbs).count();
            let security = match layer.estimate() {
                Estimate::TenthsOfBits(tenths) => format!("{:.1} bits of security", f64::from(tenths) / 10.0),
                Estimate::Insecure => "INSECURE".into(),
            };
            format!("ring N = {n}, q of {limbs} primes ({security}) in {count} layers")
        };
        self.rings().iter().map(ring).collect::<Vec<_>>().join("; ")
    }

    fn rlwe(&self) -> Vec<Rlwe> {
        self.rings().iter().map(|layer| layer.rlwe()).collect()
    }

    fn session_bytes(&self) -> (usize, usize) {
        (self.rings().iter().map(|layer| layer.key_bytes()).sum(), 0)
    }

    fn model(
        self: Arc<Self>,
        &Hardware { cpu, .. }: &Hardware,
        _: [u8; 32],
        weights: &[Option<Weights>],
        _: u32,
    ) -> Arc<dyn Model> {
        let servers = self.transform(cpu, weights, WEIGHT_MEMORY);
        Arc::new(RnsModel { layers: self, cpu, servers })
    }

    fn client(self: Arc<Self>, cpu: Cpu, _: [u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Client { layers: self, cpu, secrets: Vec::new() })
    }
}

impl<E: Encoding> backend::Layer for Layer<E> {
    fn spec(&self) -> &Linear {
        self.layout.spec()
    }

    fn input(&self) -> Domain {
        Domain::power_of_two(self.share_bits)
    }

    fn output(&self) -> Domain {
        Domain::power_of_two(self.share_bits).with_excess(self.layout.spec().shift)
    }

    fn geometry(&self) -> Geometry {
        let l = &self.layout;
        Geometry {
            ring_dim: l.ring_dim(),
            tiles: l.tile_count(),
            maps_per_ciphertext: l.maps_per_ciphertext(),
            ciphertexts: l.ciphertexts(),
            responses: l.responses(),
            packing_distance: None,
            interleaved: 1,
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic { online: (self.upload_bytes(), self.response_bytes()), rounds: 1, ..Traffic::default() }
    }

    fn prepared_bytes(&self) -> [u64; 2] {
        let l = &self.layout;
        let words = |polynomials: usize| 4 * (polynomials * l.ring_dim() * self.limbs()) as u64;
        // The server has a byte of noise for every coefficient too.
        [words(l.ciphertexts()), words(l.responses()) + (l.responses() * l.ring_dim()) as u64]
    }

    /// Weights transformed, if they are kept.
    fn model_bytes(&self) -> u64 {
        if self.weights_kept { self.weight_bytes() as u64 } else { 0 }
    }

    /// Ciphertexts transformed, at the server; what passes, at either.
    fn running_bytes(&self, _: usize) -> [u64; 2] {
        let l = &self.layout;
        let polys = |count: usize| (count * l.ring_dim() * self.limbs() * size_of::<u32>()) as u64;
        let passing = [self.upload_bytes(), self.response_bytes()].map(|bytes| bytes as u64);
        [passing[0] + passing[1], polys(2 * l.ciphertexts()) + passing[1]]
    }

    fn work(&self, machine: &Measured) -> Option<Work> {
        let costs = machine.get::<RnsRings>()?.of(self.layout.ring_dim(), self.limbs())?;
        let l = &self.layout;
        let (ciphertexts, responses) = (l.ciphertexts() as f64, l.responses() as f64);
        let weights = l.products_per_tile() as f64 * costs.weights;
        let (model, in_query) = if self.weights_kept { (weights, 0.0) } else { (0.0, weights) };
        let products = l.products() as f64 * costs.product;
        Some(Work {
            model,
            offline: [ciphertexts * costs.ciphertext, responses * costs.zero],
            online_parallel: [
                ciphertexts * costs.encryption + responses * costs.decryption,
                ciphertexts * costs.input + products + responses * costs.response + in_query,
            ],
            ..Work::default()
        })
    }

    fn noise_ulps(&self) -> f64 {
        Layer::noise_ulps(self) / self.product_ulps()
    }

    fn rounding_ulps(&self) -> f64 {
        1.0 / self.product_ulps()
    }

    fn absorb(&self) -> Vec<u64> {
        self.public_figures()
    }

    /// Blocks are dense weights to it.
    fn block_size(&self) -> usize {
        1
    }
}

/// The server's layers, once per model.
struct RnsModel<E> {
    layers: Arc<RnsLayers<E>>,
    cpu: Cpu,
    /// By node; `None` where the backend has no layer.
    servers: Vec<Option<Arc<ServerLayer<E>>>>,
}

impl<E: Encoding + 'static> Model for RnsModel<E> {
    /// Done when the weights were taken.
    fn prepare(&self, _: usize) {}

    fn hint(&self, _: usize, _: Range<usize>, _: &[u8; 32]) -> Vec<u8> {
        Vec::new()
    }

    fn party(self: Arc<Self>, _: &[u8; 32]) -> Box<dyn BackendParty> {
        Box::new(Server { model: self, keys: Vec::new(), prg: Prg::from_os() })
    }
}

/// The client's side of a session.
struct Client<E> {
    layers: Arc<RnsLayers<E>>,
    cpu: Cpu,
    /// By ring.
    secrets: Vec<Secret>,
}

impl<E: Encoding + 'static> BackendParty for Client<E> {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        channel.enter(Stage::Client, "keys");
        for layer in self.layers.rings() {
            let mut secret = Secret::fresh(self.cpu, layer);
            secret.key().send(channel)?;
            self.secrets.push(secret);
        }
        Ok(())
    }

    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let layer = self.layers.of(node);
        let fits = |secret: &&mut Secret| secret.limbs() == layer.limbs();
        let secret = self.secrets.iter_mut().find(fits).expect("a secret for each of the plan's rings");
        let prepared = Some(secret.prepare(layer));
        Ok(Box::new(ClientOnline {
            layers: Arc::clone(&self.layers),
            node,
            secret: secret.share(),
            prepared,
        }))
    }
}

struct ClientOnline<E> {
    layers: Arc<RnsLayers<E>>,
    node: usize,
    secret: Arc<SecretKey>,
    /// Until the input is there.
    prepared: Option<ClientPrepared>,
}

impl<E: Encoding> Online for ClientOnline<E> {
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let layer = self.layers.of(self.node);
        let prepared = self.prepared.take().expect("fed once");
        Ok(prepared.encrypt(layer, x).send(channel)?)
    }

    fn finish(self: Box<Self>, channel: &mut Channel, _: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let layer = self.layers.of(self.node);
        let response = Response::receive(layer, channel)?;
        Ok(Box::new(Zeroizing::new(super::client::decrypt(&self.secret, layer, &response))))
    }
}

/// The server's side of a session.
struct Server<E> {
    model: Arc<RnsModel<E>>,
    /// By ring: its number of primes, and the client's key.
    keys: Vec<(usize, Arc<lanes::PublicKey>)>,
    prg: Prg,
}

impl<E: Encoding + 'static> BackendParty for Server<E> {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        channel.enter(Stage::Client, "keys");
        for layer in self.model.layers.rings() {
            let key = PublicKey::receive(layer, channel)?;
            self.keys.push((layer.limbs(), Arc::new(key.prepare(self.model.cpu, layer))));
        }
        Ok(())
    }

    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let server = self.model.servers.get(node).and_then(Option::as_ref);
        let server = Arc::clone(server.expect("the plan's layers have weights"));
        let limbs = server.layer().limbs();
        let key = self.keys.iter().find(|(l, _)| *l == limbs);
        let (_, key) = key.expect("a key for each of the plan's rings");
        let prepared = server.prepare(&mut self.prg);
        Ok(Box::new(ServerOnline { key: Arc::clone(key), server, prepared, upload: None }))
    }
}

struct ServerOnline<E> {
    server: Arc<ServerLayer<E>>,
    key: Arc<lanes::PublicKey>,
    prepared: ServerPrepared,
    upload: Option<Upload>,
}

impl<E: Encoding> Online for ServerOnline<E> {
    fn feed_all(&mut self, channel: &mut Channel, _: &[u64]) -> Result<(), BackendError> {
        self.upload = Some(Upload::receive(self.server.layer(), channel)?);
        Ok(())
    }

    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { server, key, prepared, upload } = *self;
        let upload = upload.expect("its input was fed");
        let (response, share) = server.evaluate(prepared, &key, &upload, x);
        response.send(server.layer(), channel)?;
        Ok(Box::new(Zeroizing::new(share)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jaguar_graph::network::Bias;

    /// Weights that memory does not hold are transformed in every query, and give the same shares.
    #[test]
    fn weights_without_memory_are_transformed_on_the_way() {
        let spec = Linear::same(4, 3, 10);
        let by_node = (0..3).map(|_| {
            Layer::with_noise(&spec, [4, 8, 8], 37, 12, Windows::FewestBytes, Layer::MAX_NOISE).ok()
        });
        let layers = RnsLayers::new("test", by_node.collect());
        let each = layers.of(0).weight_bytes();
        let weights =
            Weights { weights: vec![1; 144], exponents: vec![], bias: Bias::PerChannel(vec![0; 4]) };
        let weights = vec![Some(weights); 3];
        let kept = |memory: usize| -> Vec<usize> {
            let servers = layers.transform(Cpu::detect(), &weights, memory);
            servers.iter().flatten().map(|server| server.weight_bytes()).collect()
        };
        assert_eq!(kept(usize::MAX), [each; 3]);
        assert_eq!(kept(2 * each), [each, each, 0]);
        assert_eq!(kept(0), [0; 3]);
    }

    /// A window for each of 40,980 outputs: six such layers are planned, and the seventh is refused before its list is kept.
    #[test]
    fn windows_are_counted_over_all_layers() {
        let spec = Linear {
            out_channels: 1,
            kernel: [2, 1],
            dilation: [4095, 1],
            pads: [4096, 4, 4096, 5],
            ..Linear::same(1, 1, 10)
        };
        let request = |node| Request {
            node,
            spec: &spec,
            in_shape: [1, 1, 1],
            activation_bits: 16,
            guard_bits: 0,
            weight_bits: 12,
            opened: false,
            product_bits: 37,
            packing: Default::default(),
            images: 1,
            ring: Default::default(),
            backend: "cheetah",
            weight_memory: 0,
        };
        let requests: Vec<_> = (0..7).map(request).collect();
        assert_eq!(Cheetah.plan(&requests[..6]).unwrap().layer(5).unwrap().geometry().tiles, 40_980);
        let (layer, error) = Cheetah.plan(&requests).unwrap_err();
        assert_eq!(layer, 6);
        assert!(error.to_string().contains("in the layers so far"), "{error}");
    }
}
