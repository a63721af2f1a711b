//! A whole network in one round: where its values stand in ciphertexts ([`Plan`]), its plaintext twin and the bounds that it needs
//! (`plain`, `calibrate`), what a client is told of it and does ([`Public`]), the keys that it makes ([`key_specs`]), and what a server does with
//! them ([`Evaluator`]).
//!
//! Value 0 is the input, value i what layer i - 1 makes. In ciphertexts values are divided by their bounds, so that ReLU's polynomial
//! sees what is between -1 and 1.

mod calibrate;
mod client;
mod evaluate;
mod keys;
mod plain;
mod plan;
mod public;
#[cfg(test)]
mod round_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use calibrate::ENOUGH_SAMPLES;
pub use evaluate::{Evaluator, Times, answer_bytes, memory};
pub use keys::{KeySpecs, Keys, key_specs};
pub(crate) use plan::fits;
pub use plan::{NetworkError, Plan};
pub use public::Public;
