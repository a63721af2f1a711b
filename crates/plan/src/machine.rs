//! What things take on one machine and over one link: the constants of the cost model.
//!
//! They are measured by `jaguar_profile::measure`, with the code that sessions run; this module only says what they mean.
//! All times are seconds of one processor core, however many threads share the work in a session.

pub use jaguar_linear::constants::Impossible;
use jaguar_linear::constants::{Measured, Probe};
pub use jaguar_mpc::NonlinearKind;
use jaguar_mpc::cost::{Bin, Drawn, Instances, Width};
use serde::{Deserialize, Serialize};

use crate::Kit;

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
    /// Seconds of the client's processor.
    pub client: f64,
    /// Seconds of the server's processor.
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

impl PerCot {
    /// What no machine takes for the COTs of `what`.
    fn impossible(self, what: &str) -> Option<Impossible> {
        let each = [("sent", self.sent), ("received", self.received)];
        let too_fast = each
            .into_iter()
            .find_map(|(side, t)| Impossible::time(format_args!("a COT {side} of {what}"), t, LEAST_COT));
        let apart = self.sent > MOST_APART * self.received || self.received > MOST_APART * self.sent;
        too_fast.or_else(|| {
            apart.then(|| Impossible {
                figure: format!("a COT sent and received of {what}"),
                found: format!("{:.1} ns and {:.1} ns", self.sent * 1e9, self.received * 1e9),
                expected: format!("one takes at most {MOST_APART} times the other"),
            })
        })
    }
}

/// How many times faster work is on all threads than on one: from 1 to the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedups {
    /// Linear layers, of a party that has the machine to itself meanwhile.
    pub linear: f64,
    /// Nonlinear layers before the input, of a party that has the machine to itself.
    pub preparing: f64,
    /// The same of both parties that prepare at the same time and share the threads: their work together.
    pub preparing_both: f64,
    /// Nonlinear layers online. Parties mostly take turns there.
    pub running: f64,
}

impl Speedups {
    /// Of a machine with one thread.
    pub const NONE: Self = Self { linear: 1.0, preparing: 1.0, preparing_both: 1.0, running: 1.0 };

    /// From seconds of nonlinear layers, before the input and online, of both parties at once on one machine: each on one
    /// thread, and each on all `threads`.
    ///
    /// Two parties on a thread each take two threads. So if all threads make both r times faster, their work together is
    /// 2·r times faster than on one thread. If a part s of it stays on one thread, 1/r = s + (1 − s)·2/threads. A party
    /// that has the machine to itself then gains 1/(s + (1 − s)/threads) (Amdahl).
    pub fn of_nonlinear(linear: f64, threads: usize, [one, all]: [[f64; 2]; 2]) -> Self {
        let most = threads as f64;
        let [preparing, running] = [0, 1].map(|stage| one[stage] / all[stage]);
        let both = (2.0 * preparing).clamp(1.0, most);
        let alone = if threads > 2 {
            let serial = ((1.0 / preparing - 2.0 / most) / (1.0 - 2.0 / most)).clamp(0.0, 1.0);
            1.0 / (serial + (1.0 - serial) / most)
        } else {
            both
        };
        Self { linear, preparing: alone, preparing_both: both, running: running.clamp(1.0, most) }
    }

    fn is_sound(&self, threads: usize) -> bool {
        let Self { linear, preparing, preparing_both, running } = *self;
        [linear, preparing, preparing_both, running]
            .into_iter()
            .all(|times| (1.0..=threads as f64).contains(&times))
    }
}

/// One machine's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// What the operating system calls the processor.
    pub cpu: String,
    /// The instruction set of the linear layers' kernels.
    pub kernel: String,
    /// Threads that a party has for its work.
    pub threads: usize,
    /// What these gain.
    pub speedups: Speedups,
    /// What backends need to know of it to say what their layers take.
    pub linear: Measured,
    /// Seconds in which a party makes a correlation, sent or received, without its pads: by width and bins.
    pub making: [[f64; Bin::ALL.len()]; Width::ALL.len()],
    /// Offline, with the default instances: by [`NonlinearKind`] and digit, as [`nonlinear`](Self::nonlinear).
    pub cots: [[PerCot; DIGITS.len()]; NonlinearKind::ALL.len()],
    /// Online: by [`NonlinearKind`] and digit ([`DIGITS`]; an extension and a product have none, their three figures are alike).
    pub nonlinear: [[PerByte; DIGITS.len()]; NonlinearKind::ALL.len()],
    /// Two processes on this machine.
    pub loopback: Link,
}

impl Machine {
    /// A nonlinear step's figures. Digits that are not measured count as the nearest that is.
    pub fn nonlinear(&self, kind: NonlinearKind, digit: u32) -> PerByte {
        self.nonlinear[kind as usize][nearest(digit)]
    }

    /// What a correlation of a nonlinear step takes offline. Digits as in [`nonlinear`](Self::nonlinear).
    pub fn cot(&self, kind: NonlinearKind, digit: u32) -> PerCot {
        self.cots[kind as usize][nearest(digit)]
    }

    /// Seconds in which a party makes so many correlations, sent and received together, without their pads.
    pub fn making(&self, instances: Instances, drawn: Drawn) -> f64 {
        let each = |width: Width| self.making[width as usize][instances.bin(width) as usize];
        drawn.bits as f64 * each(Width::Bit) + drawn.vectors as f64 * each(Width::Vector)
    }

    /// The first figure that no machine can have: one that cannot be calculated with, or a time that other work on the machine spoilt.
    /// `None` of a machine that can be. Of what backends need, that is looked at which those of `kit` know and which is there
    /// ([`lacks`](Self::lacks)).
    pub fn impossible(&self, kit: &Kit) -> Option<Impossible> {
        let cots = NonlinearKind::ALL.into_iter().flat_map(|kind| DIGITS.map(|digit| (kind, digit)));
        let of_kind = |(kind, digit): (NonlinearKind, u32)| {
            let what = format!("{kind:?}, digits of {digit}").to_lowercase();
            self.cot(kind, digit).impossible(&what)
        };
        let unsound = || Impossible {
            figure: "a time".into(),
            found: "not finite, below zero or missing".into(),
            expected: "every machine has one".into(),
        };
        let cot = cots.into_iter().find_map(of_kind);
        cot.or_else(|| (!self.is_finite()).then(unsound))
            .or_else(|| kit.probes().into_iter().find_map(|probe| probe.impossible(&self.linear)))
    }

    /// The probes of `kit` of which nothing was measured that can be read.
    pub fn lacks(&self, kit: &Kit) -> Vec<Probe> {
        kit.probes().into_iter().filter(|probe| !probe.is_in(&self.linear)).collect()
    }

    /// Whether every figure that no backend has is one that can be calculated with.
    fn is_finite(&self) -> bool {
        let time = |t: f64| t.is_finite() && t >= 0.0;
        self.threads > 0
            && self.speedups.is_sound(self.threads)
            && self.making.iter().flatten().all(|&t| time(t))
            && self.nonlinear.iter().flatten().all(|p| [p.client, p.server, p.both].into_iter().all(time))
            && self.loopback.is_sound()
    }
}

/// Where the digit that is measured and nearest to this one is in [`DIGITS`].
fn nearest(digit: u32) -> usize {
    (digit.clamp(DIGITS[0], DIGITS[DIGITS.len() - 1]) - DIGITS[0]) as usize
}

#[cfg(test)]
pub(crate) mod tests {
    use jaguar_cheetah::{RNS_RINGS, RnsCosts, RnsRings};
    use jaguar_hyena::{SLOT_RINGS, SlotCosts, SlotRings, SlotWork};
    use jaguar_linear::backend::ChosenRing;
    use jaguar_linear::constants::Constants;
    use jaguar_linear::jaguar::{PerProduct, RINGS, RingCosts, Rings};

    use super::*;
    use crate::tests::kit;

    /// Changes what was measured for backends.
    pub(crate) fn change<T: Constants + Clone>(machine: &mut Machine, how: impl FnOnce(&mut T)) {
        let mut figures: T = machine.linear.get::<T>().expect("it was measured").clone();
        how(&mut figures);
        machine.linear.insert(figures).unwrap();
    }

    /// A machine on which everything takes a round figure.
    pub(crate) fn round_figures() -> Machine {
        let ring = |ring: ChosenRing| RingCosts {
            ring_dim: ring.ring_dim as usize,
            modulus_bits: ring.modulus_bits,
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
                stretches: 5e-6,
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
        let mut linear = Measured::default();
        linear.insert(Rings(RINGS.map(ring).to_vec())).unwrap();
        linear.insert(RnsRings(RNS_RINGS.map(rns).to_vec())).unwrap();
        linear.insert(SlotRings(SLOT_RINGS.map(slots).to_vec())).unwrap();
        Machine {
            cpu: "round".into(),
            kernel: "none".into(),
            threads: 2,
            speedups: Speedups { linear: 2.0, preparing: 1.0, preparing_both: 2.0, running: 1.0 },
            linear,
            making: [[1e-8, 2e-8, 4e-8, 8e-8]; 2],
            cots: [[PerCot { sent: 2e-8, received: 1e-8 }; 3]; NonlinearKind::ALL.len()],
            nonlinear: [[PerByte { client: 1e-9, server: 2e-9, both: 2.5e-9 }; 3]; NonlinearKind::ALL.len()],
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    #[test]
    fn what_threads_gain_follows_from_two_parties_at_once() {
        let of = |threads, one, all| Speedups::of_nonlinear(1.5, threads, [one, all]);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
        // All of it on all threads: both eight times as fast, so each alone sixteen times.
        let free = of(16, [8.0, 1.0], [1.0, 0.25]);
        close(free.preparing, 16.0);
        close(free.preparing_both, 16.0);
        close(free.running, 4.0);
        assert_eq!(free.linear, 1.5);
        // A tenth is on one thread: 1/r = 0.1 + 0.9/8, and alone 0.1 + 0.9/16.
        let serial = of(16, [1.0, 1.0], [0.1 + 0.9 / 8.0, 1.0]);
        close(serial.preparing, 1.0 / (0.1 + 0.9 / 16.0));
        close(serial.preparing_both, 2.0 / (0.1 + 0.9 / 8.0));
        // Two threads are taken already by two parties on one each.
        let two = of(2, [1.0, 1.0], [1.1, 1.2]);
        close(two.preparing, 2.0 / 1.1);
        close(two.running, 1.0);
        // Disturbed: never slower than one thread, never faster than all.
        let odd = of(4, [1.0, 9.0], [9.0, 1.0]);
        assert!(odd.is_sound(4) && odd.preparing == 1.0 && odd.running == 4.0, "{odd:?}");
    }

    #[test]
    fn digits_are_found() {
        let mut other = round_figures();
        assert_eq!(other.impossible(&kit()), None);
        other.nonlinear[NonlinearKind::MaxPool as usize][1].client = 7.0;
        other.cots[NonlinearKind::MaxPool as usize][1].sent = 8.0;
        assert_eq!(other.cot(NonlinearKind::MaxPool, 3).sent, 8.0);
        assert_eq!(other.cot(NonlinearKind::MaxPool, 4), round_figures().cot(NonlinearKind::MaxPool, 4));
        assert_eq!(other.nonlinear(NonlinearKind::MaxPool, 3).client, 7.0);
        assert_eq!(other.nonlinear(NonlinearKind::MaxPool, 1), other.nonlinear(NonlinearKind::MaxPool, 2));
    }

    #[test]
    fn unsound_figures_are_told() {
        let unsound = |change: &dyn Fn(&mut Machine)| {
            let mut machine = round_figures();
            change(&mut machine);
            machine.impossible(&kit()).is_some()
        };
        assert!(unsound(&|m| m.threads = 0));
        assert!(unsound(&|m| m.speedups.linear = f64::NAN));
        assert!(unsound(&|m| m.speedups.preparing = 0.9));
        assert!(unsound(&|m| m.speedups.preparing_both = 2.1));
        assert!(unsound(&|m| m.speedups.running = f64::INFINITY));
        assert!(unsound(&|m| change(m, |rings: &mut Rings| rings.0.clear())));
        assert!(unsound(&|m| change(m, |rings: &mut Rings| rings.0[0].client_response.clear())));
        assert!(unsound(&|m| change(m, |rings: &mut Rings| rings.0[2].online.grouped = -1e-9)));
        assert!(unsound(&|m| change(m, |rings: &mut RnsRings| rings.0[0].product = f64::NAN)));
        assert!(unsound(&|m| change(m, |slots: &mut SlotRings| slots.0[0].each.switch = -1.0)));
        assert!(unsound(&|m| m.nonlinear[3][2].both = f64::INFINITY));
        assert!(unsound(&|m| m.making[1][3] = f64::NAN));
        assert!(unsound(&|m| m.loopback.bytes_per_second = 0.0));
    }

    /// A kit's backends say what a machine lacks; others' figures are nobody's business.
    #[test]
    fn what_backends_need_is_asked_of_the_kit() {
        let mut machine = round_figures();
        assert!(machine.lacks(&kit()).is_empty());
        machine.linear = Measured::default();
        let names = |kit: &Kit| machine.lacks(kit).iter().map(|probe| probe.name()).collect::<Vec<_>>();
        assert_eq!(names(&Kit::standard()), [Rings::NAME, RnsRings::NAME]);
        assert_eq!(names(&kit()), [Rings::NAME, RnsRings::NAME, SlotRings::NAME]);
        assert_eq!(machine.impossible(&kit()), None, "what is not there is lacking, not impossible");
    }

    /// What a fit may find when other work has the cores is refused, by name.
    #[test]
    fn cots_that_no_machine_makes_are_named() {
        let with = |sent: f64, received: f64| {
            let mut machine = round_figures();
            machine.cots[NonlinearKind::Relu as usize][1] = PerCot { sent, received };
            machine.impossible(&kit()).map(|why| why.to_string())
        };
        assert_eq!(with(20e-9, 10e-9), None);
        assert_eq!(with(150e-9, 10e-9), None);
        let why = with(83e-9, 1e-13).unwrap();
        assert_eq!(
            why,
            "a COT received of relu, digits of 3: 0.0 ns, where no processor takes less than 0.5 ns"
        );
        assert!(with(-1e-9, 1e-8).unwrap().starts_with("a COT sent of relu, digits of 3: -1.0 ns"));
        assert!(with(f64::NAN, 1e-8).is_some() && with(1e-8, f64::INFINITY).is_some());
        let why = with(83e-9, 5e-9).unwrap();
        assert!(why.contains("83.0 ns and 5.0 ns") && why.contains("at most 16 times"), "{why}");
        assert!(with(5e-9, 83e-9).is_some());
    }
}
