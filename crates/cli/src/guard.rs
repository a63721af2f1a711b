//! `--guard-bits`: others than the model was compiled with, and what too few of them mean.

use anyhow::Result;
use jaguar::bundle::Bundle;
use jaguar::network::DEFAULT_GUARD_BITS;

/// Guard bits in place of the compiled model's own.
#[derive(clap::Args)]
pub struct GuardBits {
    /// Guard bits in place of those that the model was compiled with: 0, or 2 to 12.
    ///
    /// Values are finer by so many bits, so that the server's noise in the answer hides how they were rounded: with each bit more an
    /// attacker needs four times as many queries. 0 is faster, has no noise, and lets a client that repeats its queries learn hidden
    /// values and weights.
    #[arg(long, hide = true, value_name = "BITS")]
    guard_bits: Option<u32>,
}

impl GuardBits {
    /// The bundle as it was asked for.
    pub fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        Ok(match self.guard_bits {
            Some(bits) => bundle.guarded(bits)?,
            None => bundle,
        })
    }
}

/// What a server's operator must know of a model with fewer guard bits than the default; nothing of others.
pub fn caveat(bundle: &Bundle) -> Option<String> {
    let bits = bundle.model.network.guard_bits;
    (bits < DEFAULT_GUARD_BITS).then(|| {
        let queries = if bits == 0 { 2000 } else { 10_000u64 << (2 * bits) };
        format!(
            "{bits} guard bits: a client that asks about one image some {queries} times may learn hidden values and \
             weights (docs/attacks.md, rounding coins)"
        )
    })
}
