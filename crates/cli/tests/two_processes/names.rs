//! What a model's file calls its nodes and outputs, and the numbers of a scaling behind its input, stay with the server.

use std::path::Path;

use jaguar::bundle::Bundle;

use crate::predictions::photo;
use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::{WATCHDOG, relay, tiny};

/// What [`tiny::onnx`] calls its nodes and its output, but for `average`, which is a kind as well.
const NAMES: [&str; 7] = ["conv1", "relu1", "pool1", "conv2", "relu2", "flat", "logits"];

fn compile(folder: &Scratch, onnx: &[u8], options: &[&str]) -> (String, String) {
    let [source, model] = ["net.onnx", "net.jaguar"].map(|f| folder.path(f));
    std::fs::write(&source, onnx).unwrap();
    let photos = repository("demo/calibration");
    let mut command = jaguar(&["compile", &source, "--calibrate", &photos, "-o", &model]);
    command.args(options);
    let finished = Process::start(command).finish(WATCHDOG);
    let warnings = finished.stderr.clone();
    (model, finished.succeeded() + &warnings)
}

/// Which of the file's names a client gets to see, of all that it receives and writes: the bytes of its connections with the trace, a
/// report and an error among them, what it says, and its files.
fn seen(folder: &Scratch, model: &str) -> Vec<&'static str> {
    let server = Server::start(model, &[], WATCHDOG);
    let (address, _, got) = relay::recording(&server.address);
    let [cache, trace] = ["cache", "trace.json"].map(|f| folder.path(f));
    let run = |arguments: &[&str]| {
        let mut command = jaguar(&["predict", "--server", &address, "--cache", &cache]);
        command.args(arguments);
        let finished = Process::start(command).finish(WATCHDOG);
        (finished.stderr.clone(), finished)
    };
    let photo = photo();
    let (told, finished) = run(&["--trace", &trace, "--costs", &photo, &photo]);
    let mut all = [told, finished.succeeded()].concat().into_bytes();
    let (told, finished) = run(&["--json", &photo]);
    all.extend([told, finished.succeeded()].concat().into_bytes());
    // The server refuses batches, and says so.
    let (refused, _) = run(&["--batch", "2", &photo, &photo]);
    assert!(refused.contains("error: "), "{refused}");
    all.extend(refused.into_bytes());
    all.extend(std::fs::read(&trace).unwrap());
    let hints = std::fs::read_dir(Path::new(&cache).join("hints")).unwrap();
    hints.for_each(|hint| all.extend(std::fs::read(hint.unwrap().path()).unwrap()));
    let got = got.lock().unwrap().concat();
    assert!(got.len() > 100_000, "only {} bytes came to the client", got.len());
    all.extend_from_slice(&got);
    let holds = |name: &&str| all.windows(name.len()).any(|part| part == name.as_bytes());
    NAMES.into_iter().filter(holds).collect()
}

#[test]
fn a_client_gets_no_name_of_the_file() {
    let folder = Scratch::new("names");
    let options = [&tiny::PREPARATION[..], &["--verbose"]].concat();
    let (model, told) = compile(&folder, &tiny::onnx(), &options);
    // Who compiles sees which is which.
    for pair in [["conv 1", "conv1"], ["max-pool 1", "pool1"], ["conv 3", "logits"]] {
        let line = told.lines().find(|line| line.starts_with(pair[0])).unwrap_or_else(|| panic!("{told}"));
        assert!(line.contains(pair[1]), "{line}");
    }
    // (`logits` is a word of the client's own, in the JSON that it writes.)
    assert_eq!(seen(&folder, &model), ["logits"]);
    let file = std::fs::read(&model).unwrap();
    assert!(!file.windows(6).any(|part| part == b"logits"), "not even the compiled model has it");
}

/// The test above finds names that are there.
#[test]
fn a_client_gets_them_where_they_are_to_be_kept() {
    let folder = Scratch::new("names-kept");
    let options = [&tiny::PREPARATION[..], &["--keep-names"]].concat();
    let (model, _) = compile(&folder, &tiny::onnx(), &options);
    let found = seen(&folder, &model);
    for name in ["conv1", "relu1", "pool1", "conv2", "logits"] {
        assert!(found.contains(&name), "{name} is not among {found:?}");
    }
}

/// A batch normalisation right behind the input: secret unless asked for, and said in any case.
#[test]
fn a_scaling_behind_the_input_is_secret() {
    let folder = Scratch::new("input-map");
    let of = |options: &[&str]| {
        let (model, told) = compile(&folder, &tiny::normalised_onnx(), options);
        let network =
            Bundle::read(Path::new(&model), jaguar::plan::Kit::standard().operators()).unwrap().model.network;
        (network.input.affine.len(), network.nodes.len(), told)
    };
    let (public, nodes, told) = of(&[]);
    assert!(public == 0 && told.contains("learned") && told.contains("stays secret"), "{told}");
    assert!(!told.contains("becomes public"), "{told}");
    let (public, others, told) = of(&["--input-map", "public"]);
    assert!(public == 3 && others == nodes && !told.contains("becomes public"), "{told}");
    let (public, others, told) = of(&["--input-map", "secret"]);
    assert!(public == 0 && others == nodes && told.contains("stays secret"), "{told}");
}
