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

/// A core dump would hold the server's key, its clients' tokens and the weights.
#[cfg(target_os = "linux")]
#[test]
fn a_server_leaves_no_core_dump() {
    let it = crate::predictions::Deployment::new("dumps", &[]);
    let process = it.server.process.id;
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).expect("our own process");
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a line");
    let words: Vec<&str> = core.split_whitespace().collect();
    assert_eq!(words[..2], ["0", "0"], "{core}");
    // What is of a process that may not be dumped is root's. (If all is root's here, only the limit is seen.)
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(format!("/proc/{process}/environ")).expect("there").uid();
    assert_eq!(owner, 0);
}
