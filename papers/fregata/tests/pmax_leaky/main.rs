//! PMax, which leaks: it computes what it should for what it should cost, alone and in whole sessions; and what it
//! tells is enough to take a model and much of an image. The same attacks on the sealed comparison find nothing.
//!
//! `make test` runs it, with the feature `pmax-leaky` of this crate: nothing else is built with that.

mod asked_once;
mod attack;
#[path = "../../../../crates/mpc/tests/common/mod.rs"]
mod common;
mod networks;
mod protocol;
mod sessions;
mod told;
