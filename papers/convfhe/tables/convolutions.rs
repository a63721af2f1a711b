//! One convolution by batch and kernel (Figure 5): in coefficients, beside the same in slots.
//!
//! Every coefficient of a ciphertext carries a value. As in the paper rows follow each other, and a picture's margin is
//! cropped. What comes out is decrypted, and compared with the convolution in floating point. Besides, the same with weights that are
//! encrypted, too (Section IV-D: who computes knows neither the picture nor the weights).

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jaguar_ckks::circuits::Evaluator as _;
use jaguar_ckks::convolution::{Convolution as Sum, Geometry, Kernel, Term};
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::packing::{self, Packer};
use jaguar_ckks::{Ciphertext, Complex, Context, EvaluationKeys, KeyKind, SecretKey};
use jaguar_profile::busy;
use jaguar_ring::prg::Prg;

use super::rows::Convolution;
use super::slots::{InSlots, LEVEL, LOG_SCALES, low_key};

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
    // Packing is at the level below that of the products.
    let mut specs = packing::key_specs(context, LEVEL - 1, 1);
    specs.push(low_key(KeyKind::Relinearise));
    let packer = Packer::new(context, EvaluationKeys::generate(&secret, &specs)?, LEVEL - 1)?;
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
    let pack = |sums: &[Ciphertext]| {
        let leaf = |c: usize| Ok::<_, jaguar_ckks::Error>(Some(sums[c].clone()));
        busy::timed(|| packer.pack(batch, merges, leaf))
    };
    let (span, packed) = pack(&sums);
    let packing_seconds = span.elapsed.as_secs_f64();
    let busy_seconds = all.span().busy.as_secs_f64();
    drop(sums);

    let expected = convolution.plain(&[&input], 0)?;
    let check = |packed: Ciphertext, what: &str| {
        let found = secret.decrypt(&evaluator.with_scale(packed, out_scale));
        let error = found.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        ensure!(error < MOST_ERROR, "a convolution of {batch} channels with {what} weights errs by {error}");
        Ok(())
    };
    check(packed?, "plain")?;

    // Whoever owns the weights has encrypted them, once.
    let (mut encrypted_seconds, mut encrypted_busy_seconds) = (0.0, 0.0);
    let mut add = |span: busy::Span| {
        encrypted_seconds += span.elapsed.as_secs_f64();
        encrypted_busy_seconds += span.busy.as_secs_f64();
    };
    let mut sums = Vec::with_capacity(batch);
    for out in 0..batch {
        let mut plaintexts = convolution.plaintexts(evaluator, out, LEVEL, weights_scale)?;
        let weights = secret.encrypt(&plaintexts.pop().context("one polynomial of weights")?, &mut prg).0;
        let (span, sum) =
            busy::timed(|| evaluator.multiply(&ct, &weights).and_then(|ct| evaluator.rescale(&ct)));
        add(span);
        sums.push(sum?);
    }
    let (span, packed) = pack(&sums);
    add(span);
    check(packed?, "encrypted")?;
    Ok(Convolution {
        batch,
        side,
        kernel,
        weights_seconds,
        products_seconds,
        packing_seconds,
        busy_seconds,
        encrypted_seconds,
        encrypted_busy_seconds,
        counts: [batch - 1, batch, merges as usize],
        vector_seconds: 0.0,
        vector_busy_seconds: 0.0,
        vector_counts: [0; 3],
    })
}

/// Counts, and times if asked to, the baseline: one of its four convolutions, four times. Half as many values fit into
/// slots, so there are two ciphertexts of the input and two of the output.
fn slots(secret: &SecretKey, made: &mut Convolution, timed: bool) -> Result<()> {
    let baseline = InSlots { channels: made.batch / 2, side: made.side, kernel: made.kernel };
    let [rotations, products, keys] = baseline.counts();
    made.vector_counts = [4 * rotations, 4 * products, keys];
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

#[cfg(test)]
mod tests {
    use jaguar_ckks::{Literal, Parameters};
    use jaguar_ring::cpu::Cpu;

    use super::*;

    fn context() -> Arc<Context> {
        Context::new(Cpu::detect(), Parameters::new(&Literal::n16().insecure(10)).unwrap(), 1).unwrap()
    }

    #[test]
    fn every_case_is_measured() {
        let (context, mut rows) = (context(), Vec::new());
        measure(&context, &[4, 16], &[3, 5], 2, true, |row| rows.push(row)).unwrap();
        let cases: Vec<_> = rows.iter().map(|row| (row.batch, row.side, row.kernel)).collect();
        let of = |batch, side| [(batch, side, 3), (batch, side, 5)].repeat(2);
        assert_eq!(cases, [of(4, 16), of(16, 8)].concat());
        // Table I of the paper, for four convolutions of eight channels: 4·(9 + 8 - 2) rotations, 4·9·8 products.
        assert_eq!(rows[4].vector_counts, [60, 288, 9]);
        assert_eq!(rows[4].counts, [15, 16, 4]);
        for row in rows {
            let seconds =
                [row.weights_seconds, row.products_seconds, row.packing_seconds, row.vector_seconds];
            assert!(seconds.iter().all(|&seconds| seconds > 0.0), "{row:?}");
            let busy = [
                row.busy_seconds,
                row.vector_busy_seconds,
                row.encrypted_seconds,
                row.encrypted_busy_seconds,
            ];
            assert!(busy.iter().all(|&seconds| seconds > 0.0), "{row:?}");
        }
        let refused = measure(&context, &[3], &[3], 1, false, |_| ()).unwrap_err().to_string();
        assert!(refused.contains("3 channels do not fill 1024 values"), "{refused}");
    }
}
