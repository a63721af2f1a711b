//! A network runs with a backend of one's own, between two parties.

use std::thread;

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Limits, Prediction, Reveal, connect};
use jaguar_engine::hint::Place;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_graph::float::{Bias, Graph, Input, Linear, Node, Op, Relu};
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_graph::{network, reference};
use jaguar_plan::{Choices, Kit};
use jaguar_ring::cpu::Cpu;
use jaguar_wire::memory_pair;
use own_backend::TOY;

/// A 3x3 convolution, a ReLU and a fully connected layer over 8 x 8 values.
fn graph() -> Graph {
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
        node("relu", Op::new(Relu), &[1], [4, 8, 8]),
        node(
            "full",
            Op::new(Linear { spec: full, weights: weights(768), bias: bias(3) }),
            &[2],
            [3, 1, 1],
        ),
    ];
    let (affine, affine_name, layout_dims, outputs) = (vec![], String::new(), vec![], vec![]);
    Graph { name: "tiny".into(), nodes, affine, affine_name, channels_last: false, layout_dims, outputs }
}

fn picture(seed: usize) -> Vec<f32> {
    (0..64).map(|i| ((i * i + seed * i) % 17) as f32 / 16.0).collect()
}

/// Its rounding is the reference's, and no noise is added without guard bits: the logits are the same to the last unit.
#[test]
fn a_session_gives_the_references_logits() {
    let (cpu, kit) = (Cpu::detect(), Kit::standard().with([TOY]));
    let samples: Vec<Vec<f32>> = (0..10).map(picture).collect();
    let (model, _) = calibrate(cpu, &graph(), &samples, &Options::default()).unwrap();
    let input = model.network.input.quantise(&picture(42), model.network.activation_bits);
    let want = reference::run(cpu, &model, &input).unwrap();
    let (client, server) = memory_pair();
    let choices = Choices::standard(&model.network, TOY);
    let bundle = Bundle::with_guard_bits(model, 0).unwrap();
    let refused = Service::new(bundle.clone(), choices.clone(), Reveal::Logits).err().unwrap().to_string();
    assert!(refused.contains("the backend toy protects nothing"), "{refused}");
    let service = Service::allowing_insecure_backends(bundle, choices, Reveal::Logits).unwrap();
    let limits = Limits { allow_insecure_backends: true, ..Limits::default() };
    let got = thread::scope(|scope| {
        scope.spawn(|| service.serve(server, &mut |_| ()).unwrap());
        let ready = connect(&kit, client, &limits).unwrap().prepare_client(Place::Memory).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (prediction, report, ready) = prepared.run(&input, &mut NoProgress).unwrap();
        assert!(report.online.bytes_up > 0);
        ready.leave().unwrap();
        prediction
    });
    assert_eq!(got, Prediction::Logits(want.output().to_vec()));
}
