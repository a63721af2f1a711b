//! Arithmetic over the power-of-two ring `R_q = Z_q[X]/(X^N + 1)`, `q = 2^k`: the bottom crate of the workspace.
//!
//! | module | what it computes |
//! |---|---|
//! | [`cpu`] | what the processor can do, and masks of secret bits that no optimiser turns into branches |
//! | [`he`] | homomorphic encryption over such rings: parameters with their security record, keys, rotations, batching |
//! | [`prg`] | an AES-256 stream, expanded from a seed that is secret or public; labelled derivation of seeds by BLAKE3 |
//! | [`sample`] | uniform ternary and centred binomial coefficients |
//! | [`planes`] | k-bit words as planes of balanced 16-bit limbs, the form that the matrix product reads |
//! | [`gemm`] | shift-and-add convolution of k-bit words with small weights, as an integer matrix product |
//! | [`spectral`] | the same over whole ring elements, by a transform over the channels of packed ciphertexts |
//! | [`modular`] | residues and transforms modulo any prime of up to 60 bits, in words of 64 bits; the search for primes |
//! | [`product`] | exact products of a wide polynomial with a small one, through auxiliary primes of 30 bits |
//! | [`product::prime`] | products modulo one prime, of operands that are rounded to it; the first coefficients only |
//! | [`product::rns`] | polynomials modulo a product of up to three primes of 30 bits, kept in transformed form |
//! | [`kernel`] | the instruction set that a kernel runs on, chosen from a [`Cpu`](crate::cpu::Cpu) and handed to what computes |
//!
//! Everything here is exact, [`product::prime`]'s rounding excepted: a result modulo `2^bits` is that residue, in
//! `0..2^bits`, with no error term.
//! Arithmetic takes the same time for all values of its operands; only shapes, widths and counts (all public)
//! decide which instructions run. `unsafe` is confined to the module `simd` and to the type in [`gemm`] that shares
//! the output between threads.

pub mod cpu;
pub mod gemm;
pub mod he;
pub mod kernel;
pub mod modular;
pub mod planes;
pub mod prg;
pub mod product;
pub mod sample;
mod simd;
pub mod spectral;

pub use gemm::{PackedWeights, Term, spa_gemm, spa_gemm_part};
pub use kernel::Kernel;
pub use planes::LimbPlanes;
pub use prg::{Prg, derive_seed, os_fill, os_random, wipe_stack};
pub use product::{Multiplier, SmallNtt, WideNtt};
pub use spectral::{Spectral, SpectralRows, SpectralWeights};

/// The mask that reduces a word modulo `2^bits`.
///
/// # Panics
/// If `bits` is not in `1..=64`.
#[inline]
pub const fn mask(bits: u32) -> u64 {
    assert!(bits >= 1 && bits <= 64, "a word has 1 to 64 bits");
    u64::MAX >> (64 - bits)
}
