//! How keys and ciphertexts are written. No length is written: all follow from the parameter set and from what both
//! sides know is to be sent. So nothing that is read says how much to allocate. Residues are packed, as many bits
//! each as their prime has; one that is not below its prime is an error.
//!
//! | what | bytes |
//! |---|---|
//! | header | 16 that say what it is, the set's name in 32 |
//! | ciphertext | header, level (1), scale (8, a double, little-endian), a, b |
//! | seeded ciphertext | header, level, scale, seed (32), b |
//! | public key | header, level, seed (32), b |
//! | evaluation key | header, kind and shape (24), seed (32), b of each digit |
//! | secret | header, a byte for each coefficient: 0, 1 or 2 for 0, 1 and -1. It stays where it was made |

use std::io::{Read, Write};
use std::sync::Arc;

use crate::ciphertext::Ciphertext;
use crate::context::SwitchingKey;
use crate::keys::{CIPHERTEXT_LABEL, KEY_LABEL, PublicKey, SecretKey};
use crate::poly::{Poly, Values};
use crate::spec::{KeyKind, KeySpec};
use crate::{Context, Error};
use zeroize::Zeroizing;

const HEADER_BYTES: usize = 48;

/// What is written.
#[derive(Clone, Copy)]
enum Item {
    Ciphertext,
    Seeded,
    PublicKey,
    EvaluationKey,
    Secret,
}

impl Item {
    /// 16 bytes and a name for errors.
    const fn names(self) -> (&'static [u8; 16], &'static str) {
        match self {
            Self::Ciphertext => (b"jaguar ckks ct 1", "a ciphertext"),
            Self::Seeded => (b"jaguar ckks sd 1", "a seeded ciphertext"),
            Self::PublicKey => (b"jaguar ckks pk 1", "a public key"),
            Self::EvaluationKey => (b"jaguar ckks ek 1", "an evaluation key"),
            Self::Secret => (b"jaguar ckks sk 1", "a secret key"),
        }
    }

    fn header(self, context: &Context) -> [u8; HEADER_BYTES] {
        let mut header = [b' '; HEADER_BYTES];
        let name = context.params().name().as_bytes();
        header[..16].copy_from_slice(self.names().0);
        header[16..16 + name.len()].copy_from_slice(name);
        header
    }

    fn error(self, why: String) -> Error {
        Error::Bytes { what: self.names().1, why }
    }

    fn write(self, to: &mut dyn Write, bytes: &[u8]) -> Result<(), Error> {
        to.write_all(bytes).map_err(|source| Error::Io { what: self.names().1, source })
    }

    fn read(self, from: &mut dyn Read, bytes: &mut [u8]) -> Result<(), Error> {
        from.read_exact(bytes).map_err(|source| Error::Io { what: self.names().1, source })
    }

    fn read_array<const N: usize>(self, from: &mut dyn Read) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.read(from, &mut bytes)?;
        Ok(bytes)
    }

    fn check_header(self, context: &Context, from: &mut dyn Read) -> Result<(), Error> {
        let (found, expected) = (self.read_array(from)?, self.header(context));
        if found == expected {
            return Ok(());
        }
        let [found, expected] = [found, expected].map(|bytes| bytes.escape_ascii().to_string());
        Err(self.error(format!("it begins with {found:?}, not with {expected:?}")))
    }

    fn read_level(self, context: &Context, from: &mut dyn Read) -> Result<usize, Error> {
        let [level] = self.read_array(from)?;
        let top = context.params().top();
        if usize::from(level) > top {
            return Err(self.error(format!("level {level} of a set whose highest is {top}")));
        }
        Ok(level.into())
    }

    fn read_scale(self, from: &mut dyn Read) -> Result<f64, Error> {
        let scale = f64::from_le_bytes(self.read_array(from)?);
        crate::ciphertext::check_scale("read", scale)?;
        Ok(scale)
    }

    fn write_poly(self, context: &Context, poly: &Poly<Values>, to: &mut dyn Write) -> Result<(), Error> {
        let mut bytes = vec![0; limb_bytes(context, 50)];
        for i in 0..poly.len() {
            let bits = context.modulus(context.prime(poly.ordinary(), i)).bits();
            let bytes = &mut bytes[..limb_bytes(context, bits)];
            pack(poly.limb(i), bits, bytes);
            self.write(to, bytes)?;
        }
        Ok(())
    }

    fn read_poly(
        self,
        context: &Context,
        ordinary: usize,
        special: usize,
        from: &mut dyn Read,
    ) -> Result<Poly<Values>, Error> {
        let mut poly = context.unset(ordinary, special);
        let mut bytes = vec![0; limb_bytes(context, 50)];
        for i in 0..poly.len() {
            let m = context.modulus(context.prime(ordinary, i));
            let bytes = &mut bytes[..limb_bytes(context, m.bits())];
            self.read(from, bytes)?;
            let limb = poly.limb_mut(i);
            unpack(bytes, m.bits(), limb);
            if let Some(at) = limb.iter().position(|&residue| residue >= m.value()) {
                return Err(self.error(format!("coefficient {at} is {} modulo {}", limb[at], m.value())));
            }
        }
        Ok(poly)
    }
}

/// Bytes of N residues.
fn limb_bytes(context: &Context, bits: u32) -> usize {
    context.params().n() / 8 * bits as usize
}

fn poly_bytes(context: &Context, ordinary: usize, special: usize) -> usize {
    let limb = |i| limb_bytes(context, context.modulus(context.prime(ordinary, i)).bits());
    (0..ordinary + special).map(limb).sum()
}

/// Words of so many bits, the lowest first.
fn pack(words: &[u64], bits: u32, bytes: &mut [u8]) {
    for (words, bytes) in words.chunks_exact(8).zip(bytes.chunks_exact_mut(bits as usize)) {
        let (mut rest, mut count, mut out) = (0u128, 0, bytes.iter_mut());
        for &word in words {
            rest |= u128::from(word) << count;
            count += bits;
            while count >= 8 {
                if let Some(byte) = out.next() {
                    *byte = rest as u8;
                }
                rest >>= 8;
                count -= 8;
            }
        }
    }
}

fn unpack(bytes: &[u8], bits: u32, words: &mut [u64]) {
    for (words, bytes) in words.chunks_exact_mut(8).zip(bytes.chunks_exact(bits as usize)) {
        let (mut rest, mut count, mut next) = (0u128, 0, bytes.iter());
        for word in words {
            while count < bits {
                rest |= u128::from(*next.next().unwrap_or(&0)) << count;
                count += 8;
            }
            *word = rest as u64 & jaguar_ring::mask(bits);
            rest >>= bits;
            count -= bits;
        }
    }
}

/// Bytes of a ciphertext of a level.
///
/// # Errors
/// If there is no such level.
pub fn ciphertext_bytes(context: &Context, level: usize) -> Result<usize, Error> {
    context.check_level("ciphertext", level)?;
    Ok(HEADER_BYTES + 9 + 2 * poly_bytes(context, context.params().limbs(level), 0))
}

/// Bytes of a seeded ciphertext of a level.
///
/// # Errors
/// If there is no such level.
pub fn seeded_bytes(context: &Context, level: usize) -> Result<usize, Error> {
    context.check_level("seeded ciphertext", level)?;
    Ok(HEADER_BYTES + 9 + 32 + poly_bytes(context, context.params().limbs(level), 0))
}

/// Bytes of a public key for ciphertexts of up to a level.
///
/// # Errors
/// If there is no such level.
pub fn public_key_bytes(context: &Context, level: usize) -> Result<usize, Error> {
    context.check_level("public key", level)?;
    Ok(HEADER_BYTES + 1 + 32 + poly_bytes(context, context.params().limbs(level), 0))
}

/// Bytes of a secret.
pub fn secret_bytes(context: &Context) -> usize {
    HEADER_BYTES + context.params().n()
}

/// Bytes of an evaluation key.
///
/// # Errors
/// If there is no such key in this set.
pub fn key_bytes(context: &Context, spec: &KeySpec) -> Result<usize, Error> {
    let (ordinary, special, digits) = context.key_shape(spec)?;
    Ok(HEADER_BYTES + 24 + 32 + digits.len() * poly_bytes(context, ordinary, special))
}

/// Bytes of an evaluation key in memory, both halves, each residue in a word.
///
/// # Errors
/// If there is no such key in this set.
pub fn key_memory(context: &Context, spec: &KeySpec) -> Result<usize, Error> {
    let (ordinary, special, digits) = context.key_shape(spec)?;
    Ok(2 * digits.len() * (ordinary + special) * context.params().n() * size_of::<u64>())
}

/// Writes a ciphertext.
///
/// # Errors
/// If writing fails.
pub fn write_ciphertext(context: &Context, ct: &Ciphertext, to: &mut dyn Write) -> Result<(), Error> {
    let item = Item::Ciphertext;
    item.write(to, &item.header(context))?;
    item.write(to, &[ct.level as u8])?;
    item.write(to, &ct.scale.to_le_bytes())?;
    item.write_poly(context, &ct.a, to)?;
    item.write_poly(context, &ct.b, to)
}

/// Reads a ciphertext.
///
/// # Errors
/// If reading fails, or what is read is no ciphertext of this set.
pub fn read_ciphertext(context: &Context, from: &mut dyn Read) -> Result<Ciphertext, Error> {
    let item = Item::Ciphertext;
    item.check_header(context, from)?;
    let (level, scale) = (item.read_level(context, from)?, item.read_scale(from)?);
    let limbs = context.params().limbs(level);
    let a = item.read_poly(context, limbs, 0, from)?;
    let b = item.read_poly(context, limbs, 0, from)?;
    Ok(Ciphertext { a, b, level, scale })
}

/// Writes a fresh ciphertext in half the bytes: the seed in place of the random half
/// ([`SecretKey::encrypt`](crate::SecretKey::encrypt) gives both).
///
/// # Errors
/// If writing fails.
pub fn write_seeded(
    context: &Context,
    (ct, seed): &(Ciphertext, [u8; 32]),
    to: &mut dyn Write,
) -> Result<(), Error> {
    let item = Item::Seeded;
    item.write(to, &item.header(context))?;
    item.write(to, &[ct.level as u8])?;
    item.write(to, &ct.scale.to_le_bytes())?;
    item.write(to, seed)?;
    item.write_poly(context, &ct.b, to)
}

/// Reads what [`write_seeded`] wrote.
///
/// # Errors
/// If reading fails, or what is read is no such ciphertext of this set.
pub fn read_seeded(context: &Context, from: &mut dyn Read) -> Result<Ciphertext, Error> {
    let item = Item::Seeded;
    item.check_header(context, from)?;
    let (level, scale) = (item.read_level(context, from)?, item.read_scale(from)?);
    let seed = item.read_array(from)?;
    let limbs = context.params().limbs(level);
    let b = item.read_poly(context, limbs, 0, from)?;
    Ok(Ciphertext { a: context.random_half(&seed, CIPHERTEXT_LABEL, 0, limbs, 0), b, level, scale })
}

/// Writes a public key.
///
/// # Errors
/// If writing fails.
pub fn write_public_key(key: &PublicKey, to: &mut dyn Write) -> Result<(), Error> {
    let item = Item::PublicKey;
    item.write(to, &item.header(&key.context))?;
    item.write(to, &[key.level as u8])?;
    item.write(to, &key.seed)?;
    item.write_poly(&key.context, &key.b, to)
}

/// Reads a public key.
///
/// # Errors
/// If reading fails, or what is read is no public key of this set.
pub fn read_public_key(context: &Arc<Context>, from: &mut dyn Read) -> Result<PublicKey, Error> {
    let item = Item::PublicKey;
    item.check_header(context, from)?;
    let level = item.read_level(context, from)?;
    let seed = item.read_array(from)?;
    let limbs = context.params().limbs(level);
    let b = item.read_poly(context, limbs, 0, from)?;
    let a = context.random_half(&seed, CIPHERTEXT_LABEL, 0, limbs, 0);
    Ok(PublicKey { context: Arc::clone(context), seed, a, b, level })
}

/// Kind, exponent, level and special primes.
fn shape_bytes(spec: &KeySpec) -> [u8; 24] {
    let (kind, element) = match spec.kind {
        KeyKind::Relinearise => (0, 0),
        KeyKind::Galois(element) => (1, element),
        KeyKind::ToEphemeral => (2, 0),
        KeyKind::FromEphemeral => (3, 0),
    };
    let mut bytes = [0; 24];
    bytes[0] = kind;
    bytes[1] = spec.special as u8;
    bytes[8..16].copy_from_slice(&(element as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&(spec.level as u64).to_le_bytes());
    bytes
}

/// Writes an evaluation key.
///
/// # Errors
/// If writing fails.
pub fn write_key(context: &Context, key: &SwitchingKey, to: &mut dyn Write) -> Result<(), Error> {
    let item = Item::EvaluationKey;
    item.write(to, &item.header(context))?;
    item.write(to, &shape_bytes(&key.spec))?;
    item.write(to, &key.seed)?;
    key.digits.iter().try_for_each(|[_, b]| item.write_poly(context, b, to))
}

/// Reads the evaluation key that is expected.
///
/// # Errors
/// If there is no such key in this set, reading fails, or what is read is another key or none.
pub fn read_key(context: &Context, spec: &KeySpec, from: &mut dyn Read) -> Result<SwitchingKey, Error> {
    let item = Item::EvaluationKey;
    let (ordinary, special, digits) = context.key_shape(spec)?;
    item.check_header(context, from)?;
    if item.read_array(from)? != shape_bytes(spec) {
        return Err(item.error(format!("it is not the key {spec:?}")));
    }
    let seed = item.read_array(from)?;
    let digit = |j: usize| {
        let b = item.read_poly(context, ordinary, special, from)?;
        Ok([context.random_half(&seed, KEY_LABEL, j, ordinary, special), b])
    };
    let digits = (0..digits.len()).map(digit).collect::<Result<_, Error>>()?;
    Ok(SwitchingKey { spec: *spec, seed, digits })
}

/// Writes a secret, for a file that nobody else may read.
///
/// # Errors
/// If writing fails.
pub fn write_secret(secret: &SecretKey, to: &mut dyn Write) -> Result<(), Error> {
    let item = Item::Secret;
    let (context, coefficients) = (secret.context(), secret.coefficients());
    // -1 becomes 2.
    let digit = |&x: &i8| (x & 3) as u8 & !((x as u8) >> 7);
    let digits = Zeroizing::new(coefficients.iter().map(digit).collect::<Vec<u8>>());
    item.write(to, &item.header(context))?;
    item.write(to, &digits)
}

/// Reads a secret.
///
/// # Errors
/// If reading fails, or what is read is no secret of this set.
pub fn read_secret(context: &Arc<Context>, from: &mut dyn Read) -> Result<SecretKey, Error> {
    let item = Item::Secret;
    item.check_header(context, from)?;
    let mut digits = Zeroizing::new(vec![0; context.params().n()]);
    item.read(from, &mut digits)?;
    if digits.iter().fold(false, |spoilt, &digit| spoilt | (digit > 2)) {
        return Err(item.error("a coefficient is not -1, 0 or 1".into()));
    }
    let coefficients =
        Zeroizing::new(digits.iter().map(|&digit| (digit & 1) as i8 - (digit >> 1) as i8).collect());
    Ok(SecretKey::from_small(context, &coefficients))
}
