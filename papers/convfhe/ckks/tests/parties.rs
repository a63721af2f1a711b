//! A client and a server that share nothing but bytes, by the public interface.

use jaguar_ckks::circuits::Evaluator;
use jaguar_ckks::{
    Complex, Context, Error, EvaluationKeys, KeyGenerator, KeyKind, KeySpec, KeyedEvaluator, Literal,
    Parameters, SecretKey, wire,
};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

const SCALE: f64 = (1u64 << 40) as f64;

/// What both know.
fn specs(context: &Context) -> Vec<KeySpec> {
    let kinds =
        [KeyKind::Relinearise, KeyKind::Galois(context.rotation(3)), KeyKind::Galois(context.conjugation())];
    kinds.map(|kind| context.key_spec(kind, 2)).to_vec()
}

/// The conjugate of x·y, rotated by 3, plus x.
fn serve(keys: &[u8], inputs: &[u8]) -> Result<Vec<u8>, Error> {
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::insecure(10))?, 2)?;
    let mut held = EvaluationKeys::new();
    let from = &mut &keys[..];
    for spec in specs(&context) {
        held.insert(wire::read_key(&context, &spec, from)?);
    }
    let evaluator = KeyedEvaluator::new(&context, held);
    let from = &mut &inputs[..];
    let (x, y) = (wire::read_seeded(&context, from)?, wire::read_seeded(&context, from)?);
    let product = evaluator.rescale(&evaluator.multiply(&x, &y)?)?;
    let moved = evaluator.conjugate(&evaluator.rotate(&product, 3)?)?;
    // x at the scale of the product.
    let modulus = evaluator.modulus(evaluator.level(&x));
    let x = evaluator.multiply_constant(&x, Complex::ONE, evaluator.scale(&moved) * modulus / SCALE)?;
    let sum = evaluator.add(&moved, &evaluator.rescale(&x)?)?;
    let mut answer = Vec::new();
    wire::write_ciphertext(&context, &sum, &mut answer)?;
    Ok(answer)
}

#[test]
fn a_client_and_a_server() -> Result<(), Error> {
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::insecure(10))?, 1)?;
    let slots = context.params().n() / 2;
    let secret = SecretKey::generate(&context);
    let mut generator = KeyGenerator::new(&secret);
    let (mut keys, mut expected_bytes) = (Vec::new(), 0);
    for spec in specs(&context) {
        wire::write_key(&context, &generator.key(&spec)?, &mut keys)?;
        expected_bytes += wire::key_bytes(&context, &spec)?;
    }
    assert_eq!(keys.len(), expected_bytes);

    let mut prg = Prg::from_os();
    let x: Vec<Complex> = (0..slots).map(|j| Complex::root(j, slots)).collect();
    let y: Vec<Complex> = (0..slots).map(|j| Complex::new(j as f64 / slots as f64, -0.5)).collect();
    let mut inputs = Vec::new();
    for slots in [&x, &y] {
        let plaintext = context.encode_slots(slots, 2, SCALE)?;
        wire::write_seeded(&context, &secret.encrypt(&plaintext, &mut prg), &mut inputs)?;
    }

    let answer = serve(&keys, &inputs)?;
    assert_eq!(answer.len(), wire::ciphertext_bytes(&context, 1)?);
    let found = context.slots_of(&secret.decrypt(&wire::read_ciphertext(&context, &mut &answer[..])?))?;
    for (j, &found) in found.iter().enumerate() {
        let k = (j + 3) % slots;
        let expected = (x[k] * y[k]).conjugate() + x[j];
        assert!((found - expected).abs() < 1e-6, "slot {j}: {found:?}, not {expected:?}");
    }

    // Under another secret it is noise.
    let other = SecretKey::generate(&context);
    let noise = other.decrypt(&wire::read_ciphertext(&context, &mut &answer[..])?);
    assert!(noise.iter().filter(|x| x.abs() > 1e6).count() > 1000);
    Ok(())
}
