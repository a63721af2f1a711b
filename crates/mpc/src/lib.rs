//! Nonlinear layers on additive shares between the two parties, semi-honest, from correlated OT.
//!
//! A value x lies as x_c + x_s mod 2^n with client and server, signed. Every protocol is a type with two
//! functions: `prepare`, before the input is known, uses up correlated OTs and does **all** hashing; `run`
//! takes what was prepared by value, so that it serves once, and computes nothing but additions, exclusive
//! ors and selections by masks: online nothing hashes, branches on a secret, or looks up a secret index. Both
//! parties call the same functions in the same order with the same public parameters.
//!
//! | type | computes | file |
//! |---|---|---|
//! | [`Relu`] | max(x, 0), also into a larger ring | `relu.rs` |
//! | [`Relu6`] | x clipped to \[0, 2^j\] | `relu6.rs` |
//! | [`MaxPool`] | the largest of each window | `maxpool.rs` |
//! | [`Argmax`] | the position of the largest, for the client | `argmax.rs` |
//! | [`Extend`] | the same value in a larger ring | `extend.rs` |
//! | [`Truncate`] | x / 2^s, rounded up or down | `truncate.rs` |
//! | [`LessThan`], [`NonNegative`] | comparisons, to shared bits | `compare.rs` |
//! | [`Mux`], [`BitToArithmetic`] | shared bits into arithmetic | `mux.rs`, `bit.rs` |
//!
//! Below them: `block.rs` (layers in blocks, step by step: `into_blocks`, [`order`]), `formula.rs` (what a
//! comparison computes), `evaluate.rs` (how), `lanes.rs` (512 elements side by side), `kernel.rs` (the inner
//! loops). [`cost`] tells what anything will cost, [`mod@reference`] what it computes, on plain integers.
//!
//! **Security.** Both parties follow the protocol and look at all they receive. Each message is masked by a
//! pad or a random bit that its receiver does not know and that is used once; the argument stands in each
//! file's header. It rests on the COT source and on its correlation-robust hash. A peer that does not follow
//! the protocol causes wrong values or an error, never a panic; what it could learn is out of scope.
//!
//! **Buffering.** A run's last message may remain in the channel's buffer, so that it travels with what comes
//! next. Who sends nothing more calls [`jaguar_wire::Channel::flush`].

mod argmax;
mod bit;
mod block;
mod compare;
pub mod cost;
mod error;
mod evaluate;
mod extend;
mod formula;
mod kernel;
mod lanes;
mod maxpool;
mod mux;
mod party;
pub mod reference;
mod relu;
mod relu6;
mod select;
mod truncate;

pub use argmax::Argmax;
pub use bit::BitToArithmetic;
pub use block::{Block, lead, order};
pub use compare::{LessThan, NonNegative};
pub use cost::Cost;
pub use error::MpcError;
pub use extend::{Extend, ExtendParams, Range};
pub use lanes::Bits;
pub use maxpool::{MaxPool, PoolParams, PoolShape};
pub use mux::Mux;
pub use party::Party;
pub use relu::{Relu, ReluParams};
pub use relu6::{Relu6, Relu6Params};
pub use truncate::{Truncate, TruncateParams};

use zeroize::Zeroizing;

/// The widest shares that the protocols take. Jaguar's layers need 12 to 24 bits; the rest is for protocols that
/// keep products at full width, such as Cheetah's 37.
pub const WIDEST: u32 = 40;

/// Shares with everything above their ring's bits removed.
fn ring_mask(x: &[u64], bits: u32) -> Zeroizing<Vec<u64>> {
    Zeroizing::new(x.iter().map(|x| x & (u64::MAX >> (64 - bits))).collect())
}
