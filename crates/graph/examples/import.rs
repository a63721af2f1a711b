//! Imports ONNX files and compares the float graph with what stands beside each in NAME.io (see
//! `tests/fixtures/make.py`).
//!
//! `cargo run --release -p jaguar-graph --example import -- FILE.onnx...`

use std::path::Path;

use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::{Operators, OutputSpec};
use jaguar_graph::onnx;
use jaguar_ring::cpu::Cpu;

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
                let found: Vec<f64> = graph
                    .forward(Cpu::detect(), input)
                    .unwrap_or_default()
                    .into_iter()
                    .map(f64::from)
                    .collect();
                let spec = OutputSpec { scale: 1.0, parts: graph.outputs.clone(), labels: Vec::new() };
                let found: Vec<f64> = spec.split(&found).flat_map(|(p, v)| p.finish.apply(v)).collect();
                let largest = |v: &[f64]| v.iter().fold(0f64, |m, v| m.max(v.abs()));
                let expected: Vec<f64> = expected.iter().copied().map(f64::from).collect();
                let off: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
                let mut names: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
                names.sort_unstable();
                let counts = names.chunk_by(|a, b| a == b).map(|c| format!("{} {}", c.len(), c[0]));
                let counts: Vec<String> = counts.collect();
                println!("{file}: off by {:.1e}; {}", largest(&off) / largest(&expected), counts.join(", "));
            }
        }
    }
}
