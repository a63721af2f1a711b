//! What is measured: single operations, and the nonlinear layers of ResNet-50 in both precision flows.

use std::sync::Arc;

use jaguar_mpc::{
    self as mpc, Cost, Elementwise, Modulus, PoolParams, PoolShape, Pooling, Range, Relu6Params, ReluParams,
    TruncateParams,
};
use jaguar_plan::ComparisonsId;
use serde::Serialize;

use crate::kit::kit;
use crate::paper::{self, Nonlinear, OpenCheetah};

/// One protocol of a layer.
#[derive(Clone, Copy)]
pub enum Step {
    Relu(ReluParams),
    Relu6(Relu6Params),
    Truncate(TruncateParams),
    MaxPool { shape: PoolShape, params: PoolParams },
}

impl Step {
    /// It as a layer over `count` elements.
    fn layer(&self, count: usize) -> Arc<dyn mpc::Nonlinear> {
        match *self {
            Self::Relu(params) => Arc::new(Elementwise { count, params }),
            Self::Relu6(params) => Arc::new(Elementwise { count, params }),
            Self::Truncate(params) => Arc::new(Elementwise { count, params }),
            Self::MaxPool { shape, params } => Arc::new(Pooling { shape, params }),
        }
    }

    /// Widths of the shares before and after.
    pub fn bits(&self) -> (u32, u32) {
        match *self {
            Self::Relu(p) => (p.bits, p.output.bits()),
            Self::Relu6(p) => (p.bits, p.output.bits()),
            Self::Truncate(p) => (p.bits, p.out_bits),
            Self::MaxPool { params, .. } => (params.bits, params.bits),
        }
    }
}

/// A line of Table 2: truncation (a) and ReLU (b).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Counted {
    pub flow: &'static str,
    pub operation: &'static str,
    /// In units of the last place.
    pub error: &'static str,
}

/// Layers that run one after the other, each with the same steps.
pub struct Case {
    pub name: String,
    /// Elements that go into each layer.
    pub layers: Vec<usize>,
    pub steps: Vec<Step>,
    /// By other comparisons than the steps' own, in shares of so many bits more than values have.
    pub compared_by: Option<(ComparisonsId, u32)>,
    /// What Table 2 of the paper counts bits of.
    pub counted: Option<Counted>,
    pub open_cheetah: Option<OpenCheetah>,
    pub paper: Option<Nonlinear>,
}

impl Case {
    pub fn new(name: impl Into<String>, count: usize, steps: &[Step]) -> Self {
        Self {
            name: name.into(),
            layers: vec![count],
            steps: steps.to_vec(),
            compared_by: None,
            counted: None,
            open_cheetah: None,
            paper: None,
        }
    }

    fn beside(self, figures: OpenCheetah) -> Self {
        Self { open_cheetah: Some(figures), ..self }
    }

    fn counted(self, flow: &'static str, operation: &'static str, error: &'static str) -> Self {
        Self { counted: Some(Counted { flow, operation, error }), ..self }
    }

    pub fn elements(&self) -> usize {
        self.layers.iter().sum()
    }

    /// A step as a layer over `count` elements.
    pub fn layer(&self, step: &Step, count: usize) -> Arc<dyn mpc::Nonlinear> {
        let own = step.layer(count);
        let other = self.compared_by.and_then(|(by, more)| by.0.instead(&*own, more));
        other.unwrap_or(own)
    }

    pub fn cost(&self) -> Cost {
        let of = |&count: &usize| self.steps.iter().map(move |step| self.layer(step, count).cost());
        self.layers.iter().flat_map(of).fold(Cost::default(), |sum, cost| sum + cost)
    }

    /// What the client may promise to draw: nothing, where some step sends in between.
    pub fn promise(&self) -> u64 {
        let of = |&count: &usize| self.steps.iter().map(move |step| self.layer(step, count));
        let all =
            self.layers.iter().flat_map(of).all(|layer| layer.promise() == layer.cost().bits_from_client);
        if all { self.cost().bits_from_client } else { 0 }
    }
}

/// Cheetah's shares, and the fraction bits that it cuts off (its networks' setting).
const FULL: u32 = 37;
const SHIFT: u32 = 12;

pub fn relu(bits: u32, out_bits: u32, digit: u32, ignored: u32) -> Step {
    Step::Relu(ReluParams { bits, output: Modulus::power_of_two(out_bits), digit, ignored })
}

fn cut(bits: u32, out_bits: u32, range: Range) -> Step {
    Step::Truncate(TruncateParams { bits, out_bits, shift: SHIFT, range })
}

/// Bits of a session's values, and how many more their shares have by other comparisons.
const SESSION: u32 = 16;
const MORE: u32 = 7;

/// The session's layers by other comparisons, which may leak.
fn compared_by(by: ComparisonsId, n: usize) -> [Case; 3] {
    let bits = SESSION + MORE;
    let six = Relu6Params { output: Modulus::power_of_two(bits + 14), ..Relu6Params::new(bits, 12) };
    let (count, step) = pool(bits, n);
    [
        (format!("ReLU {bits} > {}", bits + 14), n, relu(bits, bits + 14, 4, 1)),
        (format!("ReLU6 {bits} > {}", bits + 14), n, Step::Relu6(six)),
        (format!("max-pool 3x3/2, {bits} bits (an input)"), count, step),
    ]
    .map(|(what, count, step)| {
        let case = Case::new(format!("{what}, {}, {MORE} bits more", by.0.name()), count, &[step]);
        Case { compared_by: Some((by, MORE)), ..case }
    })
}

/// 3 × 3 windows with stride 2, as after the first layer of a ResNet.
fn pool(bits: u32, elements: usize) -> (usize, Step) {
    let side = if elements < 112 * 112 { 28 } else { 112 };
    let channels = (elements / (side * side)).max(1);
    let shape =
        PoolShape { channels, size: [side, side], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 1, 1] };
    (channels * side * side, Step::MaxPool { shape, params: PoolParams::new(bits) })
}

/// What a session runs, by name.
pub const SESSION_RELU: &str = "ReLU 16 > 30, digits of 4, lowest bit ignored, exact";
/// The same without the extension.
pub const PLAIN_RELU: &str = "ReLU 16 > 16, digits of 4, lowest bit ignored, exact";
/// OpenCheetah's exact ReLU of its fewest bits.
pub const PEER_RELU: &str = "ReLU 20 > 20, exact";
pub const SESSION_RELU6: &str = "ReLU6 16 > 30, lowest bit ignored, exact";

/// Single operations.
pub fn operations(n: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for (out, digit, ignored) in [
        (16, 4, 0),
        (16, 3, 0),
        (16, 4, 1),
        (30, 4, 0),
        (30, 3, 0),
        (30, 4, 1),
        (30, 3, 1),
        (30, 4, 12),
        (30, 3, 12),
    ] {
        let low = match ignored {
            0 => "exact".to_owned(),
            1 => "lowest bit ignored, exact".to_owned(),
            _ => format!("low {ignored} ignored"),
        };
        let name = format!("ReLU 16 > {out}, digits of {digit}, {low}");
        let case = Case::new(name, n, &[relu(16, out, digit, ignored)]);
        all.push(match (out, digit, ignored) {
            (30, 4, 1) => case.counted("ours", "ReLU", "exact"),
            _ => case,
        });
    }
    all.push(Case::new(PEER_RELU, n, &[relu(20, 20, 4, 0)]).beside(paper::RELU_20));
    all.push(
        Case::new("ReLU 20 > 20, low 12 ignored", n, &[relu(20, 20, 4, 12)]).beside(paper::RELU_20_LOW_12),
    );
    let six = Relu6Params { output: Modulus::power_of_two(30), ignored: 1, ..Relu6Params::new(16, 12) };
    all.push(Case::new(SESSION_RELU6, n, &[Step::Relu6(six)]));
    let (count, step) = pool(16, n);
    all.push(Case::new("max-pool 3x3/2, 16 bits (an input)", count, &[step]));
    all.extend(kit().comparisons().iter().flat_map(|&by| compared_by(by, n)));
    let shrink = cut(16 + SHIFT, 16, Range::Signed);
    let local = Case::new("truncation 28 > 16, in the linear layer", n, &[shrink]);
    all.push(local.counted("ours", "truncation", "at most 1, never large"));

    let positive = cut(FULL, FULL, Range::NonNegative);
    let exact = relu(FULL, FULL, 4, 0);
    let rough = relu(FULL, FULL, 4, 12);
    all.push(Case::new("ReLU 37 > 37, exact", n, &[exact]).beside(paper::RELU_37));
    all.push(Case::new("ReLU 37 > 37, exact, digits of 3", n, &[relu(FULL, FULL, 3, 0)]));
    let roughly = Case::new("ReLU 37 > 37, low 12 ignored", n, &[rough]).beside(paper::RELU_37_LOW_12);
    all.push(roughly.counted("Cheetah's", "ReLU", "wrong sign where |x| < 2^12"));
    let after = Case::new("truncation 37 > 37 by 12, after a ReLU", n, &[positive]);
    all.push(after.counted("Cheetah's", "truncation, sign known", "at most 1, never large"));
    let any =
        Case::new("truncation 37 > 37 by 12, any value", n, &[cut(FULL, FULL, Range::Full { digit: 4 })]);
    all.push(any.counted("Cheetah's", "truncation, faithful", "at most 1, never large"));
    all.push(Case::new("ReLU 37, then truncation, exact sign", n, &[exact, positive]));
    let flow = Case::new("ReLU 37, then truncation, low 12 ignored", n, &[rough, positive]);
    all.push(flow.beside(paper::RELU_37_THEN_TRUNCATION));
    let fewer = relu(FULL, FULL, 3, 12);
    all.push(
        Case::new("ReLU 37, then truncation, low 12 ignored, digits of 3", n, &[fewer, positive])
            .beside(paper::RELU_37_THEN_TRUNCATION),
    );
    let joined = [relu(FULL, FULL + SHIFT, 4, 12), cut(FULL + SHIFT, FULL, Range::NonNegative)];
    all.push(Case::new("the same in the ReLU's flights (37 > 49), digits of 4", n, &joined));
    let (count, step) = pool(FULL, n);
    all.push(Case::new("max-pool 3x3/2, 37 bits (an input)", count, &[step]));
    all
}

/// The ReLUs of torchvision's ResNet-50 on 224 × 224: 49 layers, 9,608,704 elements.
fn resnet50() -> Vec<usize> {
    let mut layers = vec![64 * 112 * 112];
    let mut side = 56;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            // The 3 × 3 convolution of a stage's first block has the stride, so what precedes it is larger.
            let before = if stage > 0 && block == 0 { 2 * side } else { side };
            layers.extend([width * before * before, width * side * side, 4 * width * side * side]);
        }
        side /= 2;
    }
    layers
}

/// ResNet-50's ReLU and truncation layers.
pub fn network() -> Vec<Case> {
    let of = |name: &str, step: Step, figures: Nonlinear| Case {
        layers: resnet50(),
        paper: Some(figures),
        ..Case::new(name, 0, &[step])
    };
    // Digits of three: as many flights here as digits of four, for fewer bytes.
    let (full, truncation) = (relu(FULL, FULL, 3, 12), cut(FULL, FULL, Range::NonNegative));
    vec![
        of("ours: ReLU 16 > 30, exact", relu(16, 30, 4, 1), paper::RELU_JAGUAR),
        of("ours: ReLU 16 > 16, exact, digits of 3", relu(16, 16, 3, 1), paper::RELU_JAGUAR),
        of(
            "ours: truncation 28 > 16, in the linear layer",
            cut(16 + SHIFT, 16, Range::Signed),
            paper::TRUNCATION_JAGUAR,
        ),
        of("Cheetah's flow: ReLU 37, low 12 ignored", full, paper::RELU_CHEETAH),
        of("Cheetah's flow: truncation 37 by 12", truncation, paper::TRUNCATION_CHEETAH),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resnet50_has_as_many_relus_as_it_should() {
        let layers = resnet50();
        assert_eq!((layers.len(), layers.iter().sum::<usize>()), (49, 9_608_704));
    }
}
