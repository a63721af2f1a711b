//! Norms: sums over windows, layers of few values, products and curves of an inverse root, as imports put them together.

use std::path::Path;

use jaguar_graph::import::{Options as ImportOptions, import_file};
use jaguar_graph::network::{MatrixProduct, Operators, Product};
use jaguar_graph::quantise::{Options, calibrate};

use super::stream::alternate;
use super::*;

/// A model of `jaguar-graph`'s tests, quantised; its input, and what onnxruntime makes of it.
struct Case {
    model: Model,
    input: Vec<i64>,
    want: Vec<f64>,
}

impl Case {
    fn new(name: &str) -> Self {
        Self::with(name, 0)
    }

    /// Factors of products with so many bits fewer than other values.
    fn with(name: &str, spare: u32) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/fixtures").join(name);
        let file = path.with_extension("onnx");
        let graph = import_file(&file, &ImportOptions::new(&Operators::standard())).expect("it imports");
        let data = std::fs::read(path.with_extension("io")).expect("its values");
        let values: Vec<f32> =
            data.as_chunks::<4>().0[2..].iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let (x, want) = values.split_at(graph.input_shape().iter().product());
        let options = Options { spare: vec![spare; graph.nodes.len()], ..Options::default() };
        let (model, _) = calibrate(Cpu::detect(), &graph, &[x.to_vec()], &options).expect("scales");
        let input = model.network.input.quantise(x, model.network.activation_bits);
        Self { model, input, want: want.iter().map(|&v| v.into()).collect() }
    }

    fn bundle(&self, guard_bits: u32) -> Bundle {
        Bundle::with_hiding(self.model.clone(), guard_bits).expect("a sound model")
    }
}

/// Group norms over images, and layer, instance, group, local response and root-mean-square norms with a length at the end, under the
/// default backend: each layer within its bound of the reference, and what comes out is what the float network says.
#[test]
fn norms_agree_with_the_reference_and_with_floats() {
    for name in ["group_norms_21", "norms_17"] {
        let case = Case::new(name);
        for (guard_bits, most) in [(0, 0.05), (8, 6e-3)] {
            let bundle = case.bundle(guard_bits);
            let network = bundle.model.network.clone();
            let x: Vec<i64> = case.input.iter().map(|v| v << guard_bits).collect();
            let choices = Choices::standard(&network, Kit::JAGUAR);
            let checks = verify(bundle, choices, Reveal::Logits, &[x], HintPlace::Memory).unwrap();
            for (layer, node) in checks[0].layers.iter().zip(&network.nodes) {
                assert_eq!(layer.wrong, 0, "{name}: {layer:?}");
                assert!(!node.op.is::<Product>() || layer.max_ulps <= 1.0, "{name}: {layer:?}");
            }
            let Prediction::Logits(logits) = &checks[0].prediction else { panic!("logits are opened") };
            let largest = case.want.iter().fold(0f64, |m, v| m.max(v.abs()));
            for (got, want) in network.output.logits(logits).iter().zip(&case.want) {
                let off = (got - want).abs() / largest;
                assert!(off < most, "{name} with {guard_bits} guard bits: {got} for {want}");
            }
        }
    }
}

/// Norms, attention and gates whose factors have fewer bits, with guard bits: a private run of both parties keeps every layer's bound, its
/// answers are near the float network's in the mean, products are shifted by fewer bits, and no more bytes are sent.
#[test]
fn factors_of_few_bits_agree_with_the_reference() {
    // (An answer's noise is a tenth of the bound: one of thirty is beyond it where few bits take most of it.)
    const RUNS: usize = 8;
    for (name, most) in [("norms_17", 0.02), ("vision_transformer_17", 0.02), ("mobilenet_v3_14", 0.02)] {
        let [(fine, sent, _), (coarse, fewer, off)] = [0, 8].map(|spare| {
            let case = Case::with(name, spare);
            let bundle = case.bundle(8);
            let network = bundle.model.network.clone();
            let choices = Choices::standard(&network, Kit::JAGUAR);
            let x: Vec<i64> = case.input.iter().map(|v| v << 8).collect();
            let checks = verify(bundle, choices, Reveal::Logits, &vec![x; RUNS], HintPlace::Memory).unwrap();
            let mut logits = vec![0.0; case.want.len()];
            for check in &checks {
                for (layer, node) in check.layers.iter().zip(&network.nodes) {
                    assert_eq!(layer.wrong, 0, "{name}: {layer:?}");
                    let product = node.op.is::<Product>() || node.op.is::<MatrixProduct>();
                    assert!(!product || layer.max_ulps <= 1.1, "{name}: {layer:?}");
                }
                let Prediction::Logits(answer) = &check.prediction else { panic!("logits are opened") };
                let answer = network.output.logits(answer);
                logits.iter_mut().zip(answer).for_each(|(mean, got)| *mean += got / RUNS as f64);
            }
            let largest = case.want.iter().fold(0f64, |m, v| m.max(v.abs()));
            let off = logits.iter().zip(&case.want).map(|(got, want)| (got - want).abs() / largest);
            let shifts = network.nodes.iter().filter_map(|node| {
                let product = node.op.downcast_ref::<Product>().map(|product| product.shift);
                product.or(node.op.downcast_ref::<MatrixProduct>().map(|product| product.shift))
            });
            let cost =
                Plan::new(&network, Choices::standard(&network, Kit::JAGUAR)).unwrap().nonlinear_cost();
            let bytes = cost.up + cost.down + cost.prepare_up + cost.prepare_down;
            (shifts.sum::<u32>(), bytes, off.fold(0.0, f64::max))
        });
        assert!(coarse < fine, "{name}: {coarse} bits of shifts, {fine}");
        assert!(fewer < sent, "{name}: {fewer} bytes, {sent}");
        assert!(off < most, "{name}: off by {off}");
    }
}

/// Boxes beside scores a thousandth of them, each with a scale of its own, joined and taken apart on the way: each layer of a private run is
/// within its bound of the reference, what is moved to the outputs is what was made, bit for bit, and each output is as near to the float
/// network's. Which of their values is the largest, integers do not tell, so no label is revealed.
#[test]
fn outputs_with_scales_of_their_own_are_opened_right() {
    let case = Case::new("uneven_outputs_13");
    let bundle = case.bundle(0);
    let network = bundle.model.network.clone();
    let choices = Choices::standard(&network, Kit::JAGUAR);
    let inputs = [case.input.clone()];
    let checks = verify(bundle, choices.clone(), Reveal::Logits, &inputs, HintPlace::Memory).unwrap();
    for (layer, node) in checks[0].layers.iter().zip(&network.nodes) {
        assert_eq!(layer.wrong, 0, "{layer:?}");
        assert!(node.op.linear().is_some() || layer.max_ulps == 0.0, "{layer:?}");
    }
    let Prediction::Logits(logits) = &checks[0].prediction else { panic!("logits are opened") };
    let (found, count) = (network.output.finish(logits), network.output.parts[0].count().unwrap());
    for own in [0..count, count..found.len()] {
        let largest = case.want[own.clone()].iter().fold(0f64, |m, v| m.max(v.abs()));
        let off = found[own.clone()].iter().zip(&case.want[own]).map(|(a, b)| (a - b).abs() / largest);
        let off = off.fold(0.0, f64::max);
        assert!(off < 1e-3, "{off}");
    }
    let refused = Service::new(case.bundle(0), choices, Reveal::Label).map(drop).unwrap_err().to_string();
    assert!(refused.contains("scale of its own"), "{refused}");
}

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were planned.
#[test]
fn norms_take_what_was_planned_under_every_backend() {
    let case = Case::new("group_norms_21");
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(|| case.bundle(0), &[one], 0, &format!("norms-{one}"));
    }
    alternate(|| case.bundle(0), &all, 0, "norms-all");
}
