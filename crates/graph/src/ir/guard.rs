//! Guard bits: the same model with finer values, so that what the client knows of their rounding can be hidden in noise.
//!
//! Shares of a linear layer's output are truncated by each party alone. So a value is rounded up or down by a coin that
//! the client knows (`docs/attacks.md`, *Rounding coins*). With g guard bits that coin is worth 2^-g of what was the last
//! place. Comparisons take the guard bits along, so no more than that depends on a share anywhere. What is opened has the
//! server's noise, of some last places; values between layers have none.

use crate::ir::error::{NetworkError, NodeError};
use crate::ir::limits::{MAX_BIAS, MAX_GUARD_BITS, may_guard};
use crate::ir::network::{Bias, Model, Network};

/// g where nothing else is asked for. With the noise of [`noise_bits`] no unit of a hidden layer shows itself in a million queries
/// for one image (`docs/attacks.md`, with what that supposes); each bit more makes it four times as many.
pub const DEFAULT_GUARD_BITS: u32 = 8;

/// How many bits wider than the guard bits each of the four summands of the server's noise is: its standard deviation is
/// `2^3 / sqrt(3)`, 4.6 of the last places above the guard bits.
const NOISE_PLACES: u32 = 3;

/// [`Network::noise_bits`] of a network with so many guard bits.
pub const fn noise_bits(guard_bits: u32) -> u32 {
    if guard_bits == 0 { 0 } else { guard_bits + NOISE_PLACES }
}

impl Network {
    /// The server adds to each opened value the sum of four numbers that are uniform in `0 .. 2^b`, less its mean
    /// ([`jaguar_mpc::semantics::opened_noise`]): this b. 0 where nothing is added.
    pub fn noise_bits(&self) -> u32 {
        noise_bits(self.guard_bits)
    }

    /// The standard deviation of that noise, in units of the integers that are opened.
    pub fn noise_deviation(&self) -> f64 {
        ((4f64.powi(self.noise_bits() as i32) - 1.0) / 3.0).sqrt()
    }

    /// The network with `guard_bits` in place of its own: every scale, and what is measured in it, moves along. Shifts
    /// and weight bits stay.
    ///
    /// Exact signs stay exact: they compare the guard bits too. What others leave out moves along.
    ///
    /// # Errors
    /// When there may not be so many, or a clipping bound would fall below one unit.
    pub fn guarded(&self, guard_bits: u32) -> Result<Network, NetworkError> {
        if !may_guard(guard_bits) {
            return Err(NetworkError::Bound {
                what: "guard_bits",
                found: guard_bits.to_string(),
                allowed: format!("0, or 2 to {MAX_GUARD_BITS}"),
            });
        }
        let (old, kept) = (self.guard_bits, self.activation_bits - self.guard_bits);
        let mut network = self.rescaled(kept + guard_bits)?;
        network.guard_bits = guard_bits;
        for ignored in network.nodes.iter_mut().filter_map(|node| node.op.ignored_mut()) {
            // (One bit that is left out makes no difference.)
            let left_out = ignored.saturating_sub(old);
            *ignored = if left_out > 1 { guard_bits + left_out } else { 0 };
        }
        Ok(network)
    }

    /// The network with values of `activation_bits`, its guard bits among them: every scale, the bounds of clips, and the
    /// shifts and offsets of products move along. Layers' shifts, weight bits and what signs leave out stay.
    ///
    /// # Errors
    /// When a clipping bound would fall below one unit, or a product would be shifted by none.
    pub fn rescaled(&self, activation_bits: u32) -> Result<Network, NetworkError> {
        let factor = scale_factor(self.activation_bits, activation_bits);
        let mut network = self.clone();
        network.activation_bits = activation_bits;
        network.input.scale *= factor;
        network.output.scale *= factor;
        for (index, node) in network.nodes.iter_mut().enumerate() {
            let op = node.op.name();
            let wrong = |what| NetworkError::Node { index, op, source: NodeError::Range(what) };
            node.op.rescale(activation_bits as i32 - self.activation_bits as i32).map_err(wrong)?;
        }
        Ok(network)
    }
}

fn scale_factor(old: u32, new: u32) -> f64 {
    2f64.powi(new as i32 - old as i32)
}

impl Model {
    /// The model with `guard_bits` in place of its own: see [`Network::guarded`]. Biases are scaled like the products that
    /// they are added to.
    ///
    /// # Errors
    /// As [`Network::guarded`]; when a bias would be too large.
    pub fn guarded(mut self, guard_bits: u32) -> Result<Model, NetworkError> {
        let old = self.network.guard_bits;
        self.network = self.network.guarded(guard_bits)?;
        for (index, weights) in self.weights.iter_mut().enumerate() {
            let Some(weights) = weights else { continue };
            let (Bias::PerChannel(bias) | Bias::PerElement(bias)) = &mut weights.bias;
            for bias in bias {
                // What guard bits were there before are zero, but for those of a network that was not made so.
                let scaled = i128::from(*bias >> old) << guard_bits;
                *bias = i64::try_from(scaled).ok().filter(|b| b.abs() <= MAX_BIAS).ok_or_else(|| {
                    let op = self.network.nodes[index].op.name();
                    NetworkError::Node { index, op, source: NodeError::Range("bias") }
                })?;
            }
        }
        let factor = scale_factor(old, guard_bits);
        self.scales.iter_mut().for_each(|scale| *scale *= factor);
        Ok(self)
    }
}
