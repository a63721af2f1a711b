//! Comparisons as circuits on shared bits: what is computed, and how two parties evaluate it.
//!
//! | file | holds |
//! |---|---|
//! | `bits.rs` | shares of bits, by exclusive or |
//! | `formula.rs` | a comparison as digits to look up and a small circuit; public data |
//! | `evaluate.rs` | the two-party evaluation: tables by oblivious transfer, ANDs by triples; its cost |

pub(crate) mod bits;
pub(crate) mod evaluate;
pub(crate) mod formula;
