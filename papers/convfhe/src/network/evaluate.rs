//! A network on ciphertexts, for one client: all between an encrypted input and an encrypted answer.
//!
//! ```text
//! [logits / bound] + noise  <-  Evaluate([input / bound]; weights)
//! ```
//!
//! A layer is a [sum of convolutions](jaguar_ckks::convolution), packed, for each ciphertext of its output, and a
//! [bootstrap](jaguar_ckks::circuits::Bootstrap) with ReLU and a mask. Where a later layer takes the value in pieces,
//! each has a mask and a StoC, and all of them one bootstrap and one sign. The output is packed at level 1 and
//! [made safe](jaguar_ckks::answer). Values stay for as long as a layer takes them. What is done depends on the network's
//! sizes alone, on no weight and no value.
//!
//! Every scale between layers is a power of two that both sides know, and exact: 2^40 of values, 2^42 of what is
//! bootstrapped, 2^96 of the answer (for moduli of 100 bits). So nothing of scales passes between the parties but to be
//! checked, and bounds of values are factors of weights.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jaguar_ckks::answer::{self, Answerer};
use jaguar_ckks::circuits::{self, Bootstrap, Evaluator as _, Halt, Matrices, Watched};
use jaguar_ckks::convolution::Convolution;
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::packing::Packer;
use jaguar_ckks::{
    Ciphertext, Complex, Context, Error, KeyedEvaluator, Plaintext, PreparedMatrix, PublicKey, wire,
};
use jaguar_ring::prg::Prg;

use super::keys::{Keys, key_specs};
use super::plan::{Idle, NetworkError, Plan, circuit_plan, moduli, unfit, value_scale};
use crate::description::{Description, Term};

/// Evaluates a network for one client. It may be used by several threads, but each evaluation is spread over all threads
/// of the context already.
pub struct Evaluator {
    plan: Arc<Plan>,
    evaluator: KeyedEvaluator,
    matrices: Arc<Matrices<PreparedMatrix>>,
    packer: Packer,
    public: PublicKey,
    /// The layers' and the output's.
    convolutions: Vec<Convolution>,
    /// By grid and split, and by piece of a value: what ReLU keeps.
    masks: HashMap<(Grid, Split), Vec<Vec<Plaintext>>>,
    idle: Vec<Idle>,
    checks: usize,
    /// By value: the last layer that takes it.
    last: Vec<usize>,
}

impl From<circuits::Error<Halt<Error>>> for NetworkError {
    fn from(error: circuits::Error<Halt<Error>>) -> Self {
        error.failed().map_or(Self::Stopped, Self::Circuit)
    }
}

/// How long a layer took, by the clock and by phase. Of the output there are the first two only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Weights encoded, products, rescaling. Several threads do it beside packing: then it is their time by their number,
    /// and nearly so, since a thread that waits in a product may pack something else.
    pub convolution: Duration,
    /// Packing; of the output, all that makes it safe.
    pub packing: Duration,
    /// ModUp and CtoS.
    pub to_slots: Duration,
    /// The sine.
    pub sine: Duration,
    /// ReLU and the mask.
    pub relu: Duration,
    /// StoC.
    pub to_coefficients: Duration,
}

/// What all threads spend on a phase.
#[derive(Default)]
struct Clock(AtomicU64);

/// A thread's part, until it is dropped.
struct Running<'a> {
    clock: &'a Clock,
    begin: Instant,
}

impl Clock {
    fn begin(&self) -> Running<'_> {
        Running { clock: self, begin: Instant::now() }
    }

    /// Adds the phase, and what is left of an elapsed time, to a layer's times.
    fn end(self, elapsed: Duration, threads: usize, times: &mut Times) {
        let spent = Duration::from_nanos(self.0.into_inner() / threads as u64).min(elapsed);
        times.convolution += spent;
        times.packing += elapsed - spent;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let spent = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.clock.0.fetch_add(spent, Ordering::Relaxed);
    }
}

/// What `work` gives; its time is added.
fn timed<T>(phase: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let made = work();
    *phase += begin.elapsed();
    made
}

/// The ciphertexts of a value, one a piece, or nothing where no later layer takes it.
type Value = Option<Vec<Ciphertext>>;
/// What one term takes.
type Input<'a> = Cow<'a, [Ciphertext]>;

impl Evaluator {
    /// Prepares a calibrated plan for a client's keys: encodes matrices and masks.
    ///
    /// # Errors
    /// If the plan was made for another set, or has no bounds; [`NetworkError::Keys`] if a key is missing.
    pub fn new(plan: Arc<Plan>, context: Arc<Context>, keys: Keys) -> Result<Self, NetworkError> {
        let params = context.params();
        plan.check(params)?;
        plan.calibrated()?;
        let specs = key_specs(&context)?;
        if let Some(spec) = specs.circuit.iter().find(|spec| !keys.circuit.has(&context, spec)) {
            let missing = Error::Key { what: format!("{:?}", spec.kind), level: spec.level };
            return Err(NetworkError::Keys(missing));
        }
        let evaluator = KeyedEvaluator::new(&context, keys.circuit);
        let packer = Packer::new(&context, keys.packing, answer::LEVEL).map_err(NetworkError::Keys)?;
        Answerer::new(&packer, &keys.public).map_err(NetworkError::Keys)?;
        Self::made(plan, evaluator, packer, keys.public, None)
    }

    /// The same keys for another plan.
    ///
    /// # Errors
    /// As [`Evaluator::new`].
    pub fn with(self, plan: Arc<Plan>) -> Result<Self, NetworkError> {
        plan.check(self.evaluator.context().params())?;
        plan.calibrated()?;
        Self::made(plan, self.evaluator, self.packer, self.public, Some(self.matrices))
    }

    /// For a plan that was checked; matrices are made unless there are some for its polynomial.
    fn made(
        plan: Arc<Plan>,
        evaluator: KeyedEvaluator,
        packer: Packer,
        public: PublicKey,
        matrices: Option<Arc<Matrices<PreparedMatrix>>>,
    ) -> Result<Self, NetworkError> {
        let params = evaluator.context().params();
        let needed = circuit_plan(params, plan.composite());
        let matrices = match matrices.filter(|matrices| *matrices.plan() == needed) {
            Some(matrices) => matrices,
            None => Arc::new(Matrices::new(&evaluator, needed).map_err(|error| unfit(params, error))?),
        };
        let bootstrap = Bootstrap::with(&evaluator, Arc::clone(&matrices));
        let layers = plan.description().layers.len();
        let convolutions =
            (0..=layers).map(|index| plan.convolution(index, true)).collect::<Result<_, _>>()?;
        let mut masks = HashMap::new();
        for (grid, split) in plan.grids.iter().zip(&plan.splits).skip(1) {
            if let Entry::Vacant(place) = masks.entry((*grid, *split)) {
                let keep = plan.abreast(grid.kept(*split, plan.values())?);
                let encoded = keep.iter().map(|keep| bootstrap.mask(keep)).collect::<Result<Vec<_>, _>>();
                place.insert(encoded.map_err(NetworkError::Circuit)?);
            }
        }
        let last = last_takers(plan.description());
        let (idle, checks) = (plan.idle()?, plan.checks()?);
        Ok(Self { evaluator, matrices, packer, public, convolutions, masks, idle, checks, last, plan })
    }

    /// The encrypted answer to an encrypted input: as [`Public::encrypt`](super::Public::encrypt) makes
    /// it. `progress` is called after each layer, with how many are
    /// done, of how many, the output included. `stop` is looked at before each operation on ciphertexts of a bootstrap, and before
    /// each channel of a convolution.
    ///
    /// # Errors
    /// [`NetworkError::Message`] if the input is none, [`NetworkError::Stopped`] soon after `stop` is set.
    pub fn evaluate(
        &self,
        input: &[u8],
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, NetworkError> {
        let mut progress = |done, all, _: Times| progress(done, all);
        let layers = self.convolutions.len();
        let values = self.layers(input, layers, &mut progress, stop)?;
        self.answer(&values, &mut progress, stop)
    }

    /// The same, for measuring: up to layer number `first`, and the output if there are not so many layers. `watch` gets
    /// each layer's times besides what [`evaluate`](Self::evaluate) says of it. There is no answer if the output was left out.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn measure(
        &self,
        input: &[u8],
        first: usize,
        watch: &mut dyn FnMut(u32, u32, Times),
        stop: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, NetworkError> {
        let values = self.layers(input, first, watch, stop)?;
        if first < self.convolutions.len() { Ok(None) } else { self.answer(&values, watch, stop).map(Some) }
    }

    /// All values behind the first layers.
    fn layers(
        &self,
        input: &[u8],
        first: usize,
        watch: &mut dyn FnMut(u32, u32, Times),
        stop: &AtomicBool,
    ) -> Result<Vec<Value>, NetworkError> {
        let layers = self.convolutions.len();
        let stopped = || stop.load(Ordering::Relaxed);
        let going = || if stopped() { Err(NetworkError::Stopped) } else { Ok(()) };
        let watched = Watched::new(&self.evaluator, &stopped);
        let bootstrap = Bootstrap::with(&watched, Arc::clone(&self.matrices));
        let context = self.evaluator.context();
        let mut values: Vec<Value> = vec![Some(self.read(input)?)];
        for index in 0..first.min(layers - 1) {
            let mut times = Times::default();
            let made = context.run(|| self.layer(index, &values, &bootstrap, &going, &mut times))?;
            values.push(Some(made));
            for (value, &last) in values.iter_mut().zip(&self.last) {
                if last <= index {
                    *value = None;
                }
            }
            watch(index as u32 + 1, layers as u32, times);
        }
        Ok(values)
    }

    /// The answer's bytes.
    fn answer(
        &self,
        values: &[Value],
        watch: &mut dyn FnMut(u32, u32, Times),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, NetworkError> {
        let going = || if stop.load(Ordering::Relaxed) { Err(NetworkError::Stopped) } else { Ok(()) };
        going()?;
        let context = self.evaluator.context();
        let mut times = Times::default();
        let answer = context.run(|| self.output(values, &going, &mut times))?;
        let mut bytes = Vec::with_capacity(answer_bytes(context)?);
        wire::write_ciphertext(context, &answer, &mut bytes)?;
        let layers = self.convolutions.len() as u32;
        watch(layers, layers, times);
        Ok(bytes)
    }

    /// The input's ciphertexts: nothing but these, at the level and scale that they must have.
    fn read(&self, mut bytes: &[u8]) -> Result<Vec<Ciphertext>, NetworkError> {
        let context = self.evaluator.context();
        let refuse = |why: String| NetworkError::Message { what: "the input", why };
        let (found, count) = (bytes.len(), self.plan.grids()[0].polynomials());
        let needed = count * wire::seeded_bytes(context, answer::LEVEL)?;
        if found != needed {
            return Err(refuse(format!("{found} bytes, not {needed}")));
        }
        let scale = value_scale(context.params());
        let mut made = Vec::with_capacity(count);
        for part in 0..count {
            let ct = wire::read_seeded(context, &mut bytes)
                .map_err(|error| refuse(format!("ciphertext {part}: {error}")))?;
            if ct.level() != answer::LEVEL || ct.scale() != scale {
                let (level, scale) = (ct.level(), ct.scale().log2());
                return Err(refuse(format!("ciphertext {part} has level {level} and scale 2^{scale}")));
            }
            made.push(ct);
        }
        Ok(made)
    }

    /// What a layer takes: pieces of its terms, added up from those that there are.
    fn inputs<'a>(&self, index: usize, values: &'a [Value]) -> Result<Vec<Input<'a>>, NetworkError> {
        let (plan, evaluator) = (&self.plan, &self.evaluator);
        let layer = plan.description().layers.get(index).unwrap_or(&plan.description().output);
        let taken = layer.terms.iter().zip(&plan.taken[index]);
        let input = |(term, split): (&Term, &Split)| -> Result<Input<'a>, NetworkError> {
            let there = values[term.from].as_deref().unwrap_or(&[]);
            let (grid, own) = (plan.grids[term.from], plan.splits[term.from]);
            if own == *split {
                return Ok(Cow::Borrowed(there));
            }
            let finer = grid.pieces(own);
            let whole = grid.pieces(*split).into_iter().map(|piece| {
                let mut parts = finer.iter().zip(there).filter(|(part, _)| piece.covers(part));
                let missing = || NetworkError::Malformed("a value without pieces".into());
                let (_, first) = parts.next().ok_or_else(missing)?;
                Ok(parts.try_fold(first.clone(), |sum, (_, ct)| evaluator.add(&sum, ct))?)
            });
            whole.collect::<Result<Vec<_>, NetworkError>>().map(Cow::Owned)
        };
        taken.map(input).collect()
    }

    /// All pieces of value index + 1.
    fn layer(
        &self,
        index: usize,
        values: &[Value],
        bootstrap: &Bootstrap<'_, Watched<'_, KeyedEvaluator>>,
        going: &(dyn Fn() -> Result<(), NetworkError> + Sync),
        times: &mut Times,
    ) -> Result<Vec<Ciphertext>, NetworkError> {
        let (convolution, inputs) = (&self.convolutions[index], self.inputs(index, values)?);
        let inputs: Vec<&[Ciphertext]> = inputs.iter().map(|input| &input[..]).collect();
        let scale = f64::from(bootstrap.plan().log_raised_scale).exp2();
        let (grid, split) = (self.plan.grids[index + 1], self.plan.splits[index + 1]);
        let (pieces, masks) = (grid.pieces(split), &self.masks[&(grid, split)]);
        let mut made = Vec::with_capacity(pieces.len());
        for part in 0..grid.polynomials() {
            let (begin, clock) = (Instant::now(), Clock::default());
            let look = || going().map(|()| clock.begin());
            let packed = convolution.packed_while(&self.packer, &inputs, part, scale, look)?;
            clock.end(begin.elapsed(), self.threads(), times);
            let raised = timed(&mut times.to_slots, || bootstrap.raised(&packed))?;
            let slots = timed(&mut times.sine, || bootstrap.reduced(&raised))?;
            let steps = timed(&mut times.relu, || bootstrap.steps(&slots))?;
            for (_, mask) in pieces.iter().zip(masks).filter(|(piece, _)| piece.polynomial == part) {
                let kept = timed(&mut times.relu, || bootstrap.keep(&slots, &steps, mask))?;
                made.push(timed(&mut times.to_coefficients, || bootstrap.coefficients(&kept))?);
            }
        }
        Ok(made)
    }

    /// Logits and checks, and nothing else.
    fn output(
        &self,
        values: &[Value],
        going: &(dyn Fn() -> Result<(), NetworkError> + Sync),
        times: &mut Times,
    ) -> Result<Ciphertext, NetworkError> {
        let (begin, clock) = (Instant::now(), Clock::default());
        let layers = self.convolutions.len() - 1;
        let (convolution, inputs) = (&self.convolutions[layers], self.inputs(layers, values)?);
        let inputs: Vec<&[Ciphertext]> = inputs.iter().map(|input| &input[..]).collect();
        let answerer = Answerer::new(&self.packer, &self.public)?;
        let scale = f64::from(answerer.log_input_scale()).exp2();
        let output = &self.plan.description().output;
        let bound = output.bound.unwrap_or(1.0);
        let logits = self.plan.outputs() * self.plan.description().images;
        let leaf = |number: usize| -> Result<Ciphertext, NetworkError> {
            going()?;
            let _running = clock.begin();
            if let Some(check) = number.checked_sub(logits) {
                return self.check(check, &inputs, scale);
            }
            let (image, channel) = (number / self.plan.outputs(), number % self.plan.outputs());
            let sum = convolution.sum(&self.evaluator, &inputs, channel, scale)?;
            let sum = if image == 0 { sum } else { self.first(&sum, image * self.plan.apart)? };
            let bias = Complex::from(f64::from(output.bias.0[channel]) / bound);
            Ok(self.evaluator.add_constant(&sum, bias)?)
        };
        let answer = answerer.answer(logits + self.checks, leaf, &mut Prg::from_os())?;
        clock.end(begin.elapsed(), self.threads(), times);
        Ok(answer)
    }

    fn threads(&self) -> usize {
        self.evaluator.context().threads()
    }

    /// What stands at a place, at the first one.
    fn first(&self, ct: &Ciphertext, place: usize) -> Result<Ciphertext, NetworkError> {
        let n = self.evaluator.context().params().n();
        let moved = place * n / self.plan.values();
        Ok(self.evaluator.multiply_monomial(ct, (2 * n - moved) % (2 * n))?)
    }

    /// A sum, in coefficient 0, of places that hold zero, one place of each ciphertext that has such: see
    /// [`Plan::checks`]. What noise stands there is as it is, without a weight: far below the noise of the answer. Only
    /// what has filled the modulus comes out at all. (The output takes whole values, so places without one are zero
    /// in all their pieces.)
    fn check(&self, index: usize, inputs: &[&[Ciphertext]], scale: f64) -> Result<Ciphertext, NetworkError> {
        let evaluator = &self.evaluator;
        let mut sum: Option<Ciphertext> = None;
        for idle in &self.idle {
            let ct = inputs.get(idle.term).and_then(|parts| parts.get(idle.part));
            let place = idle.places[index % idle.places.len()];
            if let Some(ct) = ct {
                let moved = self.first(ct, place)?;
                sum = Some(match sum {
                    None => moved,
                    Some(sum) => evaluator.add(&sum, &moved)?,
                });
            }
        }
        let sum = sum.ok_or_else(|| NetworkError::Malformed("checks without a value".into()))?;
        Ok(evaluator.with_scale(sum, scale))
    }
}

/// By value: the last layer that takes it.
pub(super) fn last_takers(description: &Description) -> Vec<usize> {
    let mut last = vec![0; description.layers.len() + 1];
    for (index, layer) in description.all().enumerate() {
        layer.terms.iter().for_each(|term| last[term.from] = index);
    }
    last
}

/// Bytes of an answer.
///
/// # Errors
/// If the set has no level for it.
pub fn answer_bytes(context: &Context) -> Result<usize, NetworkError> {
    Ok(wire::ciphertext_bytes(context, answer::LEVEL)?)
}

/// Bytes of memory that an [`Evaluator`] takes while it evaluates, estimated from sizes: keys, matrices, masks, values,
/// what a bootstrap holds at its widest, and tables.
///
/// # Errors
/// If the plan was made for another set.
pub fn memory(context: &Context, plan: &Plan) -> Result<u64, NetworkError> {
    let params = context.params();
    plan.check(params)?;
    let circuit = circuit_plan(params, plan.composite());
    let counts = circuit.counts(params.n() / 2, moduli(params)).map_err(|error| unfit(params, error))?;
    let limb = 8 * params.n() as u64;
    let special = params.special().len() as u64;
    let limbs = |level: usize| params.limbs(level) as u64;
    let by_level = || (0..).zip(&counts.levels);
    let diagonals = by_level().filter(|(_, at)| at.transforms > 0);
    let matrices: u64 = diagonals.map(|(level, at)| at.plaintexts as u64 * (limbs(level) + special)).sum();
    // Rotations of the baby steps, two halves each, and as many again of one ciphertext's digits and sums; of each ciphertext of slots.
    let slots = params.values().div_ceil(params.n() / 2) as u64;
    let widest = by_level().map(|(level, at)| 2 * (at.babies as u64 + 8) * (limbs(level) + special)).max();
    let made: Vec<(&Grid, &Split)> = plan.grids.iter().zip(&plan.splits).collect();
    let pieces = |(grid, split): &(&Grid, &Split)| grid.pieces(**split).len() as u64;
    let distinct: HashSet<&(&Grid, &Split)> = made[1..].iter().collect();
    let masks: u64 = distinct.into_iter().map(|value| pieces(value) * limbs(circuit.mask_level())).sum();
    // Those that wait for a later layer: all, at most; and what one takes is added up of them.
    let values: u64 = made.iter().map(|value| 2 * pieces(value) * limbs(answer::LEVEL)).sum();
    // Of the transforms, by prime: two numbers a root, forward and back.
    let tables = 4 * (limbs(params.top()) + special);
    // What threads work on beside that: digits of one polynomial each.
    let beside = context.threads() as u64 * (limbs(params.top()) + special);
    let keys = key_specs(context)?.memory(context)? as u64;
    // Weights, in the description and in the convolutions.
    let terms = plan.description().all().flat_map(|layer| &layer.terms);
    let weights = 12 * terms.map(|term| term.weights.0.len() as u64).sum::<u64>();
    Ok(weights
        + keys
        + limb * (matrices + slots * widest.unwrap_or(0) + masks + values + tables + beside)
        + (128 << 20))
}
