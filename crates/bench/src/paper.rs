//! Published figures that ours stand beside.
//!
//! *The paper* is Jaguar's: two Intel Xeon Gold 6250 at 3.9 GHz; convolutions on one thread without AVX, everything else on four threads;
//! LAN 384 MB/s and 0.3 ms, WAN 62.5 MB/s and 20 ms. Its Cheetah and Rhombus are OpenCheetah and RhombusEnd2End. *OpenCheetah* as measured
//! by us is its commit f71d4d4 on two Zen 3 cores, one thread a party, over loopback. None of them ran on this machine: no ratio to them
//! is one between programs alone.

use serde::Serialize;

use super::statistics::Ratio;

/// The kinds of convolutions that Tables 3 and 9 are grouped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConvolutionKind {
    Dense,
    Pointwise,
    Depthwise,
}

/// One group of Tables 3 and 9.
pub struct ConvGroup {
    pub kind: ConvolutionKind,
    /// Whether a channel is larger than a ciphertext.
    pub split: bool,
    /// Table 9: milliseconds of Cheetah and of Jaguar, by case. The copy at hand has lost which shape each is.
    pub cases: &'static [(f64, f64)],
    /// Table 3: geometric mean of the speedups, least, most.
    pub stated: Ratio,
}

/// Tables 3 and 9.
pub const CONVOLUTIONS: [ConvGroup; 6] = [
    ConvGroup {
        kind: ConvolutionKind::Dense,
        split: false,
        cases: &[
            (2631.60, 272.95),
            (45.21, 4.82),
            (1975.56, 266.77),
            (30956.48, 4303.07),
            (180.03, 69.03),
            (2699.46, 1099.17),
            (2007.58, 1132.27),
            (240.01, 273.78),
            (2717.50, 4376.67),
            (1241.24, 4347.74),
        ],
        stated: Ratio { mean: 2.47, least: 0.29, most: 9.64 },
    },
    ConvGroup {
        kind: ConvolutionKind::Dense,
        split: true,
        cases: &[(7715.16, 204.37), (1958.06, 134.66), (30964.59, 2165.62), (30962.18, 2417.93)],
        stated: Ratio { mean: 17.81, least: 12.81, most: 37.75 },
    },
    ConvGroup {
        kind: ConvolutionKind::Pointwise,
        split: false,
        cases: &[
            (6030.81, 129.04),
            (5896.45, 126.95),
            (614.23, 14.55),
            (6060.75, 501.12),
            (6088.65, 522.41),
            (1344.09, 121.90),
            (6899.98, 2025.97),
            (6083.87, 1983.25),
            (2494.59, 821.44),
        ],
        stated: Ratio { mean: 11.82, least: 3.04, most: 46.73 },
    },
    ConvGroup {
        kind: ConvolutionKind::Pointwise,
        split: true,
        cases: &[(937.30, 72.18), (939.37, 91.27), (206.50, 20.41), (102.24, 10.31)],
        stated: Ratio { mean: 10.76, least: 9.91, most: 12.99 },
    },
    ConvGroup {
        kind: ConvolutionKind::Depthwise,
        split: false,
        cases: &[
            (50.29, 3.86),
            (17.90, 1.42),
            (98.95, 8.09),
            (164.85, 13.54),
            (87.60, 8.23),
            (294.73, 30.57),
        ],
        stated: Ratio { mean: 11.65, least: 9.64, most: 13.04 },
    },
    ConvGroup {
        kind: ConvolutionKind::Depthwise,
        split: true,
        cases: &[(14.47, 2.18), (78.72, 13.89), (70.89, 16.52)],
        stated: Ratio { mean: 5.45, least: 4.29, most: 6.65 },
    },
];

/// A row of Table 4: ResNet-50's nonlinear layers.
#[derive(Clone, Copy, Serialize)]
pub struct Nonlinear {
    pub whose: &'static str,
    pub lan_seconds: f64,
    pub wan_seconds: f64,
    pub mib: f64,
}

/// Table 4.
pub const RELU_CHEETAH: Nonlinear =
    Nonlinear { whose: "Cheetah", lan_seconds: 17.70, wan_seconds: 24.20, mib: 271.69 };
pub const RELU_JAGUAR: Nonlinear =
    Nonlinear { whose: "Jaguar", lan_seconds: 7.89, wan_seconds: 15.02, mib: 148.61 };
pub const TRUNCATION_CHEETAH: Nonlinear =
    Nonlinear { whose: "Cheetah", lan_seconds: 1.08, wan_seconds: 3.21, mib: 22.91 };
pub const TRUNCATION_JAGUAR: Nonlinear =
    Nonlinear { whose: "Jaguar", lan_seconds: 0.19, wan_seconds: 0.20, mib: 0.0 };

/// A row of Tables 5 and 11: whole networks.
pub struct Network {
    pub network: &'static str,
    pub whose: &'static str,
    pub avx: bool,
    pub lan_seconds: f64,
    pub wan_seconds: f64,
    pub mib: f64,
}

const fn network(
    network: &'static str,
    whose: &'static str,
    avx: bool,
    lan_seconds: f64,
    wan_seconds: f64,
    mib: f64,
) -> Network {
    Network { network, whose, avx, lan_seconds, wan_seconds, mib }
}

/// Table 5 (without AVX) and Table 11 (with AVX-512). Table 10 is Jaguar's rows of both.
pub const NETWORKS: [Network; 18] = [
    network("resnet18", "Cheetah", false, 30.30, 36.94, 366.94),
    network("resnet18", "Rhombus", false, 29.04, 36.24, 344.01),
    network("resnet18", "Jaguar", false, 8.64, 15.94, 315.02),
    network("resnet18", "Cheetah", true, 22.22, 29.27, 366.94),
    network("resnet18", "Rhombus", true, 21.96, 29.24, 344.01),
    network("resnet18", "Jaguar", true, 7.90, 15.10, 315.02),
    network("resnet50", "Cheetah", false, 120.82, 142.72, 1335.63),
    network("resnet50", "Rhombus", false, 96.77, 111.44, 750.22),
    network("resnet50", "Jaguar", false, 32.44, 51.50, 962.00),
    network("resnet50", "Cheetah", true, 77.89, 103.72, 1335.64),
    network("resnet50", "Rhombus", true, 66.27, 80.83, 750.22),
    network("resnet50", "Jaguar", true, 25.55, 44.91, 962.00),
    network("mobilenetv2", "Cheetah", false, 46.99, 67.25, 1042.62),
    network("mobilenetv2", "Rhombus", false, 58.98, 77.19, 836.81),
    network("mobilenetv2", "Jaguar", false, 18.41, 32.42, 592.50),
    network("mobilenetv2", "Cheetah", true, 41.02, 61.20, 1042.63),
    network("mobilenetv2", "Rhombus", true, 46.75, 68.29, 836.81),
    network("mobilenetv2", "Jaguar", true, 16.83, 31.81, 592.50),
];

/// OpenCheetah on a single convolution: size, channels, kernel, stride; milliseconds of the server's convolution.
pub const OPEN_CHEETAH_CONVOLUTIONS: [(usize, usize, usize, usize, usize, f64); 12] = [
    (56, 64, 256, 1, 1, 1116.0),
    (56, 256, 64, 1, 1, 1025.0),
    (28, 128, 512, 1, 1, 6786.0),
    (14, 1024, 256, 1, 1, 6635.0),
    (14, 256, 1024, 1, 1, 7098.0),
    (7, 512, 2048, 1, 1, 8050.0),
    (7, 2048, 512, 1, 1, 6566.0),
    (56, 64, 64, 3, 1, 2073.0),
    (28, 128, 128, 3, 1, 2022.0),
    (14, 256, 256, 3, 1, 2049.0),
    (7, 512, 512, 3, 1, 3074.0),
    (224, 3, 64, 7, 2, 2244.0),
];

/// OpenCheetah on a nonlinear layer: seconds a million elements, bytes and COTs an element.
#[derive(Clone, Copy, Serialize)]
pub struct OpenCheetah {
    pub seconds_per_million: f64,
    pub bytes: f64,
    pub cots: f64,
}

const fn open_cheetah(seconds_per_million: f64, bytes: f64, cots: f64) -> OpenCheetah {
    OpenCheetah { seconds_per_million, bytes, cots }
}

pub const RELU_20: OpenCheetah = open_cheetah(3.2, 31.3, 22.0);
pub const RELU_20_LOW_12: OpenCheetah = open_cheetah(0.6, 8.8, 6.0);
pub const RELU_37: OpenCheetah = open_cheetah(9.94, 59.9, 38.0);
pub const RELU_37_LOW_12: OpenCheetah = open_cheetah(6.88, 43.2, 26.0);
pub const RELU_37_THEN_TRUNCATION: OpenCheetah = open_cheetah(5.08, 34.2, 20.0);

/// Public programs on a whole network, one thread a party, loopback, two Zen 3 cores (RhombusEnd2End is 2d1e798): network, program,
/// seconds, MiB, rounds.
pub const PROGRAMS: [(&str, &str, f64, f64, u64); 3] = [
    ("squeezenet", "OpenCheetah", 63.1, 426.0, 822),
    ("resnet50", "OpenCheetah", 392.0, 1815.0, 1062),
    ("resnet50", "RhombusEnd2End", 225.0, 1153.0, 1034),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 3 follows from Table 9.
    #[test]
    fn the_groups_are_what_their_cases_say() {
        for group in &CONVOLUTIONS {
            let ratio = Ratio::new(group.cases.iter().map(|(cheetah, jaguar)| cheetah / jaguar)).unwrap();
            let stated = group.stated;
            for (ours, stated) in
                [(ratio.mean, stated.mean), (ratio.least, stated.least), (ratio.most, stated.most)]
            {
                assert!((ours / stated - 1.0).abs() < 0.02, "{:?}: {ours} and {stated}", group.kind);
            }
        }
    }

    #[test]
    fn the_tables_on_networks_are_whole() {
        for network in ["resnet18", "resnet50", "mobilenetv2"] {
            for avx in [false, true] {
                let rows: Vec<_> = NETWORKS.iter().filter(|r| r.network == network && r.avx == avx).collect();
                assert_eq!(
                    rows.iter().map(|r| r.whose).collect::<Vec<_>>(),
                    ["Cheetah", "Rhombus", "Jaguar"]
                );
                // Speedups as the tables state them: Jaguar is the fastest of the three everywhere.
                assert!(
                    rows[..2]
                        .iter()
                        .all(|r| r.lan_seconds > rows[2].lan_seconds && r.wan_seconds > rows[2].wan_seconds)
                );
            }
        }
    }
}
