//! Networks run with a backend and an operator of one's own, between two parties.

use std::thread;

use jaguar::Cpu;
use jaguar::bundle::Bundle;
use jaguar::client::{Limits, Prediction, Reveal, connect};
use jaguar::float::{Bias, Graph, Input, Linear, Node, Op, Relu};
use jaguar::hint::HintPlace;
use jaguar::network::{Model, OperatorKind};
use jaguar::plan::{Choices, Kit};
use jaguar::progress::NoProgress;
use jaguar::quantise::{Options, calibrate};
use jaguar::server::Service;
use jaguar::wire::memory_pair;
use jaguar::{network, reference};
use own_backend::TOY;
use own_backend::band_pass::{BandPass, FloatBandPass};

/// A 3x3 convolution, an activation and a fully connected layer over 8 x 8 values.
fn graph(activation: Op) -> Graph {
    let node = |name: &str, op, inputs: &[usize], shape| Node {
        name: name.into(),
        op,
        inputs: inputs.into(),
        shape,
    };
    let weights = |count: usize| (0..count).map(|i| ((i * 37 % 19) as f32 - 9.0) / 20.0).collect();
    let bias = |count| Bias::PerChannel(vec![0.1; count]);
    let conv = network::Linear::same(4, 3, 0);
    let full = network::Linear { kernel: [8, 8], ..network::Linear::same(3, 1, 0) };
    let nodes = vec![
        node("input", Op::new(Input), &[], [1, 8, 8]),
        node("conv", Op::new(Linear { spec: conv, weights: weights(36), bias: bias(4) }), &[0], [4, 8, 8]),
        node("activation", activation, &[1], [4, 8, 8]),
        node("full", Op::new(Linear { spec: full, weights: weights(768), bias: bias(3) }), &[2], [3, 1, 1]),
    ];
    Graph { name: "tiny".into(), nodes, ..Graph::default() }
}

fn picture(seed: usize) -> Vec<f32> {
    (0..64).map(|i| ((i * i + seed * i) % 17) as f32 / 16.0).collect()
}

fn model(activation: Op) -> Model {
    let samples: Vec<Vec<f32>> = (0..10).map(picture).collect();
    calibrate(Cpu::detect(), &graph(activation), &samples, &Options::default()).unwrap().0
}

fn band_pass() -> Model {
    model(Op::new(FloatBandPass { bound: 0.5 }))
}

fn kit() -> Kit {
    Kit::standard().with([TOY]).with_operators([OperatorKind::of::<BandPass>()])
}

#[test]
fn a_session_gives_the_references_logits() {
    agree(&Kit::standard().with([TOY]), model(Op::new(Relu)));
}

#[test]
fn an_operator_of_ones_own_runs_too() {
    let model = band_pass();
    let run = reference::run(Cpu::detect(), &model, &input(&model)).unwrap();
    let cut = run.values[1].iter().zip(&run.values[2]).filter(|&(&x, &y)| x > 0 && y == 0).count();
    assert!(cut > 10 && run.values[2].iter().any(|&y| y > 0), "{cut} values are beyond the bound");
    agree(&kit(), model);
}

/// A file is read only by whoever knows its operators.
#[test]
fn a_reader_without_the_operator_says_so() {
    let path = std::env::temp_dir().join(format!("band-pass-{}.jaguar", std::process::id()));
    Bundle::new(band_pass()).unwrap().write(&path).unwrap();
    let id = Bundle::read(&path, kit().operators()).unwrap().id();
    let error = Bundle::read(&path, Kit::standard().operators()).err().unwrap().to_string();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(id.in_full().len(), 64);
    assert!(error.contains("no operator here has the number 1000"), "{error}");
}

fn input(model: &Model) -> Vec<i64> {
    model.network.input.quantise(&picture(42), model.network.activation_bits)
}

/// Its rounding is the reference's, and no noise is added without guard bits: the logits are the same to the last unit.
fn agree(kit: &Kit, model: Model) {
    let cpu = Cpu::detect();
    let input = input(&model);
    let want = reference::run(cpu, &model, &input).unwrap();
    let (client, server) = memory_pair();
    let choices = Choices::standard(&model.network, TOY);
    let bundle = Bundle::with_hiding(model, 0).unwrap();
    let refused = Service::new(bundle.clone(), choices.clone(), Reveal::Logits).err().unwrap().to_string();
    assert!(refused.contains("the backend toy protects nothing"), "{refused}");
    let service = Service::allowing_insecure_backends(bundle, choices, Reveal::Logits).unwrap();
    let limits = Limits { allow_insecure_backends: true, ..Limits::default() };
    let got = thread::scope(|scope| {
        scope.spawn(|| service.serve(server, &mut |_| ()).unwrap());
        let ready = connect(kit, client, &limits).unwrap().prepare_client(HintPlace::Memory).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (prediction, report, ready) = prepared.run(&input, &mut NoProgress).unwrap();
        assert!(report.online.bytes_up > 0);
        ready.leave().unwrap();
        prediction
    });
    assert_eq!(got, Prediction::Logits(want.output().to_vec()));
}
