//! Guard bits: the same model with finer values, so that what the client knows of their rounding can be hidden in noise.
//!
//! Shares of a linear layer's output are truncated by each party alone. So a value is rounded up or down by a coin that
//! the client knows (`docs/attacks.md`, *Rounding coins*). With g guard bits that coin is worth 2^-g of what was the last
//! place. Comparisons take the guard bits along, so no more than that depends on a share anywhere. What is opened has the
//! server's noise, of some last places; values between layers have none.

use crate::ir::error::{NetworkError, NodeError};
use crate::ir::limits::{MAX_BIAS, MAX_GUARD_BITS, MAX_NOISE_BITS, may_guard};
use crate::ir::network::{Bias, Model, Network};

/// g where nothing else is asked for and nothing of the weights is known.
pub const DEFAULT_GUARD_BITS: u32 = 8;

/// For how many queries of one image hidden units are hidden where nothing else is asked for.
pub const DEFAULT_HIDDEN_FOR: f64 = 1e6;

/// How many bits wider than the guard bits each of the four summands of the server's noise is where only guard bits are given: its
/// standard deviation is `2^3 / sqrt(3)`, 4.6 of the last places above the guard bits.
const NOISE_PLACES: u32 = 3;

/// The fewest bits of noise that are chosen, where there is any: the sum of four numbers of so many bits looks like a Gaussian's.
pub const LEAST_NOISE_BITS: u32 = 5;

/// How the rounding of hidden values is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hiding {
    /// [`Network::guard_bits`].
    pub guard_bits: u32,
    /// [`Network::noise_bits`].
    pub noise_bits: u32,
}

impl Hiding {
    /// With neither guard bits nor noise.
    pub const NONE: Self = Self { guard_bits: 0, noise_bits: 0 };

    /// With so many guard bits, and noise of 4.6 last places; none without guard bits.
    pub const fn by_guard_bits(guard_bits: u32) -> Self {
        if guard_bits == 0 { Self::NONE } else { Self { guard_bits, noise_bits: guard_bits + NOISE_PLACES } }
    }

    /// The standard deviation of the noise, in last places above the guard bits.
    pub fn noise_places(&self) -> f64 {
        deviation(self.noise_bits) / f64::from(self.guard_bits).exp2()
    }

    /// The fewest bits of noise that hide every unit of a network of this [`leverage`](crate::leverage::leverage) for so many queries
    /// of one image; `None` if no network may have so many.
    pub fn noise_bits_for(queries: f64, leverage: f64) -> Option<u32> {
        (LEAST_NOISE_BITS..=MAX_NOISE_BITS).find(|&noise_bits| hidden_for(noise_bits, leverage) >= queries)
    }
}

impl Default for Hiding {
    /// That of [`DEFAULT_GUARD_BITS`].
    fn default() -> Self {
        Self::by_guard_bits(DEFAULT_GUARD_BITS)
    }
}

impl From<u32> for Hiding {
    fn from(guard_bits: u32) -> Self {
        Self::by_guard_bits(guard_bits)
    }
}

/// For how many queries of one image noise of so many bits hides every unit of a network of this
/// [`leverage`](crate::leverage::leverage) ‖J‖: `(2σ/‖J‖)²`. At σ = ½·‖J‖·√n the fraction of a value stays hidden altogether. A value
/// shows itself, to the best attack that is known, after 40 or more times as many (`docs/attacks.md`).
pub fn hidden_for(noise_bits: u32, leverage: f64) -> f64 {
    (2.0 * deviation(noise_bits) / leverage).powi(2)
}

/// The standard deviation of the sum of four numbers that are uniform in `0 .. 2^bits`.
fn deviation(bits: u32) -> f64 {
    ((4f64.powi(bits as i32) - 1.0) / 3.0).sqrt()
}

impl Network {
    /// How its hidden values are hidden.
    pub fn hiding(&self) -> Hiding {
        Hiding { guard_bits: self.guard_bits, noise_bits: self.noise_bits }
    }

    /// The standard deviation of the server's noise, in units of the integers that are opened.
    pub fn noise_deviation(&self) -> f64 {
        deviation(self.noise_bits)
    }

    /// The network with these guard bits and noise in place of its own: every scale, and what is measured in it, moves along. Shifts
    /// and weight bits stay.
    ///
    /// Exact signs stay exact: they compare the guard bits too. What others leave out moves along.
    ///
    /// # Errors
    /// When there may not be so many, or a clipping bound would fall below one unit.
    pub fn guarded(&self, hiding: impl Into<Hiding>) -> Result<Network, NetworkError> {
        let Hiding { guard_bits, noise_bits } = hiding.into();
        if !may_guard(guard_bits) {
            return Err(NetworkError::Bound {
                what: "guard_bits",
                found: guard_bits.to_string(),
                allowed: format!("0, or 2 to {MAX_GUARD_BITS}"),
            });
        }
        let (old, kept) = (self.guard_bits, self.activation_bits - self.guard_bits);
        let mut network = self.rescaled(kept + guard_bits)?;
        (network.guard_bits, network.noise_bits) = (guard_bits, noise_bits);
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
        network.output.scales.iter_mut().for_each(|scale| *scale *= factor);
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
    /// For how many queries of one image its hidden units are hidden ([`hidden_for`]); `None` if nobody measured what they weigh.
    pub fn hidden_for(&self) -> Option<f64> {
        let leverage = self.leverage?;
        Some(if self.network.noise_bits == 0 { 0.0 } else { hidden_for(self.network.noise_bits, leverage) })
    }

    /// The model with other guard bits and noise: see [`Network::guarded`]. Biases are scaled like the products that
    /// they are added to.
    ///
    /// # Errors
    /// As [`Network::guarded`]; when a bias would be too large.
    pub fn guarded(mut self, hiding: impl Into<Hiding>) -> Result<Model, NetworkError> {
        let old = self.network.guard_bits;
        self.network = self.network.guarded(hiding)?;
        let guard_bits = self.network.guard_bits;
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
