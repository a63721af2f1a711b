//! What linear layers take in RNS rings: whole steps of layers, both roles, as a session runs them.

use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_graph::network::Shape;
use jaguar_linear::cheetah::Probe;
use jaguar_linear::probe::{RnsProbe, RnsProbeSpec, RnsSeconds};
use jaguar_plan::machine::RnsCosts;

use super::timing::{LEAST_REPEATS, PATIENCE, REPEATS, WEIGHT_BITS, positive, refused, solve};
use crate::ProfileError;

/// The least of each of the steps' times.
fn least(times: impl Iterator<Item = RnsSeconds>) -> RnsSeconds {
    let none = f64::INFINITY;
    let first = RnsSeconds {
        client_prepare: none,
        server_prepare: none,
        encrypt: none,
        evaluate: none,
        decrypt: none,
    };
    times.fold(first, |a, b| RnsSeconds {
        client_prepare: a.client_prepare.min(b.client_prepare),
        server_prepare: a.server_prepare.min(b.server_prepare),
        encrypt: a.encrypt.min(b.encrypt),
        evaluate: a.evaluate.min(b.evaluate),
        decrypt: a.decrypt.min(b.decrypt),
    })
}

/// The least times of several runs.
fn measure(probe: &mut dyn RnsProbe) -> RnsSeconds {
    let start = Instant::now();
    let runs = (0..REPEATS).take_while(|&run| run < LEAST_REPEATS || start.elapsed() < PATIENCE);
    least(runs.map(|_| probe.run()))
}

/// The constants of the ring (N, number of primes), on the current thread.
pub(super) fn costs(cpu: Cpu, (ring_dim, limbs): (usize, usize)) -> Result<RnsCosts, ProfileError> {
    // Many ciphertexts and few responses, few ciphertexts and many responses, and products whose weights no cache holds.
    let new = |in_shape: Shape, outs, kernel| {
        let spec = RnsProbeSpec { cpu, limbs, in_shape, outs, kernel, weight_bits: WEIGHT_BITS };
        Probe::new(spec).map_err(|e| refused(e.to_string()))
    };
    let mut inputs = new([96, 28, 28], 8, 1)?;
    let mut outputs = new([8, 28, 28], 64, 1)?;
    let mut products = new([128, 14, 14], 256, 3)?;
    if products.ring_dim() != ring_dim {
        return Err(refused(format!("no layers in a ring of N = {ring_dim}")));
    }
    let weights = (0..LEAST_REPEATS).map(|_| products.transform_weights()).fold(f64::INFINITY, f64::min);
    let [many_in, many_out, many] = [&mut inputs, &mut outputs, &mut products].map(|probe| measure(probe));
    let [[in_c, in_p, in_r], [out_c, out_p, out_r], [c, p, r]] =
        [inputs, outputs, products].map(|probe| probe.counts().map(|count| count as f64));
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
        weights,
        ciphertext: positive(many_in.client_prepare / in_c),
        zero: positive(many_out.server_prepare / out_r),
        encryption: positive(many_in.encrypt / in_c),
        input,
        product,
        response,
        decryption: positive(many_out.decrypt / out_r),
    })
}
