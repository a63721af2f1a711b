//! Phase sharing for any modulus: from shares modulo q to shares modulo a power of two, by local rounding.
//!
//! `[v·2^n / q] mod 2^n  <-  [v] mod q`: with c + s = v mod q, c or s uniform,
//!
//! ```text
//! client: ⌊c·2^n / q⌋        server: ⌈s·2^n / q⌉        mod 2^n
//! ```
//!
//! Neither sends a thing. For a q that is no power of two, prime or not, as for one that is.
//!
//! **Error.** c + s is v or v + q over the integers, and the latter adds 2^n, which falls away. So the shares add up to one of the
//! two integers next to v·2^n/q (the integer itself, if it is one): off by **less than one unit**. The upper one comes with a
//! probability within 2^n/q of the fraction, so the mean error is below 2^n/q. Nothing else can happen: no comparison in Z_q, no
//! flooding, no failure.
//!
//! **Of a ciphertext.** The phase of a BFV ciphertext is Δ·m + e mod q, with Δ = q/p and m modulo the plaintext modulus p. The server
//! masks it by a uniform R of Z_q; the client's share of the phase is what it decrypts, the server's −R. Rounded, these are shares
//! modulo 2^n of m·2^n/p + e·2^n/q: so the noise counts as it is in units of the last place, and **2^n/p is a fixed factor of the
//! scale**. A layer that wants m/2^f chooses p as close as it can to 2^(n+f), or puts p/2^(n+f) into its weights: what remains of
//! that factor costs |m/2^f|·|2^(n+f)/p − 1| ([`Rounding::scale`]).

use crate::cpu::secret;

/// From shares modulo q to shares modulo 2^n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounding {
    q: u64,
    bits: u32,
    /// ⌊2^(64+n) / q⌋, or the largest word if that is not below 2^64 (q = 2^n).
    reciprocal: u64,
}

impl Rounding {
    /// From shares modulo `q` to shares modulo 2^`bits`; `None` unless 1 ≤ `bits` and 2^`bits` ≤ `q` ≤ 2^63.
    pub fn new(q: u64, bits: u32) -> Option<Self> {
        let fits = (1..=63).contains(&bits) && q >= 1 << bits && q <= 1 << 63;
        let reciprocal = |q: u64| ((1u128 << (64 + bits)) / u128::from(q)).min(u128::from(u64::MAX)) as u64;
        fits.then(|| Self { q, bits, reciprocal: reciprocal(q) })
    }

    /// n: results are shared modulo 2^n.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// By what a value modulo a plaintext modulus `p` is multiplied on its way: 2^n/p. (For shares that live modulo p themselves,
    /// p is q.)
    pub fn scale(&self, p: u64) -> f64 {
        2f64.powi(self.bits as i32) / p as f64
    }

    /// ⌊x·2^n / q⌋, and whether that is not exact, for x < q. Without a division or a branch: x is secret.
    #[inline]
    fn quotient(&self, x: u64) -> (u64, u64) {
        debug_assert!(x < self.q);
        // Too small by one at most, since x < 2^64: less than 2q ≤ 2^64 is left, which is known modulo 2^64.
        let low = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        let left = (x << self.bits).wrapping_sub(low.wrapping_mul(self.q));
        let (rest, below) = left.overflowing_sub(self.q);
        let carry = u64::from(!below);
        let rest = rest.wrapping_add(self.q & secret::mask(below));
        // The top bit of a number or its negative is set unless it is zero. (And rest < q ≤ 2^63.)
        (low + carry, (rest | rest.wrapping_neg()) >> 63)
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The client's share modulo 2^n, of its share modulo q: rounded down.
    #[inline]
    pub fn client(&self, share: u64) -> u64 {
        self.quotient(share).0 & self.mask()
    }

    /// The server's share modulo 2^n, of its share modulo q: rounded up.
    #[inline]
    pub fn server(&self, share: u64) -> u64 {
        let (quotient, inexact) = self.quotient(share);
        (quotient + inexact) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By how much, in units of 1/q, the shares' sum is more than v·2^n/q, v read as signed. (Signed, modulo 2^n.)
    fn error(rounding: Rounding, v: u64, client: u64) -> i128 {
        let (q, n) = (i128::from(rounding.q), rounding.bits);
        let server = (i128::from(v) - i128::from(client)).rem_euclid(q) as u64;
        let (c, s) = (rounding.client(client), rounding.server(server));
        assert!(c >> n == 0 && s >> n == 0, "reduced");
        let sum = i128::from(c) + i128::from(s);
        // The representative of the difference nearest to zero, modulo 2^n units.
        let turn = q << n;
        let difference = (sum * q - (i128::from(v) << n)).rem_euclid(turn);
        if difference > turn / 2 { difference - turn } else { difference }
    }

    /// Every value, in all shares, of every small modulus: one of the two integers next to what is right, exact where that is one,
    /// and the upper one as often as its fraction says.
    #[test]
    fn every_small_modulus() {
        for q in 4..70u64 {
            for bits in (2..7).filter(|&bits| q >= 1 << bits) {
                let rounding = Rounding::new(q, bits).unwrap();
                let mut bias = 0;
                for v in 0..q {
                    for client in 0..q {
                        let off = error(rounding, v, client);
                        assert!(
                            off.abs() < i128::from(q),
                            "{v} modulo {q}, share {client}: off by {off}/{q}"
                        );
                        assert!(off == 0 || (v << bits) % q != 0, "{v} modulo {q} is exact");
                        bias += off;
                    }
                }
                // The mean of all: less than 2^n/q units.
                let mean = bias as f64 / (q * q * q) as f64;
                assert!(mean.abs() < 2f64.powi(bits as i32) / q as f64, "{q} to {bits} bits: {mean}");
            }
        }
    }

    #[test]
    fn rings_that_would_grow_are_refused() {
        for (q, bits) in
            [(15, 4), (0, 1), (1, 1), (16, 0), ((1 << 63) + 1, 20), (u64::MAX, 63), (1 << 20, 64)]
        {
            assert_eq!(Rounding::new(q, bits), None, "{q} to {bits} bits");
        }
        assert!(Rounding::new(1 << 63, 63).is_some() && Rounding::new(16, 4).is_some());
    }

    proptest! {
        #[test]
        fn any_modulus(q: u64, width in 5u32..=63, less in 1u32..60, v: u64, client: u64) {
            let q = 1 << (width - 1) | q >> (65 - width);
            let rounding = Rounding::new(q, (width - 1).saturating_sub(less).max(1)).unwrap();
            for (v, client) in [(v % q, client % q), (q - 1, client % q), (v % q, q - 1), (v % q, 0), (0, v % q), (1, q / 2)] {
                prop_assert!(error(rounding, v, client).abs() < i128::from(q));
            }
        }

        /// A power of two: what the shift of a power-of-two ring does.
        #[test]
        fn a_power_of_two_is_shifted(k in 4u32..=63, less in 0u32..40, x: u64) {
            let bits = k.saturating_sub(less).max(1);
            let rounding = Rounding::new(1 << k, bits).unwrap();
            let (x, mask) = (x & ((1 << k) - 1), (1u64 << bits) - 1);
            prop_assert_eq!(rounding.client(x), x >> (k - bits));
            let negative = x.wrapping_neg() & ((1 << k) - 1);
            prop_assert_eq!(rounding.server(negative), (x >> (k - bits)).wrapping_neg() & mask);
        }

        /// A phase Δ·m + e under any q, of a message modulo any odd p: m·2^n/p within the noise and one unit, m read as signed.
        #[test]
        fn messages_come_with_their_factor(p in 1u64 << 20..1 << 40, q in 1u64 << 58..1 << 62, m: u64, e in -500i64..500, r: u64) {
            let (p, bits) = (p | 1, 20);
            let (m, rounding) = (m % p, Rounding::new(q, bits).unwrap());
            let phase = ((u128::from(q) * u128::from(m) + u128::from(p / 2)) / u128::from(p)) as i128 + i128::from(e);
            let (phase, r) = (phase.rem_euclid(i128::from(q)) as u64, r % q);
            let (c, s) = (rounding.client((phase + r) % q), rounding.server((q - r) % q));
            let sum = (c.wrapping_add(s) << (64 - bits)) as i64 >> (64 - bits);
            let signed = if m > p / 2 { m as f64 - p as f64 } else { m as f64 };
            let turn = 2f64.powi(bits as i32);
            let off = (sum as f64 - signed * rounding.scale(p)).rem_euclid(turn);
            prop_assert!(off.min(turn - off) < 1.001, "off by {}", off);
        }
    }
}
