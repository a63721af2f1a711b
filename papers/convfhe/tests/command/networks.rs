//! Whole networks by the commands, beside plaintext.

use super::*;
use crate::tiny::{attribute, model, node, weights};
use jaguar::network::Operators;

/// The shape of [`pooled_onnx`]'s input.
const POOLED: [usize; 3] = [6, 8, 8];

/// A network whose input and first layer take two ciphertexts in the smallest ring: Conv, Relu, MaxPool, Conv, Relu, Flatten, Gemm.
fn pooled_onnx() -> Vec<u8> {
    let state = &mut 13;
    let conv = || vec![attribute("kernel_shape", &[3, 3]), attribute("pads", &[1, 1, 1, 1])];
    let pool = vec![attribute("kernel_shape", &[2, 2]), attribute("strides", &[2, 2])];
    let nodes = [
        node("Conv", &["input", "w1", "b1"], "conv1", conv()),
        node("Relu", &["conv1"], "relu1", vec![]),
        node("MaxPool", &["relu1"], "pool1", pool),
        node("Conv", &["pool1", "w2", "b2"], "conv2", conv()),
        node("Relu", &["conv2"], "relu2", vec![]),
        node("Flatten", &["relu2"], "flat", vec![]),
        node("Gemm", &["flat", "w3", "b3"], "logits", vec![attribute("transB", &[1])]),
    ];
    let tensors = [
        weights("w1", &[6, 6, 3, 3], 0.3, state),
        weights("b1", &[6], 0.2, state),
        weights("w2", &[8, 6, 3, 3], 0.3, state),
        weights("b2", &[8], 0.2, state),
        weights("w3", &[tiny::CLASSES as u64, 8 * 4 * 4], 0.3, state),
        weights("b3", &[tiny::CLASSES as u64], 0.2, state),
    ];
    let [channels, height, width] = POOLED.map(|side| side as u64);
    model("pooled", nodes, tensors, &[1, channels, height, width])
}

/// Two ciphertexts go up, and a max-pool is among the layers.
#[test]
fn several_ciphertexts_and_a_max_pool() {
    let it = Site::of("several", &pooled_onnx(), &POOLED);
    let server = it.serve(&[]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let answers = lines(it.predict(&server.address, "client", &inputs[..2]));
    // Of 12.5 KiB each, and some words.
    let sent = answers[1]["cost"]["sent"].as_u64().unwrap();
    assert!((25_600..26_100).contains(&sent), "{sent}");
    // An answer is one ciphertext, whatever the input is.
    let received = answers[1]["cost"]["received"].as_u64().unwrap();
    assert!((25_600..27_000).contains(&received), "{received}");
    assert_as_in_plaintext(&it, &answers);
}

/// Answers for the first inputs, within 2^-6 of the spread, and with the same class.
#[track_caller]
fn assert_as_in_plaintext(it: &Site, answers: &[Value]) {
    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    for (i, answer) in answers.iter().enumerate() {
        let want = graph.forward(Cpu::detect(), &values(i, POOLED.iter().product())).unwrap();
        let got = logits(answer);
        assert_eq!(got.len(), want.len());
        let [least, most] = [f32::min, f32::max].map(|pick| want.iter().copied().reduce(pick).unwrap());
        for (got, want) in got.iter().zip(&want) {
            let off = (got - f64::from(*want)).abs() / f64::from(most - least);
            assert!(off < 1.0 / 64.0, "{got} is not {want}: off by {off} of the spread");
        }
        let largest = want.iter().position(|&logit| logit == most).unwrap();
        assert_eq!(answer["label"], largest);
    }
}

/// The client computes the first convolution, its ReLU and the max-pool (which the import puts before it), the server what follows.
#[test]
fn first_layers_are_the_clients() {
    let it = Site::compiled("first-layers", &pooled_onnx(), &POOLED, &["--last", "1"]);
    let first = format!("{}.first.onnx", it.model);
    let server = it.serve(&[]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let ask = |options: &[&str]| it.predict(&server.address, "client", options);
    let answers = lines(ask(&[&["--first-layers", &first], &inputs[..2]].concat()));
    assert_as_in_plaintext(&it, &answers);

    assert_fails(ask(&inputs[..1]), &["--first-layers names the file"]);
    let whole = it.scratch.path("vector.onnx");
    assert_fails(ask(&["--first-layers", &whole, inputs[0]]), &["not the first layers of this model"]);
    // The weights of the others are in no file of a client.
    let head = import_file(Path::new(&first), &Options::new(&Operators::standard())).unwrap();
    assert_eq!(head.nodes.iter().filter(|node| node.op.linear().is_some()).count(), 1);
    let bytes = std::fs::read(&first).unwrap();
    for name in ["w2", "b2", "w3", "b3"] {
        assert!(!bytes.windows(2).any(|two| two == name.as_bytes()), "{name}");
    }
}

/// Inputs that go in one ciphertext have the answers that they have alone, also through a ticket.
#[test]
fn several_images_share_an_evaluation() {
    let it = Site::compiled("images", &tiny::vector_onnx(), &[tiny::VECTOR], &["--images", "3"]);
    let server = it.serve(&[]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let ask = |options: &[&str]| lines(it.predict(&server.address, "client", options));
    let answers = ask(&inputs);
    let cost = |answer: &Value, what: &str| answer["cost"][what].as_u64().unwrap();
    assert!(answers.iter().map(|answer| cost(answer, "inputs")).eq([3, 3, 3, 1]), "{answers:?}");
    // Three take the bytes of one.
    assert!(answers.iter().all(|answer| cost(answer, "received") < 27_000), "{answers:?}");
    assert!(cost(&answers[3], "sent") < 13_300, "{answers:?}");
    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    let tolerance = tolerance(&it.model);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer["input"], inputs[i]);
        let want = graph.forward(Cpu::detect(), &value(i)).unwrap();
        for (got, want) in logits(answer).iter().zip(&want) {
            assert!(
                (got - f64::from(*want)).abs() <= tolerance,
                "{i}: {got} is not {want}, within {tolerance}"
            );
        }
    }

    let asked = ask(&["--detach", inputs[1], inputs[2]]);
    let ticket = asked[0]["ticket"].as_str().unwrap();
    assert!(asked.len() == 1 && ticket.ends_with(":2"), "{asked:?}");
    assert_eq!(asked[0]["inputs"], serde_json::json!([inputs[1], inputs[2]]));
    let more = ticket.replace(":2", ":4");
    assert_fails(it.predict(&server.address, "client", &["--ticket", &more]), &["of 3 inputs at most"]);
    let fetched = ask(&["--ticket", ticket]);
    assert_eq!(fetched.len(), 2);
    for (fetched, direct) in fetched.iter().zip(&answers[1..]) {
        assert_eq!((&fetched["ticket"], &fetched["label"]), (&asked[0]["ticket"], &direct["label"]));
    }

    let source = it.scratch.path("vector.onnx");
    let own =
        ["compile", &source, "--protocol", "convfhe", "--parameters", "insecure-n10", "--images", "513"];
    let more = ["--calibrate", &it.scratch.path("samples"), "-o", &it.scratch.path("none.convfhe")];
    assert_fails(Process::start(jaguar(&[&own[..], &more].concat())), &["513 inputs in a ciphertext"]);
}

/// What cannot be cut is refused before anything is written.
#[test]
fn a_network_that_cannot_be_cut_is_refused() {
    let it = Site::of("uncut", &pooled_onnx(), &POOLED);
    let (source, samples) = (it.scratch.path("vector.onnx"), it.scratch.path("samples"));
    let model = it.scratch.path("cut.convfhe");
    let base = ["compile", &source, "--calibrate", &samples, "-o", &model];
    let fails = |options: &[&str], why: &str| {
        assert_fails(Process::start(jaguar(&[&base[..], options].concat())), &[why]);
        assert!(!Path::new(&model).exists());
    };
    fails(
        &["--protocol", "convfhe", "--parameters", "insecure-n10", "--last", "2"],
        "at most 1 layers can be cut off",
    );
    fails(&["--last", "1"], "--protocol convfhe");
    let own =
        ["--protocol", "convfhe", "--parameters", "insecure-n10", "--last", "1", "--first-layers", &source];
    let before = std::fs::read(&source).unwrap();
    fails(&own, "give another name");
    assert_eq!(std::fs::read(&source).unwrap(), before);
}

/// What `jaguar accuracy` computes without encryption is what the server answers: classes on which both agree, and how far logits are off
/// where the float network is known.
#[test]
fn accuracy_is_that_of_encrypted_answers() {
    let it = Site::new("accuracy");
    let server = it.serve(&[]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let answers = lines(it.predict(&server.address, "client", &inputs));
    let label = |answer: &Value| answer["label"].as_u64().unwrap();
    // Two inputs with the class that comes out, and two with another.
    let list = it.scratch.path("list.csv");
    let told = answers.iter().zip(&inputs).enumerate().map(|(i, (answer, input))| {
        let class = (label(answer) + u64::from(i >= 2)) % tiny::CLASSES as u64;
        format!("{input},{class}\n")
    });
    std::fs::write(&list, told.collect::<String>()).unwrap();
    let asked = ["accuracy", &it.model, "--data", &list, "--top", "1", "--json"];
    let found = lines(Process::start(jaguar(&asked))).remove(0);
    assert_eq!(found["encrypted"]["pictures"], 4);
    assert_eq!(found["encrypted"]["top"]["1"], 0.5);
    assert_eq!(found["encrypted"]["same_class"], 1.0);
    assert_eq!((&found["outside"], &found["failed"]), (&0.into(), &0.into()));
    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    let off = answers.iter().enumerate().map(|(i, answer)| {
        let want = graph.forward(Cpu::detect(), &value(i)).unwrap();
        let ends = want.iter().fold([f32::INFINITY, f32::NEG_INFINITY], |[l, h], v| [l.min(*v), h.max(*v)]);
        let worst =
            logits(answer).iter().zip(&want).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
        worst / f64::from(ends[1] - ends[0])
    });
    // The noise of encryption is not in it.
    let (largest, seen) = (found["largest_error"].as_f64().unwrap(), off.fold(0.0, f64::max));
    assert!((largest - seen).abs() < 1.0 / 128.0, "{largest} computed, {seen} answered");
    let text = Process::start(jaguar(&asked[..6])).finish(WATCHDOG).succeeded();
    assert!(text.contains("in one round") && text.contains("50.00 %"), "{text}");
    crate::fails(
        &[&asked[..4], &["--private", "1"]].concat(),
        &["--private is for interactive models", "convfhe"],
    );
    // A model of another format is no interactive one either.
    let old = std::fs::read_to_string(&it.model).unwrap().replacen("\"format\":", "\"format\":9", 1);
    std::fs::write(&it.model, old).unwrap();
    crate::fails(&asked[..4], &["its format is 9"]);
}
