//! Hyena: convolutions in SIMD slots, with weights that stay numbers (Roh and Choi, "Hyena: Optimizing
//! Homomorphically Encrypted Convolution for Private CNN Inference").
//!
//! `[(Σ w·x + bias) / 2^f] mod 2^n  <-  Linear([x] mod p, w, bias)`. N values in the slots of a ciphertext
//! (`packing.rs`) under BFV over an RNS ring; p = μ·2^(n+f) + 1 ([`PlainPrime`]).
//!
//! 1. *Once a client.* The client sends public keys ([`JointKeys`](jaguar_ring::he::rns::JointKeys)) and a key for each automorphism
//!    that any layer takes. The server keeps them under the client's name; the client keeps a seed.
//! 2. *Both, offline:* the client encrypts zeros. For each response the server draws R, uniform modulo q', encrypts zero
//!    under the client's public keys without the primes that are dropped, and makes its share of −R (step 7). Nothing
//!    passes. Of what would take more than [`AHEAD`] bytes there are seeds, and the rest is done online.
//! 3. *Client, online:* adds its share of the input in slots; the b halves and the seeds of the a halves leave.
//! 4. *Server:* adds its own share. Rotates each ciphertext by every tap and baby step; the rotations share the split into digits
//!    (hoisting).
//! 5. *Server:* for every output block and rotation d of channels (*diagonal*), Σ of (rotated input) × (weights of the
//!    pairs of channels that d brings together), in one of several forms ([`Form`]); turns it by d, adds all diagonals.
//! 6. *Server:* brings up to four sums together under one a half, each under a secret of its own ([`Joint`]). Drops primes until q' is
//!    left, adds the encryptions of zero, and an R to each b half, sends all halves.
//! 7. Both, alone: the client has c = phase + R modulo q', the server −R. Each rounds its share from Z_q' to Z_p,
//!    coefficient by coefficient to the nearest, and takes the slots of what that gives: shares modulo p of
//!    k·c_n·(Σ w·x). It multiplies them by μ/(k·c_n) modulo p; the server adds μ·bias. Then it rounds them from Z_p
//!    to Z_(2^n) ([`jaguar_ring::he::sharing`]).
//!
//! **Forms.** A layer has one of these; all layers of a plan share one ring and one set of keys. With c_n channels in a
//! ciphertext a diagonal's weights are a vector f that is constant on each of c_n channels.
//!
//! | backend | f times the input | products a diagonal and tap | response |
//! |---|---|---|---|
//! | `hyena` | channels interleaved (`interleaved.rs`): f is a plaintext of c_n coefficients, one number on each of c_n stretches of a ciphertext | 1 by numbers, and more for rotations that wrap | c_n output channels |
//! | `hyena-walsh-hadamard`, the paper's; for its tables, in no session | f = H·g/c_n, H the Walsh-Hadamard matrix: c_n products with numbers g, and behind the sum over taps and input blocks c_n − 1 products with fixed ±1 patterns | c_n scalars | c_n output channels |
//! | `hyena-padded` | one output channel: f is not zero on one part, and what the number does to other parts is not used | 1 scalar | 1 output channel |
//! | `hyena-conventional` | f as a plaintext | 1 plaintext | c_n output channels |
//!
//! Sums of products with numbers are made in 128 bits and reduced once. In the paper's form, where two rows hold two channels, the
//! pattern \[1, −1\] is `h·(X^(N/4) + X^(3N/4))`, and all is multiplied by a k for which k and k·h modulo p are
//! both small ([`Scaling`]).
//!
//! **No factor remains.** The paper puts k and 1/c_n into the scale of what follows. Here both parties divide by
//! them modulo p, which is exact.
//!
//! **Why not straight from Z_q to Z_(2^n).** The result sits in slots, and slots are sums of N coefficients modulo
//! p: coefficients must be right to the last unit. So shares go to Z_p first. c and −R are rounded to the nearest;
//! that gives the right sum unless e moves the fraction of R·p/q' over a half. R is uniform, so that
//! happens with a probability of E|e|·p/q' for a coefficient. Rings are chosen so that it is below 2^-40 for all
//! of a layer's responses, and then the noise e has no effect on the result at all.
//!
//! **Error.** That of the last rounding: less than `1 + 2^(n-1)/p` units.
//!
//! **Who learns what.** The server sees ciphertexts and keys under the client's secret. (Keys are encryptions of
//! functions of the secret under itself: circular security, as for all BFV with rotations.) The client sees c,
//! uniform modulo q' whatever the product and its noise are, and an a half with a fresh `p1·u + e1` (a response's own, or that of
//! several: their R are independent): it learns no
//! coefficient of anything but its share. Its own coin is what it rounds away from Z_p to Z_(2^n); guard bits and the noise
//! of what is opened hide what that does ([`jaguar_graph::network::Network::noise_bits`]).
//!
//! **Bytes and rounds.** N·log2 q bits a ciphertext up, N·log2 q' bits a response down, and as many for each a half: 1.25 times as
//! many where four share one; one round.
//!
//! The rings' arithmetic is in words of 64 bits, on vector kernels ([`jaguar_ring::modular::slices`]). They are fastest for
//! primes of up to 50 bits ([`jaguar_ring::modular::NARROW_BITS`]).

mod backend;
mod blocks;
mod client;
mod constants;
mod cost;
mod interleaved;
mod layer;
mod packing;
mod places;
mod plaintexts;
mod probe;
mod search;
mod server;
pub mod steps;
#[cfg(test)]
mod tests;
mod windows;

use jaguar_graph::network::{BlockKind, Linear, Shape};
use jaguar_mpc::share::Modulus;
use jaguar_ring::he::params::ParameterError;
use jaguar_ring::he::rns::{Batch, Coefficients, PlainModulus, Poly, Ring};
use jaguar_ring::he::sharing::Rounding;
use jaguar_ring::modular::Factor;
use zeroize::Zeroizing;

pub use backend::{ALL, Hyena};
pub use blocks::{BlockPacking, Counts, Parts};
pub use constants::{SLOT_RINGS, SlotCosts, SlotRings, SlotWork};
pub use interleaved::Interleaved;
pub use packing::{Outputs, Packing};
pub use places::Places;
pub use plaintexts::{PlainPrime, Scaling, row_pattern};
pub use search::{Chosen, Fitted, Found, Joint, MOST_FAILURES, Wanted, Weighed, search};
pub use windows::Windows;

/// How weights meet ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Numbers on stretches of ciphertexts, channels interleaved; output channels packed.
    Interleaved,
    /// Numbers; one output channel a ciphertext.
    Padded,
    /// Numbers by Walsh-Hadamard; output channels packed.
    WalshHadamard,
    /// Plaintexts; output channels packed.
    Conventional,
    /// Plaintexts, each with blocks of channels: CirEncode.
    Blocks,
}

impl Form {
    /// The backend's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interleaved => "hyena",
            Self::Padded => "hyena-padded",
            Self::WalshHadamard => "hyena-walsh-hadamard",
            Self::Conventional => "hyena-conventional",
            Self::Blocks => "cirencode",
        }
    }

    /// The form of a backend's name.
    fn of(name: &str) -> Option<Self> {
        [Self::Interleaved, Self::Padded, Self::WalshHadamard, Self::Conventional, Self::Blocks]
            .into_iter()
            .find(|form| form.name() == name)
    }

    fn outputs(self) -> Outputs {
        match self {
            Self::Padded => Outputs::One,
            Self::Interleaved | Self::WalshHadamard | Self::Conventional | Self::Blocks => Outputs::All,
        }
    }
}

/// What both parties know of one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    fitted: Fitted,
    ring: Chosen,
    /// Ciphertexts, and groups of responses with one a half, that are made offline, as far as that is possible.
    ahead: [usize; 2],
    /// Whether the server keeps its weights as polynomials, where it has such.
    held: bool,
    activation_bits: u32,
    weight_bits: u32,
    modulus: Modulus,
    /// From p to 2^n.
    rounding: Rounding,
}

impl Layer {
    /// With `ahead` bytes at the client and at the server for what is made offline, and `memory` bytes for weights.
    fn new(wanted: &Wanted<'_>, fitted: Fitted, ring: Chosen, ahead: [u64; 2], memory: u64) -> Option<Self> {
        let modulus = Modulus::odd(fitted.plain.p)?;
        let rounding = Rounding::new(fitted.plain.p, wanted.activation_bits)?;
        let (activation_bits, weight_bits) = (wanted.activation_bits, wanted.weight_bits);
        let counts = [fitted.packing.ciphertexts(), fitted.packing.joints(ring.joint.count)];
        let each = ring.ahead_bytes();
        let ahead = [0, 1].map(|i| (ahead[i] / each[i]).min(counts[i] as u64) as usize);
        let mut layer =
            Self { fitted, ring, ahead, held: false, activation_bits, weight_bits, modulus, rounding };
        layer.held = layer.plaintext_bytes() <= memory;
        Some(layer)
    }

    fn form(&self) -> Form {
        self.fitted.form
    }

    /// Where channels sit.
    pub fn packing(&self) -> &Places {
        &self.fitted.packing
    }

    /// Where they sit in a layer whose channels have a part each.
    fn slots(&self) -> &Packing {
        match self.packing() {
            Places::Channels(packing) => packing,
            Places::Interleaved(_) | Places::Blocks(_) => unreachable!("such a layer has its own steps"),
        }
    }

    /// How parts are transformed: how long they are and modulo what; `None` where they are not.
    fn transform(&self) -> Option<(usize, BlockKind)> {
        match self.packing() {
            Places::Channels(_) | Places::Interleaved(_) => None,
            Places::Blocks(packing) => Some((packing.part(), packing.kind())),
        }
    }

    fn spec(&self) -> &Linear {
        self.fitted.packing.spec()
    }

    fn in_shape(&self) -> Shape {
        self.fitted.packing.in_shape()
    }

    fn outputs(&self) -> usize {
        self.fitted.packing.out_shape().iter().product()
    }

    /// k where there are patterns, 1 elsewhere.
    fn factor(&self) -> u64 {
        self.fitted.scaling.k
    }

    /// By what the slots of a response are more than the products: k·c_n.
    fn gain(&self) -> u64 {
        match self.form() {
            Form::WalshHadamard => self.factor() * self.fitted.packing.channels() as u64,
            Form::Interleaved | Form::Padded | Form::Conventional | Form::Blocks => 1,
        }
    }

    /// log2 of the chance that a response is wrong anywhere, in one query.
    pub fn failure(&self) -> f64 {
        self.fitted.failure(&self.ring)
    }

    /// How many plaintexts its weights are, where they are plaintexts.
    fn plaintexts(&self) -> usize {
        let packing = match (self.form(), self.packing()) {
            (_, Places::Blocks(packing)) => return packing.work().products,
            (Form::Conventional, Places::Channels(packing)) => packing,
            _ => return 0,
        };
        (0..packing.out_blocks()).map(|block| packing.terms(block)).sum::<usize>() * packing.taps().len()
    }

    /// Bytes of them.
    fn plaintext_bytes(&self) -> u64 {
        self.plaintexts() as u64 * self.ring.words_bytes(self.ring.params.primes().len())
    }

    /// Bytes that the client and the server keep between offline and online.
    fn prepared_bytes(&self) -> [u64; 2] {
        let (packing, each) = (self.packing(), self.ring.ahead_bytes());
        let counts = [packing.ciphertexts(), packing.joints(self.ring.joint.count)];
        [0, 1].map(|i| self.ahead[i] as u64 * each[i] + 32 * (counts[i] - self.ahead[i]) as u64)
    }

    /// Bytes that the client and the server take while it runs: ciphertexts in the making, and at the server those of a
    /// group of tiles in all rotations, and the sums of each thread.
    fn running_bytes(&self, threads: usize) -> [u64; 2] {
        let (packing, limbs) = (self.packing(), self.ring.params.primes().len());
        let (whole, kept) = (2 * self.ring.words_bytes(limbs), 2 * self.ring.words_bytes(self.ring.kept));
        let upload = packing.ciphertexts() as u64 * self.ring.poly_bytes(limbs) as u64;
        let batch = |count: usize| count.min(client::TOGETHER) as u64;
        let client = (batch(packing.ciphertexts()) * whole).max(batch(packing.responses()) * 2 * kept);
        // A digit of a ciphertext, a sum in words of twice the width, and what is turned.
        let thread = whole * (self.ring.digits() as u64 / 2 + 4);
        // Sums of interleaved channels: those of each thread, and those of the output blocks that they are added to.
        let sums = match packing {
            Places::Interleaved(packing) => {
                let most = packing.work().most[0] * packing.out_blocks();
                (threads * most.min(server::MOST_SUMS)) as u64 + batch(packing.out_blocks())
            }
            Places::Channels(_) | Places::Blocks(_) => 0,
        };
        let server = upload + (packing.turned() as u64 + sums) * whole + threads as u64 * thread;
        [client, server + batch(packing.responses()) * kept]
    }

    /// What decides how a layer's numbers are encoded: layers for which this is alike share tables.
    fn encoding(&self) -> Encoding {
        Encoding {
            plain: self.fitted.plain,
            channels: self.packing().channels(),
            form: self.form(),
            transform: self.transform(),
        }
    }

    /// What computing in this layer takes.
    fn tools(&self, ring: &Ring) -> Result<Tools, ParameterError> {
        let plain = PlainModulus::new(ring, self.fitted.plain.p)?;
        let m = *plain.modulus();
        let gain = m.inverse(m.reduce(self.gain())).expect("below a prime");
        let back = m.factor(m.mul(m.reduce(self.fitted.plain.multiple), gain));
        let batch = Batch::new(ring.n(), self.fitted.plain.p)?.on(ring.kernel());
        let transform = self.transform().map(|(part, kind)| {
            Parts::new(ring.kernel(), part, kind, self.fitted.plain.p)
                .expect("p has roots for all slots, so for a part of them")
        });
        Ok(Tools { batch, plain, transform, back })
    }
}

/// What layers that share tables have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Encoding {
    /// p with its μ: layers of different f may have the same p.
    plain: PlainPrime,
    /// c_n: channels that a ciphertext holds.
    channels: usize,
    form: Form,
    transform: Option<(usize, BlockKind)>,
}

/// Bytes that either party keeps of one query's linear layers between offline and online, at most: encryptions, masks and
/// shares of them. Of what is more there are seeds of 32 bytes.
pub const AHEAD: u64 = 1 << 30;

/// What computing in one layer takes, apart from the ring.
struct Tools {
    plain: PlainModulus,
    batch: Batch,
    /// Of parts with blocks.
    transform: Option<Parts>,
    /// μ/(k·c_n) modulo p.
    back: Factor,
}

impl Tools {
    /// The polynomial modulo p whose places hold `places`, taken modulo p.
    fn encode(&self, mut places: Zeroizing<Vec<u64>>) -> Zeroizing<Vec<u64>> {
        if let Some(parts) = &self.transform {
            let p = self.plain.modulus();
            places.iter_mut().for_each(|place| *place = p.reduce(*place));
            parts.forward(&mut places);
        }
        Zeroizing::new(self.batch.encode(&places))
    }

    /// What stands at the places of a polynomial of `ring` that is rounded to Z_p.
    fn decode(&self, ring: &Ring, phase: &Poly<Coefficients>) -> Zeroizing<Vec<u64>> {
        let mut places = Zeroizing::new(self.batch.decode(&self.plain.round(ring, phase)));
        if let Some(parts) = &self.transform {
            parts.backward(&mut places);
        }
        places
    }
}

/// The ring of responses: `ring` without the primes that are dropped.
fn response_ring(ring: &Ring, kept: usize) -> Ring {
    std::iter::successors(Some(ring.clone()), Ring::smaller)
        .find(|ring| ring.limbs() == kept)
        .expect("some primes of the ring are kept")
}
