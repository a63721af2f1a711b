//! The baseline: Cheetah's convolutions and fully connected layers, written to be as fast as they can be.
//!
//! `[Σ w·x + bias] mod 2^l  <-  Linear([x] mod 2^l, w, bias)`: shares of the full product, nothing is
//! truncated. Cheetah (Huang, Lu, Hong, Ding, USENIX Security 2022, ePrint 2022/207), section 3.1 and
//! appendix D.2 for the encoding, its 1-bit approximate re-sharing for the export. RLWE with N = 4096 and q a
//! product of primes of 30 bits, two wherever the noise allows and three elsewhere ([`Layer::new`] chooses);
//! ternary secrets, noise of variance 10.5.
//!
//! 1. Client, once per session and number of limbs: a fresh secret s, and a *key* `p0 = e − p1·s` with p1 from
//!    a seed ([`Secret::key`]).
//! 2. Client: `b = e − a·s + round(q·x/2^l)` for every block of a window, a from a seed: all but the last term
//!    before the input ([`Secret::prepare`]), the rest with it ([`ClientPrepared::encrypt`]).
//! 3. Server: adds its share to b, transforms both halves, adds up their products with the transformed
//!    weights ([`ServerLayer::evaluate`]).
//! 4. Server: adds a fresh encryption of zero `(p0·u, p1·u + e1)`, u and e1 sampled before the input
//!    ([`ServerLayer::prepare`]), transforms back, switches both halves to a
//!    power of two (`A` modulo `2^(l+10)` whole, `B` modulo `2^(l+5)` at the outputs only), masks B with a
//!    uniform R. Its share is `−(R >> 5) + bias`.
//! 5. Client: its share is `(2^5·B + 2^4 + A·s mod 2^(l+10)) >> 10` ([`Secret::decrypt`]).
//!
//! **Error.** The shares add up to one of the two integers next to `m + ε`, where ε is the noise in units of
//! the last place. [`Layer::new`] accepts no layer whose ε has a standard deviation above a tenth at worst-case
//! weights: the result is m, or off by 1 with a probability of about `E|ε|` (8 % at worst; under 2 % where A's
//! rounding is most of ε). [`Layer::with_noise`] accepts what its caller says: products that are truncated by f
//! bits bear an ε far below `2^f`.
//!
//! **Who learns what.** The client sees B, which R makes uniform, and A, which is pseudorandom by RLWE in the
//! server's u (fresh for every response) and then rounded: nothing of the weights, of the noise of its own
//! ciphertexts, or of m. R is uniform in all of `Z_(2^(l+5))`, the ring that B lives in, so no noise needs to
//! be flooded. The server sees RLWE ciphertexts.
//!
//! **Bytes and rounds.** Up: 32 bytes and 30·N·limbs bits once per session; then 32 bytes and 30·N·limbs bits a
//! ciphertext, `windows·⌈C/C_w⌉` of them. Down: `(l+10)·N` bits a response, `windows·⌈M/M_w⌉` of them, and `l+5` bits an
//! output. The numbers of ciphertexts and of values are the paper's formulas; a word has fewer bits than the
//! paper's (109 up). One round.
//!
//! What is better here than in the published code: operands stay transformed; the client's a is expanded, the
//! weights are encoded once; both primes fit 32-bit lanes; several outputs share a response where that saves
//! bytes ([`Windows::FewestBytes`]); depthwise layers are packed by the same rule.

mod client;
mod constants;
mod encoding;
mod error;
mod layer;
mod layout;
mod probe;
mod server;

use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::{self, Estimate, ParameterError, RnsParameters};
use jaguar_ring::he::rns::lanes;
use jaguar_ring::prg::Prg;
use jaguar_ring::product::rns::{LIMB_BITS, Rns, RnsPoly};
use jaguar_wire::{Channel, WireError, pack};

use jaguar_linear::backend::Rlwe;

pub use client::{ClientPrepared, Secret};
pub use constants::{RNS_RINGS, RnsCosts, RnsRings};
pub use encoding::Encoding;
pub use error::LayerError;
pub use error::MAX_WINDOWS;
pub use layer::{CHEETAH, Cheetah};
pub use layer::{RnsLayers, allowed_noise};
pub use layout::{Layout, Windows};
pub use layout::{Sizes, parts};
pub use server::{ServerLayer, ServerPrepared};

/// N: how many coefficients a polynomial has.
const RING_DIM: usize = 4096;

/// How many primes q may have: as few as the noise of a layer allows.
const LIMBS: std::ops::RangeInclusive<usize> = 2..=3;

/// The primes are 1 modulo twice this, whatever N is: the largest N of the kernels.
const LARGEST_RING_DIM: usize = 8192;

/// The first primes of q, for all layers.
fn primes(limbs: usize) -> Result<Vec<u64>, ParameterError> {
    params::largest_primes(LARGEST_RING_DIM, LIMB_BITS, limbs)
}

/// Bits below the last place that A keeps: rounding costs `2^-10 · ‖s‖₂ / √12`, 0.015 ulp of standard
/// deviation.
const A_GUARD: u32 = 10;

/// Bits below the last place that B keeps: rounding costs `2^-5 / √12`, 0.009 ulp.
const B_GUARD: u32 = 5;

/// Share widths that the guards and the ring's switching leave room for.
const SHARE_BITS: std::ops::RangeInclusive<u32> = 8..=48;

/// What both parties know of one linear layer.
#[derive(Clone)]
pub struct Layer<E = Layout> {
    params: RnsParameters,
    estimate: Estimate,
    layout: E,
    share_bits: u32,
    noise_ulps: f64,
    /// Whether a server has memory for the transformed weights, after those of the layers before: of a plan's figures only.
    weights_kept: bool,
}

impl<E: std::fmt::Debug> std::fmt::Debug for Layer<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("layout", &self.layout)
            .field("limbs", &self.params.primes().len())
            .field("share_bits", &self.share_bits)
            .field("noise_ulps", &self.noise_ulps)
            .finish()
    }
}

impl Layer {
    /// The largest standard deviation of the noise of a result that is used as it is, in ulps: a whole unit is
    /// an event of ten deviations.
    pub const MAX_NOISE: f64 = 0.1;

    /// Plans one layer over an input of `in_shape`: shares are modulo `2^share_bits`, `weight_bits` bounds
    /// the weights.
    ///
    /// # Errors
    /// When it does not fit the ring, or its noise would show.
    ///
    /// # Panics
    /// When the layer does not fit its input, which `Network::validate` excludes.
    pub fn new(
        spec: &Linear,
        in_shape: Shape,
        share_bits: u32,
        weight_bits: u32,
        windows: Windows,
    ) -> Result<Self, LayerError> {
        Self::with_noise(spec, in_shape, share_bits, weight_bits, windows, Self::MAX_NOISE)
    }

    /// [`new`](Self::new) with noise of a standard deviation of up to `most` ulps, for results that are truncated
    /// by far more than that.
    ///
    /// # Errors
    /// As `new`.
    ///
    /// # Panics
    /// As `new`.
    pub fn with_noise(
        spec: &Linear,
        in_shape: Shape,
        share_bits: u32,
        weight_bits: u32,
        windows: Windows,
        most: f64,
    ) -> Result<Self, LayerError> {
        Self::in_ring(standard_ring, spec, in_shape, (share_bits, weight_bits), windows, most)
    }

    /// [`with_noise`](Self::with_noise) in the first ring by number of primes whose noise is small enough.
    fn in_ring(
        ring: impl Fn(usize) -> Result<RnsParameters, ParameterError>,
        spec: &Linear,
        in_shape: Shape,
        widths: (u32, u32),
        windows: Windows,
        most: f64,
    ) -> Result<Self, LayerError> {
        Self::encoded(ring, spec, in_shape, widths, most, |ring_dim, sizes| {
            Layout::new(ring_dim, spec, in_shape, sizes, windows)
        })
    }
}

/// The ring with so many primes.
pub fn standard_ring(limbs: usize) -> Result<RnsParameters, ParameterError> {
    RnsParameters::new(RING_DIM, &primes(limbs)?)
}

impl<E: Encoding> Layer<E> {
    /// In the first ring by number of primes whose noise is small enough, with the encoding that `encode` chooses for its N:
    /// [`Layer::with_noise`] for any encoding. `widths` are those of shares and weights.
    ///
    /// # Errors
    /// As `with_noise`.
    pub fn encoded(
        ring: impl Fn(usize) -> Result<RnsParameters, ParameterError>,
        spec: &Linear,
        in_shape: Shape,
        (share_bits, weight_bits): (u32, u32),
        most: f64,
        encode: impl Fn(usize, Sizes) -> Result<E, LayerError>,
    ) -> Result<Self, LayerError> {
        if !SHARE_BITS.contains(&share_bits) {
            return Err(LayerError::ShareBits { share_bits });
        }
        // Variances in ulps, at worst-case weights: what the number of outputs a response multiplies, and
        // what not.
        let ulps = |params: &RnsParameters, outs: usize| {
            let modulus: u128 = params.primes().iter().map(|&p| u128::from(p)).product();
            let ulp = modulus as f64 / 2f64.powi(share_bits as i32);
            let sigma = (10.5f64 + 2.0 / 12.0).sqrt(); // Fresh noise, and both shares rounded to Z_q.
            let weights =
                2f64.powi(weight_bits as i32 - 1) * ((outs * encoding::terms(spec, in_shape)) as f64).sqrt();
            let secret = (2.0 / 3.0 * params.ring_dim() as f64).sqrt();
            let rounded = |guard: u32| 2f64.powi(-(guard as i32)) / 12f64.sqrt();
            [
                sigma * weights / ulp,
                sigma * secret / ulp, // e·u
                sigma * secret / ulp, // e1·s
                rounded(A_GUARD) * secret,
                rounded(B_GUARD),
            ]
            .iter()
            .map(|s| s * s)
            .sum::<f64>()
            .sqrt()
        };
        let mut least = f64::INFINITY;
        for limbs in LIMBS {
            let params = ring(limbs)?;
            let (ring_dim, estimate) = (params.ring_dim(), params.estimate());
            least = ulps(&params, 1);
            // The noise grows with the outputs that share a response: the last number that it allows.
            let (mut max_outs, mut excluded) = (0, spec.out_channels + 1);
            while excluded - max_outs > 1 {
                let outs = max_outs.midpoint(excluded);
                if ulps(&params, outs) <= most { max_outs = outs } else { excluded = outs }
            }
            if max_outs == 0 {
                continue;
            }
            let sizes = Sizes {
                up: poly_bytes(&params),
                down: pack::packed_len(ring_dim, share_bits + A_GUARD),
                max_outs,
            };
            let layout = encode(ring_dim, sizes)?;
            let noise_ulps = ulps(&params, layout.terms_per_response() / encoding::terms(spec, in_shape));
            return Ok(Self { params, estimate, layout, share_bits, noise_ulps, weights_kept: true });
        }
        Err(LayerError::Noise { ulps: least, most })
    }

    /// Where values lie in polynomials.
    pub fn layout(&self) -> &E {
        &self.layout
    }

    /// How many primes q has.
    pub fn limbs(&self) -> usize {
        self.params.primes().len()
    }

    /// The ring, on the fastest kernel that `cpu` allows.
    fn ring(&self, cpu: Cpu) -> Rns {
        lanes::ring(cpu, &self.params).expect("primes of the kernels")
    }

    /// Bytes of a polynomial modulo q.
    fn poly_bytes(&self) -> usize {
        poly_bytes(&self.params)
    }

    /// l: shares of input and output are modulo 2^l.
    pub fn share_bits(&self) -> u32 {
        self.share_bits
    }

    /// The RLWE that its ciphertexts and responses rest on.
    pub(crate) fn rlwe(&self) -> Rlwe {
        let (ring_dim, modulus_bits) = (self.params.ring_dim(), self.params.modulus_bits());
        Rlwe { ring_dim, modulus_bits, estimate: self.estimate }
    }

    /// What the ring's security rests on.
    pub(crate) fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Standard deviation of the noise before rounding, in units of the output's last place, at worst-case
    /// weights.
    pub(crate) fn noise_ulps(&self) -> f64 {
        self.noise_ulps
    }

    /// How many units of the products' last place make one of the network's.
    fn product_ulps(&self) -> f64 {
        2f64.powi(self.layout.spec().shift as i32)
    }

    /// Bytes of the client's key, once per session and number of limbs.
    pub(crate) fn key_bytes(&self) -> usize {
        32 + self.poly_bytes()
    }

    /// Bytes of the weights, transformed.
    pub fn weight_bytes(&self) -> usize {
        let layout = &self.layout;
        layout.products_per_tile() * layout.ring_dim() * self.limbs() * size_of::<u32>()
    }

    /// Bytes that the client sends for a query.
    pub fn upload_bytes(&self) -> usize {
        32 + self.layout.ciphertexts() * self.poly_bytes()
    }

    /// Bytes that the server answers a query with.
    pub fn response_bytes(&self) -> usize {
        self.layout.responses() * self.a_bytes() + pack::packed_len(self.layout.outputs(), self.b_bits())
    }

    /// What both parties must have alike: ring, widths, windows and blocks.
    pub(crate) fn public_figures(&self) -> Vec<u64> {
        let ring = [self.layout.ring_dim(), self.limbs()].map(|v| v as u64);
        ring.into_iter().chain(self.layout.figures()).chain([u64::from(self.share_bits)]).collect()
    }

    fn a_bits(&self) -> u32 {
        self.share_bits + A_GUARD
    }

    fn b_bits(&self) -> u32 {
        self.share_bits + B_GUARD
    }

    /// Bytes of one response's A.
    fn a_bytes(&self) -> usize {
        pack::packed_len(self.layout.ring_dim(), self.a_bits())
    }

    /// Which tile and block of outputs a response is of.
    fn place(&self, response: usize) -> (usize, usize) {
        let blocks = self.layout.out_blocks();
        (response / blocks, response % blocks)
    }

    /// How many outputs each response has.
    fn exported(&self) -> impl Iterator<Item = usize> {
        (0..self.layout.responses()).map(|response| {
            let (tile, block) = self.place(response);
            self.layout.exported(tile, block)
        })
    }
}

/// The a half of input ciphertext `index`.
fn a_half(rns: &Rns, seed: &[u8; 32], index: usize) -> RnsPoly {
    rns.uniform(&mut Prg::derive(seed, "cheetah a", &[index as u64]))
}

/// p1, the a half of a key.
fn p1(rns: &Rns, seed: &[u8; 32]) -> RnsPoly {
    rns.uniform(&mut Prg::derive(seed, "cheetah p1", &[]))
}

/// Bytes of a polynomial modulo q.
fn poly_bytes(params: &RnsParameters) -> usize {
    pack::packed_len(params.ring_dim() * params.primes().len(), LIMB_BITS)
}

/// A polynomial from a peer's bytes, [`poly_bytes`] of them.
fn unpack_poly(rns: &Rns, bytes: &[u8]) -> RnsPoly {
    rns.from_words(&pack::unpack(bytes, rns.n() * rns.limbs(), LIMB_BITS))
}

/// The client's public key: the server makes encryptions of zero with it.
pub struct PublicKey {
    seed: [u8; 32],
    /// p0, packed: residues `[limb][n]`.
    p0: Vec<u8>,
}

impl PublicKey {
    /// Sends it.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn send(&self, channel: &mut Channel) -> Result<(), WireError> {
        channel.send(&self.seed)?;
        channel.send(&self.p0)
    }

    /// Receives the key for layers of as many limbs as `layer` has.
    ///
    /// # Errors
    /// When the connection fails.
    pub(crate) fn receive<E: Encoding>(layer: &Layer<E>, channel: &mut Channel) -> Result<Self, WireError> {
        let mut seed = [0; 32];
        channel.recv_into(&mut seed)?;
        Ok(Self { seed, p0: channel.recv(layer.poly_bytes())? })
    }
}

/// The client's encrypted input share.
pub struct Upload {
    seed: [u8; 32],
    /// b, packed: residues `[ciphertext][limb][n]`.
    b: Vec<u8>,
}

impl Upload {
    /// Sends it.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&self, channel: &mut Channel) -> Result<(), WireError> {
        channel.send(&self.seed)?;
        channel.send(&self.b)
    }

    /// Receives it.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn receive<E: Encoding>(layer: &Layer<E>, channel: &mut Channel) -> Result<Self, WireError> {
        let mut seed = [0; 32];
        channel.recv_into(&mut seed)?;
        Ok(Self { seed, b: channel.recv(layer.layout.ciphertexts() * layer.poly_bytes())? })
    }
}

/// The server's answer.
pub struct Response {
    /// A, packed: `[response][n]` modulo `2^(l+10)`.
    a: Vec<u8>,
    /// B at the outputs, response by response, modulo `2^(l+5)`.
    b: Vec<u64>,
}

impl Response {
    /// Sends it.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send<E: Encoding>(&self, layer: &Layer<E>, channel: &mut Channel) -> Result<(), WireError> {
        channel.send(&self.a)?;
        channel.send_packed(&self.b, layer.b_bits())
    }

    /// Receives it.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn receive<E: Encoding>(layer: &Layer<E>, channel: &mut Channel) -> Result<Self, WireError> {
        let a = channel.recv(layer.layout.responses() * layer.a_bytes())?;
        Ok(Self { a, b: channel.recv_packed(layer.layout.outputs(), layer.b_bits())? })
    }
}

#[cfg(test)]
mod coins;
#[cfg(test)]
mod tests;
