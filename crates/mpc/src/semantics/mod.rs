//! What nonlinear layers compute, on plain integers: the one definition for the protocols and for the plaintext
//! reference.
//!
//! A crate of its own because two that know nothing of each other must agree bit for bit: `mpc`, whose protocols
//! compute these functions on shares, and `graph`, whose reference computes them on a network's values.
//!
//! | file | defines |
//! |---|---|
//! | `sign.rs` | ReLU and ReLU6, exactly and where their signs leave out low bits |
//! | `bracket.rs` | in which order a max-pool compares |
//! | `curve.rs` | a curve in pieces |
//! | `matrices.rs` | products of matrices, and how these stand |
//! | `noise.rs` | the noise of what is opened |
//! | `max_pool.rs` | what wins where the comparisons leave out low bits |
//! | `rounding.rs` | shifts down: to nearest, and as shares make them |
//!
//! *By chance.* A sign or a rounding of reduced precision depends on the low bits of one party's share. These
//! functions take the client's share as an argument: the protocols' tests pass the real one, imitations of private
//! runs pass random bits.

mod bracket;
mod curve;
mod matrices;
mod max_pool;
mod noise;
mod rounding;
mod sign;

pub use bracket::Bracket;
pub use curve::{Beyond, PIECES_LOG2, Pieces};
pub use matrices::Matrices;
pub use max_pool::{argmax, channel_ignoring, pool_slack};
pub use noise::opened_noise;
pub use rounding::{round_shift, shift_by_share};
pub use sign::{relu, relu_ignoring, relu6, relu6_ignoring};
