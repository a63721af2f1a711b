//! The paper's baseline (Section V): values in slots, row by row. One convolution (Figure 5), and a whole layer with its
//! bootstrap (Figure 6).
//!
//! ```text
//! level 1 → convolution → level 0 → ModUp → CtoS → sine → StoC → ReLU → level 1
//! ```
//!
//! Beside ours StoC stands in front of ReLU, eleven levels higher, where it costs more. That is the paper's Figure 4, and the order of
//! the moduli in its Table II. Two things make it cheaper than the paper's, so that it has the care that ours has:
//!
//! - The sums of the channels are moved by Horner's rule, so they share a key; keys of a convolution are for its level, in one digit.
//! - *Real slots need half of the coefficients.* Slots are real exactly if a_{2n-k} = -a_k and a_n = 0, for a polynomial of 2n
//!   coefficients. Then z = 2·Re(Σ_{k<n} a_k·ζ^k) - a_0. So the sine is taken of a_0 … a_{n-1} alone, in one
//!   ciphertext, and a conjugation behind StoC gives the rest. (The paper packs two ciphertexts as real and imaginary parts for that.)

use anyhow::{Context as _, Result, ensure};
use jaguar_ckks::circuits::{
    Composite, Evaluator, Fourier, Layout, Matrix, Outline, Shape, Sine, even_layers,
};
use jaguar_ckks::{
    Ciphertext, Complex, Context, EvaluationKeys, KeyKind, KeySpec, KeyedEvaluator, Literal, Parameters,
    Plaintext, SecretKey, answer, wire,
};
use jaguar_profile::{busy, memory};
use jaguar_ring::prg::Prg;

use super::rows::Layer;

/// The level of what is convolved. A product is rescaled.
pub const LEVEL: usize = 1;
/// log2 of the scales of a convolution's input and output, as in a layer of ours.
pub const LOG_SCALES: [i32; 2] = [40, 42];

/// A key for [`LEVEL`], of one digit.
pub fn low_key(kind: KeyKind) -> KeySpec {
    KeySpec { kind, level: LEVEL, special: answer::SPECIAL }
}

/// A convolution in slots, the paper's baseline (Section III-C, after Gazelle): `channels` channels of side × side values
/// fill all slots, row by row, and kernels have an odd side.
///
/// ```text
/// out = Σ_d rotation by d·side² of Σ_tap weights_{d,tap} ⊙ rotation by tap of in
/// ```
///
/// It takes kernel² - 1 rotations of one ciphertext, which share its digits, kernel²·channels products, and channels - 1
/// rotations of sums, which share a key.
pub struct InSlots {
    pub channels: usize,
    pub side: usize,
    pub kernel: usize,
}

impl InSlots {
    fn place(&self) -> usize {
        self.side * self.side
    }

    /// How far each weight's input stands from its output, to the left, row by row: modulo the slots.
    fn taps(&self) -> Vec<usize> {
        let (half, slots) = (self.kernel / 2, self.channels * self.place());
        let each = (0..self.kernel).flat_map(|a| (0..self.kernel).map(move |b| (a, b)));
        each.map(|(a, b)| (slots + a * self.side + b - half * self.side - half) % slots).collect()
    }

    /// Keys for its rotations, at their level, with one digit.
    pub fn evaluator(&self, secret: &SecretKey) -> Result<KeyedEvaluator> {
        let context = secret.context();
        let mut steps = self.taps();
        steps.push(self.place());
        steps.sort_unstable();
        steps.dedup();
        let spec = |step: usize| low_key(KeyKind::Galois(context.rotation(step)));
        let specs: Vec<_> = steps.into_iter().filter(|&step| step != 0).map(spec).collect();
        Ok(KeyedEvaluator::new(context, EvaluationKeys::generate(secret, &specs)?))
    }

    /// How many rotations, products with plaintexts and keys one call of [`convolve`](Self::convolve) takes.
    pub fn counts(&self) -> [usize; 3] {
        let taps = self.kernel * self.kernel;
        [taps - 1 + self.channels - 1, taps * self.channels, taps]
    }

    /// What [`convolve`](Self::convolve) gives for weights that are all 1.
    fn alike(&self, x: &[f64]) -> Vec<f64> {
        let (n, taps) = (x.len(), self.taps());
        let around: Vec<f64> = (0..n).map(|slot| taps.iter().map(|tap| x[(slot + tap) % n]).sum()).collect();
        (0..n).map(|slot| (slot % self.place()..n).step_by(self.place()).map(|at| around[at]).sum()).collect()
    }

    /// What is multiplied to the rotation by a tap for diagonal d, without a scale. `kernels` are `[out, in, kernel, kernel]`.
    #[cfg(test)]
    fn weights(&self, kernels: &[f64], d: usize, tap: usize) -> Vec<Complex> {
        let (side, half) = (self.side, self.kernel / 2);
        let taps = self.kernel * self.kernel;
        let inside = |at: usize, offset: usize| (half..side + half).contains(&(at + offset));
        let value = |slot: usize| {
            let (c, i, j) = (slot / self.place(), slot / side % side, slot % side);
            let out = (c + self.channels - d) % self.channels;
            let weight = kernels[(out * self.channels + c) * taps + tap];
            let there = inside(i, tap / self.kernel) && inside(j, tap % self.kernel);
            Complex::from(if there { weight } else { 0.0 })
        };
        (0..self.channels * self.place()).map(value).collect()
    }

    /// Computes it; `weights` gives the plaintext for a diagonal and a tap.
    pub fn convolve<'a>(
        &self,
        evaluator: &KeyedEvaluator,
        input: &Ciphertext,
        weights: impl Fn(usize, usize) -> &'a Plaintext,
    ) -> Result<Ciphertext, jaguar_ckks::Error> {
        let context = evaluator.context();
        let elements: Vec<_> = self.taps().into_iter().map(|step| context.rotation(step)).collect();
        let rotated = evaluator.automorphisms(input, &elements)?;
        let diagonal = |d: usize| {
            let mut sum = evaluator.multiply_plain(&rotated[0], weights(d, 0))?;
            for (tap, ct) in rotated.iter().enumerate().skip(1) {
                evaluator.multiply_add(&mut sum, ct, weights(d, tap))?;
            }
            Ok(sum)
        };
        // One rotation for all diagonals above the next one (Horner's rule).
        let mut out = diagonal(self.channels - 1)?;
        for d in (0..self.channels - 1).rev() {
            out = evaluator.add(&evaluator.rotate(&out, self.place())?, &diagonal(d)?)?;
        }
        Ok(out)
    }
}

/// As many matrices as ours has, the sine of ours.
const TO_SLOTS: usize = 4;
const TO_COEFFICIENTS: usize = 3;
const SINE_DEGREE: usize = 30;
const DOUBLINGS: u32 = 3;
const LARGEST_INTEGER: f64 = 15.0;
/// What giant steps and keys count, in hoisted rotations: as in ours, so both have keys of 3 GB in memory.
const GIANT_COST: f64 = 4.0;
const KEY_COST: f64 = 5.0;
/// Which levels a mask of ones is multiplied at: behind ReLU's sign.
const MASK_LEVEL: usize = LEVEL + 2;
/// How many times larger a layer's bound is than its values, as in calibration.
const MARGIN: f64 = 1.5;
/// A value errs by less beside what the polynomials give, or the run is refused. (Noise in slots is a root of N larger than
/// noise in coefficients.)
const MOST_ERROR: f64 = 1.0 / (1 << 9) as f64;

/// The moduli of a set of ours in the baseline's order: as many of the same sizes, so as secure.
///
/// ```text
/// q0 50 | convolution 50 | ReLU 11 times 40 | StoC 40, 30, 30 | sine 8 times 50 | CtoS 4 times 50
/// ```
fn in_order(ours: Literal) -> Literal {
    let Literal { name, levels, .. } = &ours;
    let mut sorted = levels.clone();
    sorted[2..16].rotate_left(TO_COEFFICIENTS);
    Literal { name: format!("{name}-slots"), levels: sorted, ..ours }
}

/// What is behind a convolution: a bootstrap and ReLU, of n real slots.
struct Behind<P> {
    n: usize,
    sine: Sine,
    to_slots: Vec<P>,
    to_coefficients: Vec<P>,
    relu: Composite,
}

impl<P> Behind<P> {
    fn new<E: Evaluator<Prepared = P>>(evaluator: &E, n: usize) -> Result<Self> {
        let q0 = evaluator.modulus(0);
        let message = f64::from(LOG_SCALES[1]).exp2() / q0;
        let amplitude = 1.0 / (std::f64::consts::TAU * message);
        let sine = Sine::new(SINE_DEGREE, DOUBLINGS, LARGEST_INTEGER + 0.25 + message, amplitude);
        let relu = Composite::by_name("7-7-13").context("no such polynomial")?;
        let low = LEVEL + relu.levels() + TO_COEFFICIENTS;
        ensure!(evaluator.top() == low + sine.depth() + TO_SLOTS, "not as many levels as a layer takes");
        let first = layout(n, even_layers(2 * n, TO_SLOTS)).to_slots(1.0 / sine.bound())?;
        let last = to_coefficients(n, 1.0)?;
        let encode = |fourier: &Fourier, begin: usize| {
            let matrices = fourier.matrices.iter().zip((0..=begin).rev());
            let prepared = matrices.map(|(m, level)| evaluator.prepare(m, level, evaluator.modulus(level)));
            prepared.collect::<Result<Vec<_>, _>>()
        };
        let to_slots = encode(&first, evaluator.top())?;
        let to_coefficients = encode(&last, low)?;
        Ok(Self { n, sine, to_slots, to_coefficients, relu })
    }

    fn transform<E: Evaluator<Prepared = P>>(
        evaluator: &E,
        ct: E::Ciphertext,
        matrices: &[P],
    ) -> Result<E::Ciphertext, E::Error> {
        let scale = evaluator.scale(&ct);
        let product =
            matrices.iter().try_fold(ct, |ct, m| evaluator.rescale(&evaluator.transform(&ct, m)?))?;
        Ok(evaluator.with_scale(product, scale))
    }

    /// From slots at level 0 to a_0 … a_{n-1} in slots.
    fn raised<E: Evaluator<Prepared = P>>(&self, e: &E, ct: &E::Ciphertext) -> Result<E::Ciphertext> {
        let raised = e.with_scale(e.raise(ct, 1, 2 * self.n)?, e.modulus(0));
        let both = Self::transform(e, raised, &self.to_slots)?;
        Ok(e.add(&both, &e.conjugate(&both)?)?)
    }

    fn reduced<E: Evaluator<Prepared = P>>(&self, e: &E, ct: &E::Ciphertext) -> Result<E::Ciphertext> {
        Ok(self.sine.evaluate(e, ct, f64::from(LOG_SCALES[0]).exp2())?)
    }

    /// Back to the slots that there were.
    fn back<E: Evaluator<Prepared = P>>(&self, e: &E, ct: E::Ciphertext) -> Result<E::Ciphertext> {
        let half = Self::transform(e, ct, &self.to_coefficients)?;
        Ok(e.add(&half, &e.conjugate(&half)?)?)
    }

    fn rectified<E: Evaluator<Prepared = P>>(
        &self,
        e: &E,
        ct: &E::Ciphertext,
        ones: &E::Plaintext,
    ) -> Result<E::Ciphertext> {
        Ok(self.relu.evaluate(e, ct, ones)?)
    }

    fn ones<E: Evaluator<Prepared = P>>(e: &E) -> Result<E::Plaintext> {
        Ok(e.encode(&[Complex::ONE], MASK_LEVEL, e.modulus(MASK_LEVEL))?)
    }
}

/// As if all of a smaller ring were in use: real and imaginary parts come apart by conjugation alone.
fn layout(n: usize, layers: Vec<usize>) -> Layout {
    Layout { slots: n, values: 2 * n, layers, giant_cost: GIANT_COST, key_cost: KEY_COST }
}

/// The matrices from n coefficients to `factor` times the slots.
fn to_coefficients(n: usize, factor: f64) -> Result<Fourier> {
    let turned = even_layers(2 * n, TO_COEFFICIENTS).into_iter().rev().collect();
    let mut last = layout(n, turned).to_coefficients(factor)?;
    // a_0 counts once, the others twice.
    halve_first(&mut last.matrices[0]);
    Ok(last)
}

/// Halves the column of slot 0.
fn halve_first(matrix: &mut Matrix) {
    let slots = matrix.slots;
    for term in matrix.giants.iter_mut().flat_map(|giant| &mut giant.terms) {
        let entry = &mut term.diagonal[(slots - term.rotation) % slots];
        *entry = entry.scaled(0.5);
    }
}

/// A server of the baseline, with the client's secret.
pub struct Baseline {
    secret: SecretKey,
    evaluator: KeyedEvaluator,
    behind: Behind<jaguar_ckks::PreparedMatrix>,
    ones: Plaintext,
}

impl Baseline {
    /// For layers of a quarter of N values, in the moduli of a set of ours.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub fn new(cpu: jaguar_ring::cpu::Cpu, ours: Literal, threads: usize) -> Result<Self> {
        let context = Context::new(cpu, Parameters::new(&in_order(ours))?, threads)?;
        let params = context.params();
        let n = params.n() / 4;
        let outline =
            Outline::new(params.n() / 2, (0..=params.top()).map(|level| params.modulus(level)).collect());
        let raised = f64::from(LOG_SCALES[1]).exp2();
        let counted = Behind::new(&outline, n)?;
        let slots =
            counted.reduced(&outline, &counted.raised(&outline, &Shape { level: 0, scale: raised })?)?;
        let back = counted.back(&outline, slots)?;
        counted.rectified(&outline, &back, &Behind::ones(&outline)?)?;
        let counts = outline.counts();
        let specs = context.circuit_keys(&counts);
        let keys: usize = specs.iter().map(|spec| wire::key_memory(&context, spec)).sum::<Result<_, _>>()?;
        let limbs = |level: usize| params.limbs(level) + params.special().len();
        let matrices =
            (0..).zip(&counts.levels).map(|(level, at)| at.plaintexts * limbs(level)).sum::<usize>();
        let needed = (keys + 8 * params.n() * matrices) as f64 / 1e9;
        if let Some(room) = memory::room() {
            let free = room.bytes as f64 / 1e9;
            ensure!(free >= needed, "the baseline takes {needed:.1} GB, and {free:.1} are free");
        }
        let secret = SecretKey::generate(&context);
        let evaluator = KeyedEvaluator::new(&context, EvaluationKeys::generate(&secret, &specs)?);
        let behind = Behind::new(&evaluator, n)?;
        let ones = Behind::ones(&evaluator)?;
        Ok(Self { secret, evaluator, behind, ones })
    }

    /// One layer by phase. Weights are all alike, as no time depends on them, so that one plaintext serves all.
    ///
    /// # Errors
    /// If the channels do not fill the slots that there are, or what comes out is not what the polynomials give.
    pub fn layer(&self, name: &str, [channels, side, kernel]: [usize; 3]) -> Result<Layer> {
        let Self { secret, evaluator, behind, ones } = self;
        let (n, context) = (behind.n, evaluator.context());
        ensure!(channels * side * side == n && kernel % 2 == 1, "{name}: not {n} values, or an even kernel");
        let convolution = InSlots { channels, side, kernel };
        let convolver = convolution.evaluator(secret)?;
        let mut prg = Prg::from_os();
        let x: Vec<f64> = (0..n).map(|_| prg.next_u64() as i64 as f64 * 2f64.powi(-63)).collect();
        let sums = convolution.alike(&x);
        // Of the bound, as calibration leaves it: at 1 the polynomial is steep, and noise in slots is large.
        let bound = MARGIN * sums.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let [scale, raised] = LOG_SCALES.map(|log_scale| f64::from(log_scale).exp2());
        let weights_scale = raised / scale * context.params().modulus(LEVEL);
        let weights = context.encode_slots(&[Complex::from(1.0 / bound)], LEVEL, weights_scale)?;
        let slots: Vec<_> = x.iter().map(|&x| Complex::from(x)).collect();
        let ct = secret.encrypt(&context.encode_slots(&slots, LEVEL, scale)?, &mut prg).0;

        let all = busy::Start::now();
        let (convolved, sum) =
            busy::timed(|| convolver.rescale(&convolution.convolve(&convolver, &ct, |_, _| &weights)?));
        let sum = sum?;
        let (ctos, coefficients) = busy::timed(|| behind.raised(evaluator, &sum));
        let coefficients = coefficients?;
        let (sine, reduced) = busy::timed(|| behind.reduced(evaluator, &coefficients));
        let reduced = reduced?;
        let (stoc, back) = busy::timed(|| behind.back(evaluator, reduced));
        let back = back?;
        let (relu, out) = busy::timed(|| behind.rectified(evaluator, &back, ones));
        let out = out?;
        let busy_seconds = all.span().busy.as_secs_f64();

        let error = slots_of(context, secret, &out, n)?
            .iter()
            .zip(&sums)
            .map(|(found, sum)| (*found - Complex::from(behind.relu.value(sum / bound))).abs())
            .fold(0.0, f64::max);
        ensure!(error < MOST_ERROR, "{name}: a layer in slots errs by {error}");
        let [convolution_seconds, ctos_seconds, sine_seconds, relu_seconds, stoc_seconds] =
            [convolved, ctos, sine, relu, stoc].map(|span| span.elapsed.as_secs_f64());
        Ok(Layer {
            network: name.to_owned(),
            index: 1,
            layers: 2,
            ciphertexts: 1,
            convolution_seconds,
            packing_seconds: 0.0,
            ctos_seconds,
            sine_seconds,
            relu_seconds,
            stoc_seconds,
            busy_seconds,
        })
    }
}

/// The first n slots of a ciphertext.
fn slots_of(context: &Context, secret: &SecretKey, ct: &Ciphertext, n: usize) -> Result<Vec<Complex>> {
    Ok(context.slots_of(&secret.decrypt(ct))?.into_iter().take(n).collect())
}

#[cfg(test)]
mod tests {
    use jaguar_ring::cpu::Cpu;

    use super::*;

    fn random(prg: &mut Prg, count: usize) -> Vec<f64> {
        (0..count).map(|_| prg.next_u64() as i64 as f64 * 2f64.powi(-63)).collect()
    }

    /// The baseline is timed as it is: it must be a convolution.
    #[test]
    fn slots_hold_the_convolution() {
        let params = Parameters::new(&Literal::n16().insecure(10)).unwrap();
        let context = Context::new(Cpu::detect(), params, 1).unwrap();
        let secret = SecretKey::generate(&context);
        let baseline = InSlots { channels: 8, side: 8, kernel: 3 };
        let evaluator = baseline.evaluator(&secret).unwrap();
        let mut prg = Prg::new([1; 32]);
        let (x, kernels) = (random(&mut prg, 8 * 64), random(&mut prg, 8 * 8 * 9));
        let encode = |slots: &[Complex], log_scale: i32| {
            context.encode_slots(slots, LEVEL, f64::from(log_scale).exp2()).unwrap()
        };
        let input: Vec<_> = x.iter().map(|&x| Complex::from(x)).collect();
        let ct = secret.encrypt(&encode(&input, 30), &mut prg).0;
        let plaintexts: Vec<_> = (0..8)
            .flat_map(|d| (0..9).map(move |tap| (d, tap)))
            .map(|(d, tap)| encode(&baseline.weights(&kernels, d, tap), 30))
            .collect();
        let products = std::cell::Cell::new(0);
        let weights = |d: usize, tap: usize| {
            products.set(products.get() + 1);
            &plaintexts[9 * d + tap]
        };
        let out = baseline.convolve(&evaluator, &ct, weights).unwrap();
        assert_eq!(baseline.counts(), [7 + 8, products.get(), 9]);
        let mut expected = Vec::new();
        for (o, i, j) in (0..8).flat_map(|o| (0..8).flat_map(move |i| (0..8).map(move |j| (o, i, j)))) {
            let mut sum = 0.0;
            for (c, a, b) in (0..8).flat_map(|c| (0..3).flat_map(move |a| (0..3).map(move |b| (c, a, b)))) {
                if (1..9).contains(&(i + a)) && (1..9).contains(&(j + b)) {
                    sum += kernels[((o * 8 + c) * 3 + a) * 3 + b] * x[(c * 8 + i + a - 1) * 8 + j + b - 1];
                }
            }
            expected.push(Complex::from(sum));
        }
        // A slot is at most the sum of all coefficients.
        let difference =
            evaluator.subtract(&out, &secret.encrypt(&encode(&expected, 60), &mut prg).0).unwrap();
        let most = secret.decrypt(&difference).iter().map(|x| x.abs()).fold(0.0, f64::max);
        assert!(1024.0 * most < 1e-3, "{most}");
    }

    /// The set's own record stands for the baseline's order, too.
    #[test]
    fn the_order_of_moduli_keeps_their_product() {
        let [ours, slots] = [Literal::n16(), in_order(Literal::n16())].map(|l| Parameters::new(&l).unwrap());
        assert_eq!((slots.name(), slots.security()), ("n16-slots", ours.security()));
        assert!((slots.log_modulus() - ours.log_modulus()).abs() < 1e-3);
        let bits = |level| slots.modulus(level).log2().round();
        assert_eq!([1, 2, 12, 13, 14, 15, 16].map(bits), [50.0, 40.0, 40.0, 40.0, 30.0, 30.0, 50.0]);
    }

    /// It is timed as it is: what comes out of a layer is compared with the polynomials, or refused.
    #[test]
    fn a_layer_in_slots_is_one() {
        let mut baseline = Baseline::new(Cpu::detect(), Literal::n16().insecure(10), 1).unwrap();
        for (channels, side, kernel) in [(4, 8, 3), (16, 4, 3)] {
            let layer = baseline.layer("small", [channels, side, kernel]).unwrap();
            assert_eq!((layer.index, layer.packing_seconds), (1, 0.0));
            let behind = [&layer.phases()[..1], &layer.phases()[2..]].concat();
            assert!(behind.iter().all(|&seconds| seconds > 0.0) && layer.busy_seconds > 0.0, "{layer:?}");
        }
        let refused = baseline.layer("odd", [4, 7, 3]).unwrap_err().to_string();
        assert_eq!(refused, "odd: not 256 values, or an even kernel");
        // Slots that are twice as large are another layer.
        let last = to_coefficients(256, 2.0).unwrap();
        let encode = |(m, level): (&Matrix, usize)| {
            baseline.evaluator.prepare(m, level, baseline.evaluator.modulus(level)).unwrap()
        };
        baseline.behind.to_coefficients = last.matrices.iter().zip([15, 14, 13]).map(encode).collect();
        let refused = baseline.layer("other", [4, 8, 3]).unwrap_err().to_string();
        assert!(refused.contains("other: a layer in slots errs by"), "{refused}");
    }
}
