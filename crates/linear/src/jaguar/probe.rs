//! Measures [`RingCosts`] by whole steps of single layers, both roles one after the other: what a session runs.
//!
//! From the times of steps the figures follow by small systems of equations: each layer is dominated by the one that it is for.

use std::slice::{from_mut, from_ref};

use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::{WireError, memory_pair};

use super::constants::{PerProduct, RINGS, RingCosts, Rings, parameters, positions};
use super::{Layer, ServerLayer, prepare};
use crate::constants::{Constants, Impossible, ProbeError};
use crate::layout::Layout;
use crate::timing::{WEIGHT_BITS, least, positive, runs, solve, timed, weights};

impl Constants for Rings {
    const NAME: &'static str = "power-of-two rings";

    fn measure(cpu: Cpu) -> Result<Self, ProbeError> {
        RINGS.iter().map(|&ring| costs(cpu, parameters(ring)?)).collect::<Result<_, _>>().map(Self)
    }

    fn impossible(&self) -> Option<Impossible> {
        RINGS.iter().find_map(|ring| match self.of(ring.ring_dim as usize, ring.modulus_bits) {
            Some(costs) => costs.impossible(),
            None => Some(Impossible::missing(format_args!("the ring {ring}"))),
        })
    }

    fn shared_work(cpu: Cpu) -> Option<Result<f64, ProbeError>> {
        Some(preparation(cpu))
    }

    fn table(&self) -> Vec<Vec<String>> {
        let head = [
            "ring",
            "ciphertext µs",
            "response µs, client",
            "server",
            "hint µs",
            "word ns, client",
            "server",
            "output ns",
            "products G/s: wide",
            "narrow",
            "grouped",
        ];
        let us = |seconds: f64| format!("{:.1}", seconds * 1e6);
        let span = |points: &[(usize, f64)]| {
            let of = |point: Option<&(usize, f64)>| us(point.map_or(0.0, |p| p.1));
            format!("{} to {}", of(points.first()), of(points.last()))
        };
        let row = |r: &RingCosts| {
            let ns = |seconds: f64| format!("{:.2}", seconds * 1e9);
            let rate = |seconds: f64| format!("{:.1}", 1e-9 / seconds);
            vec![
                format!("N = {}, k = {}", r.ring_dim, r.modulus_bits),
                us(r.ciphertext),
                span(&r.client_response),
                span(&r.server_response),
                us(r.hint_response),
                ns(r.client_word),
                ns(r.server_word),
                ns(r.server_output),
                rate(r.online.wide),
                rate(r.online.narrow),
                rate(r.online.grouped),
            ]
        };
        std::iter::once(head.map(str::to_owned).to_vec()).chain(self.0.iter().map(row)).collect()
    }
}

/// One layer of no importance, and what runs it.
struct Probe {
    cpu: Cpu,
    layer: Layer,
    weights: Weights,
    ring: Ring,
}

/// Seconds of the steps of one layer.
#[derive(Clone, Copy)]
struct Times {
    a_half: f64,
    hint: f64,
    client_prepare: f64,
    server_prepare: f64,
    client_run: f64,
    server_run: f64,
}

impl Probe {
    /// A convolution of `kernel` x `kernel` with "same" padding.
    fn new(
        cpu: Cpu,
        params: Parameters,
        in_shape: Shape,
        out_channels: usize,
        kernel: usize,
        groups: usize,
    ) -> Result<Self, ProbeError> {
        // Two limbs leave little room above the noise; the time does not depend on these widths.
        let (activation_bits, shift) = if params.modulus_bits() < 40 { (6, 8) } else { (16, 12) };
        let spec = Linear { groups, ..Linear::same(out_channels, kernel, shift) };
        let layout = Layout::new(params.ring_dim(), &spec, in_shape)?;
        let layer = Layer::new(params, layout, 0, activation_bits, WEIGHT_BITS, false)?;
        let weights = weights(out_channels, layer.layout.terms_per_output());
        Ok(Self { cpu, layer, weights, ring: Ring::new(cpu, params) })
    }

    /// The least times of several runs.
    fn measure(&self) -> Result<Times, WireError> {
        let all = runs(|| self.once()).collect::<Result<Vec<_>, _>>()?;
        let [a_half, hint, client_prepare, server_prepare, client_run, server_run] = least(all);
        Ok(Times { a_half, hint, client_prepare, server_prepare, client_run, server_run })
    }

    /// The steps' times, in the order of [`Times`].
    fn once(&self) -> Result<[f64; 6], WireError> {
        let Self { cpu, layer, weights, ring } = self;
        let public = PublicSeed([2; 32]);
        let (hint_key, mask_seed) = ([3; 32], [4; 32]);
        let server = ServerLayer::new(*cpu, layer.clone(), weights, WEIGHT_BITS);
        let (a_half, ()) = timed(|| server.prepare_model(&public));
        let p1 = public.p1(ring.params());
        let wide = ring.prepare_wide(&p1);
        let responses = 0..layer.layout.responses();
        let (hint_seconds, hint) = timed(|| server.hint(ring, &public, &wide, &hint_key, responses));
        let mut secret = QuerySecret::fresh(ring);
        let p0 = ZeroKey::new(ring, &secret.zero_key(ring, &p1), &mut Prg::from_os());
        let (client_prepare, client) =
            timed(|| prepare(layer, ring, &public, &hint, from_mut(&mut secret), &mask_seed));
        let (server_prepare, prepared) = timed(|| server.prepare(ring, &hint_key, from_ref(&p0), &mask_seed));
        let (mut up, mut down) = memory_pair();
        let x = vec![1; layer.layout.in_shape().iter().product()];
        let (client_run, sent) = timed(|| client.run(layer, &mut up, &x).and_then(|_| up.flush()));
        sent?;
        let (server_run, answered) = timed(|| server.receive(&mut down).map(|b| server.run(prepared, b, &x)));
        answered?;
        Ok([a_half, hint_seconds, client_prepare, server_prepare, client_run, server_run])
    }

    fn responses(&self) -> f64 {
        self.layer.layout.responses() as f64
    }

    fn ciphertexts(&self) -> f64 {
        self.layer.layout.ciphertexts() as f64
    }

    fn words(&self) -> f64 {
        self.layer.upload().0 as f64
    }

    fn outputs(&self) -> f64 {
        self.layer.layout.outputs() as f64
    }

    /// Multiply-adds: online over the exported stretches, of the a half over whole responses.
    fn products(&self) -> (f64, f64) {
        let layout = &self.layer.layout;
        let terms = layout.spec().out_channels as f64 * layout.terms_per_output() as f64;
        let positions: usize = layout.tiles().iter().map(|t| positions(layout.export_len(t))).sum();
        (terms * positions as f64, terms * (layout.tiles().len() * layout.ring_dim()) as f64)
    }
}

/// Maps of so many values are exported, to see what a response takes: up to the largest that fit N = 2048.
const EXPORTS: [usize; 6] = [1, 4, 7, 14, 28, 45];

/// The costs of one ring.
fn costs(cpu: Cpu, params: Parameters) -> Result<RingCosts, ProbeError> {
    let new = |shape, out, kernel, groups| Probe::new(cpu, params, shape, out, kernel, groups);
    // Many ciphertexts and few responses, few ciphertexts and many responses.
    let inputs = new([96, 28, 28], 8, 1, 1)?;
    let outputs = new([8, 28, 28], 64, 1, 1)?;
    let (many_in, many_out) = (inputs.measure()?, outputs.measure()?);

    // 1. Before the input: two equations for a ciphertext and a response, then responses by what they export.
    let [ciphertext, _] = solve(
        [inputs.ciphertexts(), inputs.responses(), many_in.client_prepare],
        [outputs.ciphertexts(), outputs.responses(), many_out.client_prepare],
    );
    let (mut client_response, mut server_response) = (Vec::new(), Vec::new());
    for side in EXPORTS {
        let probe = new([1, side, side], 32, 1, 1)?;
        let times = probe.measure()?;
        let client = times.client_prepare - probe.ciphertexts() * ciphertext;
        client_response.push((side * side, positive(client / probe.responses())));
        server_response.push((side * side, times.server_prepare / probe.responses()));
    }

    // 2. Online: words and outputs from the same two layers, products from layers that have many. Each round corrects for
    // what the others leave in it.
    let wide = new([32, 56, 56], 32, 3, 1)?;
    let narrow = new([128, 7, 7], 64, 3, 1)?;
    let grouped = new([48, 28, 28], 48, 3, 48)?;
    let (t_wide, t_narrow, t_grouped) = (wide.measure()?, narrow.measure()?, grouped.measure()?);
    let mut online = PerProduct::default();
    let (mut server_word, mut server_output) = (0.0, 0.0);
    for _ in 0..8 {
        // Products are no small part of these layers, whatever a disturbed run of another makes of the rest.
        let rest = |p: &Probe, t: &Times| {
            let rest = t.server_run - p.words() * server_word - p.outputs() * server_output;
            rest.max(t.server_run / 4.0) / p.products().0
        };
        online = PerProduct {
            wide: rest(&wide, &t_wide),
            narrow: rest(&narrow, &t_narrow),
            grouped: rest(&grouped, &t_grouped),
        };
        [server_word, server_output] = solve(
            [inputs.words(), inputs.outputs(), many_in.server_run - inputs.products().0 * online.wide],
            [outputs.words(), outputs.outputs(), many_out.server_run - outputs.products().0 * online.wide],
        );
    }

    // 3. Once per model and client.
    let packed = new([32, 14, 14], 64, 3, 1)?;
    let a_half = PerProduct {
        wide: t_wide.a_half / wide.products().1,
        narrow: packed.measure()?.a_half / packed.products().1,
        grouped: t_grouped.a_half / grouped.products().1,
    };
    Ok(RingCosts {
        ring_dim: params.ring_dim(),
        modulus_bits: params.modulus_bits(),
        ciphertext,
        client_response,
        server_response,
        hint_response: many_out.hint / outputs.responses(),
        client_word: many_in.client_run / inputs.words(),
        server_word,
        server_output,
        online,
        a_half,
    })
}

/// Seconds of both parties' preparation of a layer of 256 responses, on the current pool's threads.
fn preparation(cpu: Cpu) -> Result<f64, ProbeError> {
    let times = Probe::new(cpu, Parameters::DEFAULT, [64, 28, 28], 256, 1, 1)?.measure()?;
    Ok(times.client_prepare + times.server_prepare)
}
