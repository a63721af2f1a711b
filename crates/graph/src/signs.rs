//! How many low bits each layer's sign may leave out: `Report <- choose(model, inputs, price)`.
//!
//! A ReLU that leaves out s bits takes some values below 2^s for zero ([`crate::network::Relu`]), a max-pool that
//! does takes some values for the larger of two that are less than 2^(s-1) below it, and either is the cheaper for
//! it. This module finds, by layer, how many bits a network can spare on sample inputs, and by how much its results
//! then differ from those of exact signs.
//!
//! **The bound.** With the bits that [`choose`] returns, on every input and in each of several imitated runs, the
//! class is that of exact signs, and the logits differ by at most [`Options::bound`], relative to their spread, each part of the
//! output by itself ([`Heads::worst_error`]). No more values are out of range than with exact signs: a private run wraps these around,
//! which an imitated one does not. (A softmax that takes too small a value for the largest sums up exponentials beyond
//! all that calibration saw.) This was measured in just those runs, jointly for all layers; it promises nothing for other
//! inputs, which is why whoever reports the choice should report inputs that had no part in it beside it.
//!
//! **The search.** Lost values are many small errors of different layers, nearly independent, so their squares add up:
//!
//! 1. For each layer alone, everything before it exact, the squared error of the logits is measured at two widths:
//!    one that is the same for all, and then the one at which the layer would use up an equal part of the bound. In
//!    between and beyond them the logarithm of the squared error is taken as linear in s. (In theory it grows by 3
//!    for each bit while 2^s is small beside the values: twice the values, each with four times the square.)
//! 2. For a given budget of squared error, bits are handed out greedily: always the step, of whatever length, that
//!    saves the most for its damage. Steps may be long because prices fall in jumps, where a digit of the comparison
//!    goes.
//! 3. The whole choice is checked as stated above; the budget is raised until a check fails and lowered until one
//!    passes, a handful of times. What passes with the largest saving is the result; exact signs always pass.

use thiserror::Error;

use jaguar_ring::cpu::Cpu;

use crate::network::{Model, NodeId, argmax};
use crate::outputs::Heads;
use crate::reference::{self, Draws, ReferenceError, Run};

/// By what the bits to leave out are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The largest [`Heads::worst_error`] against exact signs in any run; more than 0.
    pub bound: f64,
    /// How many imitated runs of each input a choice must pass.
    pub draws: usize,
    /// How many inputs, evenly spread over those given, layers are measured on one by one.
    pub sensitivity_inputs: usize,
    /// The seed of the imitated runs: the same seed gives the same choice.
    pub seed: u64,
    /// What the reference is run with. The choice does not depend on it.
    pub cpu: Cpu,
}

impl Default for Options {
    fn default() -> Self {
        Self { bound: 0.01, draws: 2, sensitivity_inputs: 4, seed: 1, cpu: Cpu::default() }
    }
}

/// Why no choice could be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SignsError {
    /// Nothing to measure.
    #[error("reduced-precision signs need at least one calibration input")]
    NoInputs,
    /// A bound that is none.
    #[error("the bound on the error of logits is {0}; it must be more than 0")]
    Bound(f64),
    /// An input that does not fit.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

/// What was chosen for one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The node whose signs they are: a ReLU, ReLU6 or max-pool.
    pub node: NodeId,
    /// How many bits its sign leaves out; 1 is exact.
    pub ignored: u32,
    /// The error of logits that this layer alone should make.
    pub alone: f64,
    /// By how much its price falls against one bit left out, in the units of the price that [`choose`] was given.
    pub saving: u64,
}

/// What was chosen, and how it was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// By layer that has signs, in the network's order.
    pub layers: Vec<Choice>,
    /// The largest error of logits in a run of the final choice.
    pub worst_error: f64,
    /// How many runs that choice passed.
    pub runs: usize,
    /// The input (its index) on which the next larger budget failed, and how.
    pub limited_by: Option<(usize, Failure)>,
}

/// What signs of reduced precision did to a run that must not be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// The class was another one.
    Class,
    /// The error of logits was this, and beyond the bound.
    Error(f64),
    /// So many more values were out of range than with exact signs: a private run wraps them around.
    Overflows(usize),
}

/// How far the search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStage {
    /// So many of so many layers, over all inputs, measured by themselves.
    Layers(usize, usize),
    /// So many runs of so many of the check with this number.
    Check(usize, usize, usize),
}

/// At most so many choices are checked jointly.
const CHECKS: usize = 7;

/// A layer and what is known of it.
struct Candidate {
    node: NodeId,
    /// The most bits that it may leave out.
    most: u32,
    /// Measured: bits left out, mean squared error of logits.
    measured: Vec<(u32, f64)>,
}

/// Below this a squared error counts as none: it is that of a layer which nothing depends on.
const NOTHING: f64 = 1e-18;

impl Candidate {
    /// The squared error expected without `ignored` bits; see the module's header.
    fn damage(&self, ignored: u32) -> f64 {
        if ignored <= 1 {
            return 0.0;
        }
        let (at, log, slope) = match *self.measured.as_slice() {
            [] => return f64::INFINITY,
            [(s, e)] => (s, e.max(NOTHING).log2(), 3.0),
            [(s, e), (t, f), ..] => {
                let (e, f) = (e.max(NOTHING).log2(), f.max(NOTHING).log2());
                // Chance may turn a short line upside down.
                let slope =
                    if s == t { 3.0 } else { ((f - e) / (f64::from(t) - f64::from(s))).clamp(1.0, 4.0) };
                (t, f, slope)
            }
        };
        (log + slope * (f64::from(ignored) - f64::from(at))).exp2()
    }

    /// The most bits whose damage stays within `budget`.
    fn within(&self, budget: f64) -> u32 {
        (2..=self.most).rev().find(|&s| self.damage(s) <= budget).unwrap_or(1)
    }
}

/// Chooses for `model`, which has passed [`Model::validate`], on inputs as [`crate::network::InputSpec::quantise`]
/// makes them. `price` says what a node costs with so many bits left out. `stage` hears how far the search is.
///
/// Work: that of running the network about `layers · sensitivity_inputs + checks · draws · inputs` times, with up to
/// seven checks.
///
/// # Errors
/// [`SignsError`].
pub fn choose(
    model: &Model,
    inputs: &[Vec<i64>],
    price: &dyn Fn(NodeId, u32) -> u64,
    options: &Options,
    stage: &mut dyn FnMut(SearchStage),
) -> Result<Report, SignsError> {
    if inputs.is_empty() {
        return Err(SignsError::NoInputs);
    }
    if options.bound.is_nan() || options.bound <= 0.0 {
        return Err(SignsError::Bound(options.bound));
    }
    let mut model = model.clone();
    let mut layers: Vec<Candidate> = Vec::new();
    for node in 0..model.network.nodes.len() {
        if let Some(most) = most(&model, node) {
            layers.push(Candidate { node, most, measured: Vec::new() });
        }
    }
    measure(&mut model, &mut layers, inputs, options, stage)?;
    // By layer and bits; asked for once, since a max-pool's takes time to find.
    let prices: Vec<Vec<u64>> =
        layers.iter().map(|l| (1..=l.most).map(|s| price(l.node, s)).collect()).collect();

    let exact = inputs
        .iter()
        .map(|x| Ok(Exact::of(&model, &reference::run(options.cpu, &model, x)?)))
        .collect::<Result<Vec<_>, SignsError>>()?;
    let mut best = vec![1; layers.len()];
    let (mut worst_error, mut limited_by) = (0.0, None);
    let (mut passed, mut failed) = (0.0, f64::INFINITY);
    let mut budget = options.bound;
    for number in 1..=CHECKS {
        let bits = allocate(&layers, &prices, budget * budget);
        // Nothing new to learn where the next budget buys nothing.
        let outcome = if bits == best && number > 1 {
            Outcome::Passed(worst_error)
        } else {
            set(&mut model, &layers, &bits);
            check(&model, inputs, &exact, options, &mut |done, of| {
                stage(SearchStage::Check(number, done, of))
            })?
        };
        match outcome {
            Outcome::Passed(error) => {
                (best, worst_error, passed) = (bits, error, budget);
                budget = if failed.is_finite() { (passed * failed).sqrt() } else { budget * 1.6 };
            }
            Outcome::Failed(input, how) => {
                (failed, limited_by) = (budget, Some((input, how)));
                budget = if passed > 0.0 { (passed * failed).sqrt() } else { budget * 0.5 };
            }
        }
        if failed / passed < 1.1 {
            break;
        }
    }
    let layers = layers.iter().zip(&prices).zip(&best).map(|((layer, prices), &ignored)| Choice {
        node: layer.node,
        ignored,
        alone: layer.damage(ignored).sqrt(),
        saving: prices[0].saturating_sub(prices[ignored as usize - 1]),
    });
    Ok(Report {
        layers: layers.collect(),
        worst_error,
        runs: inputs.len() * options.draws.max(1),
        limited_by,
    })
}

/// Writes a choice into a network.
pub fn apply(model: &mut Model, report: &Report) {
    for choice in &report.layers {
        leave_out(model, choice.node, choice.ignored);
    }
}

/// The most bits that a node's sign may leave out; `None` where there is no such sign.
fn most(model: &Model, node: NodeId) -> Option<u32> {
    // Values of n bits, or of fewer, stay below 2^(n-2) where calibration is right: beyond n - 4 bits hardly a sign is left.
    let network = &model.network;
    let signs = network.nodes[node].op.signs()?;
    let bits = network.value_bits();
    let taken = network.nodes[node].inputs.iter().map(|&input| bits[input]).fold(0, u32::max);
    Some(signs.most_ignored(taken.min(network.activation_bits))).filter(|&most| most > 1)
}

fn leave_out(model: &mut Model, node: NodeId, bits: u32) {
    if let Some(node) = model.network.nodes.get_mut(node)
        && let Some(ignored) = node.op.ignored_mut()
    {
        // One bit costs nothing anywhere, and the plan leaves it out anyway.
        *ignored = if bits > 1 { bits } else { 0 };
    }
}

fn set(model: &mut Model, layers: &[Candidate], bits: &[u32]) {
    layers.iter().zip(bits).for_each(|(layer, &bits)| leave_out(model, layer.node, bits));
}

fn logits(model: &Model, output: &[i64]) -> Vec<f64> {
    model.network.output.logits(output)
}

/// Measures every layer by itself, twice; leaves the model's signs exact.
fn measure(
    model: &mut Model,
    layers: &mut [Candidate],
    inputs: &[Vec<i64>],
    options: &Options,
    stage: &mut dyn FnMut(SearchStage),
) -> Result<(), SignsError> {
    let count = options.sensitivity_inputs.clamp(1, inputs.len());
    let chosen: Vec<&Vec<i64>> = (0..count).map(|i| &inputs[i * inputs.len() / count]).collect();
    let of = 2 * layers.len() * count;
    let share = options.bound * options.bound / layers.len().max(1) as f64;
    let first = model.network.activation_bits.saturating_sub(8);
    set(model, layers, &vec![1; layers.len()]);
    let mut done = 0;
    let heads = Heads::new(&model.network);
    for pass in 0..2 {
        let at: Vec<u32> = layers
            .iter()
            .map(|l| match pass {
                0 => first.clamp(2, l.most),
                _ => match l.within(share).max(2) {
                    // A second look at the same place would give no slope.
                    same if same == l.measured[0].0 => {
                        if same < l.most {
                            same + 1
                        } else {
                            same - 1
                        }
                    }
                    other => other,
                }
                .clamp(2, l.most),
            })
            .collect();
        let mut sums = vec![0.0; layers.len()];
        for (index, input) in chosen.iter().enumerate() {
            let exact = reference::run(options.cpu, model, input)?.values;
            let want = logits(model, exact.last().map_or(&[], Vec::as_slice));
            for ((layer, &bits), sum) in layers.iter().zip(&at).zip(&mut sums) {
                let seed = options.seed.wrapping_add(index as u64);
                let output =
                    rerun(options.cpu, model, &exact, layer.node, bits, Draws { seed, rounding: false })?;
                *sum += output.map_or(0.0, |y| heads.worst_error(&logits(model, &y), &want).powi(2));
                done += 1;
                stage(SearchStage::Layers(done, of));
            }
        }
        for ((layer, bits), sum) in layers.iter_mut().zip(at).zip(sums) {
            layer.measured.push((bits, sum / count as f64));
        }
    }
    Ok(())
}

/// The output if one node's sign leaves out `bits` bits and everything else is exact; only what depends on it is
/// computed anew. `None` if the output does not.
fn rerun(
    cpu: Cpu,
    model: &mut Model,
    exact: &[Vec<i64>],
    node: NodeId,
    bits: u32,
    draws: Draws,
) -> Result<Option<Vec<i64>>, ReferenceError> {
    leave_out(model, node, bits);
    let network = &model.network;
    let mut changed: Vec<Option<Vec<i64>>> = vec![None; exact.len()];
    for id in node..network.nodes.len() {
        let of = &network.nodes[id].inputs;
        if id == node || of.iter().any(|&i| changed[i].is_some()) {
            let values: Vec<&[i64]> =
                of.iter().map(|&i| changed[i].as_deref().unwrap_or(&exact[i])).collect();
            let weights = model.weights.get(id).and_then(Option::as_ref);
            changed[id] = Some(reference::apply_op_drawn(cpu, network, id, weights, &values, draws)?);
        }
    }
    leave_out(model, node, 1);
    Ok(changed.pop().flatten())
}

/// Hands out bits by layer, greedily, while the sum of the squared errors stays within `budget`. `prices` are by
/// layer and bits, from one.
fn allocate(layers: &[Candidate], prices: &[Vec<u64>], budget: f64) -> Vec<u32> {
    let mut bits = vec![1u32; layers.len()];
    let mut spent = 0.0;
    loop {
        let mut best: Option<(f64, usize, u32, f64)> = None;
        for (i, layer) in layers.iter().enumerate() {
            for s in bits[i] + 1..=layer.most {
                let saving = prices[i][bits[i] as usize - 1].saturating_sub(prices[i][s as usize - 1]);
                let damage = (layer.damage(s) - layer.damage(bits[i])).max(f64::MIN_POSITIVE);
                let rate = saving as f64 / damage;
                if saving > 0 && spent + damage <= budget && best.is_none_or(|b| rate > b.0) {
                    best = Some((rate, i, s, damage));
                }
            }
        }
        let Some((_, i, s, damage)) = best else { return bits };
        bits[i] = s;
        spent += damage;
    }
}

enum Outcome {
    /// The largest error.
    Passed(f64),
    /// On this input.
    Failed(usize, Failure),
}

/// What a run with exact signs gives.
struct Exact {
    logits: Vec<f64>,
    overflows: usize,
}

impl Exact {
    fn of(model: &Model, run: &Run) -> Self {
        Self { logits: logits(model, run.output()), overflows: run.total_overflows() }
    }
}

/// Whether the model's signs keep the bound on every input in every draw.
fn check(
    model: &Model,
    inputs: &[Vec<i64>],
    exact: &[Exact],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Outcome, SignsError> {
    let mut worst = 0.0f64;
    let heads = Heads::new(&model.network);
    let draws = options.draws.max(1);
    for draw in 0..draws {
        for (input, (x, want)) in inputs.iter().zip(exact).enumerate() {
            let run = draw * inputs.len() + input;
            // Other draws than those that the layers were measured with.
            let seed = options.seed.wrapping_add(1 << 32).wrapping_add(run as u64);
            let drawn = reference::run_drawn(options.cpu, model, x, Draws { seed, rounding: false })?;
            let got = Exact::of(model, &drawn);
            progress(run + 1, draws * inputs.len());
            if argmax(&got.logits) != argmax(&want.logits) {
                return Ok(Outcome::Failed(input, Failure::Class));
            }
            if got.overflows > want.overflows {
                return Ok(Outcome::Failed(input, Failure::Overflows(got.overflows - want.overflows)));
            }
            let error = heads.worst_error(&got.logits, &want.logits);
            if error.is_nan() || error > options.bound {
                return Ok(Outcome::Failed(input, Failure::Error(error)));
            }
            worst = worst.max(error);
        }
    }
    Ok(Outcome::Passed(worst))
}
