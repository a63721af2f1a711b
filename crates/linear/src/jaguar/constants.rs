//! What layers over Z_(2^k) take on a machine, by ring.

use jaguar_graph::network::Linear;
use jaguar_ring::he::power_of_two::{ParameterError, Parameters};
use serde::{Deserialize, Serialize};

use crate::backend::ChosenRing;
use crate::constants::{Impossible, LEAST_WORD};

/// The sets that are looked at, all of them with an estimate of 128 bits or more on record. Widths in between cost what the next one here
/// does: limbs have 16 bits, and up to 48 bits two primes hold a product of N = 2048.
pub const RINGS: [ChosenRing; 4] = [
    ChosenRing { ring_dim: 2048, modulus_bits: 48 },
    ChosenRing { ring_dim: 2048, modulus_bits: 32 },
    ChosenRing { ring_dim: 2048, modulus_bits: 53 },
    ChosenRing { ring_dim: 4096, modulus_bits: 48 },
];

/// The parameter set of a ring, if it may be used.
pub(super) fn parameters(ring: ChosenRing) -> Result<Parameters, ParameterError> {
    Parameters::new(ring.ring_dim as usize, ring.modulus_bits)
}

/// Seconds of a multiply-add of a small weight and a word, by the shape that decides how well it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerProduct {
    /// At least 128 positions side by side, one group.
    pub wide: f64,
    /// Fewer positions, one group. For the a half: layers that pack at least four maps into a ciphertext, at the
    /// distance of a power of two.
    pub narrow: f64,
    /// Several groups (depthwise layers).
    pub grouped: f64,
}

/// From so many positions a product counts as wide.
const WIDE: usize = 128;

/// Positions are computed a vector at a time.
const VECTOR: usize = 16;

/// For how many positions a product of `len` costs.
pub fn positions(len: usize) -> usize {
    len.next_multiple_of(VECTOR)
}

impl PerProduct {
    /// Online, of a layer with so many positions side by side.
    pub fn at(&self, spec: &Linear, len: usize) -> f64 {
        self.of(spec, len < WIDE)
    }

    /// That of a layer whose products are `narrow`, or not.
    pub(super) fn of(&self, spec: &Linear, narrow: bool) -> f64 {
        match (spec.groups, narrow) {
            (..=1, false) => self.wide,
            (..=1, true) => self.narrow,
            (2.., _) => self.grouped,
        }
    }
}

/// What one power-of-two ring's linear layers take, in seconds of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingCosts {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: usize,
    /// k: ciphertexts are modulo 2^k.
    pub modulus_bits: u32,
    /// Offline, client: one input ciphertext (e − a·s).
    pub ciphertext: f64,
    /// Offline, client: one response, by the number of coefficients from the first to the last one that is exported;
    /// ascending, in between by straight lines.
    pub client_response: Vec<(usize, f64)>,
    /// Offline, server: the same.
    pub server_response: Vec<(usize, f64)>,
    /// Once per client, server: one response of the hint, the a half being there.
    pub hint_response: f64,
    /// Online, client: one word of b.
    pub client_word: f64,
    /// Online, server: one word of b.
    pub server_word: f64,
    /// Online, server: one output value.
    pub server_output: f64,
    /// Online, server: one multiply-add.
    pub online: PerProduct,
    /// Once per model, server: one multiply-add.
    pub a_half: PerProduct,
}

impl RingCosts {
    /// The first figure that no machine can have.
    pub(super) fn impossible(&self) -> Option<Impossible> {
        let ring = format!("N = {}, q = 2^{}", self.ring_dim, self.modulus_bits);
        let responses = [&self.client_response, &self.server_response];
        if responses.iter().any(|line| line.is_empty() || !line.is_sorted_by(|a, b| a.0 < b.0)) {
            return Some(Impossible::missing(format_args!("responses by what they export, of {ring}")));
        }
        let polynomial = LEAST_WORD * self.ring_dim as f64;
        let responses = responses.into_iter().flatten().map(|&(_, t)| ("a response", t, polynomial));
        let products = [self.online, self.a_half].into_iter().flat_map(|p| [p.wide, p.narrow, p.grouped]);
        // What follows products online may be little beside them, so that a fit finds nothing.
        let times = [
            ("a ciphertext", self.ciphertext, polynomial),
            ("a response of the hint", self.hint_response, polynomial),
            ("a word at the client", self.client_word, LEAST_WORD),
            ("a word at the server", self.server_word, 0.0),
            ("an output", self.server_output, 0.0),
        ];
        let times = times.into_iter().chain(responses).chain(products.map(|t| ("a product", t, 0.0)));
        times.into_iter().find_map(|(what, t, least)| {
            Impossible::time(format_args!("{what} of the ring {ring}"), t, least)
        })
    }
}

/// The costs of all [`RINGS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rings(pub Vec<RingCosts>);

impl Rings {
    /// Those of the ring (N, k): measured for the same N and the narrowest modulus that is at least as wide (the kernels know widths in
    /// steps of 16 bits only). `None` where none was measured.
    pub fn of(&self, ring_dim: usize, modulus_bits: u32) -> Option<&RingCosts> {
        let fits = |r: &&RingCosts| r.ring_dim == ring_dim && r.modulus_bits >= modulus_bits;
        self.0.iter().filter(fits).min_by_key(|r| r.modulus_bits)
    }
}

/// The value at `x` of the line through `points`, constant beyond its ends.
pub(super) fn on_line(points: &[(usize, f64)], x: usize) -> f64 {
    let at = points.partition_point(|p| p.0 < x);
    match (at.checked_sub(1).map(|i| points[i]), points.get(at)) {
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) as f64 / (x1 - x0) as f64,
        (None, Some(&(_, y))) | (Some((_, y)), None) => y,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::Constants;

    #[test]
    fn straight_lines_between_points() {
        let points = [(10, 1.0), (20, 3.0), (40, 3.5)];
        for (x, y) in [(0, 1.0), (10, 1.0), (15, 2.0), (20, 3.0), (30, 3.25), (40, 3.5), (1000, 3.5)] {
            assert_eq!(on_line(&points, x), y, "at {x}");
        }
    }

    fn round_figures() -> Rings {
        let product = PerProduct { wide: 1e-11, narrow: 1e-11, grouped: 1e-11 };
        let costs = |ring: ChosenRing| RingCosts {
            ring_dim: ring.ring_dim as usize,
            modulus_bits: ring.modulus_bits,
            ciphertext: 1e-5,
            client_response: vec![(1, 1e-5), (1001, 2e-5)],
            server_response: vec![(1, 1e-5)],
            hint_response: 1e-5,
            client_word: 1e-9,
            server_word: 0.0,
            server_output: 0.0,
            online: product,
            a_half: product,
        };
        Rings(RINGS.map(costs).to_vec())
    }

    #[test]
    fn rings_are_found() {
        let rings = round_figures();
        assert_eq!(RINGS[0], ChosenRing::default());
        assert_eq!(parameters(RINGS[0]).unwrap(), Parameters::DEFAULT);
        assert_eq!(rings.impossible(), None, "words that cost nothing beside products");
        assert_eq!(rings.of(2048, 45).unwrap().modulus_bits, 48);
        assert_eq!(rings.of(2048, 16).unwrap().modulus_bits, 32);
        assert!(rings.of(2048, 54).is_none() && rings.of(1024, 32).is_none());
        assert!(rings.table().iter().all(|row| row.len() == 11) && rings.table().len() == 5);
    }

    /// What a disturbed fit leaves is told, by its name, and so is what is missing.
    #[test]
    fn figures_that_no_machine_has_are_told() {
        let told = |change: &dyn Fn(&mut RingCosts)| {
            let mut rings = round_figures();
            change(&mut rings.0[1]);
            rings.impossible().map(|why| why.to_string()).unwrap_or_default()
        };
        let why = told(&|r| r.ciphertext = 1e-13);
        assert_eq!(
            why,
            "a ciphertext of the ring N = 2048, q = 2^32: 0.0 ns, where no processor takes less than 4.1 ns"
        );
        assert!(told(&|r| r.client_response[1].1 = 0.0).starts_with("a response of the ring N = 2048"));
        assert!(told(&|r| r.server_word = -1e-9).starts_with("a word at the server"));
        assert!(told(&|r| r.online.grouped = f64::NAN).starts_with("a product"));
        for line in [vec![], vec![(5, 1.0), (5, 2.0)]] {
            assert!(told(&|r| r.server_response = line.clone()).contains("missing"));
        }
        let mut few = round_figures();
        few.0.remove(1);
        // The next wider ring of the same N does for it.
        assert_eq!(few.impossible(), None);
        few.0.pop();
        let why = few.impossible().unwrap().to_string();
        assert_eq!(why, "the ring N = 4096, q = 2^48: missing, where every machine has it");
    }
}
