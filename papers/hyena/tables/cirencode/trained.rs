//! What training with blocks came to, on CIFAR-10: `papers/circulant/results`.

use serde_json::Value;

use super::Sizes;
use crate::conv::shapes::Conv;
use crate::paper::ConvolutionKind;

/// Networks of the paper, with the results of their training.
const RESULTS: [(&str, &str); 3] = [
    ("ResNet-18", include_str!("../../../circulant/results/resnet18-cifar10.json")),
    ("MobileNetV2", include_str!("../../../circulant/results/mobilenetv2-cifar10.json")),
    ("ViT", include_str!("../../../circulant/results/vit-cifar10.json")),
];

/// The run whose sizes were searched to take no more planned time than blocks of 8 in all layers.
const SEARCHED: &str = "searched as 8";

fn results(network: &str) -> Value {
    let (_, text) = RESULTS.iter().find(|(name, _)| *name == network).expect("a network of the paper");
    serde_json::from_str(text).expect("results of training are JSON")
}

/// Points of accuracy that runs of this name lose, beside the dense network that was tuned as long: the mean over seeds.
fn lost(network: &str, run: &str) -> f64 {
    let results = results(network);
    let rows = results["summary"].as_array().expect("a summary");
    let row =
        rows.iter().find(|row| row["name"] == run).unwrap_or_else(|| panic!("{network} has a run {run}"));
    row["loss_mean"].as_f64().expect("its loss")
}

/// What blocks of `b` in all layers lose.
pub fn uniform_loses(network: &str, b: usize) -> f64 {
    lost(network, &format!("uniform {b}"))
}

/// What searched sizes lose.
pub fn searched_loses(network: &str) -> f64 {
    lost(network, SEARCHED)
}

/// The searched sizes of a network's layers by seed, in the order of `convs`. None of the vision transformer, which was
/// trained with other numbers of layers and channels than the paper's.
pub fn searched(network: &str, convs: &[Conv]) -> Vec<(Sizes, Vec<usize>)> {
    if network == "ViT" {
        return Vec::new();
    }
    let results = results(network);
    let runs = results["runs"].as_array().expect("runs").iter().filter(|run| run["name"] == SEARCHED);
    let sizes = |run: &Value| {
        let of = run["sizes"].as_object().expect("sizes by layer");
        let b = |name: &str| {
            of.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} has a size")) as usize
        };
        let names = names(network, convs);
        assert_eq!(names.iter().flatten().count(), of.len(), "{network}: layers that may have blocks");
        let sizes = names.iter().map(|name| name.as_deref().map_or(1, b)).collect();
        (Sizes::Searched { seed: run["seed"].as_u64().expect("a seed") }, sizes)
    };
    runs.map(sizes).collect()
}

/// What training calls each of `convs`; None for layers in groups, which have no blocks.
fn names(network: &str, convs: &[Conv]) -> Vec<Option<String>> {
    let (first, last) = (0, convs.len() - 1);
    let (mut block, mut part) = (0, 0);
    let mut name = |i: usize, conv: &Conv| {
        if i == first {
            return Some("stem.conv".to_owned());
        }
        if i == last {
            return Some("head".to_owned());
        }
        if network == "MobileNetV2" {
            if i + 1 == last {
                return Some("last.conv".to_owned());
            }
            if conv.kind == ConvolutionKind::Depthwise {
                part = 1;
                return None;
            }
            // An expansion, but in the first block; a depthwise layer; a projection.
            let name = format!("blocks.{block}.{}.conv", ["expand", "project"][part]);
            block += part;
            part = 0;
            return Some(name);
        }
        // The first layer, the shortcut of 1×1 where there is one, the second.
        let shortcut = conv.kernel == 1;
        let name =
            format!("blocks.{block}.{}.conv", if shortcut { "shortcut" } else { ["first", "second"][part] });
        if !shortcut {
            block += part;
            part = 1 - part;
        }
        Some(name)
    };
    convs.iter().enumerate().map(|(i, conv)| name(i, conv)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names stand for the layers that training has under them: sizes divide their numbers of channels, and there are as
    /// many weights as the trained network has.
    #[test]
    fn sizes_are_those_of_trained_networks() {
        for (network, convs) in super::super::networks() {
            let results = results(network);
            let all = searched(network, &convs);
            assert_eq!(all.len(), if network == "ViT" { 0 } else { 3 }, "{network}");
            for (sizes, b) in all {
                let Sizes::Searched { seed } = sizes else { panic!("{network}: searched") };
                let runs = results["runs"].as_array().unwrap();
                let of = |name: &str| {
                    let run = runs.iter().find(|run| run["name"] == name && run["seed"] == seed).unwrap();
                    run["parameters"].as_i64().unwrap()
                };
                // Fewer than the dense network by the weights that blocks give up, and by scales of norms in groups.
                let given_up = |(conv, &b): (&Conv, &usize)| {
                    assert!(
                        conv.channels_in % b == 0 && conv.channels_out % b == 0,
                        "{network}: {}",
                        conv.name()
                    );
                    let channels = conv.channels_out - conv.channels_out / b;
                    let weights = conv.channels_out * conv.channels_in * conv.kernel * conv.kernel;
                    (weights - weights / b + channels) as i64
                };
                let fewer: i64 = convs.iter().zip(&b).map(given_up).sum();
                assert_eq!(of("dense, fine-tuned") - of(SEARCHED), fewer, "{network}, seed {seed}");
            }
        }
    }

    #[test]
    fn losses_are_those_on_record() {
        assert!((uniform_loses("ResNet-18", 8) - 1.48).abs() < 0.005);
        assert!((searched_loses("MobileNetV2") + 0.01).abs() < 0.01);
        assert!(uniform_loses("ViT", 8) > searched_loses("ViT"));
    }
}
