//! What training with blocks came to, on CIFAR-10: `papers/circulant/results`. Functions panic where a record lacks what they
//! look for: records and names are both this project's.

use serde_json::Value;

use super::{Sizes, Trained};
use crate::conv::shapes::Conv;
use crate::paper::ConvolutionKind;

/// Networks of the paper, with the results of their training.
const RESULTS: [(&str, &str); 3] = [
    ("ResNet-18", include_str!("../../../circulant/results/resnet18-cifar10.json")),
    ("MobileNetV2", include_str!("../../../circulant/results/mobilenetv2-cifar10.json")),
    ("ViT", include_str!("../../../circulant/results/vit-cifar10.longer.json")),
];

impl Trained {
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Searched, Self::Twos];

    /// What the results call it.
    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform 8",
            Self::Searched => "searched as 8",
            Self::Twos => "uniform 2",
        }
    }
}

fn results(network: &str) -> Value {
    let (_, text) = RESULTS.iter().find(|(name, _)| *name == network).expect("a network of the paper");
    serde_json::from_str(text).expect("results of training are JSON")
}

/// Points of accuracy that networks lose, beside the dense network that was tuned as long: the mean over seeds. None where none was
/// trained with blocks of 2.
pub fn lost(network: &str, run: Trained) -> Option<f64> {
    let results = results(network);
    let rows = results["summary"].as_array().expect("a summary");
    let row = rows.iter().find(|row| row["name"] == run.name());
    assert!(row.is_some() || run == Trained::Twos, "{network}, {}: not on record", run.name());
    Some(row?["loss_mean"].as_f64().expect("its loss"))
}

/// The sizes of a trained network's layers, in the order of `convs`, by run and seed. Uniform ones are the same for all seeds,
/// and stand here once.
pub fn all_sizes(network: &str, convs: &[Conv]) -> Vec<(Sizes, Vec<usize>)> {
    let results = results(network);
    let runs = results["runs"].as_array().expect("runs");
    let names = names(network, convs);
    let sizes = |run: Trained, found: &Value| {
        let of = found["sizes"].as_object().expect("sizes by layer");
        let b = |name: &str| of[name].as_u64().expect("a size") as usize;
        // What is not measured here is dense: the patches and the head of a vision transformer.
        let left_out = |name: &String| !names.iter().flatten().any(|other| other == name);
        assert!(
            of.keys().filter(|name| left_out(name)).all(|name| network == "ViT" && b(name) == 1),
            "{network}"
        );
        let sizes = names.iter().map(|name| name.as_deref().map_or(1, b)).collect();
        (Sizes::Trained { run, seed: found["seed"].as_u64().expect("a seed") }, sizes)
    };
    let of = |run: Trained| {
        let seeds = if run == Trained::Searched { runs.len() } else { 1 };
        runs.iter()
            .filter(move |found| found["name"] == run.name())
            .map(move |found| (run, found))
            .take(seeds)
    };
    Trained::ALL.into_iter().flat_map(of).map(|(run, found)| sizes(run, found)).collect()
}

/// What training calls each of `convs`; None for layers in groups, which have no blocks.
fn names(network: &str, convs: &[Conv]) -> Vec<Option<String>> {
    // Of a residual block: its number, and which of its two layers comes next.
    let (mut block, mut part) = (0, 0);
    let parts = if network == "MobileNetV2" { ["expand", "project"] } else { ["first", "second"] };
    let mut name = |i: usize, conv: &Conv| match convs.len() - 1 - i {
        _ if network == "ViT" => {
            Some(format!("layers.{}.{}", i / 4, ["attention.qkv", "attention.out", "up", "down"][i % 4]))
        }
        _ if i == 0 => Some("stem.conv".into()),
        0 => Some("head".into()),
        1 if network == "MobileNetV2" => Some("last.conv".into()),
        _ if conv.kind == ConvolutionKind::Depthwise => {
            // The first block has no expansion.
            part = 1;
            None
        }
        // ResNet's shortcut stands between the two.
        _ if network == "ResNet-18" && conv.kernel == 1 => Some(format!("blocks.{block}.shortcut.conv")),
        _ => {
            let name = format!("blocks.{block}.{}.conv", parts[part]);
            block += part;
            part = 1 - part;
            Some(name)
        }
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
            let all = all_sizes(network, &convs);
            let searched = if network == "ViT" { 2 } else { 3 };
            let twos = usize::from(network == "ViT");
            assert_eq!(all.len(), 1 + searched + twos, "{network}");
            // All seeds of uniform blocks have the sizes of the one that stands for them.
            for run in [Trained::Uniform, Trained::Twos] {
                let runs = results["runs"].as_array().unwrap().iter();
                let uniform: Vec<&Value> = runs.filter(|found| found["name"] == run.name()).collect();
                assert!(uniform.iter().all(|run| run["sizes"] == uniform[0]["sizes"]), "{network}");
            }
            for (sizes, b) in all {
                let Sizes::Trained { run, seed } = sizes else { panic!("{network}: trained") };
                let runs = results["runs"].as_array().unwrap();
                let of = |name: &str| {
                    let run = runs.iter().find(|run| run["name"] == name && run["seed"] == seed).unwrap();
                    run["parameters"].as_i64().unwrap()
                };
                // Fewer than the dense network by the weights that blocks give up, and by scales of norms in groups: of
                // outputs, or of the inputs that a vision transformer's norms make.
                let given_up = |(i, (conv, &b)): (usize, (&Conv, &usize))| {
                    let (inputs, outputs) = (conv.channels_in, conv.channels_out);
                    assert!(inputs % b == 0 && outputs % b == 0, "{network}: {}", conv.name());
                    let weights = inputs * outputs * conv.kernel * conv.kernel;
                    let scaled = match network {
                        "ViT" if i % 2 == 0 => inputs,
                        "ViT" => 0,
                        _ => outputs,
                    };
                    (weights - weights / b + scaled - scaled / b) as i64
                };
                let fewer: i64 = convs.iter().zip(&b).enumerate().map(given_up).sum();
                assert_eq!(of("dense, fine-tuned") - of(run.name()), fewer, "{network}, {sizes:?}");
            }
        }
    }

    #[test]
    fn losses_are_those_on_record() {
        let lost = |network, run| lost(network, run).unwrap_or(f64::NAN);
        assert!((lost("ResNet-18", Trained::Uniform) - 1.48).abs() < 0.005);
        assert!((lost("MobileNetV2", Trained::Searched) + 0.01).abs() < 0.01);
        assert!((lost("ViT", Trained::Uniform) - 2.255).abs() < 0.005);
        assert!((lost("ViT", Trained::Searched) - 1.775).abs() < 0.005);
        assert!((lost("ViT", Trained::Twos) - 0.56).abs() < 0.005);
        assert!(lost("ResNet-18", Trained::Twos).is_nan(), "not trained");
    }
}
