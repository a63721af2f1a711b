//! Whole networks by the commands, beside plaintext.

use super::*;

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
    let graph = import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::default()).unwrap();
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
