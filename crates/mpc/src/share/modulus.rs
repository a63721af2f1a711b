//! The ring of integers modulo a power of two, or modulo an odd number.

use std::fmt;

use jaguar_ring::cpu::secret;

/// Modulo what shares add up: 2^bits for `bits` of 1 to 63, or an odd p with 3 ≤ p < 2^62.
///
/// Residues are words from 0 to the modulus less one. Where a function takes *any* word, it says so. No function divides,
/// branches or looks anything up by its argument: shares are secret.
///
/// ```
/// use jaguar_mpc::share::Modulus;
///
/// let p = Modulus::odd(65537).unwrap();
/// let client = 40_000;
/// let server = p.sub(p.from_signed(-5), client);
/// assert_eq!(p.open(client, server), -5);
/// assert_eq!(p.bits(), 17);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modulus(ModulusKind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ModulusKind {
    /// 2^bits.
    PowerOfTwo(u32),
    Odd(Odd),
}

/// An odd p of L bits and what stands in for a division by it (Barrett, CRYPTO 1986).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Odd {
    p: u64,
    /// ⌊2^64 / p⌋, by which words are reduced.
    word: u64,
    /// ⌊2^(2L) / p⌋, below 2^(L+1).
    product: u64,
}

/// All ones where `word`, read as signed, is negative.
#[inline]
fn if_negative(word: u64) -> u64 {
    secret::mask(word >> 63 == 1)
}

impl Odd {
    const fn new(p: u64) -> Self {
        let length = 64 - p.leading_zeros();
        Self { p, word: u64::MAX / p, product: ((1u128 << (2 * length)) / p as u128) as u64 }
    }

    /// x less p, if it is not below p; for x < 2^63 + p.
    #[inline]
    fn below(self, x: u64) -> u64 {
        let less = x.wrapping_sub(self.p);
        less.wrapping_add(self.p & if_negative(less))
    }

    #[inline]
    fn reduce(self, x: u64) -> u64 {
        // Too small by two at most, so less than 3p < 2^64 is left.
        let quotient = ((x as u128 * self.word as u128) >> 64) as u64;
        let left = x - quotient * self.p;
        // 3p may reach beyond 2^63: the first time by an unsigned comparison.
        let (less, borrow) = left.overflowing_sub(self.p);
        self.below(less.wrapping_add(self.p & secret::mask(borrow)))
    }

    #[inline]
    fn mul(self, x: u64, y: u64) -> u64 {
        let length = 64 - self.p.leading_zeros();
        let product = x as u128 * y as u128;
        let high = (product >> (length - 1)) as u64;
        // Too small by two at most, as above.
        let quotient = ((high as u128 * self.product as u128) >> (length + 1)) as u64;
        let left = (product as u64).wrapping_sub(quotient.wrapping_mul(self.p));
        let (less, borrow) = left.overflowing_sub(self.p);
        self.below(less.wrapping_add(self.p & secret::mask(borrow)))
    }
}

impl Modulus {
    /// Odd moduli are below 2^`MAX_ODD_BITS`: a sum of two residues, and its negative, fit an `i64`.
    pub const MAX_ODD_BITS: u32 = 62;

    /// 2^`bits`.
    ///
    /// # Panics
    /// When `bits` is not in 1..=63.
    pub const fn power_of_two(bits: u32) -> Self {
        assert!(1 <= bits && bits <= 63, "shares have 1 to 63 bits");
        Self(ModulusKind::PowerOfTwo(bits))
    }

    /// The odd number `p`; `None` unless it is odd and 3 ≤ `p` < 2^62.
    pub const fn odd(p: u64) -> Option<Self> {
        if p & 1 == 1 && p >= 3 && p >> Self::MAX_ODD_BITS == 0 {
            Some(Self(ModulusKind::Odd(Odd::new(p))))
        } else {
            None
        }
    }

    /// The modulus itself: at most 2^63.
    pub const fn value(self) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => 1 << bits,
            ModulusKind::Odd(odd) => odd.p,
        }
    }

    /// Its logarithm, if it is a power of two.
    pub const fn log2(self) -> Option<u32> {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => Some(bits),
            ModulusKind::Odd(_) => None,
        }
    }

    /// Bits of a residue, as it is packed: the logarithm of the modulus, rounded up.
    pub const fn bits(self) -> u32 {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => bits,
            ModulusKind::Odd(odd) => 64 - odd.p.leading_zeros(),
        }
    }

    /// Whether signed values of `bits` bits, −2^(bits−1) to 2^(bits−1) − 1, are all told apart.
    pub const fn holds(self, bits: u32) -> bool {
        bits < 64 && 1u64 << bits <= self.value()
    }

    /// The residue of any word, read as unsigned.
    #[inline]
    pub fn reduce(self, x: u64) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => x & (u64::MAX >> (64 - bits)),
            ModulusKind::Odd(odd) => odd.reduce(x),
        }
    }

    /// The residue of 128 bits. If they are uniform, the residue is within p/2^128 < 2^−66 of uniform (statistical distance, p
    /// odd; none for powers of two).
    #[inline]
    pub fn reduce_wide(self, x: u128) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(_) => self.reduce(x as u64),
            ModulusKind::Odd(odd) => {
                let carried = self.add(odd.reduce(u64::MAX), 1);
                self.add(odd.mul(odd.reduce((x >> 64) as u64), carried), odd.reduce(x as u64))
            }
        }
    }

    /// The sum of two residues.
    #[inline]
    pub fn add(self, x: u64, y: u64) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(_) => self.reduce(x.wrapping_add(y)),
            ModulusKind::Odd(odd) => odd.below(x + y),
        }
    }

    /// The difference of two residues.
    #[inline]
    pub fn sub(self, x: u64, y: u64) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(_) => self.reduce(x.wrapping_sub(y)),
            ModulusKind::Odd(odd) => {
                let difference = x.wrapping_sub(y);
                difference.wrapping_add(odd.p & if_negative(difference))
            }
        }
    }

    /// The negative of a residue.
    #[inline]
    pub fn neg(self, x: u64) -> u64 {
        self.sub(0, x)
    }

    /// The product of two residues.
    #[inline]
    pub fn mul(self, x: u64, y: u64) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(_) => self.reduce(x.wrapping_mul(y)),
            ModulusKind::Odd(odd) => odd.mul(x, y),
        }
    }

    /// The residue of 2^`exponent`, for `exponent` of at most 63.
    pub fn power(self, exponent: u32) -> u64 {
        self.reduce(1 << exponent)
    }

    /// The residue of any signed number.
    #[inline]
    pub fn from_signed(self, x: i64) -> u64 {
        match self.0 {
            ModulusKind::PowerOfTwo(_) => self.reduce(x as u64),
            ModulusKind::Odd(odd) => {
                let size = odd.reduce(x.unsigned_abs());
                size ^ ((size ^ self.neg(size)) & if_negative(x as u64))
            }
        }
    }

    /// The value of a residue that is nearest to zero: −2^(bits−1) to 2^(bits−1) − 1, or −(p−1)/2 to (p−1)/2.
    #[inline]
    pub fn centred(self, x: u64) -> i64 {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => (x << (64 - bits)) as i64 >> (64 - bits),
            ModulusKind::Odd(odd) => {
                let above = if_negative((odd.p / 2).wrapping_sub(x));
                x as i64 - (odd.p & above) as i64
            }
        }
    }

    /// The signed value of two shares, residues both.
    pub fn open(self, client: u64, server: u64) -> i64 {
        self.centred(self.add(client, server))
    }
}

/// `2^28` or `65537`.
impl fmt::Display for Modulus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ModulusKind::PowerOfTwo(bits) => write!(f, "2^{bits}"),
            ModulusKind::Odd(odd) => write!(f, "{}", odd.p),
        }
    }
}

impl fmt::Debug for Modulus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a modulus may be, large ones and small ones, and the border cases of each kind.
    fn modulus() -> impl Strategy<Value = Modulus> {
        prop_oneof![
            (1u32..=63).prop_map(Modulus::power_of_two),
            (2u32..=62, any::<u64>())
                .prop_map(|(bits, x)| Modulus::odd((x >> (64 - bits) | 1).max(3)).unwrap()),
            Just(Modulus::odd(3).unwrap()),
            Just(Modulus::odd((1 << 62) - 1).unwrap()),
        ]
    }

    fn of(m: Modulus, x: i128) -> u64 {
        x.rem_euclid(i128::from(m.value())) as u64
    }

    #[test]
    fn moduli_out_of_range_are_refused() {
        for p in [0, 1, 2, 4, 1 << 62, (1 << 62) + 1, u64::MAX] {
            assert_eq!(Modulus::odd(p), None, "{p}");
        }
        for bits in [0, 64] {
            assert!(std::panic::catch_unwind(|| Modulus::power_of_two(bits)).is_err(), "{bits}");
        }
    }

    #[test]
    fn widths_are_those_of_the_largest_residue() {
        for (p, bits) in [(3, 2), (5, 3), (7, 3), (9, 4), (65535, 16), (65537, 17), ((1 << 62) - 1, 62)] {
            assert_eq!(Modulus::odd(p).unwrap().bits(), bits);
        }
        let p = Modulus::odd(65537).unwrap();
        assert!(p.holds(16) && !p.holds(17));
        assert!(Modulus::power_of_two(16).holds(16) && !Modulus::power_of_two(16).holds(17));
        assert_eq!((p.to_string(), Modulus::power_of_two(8).to_string()), ("65537".into(), "2^8".into()));
    }

    /// All residues of all small moduli, and the largest words.
    #[test]
    fn small_moduli_agree_with_division() {
        for p in (3..80).step_by(2) {
            let m = Modulus::odd(p).unwrap();
            for x in (0..3 * p).chain(u64::MAX - 3 * p..=u64::MAX) {
                assert_eq!(m.reduce(x), x % p);
            }
            for (x, y) in (0..p).flat_map(|x| (0..p).map(move |y| (x, y))) {
                assert_eq!((m.mul(x, y), m.add(x, y)), (x * y % p, (x + y) % p));
                assert_eq!(m.sub(x, y), (x + p - y) % p);
            }
        }
    }

    proptest! {
        #[test]
        fn arithmetic_is_that_of_integers(m in modulus(), x: u64, y: u64, signed: i64, wide: u128) {
            prop_assert_eq!(m.reduce(x), of(m, i128::from(x)));
            let (a, b) = (m.reduce(x), m.reduce(y));
            let (wide_a, wide_b) = (i128::from(a), i128::from(b));
            prop_assert_eq!(m.add(a, b), of(m, wide_a + wide_b));
            prop_assert_eq!(m.sub(a, b), of(m, wide_a - wide_b));
            prop_assert_eq!(m.neg(a), of(m, -wide_a));
            prop_assert_eq!(m.mul(a, b), of(m, wide_a * wide_b));
            prop_assert_eq!(m.from_signed(signed), of(m, i128::from(signed)));
            prop_assert_eq!(u128::from(m.reduce_wide(wide)), wide % u128::from(m.value()));
        }

        #[test]
        fn centred_values_are_nearest_to_zero(m in modulus(), x: u64, share: u64) {
            let (x, share) = (m.reduce(x), m.reduce(share));
            let value = m.centred(x);
            prop_assert_eq!(m.from_signed(value), x);
            prop_assert!(2 * i128::from(value).abs() <= i128::from(m.value()));
            prop_assert_eq!(m.open(share, m.sub(x, share)), value);
        }
    }
}
