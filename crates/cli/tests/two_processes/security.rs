//! `jaguar inspect --security`: what a compiled model rests on.

use serde_json::Value;

use crate::process::{Process, Scratch, jaguar};
use crate::{WATCHDOG, tiny};

#[track_caller]
fn inspect(model: &str, more: &[&str]) -> String {
    let mut command = jaguar(&["inspect", "--security", "--measure", "off", model]);
    command.args(more);
    Process::start(command).finish(WATCHDOG).succeeded()
}

#[test]
fn assumptions_have_their_estimates_and_what_has_none_is_named() {
    let folder = Scratch::new("security");
    let model = tiny::compile(&folder);
    let text = inspect(&model, &["--backends", "jaguar"]);
    for part in [
        "semi-honest",
        "N = 2048, q of at most 48 bits",
        "143.2 bits",
        "python3 params/rlwe.py --n 2048",
        "L9: k = 156300, t = 4096, bins of 2^9, 4 secrets under one matrix",
        "python3 params/lpn.py",
        "no estimate on record",
        "no script on record",
        "hidden units stay hidden for ",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }

    let json: Value = serde_json::from_str(&inspect(&model, &["--backends", "hyena", "--json"])).unwrap();
    let assumptions = json["assumptions"].as_array().unwrap();
    let of = |part: &str| -> Vec<&Value> {
        let has = |a: &&Value| a["assumption"].as_str().unwrap().contains(part);
        assumptions.iter().filter(has).collect()
    };
    assert!(!of("RLWE, uniform").is_empty() && of("LPN").len() >= 5);
    for rlwe in of("RLWE, uniform").into_iter().chain(of("LPN")) {
        assert!(rlwe["estimate"]["bits"].as_f64().unwrap() >= 127.95, "{rlwe}");
        assert!(rlwe["estimate"]["record"].as_str().unwrap().starts_with("params/"), "{rlwe}");
    }
    // Rotation keys rest on what nobody has estimated.
    assert!(of("circular")[0]["estimate"].is_null());

    // What is chosen shows.
    let without = inspect(&model, &["--backends", "jaguar", "--hide-for", "1"]);
    assert!(
        without.contains("the coins are given away")
            && without.contains("nothing hides how hidden values are rounded"),
        "{without}"
    );
}
