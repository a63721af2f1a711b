//! Nonlinear layers on additive shares between the two parties, semi-honest, from correlated OT.
//!
//! A value x lies as x_c + x_s mod 2^n with client and server, signed; what makes shares for a linear layer makes them modulo any
//! [`Modulus`], 2^out or an odd number. Every protocol is a type with two
//! functions: `prepare`, before the input is known, uses up correlated OTs and does **all** hashing; `run`
//! takes what was prepared by value, so that it serves once, and computes nothing but additions, exclusive
//! ors and selections by masks: online nothing hashes, branches on a secret, or looks up a secret index. Both
//! parties call the same functions in the same order with the same public parameters.
//!
//! | type | computes | file under `protocols/` |
//! |---|---|---|
//! | [`Relu`] | max(x, 0), also into another ring | `relu.rs` |
//! | [`Relu6`] | x clipped to \[0, 2^j\] | `relu6.rs` |
//! | [`Selections`] | any function of one value by a comparison and a selection, of which the two above are two | `selection.rs` |
//! | [`MaxPool`] | the largest of each window | `max_pool.rs` |
//! | [`Argmax`] | the position of the largest, for the client | `argmax.rs` |
//! | [`Extend`] | the same value in another ring | `extend.rs` |
//! | [`Truncate`] | x / 2^s, rounded up or down | `truncate.rs` |
//! | [`Product`], [`Square`] | a·b / 2^s of two shared values, or of one | `product.rs`, `square.rs` |
//! | [`MatrixProduct`] | A·B / 2^s of two shared matrices | `matrix_product` |
//! | [`RowProduct`] | x_ij·s_i / 2^s, rows by a number of each | `matrix_product/rows.rs` |
//! | [`SquaredRows`] | Σ_j x_ij² / 2^s, rows by themselves | `matrix_product/squares.rs` |
//! | [`RowsTwice`] | both of the same rows, opened once | `matrix_product/twice.rs` |
//! | [`Curve`] | f(x), a public curve in pieces | `curve.rs` |
//! | [`LessThan`], [`NonNegative`] | comparisons, to shared bits | `compare.rs` |
//! | [`Mux`], [`BitToArithmetic`] | shared bits into arithmetic | `mux.rs`, `bit.rs` |
//!
//! To those who plan and run networks the first ten are layers, all alike: a [`Nonlinear`] is a value that can be
//! checked, priced ([`Cost`]) and prepared into [`Block`]s. Another crate's protocol is one too, made of the same
//! [`parts`]; and [`Comparisons`] put others in the place of some.
//!
//! | below the protocols | holds |
//! |---|---|
//! | `block.rs` | layers in blocks, step by step and on all threads: [`Block`], [`drive`] |
//! | `gates/` | a comparison as a circuit (`formula.rs`), and its evaluation by two parties (`evaluate.rs`) |
//! | `kernels/` | 512 elements side by side, and the inner loops on them |
//! | [`mod@reference`] | what the protocols compute, on plain integers |
//!
//! **Security.** Both parties follow the protocol and look at all they receive. Each message is masked by a
//! pad or a random bit that its receiver does not know and that is used once; the argument stands in each
//! file's header. It rests on the COT source and on its correlation-robust hash. A peer that does not follow the
//! protocol causes wrong values or an error, never a panic; what it could learn is out of scope.
//!
//! **Buffering.** A run's last message may remain in the channel's buffer, so that it travels with what comes
//! next. Who sends nothing more calls [`jaguar_wire::Channel::flush`].

mod block;
mod comparisons;
pub mod cost;
mod error;
mod gates;
mod kernels;
mod nonlinear;
mod party;
mod protocols;
pub mod reference;
pub mod semantics;
pub mod share;
mod shares;

pub use crate::share::Modulus;
pub use block::{Block, Surroundings, drive, run as run_blocks};
pub use comparisons::Comparisons;
pub use cost::Cost;
pub use error::MpcError;
pub use gates::bits::Bits;
pub use gates::formula::Formula;
pub use nonlinear::{Elementwise, Nonlinear, NonlinearKind};
pub use party::Party;
pub use protocols::argmax::{Argmax, ArgmaxParams};
pub use protocols::bit::BitToArithmetic;
pub use protocols::compare::{LessThan, NonNegative};
pub use protocols::curve::{Curve, CurveParams};
pub use protocols::extend::{Extend, ExtendParams, Range};
pub use protocols::matrix_product::rows::{RowProduct, RowProductParams};
pub use protocols::matrix_product::squares::{SquaredRows, SquaredRowsParams};
pub use protocols::matrix_product::twice::{OpenedRows, RowsTwice, RowsTwiceParams, opened_once};
pub use protocols::matrix_product::{MatrixProduct, MatrixProductParams, SentKeys};
pub use protocols::max_pool::{MaxPool, PoolParams, PoolShape, Pooling};
pub use protocols::mux::Mux;
pub use protocols::product::{Product, ProductParams};
pub use protocols::relu::{Relu, ReluParams};
pub use protocols::relu6::{Relu6, Relu6Params};
pub use protocols::selection::{Selection, Selections};
pub use protocols::square::{Square, SquareParams};
pub use protocols::truncate::{Truncate, TruncateParams};
pub use shares::WIDEST;

/// What protocols are made of, for one that stands in another crate: [`Nonlinear::prepare`] makes [`Block`]s of
/// something that has [`Flights`](parts::Flights), from correlations that [`Party::draw`] gives.
pub mod parts {
    pub use crate::block::Flights;
    pub use crate::party::{Correlations, Pads, Room};
    pub use crate::protocols::extend::Rings;
    pub use crate::protocols::max_pool::{level_counts, tournaments};
}
