//! Trained networks on pictures that they were not calibrated on, between two processes.
//!
//! Each test imports one network, compiles it with the command, serves it, and has a client ask about its
//! pictures in one session. It demands that
//!
//! - the private class is the integer reference's on all but one in twenty, and where it is not, the two classes are
//!   nearly tied (within 1 % of the spread of the logits), so that the private rounding decides;
//! - the integer reference's class is the float network's on all but one in twenty.
//!
//! It prints how often the private class is the float network's and the true one (from the picture's name),
//! and what a query costs; all of it goes into `networks.json` in the target folder too.
//!
//! `make models`, then `make test-networks`. A network that is not there is skipped, with a line that says
//! so.

#[path = "two_processes/process.rs"]
mod process;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jaguar::bundle::Bundle;
use jaguar::import::{Options, import_file};
use jaguar::network::{Operators, argmax};
use jaguar::plan::{Choices, Kit, Plan};
use jaguar::{Cpu, image_input, reference};
use serde_json::{Value, json};

use process::{Process, Scratch, Server, jaguar, repository};

/// One step of one network, on a small and busy machine.
const WATCHDOG: Duration = Duration::from_secs(1200);

/// One network at a time: the others would spoil its timings.
static TURN: Mutex<()> = Mutex::new(());

/// A network and how it is used.
struct Case {
    /// In `JAGUAR_MODELS`.
    file: &'static str,
    /// Its title in the table.
    name: &'static str,
    /// What `compile` must know of its input.
    preparation: &'static [&'static str],
    /// What it is calibrated on: pictures from `JAGUAR_IMAGES` whose names begin so, or the demo's
    /// photographs.
    calibration: Option<&'static str>,
    /// How the names of the pictures begin that it is asked about, and how many of them.
    pictures: (&'static str, usize),
    /// For how many of these the private class may differ from the reference's.
    private_misses: usize,
    /// For how many the integer reference's class may differ from the float network's.
    integer_misses: usize,
    /// The pictures' names end with this network's classes.
    labelled: bool,
}

const TORCHVISION: &[&str] = &[
    "--resize",
    "256",
    "--pixel-scale",
    "0.00392157",
    "--mean",
    "0.485,0.456,0.406",
    "--std",
    "0.229,0.224,0.225",
];

#[test]
#[ignore = "needs make models"]
fn squeezenet() {
    run(&Case {
        file: "squeezenet1_1_imagenet_227.onnx",
        name: "SqueezeNet 1.1",
        preparation: &["--bgr", "--mean", "103.939,116.779,123.68", "--resize", "256"],
        calibration: None,
        pictures: ("imagenet_", 20),
        private_misses: 1,
        integer_misses: 1,
        labelled: true,
    });
}

#[test]
#[ignore = "needs make models"]
fn efficientnet_lite0() {
    run(&Case {
        file: "efficientnet_lite0_imagenet_224.onnx",
        name: "EfficientNet-Lite0",
        preparation: &["--mean", "127", "--std", "128", "--resize", "256"],
        calibration: None,
        pictures: ("imagenet_", 20),
        private_misses: 1,
        integer_misses: 1,
        labelled: true,
    });
}

/// Photographs are safe, says this network of two classes: no picture at hand shows the other answer.
#[test]
#[ignore = "needs make models"]
fn open_nsfw() {
    run(&Case {
        file: "open_nsfw_224_nhwc.onnx",
        name: "open_nsfw",
        preparation: &["--bgr", "--mean", "104,117,123", "--resize", "256"],
        calibration: None,
        pictures: ("imagenet_", 5),
        private_misses: 0,
        integer_misses: 0,
        labelled: false,
    });
}

#[test]
#[ignore = "needs make models"]
fn resnet20() {
    run(&Case {
        file: "resnet20_cifar10_32.onnx",
        name: "ResNet-20",
        preparation: &TORCHVISION[2..],
        calibration: Some("cifar100_"),
        pictures: ("cifar10_", 20),
        private_misses: 0,
        integer_misses: 1,
        labelled: true,
    });
}

#[test]
#[ignore = "needs make models"]
fn cnn6() {
    run(&Case {
        file: "cifar10_cnn6_32.onnx",
        name: "CNN-6",
        preparation: &[],
        calibration: Some("cifar100_"),
        pictures: ("cifar10_", 20),
        // One picture has two classes 0.2 % apart.
        private_misses: 1,
        integer_misses: 1,
        labelled: true,
    });
}

/// Random weights: what is measured are time and bytes.
fn torchvision(file: &'static str, name: &'static str) {
    run(&Case {
        file,
        name,
        preparation: TORCHVISION,
        calibration: None,
        pictures: ("imagenet_", 1),
        private_misses: 1,
        integer_misses: 1,
        labelled: false,
    });
}

#[test]
#[ignore = "needs make torch-models"]
fn resnet18() {
    torchvision("resnet18.onnx", "ResNet-18");
}

#[test]
#[ignore = "needs make torch-models"]
fn resnet50() {
    torchvision("resnet50.onnx", "ResNet-50");
}

#[test]
#[ignore = "needs make torch-models"]
fn mobilenet_v2() {
    torchvision("mobilenetv2.onnx", "MobileNetV2");
}

/// A folder that the variable names, or `default` in the repository.
fn folder(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| repository(default).into(), PathBuf::from)
}

/// The pictures in `JAGUAR_IMAGES` whose names begin so, in order.
fn pictures(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder("JAGUAR_IMAGES", "models/images")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)));
    paths.sort();
    paths.iter().map(|p| p.display().to_string()).collect()
}

/// The class at the end of a picture's name.
fn label(path: &str) -> usize {
    let stem = Path::new(path).file_stem().expect("a file").to_string_lossy();
    stem.rsplit('_').next().and_then(|l| l.parse().ok()).expect("a name that ends in _CLASS")
}

fn run(case: &Case) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let source = folder("JAGUAR_MODELS", "models").join(case.file);
    let (prefix, count) = case.pictures;
    let inputs: Vec<String> = pictures(prefix).into_iter().take(count).collect();
    let calibration = match case.calibration {
        None => vec![repository("demo/calibration"), repository("demo/photo.jpg")],
        Some(prefix) => pictures(prefix),
    };
    if !source.is_file() || inputs.len() < count || calibration.is_empty() {
        let found = inputs.len();
        println!(
            "skipped: {} needs {} and {count} pictures {prefix}* ({found} found), {} to calibrate on: make models, make torch-models",
            case.name,
            source.display(),
            case.calibration.unwrap_or("those of the demo"),
        );
        return;
    }
    let scratch = Scratch::new(case.file);
    let source = source.display().to_string();
    let model = scratch.path("model.jaguar");
    let mut command = jaguar(&["compile", &source, "-o", &model]);
    command.args(case.preparation).arg("--calibrate").args(&calibration);
    Process::start(command).finish(WATCHDOG).succeeded();

    let mut server = Server::start(&model, &[], WATCHDOG);
    let mut command =
        jaguar(&["predict", "--json", "--server", &server.address, "--cache", &scratch.path("cache")]);
    // One query at a time: seconds and memory are those of a query, not of two that share the cores.
    command.args(["--keep", "0"]).args(&inputs);
    let answers = Process::start(command).finish(WATCHDOG).succeeded();
    let answers: Vec<Value> = answers.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(answers.len(), inputs.len());
    server.process.line_with("left", WATCHDOG);
    drop(server);

    let classes = classes(&source, &model, &inputs);
    let private: Vec<usize> = answers.iter().map(|a| number(a, "label") as usize).collect();
    let agree = |a: &dyn Fn(usize) -> usize, b: &dyn Fn(usize) -> usize| {
        (0..inputs.len()).filter(|&i| a(i) == b(i)).count()
    };
    let (reference, float) = (|i: usize| classes[i].0, |i: usize| classes[i].1);
    let private_reference = agree(&|i| private[i], &reference);
    let private_float = agree(&|i| private[i], &float);
    let reference_float = agree(&reference, &float);
    let truth = case.labelled.then(|| {
        let label = |i: usize| label(&inputs[i]);
        json!({ "private": agree(&|i| private[i], &label), "float": agree(&float, &label) })
    });
    for (i, input) in
        inputs.iter().enumerate().filter(|(i, _)| private[*i] != float(*i) || reference(*i) != float(*i))
    {
        let (integer, float) = classes[i];
        println!(
            "{}: {input}: private {}, integer reference {integer}, float {float}",
            case.name, private[i]
        );
    }

    // The first query of a process finds cold caches; the others say what one costs.
    let later = answers.get(1..).filter(|a| !a.is_empty()).unwrap_or(&answers);
    let median = |path: &str| {
        let mut all: Vec<f64> =
            later.iter().map(|a| a.pointer(path).and_then(Value::as_f64).expect("seconds")).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let last = answers.last().expect("at least one input");
    let bytes = |stage: &str| {
        number(last, &format!("cost/{stage}/bytes_up")) + number(last, &format!("cost/{stage}/bytes_down"))
    };
    let bundle = Bundle::read(Path::new(&model), &Operators::standard()).expect("the model that was served");
    let plan = Plan::new(&bundle.model.network, Choices::standard(&bundle.model.network, Kit::JAGUAR))
        .expect("the plan that was served");
    let result = json!({
        "name": case.name,
        "file": case.file,
        "pictures": inputs.len(),
        "private_equals_reference": private_reference,
        "private_equals_float": private_float,
        "reference_equals_float": reference_float,
        "right": truth,
        "hint_bytes": plan.hint_bytes(),
        "offline_seconds": median("/cost/offline_seconds"),
        "online_seconds": median("/cost/online_seconds"),
        "offline_bytes": bytes("offline"),
        "online_bytes": bytes("online"),
        "offline_rounds": number(last, "cost/offline/rounds"),
        "online_rounds": number(last, "cost/online/rounds"),
        "client_peak_kib": number(last, "cost/client_peak_kib"),
        "server_peak_kib": number(last, "cost/server_peak_kib"),
        "threads": std::thread::available_parallelism().map_or(0, usize::from),
    });
    record(case.name, result);

    for i in (0..inputs.len()).filter(|&i| private[i] != reference(i)) {
        let logits: Vec<i64> = serde_json::from_value(answers[i]["logits"].clone()).expect("logits");
        let spread = logits.iter().max().unwrap() - logits.iter().min().unwrap();
        let apart = logits[private[i]] - logits[reference(i)];
        assert!(100 * apart <= spread, "{}: {apart} of {spread} apart", inputs[i]);
    }
    assert!(
        private_reference + case.private_misses >= inputs.len(),
        "{private_reference} of {}",
        inputs.len()
    );
    assert!(reference_float + case.integer_misses >= inputs.len(), "{reference_float} of {}", inputs.len());
}

/// By picture, the class that the integer reference gives and the one of the float network.
fn classes(source: &str, model: &str, inputs: &[String]) -> Vec<(usize, usize)> {
    let graph = import_file(Path::new(source), &Options::new(&Operators::standard()))
        .expect("the model that was compiled");
    let bundle = Bundle::read(Path::new(model), &Operators::standard()).expect("the model that was served");
    let network = &bundle.model.network;
    let class = |path: &String| {
        let picture = image::open(path).expect("a picture").into_rgb8();
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let shape = network.nodes[0].shape;
        let tensor = image_input::tensor(&network.input.image, shape, picture.as_raw(), width, height)
            .expect("a picture that fits");
        let integers = network.input.quantise(&tensor, network.activation_bits);
        let run = reference::run(Cpu::detect(), &bundle.model, &integers).expect("the network's input");
        assert_eq!(run.total_overflows(), 0, "{path}");
        (argmax(run.output()), argmax(&graph.forward(Cpu::detect(), &tensor).expect("the network's input")))
    };
    inputs.iter().map(class).collect()
}

fn number(answer: &Value, path: &str) -> u64 {
    answer
        .pointer(&format!("/{path}"))
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path}: {answer}"))
}

/// Enters a result in `networks.json` (in the place of an older one) and prints it.
fn record(name: &str, result: Value) {
    // The folder for temporary files of tests lies in the target folder.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("networks.json");
    let old = std::fs::read(&path).ok().and_then(|b| serde_json::from_slice::<Value>(&b).ok());
    let mut all: Vec<Value> = old.and_then(|v| v.as_array().cloned()).unwrap_or_default();
    all.retain(|r| r["name"] != name);
    all.push(result.clone());
    let text = serde_json::to_string_pretty(&all).expect("plain data serialises");
    std::fs::write(&path, text + "\n").unwrap_or_else(|e| panic!("{}: {e}", path.display()));

    let mib = |n: u64| n as f64 / f64::from(1 << 20);
    let n = |key: &str| number(&result, key);
    let right = result["right"].get("private").map_or("-".into(), Value::to_string);
    println!(
        "{:18} {:>8} {:>6} {:>6} {:>6} {:>6} {:>9} {:>8} {:>8} {:>9} {:>9} {:>7} {:>10} {:>10}",
        "network",
        "pictures",
        "=int",
        "=float",
        "i=f",
        "right",
        "hint MiB",
        "prep. s",
        "online s",
        "prep. MiB",
        "on. MiB",
        "rounds",
        "client MiB",
        "server MiB"
    );
    println!(
        "{name:18} {:>8} {:>6} {:>6} {:>6} {right:>6} {:>9.1} {:>8.2} {:>8.2} {:>9.2} {:>9.2} {:>3}+{:<3} {:>10.0} {:>10.0}\n",
        n("pictures"),
        n("private_equals_reference"),
        n("private_equals_float"),
        n("reference_equals_float"),
        mib(n("hint_bytes")),
        result["offline_seconds"].as_f64().unwrap_or_default(),
        result["online_seconds"].as_f64().unwrap_or_default(),
        mib(n("offline_bytes")),
        mib(n("online_bytes")),
        n("offline_rounds"),
        n("online_rounds"),
        n("client_peak_kib") as f64 / 1024.0,
        n("server_peak_kib") as f64 / 1024.0,
    );
}
