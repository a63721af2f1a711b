//! Figures of Hyena's paper (Roh and Choi): SEAL on a Xeon Gold at 1.6 GHz, 256 GB. None is of this machine: they stand
//! beside ours, without a ratio.

/// Table 1: microseconds for N = 2048 and q of 60 bits, and the operation here that does the same.
pub const OPERATIONS: [(&str, f64, &str); 4] = [
    ("HAdd", 4.0, "add"),
    ("CMult", 19.0, "scalar product, reduced"),
    ("CMult without reduction, and HAdd of 128 bits", 10.0, "scalar product, lazy"),
    ("Reduction alone", 16.5, "-"),
];

/// A row of Table 2, of a kernel of 3x3: MB of keys, model and input.
pub struct Memory {
    /// Width as printed: the next power of two.
    pub size: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub conventional: [f64; 3],
    pub proposed: [f64; 3],
}

const fn memory(layer: [usize; 3], conventional: [f64; 3], proposed: [f64; 3]) -> Memory {
    Memory { size: layer[0], inputs: layer[1], outputs: layer[2], conventional, proposed }
}

impl Memory {
    /// The width of the network's own map: 28 places of 32, and so on.
    pub fn width(&self) -> usize {
        self.size / 8 * 7
    }

    /// How many times smaller the model is, as printed behind it.
    pub fn printed(&self) -> f64 {
        match self.size {
            32 => 2048.0,
            64 => 8192.0,
            _ => 4096.0,
        }
    }
}

/// Bytes of a number in the paper's models: Table 2 follows from it.
pub const NUMBER_BYTES: usize = 8;

/// Table 2.
pub const MEMORY: [Memory; 11] = [
    memory([32, 64, 128], [1.5, 1153.0, 2.0], [2.5, 0.56, 1.0]),
    memory([32, 128, 128], [1.5, 2306.0, 4.0], [2.5, 1.13, 2.0]),
    memory([32, 256, 512], [2.0, 18446.0, 8.0], [2.5, 9.0, 4.0]),
    memory([32, 512, 512], [2.0, 36891.0, 16.0], [2.5, 18.0, 8.0]),
    memory([64, 64, 64], [1.5, 2305.0, 8.0], [2.0, 0.28, 4.0]),
    memory([64, 128, 256], [4.0, 18439.0, 16.0], [2.0, 2.25, 8.0]),
    memory([64, 256, 256], [4.0, 36878.0, 32.0], [2.0, 4.5, 16.0]),
    memory([128, 64, 128], [2.0, 2306.0, 32.0], [1.0, 0.56, 16.0]),
    memory([128, 128, 128], [2.0, 4611.0, 64.0], [1.0, 1.13, 32.0]),
    memory([256, 3, 64], [2.0, 54.04, 6.0], [1.0, 0.01, 3.0]),
    memory([256, 64, 64], [2.0, 1153.0, 128.0], [1.0, 0.28, 64.0]),
];

/// What the text says of Figure 4: how many times faster than the conventional form, at least and at most. The figure's
/// own bars carry no numbers.
pub const ABLATION: [(&str, f64, f64); 4] = [
    ("b", 0.47, 0.96),
    ("c, two channels a ciphertext", 0.83, 0.96),
    ("d, two channels a ciphertext", 1.12, 1.3),
    ("e", 1.63, 3.84),
];

/// A row of Table 3: seconds and MB of the paper, and of CrypTFlow2.
pub struct Layer {
    pub size: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub kernel: usize,
    pub depthwise: bool,
    pub seconds: f64,
    pub mb: f64,
    pub cryptflow2_seconds: f64,
    pub cryptflow2_mb: f64,
}

const fn layer(shape: [usize; 4], depthwise: bool, ours: [f64; 2], theirs: [f64; 2]) -> Layer {
    let [size, inputs, outputs, kernel] = shape;
    let ([seconds, mb], [cryptflow2_seconds, cryptflow2_mb]) = (ours, theirs);
    Layer { size, inputs, outputs, kernel, depthwise, seconds, mb, cryptflow2_seconds, cryptflow2_mb }
}

impl Layer {
    /// `56x56, 64>256, 1x1`.
    pub fn name(&self) -> String {
        let Self { size, inputs, outputs, kernel, depthwise, .. } = self;
        let groups = if *depthwise { ", depthwise" } else { "" };
        format!("{size}x{size}, {inputs}>{outputs}, {kernel}x{kernel}{groups}")
    }
}

/// Table 3.
pub const LAYERS: [Layer; 4] = [
    layer([224, 3, 64, 3], false, [7.11, 67.0], [7.06, 76.02]),
    layer([56, 64, 256, 1], false, [2.10, 20.0], [8.21, 28.01]),
    layer([56, 256, 64, 1], false, [1.81, 20.0], [7.41, 52.02]),
    layer([28, 192, 192, 3], true, [0.12, 3.0], [12.01, 12.07]),
];

/// A network of Figure 5: seconds of all linear layers, and GB of the model, which are conventional and proposed.
pub struct Network {
    /// What a compiled model's name begins with.
    pub name: &'static str,
    pub title: &'static str,
    pub conventional_seconds: f64,
    pub seconds: f64,
    pub conventional_gb: f64,
    pub gb: f64,
}

/// Figure 5, as the text tells it.
pub const NETWORKS: [Network; 3] = [
    Network {
        name: "vgg16",
        title: "VGG-16",
        conventional_seconds: 1971.0,
        seconds: 771.0,
        conventional_gb: 215.0,
        gb: 27.0,
    },
    Network {
        name: "resnet20_imagenet",
        title: "ResNet-20",
        conventional_seconds: 147.0,
        seconds: 114.0,
        conventional_gb: 31.0,
        gb: 16.0,
    },
    Network {
        name: "mobilenet_v1",
        title: "MobileNetV1",
        conventional_seconds: 1022.0,
        seconds: 455.0,
        conventional_gb: 36.0,
        gb: 6.0,
    },
];

/// How many times faster than the paper's own seconds our best form should be.
pub const GOAL: f64 = 20.0;

/// The least that the proposed form is faster than the conventional one, by the paper.
pub const LEAST_RATIO: f64 = 1.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_agree_with_what_the_text_says_of_them() {
        // Input ciphertexts are halved; the model is 2,048 to 8,192 times smaller, within what two digits tell.
        for row in &MEMORY {
            assert_eq!(row.conventional[2], 2.0 * row.proposed[2]);
            let ratio = row.conventional[1] / row.proposed[1] / row.printed();
            assert!((0.99..1.35).contains(&ratio), "{} {}: {ratio}", row.size, row.inputs);
            let mib = (row.inputs * row.outputs * 9 * NUMBER_BYTES) as f64 / 1_048_576.0;
            assert!((row.proposed[1] - mib).abs() < 0.01, "{mib}");
        }
        // 1.30 to 2.55 times less seconds.
        let ratios = NETWORKS.map(|network| network.conventional_seconds / network.seconds);
        assert!(ratios.iter().all(|ratio| (1.28..2.57).contains(ratio)), "{ratios:?}");
        // Of Table 3: 0.99 to 100 times faster, up to 4.2 times fewer bytes.
        for row in &LAYERS {
            assert!((0.98..101.0).contains(&(row.cryptflow2_seconds / row.seconds)));
            assert!((1.1..4.3).contains(&(row.cryptflow2_mb / row.mb)));
        }
        assert!(ABLATION[3].1 >= LEAST_RATIO);
    }
}
