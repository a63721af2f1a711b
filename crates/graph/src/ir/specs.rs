//! What the client does with an image before the network, and with the output behind it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ir::limits::MAX_SIDE;
use crate::ir::seen::Seen;

/// What the client does with an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// S of the input: the tensor's value t becomes the integer round(t·S), clamped to the activation range.
    pub scale: f64,
    /// How pixels become the tensor that the ONNX model takes.
    pub image: ImageSpec,
    /// A constant affine map at the graph's head, by channel: `t' = t·mul + add`. Empty: none.
    pub affine: Vec<(f32, f32)>,
    /// Whether the ONNX model takes `[H, W, C]` (for tensors given as files; images are laid out as needed).
    pub channels_last: bool,
    /// The ONNX input's own dimensions without the batch, as the file (or whoever imported it) gives them: `[C, H,
    /// W]`, `[H, W, C]` where the channels come last, `[C, H]` or `[C]`; a tensor file may have them, with a leading
    /// 1 or without. The elements run as those of the network's input `[C, H, W]`, unless the channels come last.
    /// Empty: as the input's shape says.
    pub layout_dims: Vec<usize>,
    /// The range of the tensors that calibration saw, before `affine`; `None` where it is not known.
    pub seen: Option<Seen>,
}

impl InputSpec {
    /// A tensor as it is, in units of 1/`scale`.
    pub fn plain(scale: f64) -> Self {
        Self {
            scale,
            image: ImageSpec::default(),
            affine: Vec::new(),
            channels_last: false,
            layout_dims: Vec::new(),
            seen: None,
        }
    }
}

/// Image to tensor: resize, crop, order, `(pixel - mean) · factor` with pixels in 0..=255. The default leaves the
/// pixels as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// How an image is brought to height and width, before the centre is cut out.
    pub resize: Resize,
    /// By which pixels in between are found.
    pub filter: Filter,
    /// The order of the channels: BGR instead of RGB.
    pub bgr: bool,
    /// Subtracted from a pixel of 0..=255, by channel of the tensor (after the reordering).
    pub mean: Vec<f32>,
    /// What the difference is multiplied by, by channel of the tensor.
    pub factor: Vec<f32>,
}

/// How an image is brought to the network's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Resize {
    /// Straight to height and width, whatever the shape.
    #[default]
    Exact,
    /// The shorter side to this many pixels, then the centre is cut out: torchvision's `Resize` and `CenterCrop`.
    Shorter(u32),
    /// As `Shorter`, to the whole part of the network's shorter side over this fraction: timm's `crop_pct`.
    CropPct(f32),
    /// First the central square is cut out, whose side is this fraction of the shorter side; that goes straight to height
    /// and width: TensorFlow's EfficientNets.
    Centre(f32),
}

impl FromStr for Resize {
    type Err = String;

    /// `exact`, a number of pixels, `crop-pct=0.875` or `centre=0.875`.
    fn from_str(text: &str) -> Result<Self, String> {
        let fraction = |text: &str| text.parse().ok().filter(|&f: &f32| f > 0.0 && f <= 1.0);
        let found = match text.split_once('=') {
            None if text == "exact" => Some(Self::Exact),
            None => text.parse().ok().filter(|n| (1..=MAX_SIDE as u32).contains(n)).map(Self::Shorter),
            Some(("crop-pct", of)) => fraction(of).map(Self::CropPct),
            Some(("centre", of)) => fraction(of).map(Self::Centre),
            Some(_) => None,
        };
        found.ok_or_else(|| {
            format!(
                "`exact`, a number of pixels (1 to {MAX_SIDE}), or `crop-pct=` or `centre=` and a fraction up to 1"
            )
        })
    }
}

/// How the pixels of a resized image are found. All but the last as Pillow does it, antialiased (but for `Nearest`), in
/// whole pixel values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// The mean of the pixels below.
    Box,
    /// A triangle: torchvision's default.
    #[default]
    Bilinear,
    /// A Hamming window.
    Hamming,
    /// Cubic, a = -1/2: timm's default.
    Bicubic,
    /// Lanczos' with three lobes.
    Lanczos,
    /// Bilinear between the four pixels around, without antialiasing, not rounded: `tf.image.resize`, Keras' `Resizing`.
    Interpolate,
}

impl Filter {
    /// All of them, with their names in options.
    pub const NAMED: [(&'static str, Self); 7] = [
        ("nearest", Self::Nearest),
        ("box", Self::Box),
        ("bilinear", Self::Bilinear),
        ("hamming", Self::Hamming),
        ("bicubic", Self::Bicubic),
        ("lanczos", Self::Lanczos),
        ("interpolate", Self::Interpolate),
    ];
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMED.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, filter)| filter).ok_or_else(|| {
            let names = Self::NAMED.map(|(name, _)| name);
            format!("there are {}", names.join(", "))
        })
    }
}

/// What the output means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// S, one for each part, and one where there are no parts: the part's integer v stands for v / S.
    pub scales: Vec<f64>,
    /// The ONNX outputs that the output consists of, flattened and one after the other. Empty: one without a name, as
    /// it is.
    pub parts: Vec<OutputPart>,
    /// How many of the ONNX model's last nodes are left to whoever gets the output, since nobody can run them privately. 0: none.
    pub tail: u32,
    /// Names by class; empty if none were given.
    pub labels: Vec<String>,
}

impl OutputSpec {
    /// One output without a name, and without names of classes, in units of 1/`scale`.
    pub fn plain(scale: f64) -> Self {
        Self { scales: vec![scale], parts: Vec::new(), tail: 0, labels: Vec::new() }
    }
}

/// One ONNX output's place in the network's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputPart {
    /// What the client calls it: in a compiled model its number, unless the ONNX model's names are to be kept
    /// ([`Network::without_names`](crate::network::Network::without_names)).
    pub name: String,
    /// Its ONNX dimensions, the batch included. Their product is how many values of the output it takes.
    pub dims: Vec<usize>,
    /// What the ONNX model ends in, and the client applies to the values itself.
    pub finish: Finish,
}

/// What the client applies to an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// Nothing is left to do: the logits are the output.
    #[default]
    None,
    /// A softmax over all values (or its logarithm, of which it is the exponential).
    Softmax,
    /// `1 / (1 + e^-v)`, value by value.
    Sigmoid,
    /// Many softmaxes (or logarithms, as above), as of the classes at each place of a picture.
    Softmaxes {
        /// How many values each is over.
        size: usize,
        /// How far these lie apart, in the order of ONNX.
        apart: usize,
    },
}

impl InputSpec {
    /// The input tensor (in `[C, H, W]` order, as [`crate::image_input`] makes it) as integers: the affine map,
    /// then `round(t·S)`, clamped to `-2^(n-1) .. 2^(n-1)`.
    ///
    /// `tensor` is split evenly over the channels of `affine`; a tensor whose length is not a multiple of their
    /// number keeps its tail untouched by the map.
    pub fn quantise(&self, tensor: &[f32], activation_bits: u32) -> Vec<i64> {
        let limit = f64::from(activation_bits.clamp(1, 62) - 1).exp2();
        self.scaled(tensor).map(|v| v.clamp(-limit, limit - 1.0) as i64).collect()
    }

    /// How many values of the tensor [`quantise`](Self::quantise) clamps.
    pub(crate) fn clamped(&self, tensor: &[f32], activation_bits: u32) -> usize {
        let limit = f64::from(activation_bits.clamp(1, 62) - 1).exp2();
        self.scaled(tensor).filter(|v| !(-limit..limit).contains(v)).count()
    }

    fn scaled(&self, tensor: &[f32]) -> impl Iterator<Item = f64> {
        let per_channel = (tensor.len() / self.affine.len().max(1)).max(1);
        let map =
            move |i: usize, t: f32| self.affine.get(i / per_channel).map_or(t, |&(mul, add)| t * mul + add);
        tensor.iter().enumerate().map(move |(i, &t)| (f64::from(map(i, t)) * self.scale).round())
    }
}

impl OutputSpec {
    /// The output's integers as real numbers, before any [`Finish`].
    pub fn logits(&self, values: &[i64]) -> Vec<f64> {
        let real = |values: &[i64], scale: f64| values.iter().map(|&v| v as f64 / scale).collect();
        match self.scales[..] {
            [scale] => real(values, scale),
            _ => self
                .split(values)
                .zip(&self.scales)
                .flat_map(|((_, own), &s)| real(own, s))
                .collect::<Vec<_>>(),
        }
    }

    /// Whether all values stand for real numbers by one scale, so that integers of different parts can be compared.
    pub fn is_even(&self) -> bool {
        self.scales.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// What the ONNX model would give: the logits, with each part's [`Finish`] applied.
    pub fn finish(&self, values: &[i64]) -> Vec<f64> {
        let logits = self.logits(values);
        if self.parts.is_empty() {
            return logits;
        }
        self.split(&logits).flat_map(|(part, logits)| part.finish.apply(logits)).collect()
    }

    /// What whoever gets the output must know of a tail that it has to compute; `None` if there is none.
    pub fn left_out(&self) -> Option<String> {
        let nodes = if self.tail == 1 { "node is".into() } else { format!("{} nodes are", self.tail) };
        (self.tail > 0).then(|| format!("the model's last {nodes} left to whoever gets the answer"))
    }

    /// Each part with its values, of an output of the right length. (None of them where there are no parts.)
    pub fn split<'a, T>(&'a self, values: &'a [T]) -> impl Iterator<Item = (&'a OutputPart, &'a [T])> {
        let mut rest = values;
        self.parts.iter().map(move |part| {
            let (own, others) = rest.split_at(part.count().unwrap_or(0).min(rest.len()));
            rest = others;
            (part, own)
        })
    }
}

/// The outputs, each called by its number.
#[must_use]
pub fn without_names(mut parts: Vec<OutputPart>) -> Vec<OutputPart> {
    let several = parts.len() > 1;
    for (number, part) in (1..).zip(&mut parts) {
        part.name = if several { format!("output {number}") } else { "output".into() };
    }
    parts
}

impl OutputPart {
    /// How many values it has, if they can be counted.
    pub fn count(&self) -> Option<usize> {
        self.dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))
    }
}

impl Finish {
    /// Whether it can be applied to so many values.
    pub fn suits(self, count: usize) -> bool {
        match self {
            Finish::None | Finish::Softmax | Finish::Sigmoid => true,
            Finish::Softmaxes { size, apart } => {
                size.checked_mul(apart).is_some_and(|run| run > 0 && count.is_multiple_of(run))
            }
        }
    }

    /// Of an output of these sizes: what it is once they are in another order. `None` if values that belong together are no single dimension.
    #[must_use]
    pub(crate) fn transposed(self, sizes: &[usize], perm: &[usize]) -> Option<Finish> {
        match self {
            Finish::None | Finish::Softmax | Finish::Sigmoid => Some(self),
            Finish::Softmaxes { size, apart } => {
                let behind = |sizes: &mut dyn Iterator<Item = usize>| sizes.product::<usize>();
                let dim = (0..sizes.len())
                    .find(|&d| sizes[d] == size && behind(&mut sizes[d + 1..].iter().copied()) == apart)?;
                let place = perm.iter().position(|&p| p == dim)?;
                let apart = behind(&mut perm[place + 1..].iter().map(|&p| sizes[p]));
                Some(Finish::Softmaxes { size, apart })
            }
        }
    }

    /// What it makes of the values of one output, which it [suits](Self::suits).
    pub fn apply(self, values: &[f64]) -> Vec<f64> {
        match self {
            Finish::None => values.to_vec(),
            Finish::Softmax => softmax(values),
            Finish::Sigmoid => values.iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect(),
            Finish::Softmaxes { size, apart } => {
                let mut finished = values.to_vec();
                for run in finished.chunks_exact_mut((size * apart).max(1)) {
                    for place in 0..apart {
                        let own: Vec<f64> = run.iter().skip(place).step_by(apart).copied().collect();
                        run.iter_mut()
                            .skip(place)
                            .step_by(apart)
                            .zip(softmax(&own))
                            .for_each(|(v, y)| *v = y);
                    }
                }
                finished
            }
        }
    }
}

/// e^v by its sum over all values: what a softmax makes of logits.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut values: Vec<f64> = logits.iter().map(|v| (v - top).exp()).collect();
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
    values
}
