//! A client that asks about one picture again and again, and looks at what the answers have in common: over TCP, at the program's server.
//!
//! Hidden values that are rounded by chance, or have noise of their own, move the answers together: the covariances of the logits show
//! the weights behind the active units (`docs/attacks.md`, *Rounding coins*). Without the server's noise they do; with it they do not.

use std::path::Path;

use jaguar::Cpu;
use jaguar::bundle::Bundle;
use jaguar::client::{self, Limits, Prediction};
use jaguar::hint::HintPlace;
use jaguar::import::{self, import_file};
use jaguar::network::Operators;
use jaguar::plan::Kit;
use jaguar::progress::NoProgress;
use jaguar::wire::Channel;
use jaguar::wire::tcp::{self, Tcp};

use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::{WATCHDOG, tiny};

/// A picture of 28 x 28, in the network's own numbers.
fn picture() -> Vec<f32> {
    (0..28 * 28).map(|i| ((i as f32 * 0.37).sin() + (i as f32 * 0.011).cos()) * 0.8).collect()
}

/// The logits' integers of so many queries for one picture, with what the server takes.
fn asked(model: &str, arguments: &[&str], queries: usize) -> Vec<Vec<f64>> {
    let server = Server::start(model, &[&["--tls", "off"], arguments].concat(), WATCHDOG);
    let address: std::net::SocketAddr = server.address.parse().expect("an address");
    let channel = Channel::new(Tcp::connect(address, tcp::Options::default()).expect("listening"));
    let connected = client::connect(&Kit::standard(), channel, &Limits::default()).expect("greeted");
    let mut ready = connected.prepare_client(HintPlace::Memory).expect("prepared");
    let mut seen = Vec::new();
    for _ in 0..queries {
        let prepared = ready.prepare_query(&mut NoProgress).expect("prepared");
        let network = prepared.network();
        let input = network.input.quantise(&picture(), network.activation_bits);
        let (prediction, _, next) = prepared.run(&input, &mut NoProgress).expect("answered");
        let Prediction::Logits(logits) = prediction else { panic!("logits are revealed") };
        seen.push(logits.iter().map(|&v| v as f64).collect());
        ready = next;
    }
    ready.leave().expect("an orderly end");
    seen
}

/// How the covariances of different logits go with those of `W·D·Wᵀ`, W being the last layer and D having ones where its inputs are
/// active: their correlation.
fn likeness(seen: &[Vec<f64>], columns: &[Vec<f64>]) -> f64 {
    let count = seen.len() as f64;
    let mean = |k: usize| seen.iter().map(|v| v[k]).sum::<f64>() / count;
    let means: Vec<f64> = (0..tiny::CLASSES).map(mean).collect();
    let (mut found, mut truth) = (Vec::new(), Vec::new());
    for a in 0..tiny::CLASSES {
        for b in 0..a {
            found.push(seen.iter().map(|v| (v[a] - means[a]) * (v[b] - means[b])).sum::<f64>() / count);
            truth.push(columns.iter().map(|column| column[a] * column[b]).sum::<f64>());
        }
    }
    let centred = |values: &[f64]| -> Vec<f64> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|v| v - mean).collect()
    };
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (found, truth) = (centred(&found), centred(&truth));
    product(&found, &truth) / (product(&found, &found) * product(&truth, &truth)).sqrt()
}

#[test]
fn answers_have_nothing_in_common_unless_nothing_hides_it() {
    let folder = Scratch::new("again");
    let [source, model] = ["lenet.onnx", "lenet.jaguar"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::lenet_onnx()).expect("written");
    let photos = repository("demo/calibration");
    let mut command = jaguar(&["compile", &source, "--calibrate", &photos, "-o", &model]);
    command.args(tiny::PREPARATION);
    Process::start(command).finish(WATCHDOG).succeeded();

    // What the attacker does not know: which units are active, and what they weigh.
    let options = import::Options::new(&Operators::standard());
    let graph = import_file(Path::new(&source), &options).expect("imports");
    let values = graph.run(Cpu::detect(), &picture()).expect("it fits");
    let last = graph.nodes.last().expect("a network");
    let (weights, hidden) = (&last.op.linear().expect("linear").weights, &values[last.inputs[0]]);
    let column = |unit: usize| -> Vec<f64> {
        (0..tiny::CLASSES).map(|k| f64::from(weights[k * hidden.len() + unit])).collect()
    };
    let active = (0..hidden.len()).filter(|&unit| hidden[unit] > 0.0);
    let columns: Vec<Vec<f64>> = active.map(column).collect();
    assert!((20..70).contains(&columns.len()), "{} units are active", columns.len());

    let open = likeness(&asked(&model, &["--hide-for", "1"], 300), &columns);
    assert!(open > 0.6, "without noise: {open}");
    // (By chance within 0.15 of zero mostly, and within 0.55 but for an event of probability 10^-4: there are 45 covariances.)
    let hidden = likeness(&asked(&model, &[], 300), &columns);
    assert!(hidden.abs() < 0.55, "{hidden}");
    let bundle = Bundle::read(Path::new(&model), &Operators::standard()).expect("a model");
    assert!(bundle.model.hidden_for().is_some_and(|queries| queries >= 1e6));
}
