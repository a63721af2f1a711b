//! A convolution, and where its terms lie.

/// A convolution's dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `[C_in, H, W]` of what is convolved, without its padding.
    pub input: [usize; 3],
    /// `[C_out, H_out, W_out]` of what it makes.
    pub output: [usize; 3],
    /// `[k_h, k_w]`: rows and columns of a window's weights.
    pub kernel: [usize; 2],
    /// `[s_h, s_w]`: rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// `[d_h, d_w]`, 1 for none in between.
    pub dilation: [usize; 2],
    /// Rows above the input and columns left of it that are zero. (Those below and right follow from the output.)
    pub pads: [usize; 2],
    /// Divides both numbers of channels.
    pub groups: usize,
}

/// Why a convolution is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A dimension is zero, or the groups do not divide the channels.
    #[error("a convolution from {input:?} to {output:?} in {groups} groups has no meaning")]
    Meaningless {
        /// `[C_in, H, W]`.
        input: [usize; 3],
        /// `[C_out, H_out, W_out]`.
        output: [usize; 3],
        /// The groups.
        groups: usize,
    },
    /// The kernels count in 32 bits.
    #[error("a convolution with {words} words in one of its arrays; at most 2^31 are taken")]
    TooLarge {
        /// Words of the largest array.
        words: u128,
    },
}

/// Where the kernels find a convolution's words in the padded input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `[H, W]` of the padded input.
    pub padded: [usize; 2],
    /// By term of an output, `[C_in/groups, k_h, k_w]`: the word's distance from the place's first.
    pub terms: Vec<u32>,
    /// By place of the output, `[H_out, W_out]`: the first word.
    pub bases: Vec<u32>,
    /// Words from one group's channels to the next one's.
    pub group_step: u32,
}

impl Shape {
    /// Whether the kernels can take it.
    ///
    /// # Errors
    /// When it has no meaning, or is too large.
    pub fn check(&self) -> Result<(), ShapeError> {
        let Self { input, output, kernel, stride, dilation, groups, .. } = self;
        let numbers = [&input[..], output, kernel, stride, dilation, &[*groups]].concat();
        if numbers.contains(&0) || input[0] % groups != 0 || output[0] % groups != 0 {
            return Err(ShapeError::Meaningless { input: *input, output: *output, groups: *groups });
        }
        let product = |factors: &[usize]| factors.iter().map(|&f| f as u128).fold(1, u128::saturating_mul);
        let [h, w] = self.wide_padded();
        let padded = (input[0] as u128).saturating_mul(h).saturating_mul(w);
        let weights = product(&[output[0], input[0] / groups, kernel[0], kernel[1]]);
        let words = padded.max(product(output)).max(weights);
        if words > 1 << 31 {
            return Err(ShapeError::TooLarge { words });
        }
        // A grid has at most 65,535 blocks in its second and third direction.
        let blocks = (output[0] / groups).max(*groups) as u128;
        if blocks > 65_535 { Err(ShapeError::TooLarge { words: blocks << 16 }) } else { Ok(()) }
    }

    /// Height and width of the padded input: as far as the last window reaches, and all of the input.
    fn wide_padded(&self) -> [u128; 2] {
        [0, 1].map(|d| {
            let taps = (self.kernel[d] as u128 - 1).saturating_mul(self.dilation[d] as u128);
            let windows = (self.output[d + 1] as u128 - 1).saturating_mul(self.stride[d] as u128);
            windows.saturating_add(taps).saturating_add(1).max((self.pads[d] + self.input[d + 1]) as u128)
        })
    }

    /// Terms of one output.
    pub fn terms(&self) -> usize {
        self.input[0] / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Places of an output channel.
    pub fn places(&self) -> usize {
        self.output[1] * self.output[2]
    }

    /// Output channels of one group.
    pub fn outputs(&self) -> usize {
        self.output[0] / self.groups
    }

    /// Where its words lie. The shape must have been checked.
    pub fn layout(&self) -> Places {
        let [h, w] = self.wide_padded().map(|d| d as usize);
        let per_group = self.input[0] / self.groups;
        let mut terms = Vec::with_capacity(self.terms());
        for channel in 0..per_group {
            for row in 0..self.kernel[0] {
                for column in 0..self.kernel[1] {
                    terms.push(
                        (channel * h * w + row * self.dilation[0] * w + column * self.dilation[1]) as u32,
                    );
                }
            }
        }
        let mut bases = Vec::with_capacity(self.places());
        for row in 0..self.output[1] {
            bases.extend(
                (0..self.output[2]).map(|column| (row * self.stride[0] * w + column * self.stride[1]) as u32),
            );
        }
        Places { padded: [h, w], terms, bases, group_step: (per_group * h * w) as u32 }
    }
}

impl Places {
    /// Writes `x`, `[C, H, W]`, into a padded input of zeros.
    pub fn pad(&self, shape: &Shape, x: &[u64], padded: &mut [u64]) {
        let ([_, rows, width], [h, w], [top, left]) = (shape.input, self.padded, shape.pads);
        for (channel, x) in x.chunks_exact(rows * width).enumerate() {
            for (row, x) in x.chunks_exact(width).enumerate() {
                padded[(channel * h + top + row) * w + left..][..width].copy_from_slice(x);
            }
        }
    }

    /// Words of the padded input.
    pub fn padded_words(&self, shape: &Shape) -> usize {
        shape.input[0] * self.padded[0] * self.padded[1]
    }
}
