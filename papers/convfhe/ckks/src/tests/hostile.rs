//! What is written comes back; anything else is an error, and nothing panics.

use super::*;
use crate::{Error, KeySpec, PublicKey, wire};

type Write<'a> = dyn Fn(&mut Vec<u8>) + 'a;
type Read<'a> = dyn Fn(&mut &[u8]) -> Result<(), Error> + 'a;

/// Writes, reads, and spoils.
fn try_all(name: &str, bytes: usize, write: &Write<'_>, read: &Read<'_>) {
    let mut written = Vec::new();
    write(&mut written);
    assert_eq!(written.len(), bytes, "{name}");
    let mut rest = &written[..];
    read(&mut rest).unwrap();
    assert!(rest.is_empty(), "{name}: {} bytes left", rest.len());
    let mut prg = prg(60);
    for _ in 0..60 {
        let cut = prg.next_u64() as usize % written.len();
        assert!(matches!(read(&mut &written[..cut]), Err(Error::Io { .. })), "{name}, cut at {cut}");
    }
    // The header, each byte.
    for at in 0..48 {
        let mut spoilt = written.clone();
        spoilt[at] ^= 1;
        assert!(matches!(read(&mut &spoilt[..]), Err(Error::Bytes { .. })), "{name}, byte {at}");
    }
    // Anything behind it: an error or another value.
    for _ in 0..300 {
        let mut spoilt = written.clone();
        let at = 48 + prg.next_u64() as usize % (written.len() - 48).min(120);
        spoilt[at] = prg.next_u64() as u8;
        let _ = read(&mut &spoilt[..]);
    }
    // Residues that are not reduced.
    let end = written.len();
    written[end - 50..].fill(0xff);
    assert!(matches!(read(&mut &written[..]), Err(Error::Bytes { .. })), "{name}: residues");
    assert!(matches!(read(&mut &vec![0xff; bytes][..]), Err(Error::Bytes { .. })), "{name}: all ones");
}

#[test]
fn ciphertexts() {
    let (party, mut prg) = (&*PARTY, prg(61));
    let context = &party.context;
    for level in [0, 1, 3] {
        let plaintext = context.encode_slots(&random_slots(&mut prg, 8), level, SCALE).unwrap();
        let fresh = party.secret.encrypt(&plaintext, &mut prg);
        let words = |ct: &Ciphertext| -> Vec<Vec<u64>> {
            ct.halves().iter().flat_map(|half| (0..half.len()).map(|i| half.limb(i).to_vec())).collect()
        };
        let bytes = wire::ciphertext_bytes(context, level).unwrap();
        let primes = &context.params().primes()[..context.params().limbs(level)];
        let bits: usize = primes.iter().map(|&p| (64 - p.leading_zeros()) as usize).sum();
        assert_eq!(bytes, 57 + 2 * N / 8 * bits);
        try_all("ciphertext", bytes, &|to| wire::write_ciphertext(context, &fresh.0, to).unwrap(), &|from| {
            wire::read_ciphertext(context, from).map(drop)
        });
        let half = 57 + 32 + N / 8 * bits;
        try_all("seeded ciphertext", half, &|to| wire::write_seeded(context, &fresh, to).unwrap(), &|from| {
            wire::read_seeded(context, from).map(drop)
        });
        let (mut whole, mut seeded) = (Vec::new(), Vec::new());
        wire::write_ciphertext(context, &fresh.0, &mut whole).unwrap();
        wire::write_seeded(context, &fresh, &mut seeded).unwrap();
        for read in
            [wire::read_ciphertext(context, &mut &whole[..]), wire::read_seeded(context, &mut &seeded[..])]
        {
            let read = read.unwrap();
            assert_eq!((read.level(), read.scale()), (level, SCALE));
            assert!(words(&read) == words(&fresh.0));
        }
    }
    for scale in [f64::NAN, 0.0, -1.0, f64::INFINITY, 2f64.powi(121)] {
        let plaintext = context.encode_slots(&[Complex::ONE], 0, SCALE).unwrap();
        let mut bytes = Vec::new();
        wire::write_ciphertext(context, &party.secret.encrypt(&plaintext, &mut prg).0, &mut bytes).unwrap();
        bytes[49..57].copy_from_slice(&scale.to_le_bytes());
        assert!(
            matches!(wire::read_ciphertext(context, &mut &bytes[..]), Err(Error::Scale { .. })),
            "{scale}"
        );
    }
}

#[test]
fn keys_that_were_sent_work() {
    let (party, mut prg) = (&*PARTY, prg(62));
    let context = &party.context;
    let public = party.secret.public_key(1, &mut prg).unwrap();
    try_all(
        "public key",
        48 + 1 + 32 + N / 8 * 100,
        &|to| wire::write_public_key(&public, to).unwrap(),
        &|from| wire::read_public_key(context, from).map(drop),
    );
    let mut bytes = Vec::new();
    wire::write_public_key(&public, &mut bytes).unwrap();
    let read: PublicKey = wire::read_public_key(context, &mut &bytes[..]).unwrap();
    let slots = random_slots(&mut prg, N / 2);
    let plaintext = context.encode_slots(&slots, 1, SCALE).unwrap();
    assert_slots(&party.slots(&read.encrypt(&plaintext, &mut prg).unwrap()), &slots, 2f64.powi(-20));
    let high = context.encode_slots(&slots, 2, SCALE).unwrap();
    assert!(matches!(read.encrypt(&high, &mut prg), Err(Error::Level { found: 2, .. })));

    let mut generator = KeyGenerator::new(&party.secret);
    let mut specs = vec![
        KeySpec { kind: KeyKind::Relinearise, level: 4, special: 6 },
        KeySpec { kind: KeyKind::Galois(5), level: 2, special: 1 },
    ];
    specs.extend(context.ephemeral_keys());
    let mut keys = EvaluationKeys::new();
    for spec in &specs {
        let key = generator.key(spec).unwrap();
        let bytes = wire::key_bytes(context, spec).unwrap();
        try_all(&format!("{spec:?}"), bytes, &|to| wire::write_key(context, &key, to).unwrap(), &|from| {
            wire::read_key(context, spec, from).map(drop)
        });
        let mut written = Vec::new();
        wire::write_key(context, &key, &mut written).unwrap();
        keys.insert(wire::read_key(context, spec, &mut &written[..]).unwrap());
        let other = KeySpec { kind: KeyKind::Galois(7), level: 2, special: 1 };
        assert!(matches!(wire::read_key(context, &other, &mut &written[..]), Err(Error::Bytes { .. })));
    }
    let evaluator = KeyedEvaluator::new(context, keys);
    let ct = party.encrypt(&slots, 4, SCALE, &mut prg);
    let squares: Vec<Complex> = slots.iter().map(|&x| x * x).collect();
    assert_slots(&party.slots(&evaluator.square(&ct).unwrap()), &squares, 2f64.powi(-20));
    let mut moved = slots.clone();
    moved.rotate_left(1);
    let rotated = evaluator.rotate(&evaluator.drop_to(&ct, 2).unwrap(), 1).unwrap();
    assert_slots(&party.slots(&rotated), &moved, 2f64.powi(-18));
    assert!(evaluator.raise(&evaluator.drop_to(&ct, 0).unwrap(), 1, N).is_ok());
}

#[test]
fn secrets() {
    let (party, mut prg) = (&*PARTY, prg(63));
    let context = &party.context;
    let mut written = Vec::new();
    try_all("secret", 48 + N, &|to| wire::write_secret(&party.secret, to).unwrap(), &|from| {
        wire::read_secret(context, from).map(drop)
    });
    wire::write_secret(&party.secret, &mut written).unwrap();
    for digit in 0..3 {
        let count = written[48..].iter().filter(|&&found| found == digit).count();
        assert!(count.abs_diff(N / 3) < 90, "{count} times {digit}");
    }
    let read = wire::read_secret(context, &mut &written[..]).unwrap();
    let slots = random_slots(&mut prg, N / 2);
    let ct = party.encrypt(&slots, 3, SCALE, &mut prg);
    assert!(*read.decrypt(&ct) == *party.secret.decrypt(&ct));
    written[48 + 700] = 3;
    assert!(matches!(wire::read_secret(context, &mut &written[..]), Err(Error::Bytes { .. })));
}

#[test]
fn keys_that_there_are_not_are_refused() {
    let mut generator = KeyGenerator::new(&PARTY.secret);
    for (kind, level, special) in [
        (KeyKind::Relinearise, 27, 6),
        (KeyKind::Relinearise, 2, 0),
        (KeyKind::Relinearise, 2, 7),
        (KeyKind::Galois(4), 2, 6),
        (KeyKind::Galois(2 * N + 1), 2, 6),
    ] {
        let spec = KeySpec { kind, level, special };
        assert!(matches!(generator.key(&spec), Err(Error::Level { .. } | Error::Count { .. })), "{spec:?}");
        assert!(wire::key_bytes(&PARTY.context, &spec).is_err());
    }
}
