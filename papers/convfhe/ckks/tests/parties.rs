//! A client and a server that share nothing but bytes, by the public interface.

use jaguar_ckks::circuits::Evaluator;
use jaguar_ckks::convolution::{Convolution, Geometry, Kernel, Term};
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::packing::{Packer, key_specs};
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
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::n16().insecure(10))?, 2)?;
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
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::n16().insecure(10))?, 1)?;
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

/// 16 values of each of 3 channels, each output the sum of a window of 2 × 2 of one channel, times the output's number.
fn grid() -> Result<Grid, Error> {
    Grid::new([3, 4, 4], 0, 4)
}

fn convolve(keys: &[u8], input: &[u8]) -> Result<Vec<u8>, Error> {
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::n16().insecure(10))?, 2)?;
    let mut held = EvaluationKeys::new();
    let from = &mut &keys[..];
    for spec in key_specs(&context, 0, 1) {
        held.insert(wire::read_key(&context, &spec, from)?);
    }
    let packer = Packer::new(&context, held, 0)?;
    let geometry = Geometry { outputs: 3, inputs: 3, height: 2, width: 2, stride: 2, padding: [0; 4] };
    let weight = |at: usize| if at / 12 == at / 4 % 3 { (at / 12 + 1) as f64 } else { 0.0 };
    let kernel = Kernel::new(geometry, (0..36).map(weight).collect())?;
    let term = Term { kernel, grid: grid()?, split: Split::WHOLE, factor: 1.0 };
    let convolution = Convolution::new(vec![term], vec![0.5; 3], 512)?;
    let ct = wire::read_seeded(&context, &mut &input[..])?;
    // Sums are below 2^10, q0 is 2^50.
    let packed = convolution.packed(&packer, &[&[ct]], 0, SCALE / 16.0)?;
    let mut answer = Vec::new();
    wire::write_ciphertext(&context, &packed, &mut answer)?;
    Ok(answer)
}

#[test]
fn a_convolution_by_bytes() -> Result<(), Error> {
    let context = Context::new(Cpu::detect(), Parameters::new(&Literal::n16().insecure(10))?, 1)?;
    let secret = SecretKey::generate(&context);
    let mut generator = KeyGenerator::new(&secret);
    let mut keys = Vec::new();
    for spec in key_specs(&context, 0, 1) {
        wire::write_key(&context, &generator.key(&spec)?, &mut keys)?;
    }
    // A header and a seed, and half of a digit modulo q0 and a special prime.
    assert_eq!(keys.len(), 10 * (104 + 2 * 1024 / 8 * 50));

    let tensor: Vec<f64> = (0..48).map(f64::from).collect();
    let plaintext = context.encode_coefficients(&grid()?.scatter(&tensor, 512)?[0], 1, SCALE)?;
    let mut input = Vec::new();
    let mut prg = Prg::from_os();
    wire::write_seeded(&context, &secret.encrypt(&plaintext, &mut prg), &mut input)?;
    let answer = convolve(&keys, &input)?;
    assert_eq!(answer.len(), wire::ciphertext_bytes(&context, 0)?);
    let all = secret.decrypt(&wire::read_ciphertext(&context, &mut &answer[..])?);
    let found = grid()?.strided([3, 2, 2], 2)?.gather(&[all.iter().step_by(2).copied().collect()])?;
    for (at, found) in found.into_iter().enumerate() {
        let (c, i, j) = (at / 4, at / 2 % 2, at % 2);
        let first = (16 * c + 8 * i + 2 * j) as f64;
        // first, first + 1, first + 4, first + 5.
        let expected = (c + 1) as f64 * (4.0 * first + 10.0) + 0.5;
        assert!((found - expected).abs() < 1e-6, "{at}: {found}, not {expected}");
    }

    // Keys that end early are refused.
    assert!(convolve(&keys[..keys.len() - 1], &input).is_err());
    Ok(())
}
