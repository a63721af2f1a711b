//! Measures [`RnsCosts`] by whole steps of single layers, both roles, as a session runs them.

use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::lanes::PublicKey;
use jaguar_ring::prg::Prg;

use super::constants::{RNS_RINGS, RnsCosts, RnsRings};
use super::{Encoding, Layer, Secret, ServerLayer, Windows};
use jaguar_linear::constants::{Constants, Impossible, ProbeError};
use jaguar_linear::timing::{WEIGHT_BITS, least, runs, solve, timed, weights};

impl Constants for RnsRings {
    const NAME: &'static str = "RNS rings";

    fn measure(cpu: Cpu) -> Result<Self, ProbeError> {
        RNS_RINGS.iter().map(|&ring| costs(cpu, ring)).collect::<Result<_, _>>().map(Self)
    }

    fn impossible(&self) -> Option<Impossible> {
        RNS_RINGS.iter().find_map(|&(ring_dim, limbs)| match self.of(ring_dim, limbs) {
            Some(costs) => costs.impossible(),
            None => Some(Impossible::missing(format_args!(
                "the ring N = {ring_dim} with {limbs} primes of 30 bits"
            ))),
        })
    }
}

/// A layer of the server's, and what its client has: secrets and weights of no importance.
struct Probe {
    cpu: Cpu,
    weights: Weights,
    server: ServerLayer,
    secret: Secret,
    key: PublicKey,
}

/// Seconds of the steps of a layer.
struct Seconds {
    /// The client's ciphertexts, before the input.
    client_prepare: f64,
    /// The server's encryptions of zero, before the input.
    server_prepare: f64,
    /// The client's ciphertexts, with the input.
    encrypt: f64,
    /// The server's responses.
    evaluate: f64,
    /// The client's share of them.
    decrypt: f64,
}

impl Probe {
    /// A convolution of `kernel` x `kernel` with "same" padding.
    fn new(
        cpu: Cpu,
        (ring_dim, limbs): (usize, usize),
        in_shape: Shape,
        outs: usize,
        kernel: usize,
    ) -> Result<Self, ProbeError> {
        // Wide shares leave little room above the noise: two primes do for the first width, three for the second.
        let share_bits = if limbs == 2 { 36 } else { 46 };
        let spec = Linear::same(outs, kernel, 12);
        let layer = Layer::new(&spec, in_shape, share_bits, WEIGHT_BITS, Windows::FewestBytes)?;
        let found = (layer.layout().ring_dim(), layer.limbs());
        if found != (ring_dim, limbs) {
            return Err(format!("a layer in {found:?} instead of {:?}", (ring_dim, limbs)).into());
        }
        let weights = weights(outs, in_shape[0] * kernel * kernel);
        let mut secret = Secret::fresh(cpu, &layer);
        let key = secret.key().prepare(cpu, &layer);
        let server = ServerLayer::new(cpu, layer, &weights);
        Ok(Self { cpu, weights, server, secret, key })
    }

    /// Ciphertexts, polynomials of weights that they are multiplied with, and responses.
    fn counts(&self) -> [f64; 3] {
        let layout = self.server.layer().layout();
        [layout.ciphertexts(), layout.products(), layout.responses()].map(|count| count as f64)
    }

    /// How many seconds the transforms of the weights take for each polynomial.
    fn transform_weights(&self) -> f64 {
        let layer = self.server.layer();
        let transform = || [timed(|| ServerLayer::new(self.cpu, layer.clone(), &self.weights)).0];
        let [seconds] = least(runs(transform));
        seconds / layer.layout().products_per_tile() as f64
    }

    /// The least times of several runs.
    fn measure(&mut self) -> Seconds {
        let [client_prepare, server_prepare, encrypt, evaluate, decrypt] = least(runs(|| self.once()));
        Seconds { client_prepare, server_prepare, encrypt, evaluate, decrypt }
    }

    /// The steps' times, in the order of [`Seconds`].
    fn once(&mut self) -> [f64; 5] {
        let Self { server, secret, key, .. } = self;
        let layer = server.layer();
        let x = vec![1; layer.layout().in_shape().iter().product()];
        let (client_prepare, client) = timed(|| secret.prepare(layer));
        let (server_prepare, prepared) = timed(|| server.prepare(&mut Prg::from_os()));
        let (encrypt, upload) = timed(|| client.encrypt(layer, &x));
        let (evaluate, (response, _)) = timed(|| server.evaluate(prepared, key, &upload, &x));
        let (decrypt, _) = timed(|| secret.decrypt(layer, &response));
        [client_prepare, server_prepare, encrypt, evaluate, decrypt]
    }
}

/// The costs of the ring (N, number of primes).
fn costs(cpu: Cpu, ring: (usize, usize)) -> Result<RnsCosts, ProbeError> {
    // Many ciphertexts and few responses, few ciphertexts and many responses, and products whose weights no cache holds.
    let new = |in_shape, outs, kernel| Probe::new(cpu, ring, in_shape, outs, kernel);
    let mut inputs = new([96, 28, 28], 8, 1)?;
    let mut outputs = new([8, 28, 28], 64, 1)?;
    let mut products = new([128, 14, 14], 256, 3)?;
    let weights = products.transform_weights();
    let [many_in, many_out, many] = [&mut inputs, &mut outputs, &mut products].map(Probe::measure);
    let [[in_c, in_p, in_r], [out_c, out_p, out_r], [c, p, r]] =
        [inputs, outputs, products].map(|probe| probe.counts());
    let (mut input, mut product, mut response) = (0.0, 0.0, 0.0);
    for _ in 0..8 {
        // Products are no small part of such a layer, whatever a disturbed run of another makes of the rest.
        let rest = many.evaluate - c * input - r * response;
        product = rest.max(many.evaluate / 4.0) / p;
        [input, response] = solve(
            [in_c, in_r, many_in.evaluate - in_p * product],
            [out_c, out_r, many_out.evaluate - out_p * product],
        );
    }
    Ok(RnsCosts {
        ring_dim: ring.0,
        limbs: ring.1,
        weights,
        ciphertext: many_in.client_prepare / in_c,
        zero: many_out.server_prepare / out_r,
        encryption: many_in.encrypt / in_c,
        input,
        product,
        response,
        decryption: many_out.decrypt / out_r,
    })
}
