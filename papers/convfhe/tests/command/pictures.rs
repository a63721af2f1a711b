//! What calibration makes of ordinary pictures, and what a client makes of an answer that means nothing.

use image::{Rgb, RgbImage};
use serde_json::Value;

use super::Site;
use crate::process::{Finished, Process, Scratch, jaguar, repository};
use crate::{WATCHDOG, tiny};

/// ResNet-20's pictures have so many rows and columns.
const SIDE: u32 = 32;

/// Eight simple pictures. Calibrated with photographs alone, half of them leave the bounds of ResNet-20.
fn drawings() -> [(&'static str, RgbImage); 8] {
    let [red, green, blue] = [[255, 0, 0], [0, 255, 0], [0, 0, 255]].map(Rgb);
    let [black, white] = [[0; 3], [255; 3]].map(Rgb);
    let draw = |of: &dyn Fn(u32, u32) -> Rgb<u8>| RgbImage::from_fn(SIDE, SIDE, of);
    let within = |x: u32, y: u32| (8..24).contains(&x) && (8..24).contains(&y);
    let disc = |x: u32, y: u32| (2 * x).abs_diff(SIDE - 1).pow(2) + (2 * y).abs_diff(SIDE - 1).pow(2) < 400;
    let noise = |x: u32, y: u32| {
        let mixed = (u64::from(y * SIDE + x) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 63 == 1
    };
    let pick = |first: bool, a: Rgb<u8>, b: Rgb<u8>| if first { a } else { b };
    [
        ("red-and-blue-halves", draw(&|x, _| pick(x < SIDE / 2, red, blue))),
        ("red-square-on-white", draw(&|x, y| pick(within(x, y), red, white))),
        ("green-stripes", draw(&|x, _| pick((x / 4) % 2 == 0, green, black))),
        ("binary-noise", draw(&|x, y| pick(noise(x, y), white, black))),
        ("green-and-magenta", draw(&|_, y| pick(y < SIDE / 2, green, Rgb([255, 0, 255])))),
        ("white-disc", draw(&|x, y| pick(disc(x, y), white, black))),
        ("grey-ramp", draw(&|x, _| Rgb([(x * 8) as u8; 3]))),
        ("yellow-chequers", draw(&|x, y| pick((x / 3 + y / 3) % 2 == 0, Rgb([255, 255, 0]), black))),
    ]
}

/// Calibrates ResNet-20 as the documentation says, with ten photographs, and tests the drawings in plaintext.
fn calibrated(scratch: &Scratch, options: &[&str]) -> Finished {
    let folder = scratch.path("drawings");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, picture) in drawings() {
        picture.save(format!("{folder}/{name}.png")).unwrap();
    }
    let network = repository("crates/cli/tests/models/resnet20_cifar10_32.onnx");
    let photographs = ["demo/calibration", "demo/more"].map(repository);
    let model = scratch.path("resnet20.convfhe");
    let own = ["compile", &network, "--protocol", "convfhe", "-o", &model];
    let pixels = ["--pixel-scale", "0.00392157", "--mean", ".485,.456,.406", "--std", ".229,.224,.225"];
    let samples = ["--calibrate", &photographs[0], &photographs[1], "--test", &folder];
    // A hundred plaintext evaluations of the network.
    Process::start(jaguar(&[&own[..], &pixels, &samples, options].concat())).finish(5 * WATCHDOG)
}

#[test]
fn drawings_stay_within_the_bounds() {
    let finished = calibrated(&Scratch::new("drawings"), &[]);
    for wrong in ["leave the bounds", "would leave", "too alike", "are few"] {
        assert!(!finished.stderr.contains(wrong), "{}", finished.stderr);
    }
    let told = finished.succeeded();
    assert!(told.contains("calibrated with 10 samples and 95 made-up inputs"), "{told}");
    assert!(told.contains("test inputs: 8 of 8 stay within the bounds"), "{told}");
    // The cheaper set would not do.
    assert!(told.contains("took n16, for ") && told.contains("parameter set n16: "), "{told}");
    // And their answers mean something: ReLU's class, up to one, and logits near its own.
    let line =
        told.lines().find(|line| line.starts_with("test inputs, by ReLU's polynomial")).expect("a line");
    let number = |behind: &str| -> f64 {
        let from = line.split(behind).nth(1).unwrap_or_else(|| panic!("{behind:?}: {line}")).trim();
        from.split([' ', '%']).next().expect("a word").parse().unwrap_or_else(|_| panic!("{line}"))
    };
    assert!(number("before noise:") >= 7.0 && number("off by at most") < WORST, "{line}");
}

/// By how many percent of their spread logits may be off at most, on drawings, before noise.
const WORST: f64 = 5.0;

/// So the test above finds what it is for.
#[test]
fn photographs_alone_say_too_little() {
    let scratch = Scratch::new("photographs");
    let refused = calibrated(&scratch, &["--stress", "off"]);
    assert!(
        !refused.status.success() && refused.stderr.contains("of 8 inputs leave the bounds"),
        "{}",
        refused.stderr
    );
    assert!(!std::path::Path::new(&scratch.path("resnet20.convfhe")).exists());
    let finished = calibrated(&scratch, &["--stress", "off", "--force"]);
    assert!(finished.stderr.contains("of 8 test inputs leave the bounds"), "{}", finished.stderr);
    let told = finished.succeeded();
    assert!(told.contains("calibrated with 10 samples and 0 made-up inputs"), "{told}");
}

#[test]
fn an_answer_that_means_nothing_is_an_error() {
    let it = Site::new("beyond");
    // As if the samples had been a sixteenth as large.
    let mut model: Value = serde_json::from_slice(&std::fs::read(&it.model).unwrap()).unwrap();
    for layer in model["layers"].as_array_mut().unwrap() {
        layer["bound"] = (layer["bound"].as_f64().unwrap() / 16.0).into();
    }
    std::fs::write(&it.model, serde_json::to_vec(&model).unwrap()).unwrap();
    let server = it.serve(&[]);
    for input in &it.inputs[..2] {
        let finished = it.predict(&server.address, "client", &[input]).finish(WATCHDOG);
        assert!(!finished.status.success() && !finished.stdout.contains("logits"), "{}", finished.stdout);
        for part in
            ["the answer means nothing", "unlike those that the model was calibrated with", "--margin"]
        {
            assert!(finished.stderr.contains(part), "{}", finished.stderr);
        }
    }
}

#[test]
fn samples_that_are_too_alike_are_told() {
    let scratch = Scratch::new("alike");
    let [network, samples, model] =
        ["vector.onnx", "samples", "vector.convfhe"].map(|name| scratch.path(name));
    std::fs::write(&network, tiny::vector_onnx()).unwrap();
    std::fs::create_dir(&samples).unwrap();
    for i in 0..10 {
        let data: Vec<u8> =
            super::value(0).iter().flat_map(|v| (v + i as f32 * 1e-3).to_le_bytes()).collect();
        std::fs::write(format!("{samples}/{i}.npy"), tiny::npy("<f4", &[1, tiny::VECTOR], &data)).unwrap();
    }
    let own = ["compile", &network, "--protocol", "convfhe", "--parameters", "insecure-n10"];
    let more = ["--calibrate", &samples, "-o", &model];
    let finished = Process::start(jaguar(&[&own[..], &more].concat())).finish(WATCHDOG);
    assert!(finished.stderr.contains("too alike: of 10 only 1 differ"), "{}", finished.stderr);
    finished.succeeded();
    // A number that no margin is.
    let wrong = Process::start(jaguar(&[&own[..], &more, &["--stress", "0.5"]].concat())).finish(WATCHDOG);
    assert!(!wrong.status.success() && wrong.stderr.contains("at least 1"), "{}", wrong.stderr);
}
