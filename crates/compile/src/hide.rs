//! For how many queries of one image hidden units stay hidden, and how many guard bits and how much noise that takes.
//!
//! ```text
//! leverage <- the longest column of the Jacobian from hidden values to what is opened (jaguar_graph::leverage)
//! noise    <- the fewest bits of it that hide such a column for the queries asked for
//! widths   <- with that noise, from the fewest guard bits beside which answers may be exact enough
//! ```
//!
//! Noise has a number of bits in units of the integers that are opened. Each guard bit makes these half as large, and the noise with them:
//! so the leverage says how much noise there is, the accuracy that is wanted how many guard bits, and both together the bytes.

use jaguar_graph::leverage::{Leverage, leverage};
use jaguar_graph::network::{
    DEFAULT_HIDDEN_FOR, Hiding, LEAST_NOISE_BITS, MAX_NOISE_BITS, Model, NOISE_MARGIN, hidden_for,
};
use jaguar_graph::quantise::{
    self, Chosen, CoarseValues, MOST_COARSE, QuantiseError, Report, Samples, Trial, Width, fewest_bits,
    narrowest,
};

use crate::{CompileError, Event, Options, Widths};

/// How hidden values are to be hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hide {
    /// For so many queries of one image; for one or less, not at all.
    For(f64),
    /// So, for as many queries as that may be.
    As(Hiding),
}

impl Default for Hide {
    /// For [`DEFAULT_HIDDEN_FOR`] queries.
    fn default() -> Self {
        Self::For(DEFAULT_HIDDEN_FOR)
    }
}

/// The leverage is measured on so many samples.
const WEIGHED: usize = 3;
/// The most guard bits that are chosen. More would be below the noise of encryption, which is some hundredths of the activations' last
/// place, moves hidden values as coins do, and is the server's or known to the client: wider activations make it smaller, guard bits do
/// not.
pub(crate) const MOST_GUARD_BITS: u32 = 8;

/// How much a hidden unit weighs, and the model that hides it, of the width that was chosen.
pub(crate) fn chosen(
    options: &Options,
    but_for_width: &quantise::Options,
    calibrated: &Samples<'_>,
    samples: &[Vec<f32>],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Leverage, Chosen), CompileError> {
    let (leverage, widths) = widths(options, but_for_width, calibrated, samples, tell)?;
    let hides = matches!(options.hide, Hide::For(queries) if queries > 1.0);
    let searches = hides || widths.len() > 1;
    tell(if searches { Event::Trying(&widths) } else { Event::Quantising });
    let mut tried = |trial: Trial<'_>| match trial {
        Trial::Samples(done, of) => tell(Event::TryingSamples(done, of)),
        Trial::Width(width, found) if searches => tell(Event::Tried(width, found)),
        Trial::Width(..) | Trial::Coarse(..) => (),
    };
    let mut chosen = narrowest(calibrated, but_for_width, &widths, options.bound, &mut tried)?;
    // Answers come first: what hides less is told.
    while hides && !chosen.kept {
        let error = chosen.held_out.worst_relative_error;
        let Some(width) = with_less_noise(chosen.width, error, options.bound) else { break };
        let quieter = narrowest(calibrated, but_for_width, &[width], options.bound, &mut tried)?;
        if quieter.held_out.worst_relative_error > 0.75 * error {
            // It was not the noise.
            break;
        }
        chosen = quieter;
    }
    Ok((leverage, chosen))
}

/// Curves as coarse as answers allow, then a softmax's exponentials, and then factors of products. All make hidden units weigh something else: where that is so much
/// that they stay hidden for fewer queries than were asked for, and without them do not, they stay as they were. Where narrow values do not do beside
/// factors, factors are tried alone.
pub(crate) fn with_coarse_values(
    options: &Options,
    but_for_width: &quantise::Options,
    calibrated: &Samples<'_>,
    samples: &[Vec<f32>],
    (leverage, fine): (Leverage, Chosen),
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(f64, Chosen), CompileError> {
    let mut of = but_for_width.clone();
    let (mut leverage, mut chosen) = (leverage, fine);
    // (With factors: whether other values may be narrow beside them.)
    let tries =
        CoarseValues::ALL.map(|coarse| (coarse, true)).into_iter().chain([(CoarseValues::Factors, false)]);
    for (coarse, narrow) in tries {
        if coarse == CoarseValues::Factors {
            (of.spare, of.narrow) = (spare(options, &leverage, &chosen), narrow);
            if !narrow && !narrows(&of, calibrated, chosen.width) {
                break;
            }
        }
        let mut heard = |trial: Trial<'_>| match trial {
            Trial::Samples(done, of) => tell(Event::TryingSamples(done, of)),
            Trial::Coarse(coarse, bits, found) => tell(Event::TriedCoarse(coarse, bits, found)),
            Trial::Width(..) => (),
        };
        let found = fewest_bits(coarse, calibrated, &of, &chosen, options.bound, &mut heard)?;
        if let Some((bits, found)) = found
            && let Some(with_them) = hides_as_long(options, &leverage, &found, samples, tell)?
        {
            tell(Event::CoarseChosen(coarse, bits, &found.held_out));
            of = of.with_coarse(coarse, bits, chosen.width);
            (leverage, chosen) = (with_them, found);
            if coarse == CoarseValues::Factors {
                break;
            }
        }
    }
    Ok((leverage.longest, chosen))
}

/// Whether other values than factors would be narrow, at this width.
fn narrows(of: &quantise::Options, calibrated: &Samples<'_>, width: Width) -> bool {
    let with = |narrow| quantise::Options { narrow, ..width.of(of) };
    let [all, factors] = [true, false].map(|narrow| calibrated.quantise(&with(narrow)));
    match (all, factors) {
        (Ok((all, _)), Ok((factors, _))) => all != factors,
        (Err(_), _) | (_, Err(_)) => true,
    }
}

/// Where units were hidden for too few queries before, the heaviest is found to weigh as much to so large a part, in queries: other values are
/// rounded otherwise.
const SAME: f64 = 0.95;

/// How much hidden units weigh in what was made coarser, or before, whichever is more; `None` if they stay hidden for fewer queries than were asked for,
/// and than before.
fn hides_as_long(
    options: &Options,
    before: &Leverage,
    coarse: &Chosen,
    samples: &[Vec<f32>],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Option<Leverage>, CompileError> {
    let mut now = weighed(options, &coarse.model, samples, tell)?;
    now.longest = now.longest.max(before.longest);
    let noise_bits = coarse.width.hiding.noise_bits;
    let hides = as_long(options.hide, noise_bits, before.longest, now.longest);
    Ok(hides.then_some(now))
}

/// Whether noise of so many bits hides units that weigh so much `now` for as many queries as were asked for, where it hid those `before` for these;
/// else for as many as before.
fn as_long(hide: Hide, noise_bits: u32, before: f64, now: f64) -> bool {
    let [before, now] = [before, now].map(|longest| hidden_for(noise_bits, longest));
    match hide {
        Hide::For(asked) if asked > 1.0 => now >= if before >= asked { asked } else { SAME * before },
        Hide::For(_) | Hide::As(_) => true,
    }
}

/// What is measured by random sums is measured once more with others, and the longest of many by half a bit too long.
const MARGIN: f64 = 0.5;

/// By how many bits each node's value may be coarser, so that its coins weigh no more than is hidden for as many queries as were asked for, or than the
/// heaviest does. Where coins are not hidden, by as many as there may be.
fn spare(options: &Options, leverage: &Leverage, chosen: &Chosen) -> Vec<u32> {
    let most = match options.hide {
        Hide::For(queries) if queries <= 1.0 => f64::INFINITY,
        // (1 is hidden for as many queries; twice as much for a quarter.)
        Hide::For(queries) => {
            let one = hidden_for(chosen.width.hiding.noise_bits, 1.0);
            leverage.longest.max((one / queries).sqrt())
        }
        Hide::As(_) => leverage.longest,
    };
    let bits = |&own: &f64| ((most / own).log2() - MARGIN).floor().clamp(0.0, f64::from(MOST_COARSE)) as u32;
    leverage.by_node.iter().map(bits).collect()
}

/// How much a hidden unit of this model weighs.
fn weighed(
    options: &Options,
    model: &Model,
    samples: &[Vec<f32>],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Leverage, CompileError> {
    let every = samples.len().div_ceil(WEIGHED).max(1);
    let network = &model.network;
    let inputs = samples.iter().step_by(every).map(|s| network.input.quantise(s, network.activation_bits));
    let inputs: Vec<Vec<i64>> = inputs.collect();
    tell(Event::Weighing(0, inputs.len()));
    let mut heard = |done| tell(Event::Weighing(done, inputs.len()));
    Ok(leverage(options.cpu, model, &inputs, &mut heard)?)
}

/// How much a hidden unit weighs, and the widths that are to be tried, narrow ones first.
fn widths(
    options: &Options,
    but_for_width: &quantise::Options,
    calibrated: &Samples<'_>,
    samples: &[Vec<f32>],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Leverage, Vec<Width>), CompileError> {
    let bits: Vec<u32> = match &options.widths {
        Widths::Bits(bits) => vec![*bits],
        Widths::Among(bits) => bits.clone().collect(),
    };
    let (model, report) = first_that_can_be(&bits, but_for_width, calibrated)?;
    let leverage = weighed(options, &model, samples, tell)?;
    let network = &model.network;

    let with = |hiding| move |activation_bits| Width { activation_bits, hiding };
    let widths = match options.hide {
        Hide::As(hiding) => bits.into_iter().map(with(hiding)).collect(),
        Hide::For(queries) if queries <= 1.0 => bits.into_iter().map(with(Hiding::NONE)).collect(),
        Hide::For(queries) => {
            let noise_bits = Hiding::noise_bits_for(queries, leverage.longest).unwrap_or(MAX_NOISE_BITS);
            let first = fewest_guard_bits(&model, &report, noise_bits, options.bound);
            let narrow = network.activation_bits;
            // (More noise than values are wide is none.)
            let width = |activation_bits: u32, guard_bits: u32| {
                let noise_bits = noise_bits.min((activation_bits + guard_bits).saturating_sub(NOISE_MARGIN));
                Width { activation_bits, hiding: Hiding { guard_bits, noise_bits } }
            };
            let narrow_ones = (first..=MOST_GUARD_BITS).map(|guard_bits| width(narrow, guard_bits));
            let wide_ones = bits.iter().filter(|&&bits| bits > narrow);
            narrow_ones.chain(wide_ones.map(|&bits| width(bits, MOST_GUARD_BITS))).collect()
        }
    };
    Ok((leverage, widths))
}

/// The width with less noise, where answers are off by `error`: as much less as keeps them within `bound`, if it is the noise that they
/// are off by. `None` where there is none to take away.
fn with_less_noise(width: Width, error: f64, bound: f64) -> Option<Width> {
    let Hiding { guard_bits, noise_bits } = width.hiding;
    let excess = (error / bound).log2().ceil().clamp(1.0, 32.0) as u32;
    let noise_bits = noise_bits.saturating_sub(excess).max(LEAST_NOISE_BITS.min(noise_bits));
    (noise_bits < width.hiding.noise_bits)
        .then_some(Width { hiding: Hiding { guard_bits, noise_bits }, ..width })
}

/// The model at the narrowest of these widths where there is one.
fn first_that_can_be(
    bits: &[u32],
    but_for_width: &quantise::Options,
    calibrated: &Samples<'_>,
) -> Result<(Model, Report), CompileError> {
    let of = |activation_bits| quantise::Options { activation_bits, ..but_for_width.clone() };
    let mut last = None;
    for &bits in bits {
        match calibrated.quantise(&of(bits)) {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
    }
    let none = || QuantiseError::Option {
        what: "widths of activations",
        found: "none".into(),
        allowed: "one or more",
    };
    Err(last.unwrap_or_else(none).into())
}

/// From how many guard bits on the noise may be within the bound: its deviation is at most half the bound, beside the largest answer.
fn fewest_guard_bits(model: &Model, report: &Report, noise_bits: u32, bound: f64) -> u32 {
    let largest = report.nodes.last().map_or(0.0, |node| node.range * node.scale);
    let fine = |&guard_bits: &u32| {
        let room = model.network.activation_bits + guard_bits >= noise_bits + NOISE_MARGIN;
        room && Hiding { guard_bits, noise_bits }.noise_places() <= 0.5 * bound * largest
    };
    (2..MOST_GUARD_BITS).find(fine).unwrap_or(MOST_GUARD_BITS)
}

#[cfg(test)]
mod tests {
    use jaguar_graph::float::{Add, Bias, Function, Graph, Input, Linear, Node, Op, Product};
    use jaguar_graph::network::{self, Shape};
    use jaguar_ring::cpu::Cpu;

    use super::*;

    /// A layer of one channel that takes so much of two.
    fn layer(weights: [f32; 2]) -> Op {
        let spec = network::Linear {
            out_channels: 1,
            kernel: [1; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pads: [0; 4],
            groups: 1,
            shift: 0,
            max_exponent: 0,
            blocks: None,
        };
        Linear { spec, weights: weights.to_vec(), bias: Bias::PerChannel(vec![0.0]) }.into()
    }

    /// Where narrow values do not do, factors are coarse by themselves: values before a curve that would round beyond what it takes, beside a product of
    /// others.
    #[test]
    fn factors_are_coarse_where_narrow_values_do_not_do() {
        const SHAPE: Shape = [1, 16, 16];
        let node = |(id, (op, inputs)): (usize, (Op, &[usize]))| {
            let shape = if id == 0 { [2, 16, 16] } else { SHAPE };
            Node { name: format!("n{id}"), op, inputs: inputs.to_vec(), shape }
        };
        let product = Product { gain: 1.0, offsets: [0.0; 2] };
        let nodes: [(Op, &[usize]); 7] = [
            (Input.into(), &[]),
            (layer([1.0, 0.0]), &[0]),
            (Function::gelu(false).into(), &[1]),
            (layer([0.0, 1.0]), &[0]),
            (layer([0.0, -0.7]), &[0]),
            (product.into(), &[3, 4]),
            (Add.into(), &[2, 5]),
        ];
        let nodes = nodes.into_iter().enumerate().map(node).collect();
        let graph = Graph { name: "test".into(), nodes, ..Graph::default() };
        // Of the first channel every other sample goes up to 65,535 with scales of the others: with a bit less, to 32,768 by chance, which a curve of
        // 17 bits does not have.
        let sample = |i: usize| {
            let first = |at: usize| match i % 2 {
                0 => 0.6 - at as f32 / 1024.0,
                _ if at < 16 => 0.999_984_74,
                _ => 0.8 - at as f32 / 512.0,
            };
            let second = |at: usize| match at {
                0 => 0.0,
                255 => 1.0,
                _ => 0.3 + (at * 7 % 23) as f32 / 46.0,
            };
            (0..256).map(first).chain((0..256).map(second)).collect::<Vec<f32>>()
        };
        let samples: Vec<Vec<f32>> = (0..4).map(sample).collect();
        let options =
            Options { hide: Hide::For(1.0), widths: Widths::Bits(18), bound: 0.02, ..Options::default() };
        let but_for_width = quantise::Options { headroom: 1.5, ..quantise::Options::default() };
        let calibrated = Samples::new(Cpu::detect(), &graph, &samples, &mut |_| ()).expect("images that fit");
        let fine = chosen(&options, &but_for_width, &calibrated, &samples, &mut |_| ()).expect("quantises");
        let mut tried = Vec::new();
        let mut bits = None;
        let mut tell = |event: Event<'_>| match event {
            Event::TriedCoarse(CoarseValues::Factors, bits, found) => {
                tried.push((bits, found.worst_relative_error));
            }
            Event::CoarseChosen(CoarseValues::Factors, found, _) => bits = Some(found),
            _ => (),
        };
        let before = fine.1.clone();
        let (_, found) = with_coarse_values(&options, &but_for_width, &calibrated, &samples, fine, &mut tell)
            .expect("quantises");
        let shift = |model: &Model| {
            let product = |node: &network::Node| Some(node.op.downcast_ref::<network::Product>()?.shift);
            model.network.nodes.iter().find_map(product).expect("a product")
        };
        assert!(bits.is_some_and(|bits| bits < 18), "{bits:?}, {tried:?}");
        assert!(shift(&found.model) < shift(&before.model));
        assert_eq!(found.model.network.value_bits()[1], 18);
        // Narrow ones were tried before, and are far off.
        assert!(before.kept && tried[0].1 > options.bound, "{tried:?}");
    }

    /// As long as was asked for, or as before where that is less; always where nothing was asked for.
    #[test]
    fn coarse_values_hide_as_long() {
        let before = hidden_for(16, 10.0);
        for (asked, now, hides) in [
            (0.9, 10.0, true),
            (0.9, 10.5, true),
            (0.9, 10.6, false),
            (0.99, 10.2, false),
            (2.0, 10.0, true),
            (2.0, 10.2, true),
            (2.0, 10.3, false),
        ] {
            assert_eq!(as_long(Hide::For(asked * before), 16, 10.0, now), hides, "{asked}, {now}");
        }
        assert!(as_long(Hide::For(1.0), 16, 10.0, 99.0) && as_long(Hide::As(8.into()), 16, 10.0, 99.0));
    }
}
