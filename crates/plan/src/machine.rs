//! What things take on one machine and over one link: the constants of the cost model.
//!
//! They are measured by `jaguar_profile::measure`, with the code that sessions run; this module only says what they mean.
//! All times are seconds of one processor core, however many threads share the work in a session.

use jaguar_linear::backend::Constants;
pub use jaguar_linear::backend::{PerProduct, RingCosts, RnsCosts, SlotCosts, SlotWork};
pub use jaguar_mpc::Kind;
use jaguar_mpc::cost::{Bin, Drawn, Instances, Width};
use serde::{Deserialize, Serialize};

/// (N, k): the sets that are looked at, all of them with an estimate of 128 bits or more on record. Widths in between cost what
/// the next one here does: limbs have 16 bits, and up to 48 bits two primes hold a product of N = 2048.
pub const RINGS: [(u32, u32); 4] = [(2048, 48), (2048, 32), (2048, 53), (4096, 48)];

/// (N, primes of 30 bits): the RNS rings that backends use.
pub const RNS_RINGS: [(usize, usize); 2] = [(4096, 2), (4096, 3)];

/// (N, bits of primes): the rings of SIMD slots that backends use. Vector kernels know two widths of primes.
pub const SLOT_RINGS: [(usize, u32); 4] = [(4096, 50), (4096, 60), (8192, 50), (8192, 60)];

/// A connection between the two parties.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes a second in each direction.
    pub bytes_per_second: f64,
    /// Seconds from a message to the answer to it.
    pub round_trip: f64,
}

impl Link {
    /// Whether the figures can be calculated with: finite, and a link that carries anything at all.
    pub fn is_sound(&self) -> bool {
        self.bytes_per_second.is_finite()
            && self.bytes_per_second > 0.0
            && self.round_trip.is_finite()
            && self.round_trip >= 0.0
    }
}

/// Whether the two parties compete for the same cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Client and server share the machine's cores.
    Shared,
    /// Each has a machine like the measured one to itself.
    Apart,
}

/// The digits of comparisons that are measured and chosen from, in bits. One bit has more levels and more COTs than two,
/// and not fewer bytes: it wins on no link.
pub const DIGITS: [u32; 3] = [2, 3, 4];

/// Seconds for each byte that a nonlinear step sends or receives online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerByte {
    /// The client's work.
    pub client: f64,
    /// The server's work.
    pub server: f64,
    /// From beginning to end, both parties at work and no link between them: less than the sum, for they work side by side
    /// on big layers.
    pub both: f64,
}

/// Seconds for each correlated OT, its pads and what is made of them included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerCot {
    /// On the side that sends it.
    pub sent: f64,
    /// On the side that receives it.
    pub received: f64,
}

/// Fewer seconds than any processor takes for a correlation: its row of LPN reads a secret at ten random places.
pub const LEAST_COT: f64 = 5e-10;

/// A sender hashes 16 times for a vector where its receiver hashes once; all else is alike. So neither side takes more
/// than so many times what the other one takes.
pub const MOST_APART: f64 = 16.0;

/// A figure that no machine can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{figure}: {found}, where {expected}")]
pub struct Impossible {
    /// Which one.
    pub figure: String,
    /// What was found.
    pub found: String,
    /// What any machine has.
    pub expected: String,
}

impl PerCot {
    /// What no machine takes for the COTs of `what`.
    fn impossible(self, what: &str) -> Option<Impossible> {
        let ns = |seconds: f64| format!("{:.1} ns", seconds * 1e9);
        let found = |figure: &str, found, expected| {
            Some(Impossible { figure: format!("{figure} of {what}"), found, expected })
        };
        for (figure, seconds) in [("a COT sent", self.sent), ("a COT received", self.received)] {
            if !(seconds.is_finite() && seconds >= LEAST_COT) {
                return found(figure, ns(seconds), format!("no processor takes less than {}", ns(LEAST_COT)));
            }
        }
        (self.sent > MOST_APART * self.received || self.received > MOST_APART * self.sent).then(|| {
            Impossible {
                figure: format!("a COT sent and received of {what}"),
                found: format!("{} and {}", ns(self.sent), ns(self.received)),
                expected: format!("one takes at most {MOST_APART} times the other"),
            }
        })
    }
}

/// One machine's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// The instruction set of the linear layers' kernels.
    pub kernel: String,
    /// Threads that share a party's linear layers.
    pub threads: usize,
    /// How many times faster a linear layer is with all of them than with one.
    pub speedup: f64,
    /// By ring with a power of two as modulus.
    pub rings: Vec<RingCosts>,
    /// By RNS ring.
    pub rns: Vec<RnsCosts>,
    /// By N and the bits of primes, rings of SIMD slots.
    pub slots: Vec<SlotCosts>,
    /// Seconds in which a party makes a correlation, sent or received, without its pads: by width and bins.
    pub making: [[f64; Bin::ALL.len()]; Width::ALL.len()],
    /// Offline, with the default instances: by [`Kind`].
    pub cots: [PerCot; Kind::ALL.len()],
    /// Online: by [`Kind`] and digit ([`DIGITS`]; an extension, a comparison that leaks and a product have none, their three figures are alike).
    pub nonlinear: [[PerByte; DIGITS.len()]; Kind::ALL.len()],
    /// Two processes on this machine.
    pub loopback: Link,
}

impl Constants for Machine {
    fn power_of_two(&self, ring_dim: usize, modulus_bits: u32) -> Option<&RingCosts> {
        self.ring(ring_dim, modulus_bits)
    }

    fn rns(&self, ring_dim: usize, limbs: usize) -> Option<&RnsCosts> {
        self.rns.iter().find(|r| (r.ring_dim, r.limbs) == (ring_dim, limbs))
    }

    fn slots(&self, ring_dim: usize, limb_bits: u32) -> Option<&SlotCosts> {
        let fits = |r: &&SlotCosts| r.ring_dim == ring_dim && r.limb_bits >= limb_bits;
        self.slots.iter().filter(fits).min_by_key(|r| r.limb_bits)
    }
}

impl Machine {
    /// The constants of the ring (N, k): those measured for the same N and the narrowest modulus that is at least as wide
    /// (the kernels know widths in steps of 16 bits only). `None` where none was measured.
    pub fn ring(&self, ring_dim: usize, modulus_bits: u32) -> Option<&RingCosts> {
        self.rings
            .iter()
            .filter(|r| r.ring_dim == ring_dim && r.modulus_bits >= modulus_bits)
            .min_by_key(|r| r.modulus_bits)
    }

    /// A nonlinear step's figures. Digits that are not measured count as the nearest that is.
    pub fn nonlinear(&self, kind: Kind, digit: u32) -> PerByte {
        let digit = digit.clamp(DIGITS[0], DIGITS[DIGITS.len() - 1]);
        self.nonlinear[kind as usize][(digit - DIGITS[0]) as usize]
    }

    /// Seconds in which a party makes so many correlations, sent and received together, without their pads.
    pub fn making(&self, instances: Instances, drawn: Drawn) -> f64 {
        let each = |width: Width| self.making[width as usize][instances.bin(width) as usize];
        drawn.bits as f64 * each(Width::Bit) + drawn.vectors as f64 * each(Width::Vector)
    }

    /// The first figure that no machine can have: one that cannot be calculated with, or a time of a correlation that
    /// other work on the machine spoilt. `None` of a machine that can be.
    pub fn impossible(&self) -> Option<Impossible> {
        let of_kind = |(kind, cot): (Kind, PerCot)| cot.impossible(&format!("{kind:?}").to_lowercase());
        let unsound = || Impossible {
            figure: "a time".into(),
            found: "not finite, below zero or missing".into(),
            expected: "every machine has one".into(),
        };
        let cot = Kind::ALL.into_iter().zip(self.cots).find_map(of_kind);
        cot.or_else(|| (!self.is_finite()).then(unsound))
    }

    /// Whether every figure is one that a machine can have.
    pub fn is_sound(&self) -> bool {
        self.impossible().is_none()
    }

    /// Whether every figure is one that can be calculated with.
    fn is_finite(&self) -> bool {
        let time = |t: f64| t.is_finite() && t >= 0.0;
        let product = |p: &PerProduct| [p.wide, p.narrow, p.grouped].into_iter().all(time);
        let lines = |l: &[(usize, f64)]| {
            !l.is_empty() && l.iter().all(|p| time(p.1)) && l.windows(2).all(|w| w[0].0 < w[1].0)
        };
        let ring = |r: &RingCosts| {
            [r.ciphertext, r.hint_response, r.client_word, r.server_word, r.server_output]
                .into_iter()
                .all(time)
                && product(&r.online)
                && product(&r.a_half)
                && lines(&r.client_response)
                && lines(&r.server_response)
        };
        let rns = |r: &RnsCosts| {
            let steps =
                [r.weights, r.ciphertext, r.zero, r.encryption, r.input, r.product, r.response, r.decryption];
            steps.into_iter().all(time)
        };
        self.threads > 0
            && self.speedup.is_finite()
            && self.speedup >= 1.0
            && !self.rings.is_empty()
            && self.rings.iter().all(ring)
            && self.rns.iter().all(rns)
            && self.slots.iter().flat_map(|slots| slots.each.all()).all(time)
            && self.making.iter().flatten().all(|&t| time(t))
            && self.nonlinear.iter().flatten().all(|p| [p.client, p.server, p.both].into_iter().all(time))
            && self.loopback.is_sound()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine on which everything takes a round figure.
    pub(crate) fn round_figures() -> Machine {
        let ring = |(ring_dim, modulus_bits): (u32, u32)| RingCosts {
            ring_dim: ring_dim as usize,
            modulus_bits,
            ciphertext: 1e-5,
            client_response: vec![(1, 1e-5), (1001, 2e-5)],
            server_response: vec![(1, 1e-5)],
            hint_response: 1e-5,
            client_word: 1e-9,
            server_word: 2e-9,
            server_output: 3e-9,
            online: PerProduct { wide: 1e-11, narrow: 2e-11, grouped: 1e-10 },
            a_half: PerProduct { wide: 1e-11, narrow: 1e-11, grouped: 1e-11 },
        };
        let rns = |(ring_dim, limbs): (usize, usize)| RnsCosts {
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
        let slots = |(ring_dim, limb_bits): (usize, u32)| SlotCosts {
            ring_dim,
            limb_bits,
            each: SlotWork {
                transform: 1e-4,
                product: 2e-5,
                scalar: 5e-6,
                sum: 2e-5,
                small: 1e-5,
                switch: 5e-5,
                encryption: 2e-4,
                zero: 4e-4,
                packing: 1e-5,
                uniform: 2e-5,
                encoding: 1e-4,
                rounding: 2e-5,
            },
        };
        Machine {
            cpu: "round".into(),
            kernel: "none".into(),
            threads: 2,
            speedup: 2.0,
            rings: RINGS.map(ring).to_vec(),
            rns: RNS_RINGS.map(rns).to_vec(),
            slots: SLOT_RINGS.map(slots).to_vec(),
            making: [[1e-8, 2e-8, 4e-8, 8e-8]; 2],
            cots: [PerCot { sent: 2e-8, received: 1e-8 }; Kind::ALL.len()],
            nonlinear: [[PerByte { client: 1e-9, server: 2e-9, both: 2.5e-9 }; 3]; Kind::ALL.len()],
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    #[test]
    fn straight_lines_between_points() {
        let points = [(10, 1.0), (20, 3.0), (40, 3.5)];
        for (x, y) in [(0, 1.0), (10, 1.0), (15, 2.0), (20, 3.0), (30, 3.25), (40, 3.5), (1000, 3.5)] {
            assert_eq!(jaguar_linear::backend::on_line(&points, x), y, "at {x}");
        }
    }

    #[test]
    fn rings_and_digits_are_found() {
        let machine = round_figures();
        assert!(machine.is_sound());
        assert_eq!(machine.ring(2048, 45).unwrap().modulus_bits, 48);
        assert_eq!(machine.ring(2048, 16).unwrap().modulus_bits, 32);
        assert!(machine.ring(2048, 54).is_none() && machine.ring(1024, 32).is_none());
        assert_eq!(machine.rns(4096, 3).unwrap().limbs, 3);
        assert!(machine.rns(4096, 4).is_none() && machine.rns(2048, 2).is_none());
        assert_eq!(machine.slots(8192, 41).unwrap().limb_bits, 50);
        assert_eq!(machine.slots(8192, 51).unwrap().limb_bits, 60);
        assert!(machine.slots(8192, 61).is_none() && machine.slots(2048, 50).is_none());
        let mut other = machine;
        other.nonlinear[Kind::MaxPool as usize][1].client = 7.0;
        assert_eq!(other.nonlinear(Kind::MaxPool, 3).client, 7.0);
        assert_eq!(other.nonlinear(Kind::MaxPool, 1), other.nonlinear(Kind::MaxPool, 2));
    }

    #[test]
    fn unsound_figures_are_told() {
        let unsound = |change: &dyn Fn(&mut Machine)| {
            let mut machine = round_figures();
            change(&mut machine);
            !machine.is_sound()
        };
        assert!(unsound(&|m| m.threads = 0));
        assert!(unsound(&|m| m.speedup = f64::NAN));
        assert!(unsound(&|m| m.rings.clear()));
        assert!(unsound(&|m| m.rings[0].client_response.clear()));
        assert!(unsound(&|m| m.rings[1].server_response = vec![(5, 1.0), (5, 2.0)]));
        assert!(unsound(&|m| m.rings[2].online.grouped = -1e-9));
        assert!(unsound(&|m| m.rns[0].product = f64::NAN));
        assert!(unsound(&|m| m.slots[0].each.switch = -1.0));
        assert!(unsound(&|m| m.nonlinear[3][2].both = f64::INFINITY));
        assert!(unsound(&|m| m.making[1][3] = f64::NAN));
        assert!(unsound(&|m| m.loopback.bytes_per_second = 0.0));
    }

    /// What a fit may find when other work has the cores is refused, by name.
    #[test]
    fn cots_that_no_machine_makes_are_named() {
        let with = |sent: f64, received: f64| {
            let mut machine = round_figures();
            machine.cots[Kind::Relu as usize] = PerCot { sent, received };
            assert_eq!(machine.is_sound(), machine.impossible().is_none());
            machine.impossible().map(|why| why.to_string())
        };
        assert_eq!(with(20e-9, 10e-9), None);
        assert_eq!(with(150e-9, 10e-9), None);
        let why = with(83e-9, 1e-13).unwrap();
        assert_eq!(why, "a COT received of relu: 0.0 ns, where no processor takes less than 0.5 ns");
        assert!(with(-1e-9, 1e-8).unwrap().starts_with("a COT sent of relu: -1.0 ns"));
        assert!(with(f64::NAN, 1e-8).is_some() && with(1e-8, f64::INFINITY).is_some());
        let why = with(83e-9, 5e-9).unwrap();
        assert!(why.contains("83.0 ns and 5.0 ns") && why.contains("at most 16 times"), "{why}");
        assert!(with(5e-9, 83e-9).is_some());
    }
}
