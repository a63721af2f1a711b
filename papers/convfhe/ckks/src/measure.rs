//! How long the operations take that a circuit is made of: `cargo run --release --example operations` prints them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jaguar_ring::prg::Prg;

use crate::circuits::Evaluator;
use crate::{
    Complex, Context, Error, EvaluationKeys, KeyGenerator, KeyKind, KeySpec, KeyedEvaluator, Poly, SecretKey,
    Values,
};

/// How long one operation took, at the top level: the least and the median of several runs.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was done.
    pub name: &'static str,
    /// The least time.
    pub least: Duration,
    /// The median.
    pub median: Duration,
}

fn measure(
    repeats: usize,
    name: &'static str,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<Measured, Error> {
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats.max(1) {
        let begin = Instant::now();
        run()?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    Ok(Measured { name, least: times[0], median: times[times.len() / 2] })
}

/// Times of transforms, changes of basis, key switches and what is made of them, with keys of its own.
///
/// # Errors
/// None that a checked set could give.
pub fn operations(context: &Arc<Context>, repeats: usize) -> Result<Vec<Measured>, Error> {
    let params = context.params();
    let (top, limbs, special) = (params.top(), params.primes().len(), params.special().len());
    let mut prg = Prg::from_os();
    let secret = SecretKey::generate(context);
    let mut generator = KeyGenerator::new(&secret);
    let mut keys = EvaluationKeys::new();
    let rotations: Vec<usize> = [1, 2].iter().map(|&steps| context.rotation(steps)).collect();
    let galois = rotations.iter().map(|&element| KeyKind::Galois(element));
    for kind in [KeyKind::Relinearise].into_iter().chain(galois) {
        keys.insert(generator.key(&KeySpec { kind, level: top, special })?);
    }
    for spec in context.ephemeral_keys() {
        keys.insert(generator.key(&spec)?);
    }
    let evaluator = KeyedEvaluator::new(context, keys);
    let scale = params.modulus(top);
    let plaintext = context.encode_slots(&[Complex::ONE], top, scale)?;
    let ct = secret.encrypt(&plaintext, &mut prg).0;
    let [a, _] = ct.halves();
    let wide: Poly<Values> =
        context.make(limbs, special, |_, i, limb| limb.copy_from_slice(a.limb(i % limbs)));
    let bottom = evaluator.drop_to(&ct, 0)?;

    let mut all = Vec::new();
    let mut limb = a.limb(0).to_vec();
    all.push(measure(8 * repeats, "transform of a limb", || {
        context.ntt(0).forward(&mut limb);
        Ok(())
    })?);
    all.push(measure(8 * repeats, "transform of a limb, back", || {
        context.ntt(0).backward(&mut limb);
        Ok(())
    })?);
    all.push(measure(repeats, "extension of the first digit to all primes", || {
        context.extend_first(special, a);
        Ok(())
    })?);
    all.push(measure(repeats, "decomposition into all digits", || {
        context.decompose(a, special);
        Ok(())
    })?);
    let digits = context.decompose(a, special);
    let kind = KeyKind::Galois(rotations[0]);
    let key = evaluator.key(kind, top)?;
    let sources = context.sources(rotations[0]);
    all.push(measure(repeats, "digits times a key", || {
        context.products(&digits, key, None, None);
        Ok(())
    })?);
    all.push(measure(repeats, "digits times a key, moved", || {
        context.products(&digits, key, Some(&sources), None);
        Ok(())
    })?);
    drop(digits);
    let mut copies: Vec<Poly<Values>> = (0..repeats).map(|_| wide.duplicate()).collect();
    all.push(measure(repeats, "division by P of one polynomial", || {
        if let Some(mut copy) = copies.pop() {
            context.mod_down(&mut copy);
        }
        Ok(())
    })?);
    drop(copies);
    all.push(measure(repeats, "rotation", || evaluator.automorphism(&ct, rotations[0]).map(drop))?);
    let one =
        measure(repeats, "one hoisted rotation", || evaluator.automorphisms(&ct, &rotations[..1]).map(drop))?;
    let two =
        measure(repeats, "two hoisted rotations", || evaluator.automorphisms(&ct, &rotations).map(drop))?;
    let more = |two: Duration, one: Duration| two.saturating_sub(one);
    all.push(Measured {
        name: "a hoisted rotation more",
        least: more(two.least, one.least),
        median: more(two.median, one.median),
    });
    all.push(measure(repeats, "product, relinearised", || evaluator.multiply(&ct, &ct).map(drop))?);
    all.push(measure(repeats, "rescaling", || evaluator.rescale(&ct).map(drop))?);
    all.push(measure(repeats, "ModUp", || evaluator.raise(&bottom, 1, params.n()).map(drop))?);
    Ok(all)
}
