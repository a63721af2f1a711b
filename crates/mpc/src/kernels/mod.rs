//! The inner loops and the layout that they work on: bits of 512 elements side by side. No messages, no protocol.
//!
//! | file | holds |
//! |---|---|
//! | `lanes.rs` | one bit of each of 512 elements, in memory and on the wire |
//! | `circuit.rs` | what the loops are told of a comparison: digits, tables, gates |
//! | `loops.rs` | the loops themselves, for each instruction set; the crate's only `unsafe` |
//! | `planes.rs` | from words to bit planes |
//!
//! Each file uses those above it only.

pub(crate) mod circuit;
pub(crate) mod lanes;
pub(crate) mod loops;
pub(crate) mod planes;
