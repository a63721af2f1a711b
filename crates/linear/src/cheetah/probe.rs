//! One layer whose steps are timed: the same code that sessions run.

use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Bias, Linear, Weights};
use jaguar_he::rns::lanes::PublicKey;
use jaguar_ring::prg::Prg;

use super::{Encoding, Layer, Secret, ServerLayer, Windows};
use crate::backend::LayerError;
use crate::probe::{RnsProbe, RnsProbeSpec, RnsSeconds};

/// A layer of the server's, and what its client has.
pub struct Probe {
    cpu: Cpu,
    weights: Weights,
    server: ServerLayer,
    secret: Secret,
    key: PublicKey,
}

fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = f();
    (start.elapsed().as_secs_f64(), value)
}

impl Probe {
    /// # Errors
    /// If no such layer has a ring of so many primes.
    pub fn new(spec: RnsProbeSpec) -> Result<Self, LayerError> {
        let RnsProbeSpec { cpu, limbs, in_shape, outs, kernel, weight_bits } = spec;
        // Wide shares leave little room above the noise: two primes do for the first width, three for the second.
        let share_bits = if limbs == 2 { 36 } else { 46 };
        let layer = Layer::new(
            &Linear::same(outs, kernel, 12),
            in_shape,
            share_bits,
            weight_bits,
            Windows::FewestBytes,
        )
        .map_err(|e| LayerError::Refused(e.to_string()))?;
        if layer.limbs() != limbs {
            return Err(LayerError::Refused(format!("{} primes instead of {limbs}", layer.limbs())));
        }
        let mut words = vec![0; outs * in_shape[0] * kernel * kernel];
        Prg::new([1; 32]).fill_words(&mut words, weight_bits - 1);
        let middle = 1i64 << (weight_bits - 2);
        let weights = Weights {
            weights: words.into_iter().map(|w| (w as i64 - middle) as i16).collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![1; outs]),
        };
        let mut secret = Secret::fresh(cpu, &layer);
        let key = secret.key().prepare(cpu, &layer);
        let server = ServerLayer::new(cpu, layer, &weights);
        Ok(Self { cpu, weights, server, secret, key })
    }
}

impl RnsProbe for Probe {
    fn ring_dim(&self) -> usize {
        self.server.layer().layout().ring_dim()
    }

    fn counts(&self) -> [usize; 3] {
        let layout = self.server.layer().layout();
        [layout.ciphertexts(), layout.products(), layout.responses()]
    }

    fn transform_weights(&self) -> f64 {
        let layer = self.server.layer();
        let count = layer.layout().products_per_tile();
        timed(|| ServerLayer::new(self.cpu, layer.clone(), &self.weights)).0 / count as f64
    }

    fn run(&mut self) -> RnsSeconds {
        let Self { server, secret, key, .. } = self;
        let layer = server.layer();
        let x = vec![1; layer.layout().in_shape().iter().product()];
        let (client_prepare, client) = timed(|| secret.prepare(layer));
        let (server_prepare, prepared) = timed(|| server.prepare(&mut Prg::from_os()));
        let (encrypt, upload) = timed(|| client.encrypt(layer, &x));
        let (evaluate, (response, _)) = timed(|| server.evaluate(prepared, key, &upload, &x));
        let (decrypt, _) = timed(|| secret.decrypt(layer, &response));
        RnsSeconds { client_prepare, server_prepare, encrypt, evaluate, decrypt }
    }
}
