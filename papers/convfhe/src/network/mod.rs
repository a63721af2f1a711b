//! A whole network in one round: where its values stand in ciphertexts ([`Plan`]), its plaintext twin and the bounds that it needs
//! (`plain`, `calibrate`), and what a client is told of it ([`Public`]).
//!
//! Value 0 is the input, value i what layer i - 1 makes. In ciphertexts values are divided by their bounds, so that ReLU's polynomial
//! sees what is between -1 and 1.

mod calibrate;
mod plain;
mod plan;
mod public;
#[cfg(test)]
mod tests;

pub use plan::{NetworkError, Plan, values};
pub use public::Public;
