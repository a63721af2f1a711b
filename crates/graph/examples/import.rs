//! Imports ONNX files and compares the float graph, and an integer network of it, with what stands beside each in NAME.io (see
//! `tests/fixtures/make.py`). The network has 20 activation bits and is calibrated on noise, so that the input is a new one.
//!
//! `cargo run --release -p jaguar-graph --example import -- FILE.onnx...`

use std::path::Path;

use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::{Hiding, Operators, OutputSpec};
use jaguar_graph::outputs::logit_error;
use jaguar_graph::quantise::{Options as QuantiseOptions, calibrate};
use jaguar_graph::{float, onnx, reference};
use jaguar_ring::cpu::Cpu;

const BITS: u32 = 20;

/// Normally distributed numbers, the same ones each time (xorshift, Box-Muller).
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / 2f64.powi(53)
    };
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    (0..count).map(|_| normal() as f32).collect()
}

/// What an integer network calibrated on two pictures of noise makes of an input: by which part of the logits' spread it is off, or
/// why there is none.
fn in_integers(graph: &float::Graph, input: &[f32], logits: &[f64]) -> String {
    let samples = [1, 2].map(|seed| noise(input.len(), seed));
    let options = QuantiseOptions {
        activation_bits: BITS,
        weight_bits: 16,
        hiding: Hiding::NONE,
        ..QuantiseOptions::default()
    };
    let network = match calibrate(Cpu::detect(), graph, &samples, &options) {
        Ok((model, _)) => model,
        Err(e) => return format!("not quantised: {e}"),
    };
    let run = reference::run(Cpu::detect(), &network, &network.network.input.quantise(input, BITS));
    match run {
        Ok(run) => {
            let found = network.network.output.logits(run.output());
            let off = 100.0 * logit_error(&found, logits);
            format!(
                "integers of {BITS} bits off by {off:.2e} % of the spread, {} out of range",
                run.total_overflows()
            )
        }
        Err(e) => format!("not quantised: {e}"),
    }
}

fn main() {
    for file in std::env::args().skip(1) {
        let path = Path::new(&file);
        let outputs = onnx::read(path).ok().and_then(|model| model.graph).map(|graph| graph.output);
        let outputs = outputs.unwrap_or_default().iter().map(|o| o.name().to_owned()).collect();
        match import_file(path, &Options { outputs, ..Options::new(&Operators::standard()) }) {
            Err(e) => println!("{file}: {e}"),
            Ok(graph) => {
                let Ok(data) = std::fs::read(path.with_extension("io")) else {
                    println!("{file}: imports, {} nodes", graph.nodes.len());
                    continue;
                };
                let (words, _) = data.as_chunks::<4>();
                let inputs = u32::from_le_bytes(words[0]) as usize;
                let values: Vec<f32> = words[2..].iter().map(|&b| f32::from_le_bytes(b)).collect();
                let (input, expected) = values.split_at(inputs.min(values.len()));
                let logits: Vec<f64> = graph
                    .forward(Cpu::detect(), input)
                    .unwrap_or_default()
                    .into_iter()
                    .map(f64::from)
                    .collect();
                let spec = OutputSpec { parts: graph.outputs.clone(), ..OutputSpec::plain(1.0) };
                let found: Vec<f64> = spec.split(&logits).flat_map(|(p, v)| p.finish.apply(v)).collect();
                let largest = |v: &[f64]| v.iter().fold(0f64, |m, v| m.max(v.abs()));
                let expected: Vec<f64> = expected.iter().copied().map(f64::from).collect();
                let off: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
                let mut names: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
                names.sort_unstable();
                let counts = names.chunk_by(|a, b| a == b).map(|c| format!("{} {}", c.len(), c[0]));
                let counts: Vec<String> = counts.collect();
                println!(
                    "{file}: off by {:.1e}; {}; {}",
                    largest(&off) / largest(&expected),
                    in_integers(&graph, input, &logits),
                    counts.join(", ")
                );
            }
        }
    }
}
