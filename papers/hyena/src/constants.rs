//! What encryption in SIMD slots takes on a machine, by ring.

use serde::{Deserialize, Serialize};

/// (N, bits of primes): the rings of SIMD slots that backends use. Vector kernels know two widths of primes.
pub const SLOT_RINGS: [(usize, u32); 4] = [(4096, 50), (4096, 60), (8192, 50), (8192, 60)];

/// What encryption in slots takes in rings of one N, in seconds of one core: of N words modulo one prime, where nothing
/// else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotCosts {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: usize,
    /// The primes' bits, at most.
    pub limb_bits: u32,
    /// Seconds of each kind of work.
    #[serde(flatten)]
    pub each: SlotWork,
}

/// Work on N words modulo one prime, by what is done with them: how often, or how long each takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotWork {
    /// Transformed, forwards or back.
    pub transform: f64,
    /// Times others, added up.
    pub product: f64,
    /// Times a number, added up in 128 bits.
    pub scalar: f64,
    /// Times a number on each of some stretches, added up.
    pub stretches: f64,
    /// A sum in 128 bits reduced, at its end.
    pub sum: f64,
    /// Made of small numbers, before it is transformed: a digit, or a plaintext.
    pub small: f64,
    /// Of one digit of a ciphertext: moved by an automorphism, times both halves of a key.
    pub switch: f64,
    /// Of an encryption of zero under the secret key, with its a half from a seed.
    pub encryption: f64,
    /// Of an encryption of zero under the public key, in both halves.
    pub zero: f64,
    /// Packed or unpacked.
    pub packing: f64,
    /// Drawn from a seed.
    pub uniform: f64,
    /// N slots to a plaintext, or back; all of them, once.
    pub encoding: f64,
    /// A plaintext times q/p, or a phase rounded to one.
    pub rounding: f64,
}

impl SlotWork {
    /// All figures.
    pub(crate) fn all(self) -> [f64; 13] {
        let Self { transform, product, scalar, stretches, sum, small, switch, .. } = self;
        let Self { encryption, zero, packing, uniform, encoding, rounding, .. } = self;
        [
            transform, product, scalar, stretches, sum, small, switch, encryption, zero, packing, uniform,
            encoding, rounding,
        ]
    }

    /// The figures that [`all`](Self::all) gives.
    fn of(all: [f64; 13]) -> Self {
        let [transform, product, scalar, stretches, sum, small, switch, rest @ ..] = all;
        let [encryption, zero, packing, uniform, encoding, rounding] = rest;
        Self {
            transform,
            product,
            scalar,
            stretches,
            sum,
            small,
            switch,
            encryption,
            zero,
            packing,
            uniform,
            encoding,
            rounding,
        }
    }

    /// Work done so often each, in seconds where each takes so long.
    pub(crate) fn seconds(self, each: &Self) -> f64 {
        self.all().iter().zip(each.all()).map(|(count, cost)| count * cost).sum()
    }
}

impl std::ops::Add for SlotWork {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (a, b) = (self.all(), other.all());
        Self::of(std::array::from_fn(|i| a[i] + b[i]))
    }
}

impl std::ops::Mul<f64> for SlotWork {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self::of(self.all().map(|count| count * times))
    }
}

/// The costs of all [`SLOT_RINGS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SlotRings(pub Vec<SlotCosts>);

impl SlotRings {
    /// Those of rings with N and primes of `limb_bits` bits: measured for the same N and the narrowest primes that are at least as wide.
    pub(crate) fn of(&self, ring_dim: usize, limb_bits: u32) -> Option<&SlotWork> {
        let fits = |r: &&SlotCosts| r.ring_dim == ring_dim && r.limb_bits >= limb_bits;
        self.0.iter().filter(fits).min_by_key(|r| r.limb_bits).map(|r| &r.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jaguar_linear::constants::Constants;

    #[test]
    fn rings_are_found_and_looked_at() {
        let costs = |(ring_dim, limb_bits): (usize, u32)| SlotCosts {
            ring_dim,
            limb_bits,
            each: SlotWork::of([f64::from(limb_bits); 13]),
        };
        let rings = SlotRings(SLOT_RINGS.map(costs).to_vec());
        assert_eq!(rings.of(8192, 41).unwrap().transform, 50.0);
        assert_eq!(rings.of(8192, 51).unwrap().transform, 60.0);
        assert!(rings.of(8192, 61).is_none() && rings.of(2048, 50).is_none());
        assert_eq!(rings.impossible(), None);
        // What differences of disturbed measurements leave.
        for change in [|each: &mut SlotWork| each.scalar = 0.0, |each: &mut SlotWork| each.switch = -1.0] {
            let mut bad = rings.clone();
            change(&mut bad.0[2].each);
            let why = bad.impossible().unwrap().to_string();
            assert!(why.contains("N = 8192 with primes of 50 bits"), "{why}");
        }
        let few = SlotRings(rings.0[..1].to_vec());
        assert!(few.impossible().unwrap().to_string().contains("primes of 60 bits: missing"));
    }
}
