//! One message up, one message down, at a size that protects nothing.

mod disks;
mod limits;
mod networks;
mod owners;
mod parameters;
mod pictures;
mod restarts;
mod secrecy;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jaguar::Cpu;
use jaguar::import::{Options, import_file};
use jaguar::network::Operators;
use serde_json::Value;

use crate::connections::fingerprint;
use crate::failures::on_a_full_disk;
use crate::process::{Process, Scratch, Server, jaguar};
use crate::relay::cutting;
use crate::{WATCHDOG, assert_fails, tiny, until};

/// Bytes of a client's keys in this set.
const KEYS: u64 = 14_668_201;

/// A compiled model, inputs for it, and where both parties keep what they keep.
struct Site {
    scratch: Scratch,
    model: String,
    inputs: Vec<String>,
}

impl Site {
    fn new(name: &str) -> Self {
        Self::of(name, &tiny::vector_onnx(), &[tiny::VECTOR])
    }

    /// A site for another network, over inputs of this shape.
    fn of(name: &str, onnx: &[u8], shape: &[usize]) -> Self {
        Self::compiled(name, onnx, shape, &[])
    }

    /// As [`of`](Self::of), with more options of `jaguar compile`.
    fn compiled(name: &str, onnx: &[u8], shape: &[usize], options: &[&str]) -> Self {
        let scratch = Scratch::new(name);
        let [source, samples, model] = ["vector.onnx", "samples", "vector.convfhe"].map(|f| scratch.path(f));
        std::fs::write(&source, onnx).unwrap();
        std::fs::create_dir(&samples).unwrap();
        let inputs: Vec<String> = (0..4).map(|i| format!("{samples}/{i}.npy")).collect();
        for (i, path) in inputs.iter().enumerate() {
            let values = values(i, shape.iter().product());
            let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            std::fs::write(path, tiny::npy("<f4", &[&[1], shape].concat(), &data)).unwrap();
        }
        let compile = [
            "compile",
            &source,
            "--protocol",
            "convfhe",
            "--parameters",
            "insecure-n10",
            "--calibrate",
            &samples,
            "-o",
            &model,
        ];
        Process::start(jaguar(&[&compile[..], options].concat())).finish(WATCHDOG).succeeded();
        Self { scratch, model, inputs }
    }

    fn serve(&self, options: &[&str]) -> Server {
        let keys = self.scratch.path("server");
        let own =
            ["serve", &self.model, "--listen", "127.0.0.1:0", "--protocol", "convfhe", "--key-dir", &keys];
        Server::of(jaguar(&[&own[..], options].concat()), WATCHDOG)
    }

    /// A client that keeps its things in the folder `client`.
    fn predict(&self, server: &str, client: &str, options: &[&str]) -> Process {
        Process::start(self.predicting(server, client, options))
    }

    fn predicting(&self, server: &str, client: &str, options: &[&str]) -> Command {
        jaguar(&self.arguments(server, client, options).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn arguments(&self, server: &str, client: &str, options: &[&str]) -> Vec<String> {
        let cache = self.scratch.path(client);
        let own = [
            "predict",
            "--protocol",
            "convfhe",
            "--accept-insecure-parameters",
            "--server",
            server,
            "--cache",
            &cache,
            "--json",
        ];
        own.iter().chain(options).map(|&text| text.to_owned()).collect()
    }

    /// Waits until the server has heard that an answer was received. (Its client does not wait for that.)
    #[track_caller]
    fn forgotten(&self, ticket: &str) {
        let queue = PathBuf::from(self.scratch.path("server/insecure-n10/queue"));
        assert!(queue.is_dir(), "that is where answers are kept");
        let kept = queue.join(format!("{ticket}.ticket"));
        until("the server has forgotten the answer", || !kept.exists());
    }

    /// Names in the server's folder, without the lock and the queue.
    fn kept(&self) -> Vec<String> {
        kept_in(Path::new(&self.scratch.path("server/insecure-n10")))
    }

    /// A file of a client.
    fn of_client(&self, client: &str, name: &str) -> PathBuf {
        Path::new(&self.scratch.path(client)).join("convfhe/insecure-n10").join(name)
    }
}

/// Names in a server's folder, without the lock and the queue.
fn kept_in(folder: &Path) -> Vec<String> {
    let Ok(folder) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock" && name != "queue").collect()
}

/// The i-th input.
fn value(i: usize) -> Vec<f32> {
    values(i, tiny::VECTOR)
}

fn values(i: usize, count: usize) -> Vec<f32> {
    (0..count).map(|j| ((i * 17 + j * 5) as f32 * 0.37).sin()).collect()
}

fn logits(answer: &Value) -> Vec<f64> {
    answer["logits"].as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap()).collect()
}

/// What a client printed, a line each.
#[track_caller]
fn lines(process: Process) -> Vec<Value> {
    let text = process.finish(WATCHDOG).succeeded();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// By how much logits may be off: noise and rounding (2^-9 and 2^-8 of their bound), and what a layer's polynomial and sine are off by,
/// times the largest sum of weights (16 of at most a half).
fn tolerance(model: &str) -> f64 {
    let model: Value = serde_json::from_slice(&std::fs::read(model).unwrap()).unwrap();
    let bound = |value: &Value| value["bound"].as_f64().unwrap();
    let (output, layer) = (bound(&model["output"]), bound(&model["layers"][0]));
    output * (1.0 / 256.0 + 1.0 / 512.0) + 8.0 * layer * (1.0 / 1024.0 + 2.4e-4) + output * 5e-4
}

#[test]
fn keys_go_up_once_and_logits_come_down() {
    let it = Site::new("one-round");
    let kept = it.scratch.path("certificate");
    let mut server = it.serve(&["--tls", "on", "--cache", &kept]);
    let pin = fingerprint(&mut server);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let ask = |inputs: &[&str]| {
        let options = [&["--pin", &pin], inputs].concat();
        lines(it.predict(&server.address, "client", &options))
    };
    let first = ask(&inputs[..1]);
    assert_eq!(first[0]["cost"]["keys_sent"], KEYS);
    let answers = ask(&inputs[..2]);
    assert!(answers.iter().all(|answer| answer["cost"]["keys_sent"] == 0), "{answers:?}");
    let sent = |answer: &Value| answer["cost"]["sent"].as_u64().unwrap();
    // One ciphertext of 12.5 KiB, and some words.
    assert!(sent(&answers[1]) < 13_300, "{}", answers[1]);
    assert!(sent(&answers[0]) < 14_300 && sent(&first[0]) > KEYS);

    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    let tolerance = tolerance(&it.model);
    for (i, answer) in answers.iter().enumerate() {
        let want = graph.forward(Cpu::detect(), &value(i)).unwrap();
        let got = logits(answer);
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((got - f64::from(*want)).abs() <= tolerance, "{got} is not {want}, within {tolerance}");
        }
        let most = got.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(got[answer["label"].as_u64().unwrap() as usize], most);
        assert_eq!(answer["top"].as_array().unwrap().len(), 5);
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["secret", "keys", "client"] {
        assert_eq!(mode(&it.of_client("client", name)), 0o600, "{name}");
    }
    // For people.
    let mut command = jaguar(&[
        "predict",
        "--protocol",
        "convfhe",
        "--accept-insecure-parameters",
        "--server",
        &server.address,
    ]);
    command.args(["--pin", &pin, "--cache", &it.scratch.path("client"), inputs[0]]);
    let text = Process::start(command).finish(WATCHDOG).succeeded();
    assert!(text.contains("protocol convfhe") && text.contains("class ") && text.contains(" % "), "{text}");
    signal("TERM", server.process.id);
    server.process.finish(WATCHDOG).succeeded();
}

#[test]
fn an_answer_is_fetched_with_its_ticket() {
    let it = Site::new("tickets");
    let server = it.serve(&["--keep-answers", "5m"]);
    let at = &server.address;
    let direct = lines(it.predict(at, "client", &[&it.inputs[0]]));
    let asked = lines(it.predict(at, "client", &["--detach", &it.inputs[0], &it.inputs[1]]));
    let tickets: Vec<&str> = asked.iter().map(|line| line["ticket"].as_str().unwrap()).collect();
    assert!(tickets[0] != tickets[1] && tickets[0].len() == 64 && asked[0]["kept_seconds"] == 300);
    // Nobody else gets it.
    lines(it.predict(at, "other", &[&it.inputs[3]]));
    assert_fails(it.predict(at, "other", &["--ticket", tickets[0]]), &["no answer under this ticket"]);
    let fetched = lines(it.predict(at, "client", &["--ticket", tickets[0]]));
    assert_eq!(fetched[0]["ticket"], tickets[0]);
    assert_eq!(fetched[0]["label"], direct[0]["label"]);
    it.forgotten(tickets[0]);
    assert_fails(it.predict(at, "client", &["--ticket", tickets[0]]), &["no answer under this ticket"]);
    // With another secret it is worth nothing, and that is noticed.
    std::fs::copy(it.of_client("other", "secret"), it.of_client("client", "secret")).unwrap();
    let parts = ["decrypting the answer", "keys of another client"];
    assert_fails(it.predict(at, "client", &["--ticket", tickets[1]]), &parts);
    let wrong = it.predict(at, "client", &["--ticket", "12"]).finish(WATCHDOG);
    assert!(!wrong.status.success() && wrong.stderr.contains("64 hexadecimal digits"), "{}", wrong.stderr);
}

#[test]
fn an_upload_goes_on_after_a_cut() {
    let it = Site::new("upload");
    let mut server = it.serve(&[]);
    let cut = cutting(&server.address, 2 * KEYS / 5);
    let at = |options: &[&str]| it.predict(&cut, "client", options);
    // The second connection is cut. The first one ends before any key.
    let mut command = jaguar(&["predict", "--protocol", "convfhe", "--server", &cut, &it.inputs[0]]);
    command.args(["--cache", &it.scratch.path("client")]);
    assert_fails(Process::start(command), &["protects nothing"]);
    assert_fails(at(&[&it.inputs[0]]), &["client: keys"]);
    server.process.line_with("client: keys", WATCHDOG);
    assert!(matches!(it.kept().as_slice(), [part] if part.ends_with(".part")), "{:?}", it.kept());
    let finished = at(&[&it.inputs[0]]).finish(WATCHDOG);
    assert!(finished.stderr.contains("of the keys already; the rest follows"), "{}", finished.stderr);
    let answer: Value = serde_json::from_str(&finished.succeeded()).unwrap();
    let sent = answer["cost"]["keys_sent"].as_u64().unwrap();
    assert!((KEYS / 2..KEYS).contains(&sent), "{sent}");
}

#[test]
fn full_disks_are_told_and_nothing_is_left() {
    let it = Site::new("full-disks");
    // The client's: its keys find no room.
    let server = it.serve(&[]);
    let arguments = it.arguments(&server.address, "client", &[&it.inputs[0]]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_fails(on_a_full_disk(1000, &arguments), &["writing keys to", "insecure-n10/keys", "too large"]);
    for name in ["secret", "keys", "keys.hash"] {
        assert!(!it.of_client("client", name).exists(), "{name}");
    }
    drop(server);
    // The server's.
    let keys = it.scratch.path("server");
    let mut server = on_a_full_disk(
        1000,
        &["serve", &it.model, "--listen", "127.0.0.1:0", "--protocol", "convfhe", "--key-dir", &keys],
    );
    let line = server.line_with("listening on ", WATCHDOG);
    let at = line.rsplit(' ').next().unwrap();
    assert_fails(it.predict(at, "client", &[&it.inputs[0]]), &["the server's disk is full", "not kept"]);
    server.line_with("the server's disk is full", WATCHDOG);
    assert_eq!(it.kept(), [""; 0]);
}

#[test]
fn a_quota_makes_room_and_is_told() {
    let it = Site::new("quota");
    let server = it.serve(&["--key-storage", &(KEYS * 3 / 2).to_string()]);
    let ask = |client: &str| it.predict(&server.address, client, &[&it.inputs[0]]).finish(WATCHDOG);
    ask("one").succeeded();
    ask("two").succeeded();
    assert_eq!(it.kept().len(), 1, "one is all that fits");
    let again = ask("one");
    assert!(again.stderr.contains("had given up this client's keys"), "{}", again.stderr);
    again.succeeded();
    drop(server);
    let mut command = jaguar(&["serve", &it.model, "--protocol", "convfhe", "--listen", "127.0.0.1:0"]);
    command.args(["--key-dir", &it.scratch.path("server"), "--key-storage", &(KEYS - 1).to_string()]);
    assert_fails(Process::start(command), &["--key-storage", "holds no client's keys"]);
}

/// Keys of the program that evaluated before: other bytes under the same names.
#[test]
fn keys_of_an_earlier_release_are_made_anew() {
    let it = Site::new("earlier");
    let server = it.serve(&[]);
    let own = |name| it.of_client("client", name);
    std::fs::create_dir_all(own("x").parent().unwrap()).unwrap();
    let ask = || it.predict(&server.address, "client", &[&it.inputs[0]]).finish(WATCHDOG);
    // Of another length, and of the same one.
    for length in [1000, KEYS as usize] {
        std::fs::write(own("secret"), [7; 2000]).unwrap();
        std::fs::write(own("keys"), vec![7; length]).unwrap();
        std::fs::write(own("keys.hash"), "07".repeat(32)).unwrap();
        let told = ask();
        for part in ["of another release", "making a secret", "convfhe/insecure-n10"] {
            assert!(told.stderr.contains(part), "{part}: {}", told.stderr);
        }
        told.succeeded();
        assert_eq!(std::fs::metadata(own("keys")).unwrap().len(), KEYS);
    }
    assert!(!ask().stderr.contains("making a secret"), "once");
    // A secret that came to harm is not used, nor thrown away.
    std::fs::write(own("secret"), [7; 2000]).unwrap();
    let told = ask();
    assert!(!told.status.success());
    for part in ["insecure-n10: spoilt secret: 2000 bytes", "remove this folder"] {
        assert!(told.stderr.contains(part), "{part}: {}", told.stderr);
    }
}

#[test]
fn parties_of_different_protocols_are_told() {
    let it = Site::new("mixed");
    let server = it.serve(&[]);
    let cache = it.scratch.path("interactive");
    let mut command = jaguar(&["predict", "--server", &server.address, "--cache", &cache, &it.inputs[0]]);
    command.arg("--json");
    assert_fails(Process::start(command), &["interactive", "one-round 'convfhe' version 5"]);
    drop(server);
    let model = tiny::compile(&it.scratch);
    let server = Server::start(&model, &[], WATCHDOG);
    let parts = ["the client can do one-round", "the server offers interactive"];
    assert_fails(it.predict(&server.address, "client", &[&it.inputs[0]]), &parts);
    // And models.
    let serve = |model: &str, options: &[&str]| {
        let mut command = jaguar(&["serve", model, "--listen", "127.0.0.1:0"]);
        command.args(options);
        Process::start(command)
    };
    assert_fails(serve(&it.model, &["--measure", "off"]), &["vector.convfhe"]);
    let options = ["--protocol", "convfhe"];
    assert_fails(serve(&model, &options), &["tiny.jaguar", "jaguar compile --protocol convfhe"]);
}

#[test]
fn what_is_missing_or_refused_is_said() {
    let it = Site::new("refused");
    let serve = ["serve", "x.convfhe", "--listen", "127.0.0.1:0", "--protocol", "convfhe"];
    assert_fails(Process::start(jaguar(&serve)), &["x.convfhe"]);
    let server = it.serve(&[]);
    // Nobody is made to use a set that protects nothing.
    let mut command =
        jaguar(&["predict", "--protocol", "convfhe", "--server", &server.address, &it.inputs[0]]);
    command.args(["--cache", &it.scratch.path("client")]);
    assert_fails(Process::start(command), &["insecure-n10", "protects nothing"]);
    for (options, part) in [
        (&["--no-cache"][..], "--cache names one"),
        (&["--stdin"][..], "--stdin is for --protocol interactive"),
    ] {
        let mut command =
            jaguar(&["predict", "--protocol", "convfhe", "--server", &server.address, &it.inputs[0]]);
        command.args(options);
        assert_fails(Process::start(command), &[part]);
    }
    assert_fails(
        Process::start(jaguar(&["predict", "--detach", "--server", &server.address, &it.inputs[0]])),
        &["--detach is for --protocol convfhe", "--protocol interactive (the default)"],
    );
}
