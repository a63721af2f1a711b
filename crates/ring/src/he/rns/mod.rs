//! RLWE over RNS rings: `Z_Q[X]/(X^N + 1)`, Q a product of primes that are 1 modulo 2N (residue number system).
//!
//! A ciphertext (a, b) of m modulo t under s has the phase `b + a·s = Q·m/t + e`: the encoding of BFV (Fan and Vercauteren,
//! ePrint 2012/144) in its scale-invariant form, t any number of up to 60 bits that shares no factor with Q. Products of
//! two ciphertexts are not here: linear layers need products with known polynomials only.
//!
//! | file | what is in it |
//! |---|---|
//! | `ring` | [`Ring`], [`Poly`] in one of two forms ([`Coefficients`], [`Values`]), automorphisms, dropping a prime |
//! | `plain` | [`PlainModulus`]: from integers modulo t to multiples of Q/t and back |
//! | `batch` | [`Batch`]: N integers modulo a prime t in the SIMD slots of one polynomial |
//! | `keys` | [`SecretKey`], [`SwitchingKey`], [`GaloisKey`] |
//! | `drawn` | [`DrawnMessages`]: ciphertexts of messages that are drawn, of which fewer bits travel |
//! | `joint` | [`JointKeys`]: public keys, of one secret or of several whose ciphertexts share an a half ([`JointCiphertext`]) |
//! | `lazy` | sums of ciphertexts times small numbers, reduced once |
//! | `ciphertext` | [`Ciphertext`], [`SeededCiphertext`] and what is done to them; [`Hoisted`] rotations |
//! | `noise` | [`Noise`]: how large e gets, operation by operation |
//! | `lanes` | rings of primes of 30 bits on vector kernels, with the keys of Cheetah's protocol |
//!
//! # Noise
//!
//! Every operation's effect on the variance of a coefficient of e, σ² = 10.5, h = 2N/3 the expected weight of a secret:
//!
//! | operation | variance | [`Noise`] |
//! |---|---|---|
//! | encryption under the secret | σ² + 1/12 | [`fresh`](Noise::fresh) |
//! | encryption under the public key | σ² (1 + 2h) + 1/12 | [`fresh_public`](Noise::fresh_public) |
//! | sum of independent ciphertexts | sum | `+` |
//! | product with w | times ‖w‖² | [`multiply`](Noise::multiply) |
//! | key switching, D digits of base B | + D·N·σ²·B²/12 | [`of_digits`](Noise::of_digits) |
//! | the same with a rounded key, last prime p | also + h·p²/12 | [`of_rounded_key`](Noise::of_rounded_key) |
//! | the lowest k bits of b rounded off | + 4^k/12, + 1/6 | [`rounded`](Noise::rounded) |
//! | a prime p dropped | / p², + (1 + h)/12 | [`divide`](Noise::divide) |
//!
//! Time and memory access depend on public figures only: N, the primes, t, the digits. Functions whose names end in `_vt`
//! are for tests.

mod batch;
mod ciphertext;
mod drawn;
mod joint;
mod keys;
pub mod lanes;
mod lazy;
mod noise;
mod plain;
mod ring;
mod subring;
mod switching;

pub use batch::{Batch, rotation, row_swap};
pub use ciphertext::{Ciphertext, SeededCiphertext};
pub use drawn::{DrawnCiphertext, DrawnMessages};
pub use joint::{JointCiphertext, JointKeys};
pub use keys::{GaloisKey, Room, RoundedSecret, SecretKey, SwitchingKey};
pub use noise::Noise;
pub use plain::PlainModulus;
pub use ring::{Automorphism, Coefficients, Poly, Representation, Ring, Scalar, Values};
pub use subring::{Subring, SubringFactors};
pub use switching::Hoisted;

#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod noise_tests;
#[cfg(test)]
mod tests;
