//! Queries of several images between two processes.

use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::plan::Kit;
use jaguar::{Cpu, image_input, reference};
use serde_json::Value;

use crate::predictions::{Deployment, answers, logits, number, photo};
use crate::process::{Process, jaguar, repository};
use crate::{WATCHDOG, assert_fails, tiny};

/// Different pictures, more than a query has.
fn pictures() -> Vec<String> {
    let folder = repository("demo/calibration");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.ends_with(".jpg") || path.ends_with(".png"))
        .collect();
    files.sort();
    files.truncate(5);
    files.push(photo());
    assert_eq!(files.len(), 6);
    files
}

/// Six pictures in batches of four: each answer is the reference's for its own picture, in the rounds of a query of one.
#[test]
fn answers_of_a_batch_are_the_references() {
    let it = Deployment::new("batch", &["--max-batch", "4"]);
    let pictures = pictures();
    let mut arguments: Vec<&str> = pictures.iter().map(String::as_str).collect();
    arguments.extend(["--batch", "4"]);
    let found = answers(it.client(&it.server.address, "cache", &arguments), 6);
    let bundle = Bundle::read(Path::new(&it.model), Kit::standard().operators()).unwrap();
    let (network, bound) = (&bundle.model.network, tiny::worst_error(&bundle.model, Kit::JAGUAR));
    for (answer, path) in found.iter().zip(&pictures) {
        assert_eq!(answer["input"], Value::from(path.as_str()));
        let picture = image::open(path).unwrap().into_rgb8();
        let size = (picture.width() as usize, picture.height() as usize);
        let shape = network.nodes[0].shape;
        let values = image_input::tensor(&network.input.image, shape, picture.as_raw(), size.0, size.1);
        let input = network.input.quantise(&values.unwrap(), network.activation_bits);
        let want = reference::run(Cpu::detect(), &bundle.model, &input).unwrap();
        let got = logits(answer);
        assert_eq!(got.len(), tiny::CLASSES);
        for (got, want) in got.iter().zip(want.output()) {
            assert!(
                (got - want).abs() as f64 <= bound,
                "{path}: {got} and {want} differ by more than {bound}"
            );
        }
    }
    let shared: Vec<[u64; 3]> = found
        .iter()
        .map(|answer| ["images", "inputs", "index"].map(|key| number(answer, &format!("batch/{key}"))))
        .collect();
    assert_eq!(shared, [[4, 4, 0], [4, 4, 1], [4, 4, 2], [4, 4, 3], [4, 2, 0], [4, 2, 1]]);

    // A query of one has the same rounds, and its own hint.
    let alone = &it.ask("cache", &[&pictures[0]])[0];
    assert!(alone.get("batch").is_none());
    assert_eq!(number(&found[0], "cost/online/rounds"), number(alone, "cost/online/rounds"));
    let sent = |answer: &Value| number(answer, "cost/online/bytes_up");
    assert!(sent(&found[0]) > 3 * sent(alone) && sent(&found[0]) < 5 * sent(alone));
    // Both hints are there by now.
    let fetch = |more: &[&str]| {
        let cache = it.folder.path("cache");
        let mut command = jaguar(&["fetch", "--server", &it.server.address, "--cache", &cache]);
        command.args(more);
        Process::start(command).finish(WATCHDOG).succeeded()
    };
    assert!(fetch(&["--batch", "4"]).contains("was there"));
    assert!(fetch(&[]).contains("was there"));
    assert!(fetch(&["--batch", "2"]).contains("fetched the hint"));
}

/// A picture that cannot be used leaves its batch to the others; rows have their part of the cost.
#[test]
fn rows_of_batches() {
    let it = Deployment::new("batch-rows", &["--max-batch", "2", "--reveal", "label"]);
    let pictures = it.folder.path("pictures");
    std::fs::create_dir_all(&pictures).unwrap();
    for i in 0..5 {
        std::fs::write(format!("{pictures}/{i}.png"), tiny::png()).unwrap();
    }
    std::fs::write(format!("{pictures}/1.png"), "no picture").unwrap();
    let [csv, cache] = ["answers.csv", "cache"].map(|name| it.folder.path(name));
    let command = ["predict", "--server", &it.server.address, "--cache", &cache, "--csv", &csv];
    let mut command = jaguar(&command);
    command.args(["--batch", "2", &pictures]);
    let finished = Process::start(command).finish(WATCHDOG);
    assert!(finished.stdout.contains("4 of 5 inputs answered"), "{}{}", finished.stdout, finished.stderr);
    let text = std::fs::read_to_string(&csv).unwrap();
    let mut rows: Vec<Vec<&str>> = text.lines().skip(1).map(|row| row.splitn(9, ',').collect()).collect();
    rows.sort();
    assert_eq!(rows.len(), 5);
    for (i, row) in rows.iter().enumerate() {
        assert!(row[0].ends_with(&format!("/{i}.png")), "{row:?}");
        if i == 1 {
            assert!(row[8].contains("neither an image"), "{row:?}");
        } else {
            assert_eq!((row[1], row[8]), (rows[0][1], ""), "the same picture");
            assert!(row[6].parse::<u64>().unwrap() > 0);
        }
    }
}

#[test]
fn batches_that_cannot_be_are_refused() {
    let it = Deployment::new("batch-refused", &["--max-batch", "4"]);
    let plain = Deployment::new("batch-none", &[]);
    let photo = photo();
    for (server, size, what) in [
        (&it.server.address, "8", "powers of two up to 4"),
        (&it.server.address, "64", "powers of two up to 4"),
        (&plain.server.address, "2", "one image a query"),
    ] {
        let cache = it.folder.path("cache");
        let command = ["predict", "--server", server, "--cache", &cache, "--batch", size, &photo];
        assert_fails(Process::start(jaguar(&command)), &[what]);
    }
    for arguments in [
        &["predict", "--batch", "3", &photo][..],
        &["predict", "--batch", "0", &photo],
        &["predict", "--batch", "128", &photo],
        &["predict", "--batch", "2", "--stdin"],
        &["serve", "--max-batch", "6", "x.jaguar"],
        &["plan", "--batch", "-2", "x.jaguar"],
    ] {
        let finished = Process::start(jaguar(arguments)).finish(WATCHDOG);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}: {}", finished.stderr);
    }
    // A backend that takes none.
    let command = ["serve", &it.model, "--listen", "127.0.0.1:0", "--measure", "off", "--max-batch", "2"];
    let mut command = jaguar(&command);
    command.args(["--backends", "cheetah"]);
    assert_fails(Process::start(command), &["none of the allowed backends takes batches of images"]);
}

/// Where nothing was measured a link chooses nothing, and that is said to who asks for one.
#[test]
fn a_link_that_chooses_nothing_is_noted() {
    let it = Deployment::new("plan-link", &[]);
    let noted = |arguments: &[&str]| {
        let mut command = jaguar(&["plan", &it.model, "--measure", "off"]);
        command.args(arguments);
        let finished = Process::start(command).finish(WATCHDOG);
        let noted = finished.stderr.contains("--link and --prefer choose nothing");
        finished.succeeded();
        noted
    };
    assert!(!noted(&[]));
    for asked in [["--link", "wan"], ["--prefer", "online"]] {
        assert!(noted(&asked), "{asked:?}");
    }
}

/// What a plan says of a batch, layer by layer.
#[test]
fn a_plan_tells_what_a_batch_takes() {
    let it = Deployment::new("batch-plan", &[]);
    let run = |arguments: &[&str]| {
        let mut command = jaguar(&["plan", &it.model, "--measure", "off"]);
        command.args(arguments);
        Process::start(command).finish(WATCHDOG).succeeded()
    };
    assert!(!run(&[]).contains("a batch of"));
    let shown = run(&["--batch", "16"]);
    assert!(shown.contains("a batch of 16 images beside 16 queries of one"), "{shown}");
    let json: Value = serde_json::from_str(&run(&["--batch", "16", "--json"])).unwrap();
    let layers = json["batch"]["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 3);
    for layer in layers {
        let count = |key: &str| number(layer, key);
        assert!(count("batch/responses") <= 16 * count("single/responses"), "{layer}");
        assert!(count("interleaved").is_power_of_two());
    }
    // The classifier: one output a response alone, sixteen in a batch.
    let last = layers.last().unwrap();
    assert_eq!((number(last, "interleaved"), number(last, "batch/responses")), (16, tiny::CLASSES as u64));
    assert_eq!(json["choices"]["images"], Value::from(16));
}
