//! Trained networks: the integer network must choose the same class as the float one. Skipped, with a line that
//! says so, unless `JAGUAR_MODELS` and `JAGUAR_IMAGES` name the folders with them.
mod zoo;

use std::path::Path;

use jaguar_graph::agreement::agreement;
use jaguar_graph::import::{Options as ImportOptions, import_bytes, import_file};
use jaguar_graph::network::{Finish, Linear, Network, Op, Operators};
use jaguar_graph::quantise::{Options, calibrate, quantise};
use jaguar_ring::cpu::Cpu;

/// Calibrates on some images and compares on the others; `allowed` may differ.
fn agrees(part: &str, allowed: usize) {
    let Some((models, images)) = zoo::folders() else { return };
    let entry = zoo::MODELS.iter().find(|m| m.file.contains(part)).expect("a model of that name");
    let Some(file) = zoo::model_file(&models, entry.file) else { return };
    let graph = import_file(&file, &ImportOptions::new(&Operators::standard())).expect("imports");
    let samples = zoo::samples(&images, entry.family, &entry.image(), graph.input_shape());
    let (names, tensors): (Vec<String>, Vec<Vec<f32>>) =
        samples.into_iter().map(|s| (s.name, s.tensor)).unzip();
    // Each half is tested with the scales that the other half gave, so that every image counts.
    let (first, second) = tensors.split_at(tensors.len() / 2);
    let mut same = 0;
    for (calibration, tested) in [(first, second), (second, first)] {
        let options = Options { image: entry.image(), ..Options::default() };
        let (model, report) = calibrate(Cpu::detect(), &graph, calibration, &options).expect("quantises");
        model.validate().expect("is valid");
        assert_eq!(report.nodes.len(), model.network.nodes.len());
        let result = agreement(Cpu::detect(), &graph, &model, tested).expect("the images fit");
        assert_eq!(result.overflows, 0);
        same += result.same_class;
    }
    println!("{part}: {same} of {} agree", tensors.len());
    assert!(same + allowed >= tensors.len(), "{part}: {same} of {names:?} agree");
}

#[test]
fn squeezenet() {
    agrees("squeezenet", 1);
}

#[test]
fn efficientnet_lite() {
    agrees("efficientnet", 1);
}

#[test]
fn open_nsfw() {
    agrees("open_nsfw", 1);
}

#[test]
fn resnet20() {
    agrees("resnet20", 0);
}

#[test]
fn cnn6() {
    // One image is nearly a tie in floats: its two best logits are 7.419 and 7.402.
    agrees("cnn6", 1);
}

/// The network with made-up scales, if its file is there.
fn network(models: &Path, part: &str) -> Option<Network> {
    let entry = zoo::MODELS.iter().find(|m| m.file.contains(part)).expect("a model of that name");
    let graph =
        import_file(&zoo::model_file(models, entry.file)?, &ImportOptions::new(&Operators::standard()))
            .expect("imports");
    let ranges = graph.nodes.iter().map(|node| vec![1.0; node.shape[0]]).collect();
    let options = Options { image: entry.image(), ..Options::default() };
    Some(quantise(&graph, &ranges, &options).expect("quantises").0.network)
}

/// What fusion must make of the architectures.
#[test]
fn architectures() {
    let Some((models, _)) = zoo::folders() else { return };
    for (part, linear, softmax) in [
        ("squeezenet", 26, false),
        ("efficientnet", 50, false),
        ("open_nsfw", 54, true),
        ("resnet20", 20, false),
        ("cnn6", 9, false),
    ] {
        let Some(network) = network(&models, part) else { continue };
        let count = |wanted: fn(&Op) -> bool| network.nodes.iter().filter(|n| wanted(&n.op)).count();
        assert_eq!(count(|op| op.is::<Linear>()), linear, "{part}");
        assert_eq!(count(|op| matches!(op.name(), "Transpose" | "Reshape")), 0, "{part}");
        let finish = if softmax { Finish::Softmax } else { Finish::None };
        assert_eq!(network.output.parts[0].finish, finish, "{part}");
        assert_eq!(network.input.channels_last, part == "open_nsfw");
    }
}

/// A network survives the journey to the client.
#[test]
fn networks_encode_and_decode() {
    let Some((models, _)) = zoo::folders() else { return };
    for entry in &zoo::MODELS {
        let Some(sent) = network(&models, entry.file) else { continue };
        let bytes = postcard::to_stdvec(&sent).expect("encodes");
        let received: Network = Operators::standard().decode(&bytes).expect("decodes");
        assert_eq!(received, sent);
        received.validate().expect("is valid");
    }
}

/// A real file cut short at any of many places is refused.
#[test]
fn truncated_models() {
    let Some((models, _)) = zoo::folders() else { return };
    let Some(file) = zoo::model_file(&models, "resnet20_cifar10_32.onnx") else { return };
    let bytes = std::fs::read(file).expect("the model");
    for length in (0..bytes.len()).step_by(9973).chain(bytes.len() - 64..bytes.len()) {
        assert!(
            import_bytes(&bytes[..length], "cut", &ImportOptions::new(&Operators::standard())).is_err(),
            "cut to {length}"
        );
    }
}
