//! What can be wrong on one machine ends in one clear line and a failing exit code.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::process::{Process, Scratch, jaguar, repository};
use crate::{WATCHDOG, fails, failure, tiny};

/// `compile` of an ONNX file on the demo's photographs.
fn compile<'a>(source: &'a str, calibrate: &'a str, output: &'a str) -> Vec<&'a str> {
    vec!["compile", source, "--calibrate", calibrate, "-o", output]
}

#[test]
fn onnx_files_that_are_none() {
    let folder = Scratch::new("onnx");
    let [source, output] = ["model.onnx", "model.jaguar"].map(|f| folder.path(f));
    let photos = repository("demo/calibration");
    let refused = |bytes: &[u8]| {
        std::fs::write(&source, bytes).unwrap();
        fails(&compile(&source, &photos, &output), &["model.onnx"]);
    };
    let whole = tiny::onnx();
    // Cut short, from nothing to all but the last byte.
    (0..16).for_each(|i| refused(&whole[..i * whole.len() / 16]));
    refused(&whole[..whole.len() - 1]);
    // Other files, and lengths that lie.
    refused(&tiny::png());
    refused(b"<html>404 Not Found</html>");
    refused(&[0xff; 100]);
    refused(&[b"\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", &whole[..]].concat());
    // A claim of many messages: each of these two-byte fields is an empty node.
    let nodes = b"\x0a\x00".repeat(1 << 20);
    let graph = [&b"\x08\x08\x3a\x80\x80\x80\x01"[..], &nodes].concat();
    refused(&graph);
    // Flipped bytes may leave a valid model, but never crash anything: whoever fails does so in order.
    for at in (0..whole.len()).step_by(whole.len() / 24) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        std::fs::write(&source, bytes).unwrap();
        let finished = Process::start(jaguar(&compile(&source, &photos, &output))).finish(crate::WATCHDOG);
        assert!(finished.status.code().is_some(), "{}\n{}", finished.status, finished.stderr);
    }
    std::fs::remove_file(&source).unwrap();
    let line = failure(Process::start(jaguar(&compile(&source, &photos, &output)))).concat();
    assert!(line.contains("No such file") && line.matches("model.onnx").count() == 1, "{line}");
    fails(&compile(&folder.path(""), &photos, &output), &["directory"]);
}

/// What a newcomer may get wrong: each message says what, where, and what to do.
#[test]
fn messages_say_what_to_do() {
    let folder = Scratch::new("to-do");
    let at = |name: &str| folder.path(name);
    let photos = repository("demo/calibration");
    for (name, content) in
        [("empty", &b""[..]), ("text.onnx", b"x\n"), ("old.jaguar", b"JAGUAR\0\x01"), ("text.jpg", b"x")]
    {
        std::fs::write(at(name), content).unwrap();
    }
    std::fs::create_dir(at("folder")).unwrap();
    for source in ["empty", "text.onnx"] {
        fails(&compile(&at(source), &photos, &at("x.jaguar")), &[source, "it is empty, or no ONNX model"]);
    }
    let no_network = ["old.jaguar", "a compiled model", "an ONNX file is needed"];
    fails(&compile(&at("old.jaguar"), &photos, &at("x.jaguar")), &no_network);
    fails(&["plan", &at("empty")], &["empty", "(0 bytes)", "`jaguar compile` makes one"]);
    fails(&["predict", &at("empty")], &["empty", "nothing is in it (0 bytes)"]);
    fails(&["predict", &at("text.jpg")], &["text.jpg", "neither an image nor a tensor; JPEG, PNG"]);
    let photo = repository("demo/photo.jpg");
    // Where files cannot be written is told before anything is asked.
    for option in ["--trace", "--csv"] {
        fails(&["predict", &photo, option, &at("nowhere/x.html")], &[option, "nowhere is no folder"]);
        fails(&["predict", &photo, option, &at("folder")], &[option, "folder: that is no file"]);
    }
    // (A port that the system has just given back: nobody listens there.)
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (server, part) in [
        (&nobody[..], "nobody listens there: is the server running"),
        ("127.0.0.1:70000", "a port is a number from 0 to 65535"),
        ("https://server.example:7447", "host:port is needed, without a scheme"),
        ("server.example", "host:port is needed"),
    ] {
        fails(&["predict", "--server", server, &photo], &[server, part]);
    }
}

#[test]
fn what_a_network_may_not_have_is_named() {
    let source = repository("crates/graph/tests/fixtures/unsupported_13.onnx");
    let folder = Scratch::new("unsupported");
    let output = folder.path("model.jaguar");
    let lines = failure(Process::start(jaguar(&compile(&source, &repository("demo/calibration"), &output))));
    assert!(
        lines[0].contains("unsupported_13.onnx") && lines[0].contains("5 of the model's 11 nodes"),
        "{lines:#?}"
    );
    // A line for each: the node, its operator, the shape, and a way out.
    let named = [
        ["n6", "Exp", "At the end it can be cut off"],
        ["n8", "Sqrt", "At the end it can be cut off"],
        ["n16", "Log", "At the end it can be cut off"],
        ["n22", "Resize", "Use asymmetric or half_pixel"],
        ["n29", "Conv", "must be constant"],
    ];
    assert_eq!(lines.len(), 1 + named.len(), "{lines:#?}");
    for (line, parts) in lines[1..].iter().zip(named) {
        assert!(parts.iter().all(|p| line.contains(p)), "{line:?} should say {parts:?}");
    }
    assert!(!Path::new(&output).exists());
}

#[test]
fn compile_says_what_is_wrong_with_the_request() {
    let folder = Scratch::new("request");
    let [source, output, other] = ["tiny.onnx", "tiny.jaguar", "other"].map(|f| folder.path(f));
    let photos = repository("demo/calibration");
    std::fs::write(&source, tiny::onnx()).unwrap();
    let with = |extra: &[&str], parts: &[&str]| {
        fails(&[&compile(&source, &photos, &output), extra].concat(), parts);
    };
    std::fs::write(&other, "cat\ndog\n").unwrap();
    with(&["--labels", &other], &["2 label names for 10 classes"]);
    with(&["--labels", &folder.path("nothing")], &["nothing", "No such file"]);
    with(&["--mean", "1,2"], &["--mean has 2 numbers", "3 channels"]);
    with(&["--std", "0"], &["--std", "zero"]);
    with(&["--std", "NaN"], &["--std"]);
    with(&["--mean", "inf"], &["--mean"]);
    with(&["--headroom", "0"], &["headroom", "1 to 1000"]);
    with(&["--activation-bits", "40"], &["activation_bits", "40"]);
    with(&["--weight-bits", "1"], &["weight_bits", "1"]);
    with(&["--input-shape", "2,3,16,16"], &["batch size 2"]);
    with(&["--output-name", "nothing"], &["nothing"]);
    // Calibration inputs.
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).unwrap();
    fails(&compile(&source, &empty, &output), &["empty", "no JPEG, PNG, WebP"]);
    fails(&compile(&source, &folder.path("nothing"), &output), &["nothing", "No such file"]);
    fails(&compile(&source, &other, &output), &["other", "neither an image nor a tensor", "JPEG, PNG"]);
    assert!(!Path::new(&output).exists());
}

#[test]
fn inputs_that_do_not_fit() {
    let folder = Scratch::new("inputs");
    let model = tiny::compile(&folder);
    let input = |name: &str, bytes: &[u8]| {
        let path = folder.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    // `verify` needs no server; `predict` reads its files before it connects.
    let refused = |path: &str, parts: &[&str]| {
        fails(&["verify", &model, path], parts);
        fails(&["predict", "--server", "127.0.0.1:1", path], parts);
    };
    let jpeg = std::fs::read(repository("demo/photo.jpg")).unwrap();
    refused(&input("words.jpg", b"not a picture"), &["words.jpg", "neither an image nor a tensor"]);
    refused(&input("empty.png", b""), &["empty.png"]);
    refused(&input("cut.jpg", &jpeg[..jpeg.len() / 2]), &["cut.jpg"]);
    refused(&input("head.jpg", &jpeg[..30]), &["head.jpg"]);
    refused(&input("cut.png", &tiny::png()[..200]), &["cut.png"]);
    refused(&folder.path("absent.jpg"), &["absent.jpg", "No such file"]);
    refused(&input("words.npy", b"not a tensor"), &["words.npy"]);
    let shape = [3, tiny::SIDE, tiny::SIDE];
    let floats = vec![0; 4 * 3 * tiny::SIDE * tiny::SIDE];
    refused(&input("cut.npy", &tiny::npy("<f4", &shape, &floats[1..])), &["cut.npy"]);
    refused(&input("complex.npy", &tiny::npy("<c8", &shape, &floats)), &["complex.npy", "<c8", "float32"]);
    refused(&input("other.npy", &tiny::npy(">f4", &shape, &floats)), &["other.npy", ">f4", "little-endian"]);
    refused(&input("picture.tif", b"II*\0\x08\0\0\0\0\0\0\0\0\0"), &["picture.tif", "Tiff", "JPEG, PNG"]);
    refused(
        &input("more.npy", &tiny::npy("<f4", &shape, &[&floats[..], b"more"].concat())),
        &["more.npy", "more bytes"],
    );
    refused(&input("head.npy", &tiny::npy("<f4", &shape, &floats)[..40]), &["head.npy", "header is cut off"]);
    refused(&input("big.npy", &tiny::npy("<f4", &[1 << 13, 1 << 13], &[])), &["big.npy", "cut off"]);
    refused(&input("huge.npy", &tiny::npy("<f4", &[1 << 40, 1 << 40], &[])), &["huge.npy", "too large"]);
    let mut nan = floats.clone();
    nan[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    refused(&input("nan.npy", &tiny::npy("<f4", &shape, &nan)), &["nan.npy", "finite"]);
    // A sound tensor of the wrong shape: only the model tells.
    let small = input("small.npy", &tiny::npy("<f4", &[3, 8, 8], &[0; 4 * 3 * 8 * 8]));
    fails(&["verify", &model, &small], &["small.npy", "[3, 8, 8]", "[3, 16, 16]"]);
    let server = crate::process::Server::start(&model, &[], crate::WATCHDOG);
    let cache = folder.path("cache");
    fails(
        &["predict", "--server", &server.address, "--cache", &cache, &small],
        &["small.npy", "[3, 8, 8]", "[3, 16, 16]"],
    );
}

#[test]
fn models_that_are_none() {
    let folder = Scratch::new("models");
    let model = tiny::compile(&folder);
    let whole = std::fs::read(&model).unwrap();
    let broken = folder.path("broken.jaguar");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let cases: [(&[u8], &str); 7] = [
        (&whole[..20], "cut off"),
        (&whole[..whole.len() - 1], "damaged"),
        (&flipped, "damaged"),
        (&[&whole[..], b"more"].concat(), "damaged"),
        (b"", "not a compiled model (0 bytes)"),
        (&tiny::onnx(), "jaguar compile"),
        (&[b"JAGUAR\0\x63", &whole[8..]].concat(), "compile the model again"),
    ];
    for (bytes, part) in cases {
        std::fs::write(&broken, bytes).unwrap();
        fails(&["serve", &broken, "--listen", "127.0.0.1:0"], &["broken.jaguar", part]);
        fails(&["plan", &broken], &["broken.jaguar", part]);
        fails(&["verify", &broken, &repository("demo/photo.jpg")], &["broken.jaguar", part]);
    }
    fails(&["serve", &folder.path("absent")], &["absent", "No such file"]);
    fails(&["serve", &folder.path("")], &["model broken", "compile the model again"]);
}

#[test]
fn addresses_that_cannot_be() {
    let folder = Scratch::new("addresses");
    let model = tiny::compile(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    fails(&["serve", &model, "--listen", &taken_at], &["listening on", &taken_at, "in use"]);
    fails(&["serve", &model, "--listen", "nonsense"], &["listening on nonsense"]);
    fails(&["serve", &model, "--listen", "203.0.113.1:7447"], &["listening on 203.0.113.1:7447"]);
    let cache = folder.path("cache");
    let photo = repository("demo/photo.jpg");
    let predict = |server: &str, parts: &[&str]| {
        fails(&["predict", "--server", server, "--cache", &cache, &photo], parts);
    };
    // The near end of a connection: nobody listens there, and nobody else gets that port while it is open.
    let connection = TcpStream::connect(&taken_at).unwrap();
    let deaf = connection.local_addr().unwrap().to_string();
    predict(&deaf, &["connecting to", &deaf, "refused"]);
    for nonsense in
        ["nonsense", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999", "", ":", "no.such.host.invalid:7447"]
    {
        predict(nonsense, &[&format!("connecting to {nonsense}")]);
    }
}

/// A full disk: files may not grow beyond `blocks` of 512 bytes. (Written by root, permissions stop nothing.)
pub fn on_a_full_disk(blocks: u32, arguments: &[&str]) -> Process {
    // Ignored, the signal turns into an error of the write.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_jaguar")]).args(arguments);
    Process::start(command)
}

#[test]
fn disks_that_take_nothing() {
    let folder = Scratch::new("disk");
    let model = tiny::compile(&folder);
    let before = std::fs::read(&model).unwrap();
    let [source, file] = ["tiny.onnx", "file"].map(|f| folder.path(f));
    let photos = repository("demo/calibration");
    std::fs::write(&file, "in the way").unwrap();

    fails(&compile(&source, &photos, &format!("{file}/model.jaguar")), &["writing", "file/model.jaguar"]);
    fails(&compile(&source, &photos, &folder.path("no/such/folder")), &["writing", "no/such/folder"]);
    let arguments = [&compile(&source, &photos, &model)[..], &tiny::PREPARATION].concat();
    let lines = failure(on_a_full_disk(1, &arguments));
    assert!(lines.iter().any(|l| l.contains("writing") && l.contains("tiny.jaguar")), "{lines:#?}");
    // The old one is still there, and nothing beside it.
    assert_eq!(std::fs::read(&model).unwrap(), before);
    let left = std::fs::read_dir(folder.path("")).unwrap();
    assert_eq!(
        left.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().contains(".part")).count(),
        0
    );
}

/// A compiled network that is another function than the float network: an error, and no file, unless it is asked for.
#[test]
fn what_answers_otherwise_is_not_written() {
    let folder = Scratch::new("otherwise");
    let [source, samples, model] = ["net.onnx", "samples", "net.jaguar"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::cancelling_onnx()).unwrap();
    std::fs::create_dir(&samples).unwrap();
    for i in 0..12 {
        let values = (0..tiny::VECTOR).flat_map(|at| ((i * 31 + at * 7) as f32).sin().to_le_bytes());
        let file = tiny::npy("<f4", &[1, tiny::VECTOR], &values.collect::<Vec<u8>>());
        std::fs::write(format!("{samples}/{i}.npy"), file).unwrap();
    }
    let base = ["compile", &source, "--calibrate", &samples, "-o", &model, "--activation-bits", "8"];
    let refused = Process::start(jaguar(&base)).finish(WATCHDOG);
    assert!(!refused.status.success() && !Path::new(&model).exists(), "{}", refused.stderr);
    for part in ["not written", "does not answer as the float network", "of 12 samples", "--force"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    let forced = Process::start(jaguar(&[&base[..], &["--force"]].concat())).finish(WATCHDOG);
    let told = forced.stderr.clone();
    forced.succeeded();
    assert!(
        told.contains("warning: the compiled network does not answer") && Path::new(&model).exists(),
        "{told}"
    );
    // With the bits that it needs it is written without a word.
    let enough =
        Process::start(jaguar(&[&base[..7], &["21", "--weight-bits", "16"]].concat())).finish(WATCHDOG);
    assert!(!enough.stderr.contains("does not answer"), "{}", enough.stderr);
    enough.succeeded();
}

/// Numbers of one option with spaces between them.
#[test]
fn numbers_apart_are_told_how() {
    let line = ["compile", "x.onnx", "--calibrate", "x", "-o", "y", "--mean", "0.485", "0.456", "0.406"];
    let finished = Process::start(jaguar(&line)).finish(WATCHDOG);
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("--mean 0.485,0.456,0.406"), "{}", finished.stderr);
}

/// What is no compiled model is never overwritten: the network itself, its weights beside it, a picture, a device.
#[test]
fn nothing_else_is_overwritten() {
    let folder = Scratch::new("overwrite");
    let [source, weights, labels, photos] =
        ["tiny.onnx", "tiny.onnx.data", "labels.txt", "photos"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::onnx()).unwrap();
    std::fs::write(&weights, [0; 100]).unwrap();
    std::fs::write(&labels, "words").unwrap();
    std::fs::create_dir(&photos).unwrap();
    let photo = format!("{photos}/photo.png");
    std::fs::write(&photo, tiny::png()).unwrap();
    for output in [&source, &weights, &labels, &photo] {
        let before = std::fs::read(output).unwrap();
        fails(&compile(&source, &photos, output), &["-o", output, "no compiled model"]);
        assert_eq!(std::fs::read(output).unwrap(), before);
    }
    // By another name.
    let other = format!("{photos}/../tiny.onnx");
    fails(&compile(&source, &photos, &other), &["-o", "tiny.onnx", "no compiled model"]);
    fails(&compile(&source, &photos, &photos), &["-o", "photos", "no file"]);
    fails(&compile(&source, &photos, "/dev/null"), &["-o", "/dev/null", "no file"]);
    // A compiled model is replaced, and an empty file that somebody made to be filled.
    let model = tiny::compile(&folder);
    let first = std::fs::read(&model).unwrap();
    tiny::compile(&folder);
    assert_ne!(std::fs::read(&model).unwrap(), first);
    std::fs::write(&model, "").unwrap();
    tiny::compile(&folder);
    // A timeline does not replace a picture.
    fails(&["predict", "--server", "127.0.0.1:1", "--trace", &photo, &photo], &["--trace", "photo.png"]);
}

/// Numbers that make no sense are refused where they are given.
#[test]
fn senseless_numbers() {
    let refused = |arguments: &[&str], parts: &[&str]| {
        let finished = Process::start(jaguar(arguments)).finish(crate::WATCHDOG);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        parts.iter().for_each(|p| assert!(finished.stderr.contains(p), "{p:?}: {}", finished.stderr));
    };
    refused(&["predict", "--top", "0", "x.jpg"], &["--top", "at least 1"]);
    refused(&["predict", "--top", "-1", "x.jpg"], &["-1"]);
    refused(&["predict", "--keep", "-1", "x.jpg"], &["-1"]);
    refused(&["predict", "--keep-memory", "much", "x.jpg"], &["--keep-memory", "500M"]);
    refused(&["predict"], &["INPUTS"]);
    refused(&["serve", "--keep-idle", "0", "x.jaguar"], &["--keep-idle"]);
    refused(&["predict", "--threads", "100000", "x.jpg"], &["--threads", "1024"]);
    refused(&["serve", "--max-clients", "0", "x.jaguar"], &["--max-clients", "at least 1"]);
    refused(&["serve", "--threads", "18446744073709551615", "x.jaguar"], &["--threads", "1024"]);
    refused(
        &["compile", "x.onnx", "--calibrate", "x", "-o", "y", "--resize", "0"],
        &["--resize", "1 to 32768"],
    );
    refused(
        &["compile", "x.onnx", "--calibrate", "x", "-o", "y", "--resize", "99999"],
        &["--resize", "1 to 32768"],
    );
    refused(
        &["compile", "x.onnx", "--calibrate", "x", "-o", "y", "--resize", "centre=1.5"],
        &["--resize", "a fraction up to 1"],
    );
    refused(
        &["compile", "x.onnx", "--calibrate", "x", "-o", "y", "--filter", "cubic"],
        &["--filter", "bicubic"],
    );
}

/// Pixels as they are, for a network that wants them scaled: most likely the flags were forgotten.
#[test]
fn raw_pixels_are_noticed() {
    let folder = Scratch::new("raw");
    let model = tiny::compile(&folder);
    let [source, tensor] = ["tiny.onnx", "tensor.npy"].map(|f| folder.path(f));
    let photos = repository("demo/calibration");
    let warned = |calibrate: &str, flags: &[&str]| {
        let command = jaguar(&[&compile(&source, calibrate, &model), flags].concat());
        let finished = Process::start(command).finish(crate::WATCHDOG);
        let warning = finished.stderr.lines().find(|l| l.contains("raw pixels")).map(str::to_owned);
        finished.succeeded();
        warning
    };
    let warning = warned(&photos, &[]).expect("a warning");
    for part in ["warning: ", "0 to 255", "--pixel-scale", "--mean", "--std"] {
        assert!(warning.contains(part), "{warning:?} does not say {part:?}");
    }
    // Who gave flags knows what pixels the network wants.
    assert_eq!(warned(&photos, &tiny::PREPARATION), None);
    assert_eq!(warned(&photos, &["--bgr", "--mean", "103.939,116.779,123.68"]), None);
    // A tensor is what it is.
    std::fs::write(&tensor, tiny::tensor().0).unwrap();
    assert_eq!(warned(&tensor, &[]), None);
}

/// What is under way is told, line by line where there is no terminal.
#[test]
fn compile_says_what_it_does() {
    let folder = Scratch::new("stages");
    let [source, output] = ["tiny.onnx", "tiny.jaguar"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::onnx()).unwrap();
    let photos = repository("demo/calibration");
    let finished = Process::start(jaguar(&compile(&source, &photos, &output))).finish(crate::WATCHDOG);
    let told = finished.stderr.clone();
    finished.succeeded();
    let stages: Vec<&str> = told.lines().filter(|l| l.ends_with(" ...")).collect();
    for (stage, part) in stages.iter().zip([
        "reading",
        "reading 6 samples",
        "calibrating",
        "measuring",
        "trying",
        "checking",
        "writing",
    ]) {
        assert!(stage.contains(part), "{stages:#?}");
    }
    assert!(stages.len() >= 7, "{stages:#?}");
}
