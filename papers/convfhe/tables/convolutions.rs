//! One convolution by batch and kernel (Figure 5): in coefficients, beside the same in slots.
//!
//! Every coefficient of a ciphertext carries a value. As in the paper rows follow each other, and a picture's margin is
//! cropped. What comes out is decrypted, and compared with the convolution in floating point.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jaguar_ckks::circuits::Evaluator as _;
use jaguar_ckks::convolution::{Convolution as Sum, Geometry, Kernel, Term};
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::packing::{self, Packer};
use jaguar_ckks::{
    Ciphertext, Complex, Context, EvaluationKeys, KeyKind, KeySpec, KeyedEvaluator, Plaintext, SecretKey,
    answer,
};
use jaguar_profile::busy;
use jaguar_ring::prg::Prg;

use super::rows::Convolution;

/// The level of what is convolved. A product is rescaled, so packing is at level 0.
const LEVEL: usize = 1;
/// log2 of the scales of the input and of the output, as in a layer.
const LOG_SCALES: [i32; 2] = [40, 42];
/// A value errs by less, or the run is refused. (Noise is below 2^-24.)
const MOST_ERROR: f64 = 1.0 / (1 << 16) as f64;

/// Times full batches of these sizes by turns, so often.
///
/// # Errors
/// If a batch does not fill a ciphertext with squares, or what comes out is no convolution.
pub fn measure(
    context: &Arc<Context>,
    batches: &[usize],
    kernels: &[usize],
    repeats: u32,
    in_slots: bool,
    mut row: impl FnMut(Convolution),
) -> Result<()> {
    let values = context.params().n();
    let secret = SecretKey::generate(context);
    let packer = Packer::new(
        context,
        EvaluationKeys::generate(&secret, &packing::key_specs(context, LEVEL - 1, 1))?,
        LEVEL - 1,
    )?;
    for &batch in batches {
        let side = (values / batch).isqrt();
        ensure!(
            batch.is_power_of_two() && batch >= 2 && side * side * batch == values,
            "{batch} channels do not fill {values} values with squares"
        );
        for _ in 0..repeats {
            for &kernel in kernels {
                let mut made = coefficients(&secret, &packer, [batch, side, kernel])?;
                slots(&secret, &mut made, in_slots)?;
                row(made);
            }
        }
    }
    Ok(())
}

/// Numbers in -1..1.
fn random(prg: &mut Prg, count: usize) -> Vec<f64> {
    (0..count).map(|_| prg.next_u64() as i64 as f64 * 2f64.powi(-63)).collect()
}

/// Times ours: weights' plaintexts, products, packing.
fn coefficients(
    secret: &SecretKey,
    packer: &Packer,
    [batch, side, kernel]: [usize; 3],
) -> Result<Convolution> {
    let (context, evaluator) = (secret.context(), packer.evaluator());
    let (values, mut prg) = (context.params().n(), Prg::from_os());
    let geometry =
        Geometry { outputs: batch, inputs: batch, height: kernel, width: kernel, stride: 1, padding: [0; 4] };
    let count = batch * kernel * kernel;
    // Sums are at most 1.
    let weights = random(&mut prg, batch * count).into_iter().map(|weight| weight / count as f64).collect();
    let grid = Grid::new([batch, side, side], 0, batch)?;
    let term = Term { kernel: Kernel::new(geometry, weights)?, grid, split: Split::WHOLE, factor: 1.0 };
    let convolution = Sum::new(vec![term], vec![0.0; batch], values)?;
    let input = grid.scatter(&random(&mut prg, values), values)?;
    let [scale, out_scale] = LOG_SCALES.map(|log_scale| f64::from(log_scale).exp2());
    let ct = secret.encrypt(&context.encode_coefficients(&input[0], LEVEL, scale)?, &mut prg).0;

    // Packing multiplies by 2^merges, rescaling divides by the modulus.
    let merges = Packer::merges(batch);
    let weights_scale = out_scale * context.params().modulus(LEVEL) / f64::from(merges).exp2() / scale;
    let all = busy::Start::now();
    let (mut weights_seconds, mut products_seconds) = (0.0, 0.0);
    let mut sums = Vec::with_capacity(batch);
    for out in 0..batch {
        let (span, plaintext) = busy::timed(|| convolution.plaintexts(evaluator, out, LEVEL, weights_scale));
        weights_seconds += span.elapsed.as_secs_f64();
        let plaintext = plaintext?.pop().context("one polynomial of weights")?;
        let (span, sum) =
            busy::timed(|| evaluator.multiply_plain(&ct, &plaintext).and_then(|ct| evaluator.rescale(&ct)));
        products_seconds += span.elapsed.as_secs_f64();
        sums.push(sum?);
    }
    let leaf = |c: usize| Ok::<_, jaguar_ckks::Error>(Some(sums[c].clone()));
    let (span, packed) = busy::timed(|| packer.pack(batch, merges, leaf));
    let packing_seconds = span.elapsed.as_secs_f64();
    let busy_seconds = all.span().busy.as_secs_f64();

    let found = secret.decrypt(&evaluator.with_scale(packed?, out_scale));
    let expected = convolution.plain(&[&input], 0)?;
    let error = found.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    ensure!(error < MOST_ERROR, "a convolution of {batch} channels errs by {error}");
    Ok(Convolution {
        batch,
        side,
        kernel,
        weights_seconds,
        products_seconds,
        packing_seconds,
        busy_seconds,
        vector_seconds: 0.0,
        vector_busy_seconds: 0.0,
        vector_rotations: 0,
        vector_products: 0,
    })
}

/// Counts, and times if asked to, the baseline: one of its four convolutions, four times. Half as many values fit into
/// slots, so there are two ciphertexts of the input and two of the output.
fn slots(secret: &SecretKey, made: &mut Convolution, timed: bool) -> Result<()> {
    let baseline = InSlots { channels: made.batch / 2, side: made.side, kernel: made.kernel };
    let (rotations, products) = baseline.counts();
    (made.vector_rotations, made.vector_products) = (4 * rotations, 4 * products);
    if !timed {
        return Ok(());
    }
    let context = secret.context();
    let evaluator = baseline.evaluator(secret)?;
    let mut prg = Prg::from_os();
    let encode = |log_scale: i32| context.encode_slots(&[Complex::ONE], LEVEL, f64::from(log_scale).exp2());
    let input = secret.encrypt(&encode(LOG_SCALES[0])?, &mut prg).0;
    // One for all: times do not depend on it.
    let weights = encode(LOG_SCALES[0])?;
    let (span, sum) = busy::timed(|| baseline.convolve(&evaluator, &input, |_, _| &weights));
    sum?;
    (made.vector_seconds, made.vector_busy_seconds) =
        (4.0 * span.elapsed.as_secs_f64(), 4.0 * span.busy.as_secs_f64());
    Ok(())
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
struct InSlots {
    channels: usize,
    side: usize,
    kernel: usize,
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
    fn evaluator(&self, secret: &SecretKey) -> Result<KeyedEvaluator> {
        let context = secret.context();
        let mut steps = self.taps();
        steps.push(self.place());
        steps.sort_unstable();
        steps.dedup();
        let spec = |step: usize| {
            let kind = KeyKind::Galois(context.rotation(step));
            KeySpec { kind, level: LEVEL, special: answer::SPECIAL }
        };
        let specs: Vec<_> = steps.into_iter().filter(|&step| step != 0).map(spec).collect();
        Ok(KeyedEvaluator::new(context, EvaluationKeys::generate(secret, &specs)?))
    }

    /// How many rotations, and products with plaintexts, one call of [`convolve`](Self::convolve) takes.
    fn counts(&self) -> (usize, usize) {
        let taps = self.kernel * self.kernel;
        (taps - 1 + self.channels - 1, taps * self.channels)
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
    fn convolve<'a>(
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

#[cfg(test)]
mod tests {
    use jaguar_ckks::{Literal, Parameters};
    use jaguar_ring::cpu::Cpu;

    use super::*;

    fn context() -> Arc<Context> {
        Context::new(Cpu::detect(), Parameters::new(&Literal::insecure(10)).unwrap(), 1).unwrap()
    }

    /// The baseline is timed as it is: it must be a convolution.
    #[test]
    fn slots_hold_the_convolution() {
        let context = context();
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
        assert_eq!((7 + 8, products.get()), baseline.counts());
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

    #[test]
    fn every_case_is_measured() {
        let (context, mut rows) = (context(), Vec::new());
        measure(&context, &[4, 16], &[3, 5], 2, true, |row| rows.push(row)).unwrap();
        let cases: Vec<_> = rows.iter().map(|row| (row.batch, row.side, row.kernel)).collect();
        let of = |batch, side| [(batch, side, 3), (batch, side, 5)].repeat(2);
        assert_eq!(cases, [of(4, 16), of(16, 8)].concat());
        // Table I of the paper, for four convolutions of eight channels: 4·(9 + 8 - 2) rotations, 4·9·8 products.
        assert_eq!((rows[4].vector_rotations, rows[4].vector_products), (60, 288));
        for row in rows {
            let seconds =
                [row.weights_seconds, row.products_seconds, row.packing_seconds, row.vector_seconds];
            assert!(seconds.iter().all(|&seconds| seconds > 0.0), "{row:?}");
            assert!(row.busy_seconds > 0.0 && row.vector_busy_seconds > 0.0, "{row:?}");
        }
        let refused = measure(&context, &[3], &[3], 1, false, |_| ()).unwrap_err().to_string();
        assert!(refused.contains("3 channels do not fill 1024 values"), "{refused}");
    }
}
