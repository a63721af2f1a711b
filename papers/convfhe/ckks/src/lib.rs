//! CKKS (Cheon, Kim, Kim, Song, ASIACRYPT 2017) in RNS form, over primes of at most 50 bits, for the one round of ConvFHE.
//!
//! There are two halves. *Arithmetic* is parameters, polynomials, encoding, keys and an evaluator. *[`circuits`]* are what a
//! bootstrap and a ReLU are made of: they see an evaluator through the trait [`circuits::Evaluator`] alone.

pub mod circuits;
mod complex;

pub use complex::Complex;
