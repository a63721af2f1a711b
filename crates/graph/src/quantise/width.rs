//! Does the integer network hold on inputs that its scales were not made from, and how many activation bits does that
//! take?
//!
//! Every second sample is left out: scales come from the others, and an imitated private run, rounding by chance
//! and the server's noise included, is compared with the float network on those that were left out; then the other way round. So what is
//! measured is what new inputs will meet. The network that is handed on has its scales from all samples.
//!
//! `Chosen <- narrowest(Samples, widths, bound)`: one bit less, be it of an activation or a guard bit, makes each comparison a bit
//! shorter and every ring of shares a bit narrower, and doubles the rounding error of each linear layer. Noise of a given number of bits
//! becomes twice as large beside the answer. Narrow widths are tried first. A width is good if no value of the left-out samples leaves
//! its range and their logits differ from the float ones by at most `bound` relative to their spread, each part of the output by itself
//! ([`crate::outputs`]).
//!
//! Lines of curves may be coarser than values are, which takes fewer bytes: by how much is chosen next, by the same runs
//! ([`fewest_bits`]). And values that are factors of products and nothing else may have fewer bits.

use std::fmt;

use jaguar_ring::cpu::Cpu;

use super::samples::{Oddity, by_node, oddities};
use super::{ChannelRanges, Options, QuantiseError, Report, quantise, widen};
use crate::agreement::{Agreement, private_agreement_beside};
use crate::float::{Graph, Op};
use crate::network::{Hiding, Model};

/// Sample inputs, and the ranges that the float network's values take on them.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    cpu: Cpu,
    graph: &'a Graph,
    /// Two parts: ranges, and the samples that are tried with them, which are the other part's, each with what the float network makes of
    /// it. One part if there is only one sample, which then has to do for both.
    parts: Vec<(ChannelRanges, Vec<[Vec<f32>; 2]>)>,
    /// The ranges over all samples.
    all: ChannelRanges,
    /// By sample and node, the largest absolute value.
    each: Vec<Vec<f64>>,
}

impl<'a> Samples<'a> {
    /// Runs the float network, with the instructions that `cpu` has, on tensors as [`crate::image_input::tensor`] makes them. `done` hears how many are
    /// through.
    ///
    /// # Errors
    /// No images, images of the wrong length, values that are not finite.
    pub fn new(
        cpu: Cpu,
        graph: &'a Graph,
        images: &[Vec<f32>],
        done: &mut dyn FnMut(usize),
    ) -> Result<Self, QuantiseError> {
        let mut all: Option<ChannelRanges> = None;
        let mut ranges: [Option<ChannelRanges>; 2] = [None, None];
        let mut others: [Vec<[Vec<f32>; 2]>; 2] = [Vec::new(), Vec::new()];
        let mut each = Vec::with_capacity(images.len());
        for (index, image) in images.iter().enumerate() {
            let mut one: ChannelRanges = graph.nodes.iter().map(|node| vec![0.0; node.shape[0]]).collect();
            let output = widen(cpu, graph, (index, image), &mut one)?;
            each.push(by_node(&one));
            join(&mut all, &one);
            join(&mut ranges[index % 2], &one);
            let other = if images.len() == 1 { 0 } else { 1 - index % 2 };
            others[other].push([image.clone(), output]);
            done(index + 1);
        }
        let Some(all) = all else { return Err(QuantiseError::NoImages) };
        let parts = ranges.into_iter().zip(others).filter_map(|(ranges, others)| Some((ranges?, others)));
        Ok(Self { cpu, graph, parts: parts.collect(), all, each })
    }

    /// What is odd about `images`, which are those that these ranges were made from.
    ///
    /// # Panics
    /// When they are others in number or length.
    pub fn oddities(&self, images: &[Vec<f32>]) -> Vec<Oddity> {
        assert_eq!(images.len(), self.each.len(), "the samples of `new`");
        oddities(self.graph, images, &self.each)
    }

    /// The integer network, its scales from all samples.
    ///
    /// # Errors
    /// As [`super::calibrate`].
    pub fn quantise(&self, options: &Options) -> Result<(Model, Report), QuantiseError> {
        quantise(self.graph, &self.all, options)
    }

    /// How an imitated private run compares with the float network on samples that the scales were not made from (of
    /// one sample: on that).
    ///
    /// # Errors
    /// As [`super::calibrate`].
    pub fn held_out(&self, options: &Options) -> Result<Agreement, QuantiseError> {
        self.held_out_heard(options, &mut |_, _| ())
    }

    /// As [`held_out`](Self::held_out); `heard` is told how many samples are done, and of how many, after each.
    ///
    /// # Errors
    /// As [`super::calibrate`].
    pub fn held_out_heard(
        &self,
        options: &Options,
        heard: &mut dyn FnMut(usize, usize),
    ) -> Result<Agreement, QuantiseError> {
        let mut found: Option<Agreement> = None;
        let all = self.parts.iter().map(|(_, others)| others.len()).sum();
        let mut before = 0;
        for (ranges, others) in &self.parts {
            // With its guard bits, and so with the noise that answers will have.
            let model = quantise(self.graph, ranges, options)?.0.guarded(options.hiding)?;
            let mut done = |done| heard(before + done, all);
            let one = private_agreement_beside(self.cpu, &model, others, SEED, &mut done);
            before += others.len();
            let one = one.expect("the float network has run on these images");
            found = Some(found.map_or(one.clone(), |found| found.and(&one)));
        }
        Ok(found.expect("there are samples"))
    }
}

/// Widens `ranges` by others.
fn join(ranges: &mut Option<ChannelRanges>, more: &ChannelRanges) {
    match ranges {
        None => *ranges = Some(more.clone()),
        Some(ranges) => {
            for (range, &more) in ranges.iter_mut().flatten().zip(more.iter().flatten()) {
                *range = range.max(more);
            }
        }
    }
}

/// How wide values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// [`Options::activation_bits`].
    pub activation_bits: u32,
    /// [`Options::hiding`].
    pub hiding: Hiding,
}

impl Width {
    /// Its bits, guard bits included.
    pub fn bits(&self) -> u32 {
        self.activation_bits + self.hiding.guard_bits
    }

    /// The options, but for the width.
    pub fn of(self, options: &Options) -> Options {
        Options { activation_bits: self.activation_bits, hiding: self.hiding, ..options.clone() }
    }
}

impl fmt::Display for Width {
    /// As `17 bits`, or `16 + 6 bits`, guard bits last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hiding.guard_bits {
            0 => write!(f, "{} bits", self.activation_bits),
            guard_bits => write!(f, "{} + {guard_bits} bits", self.activation_bits),
        }
    }
}

/// The model at the width that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The width.
    pub width: Width,
    /// The model, its scales from all samples.
    pub model: Model,
    /// How its scales came out, node by node.
    pub report: Report,
    /// How an imitated private run compares with the float network on samples that were left out.
    pub held_out: Agreement,
    /// Whether the bound is kept. If no width keeps it, the one with the smallest error is chosen.
    pub kept: bool,
}

/// How far the search for a width is.
#[derive(Clone, Copy, Debug)]
pub enum Trial<'a> {
    /// So many of so many samples went through the network at the width at hand.
    Samples(usize, usize),
    /// How this width did, if there are scales for it.
    Width(Width, Option<&'a Agreement>),
    /// How so many bits of these did.
    Coarse(CoarseValues, u32, &'a Agreement),
}

/// What may have fewer bits than other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoarseValues {
    /// Lines of curves ([`Options::curve_bits`]).
    Curves,
    /// Those of a softmax's exponentials ([`Options::exponential_bits`]): what a weight is off by, others make up for, so these may be coarser than
    /// other curves'.
    Exponentials,
    /// Values that products take and nothing else: by no more than [`Options::spare`] says, which is as given.
    Factors,
}

impl CoarseValues {
    /// All of them, in the order in which they are looked for.
    pub const ALL: [Self; 3] = [Self::Curves, Self::Exponentials, Self::Factors];

    /// Which part of the bound is for them, beyond what answers are off by before.
    fn part(self) -> f64 {
        match self {
            Self::Curves | Self::Factors => 0.5,
            Self::Exponentials => 0.15,
        }
    }

    /// Whether a network may have them.
    fn is_in(self, graph: &Graph) -> bool {
        let any = |of: fn(&Op) -> bool| graph.nodes.iter().any(|node| of(&node.op));
        match self {
            Self::Curves => any(|op| op.heeds_coarse()),
            Self::Exponentials => any(|op| op.is_weight()),
            Self::Factors => true,
        }
    }

    /// As many bits as they have if no fewer do.
    fn usual(self, options: &Options, width: Width) -> u32 {
        match self {
            Self::Curves | Self::Factors => width.activation_bits,
            Self::Exponentials => options.curve_bits.unwrap_or(width.activation_bits),
        }
    }
}

impl fmt::Display for CoarseValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curves => "curves",
            Self::Exponentials => "exponentials",
            Self::Factors => "factors of products",
        })
    }
}

/// Quantises with the first of `widths`, narrow ones first, that keeps `bound`; other options are as given. `tried` hears how far the
/// trials are.
///
/// # Errors
/// As [`super::calibrate`], of the last width where no other has scales; a clip, for example, may need more bits
/// than the narrow ones.
pub fn narrowest(
    samples: &Samples<'_>,
    options: &Options,
    widths: &[Width],
    bound: f64,
    tried: &mut dyn FnMut(Trial<'_>),
) -> Result<Chosen, QuantiseError> {
    let (mut best, mut error): (Option<(Width, Agreement)>, _) = (None, None);
    let mut kept = false;
    for &width in widths {
        match samples.held_out_heard(&width.of(options), &mut |done, of| tried(Trial::Samples(done, of))) {
            Ok(found) => {
                tried(Trial::Width(width, Some(&found)));
                kept = found.overflows == 0 && found.worst_relative_error <= bound;
                let rank = |a: &Agreement| (a.overflows, a.worst_relative_error);
                if kept || best.as_ref().is_none_or(|(_, best)| rank(&found) < rank(best)) {
                    best = Some((width, found));
                }
                if kept {
                    break;
                }
            }
            Err(e) => {
                tried(Trial::Width(width, None));
                error = Some(e);
            }
        }
    }
    let Some((width, held_out)) = best else {
        return Err(error.unwrap_or(QuantiseError::Option {
            what: "widths of activations",
            found: "none".into(),
            allowed: "one or more",
        }));
    };
    let (model, report) = samples.quantise(&width.of(options))?;
    Ok(Chosen { width, model, report, held_out, kept })
}

/// By how many bits curves, and factors of products, may be coarser than other values at most.
pub const MOST_COARSE: u32 = 8;

/// The fewest bits of what may be `coarse` with which the network of the width that was `chosen` is off by `bound` at most, of which they take no more
/// than a part (of curves and of factors a half; of exponentials 0.15): squares of what answers are off by add up. If it is farther off already, they add nothing. No more
/// values are out of range, and no fewer inputs have the float network's class; and the network. `None` where no fewer are enough, or none
/// would change the network. Other options are as given. `tried` hears how far the trials are.
///
/// # Errors
/// As [`super::calibrate`].
pub fn fewest_bits(
    coarse: CoarseValues,
    samples: &Samples<'_>,
    options: &Options,
    chosen: &Chosen,
    bound: f64,
    tried: &mut dyn FnMut(Trial<'_>),
) -> Result<Option<(u32, Chosen)>, QuantiseError> {
    let with = |bits: u32| options.with_coarse(coarse, bits, chosen.width);
    let bits = chosen.width.activation_bits;
    let (mut fewest, mut enough) = (bits - MOST_COARSE.min(bits), coarse.usual(options, chosen.width));
    // (What cannot be made is another one.)
    let same = || samples.quantise(&with(fewest)).is_ok_and(|(model, _)| model == chosen.model);
    if !coarse.is_in(samples.graph) || same() {
        return Ok(None);
    }
    let fine = chosen.held_out.worst_relative_error;
    let most = fine.hypot(coarse.part() * bound).min(bound).max(fine);
    let mut best = None;
    // (The fewest first: what is off by as much as that may be is so by chance.)
    let mut first = true;
    while fewest < enough {
        let middle = if first { fewest } else { (fewest + enough) / 2 };
        first = false;
        // (What cannot be made does not hold.)
        let heard = &mut |done, of| tried(Trial::Samples(done, of));
        let Ok(found) = samples.held_out_heard(&with(middle), heard) else {
            fewest = middle + 1;
            continue;
        };
        tried(Trial::Coarse(coarse, middle, &found));
        // (Values that need the bit to spare might be compared or extended: none more than before.)
        let holds = found.worst_relative_error <= most
            && found.overflows <= chosen.held_out.overflows
            && found.tight <= chosen.held_out.tight
            && found.same_class >= chosen.held_out.same_class;
        if holds {
            (enough, best) = (middle, Some(found));
        } else {
            fewest = middle + 1;
        }
    }
    let Some(held_out) = best else { return Ok(None) };
    let (model, report) = samples.quantise(&with(enough))?;
    Ok(Some((enough, Chosen { model, report, held_out, width: chosen.width, kept: chosen.kept })))
}

impl Options {
    /// At this width, with what may be `coarse` in so many bits (factors: in so many at least).
    pub fn with_coarse(&self, coarse: CoarseValues, bits: u32, width: Width) -> Self {
        let mut with = width.of(self);
        match coarse {
            CoarseValues::Curves => with.curve_bits = Some(bits),
            CoarseValues::Exponentials => with.exponential_bits = Some(bits),
            CoarseValues::Factors => {
                let most = width.activation_bits.saturating_sub(bits);
                with.spare.iter_mut().for_each(|spare| *spare = most.min(*spare));
            }
        }
        with
    }
}

/// Any will do; a fixed one makes the choice reproducible.
const SEED: u64 = 1;
