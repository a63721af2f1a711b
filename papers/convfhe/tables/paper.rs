//! What the paper prints: seconds of one thread of an EPYC 7402P at 2.8 GHz, Lattigo 2.4.

/// A column of Table III, ours of the paper: convolutions, ReLU, bootstrapping, fully connected, total.
pub struct Column {
    /// As [`super::shapes`] names it.
    pub network: &'static str,
    pub seconds: [f64; 5],
    /// Of the baseline in slots, favourably estimated there.
    pub baseline: Option<f64>,
}

/// "In our method, even if the kernel width changes, the running time remains the same": so one column for all kernels.
pub const TABLE_III: [Column; 5] = [
    Column { network: "k3-d20-w1", seconds: [10.0, 51.0, 303.0, 4.0, 368.0], baseline: Some(454.0) },
    Column { network: "k5-d20-w1", seconds: [10.0, 51.0, 303.0, 4.0, 368.0], baseline: Some(522.0) },
    Column { network: "k7-d20-w1", seconds: [10.0, 51.0, 303.0, 4.0, 368.0], baseline: Some(623.0) },
    Column { network: "ImageNet tail, k3", seconds: [53.0, 35.0, 186.0, 17.0, 292.0], baseline: Some(563.0) },
    Column { network: "ImageNet tail, k5", seconds: [53.0, 35.0, 186.0, 17.0, 292.0], baseline: None },
];

/// Table IV: whole networks, seconds.
pub const TABLE_IV: [(&str, f64); 4] =
    [("k5-d8-w3", 255.0), ("k3-d14-w3", 398.0), ("k3-d20-w3", 544.0), ("k3-d20-w1", 368.0)];
