//! The convolutions of torchvision's ResNet-18, ResNet-50 and MobileNetV2, each shape once.

use jaguar_graph::network::{Linear, Shape};
use serde::Serialize;

use super::SHIFT;
use crate::paper::{ConvolutionKind, OPEN_CHEETAH_CONVOLUTIONS};

/// A square convolution with "same" padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Conv {
    pub kind: ConvolutionKind,
    pub size: usize,
    pub channels_in: usize,
    pub channels_out: usize,
    pub kernel: usize,
    pub stride: usize,
}

impl Conv {
    pub fn new(size: usize, channels_in: usize, channels_out: usize, kernel: usize, stride: usize) -> Self {
        let kind = if kernel == 1 { ConvolutionKind::Pointwise } else { ConvolutionKind::Dense };
        Self { kind, size, channels_in, channels_out, kernel, stride }
    }

    pub fn depthwise(size: usize, channels: usize, stride: usize) -> Self {
        Self { kind: ConvolutionKind::Depthwise, ..Self::new(size, channels, channels, 3, stride) }
    }

    pub fn name(&self) -> String {
        let Self { kind, size, channels_in, channels_out, kernel, stride } = self;
        let kind = format!("{kind:?}").to_lowercase();
        format!("{kind} {size}x{size} {channels_in}>{channels_out} {kernel}x{kernel}/{stride}")
    }

    pub fn spec(&self) -> Linear {
        Linear {
            stride: [self.stride; 2],
            groups: if self.kind == ConvolutionKind::Depthwise { self.channels_in } else { 1 },
            ..Linear::same(self.channels_out, self.kernel, SHIFT)
        }
    }

    pub fn in_shape(&self) -> Shape {
        [self.channels_in, self.size, self.size]
    }
}

/// The first convolution of torchvision's ResNets (this and the blocks: `models/resnet.py`, 0.23).
fn stem() -> Conv {
    Conv::new(224, 3, 64, 7, 2)
}

/// ResNet-18: two basic blocks a stage.
pub fn resnet18() -> Vec<Conv> {
    let mut all = vec![stem()];
    let (mut size, mut channels) = (56, 64);
    for stage in 0..4 {
        let out = 64 << stage;
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            all.push(Conv::new(size, channels, out, 3, stride));
            if stride != 1 || channels != out {
                all.push(Conv::new(size, channels, out, 1, stride));
            }
            size /= stride;
            channels = out;
            all.push(Conv::new(size, out, out, 3, 1));
        }
    }
    all
}

/// ResNet-50: bottlenecks, the stride in the 3x3 convolution.
pub fn resnet50() -> Vec<Conv> {
    let mut all = vec![stem()];
    let (mut size, mut channels) = (56, 64);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            all.push(Conv::new(size, channels, width, 1, 1));
            all.push(Conv::new(size, width, width, 3, stride));
            if block == 0 {
                all.push(Conv::new(size, channels, 4 * width, 1, stride));
            }
            size /= stride;
            channels = 4 * width;
            all.push(Conv::new(size, width, channels, 1, 1));
        }
    }
    all
}

/// MobileNetV2 (`models/mobilenetv2.py`, 0.23): expansion, output channels, repeats and first stride by
/// stage.
pub fn mobilenet_v2() -> Vec<Conv> {
    let mut all = vec![Conv::new(224, 3, 32, 3, 2)];
    let (mut size, mut channels) = (112, 32);
    let stages = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (expansion, out, repeats, first_stride) in stages {
        for block in 0..repeats {
            let stride = if block == 0 { first_stride } else { 1 };
            let hidden = expansion * channels;
            if expansion > 1 {
                all.push(Conv::new(size, channels, hidden, 1, 1));
            }
            all.push(Conv::depthwise(size, hidden, stride));
            size /= stride;
            all.push(Conv::new(size, hidden, out, 1, 1));
            channels = out;
        }
    }
    all.push(Conv::new(size, channels, 1280, 1, 1));
    all
}

/// Each shape once.
pub fn shapes() -> Vec<Conv> {
    let mut all: Vec<Conv> = Vec::new();
    for conv in [resnet18(), resnet50(), mobilenet_v2()].concat() {
        if !all.contains(&conv) {
            all.push(conv);
        }
    }
    all
}

/// Milliseconds of OpenCheetah's server, where it was measured.
pub fn open_cheetah(conv: &Conv) -> Option<f64> {
    let key = (conv.size, conv.channels_in, conv.channels_out, conv.kernel, conv.stride);
    let row = OPEN_CHEETAH_CONVOLUTIONS
        .iter()
        .find(|r| (r.0, r.1, r.2, r.3, r.4) == key && conv.kind != ConvolutionKind::Depthwise);
    row.map(|r| r.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply_adds(convs: &[Conv]) -> usize {
        let one = |c: &Conv| {
            let side = c.size / c.stride;
            let depth = if c.kind == ConvolutionKind::Depthwise { 1 } else { c.channels_in };
            side * side * c.channels_out * depth * c.kernel * c.kernel
        };
        convs.iter().map(one).sum()
    }

    /// The networks' known sizes: convolutions and multiply-adds (torchvision: 1.814, 4.089 and 0.301 G, of
    /// which the fully connected layers make 0.5, 2.0 and 1.3 M).
    #[test]
    fn the_networks_are_whole() {
        let networks = [resnet18(), resnet50(), mobilenet_v2()];
        assert_eq!(networks.each_ref().map(Vec::len), [20, 53, 52]);
        let sizes = networks.each_ref().map(|n| multiply_adds(n));
        assert_eq!(sizes, [1_813_561_344, 4_087_136_256, 299_494_272]);
    }

    #[test]
    fn peers_figures_belong_to_shapes() {
        let all = shapes();
        assert_eq!(all.iter().filter_map(open_cheetah).count(), OPEN_CHEETAH_CONVOLUTIONS.len());
        for (i, conv) in all.iter().enumerate() {
            assert!(!all[..i].iter().any(|other| other.name() == conv.name()));
        }
    }
}
