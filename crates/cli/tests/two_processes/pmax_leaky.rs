//! `--accept-sign-leakage`: both sides must say it, and all that print a plan say what it tells.

use std::path::Path;

use jaguar_engine::bundle::Bundle;
use jaguar_graph::reference;
use jaguar_plan::Kit;
use jaguar_ring::cpu::Cpu;
use serde_json::Value;

use crate::predictions::{Deployment, answers, logits};
use crate::process::{Process, Scratch, jaguar};
use crate::{WATCHDOG, fails, tiny};

const FLAG: &str = "--accept-sign-leakage";

/// A client with the flag, against a server with it or without: the answer.
fn answer(it: &Deployment, tensor: &str) -> Value {
    let cache = it.folder.path("cache");
    let client =
        jaguar(&["predict", "--json", FLAG, "--server", &it.server.address, "--cache", &cache, tensor]);
    answers(Process::start(client), 1).remove(0)
}

#[test]
fn both_sides_must_accept_it() {
    let it = Deployment::new("pmax-leaky", &[FLAG]);
    let tensor = it.folder.path("tensor.npy");
    let (file, values) = tiny::tensor();
    std::fs::write(&tensor, file).unwrap();
    let told = answer(&it, &tensor);

    let bundle = Bundle::read(Path::new(&it.model), Kit::standard().operators()).unwrap();
    let network = &bundle.model.network;
    let input = network.input.quantise(&values, network.activation_bits);
    let run = reference::run(Cpu::detect(), &bundle.model, &input).unwrap();
    let bound = tiny::worst_error(&bundle.model, Kit::JAGUAR);
    for (got, want) in logits(&told).iter().zip(run.output()) {
        assert!((got - want).abs() as f64 <= bound, "{got} and {want} differ by more than {bound}");
    }
    for warning in [&told["warnings"][0], &told["cost"]["leaks"]] {
        assert!(warning.as_str().is_some_and(|text| text.contains("the weights")), "{told}");
    }

    // Without the flag the client leaves, and says why once.
    let cache = it.folder.path("cache");
    let refused = ["predict", "--server", &it.server.address, "--cache", &cache, &tensor];
    fails(&refused, &["comparisons leak", FLAG, "found by this side (model: handshake)"]);
    let refused = ["fetch", "--server", &it.server.address, "--cache", &cache];
    fails(&refused, &["comparisons leak", FLAG, "found by this side (model: handshake)"]);
}

#[test]
fn a_server_without_it_stays_sealed() {
    let it = Deployment::new("pmax-sealed", &[]);
    let tensor = it.folder.path("tensor.npy");
    std::fs::write(&tensor, tiny::tensor().0).unwrap();
    let told = answer(&it, &tensor);
    assert!(told["cost"].get("leaks").is_none() && told["warnings"] == serde_json::json!([]), "{told}");
}

#[test]
fn plan_and_verify_say_what_it_tells() {
    let folder = Scratch::new("pmax-plan");
    let model = tiny::compile(&folder);
    let run = |arguments: &[&str]| Process::start(jaguar(arguments)).finish(WATCHDOG).succeeded();
    let plan = |more: &[&str]| run(&[&["plan", &model, "--calibrate", "off"], more].concat());
    let shown = plan(&[FLAG, "--explain"]);
    for part in ["WARNING: comparisons leak (PMax)", "the server sees all signs", "LEAKS, factor 2^"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    let json: Value = serde_json::from_str(&plan(&[FLAG, "--json"])).unwrap();
    assert!(json["leaks"].is_string() && json["choices"]["comparison"]["pmax-leaky"].is_object(), "{json}");
    let json: Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    assert!(json.get("leaks").is_none() && json["choices"]["comparison"] == "sealed", "{json}");
    assert!(!plan(&[]).contains("leak"));
    let checked = run(&["verify", FLAG, &model, &crate::predictions::photo()]);
    assert!(checked.contains("same class: 1/1"), "{checked}");
}
