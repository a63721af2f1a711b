//! Figures of Fregata's paper (Yang et al.): a client with 6 cores at 3.19 GHz, a server with 14 at 2.4 GHz and a GPU
//! (an NVIDIA 4090) for the online part, LAN of 460 MB/s. None of its figures is of this machine: they stand beside
//! ours, without a ratio.

/// A row of Table IV.
pub struct Counted {
    pub product: [usize; 3],
    pub whose: &'static str,
    /// As many as ciphertexts each way.
    pub products: usize,
}

const fn counted(product: [usize; 3], whose: &'static str, products: usize) -> Counted {
    Counted { product, whose, products }
}

/// Table IV.
pub const COUNTED: [Counted; 9] = [
    counted([64, 32, 32], "Gazelle", 32),
    counted([64, 32, 32], "Cheetah", 32),
    counted([64, 32, 32], "Fregata", 16),
    counted([16, 64, 64], "Gazelle", 64),
    counted([16, 64, 64], "Cheetah", 64),
    counted([16, 64, 64], "Fregata", 16),
    counted([32, 32, 128], "Gazelle", 128),
    counted([32, 32, 128], "Cheetah", 128),
    counted([32, 32, 128], "Fregata", 32),
];

/// A row of Tables V and VI: milliseconds and KB, online and offline.
pub struct Layer {
    pub layer: &'static str,
    pub whose: &'static str,
    pub online_ms: f64,
    pub offline_ms: f64,
    pub online_kb: f64,
    pub offline_kb: f64,
}

const fn row(layer: &'static str, whose: &'static str, ms: [f64; 2], kb: [f64; 2]) -> Layer {
    Layer { layer, whose, online_ms: ms[0], offline_ms: ms[1], online_kb: kb[0], offline_kb: kb[1] }
}

/// Tables V and VI. Their Cheetah and CrypTFlow2 have their products before the input, too.
pub const LAYERS: [Layer; 18] = [
    row("FC1", "Fregata", [0.02, 0.33], [0.1, 11.4]),
    row("FC1", "Cheetah", [0.1, 0.31], [0.1, 11.4]),
    row("FC1", "CrypTFlow2", [0.11, 1.06], [0.1, 51.7]),
    row("FC2", "Fregata", [0.07, 0.58], [0.5, 22.9]),
    row("FC2", "Cheetah", [0.47, 0.67], [0.5, 22.9]),
    row("FC2", "CrypTFlow2", [0.46, 3.93], [0.5, 103.5]),
    row("FC3", "Fregata", [0.92, 6.58], [7.8, 366.1]),
    row("FC3", "Cheetah", [4.64, 6.65], [7.8, 366.1]),
    row("FC3", "CrypTFlow2", [4.58, 58.37], [7.8, 1655.2]),
    row("Conv1", "Fregata", [1.2, 7.3], [20.0, 550.0]),
    row("Conv1", "Cheetah", [8.9, 13.7], [20.0, 730.0]),
    row("Conv1", "CrypTFlow2", [8.8, 96.1], [20.0, 3310.0]),
    row("Conv2", "Fregata", [13.8, 21.7], [130.0, 1460.0]),
    row("Conv2", "Cheetah", [69.5, 105.7], [130.0, 5860.0]),
    row("Conv2", "CrypTFlow2", [70.7, 873.8], [130.0, 26480.0]),
    row("Conv3", "Fregata", [289.4, 694.5], [4020.0, 46860.0]),
    row("Conv3", "Cheetah", [2231.8, 3271.6], [4020.0, 187430.0]),
    row("Conv3", "CrypTFlow2", [2243.1, 27169.4], [4020.0, 847460.0]),
];

/// A row of Tables VII and VIII: seconds and GB, online and offline, of all a network's activation or max-pool layers.
pub struct Nonlinear {
    pub network: &'static str,
    pub whose: &'static str,
    pub online_seconds: f64,
    pub offline_seconds: f64,
    pub online_gb: f64,
    pub offline_gb: f64,
}

const fn all(network: &'static str, whose: &'static str, seconds: [f64; 2], gb: [f64; 2]) -> Nonlinear {
    Nonlinear {
        network,
        whose,
        online_seconds: seconds[0],
        offline_seconds: seconds[1],
        online_gb: gb[0],
        offline_gb: gb[1],
    }
}

/// Table VII.
pub const ACTIVATIONS: [Nonlinear; 9] = [
    all("squeezenet", "Fregata (PMax)", [0.1, 1.3], [0.05, 0.12]),
    all("squeezenet", "Cheetah", [17.9, 0.0], [0.13, 0.0]),
    all("squeezenet", "CrypTFlow2", [18.8, 0.0], [2.22, 0.0]),
    all("resnet50", "Fregata (PMax)", [0.3, 7.2], [0.19, 0.57]),
    all("resnet50", "Cheetah", [71.8, 0.0], [0.59, 0.0]),
    all("resnet50", "CrypTFlow2", [80.4, 0.0], [9.66, 0.0]),
    all("densenet121", "Fregata (PMax)", [0.5, 14.6], [0.28, 1.00]),
    all("densenet121", "Cheetah", [126.2, 0.0], [0.99, 0.0]),
    all("densenet121", "CrypTFlow2", [134.9, 0.0], [16.18, 0.0]),
];

/// Table VIII.
pub const MAX_POOLS: [Nonlinear; 9] = [
    all("squeezenet", "Fregata (PMax)", [0.1, 1.7], [0.05, 0.18]),
    all("squeezenet", "Cheetah", [14.7, 0.0], [0.17, 0.0]),
    all("squeezenet", "CrypTFlow2", [21.8, 0.0], [2.94, 0.0]),
    all("resnet50", "Fregata (PMax)", [0.1, 1.1], [0.02, 0.12]),
    all("resnet50", "Cheetah", [7.4, 0.0], [0.1, 0.0]),
    all("resnet50", "CrypTFlow2", [13.7, 0.0], [1.74, 0.0]),
    all("densenet121", "Fregata (PMax)", [0.1, 1.0], [0.02, 0.11]),
    all("densenet121", "Cheetah", [7.8, 0.0], [0.1, 0.0]),
    all("densenet121", "CrypTFlow2", [13.8, 0.0], [1.74, 0.0]),
];

/// Figures 8 and 10 are plots without numbers; what the text says of them: how many times lower than Cheetah
/// (ImageNet).
pub const STATED: &str = "the paper's text on ImageNet's networks: online 35 to 45 times faster than Cheetah, 1.6 to 2.8 times fewer bytes; \
                          in total 3 times and 1.1 times; on ResNet-18, 50 and 101 for CIFAR-10: online 34 to 64 times faster than CrypTFlow2, \
                          6.8 to 11.9 times fewer bytes than GALA; in total 3.4 to 3.9 times faster than GALA, 2.6 to 4.1 times fewer bytes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_agree_with_what_the_text_says_of_them() {
        // Section VI-B: convolutions offline 1.9 to 4.9 times faster, with 1.3 to 4 times fewer bytes; online, all
        // layers, 4.5 to 7.7 times.
        let pairs = LAYERS.iter().filter(|row| row.whose == "Fregata").map(|ours| {
            let theirs = LAYERS.iter().find(|row| row.layer == ours.layer && row.whose == "Cheetah");
            (ours, theirs.expect("a row of Cheetah's"))
        });
        for (ours, theirs) in pairs {
            let online = theirs.online_ms / ours.online_ms;
            assert!((4.4..8.0).contains(&online), "{}: {online}", ours.layer);
            if ours.layer.starts_with("Conv") {
                let (time, bytes) =
                    (theirs.offline_ms / ours.offline_ms, theirs.offline_kb / ours.offline_kb);
                assert!((1.8..4.9).contains(&time) && (1.3..4.1).contains(&bytes), "{}", ours.layer);
            }
        }
        // Activations online 179 to 266 times faster, max-pools 74 to 147.
        for (rows, least, most) in [(ACTIVATIONS, 178.0, 267.0), (MAX_POOLS, 73.0, 148.0)] {
            for ours in rows.chunks(3) {
                assert!((least..most).contains(&(ours[1].online_seconds / ours[0].online_seconds)));
            }
        }
    }
}
