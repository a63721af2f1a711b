//! Imports a model, calibrates it on some images, and compares integer with float on others.
//!
//! `cargo run --release -p jaguar-graph --example agreement -- [model ...]`, with the folders of models and
//! images in `JAGUAR_MODELS` and `JAGUAR_IMAGES` (a label is read from a name that ends in `_LABEL`).
use std::path::Path;
use std::time::Instant;

use jaguar_graph::agreement::agreement;
use jaguar_graph::import::{Options as ImportOptions, import_file};
use jaguar_graph::network::{Operators, Relu, Relu6};
use jaguar_graph::quantise::{LinearReport, NodeReport, Options, calibrate};
use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;

#[path = "../tests/zoo/mod.rs"]
mod zoo;

/// How many images calibrate; the rest is tested.
const CALIBRATE: usize = 6;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let Some((models, images)) = zoo::folders() else { return };
    for entry in
        zoo::MODELS.iter().filter(|m| wanted.is_empty() || wanted.iter().any(|w| m.file.contains(w.as_str())))
    {
        run(entry, &models, &images);
    }
}

fn run(entry: &zoo::Entry, models: &Path, images: &Path) {
    let start = Instant::now();
    let Some(file) = zoo::model_file(models, entry.file) else { return };
    let graph = match import_file(&file, &ImportOptions::new(&Operators::standard())) {
        Ok(graph) => graph,
        Err(error) => return println!("{}: {error}", entry.file),
    };
    println!("== {} imported in {:.2?}, {} nodes", graph.name, start.elapsed(), graph.nodes.len());
    let spec = entry.image();
    let samples = zoo::samples(images, entry.family, &spec, graph.input_shape());
    let (calibration, rest) = samples.split_at(CALIBRATE.min(samples.len()));
    let tested = if rest.is_empty() { calibration } else { rest };
    let tensors = |s: &[zoo::Sample]| s.iter().map(|s| s.tensor.clone()).collect::<Vec<_>>();

    let start = Instant::now();
    let options = Options { image: spec, ..Options::default() };
    let (model, report) = match calibrate(Cpu::detect(), &graph, &tensors(calibration), &options) {
        Ok(done) => done,
        Err(error) => return println!("{error}"),
    };
    println!("calibrated on {} images in {:.2?}", calibration.len(), start.elapsed());
    for node in &report.nodes {
        let linear = node.linear.as_ref().map(|l| {
            let LinearReport { shift, largest_weight, thin_channels, worst_case_bits, .. } = l;
            format!("f {shift:2}, weights to {largest_weight:4}, thin {thin_channels:3}, worst case {worst_case_bits:.1} bits")
        });
        if std::env::var_os("JAGUAR_VERBOSE").is_some() {
            let NodeReport { name, operation, range, scale, spare_bits, .. } = node;
            println!(
                "  {operation:9} {name:40} range {range:9.3} scale {scale:10.3} spare {spare_bits:4.1} {}",
                linear.unwrap_or_default()
            );
        }
    }
    report.warnings.iter().for_each(|w| println!("  {w}"));

    let start = Instant::now();
    let result = agreement(Cpu::detect(), &graph, &model, &tensors(tested)).expect("images fit");
    println!(
        "{} images in {:.2?}: same class {}, max error {:.4}, mean {:.5} of logits up to {:.2}; overflows {}, tight {}",
        result.images,
        start.elapsed(),
        result.same_class,
        result.max_error,
        result.mean_error,
        result.largest_logit,
        result.overflows,
        result.tight
    );
    let label = |s: &zoo::Sample| s.name.rsplit('_').next().and_then(|l| l.parse().ok());
    let right = |pick: fn(&(usize, usize)) -> usize| {
        result.classes.iter().zip(tested).filter(|(c, s)| Some(pick(c)) == label(s)).count()
    };
    println!("right: integer {}, float {} of {}", right(|c| c.0), right(|c| c.1), tested.len());
    let input = model.network.input.quantise(&tested[0].tensor, model.network.activation_bits);
    let start = Instant::now();
    graph.forward(Cpu::detect(), &tested[0].tensor).expect("fits");
    let float_time = start.elapsed();
    let start = Instant::now();
    reference::run(Cpu::detect(), &model, &input).expect("fits");
    let relus: usize = model
        .network
        .nodes
        .iter()
        .filter(|n| n.op.is::<Relu>() || n.op.is::<Relu6>())
        .map(|n| n.shape.iter().product::<usize>())
        .sum();
    println!("one image: float {float_time:.2?}, integer {:.2?}; {relus} ReLUs", start.elapsed());
}
