//! CKKS (Cheon, Kim, Kim, Song, ASIACRYPT 2017) in RNS form, over primes of at most 50 bits, for the one round of
//! ConvFHE.
//!
//! There are two halves. *Arithmetic* is parameters, polynomials, encoding, keys and an evaluator. *[`circuits`]* are
//! what a bootstrap and a ReLU are made of: they see an evaluator through the trait [`circuits::Evaluator`] alone.
//!
//! | what | where |
//! |---|---|
//! | a parameter set, checked against the security record | [`Literal`], [`Parameters`] |
//! | its tables, memory and threads; encoding | [`Context`] |
//! | secrets, public keys, evaluation keys | [`SecretKey`], [`PublicKey`], [`KeyGenerator`], [`EvaluationKeys`] |
//! | arithmetic on ciphertexts | [`KeyedEvaluator`] |
//! | where a tensor's values stand | [`layout`] |
//! | sums of convolutions, and their packing in one ciphertext | [`convolution`], [`packing`] |
//! | an answer that tells no more than its numbers | [`answer`] |
//! | what passes between the parties | [`wire`] |
//! | how long operations take | [`measure`] |
//!
//! A client has a [`SecretKey`], and gives the server a [`PublicKey`] and [`EvaluationKeys`]. The server learns
//! nothing of what is encrypted, if RLWE is hard for the set and stays so when functions of secrets are encrypted
//! under them. Nothing here hides from the client how the server came to a result.

pub mod answer;
mod ciphertext;
pub mod circuits;
mod complex;
mod context;
pub mod convolution;
mod encoder;
mod error;
mod evaluator;
mod keys;
pub mod layout;
pub mod measure;
pub mod packing;
mod params;
mod poly;
mod spec;
pub mod wire;

pub use ciphertext::{Ciphertext, Plaintext};
pub use complex::Complex;
pub use context::{Context, SwitchingKey};
pub use error::Error;
pub use evaluator::{KeyedEvaluator, PreparedMatrix};
pub use keys::{EvaluationKeys, KeyGenerator, PublicKey, SecretKey};
pub use params::{LEAST_SECURITY, Literal, Parameters, RECORDS, Record};
pub use poly::{Coefficients, Form, Poly, Values};
pub use spec::{KeyKind, KeySpec};

#[cfg(test)]
mod tests;
