//! Whole networks by the commands, beside plaintext.

use super::*;
use jaguar::network::Operators;

/// Two ciphertexts go up, and a max-pool is among the layers.
#[test]
fn several_ciphertexts_and_a_max_pool() {
    let Some(it) = Site::of("several", &tiny::pooled_onnx(), &tiny::POOLED) else { return };
    let server = it.serve(&[]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let answers = lines(it.predict(&server.address, "client", &inputs[..2]));
    // Of 32 KiB each, and some words.
    let sent = answers[1]["cost"]["sent"].as_u64().unwrap();
    assert!((65_536..66_000).contains(&sent), "{sent}");
    // An answer is one ciphertext, whatever the input is.
    let received = answers[1]["cost"]["received"].as_u64().unwrap();
    assert!((32_768..34_000).contains(&received), "{received}");
    assert_as_in_plaintext(&it, &answers);
}

/// Answers for the first inputs, within 2^-6 of the spread, and with the same class.
#[track_caller]
fn assert_as_in_plaintext(it: &Site, answers: &[Value]) {
    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    for (i, answer) in answers.iter().enumerate() {
        let want = graph.forward(Cpu::detect(), &values(i, tiny::POOLED.iter().product())).unwrap();
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
    let Some(it) = Site::compiled("first-layers", &tiny::pooled_onnx(), &tiny::POOLED, &["--last", "1"])
    else {
        return;
    };
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

/// What cannot be cut is refused before anything is written.
#[test]
fn a_network_that_cannot_be_cut_is_refused() {
    let Some(it) = Site::of("uncut", &tiny::pooled_onnx(), &tiny::POOLED) else { return };
    let (source, samples) = (it.scratch.path("vector.onnx"), it.scratch.path("samples"));
    let model = it.scratch.path("cut.convfhe");
    let base = ["compile", &source, "--calibrate", &samples, "-o", &model, "--fhe-program", it.fhe];
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

#[test]
fn threads_of_an_evaluation_are_bounded() {
    let Some(it) = Site::new("threads") else { return };
    let told = it.scratch.path("threads");
    let script = it.scratch.path("telling");
    let text = format!("#!/bin/sh\necho \"$1 $GOMAXPROCS\" >> '{told}'\nexec '{}' \"$@\"\n", it.fhe);
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let server = it.serve_by(&script, &["--threads", "1"]);
    lines(it.predict(&server.address, "client", &[&it.inputs[0]]));
    let told = std::fs::read_to_string(told).unwrap();
    assert!(told.lines().any(|line| line == "evaluate 1"), "{told}");
}
