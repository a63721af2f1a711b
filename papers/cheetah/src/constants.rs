//! What layers over RNS rings take on a machine, by ring.

use serde::{Deserialize, Serialize};

use jaguar_linear::constants::{Impossible, LEAST_WORD};

/// (N, primes of 30 bits): the RNS rings that backends use.
pub const RNS_RINGS: [(usize, usize); 2] = [(4096, 2), (4096, 3)];

/// What one RNS ring's linear layers take, in seconds of one core, transforms included: each is a whole step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RnsCosts {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: usize,
    /// How many primes q has.
    pub limbs: usize,
    /// Once per model, server: one polynomial of weights transformed.
    pub weights: f64,
    /// Offline, client: one ciphertext's e − a·s, a being expanded.
    pub ciphertext: f64,
    /// Offline, server: the randomness of one response.
    pub zero: f64,
    /// Online, client: one ciphertext's message added.
    pub encryption: f64,
    /// Online, server: both halves of one ciphertext transformed, its share being added.
    pub input: f64,
    /// Online, server: one ciphertext times one polynomial of weights, added up. Reading the weights is most of it.
    pub product: f64,
    /// Online, server: one response: an encryption of zero added, transformed back, rounded and masked.
    pub response: f64,
    /// Online, client: one response decrypted.
    pub decryption: f64,
}

impl RnsCosts {
    /// The first figure that no machine can have.
    pub(super) fn impossible(&self) -> Option<Impossible> {
        let Self { ring_dim, limbs, weights, ciphertext, zero, encryption, input, product, .. } = *self;
        let steps = [
            ("a polynomial of weights", weights),
            ("a ciphertext", ciphertext),
            ("the randomness of a response", zero),
            ("an encryption", encryption),
            ("an input", input),
            ("a product", product),
            ("a response", self.response),
            ("a decryption", self.decryption),
        ];
        steps.into_iter().find_map(|(step, seconds)| {
            let figure = format_args!("{step} of the ring N = {ring_dim} with {limbs} primes");
            Impossible::time(figure, seconds, LEAST_WORD * ring_dim as f64)
        })
    }
}

/// The costs of all [`RNS_RINGS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RnsRings(pub Vec<RnsCosts>);

impl RnsRings {
    /// Those of the ring with N and so many primes.
    pub(crate) fn of(&self, ring_dim: usize, limbs: usize) -> Option<&RnsCosts> {
        self.0.iter().find(|r| (r.ring_dim, r.limbs) == (ring_dim, limbs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jaguar_linear::constants::Constants;

    #[test]
    fn rings_are_found_and_looked_at() {
        let costs = |(ring_dim, limbs): (usize, usize)| RnsCosts {
            ring_dim,
            limbs,
            weights: 1e-5,
            ciphertext: 1e-4,
            zero: 1e-5,
            encryption: 1e-5,
            input: 2e-5,
            product: 1e-6,
            response: 5e-5,
            decryption: 1e-5,
        };
        let rings = RnsRings(RNS_RINGS.map(costs).to_vec());
        assert_eq!((rings.of(4096, 3).unwrap().limbs, rings.impossible()), (3, None));
        assert!(rings.of(4096, 4).is_none() && rings.of(2048, 2).is_none());
        let mut bad = rings.clone();
        // As two equations of disturbed measurements leave it.
        bad.0[1].response = 0.0;
        let why = bad.impossible().unwrap().to_string();
        assert!(why.starts_with("a response of the ring N = 4096 with 3 primes: 0.0 ns"), "{why}");
        bad.0[0].product = f64::NAN;
        assert!(bad.impossible().unwrap().figure.contains("2 primes"));
        bad.0.remove(0);
        assert!(bad.impossible().unwrap().found.contains("missing"));
    }
}
