//! What linear layers take in RNS rings: whole steps of Cheetah's layers, both roles, as a session runs them.

use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_linear::cheetah::{Encoding, Layer, Secret, ServerLayer, Windows};
use jaguar_plan::machine::RnsCosts;
use jaguar_ring::prg::Prg;

use super::{LEAST_REPEATS, PATIENCE, REPEATS, WEIGHT_BITS, positive, refused, solve, timed};
use crate::ProfileError;

/// A layer that a server has, and what its client has.
struct Probe {
    cpu: Cpu,
    server: ServerLayer,
    /// Seconds to transform one polynomial of them.
    weights: f64,
}

/// Seconds of the steps of one layer.
#[derive(Clone, Copy)]
struct Times {
    client_prepare: f64,
    server_prepare: f64,
    encrypt: f64,
    evaluate: f64,
    decrypt: f64,
}

impl Times {
    /// The least of each, to begin with none.
    fn least(times: impl Iterator<Item = Self>) -> Self {
        let none = f64::INFINITY;
        let first =
            Self { client_prepare: none, server_prepare: none, encrypt: none, evaluate: none, decrypt: none };
        times.fold(first, |a, b| Self {
            client_prepare: a.client_prepare.min(b.client_prepare),
            server_prepare: a.server_prepare.min(b.server_prepare),
            encrypt: a.encrypt.min(b.encrypt),
            evaluate: a.evaluate.min(b.evaluate),
            decrypt: a.decrypt.min(b.decrypt),
        })
    }
}

impl Probe {
    /// A convolution of `kernel` x `kernel` with "same" padding, in the ring of so many primes.
    fn new(
        cpu: Cpu,
        limbs: usize,
        in_shape: Shape,
        outs: usize,
        kernel: usize,
    ) -> Result<Self, ProfileError> {
        // Wide shares leave little room above the noise: two primes do for the first width, three for the second.
        let share_bits = if limbs == 2 { 36 } else { 46 };
        let spec = Linear::same(outs, kernel, 12);
        let layer = Layer::new(&spec, in_shape, share_bits, WEIGHT_BITS, Windows::FewestBytes)
            .map_err(|e| refused(e.to_string()))?;
        if layer.limbs() != limbs {
            return Err(refused(format!("{} primes instead of {limbs}", layer.limbs())));
        }
        let mut words = vec![0; outs * in_shape[0] * kernel * kernel];
        Prg::new([1; 32]).fill_words(&mut words, WEIGHT_BITS - 1);
        let middle = 1i64 << (WEIGHT_BITS - 2);
        let weights = Weights {
            weights: words.into_iter().map(|w| (w as i64 - middle) as i16).collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![1; outs]),
        };
        let count = layer.layout().products_per_tile();
        let (mut least, mut server) = timed(|| ServerLayer::new(cpu, layer.clone(), &weights));
        for _ in 1..LEAST_REPEATS {
            let seconds;
            (seconds, server) = timed(|| ServerLayer::new(cpu, layer.clone(), &weights));
            least = least.min(seconds);
        }
        Ok(Self { cpu, server, weights: least / count as f64 })
    }

    fn layer(&self) -> &Layer {
        self.server.layer()
    }

    /// Ciphertexts, products and responses.
    fn counts(&self) -> [f64; 3] {
        let layout = self.layer().layout();
        [layout.ciphertexts(), layout.products(), layout.responses()].map(|count| count as f64)
    }

    /// The least times of several runs.
    fn measure(&self) -> Times {
        let layer = self.layer();
        let mut secret = Secret::fresh(self.cpu, layer);
        let key = secret.key().prepare(self.cpu, layer);
        let x = vec![1; layer.layout().in_shape().iter().product()];
        let start = Instant::now();
        let runs = (0..REPEATS).take_while(|&run| run < LEAST_REPEATS || start.elapsed() < PATIENCE);
        Times::least(runs.map(|_| {
            let (client_prepare, client) = timed(|| secret.prepare(layer));
            let (server_prepare, server) = timed(|| self.server.prepare(&mut Prg::from_os()));
            let (encrypt, upload) = timed(|| client.encrypt(layer, &x));
            let (evaluate, (response, _)) = timed(|| self.server.evaluate(server, &key, &upload, &x));
            let (decrypt, _) = timed(|| secret.decrypt(layer, &response));
            Times { client_prepare, server_prepare, encrypt, evaluate, decrypt }
        }))
    }
}

/// The constants of the ring (N, number of primes), on the current thread.
pub(super) fn costs(cpu: Cpu, (ring_dim, limbs): (usize, usize)) -> Result<RnsCosts, ProfileError> {
    // Many ciphertexts and few responses, few ciphertexts and many responses, and products whose weights no cache holds.
    let inputs = Probe::new(cpu, limbs, [96, 28, 28], 8, 1)?;
    let outputs = Probe::new(cpu, limbs, [8, 28, 28], 64, 1)?;
    let products = Probe::new(cpu, limbs, [128, 14, 14], 256, 3)?;
    if products.layer().layout().ring_dim() != ring_dim {
        return Err(refused(format!("no layers in a ring of N = {ring_dim}")));
    }
    let (many_in, many_out, many) = (inputs.measure(), outputs.measure(), products.measure());
    let ([in_c, in_p, in_r], [out_c, out_p, out_r], [c, p, r]) =
        (inputs.counts(), outputs.counts(), products.counts());
    let (mut input, mut product, mut response) = (0.0, 0.0, 0.0);
    for _ in 0..8 {
        // Products are no small part of such a layer, whatever a disturbed run of another makes of the rest.
        let rest = many.evaluate - c * input - r * response;
        product = positive(rest.max(many.evaluate / 4.0) / p);
        [input, response] = solve(
            [in_c, in_r, many_in.evaluate - in_p * product],
            [out_c, out_r, many_out.evaluate - out_p * product],
        );
    }
    Ok(RnsCosts {
        ring_dim,
        limbs,
        weights: products.weights,
        ciphertext: positive(many_in.client_prepare / in_c),
        zero: positive(many_out.server_prepare / out_r),
        encryption: positive(many_in.encrypt / in_c),
        input,
        product,
        response,
        decryption: positive(many_out.decrypt / out_r),
    })
}
