//! **Insecure.** A backend that hides nothing: the client sends its share of the input in the clear, and the server computes.
//!
//! `[(Σ w·x + bias) / 2^f] mod 2^o  <-  Linear([x] mod M, w, bias)`: what a homomorphic backend does to shares, without the
//! homomorphic part. It is for tests, of plans and sessions and of domains that no other backend asks for yet, and an example of what
//! a backend's folder holds. Two forms ([`Plaintext`]):
//!
//! | form | M | o |
//! |---|---|---|
//! | power of two | 2^(n+f) | n |
//! | prime | the first prime above 2^(n+f+4) | n + 4 |
//!
//! 1. Server, offline: a seed, to the client. Both expand r from it, uniform modulo M, one for each output: the client's share of
//!    the result modulo M. So the client knows its output before the input.
//! 2. Client, online: its share of the input, packed.
//! 3. Server: adds its own share, computes m = Σ w·x + bias, and takes m − r mod M for its share of the result.
//! 4. Both round their shares from Z_M to Z_(2^o) ([`jaguar_ring::he::sharing`]): shares of m·2^o/M, which is m/2^f but for the
//!    factor 2^(o+f)/M: one for the power of two, and for the prime nearly one.
//!
//! **Error.** One of the two integers next to m·2^o/M: less than one unit, and for the prime |m/2^f|·|2^(o+f)/M − 1| more. The
//! four guard bits are more room, not more precision: the output has the network's scale.
//!
//! **Who learns what.** The server learns the input share of the client, and with its own the input. The client learns nothing
//! beyond its random share; r hides m from it as it would in a secure backend.
//!
//! **Bytes and rounds.** Offline 32 bytes down. Online ⌈log2 M⌉ bits an input value up; nothing down; no round.

mod client;
mod layer;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_mpc::share::Modulus;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::sharing::Rounding;
use jaguar_ring::prg::Prg;
use jaguar_wire::pack;

pub use layer::{ALL, Plaintext};

/// Room above the products in the prime form, in bits.
const GUARD_BITS: u32 = 4;

/// Bytes of a seed.
const SEED_BYTES: usize = 32;

/// What both parties know of one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    spec: Linear,
    in_shape: Shape,
    out_shape: Shape,
    /// n: bits of the activations.
    activation_bits: u32,
    /// M: shares of the input, and of the products.
    modulus: Modulus,
    /// From M to 2^o.
    rounding: Rounding,
}

impl Layer {
    /// Plans one layer over an input of `in_shape`, for values of `activation_bits`; modulo a prime or a power of two.
    ///
    /// # Errors
    /// In words, when the layer does not fit its input or no modulus is wide enough.
    pub(crate) fn new(
        spec: &Linear,
        in_shape: Shape,
        activation_bits: u32,
        prime: bool,
    ) -> Result<Self, String> {
        let [height, width] = spec.output_hw(in_shape).ok_or("the kernel does not fit the input")?;
        let guard = if prime { GUARD_BITS } else { 0 };
        let wide = activation_bits + spec.shift + guard;
        let most = Modulus::MAX_ODD_BITS - 1;
        if wide > most {
            return Err(format!("its products take {wide} bits; this backend takes {most}"));
        }
        let modulus = if prime { prime_above(1 << wide) } else { Modulus::power_of_two(wide) };
        let rounding = Rounding::new(modulus.value(), activation_bits + guard).ok_or("no bits are left")?;
        let out_shape = [spec.out_channels, height, width];
        Ok(Self { spec: spec.clone(), in_shape, out_shape, activation_bits, modulus, rounding })
    }

    /// How many values the input has.
    fn inputs(&self) -> usize {
        self.in_shape.iter().product()
    }

    /// How many values the output has.
    fn outputs(&self) -> usize {
        self.out_shape.iter().product()
    }

    /// Bytes of an input share.
    fn upload_bytes(&self) -> usize {
        pack::packed_len(self.inputs(), self.modulus.bits())
    }

    /// r: one residue for each output, uniform within 2^−66.
    fn mask(&self, seed: [u8; SEED_BYTES]) -> Vec<u64> {
        let mut prg = Prg::new(seed);
        let wide = |prg: &mut Prg| u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
        (0..self.outputs()).map(|_| self.modulus.reduce_wide(wide(&mut prg))).collect()
    }

    /// The largest error besides the rounding: by how much the scale differs from the network's at the largest value.
    fn scale_error(&self) -> f64 {
        let scale = self.rounding.scale(self.modulus.value()) * 2f64.powi(self.spec.shift as i32);
        2f64.powi(self.activation_bits as i32 - 1) * (scale - 1.0).abs()
    }
}

/// The smallest prime above `least`, which is below 2^61.
fn prime_above(least: u64) -> Modulus {
    let mut odd = ((least + 1) | 1..).step_by(2);
    let prime = odd.find(|&p| is_prime(p)).expect("there is one below twice as much");
    Modulus::odd(prime).expect("odd, and of at most 62 bits")
}

/// Whether an odd number is prime: Miller and Rabin's test, to the bases that decide it for 64 bits (Sorenson and Webster, Math. Comp.
/// 2017: the first twelve primes).
fn is_prime(p: u64) -> bool {
    let Some(ring) = Modulus::odd(p) else { return false };
    let (twos, odd) = ((p - 1).trailing_zeros(), (p - 1) >> (p - 1).trailing_zeros());
    let power = |base: u64| {
        let bits = (0..64).rev().map(|i| odd >> i & 1);
        bits.fold(1, |x, bit| ring.mul(ring.mul(x, x), if bit == 1 { base } else { 1 }))
    };
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37].iter().filter(|&&base| base % p != 0).all(|&base| {
        let first = power(ring.reduce(base));
        let mut squares = std::iter::successors(Some(first), |&x| Some(ring.mul(x, x)));
        first == 1 || squares.by_ref().take(twos as usize).any(|x| x == p - 1)
    })
}

/// Public: the layers by node.
#[derive(Debug)]
struct PlaintextLayers {
    name: &'static str,
    by_node: Vec<Option<Layer>>,
}

impl PlaintextLayers {
    fn of(&self, node: usize) -> &Layer {
        self.by_node.get(node).and_then(Option::as_ref).expect("a layer of this backend")
    }
}

/// The server's layers, once per model.
struct PlaintextModel {
    layers: Arc<PlaintextLayers>,
    cpu: Cpu,
    /// By node; `None` where the backend has no layer.
    weights: Vec<Option<Arc<Weights>>>,
}

impl PlaintextModel {
    fn weights(&self, node: usize) -> Arc<Weights> {
        Arc::clone(self.weights.get(node).and_then(Option::as_ref).expect("the plan's layers have weights"))
    }
}
