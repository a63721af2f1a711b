//! Linear forms: what a node of the graph is, in terms of rectified values.

use jaguar_graph::float::{Bias, Linear, Node};
use jaguar_graph::network::{Rearrange, Shape, Window};

use crate::Refusal;
use crate::description::{Floats, Term};

/// `Σ over terms of convolution(value) + bias`, of a known shape.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub terms: Vec<Term>,
    pub bias: Vec<f32>,
    pub shape: Shape,
}

/// At most so many weights of one term: a depthwise kernel is written out with all its zeros.
const MAX_WEIGHTS: usize = 1 << 26;

/// The index of a weight.
pub(crate) fn at(term: &Term, out: usize, channel: usize, row: usize, column: usize) -> usize {
    ((out * term.channels + channel) * term.height + row) * term.width + column
}

/// A term without weights, and room for them.
pub(crate) fn empty(term: Term) -> Result<Term, Refusal> {
    let count = [term.channels, term.height, term.width]
        .iter()
        .try_fold(term.out, |product, &factor| product.checked_mul(factor))
        .filter(|&count| count <= MAX_WEIGHTS)
        .ok_or(Refusal::TooLarge)?;
    Ok(Term { weights: Floats(vec![0.0; count]), ..term })
}

impl Form {
    /// A value itself.
    pub fn value(from: usize, shape: Shape) -> Result<Self, Refusal> {
        let channels = shape[0];
        let mut term = empty(Term {
            from,
            out: channels,
            channels,
            height: 1,
            width: 1,
            stride: 1,
            padding: [0; 4],
            weights: Floats(Vec::new()),
        })?;
        for c in 0..channels {
            term.weights.0[c * channels + c] = 1.0;
        }
        Ok(Self { terms: vec![term], bias: vec![0.0; channels], shape })
    }

    /// Whether each of its values is a sum, over channels only, of values at the same place, without a constant: what a convolution
    /// can be multiplied into, whatever its padding.
    fn mixes_channels(&self) -> bool {
        let pointwise = |t: &Term| [t.height, t.width, t.stride] == [1; 3] && t.padding == [0; 4];
        self.terms.iter().all(pointwise) && self.bias.iter().all(|&b| b == 0.0)
    }

    /// Whether what lies outside of its rows and columns is zero: of a value itself, and of sums over its channels.
    pub fn is_zero_outside(&self) -> bool {
        self.mixes_channels()
    }

    /// It, times a factor, plus a constant.
    pub fn scaled(mut self, factor: f32, constant: f32) -> Self {
        self.terms.iter_mut().flat_map(|t| &mut t.weights.0).for_each(|w| *w *= factor);
        self.bias.iter_mut().for_each(|b| *b = *b * factor + constant);
        self
    }

    /// The sum of two forms of one shape.
    pub fn plus(mut self, other: &Form) -> Self {
        self.terms.extend_from_slice(&other.terms);
        self.bias.iter_mut().zip(&other.bias).for_each(|(a, b)| *a += b);
        self
    }

    /// A convolution of it. Of a form that is no value itself, only a matrix over channels: kernel 1, stride 1.
    pub fn convolved(&self, linear: &Linear, node: &Node) -> Result<Self, Refusal> {
        let spec = &linear.spec;
        let [stride, right] = spec.stride;
        if stride != right {
            return Err(Refusal::Stride(spec.stride));
        }
        let channels = self.shape[0];
        let [height, width] = [0, 1].map(|axis| (spec.kernel[axis] - 1) * spec.dilation[axis] + 1);
        let mut kernel = empty(Term {
            from: 0,
            out: spec.out_channels,
            channels,
            height,
            width,
            stride,
            padding: spec.pads,
            weights: Floats(Vec::new()),
        })?;
        let (per_group, outs) = (channels / spec.groups, spec.out_channels / spec.groups);
        let mut weights = linear.weights.iter();
        for out in 0..spec.out_channels {
            for c in 0..per_group {
                for row in 0..spec.kernel[0] {
                    for column in 0..spec.kernel[1] {
                        let (row, column) = (row * spec.dilation[0], column * spec.dilation[1]);
                        let index = at(&kernel, out, out / outs * per_group + c, row, column);
                        kernel.weights.0[index] = *weights.next().ok_or(Refusal::Malformed)?;
                    }
                }
            }
        }
        let bias = match &linear.bias {
            Bias::PerChannel(bias) => bias.clone(),
            Bias::PerElement(bias) if bias.len() == spec.out_channels => bias.clone(),
            Bias::PerElement(_) => return Err(Refusal::BiasByElement),
        };
        self.through(kernel, bias, node.shape)
    }

    /// This kernel over it: of a sum over channels any kernel, of all else only a matrix over channels.
    fn through(&self, kernel: Term, mut bias: Vec<f32>, shape: Shape) -> Result<Self, Refusal> {
        let matrix = [kernel.height, kernel.width, kernel.stride] == [1; 3] && kernel.padding == [0; 4];
        if !matrix && !self.mixes_channels() {
            return Err(Refusal::TwoInARow);
        }
        let area = kernel.height * kernel.width;
        if matrix {
            let mix = |out: usize, channel: usize| kernel.weights.0[out * kernel.channels + channel];
            for (out, bias) in bias.iter_mut().enumerate() {
                *bias += self.bias.iter().enumerate().map(|(c, b)| mix(out, c) * b).sum::<f32>();
            }
        }
        let mut terms = Vec::new();
        for term in &self.terms {
            // One of the two has an area of 1.
            let inner = term.height * term.width;
            let geometry = if matrix { term } else { &kernel };
            let mut mixed = empty(Term {
                from: term.from,
                out: kernel.out,
                channels: term.channels,
                ..geometry.clone()
            })?;
            // Most are zero: a value itself has one channel for each, and so has what follows a depthwise kernel.
            let filled: Vec<(usize, usize, &[f32])> = (term.weights.0.chunks_exact(inner).enumerate())
                .filter(|(_, first)| first.iter().any(|&w| w != 0.0))
                .map(|(i, first)| (i / term.channels, i % term.channels, first))
                .collect();
            for out in 0..kernel.out {
                for &(middle, channel, first) in &filled {
                    let outer = &kernel.weights.0[(out * kernel.channels + middle) * area..][..area];
                    if outer.iter().all(|&w| w == 0.0) {
                        continue;
                    }
                    let begin = (out * term.channels + channel) * area * inner;
                    for (i, to) in mixed.weights.0[begin..][..area * inner].iter_mut().enumerate() {
                        *to += outer[i / inner] * first[i % inner];
                    }
                }
            }
            terms.push(mixed);
        }
        Ok(Self { terms, bias, shape })
    }

    /// The mean of each window.
    pub fn averaged(&self, window: &Window, count_padding: bool, node: &Node) -> Result<Self, Refusal> {
        if !count_padding && window.pads != [0; 4] {
            return Err(Refusal::Pool);
        }
        let [stride, right] = window.stride;
        // A window over everything has no steps.
        let single = node.shape[1..] == [1, 1];
        if stride != right && !single {
            return Err(Refusal::Stride(window.stride));
        }
        let channels = self.shape[0];
        let [height, width] = window.kernel;
        let mut kernel = empty(Term {
            from: 0,
            out: channels,
            channels,
            height,
            width,
            stride: if single { 1 } else { stride },
            padding: window.pads,
            weights: Floats(Vec::new()),
        })?;
        let mean = 1.0 / (height * width) as f32;
        for c in 0..channels {
            let begin = at(&kernel, c, c, 0, 0);
            kernel.weights.0[begin..][..height * width].fill(mean);
        }
        self.through(kernel, vec![0.0; channels], node.shape)
    }

    /// Values moved: channels at will, rows and columns only by a regular step from the first one.
    pub fn rearranged(&self, rearrange: &Rearrange, to: Shape) -> Result<Self, Refusal> {
        let picks = |axis: usize| -> Option<Vec<Option<usize>>> {
            let all = 0..to[axis];
            Some(match rearrange {
                Rearrange::Pad { before, .. } => {
                    all.map(|i| i.checked_sub(before[axis]).filter(|&i| i < self.shape[axis])).collect()
                }
                Rearrange::Slice { start, step } => all.map(|i| Some(start[axis] + i * step[axis])).collect(),
                Rearrange::Select { axes } if !axes[axis].is_empty() => axes[axis].clone(),
                Rearrange::Select { .. } => all.map(Some).collect(),
                Rearrange::Reshape if self.shape == to => all.map(Some).collect(),
                Rearrange::Reshape | Rearrange::Transpose { .. } => return None,
            })
        };
        let [Some(channels), Some(rows), Some(columns)] = [0, 1, 2].map(picks) else {
            return Err(Refusal::Rearrange(rearrange.clone()));
        };
        let step = |picks: &[Option<usize>]| {
            let step = match picks {
                [] => return None,
                [_] => 1,
                [_, second, ..] => (*second)?,
            };
            picks.iter().enumerate().all(|(i, &from)| from == Some(i * step)).then_some(step)
        };
        let (Some(down), Some(right)) = (step(&rows), step(&columns)) else {
            return Err(Refusal::Rearrange(rearrange.clone()));
        };
        if down != right {
            return Err(Refusal::Stride([down, right]));
        }
        let mut terms = Vec::new();
        for term in &self.terms {
            let mut moved = empty(Term { out: to[0], stride: term.stride * down, ..term.clone() })?;
            let block = term.channels * term.height * term.width;
            for (out, from) in channels.iter().enumerate() {
                if let Some(from) = from {
                    moved.weights.0[out * block..][..block]
                        .copy_from_slice(&term.weights.0[from * block..][..block]);
                }
            }
            terms.push(moved);
        }
        let bias = channels.iter().map(|from| from.map_or(0.0, |from| self.bias[from])).collect();
        Ok(Self { terms, bias, shape: to })
    }
}
