//! A modulus and a scale.

use crate::share::Modulus;

/// Where shares of a value live, and what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    /// The shares add up modulo this.
    pub modulus: Modulus,
    /// The scale: their sum is the network's value times 2^excess. Above zero for products that are not truncated yet.
    pub excess: u32,
}

impl Domain {
    /// Modulo `modulus`, at the network's own scale.
    pub const fn new(modulus: Modulus) -> Self {
        Self { modulus, excess: 0 }
    }

    /// Modulo 2^`bits`, at the network's own scale.
    ///
    /// # Panics
    /// When `bits` is not in 1..=63.
    pub const fn power_of_two(bits: u32) -> Self {
        Self::new(Modulus::power_of_two(bits))
    }

    /// The same modulus at 2^`excess` times the network's scale.
    pub const fn with_excess(self, excess: u32) -> Self {
        Self { excess, ..self }
    }

    /// Whether a party can take its shares of `self` for shares of `other` without a word to its peer: the same scale, and the same
    /// modulus or, among powers of two, one that divides it.
    pub fn reduces_to(self, other: Self) -> bool {
        let divides = match (self.modulus.log2(), other.modulus.log2()) {
            (Some(bits), Some(others)) => others <= bits,
            _ => self.modulus == other.modulus,
        };
        divides && self.excess == other.excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_reduced_to_divisors_only() {
        let p = Domain::new(Modulus::odd(15).unwrap());
        let (wide, narrow) = (Domain::power_of_two(28), Domain::power_of_two(16));
        assert!(wide.reduces_to(narrow) && wide.reduces_to(wide) && p.reduces_to(p));
        assert!(!narrow.reduces_to(wide));
        assert!(!wide.reduces_to(p) && !p.reduces_to(narrow));
        assert!(!p.reduces_to(Domain::new(Modulus::odd(5).unwrap())), "nobody needs it");
        assert!(!wide.reduces_to(narrow.with_excess(1)));
    }
}
