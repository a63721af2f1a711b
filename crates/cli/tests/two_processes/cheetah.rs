//! The baseline between two processes: `serve --backends cheetah`, and clients that follow.

use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::network::Operators;
use jaguar::plan::{Choices, Kit, Plan};
use jaguar::{Cpu, reference};

use crate::predictions::{Deployment, answers, logits, number, photo};
use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::{WATCHDOG, tiny};

/// The client is not told the protocol: it follows the offer. Logits, label and cost are those of the plan.
#[test]
fn clients_follow_the_servers_protocol() {
    let it = Deployment::new("cheetah", &["--backends", "cheetah"]);
    let tensor = it.folder.path("tensor.npy");
    let (file, values) = tiny::tensor();
    std::fs::write(&tensor, file).unwrap();
    let answers = it.ask("cache", &["--keep", "0", &tensor, &tensor]);

    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let network = &bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Kit::CHEETAH)).unwrap();
    let run = reference::run(
        Cpu::detect(),
        &bundle.model,
        &network.input.quantise(&values, network.activation_bits),
    )
    .unwrap();
    let bound = tiny::worst_error(&bundle.model, Kit::CHEETAH);
    let want = run.output();
    let span = want.iter().max().unwrap() - want.iter().min().unwrap();
    assert!(bound < 0.05 * span as f64, "a bound of {bound} means nothing over {span}");
    for answer in &answers {
        for (got, want) in logits(answer).iter().zip(want) {
            assert!((got - want).abs() as f64 <= bound, "{got} and {want} differ by more than {bound}");
        }
        assert_eq!(answer["cost"]["protocol"], "cheetah");
        let rows = answer["cost"]["rows"].as_array().unwrap();
        for (row, step) in rows.iter().zip(&plan.steps) {
            let layer = step.layer.as_ref();
            let (up, down) =
                layer.map_or((0, 0), |l| (l.traffic().online.0 as u64, l.traffic().online.1 as u64));
            let rounds = layer.map_or(0, |l| l.traffic().rounds) + step.cost.client_rounds;
            assert_eq!(number(row, "online/bytes_up"), up + step.cost.up, "{row}");
            assert_eq!(number(row, "online/bytes_down"), down + step.cost.down, "{row}");
            assert_eq!(number(row, "online/rounds"), rounds, "{row}");
        }
    }
    // Keys and base OTs are the session's, and there is no hint to keep.
    assert_eq!(number(&answers[1], "cost/client/bytes_up"), 0);
    assert!(!Path::new(&it.folder.path("cache")).join("hints").exists());
    // People are told.
    let mut predict =
        jaguar(&["predict", "--server", &it.server.address, "--cache", &it.folder.path("cache")]);
    predict.arg(&tensor);
    let told = Process::start(predict).finish(WATCHDOG).succeeded();
    assert!(told.contains("protocol cheetah"), "{told}");
}

#[test]
fn verify_and_plan_know_it() {
    let folder = Scratch::new("cheetah-verify");
    let model = tiny::compile(&folder);
    let run = |arguments: &[&str]| Process::start(jaguar(arguments)).finish(WATCHDOG).succeeded();
    let checked = run(&["verify", "--backends", "cheetah", &model, &photo()]);
    assert!(checked.contains("same class: 1/1"), "{checked}");
    let shown = run(&["plan", "--backends", "cheetah", &model, "--measure", "off"]);
    for part in ["protocol cheetah", "N = 4096", "2 primes", "/2^", "once per session: a key of 30.0 KiB"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
}

/// A model whose products take more than 40 bits, as those of wide layers do with the default's guard bits: it is served, and answers
/// right.
#[test]
fn wide_products_are_compared() {
    let folder = Scratch::new("cheetah-wide");
    let [source, model, tensor] = ["wide.onnx", "wide.jaguar", "tensor.npy"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::onnx()).unwrap();
    let photos = repository("demo/calibration");
    let mut command =
        jaguar(&["compile", &source, "--calibrate", &photos, "-o", &model, "--activation-bits", "21"]);
    command.args(tiny::PREPARATION);
    Process::start(command).finish(WATCHDOG).succeeded();
    let bundle = Bundle::read(Path::new(&model), &Operators::standard()).unwrap();
    let network = &bundle.model.network;
    let shift = network.nodes.iter().filter_map(|node| Some(node.op.linear()?.shift));
    assert!(network.activation_bits + shift.max().unwrap() > 40);

    let server = Server::start(&model, &["--backends", "cheetah"], WATCHDOG);
    let (file, values) = tiny::tensor();
    std::fs::write(&tensor, file).unwrap();
    let cache = folder.path("cache");
    let client = jaguar(&["predict", "--json", "--server", &server.address, "--cache", &cache, &tensor]);
    let answer = &answers(Process::start(client), 1)[0];
    assert_eq!(answer["cost"]["protocol"], "cheetah");
    let input = network.input.quantise(&values, network.activation_bits);
    let run = reference::run(Cpu::detect(), &bundle.model, &input).unwrap();
    let bound = tiny::worst_error(&bundle.model, Kit::CHEETAH);
    let span = run.output().iter().max().unwrap() - run.output().iter().min().unwrap();
    assert!(bound < 0.05 * span as f64, "a bound of {bound} means nothing over {span}");
    for (got, want) in logits(answer).iter().zip(run.output()) {
        assert!((got - want).abs() as f64 <= bound, "{got} and {want} differ by more than {bound}");
    }
}
