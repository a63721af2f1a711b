//! What a linear layer is: its public geometry, its secret weights.

use serde::{Deserialize, Serialize};

use crate::ir::blocks::{BLOCK_SIZES, Blocks};
use crate::ir::shape::{Shape, places};

/// A convolution (a fully connected layer has the kernel `[H, W]` of its whole input).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Linear {
    /// How many output channels, C_out; divisible by `groups`.
    pub out_channels: usize,
    /// Height and width in places, `[k_h, k_w]`.
    pub kernel: [usize; 2],
    /// Steps from one window to the next, `[s_h, s_w]`: down, right.
    pub stride: [usize; 2],
    /// Distance of neighbouring taps, `[d_h, d_w]`; 1 for none in between.
    pub dilation: [usize; 2],
    /// Rows and columns of zeros: `[top, left, bottom, right]`.
    pub pads: [usize; 4],
    /// C_in and C_out are divided into this many parts that see each other only; C_in for depthwise.
    pub groups: usize,
    /// f: how many bits the products gain, and the result is shifted down by.
    pub shift: u32,
    /// The largest of the layer's [`Weights::exponents`] may be this. Public: it bounds the noise.
    pub max_exponent: u32,
    /// How its weights repeat. `None`: it is dense.
    pub blocks: Option<Blocks>,
}

/// The secret of one linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// `[C_out, C_in/groups, k_h, k_w]`, row-major.
    pub weights: Vec<i16>,
    /// `[C_out]`: all weights of output channel d count 2^exponents\[d\] times. Empty: all exponents are 0.
    ///
    /// Channels of one layer may differ much in size. With an exponent each, large ones are rounded more coarsely, and
    /// small ones keep all their bits.
    pub exponents: Vec<u8>,
    /// Added to `Σ w·x` before the shift.
    pub bias: Bias,
}

impl Weights {
    /// The exponent of output channel `channel`.
    pub fn exponent(&self, channel: usize) -> u32 {
        self.exponents.get(channel).map_or(0, |&e| u32::from(e))
    }
}

/// What a linear layer adds, at the scale of its products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Bias {
    /// One value per output channel, `[C_out]`.
    PerChannel(Vec<i64>),
    /// One value per output, `[C_out, H_out, W_out]`: a shift that was folded forward through zero padding.
    PerElement(Vec<i64>),
}

impl Linear {
    /// A convolution of `kernel` x `kernel` that keeps an input's size (for odd kernels): stride 1, as many zeros
    /// around it, one group.
    pub fn same(out_channels: usize, kernel: usize, shift: u32) -> Self {
        Self {
            out_channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pads: [kernel / 2; 4],
            groups: 1,
            shift,
            max_exponent: 0,
            blocks: None,
        }
    }

    /// `[H_out, W_out]` over an input of shape `[C, H, W]`; `None` if the kernel does not fit or the parameters
    /// are out of range.
    pub fn output_hw(&self, input: Shape) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.pads;
        Some([
            places(input[1], top, bottom, self.kernel[0], self.dilation[0], self.stride[0])?,
            places(input[2], left, right, self.kernel[1], self.dilation[1], self.stride[1])?,
        ])
    }

    /// How many weights the layer has over `in_channels` channels: `C_out · C_in/groups · k_h · k_w`. `None`
    /// if the channels are not divisible by the groups or the product overflows.
    pub fn weights_len(&self, in_channels: usize) -> Option<usize> {
        if self.groups == 0
            || !in_channels.is_multiple_of(self.groups)
            || !self.out_channels.is_multiple_of(self.groups)
        {
            return None;
        }
        self.out_channels
            .checked_mul(in_channels / self.groups)?
            .checked_mul(self.kernel[0])?
            .checked_mul(self.kernel[1])
    }

    /// Multiplications in plaintext, padding included; `None` where [`Linear::output_hw`] or
    /// [`Linear::weights_len`] is.
    pub fn multiply_adds(&self, input: Shape) -> Option<usize> {
        let [h, w] = self.output_hw(input)?;
        self.weights_len(input[0])?.checked_mul(h)?.checked_mul(w)
    }

    /// Whether each input channel makes its own output channels and sees no other.
    pub fn is_depthwise(&self, in_channels: usize) -> bool {
        self.groups == in_channels && in_channels > 1
    }
}

impl Blocks {
    /// Whether a layer of this shape can have such blocks.
    pub fn fit(&self, spec: &Linear, in_channels: usize) -> bool {
        BLOCK_SIZES.contains(&self.size)
            && spec.groups == 1
            && in_channels.is_multiple_of(self.size)
            && spec.out_channels.is_multiple_of(self.size)
    }
}

/// The block size of `spec`; 1 for a dense layer.
pub fn block_size(spec: &Linear) -> usize {
    spec.blocks.map_or(1, |blocks| blocks.size)
}

/// The block sizes that a layer over `[C, H, W]` can have, 1 first.
pub fn possible_sizes(spec: &Linear, in_shape: Shape) -> impl Iterator<Item = usize> {
    let fits = move |size: &usize| Blocks::skew(*size).fit(spec, in_shape[0]);
    std::iter::once(1).chain(BLOCK_SIZES.into_iter().filter(fits))
}
