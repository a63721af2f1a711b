//! A stand-in for tests of this crate and of others.

use std::sync::Arc;

use jaguar_mpc::{Comparisons, Nonlinear};

/// Comparisons that are said to leak, and do not: a layer's own, with signs that leave out nothing, in wider shares.
#[derive(Debug)]
pub(crate) struct SaidToLeak;

/// They, as [`Kit::with_comparisons`](crate::Kit::with_comparisons) takes them.
pub const SAID_TO_LEAK: &[&dyn Comparisons] = &[&SaidToLeak];

impl Comparisons for SaidToLeak {
    fn name(&self) -> &'static str {
        "said-to-leak"
    }

    fn most_extra_bits(&self) -> u32 {
        8
    }

    fn caveat(&self, extra_bits: u32) -> Option<String> {
        Some(format!("comparisons leak, a test says, with {extra_bits} bits more"))
    }

    fn instead(&self, layer: &dyn Nonlinear, _: u32) -> Option<Arc<dyn Nonlinear>> {
        layer.ignoring(0)
    }
}
