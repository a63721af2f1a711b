//! The protocols, one file each: both roles side by side, with the protocol's parameters and its cost.
//!
//! Layers of a network, each a [`crate::Nonlinear`]: `relu.rs`, `relu6.rs`, `max_pool.rs`, `argmax.rs`, `extend.rs`,
//! `truncate.rs`, `product.rs`, `square.rs`, `matrix_product`, `curve.rs`. What they are made of: `compare.rs` (shared
//! numbers to shared bits), `mux.rs` and `bit.rs` (shared bits back to arithmetic), `one_hot.rs` (a public table at a
//! shared place), `cross.rs` (products of what the two parties have), `opening.rs`, `select.rs` (a comparison and
//! products with its result, in common flights), `selection.rs` (all layers that do no more than that with each value:
//! a new one is a [`crate::Selection`], wherever it stands).

pub(crate) mod argmax;
pub(crate) mod bit;
pub(crate) mod compare;
pub(crate) mod cross;
pub(crate) mod curve;
pub(crate) mod extend;
pub(crate) mod matrix_product;
pub(crate) mod max_pool;
pub(crate) mod mux;
pub(crate) mod one_hot;
pub(crate) mod opening;
pub(crate) mod product;
pub(crate) mod relu;
pub(crate) mod relu6;
pub(crate) mod select;
pub(crate) mod selection;
pub(crate) mod square;
pub(crate) mod truncate;
