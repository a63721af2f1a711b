//! The Jaguar backend: SPA-Conv over a power-of-two ring with the halves of a ciphertext apart.
//!
//! `[y] mod 2^n  <-  Linear([x] mod 2^(n+f), w, bias)` with `y = (Σ w·x + bias) / 2^f` rounded to one of its two
//! neighbours (see `jaguar_ring::he::power_of_two` for the error and who sees what). Jaguar, section 3.3, with the export replaced by phase
//! sharing and everything that needs no input moved before it:
//!
//! | when | server | client | wire |
//! |---|---|---|---|
//! | once per model | [`ServerLayer::prepare_model`]: Σ w·X^shift·a | | |
//! | once per client | [`ServerLayer::hint`]: A = that + p1·u + e1 | keeps it | A modulo a prime of `hint_bits`, transformed, S→C |
//! | per query, before the input | [`ServerLayer::prepare`]: B − p0·u | [`prepare`]: e − a·s; its output share from A·s and B | p0 once per query, C→S |
//! | online | [`ServerLayer::begin`]: a plain integer convolution on b, output channel by output channel | [`ClientPrepared::run`]: b = Δ·x + (e − a·s) | `upload_bits` of b, C→S |
//!
//! Where the weights are skew-circulant in blocks ([`Layout::blocked`]), a response holds a block's output channels: as many
//! times fewer responses, hints and ring products. What is masked, and how, does not change: every coefficient that is
//! opened has its own word of B.
//!
//! *Tiles.* In such a layer, or one of several images, all tiles share their a halves, and so their hints, and each tile has a secret of its own for it:
//! tile t is encrypted under secret `t mod SECRETS` of the query. To a common a half under several secrets it is all one whether
//! they are of one query or of several (multi-secret RLWE); the server's u serves several p0 then, as it does over queries.
//!
//! *Several images* at once ([`Layout::of_images`]) share responses, hints and u in the same two ways: interleaved ones lie in one
//! ciphertext, as channels do, and groups of them are tiles.
//!
//! Rounds: none of its own; messages from the client to the server, a ciphertext each, as the client's shares of their
//! channels become known ([`ClientPrepared::send`], [`ServerLayer::receive_ready`]).

mod client;
mod constants;
mod layer;
mod probe;
mod server;

use std::sync::Arc;

use jaguar_ring::Kernel;
use jaguar_ring::he::power_of_two::{Parameters, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_ring::product::prime::{self, PrimeRing};
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::inputs::Inputs;
use crate::layout::{Layout, LayoutError};

pub use client::{ClientPrepared, prepare};
pub use constants::positions;
pub use constants::{PerProduct, RINGS, RingCosts, Rings};
pub use layer::{JAGUAR, Jaguar};
pub(crate) use server::gemm_terms;
pub use server::{ServerLayer, ServerOutput, ServerPrepared, Upload};

/// Why a layer cannot run in this backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The layer's values do not fit into polynomials.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The plaintext modulus does not fit the ciphertext modulus.
    #[error(
        "{activation_bits} activation bits and a shift of {shift} need a modulus of more than {modulus_bits} bits"
    )]
    Modulus {
        /// n: bits of the activations.
        activation_bits: u32,
        /// f: by how many bits products are shifted.
        shift: u32,
        /// k: ciphertexts are modulo 2^k.
        modulus_bits: u32,
    },
    /// The noise would be felt.
    #[error(
        "the noise of this layer would have a standard deviation of {ulps:.3} ulp; at most 1/16 is allowed"
    )]
    Noise {
        /// In units of the output's last place.
        ulps: f64,
    },
}

/// What both parties know of one linear layer.
#[derive(Clone, Debug)]
pub struct Layer {
    params: Parameters,
    layout: Layout,
    /// Which layer of the model this is: it separates the layer's public and secret randomness from the others'.
    index: usize,
    /// n, guard bits included.
    activation_bits: u32,
    hint_bits: u32,
    upload_bits: u32,
    inputs: Arc<Inputs>,
    noise_ulps: f64,
}

/// The hint keeps this many bits below the last place of the output, as far as there is a prime for them: rounding it
/// costs `2^-HINT_GUARD · sqrt(2N/36)`, 0.01 ulp of standard deviation at N = 2048.
const HINT_GUARD: u32 = 10;

/// How many bits of the a half are kept between its making and the clients' hints.
const A_HALF_BITS: u32 = 32;

/// Dropping the low bits of b may cost this many bits below the last place (standard deviation, at worst-case weights), or as many as
/// there are guard bits: the client knows what it drops.
const UPLOAD_GUARD: u32 = 8;

/// More noise than this (standard deviation, in ulps) and a layer is refused: at 1/16, an error of more than half an ulp
/// beyond the rounding is an event of 8 standard deviations.
const MAX_NOISE: f64 = 1.0 / 16.0;

/// Masks of one pseudorandom stream. A stream's beginning costs as much as some hundred of them.
const MASKS: usize = 4096;

/// Widths of the numbers that a layer works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// n: the output's shares are modulo 2^n.
    pub activation_bits: u32,
    /// g: how many of these are guard bits. Noise is weighed against the last place above them.
    pub guard_bits: u32,
    /// The weights are below 2^(weight_bits-1) in absolute value, exponents included.
    pub weight_bits: u32,
}

impl Layer {
    /// As [`with_widths`](Self::with_widths), without guard bits.
    ///
    /// # Errors
    /// As `with_widths`.
    pub fn new(
        params: Parameters,
        layout: Layout,
        index: usize,
        activation_bits: u32,
        weight_bits: u32,
        opened: bool,
    ) -> Result<Self, LayerError> {
        Self::with_widths(
            params,
            layout,
            index,
            Widths { activation_bits, guard_bits: 0, weight_bits },
            opened,
        )
    }

    /// Plans one layer: `index` is its number in the model, `opened` says that its
    /// results reach the client without another linear layer in between.
    ///
    /// The client knows by how much it rounded each word of b. Where it also sees the result, Σ w·(that) would be a
    /// term in the weights that averages out of many queries; so nothing is dropped there.
    ///
    /// # Errors
    /// When it does not fit the ring, or its noise would show.
    pub fn with_widths(
        params: Parameters,
        layout: Layout,
        index: usize,
        widths: Widths,
        opened: bool,
    ) -> Result<Self, LayerError> {
        let Widths { activation_bits, guard_bits, weight_bits } = widths;
        let (n, k, f) = (activation_bits, params.modulus_bits(), layout.spec().shift);
        // Bits above the guard bits.
        let kept = n.saturating_sub(guard_bits);
        if n + f > k {
            return Err(LayerError::Modulus { activation_bits: n, shift: f, modulus_bits: k });
        }
        // ‖w‖₂ at worst. Public figures only: how many bits are sent may not depend on the weights.
        let norm = 2f64.powi(weight_bits as i32 - 1) * (layout.terms_per_output() as f64).sqrt();
        let ulp = 2f64.powi((k - kept) as i32);
        let spread = |dropped: u32| if dropped == 0 { 0.0 } else { 2f64.powi(dropped as i32) / 12f64.sqrt() };
        let (least, most) = (*prime::BITS.start(), *prime::BITS.end());
        let (mut dropped, mut hint_bits) = (0, most);
        if params.is_secure() {
            hint_bits = (kept + HINT_GUARD).clamp(least, most);
            while !opened
                && spread(dropped + 1) * norm <= ulp / 2f64.powi(UPLOAD_GUARD.max(guard_bits) as i32)
            {
                dropped += 1;
            }
        }
        let secret_norm = (2.0 / 3.0 * params.ring_dim() as f64).sqrt();
        let sigma = 10.5f64.sqrt();
        // The unit of what is rounded to a prime, which is a little less than its power of two.
        let unit = |bits: u32| 2f64.powi(k as i32) / f64::from(prime::prime_of(bits));
        let noise_ulps = [
            sigma * norm,                                        // Σ w·e
            spread(dropped) * norm,                              // b rounded
            sigma * secret_norm,                                 // e·u
            sigma * secret_norm,                                 // e1·s
            unit(hint_bits) / 12f64.sqrt() * secret_norm,        // A rounded
            unit(ZeroKey::BITS) / 6f64.sqrt() * secret_norm,     // p0 rounded at random
            spread(k.saturating_sub(A_HALF_BITS)) * secret_norm, // the a half, as it is kept
        ]
        .iter()
        .map(|s| s * s)
        .sum::<f64>()
        .sqrt()
            / ulp;
        if params.is_secure() && noise_ulps > MAX_NOISE {
            return Err(LayerError::Noise { ulps: noise_ulps });
        }
        let inputs = Arc::new(Inputs::new(&layout)?);
        Ok(Self {
            params,
            layout,
            index,
            activation_bits,
            hint_bits,
            upload_bits: k - dropped,
            inputs,
            noise_ulps: noise_ulps * f64::from(1 << guard_bits),
        })
    }

    /// Where values lie in polynomials.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The parameter set of its ciphertexts: N and q.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// How many secrets of a query the layer's tiles are under: tile t under number `t mod secrets`.
    pub fn secrets(&self) -> usize {
        self.layout.secrets()
    }

    /// Responses of the hint: one for all tiles under different secrets. Number `set · responses_per_tile + row`, where
    /// tile t has the set `t / secrets`.
    pub fn hint_responses(&self) -> usize {
        self.sets() * self.layout.responses_per_tile()
    }

    /// Tiles that share no hint.
    fn sets(&self) -> usize {
        self.layout.tiles().len().div_ceil(self.secrets())
    }

    /// Which of the layer's public a halves ciphertext `index` has.
    fn a_of(&self, index: usize) -> usize {
        let per_tile = self.layout.ciphertexts_per_tile();
        index / per_tile / self.secrets() * per_tile + index % per_tile
    }

    /// The layer's number in the model.
    pub fn index(&self) -> usize {
        self.index
    }

    /// n: the output's shares are modulo 2^n.
    pub fn output_bits(&self) -> u32 {
        self.activation_bits
    }

    /// n + f: the input's shares are modulo 2^(n+f).
    pub fn input_bits(&self) -> u32 {
        self.activation_bits + self.layout.spec().shift
    }

    /// How many values of b are sent per query, and with how many bits each.
    pub fn upload(&self) -> (usize, u32) {
        (self.inputs.count(), self.upload_bits)
    }

    /// Bytes of memory of what is listed of its input ciphertexts.
    pub(crate) fn listed_bytes(&self) -> usize {
        self.inputs.listed()
    }

    /// Bytes of b per query.
    pub fn upload_bytes(&self) -> usize {
        self.inputs.upload_bytes(self.upload_bits)
    }

    /// Bytes of one response's part of the hint; the whole is [`hint_responses`](Self::hint_responses) times this.
    pub(crate) fn hint_response_bytes(&self) -> usize {
        jaguar_wire::pack::packed_len(self.params.ring_dim(), self.hint_bits)
    }

    /// Bytes of the layer's hint.
    pub fn hint_bytes(&self) -> usize {
        self.hint_responses() * self.hint_response_bytes()
    }

    /// Standard deviation of the noise before rounding, in units of the output's last place, at worst-case weights.
    pub(crate) fn noise_ulps(&self) -> f64 {
        self.noise_ulps
    }

    /// Every figure that both parties must have alike, and that a hint was made for: layout, widths, number.
    pub(crate) fn public_figures(&self) -> Vec<u64> {
        let l = &self.layout;
        let mut figures = vec![
            self.index as u64,
            self.params.ring_dim() as u64,
            u64::from(self.params.modulus_bits()),
            u64::from(self.activation_bits),
            u64::from(self.hint_bits),
            u64::from(self.upload_bits),
            self.inputs.count() as u64,
            l.map_distance() as u64,
            l.row_stride() as u64,
            l.parts() as u64,
            self.secrets() as u64,
            l.images() as u64,
            l.interleaved() as u64,
        ];
        figures.extend(
            l.tiles().iter().flat_map(|t| [t.image, t.row, t.column, t.height, t.width]).map(|v| v as u64),
        );
        figures
    }

    /// log2 Δ: a plaintext is scaled by this many bits.
    fn delta_bits(&self) -> u32 {
        self.params.modulus_bits() - self.input_bits()
    }

    fn dropped(&self) -> u32 {
        self.params.modulus_bits() - self.upload_bits
    }

    /// Low bits of b + Δ·x that are zero: of b they were dropped, and Δ is a power of two.
    fn low_zeros(&self) -> u32 {
        self.dropped().min(self.delta_bits())
    }

    /// Where the hint is rounded to, and multiplied by the secret.
    fn hint_ring(&self, kernel: Kernel) -> PrimeRing {
        PrimeRing::new(kernel, self.params.ring_dim(), self.hint_bits)
    }

    /// B, the masked phases' public part, at all outputs `[C, H, W]`. Every [`MASKS`] of them have a stream of their own.
    fn masks(&self, seed: &[u8; 32]) -> Zeroizing<Vec<u64>> {
        let mut masks = Zeroizing::new(vec![0; self.layout.outputs()]);
        masks.par_chunks_mut(MASKS).enumerate().for_each(|(chunk, masks)| {
            Prg::derive(seed, "jaguar B", &[self.index as u64, chunk as u64])
                .fill_words(masks, self.params.modulus_bits());
        });
        masks
    }
}

#[cfg(test)]
mod blocks;
#[cfg(test)]
mod coins;
#[cfg(test)]
mod images;
#[cfg(test)]
pub(crate) mod tests;
