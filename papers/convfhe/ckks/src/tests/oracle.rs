//! What Lattigo decrypts (`papers/convfhe/oracle/oracle_test.go`, in Go: `make test-oracle`): a secret and
//! two ciphertexts of given randomness, in a file. So the file also pins the wire format and everything that goes
//! into it.

use super::*;
use crate::wire;

/// Slot j of x and of y.
fn slots() -> [Vec<Complex>; 2] {
    let x = (0..N / 2).map(|j| Complex::new(j as f64 / 512.0, -(j as f64) / 1024.0)).collect();
    let y = (0..N / 2).map(|j| Complex::new(1.0 - j as f64 / 256.0, 0.25)).collect();
    [x, y]
}

/// The secret, x at level 1, and x·y rotated by 1 at level 0.
fn file() -> Vec<u8> {
    // The chain of the set with a name, in its small ring.
    let params = Parameters::new(&Literal::n16().insecure(10)).unwrap();
    let context = Context::new(Cpu::detect(), params, 1).unwrap();
    let secret = SecretKey::from_prg(&context, &mut Prg::new([3; 32]));
    let mut generator = KeyGenerator::from_prg(&secret, Prg::new([4; 32]));
    let mut keys = EvaluationKeys::new();
    for kind in [KeyKind::Relinearise, KeyKind::Galois(5)] {
        keys.insert(generator.key(&context.key_spec(kind, 1)).unwrap());
    }
    let evaluator = KeyedEvaluator::new(&context, keys);
    let mut prg = Prg::new([5; 32]);
    let [x, y] = slots().map(|slots| {
        // To multiples of 2^-30, none of which is near: sines differ in their last bit between machines.
        let grid = 2f64.powi(30);
        let round = |x: &f64| {
            let scaled = x * grid;
            assert!((scaled.fract().abs() - 0.5).abs() > 2f64.powi(-16), "{x}");
            scaled.round() / grid
        };
        let coefficients: Vec<f64> = context.encoder.coefficients(&slots).iter().map(round).collect();
        let plaintext = context.encode_coefficients(&coefficients, 1, 2f64.powi(40)).unwrap();
        secret.encrypt(&plaintext, &mut prg).0
    });
    let product = evaluator.rescale(&evaluator.multiply(&x, &y).unwrap()).unwrap();
    let rotated = evaluator.rotate(&product, 1).unwrap();
    let mut bytes = Vec::new();
    wire::write_secret(&secret, &mut bytes).unwrap();
    wire::write_ciphertext(&context, &x, &mut bytes).unwrap();
    wire::write_ciphertext(&context, &rotated, &mut bytes).unwrap();
    bytes
}

/// To write it anew: `JAGUAR_WRITE=1 cargo test --package jaguar-ckks the_file`.
#[test]
fn the_file_for_the_oracle_is_what_is_computed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/insecure-n10.bin");
    let bytes = file();
    if std::env::var_os("JAGUAR_WRITE").is_some() {
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == bytes, "{path} is another one");
}
