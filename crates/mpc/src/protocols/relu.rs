//! \[max(x, 0)\] mod M <- ReLU(\[x\] mod 2^n), for any signed x of n bits; M is 2^out with out ≥ n, or odd.
//!
//! The sign by [`crate::NonNegative`], then b·x as in `mux.rs` and, when M is not 2^n, the extension of
//! `extend.rs`, which applies because b·x is not negative. All three share their flights (`select.rs`).
//!
//! Exact: no error, no failure, unless asked to ignore low bits, below. Neither party learns a thing. For n =
//! 16 in digits of four bits, per element: 15.625 bytes, 7 vector correlations and 8 COTs (4 from the server) at
//! out = 16; 17.625 bytes and 2 COTs more at out = 30. Five flights, of which the first and last ride along with
//! the client's ciphertexts of the layers before and after. Prepared material: about 30 bytes a side. At full
//! width, n = out = 37: 38.875 bytes, 17 vector correlations, 18 COTs, seven flights. Exact figures:
//! [`crate::Nonlinear::cost`].
//!
//! *Ignoring low bits.* With s = [`ReluParams::ignored`] > 0 the sign takes the carry out of the lowest s
//! bits for zero, so it is that of ⌊x / 2^s⌋, or of one less when that carry was one, which over the shares
//! has probability 1 − (x mod 2^s + 1) / 2^s. So the result may be 0 instead of x where 0 ≤ x < 2^s − 1, and
//! is exact everywhere else, provided x ≥ −2^(n−1) + 2^s. **s = 1 is exact in that range**, and saves
//! 10 bits at n = 16. More saves more; whether a network bears it is for a calibration to say.

use crate::share::Modulus;

use crate::error::{MpcError, check_output, check_range};
use crate::gates::formula::Formula;
use crate::nonlinear::NonlinearKind;
use crate::protocols::compare::check_digit;
use crate::protocols::selection::{Selection, Selections};
use crate::shares::WIDEST;

/// What a ReLU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReluParams {
    /// The shares come mod 2^`bits`: 3 to [`WIDEST`].
    pub bits: u32,
    /// And leave modulo this: 2^`bits` at least and 2^32 times as much at most; or any odd number.
    pub output: Modulus,
    /// Bits per digit of the comparison: 1..=4. Four takes the fewest levels, three fewer bytes.
    pub digit: u32,
    /// Low bits that the sign ignores: 0 (exact) to `bits` − 2.
    pub ignored: u32,
}

impl ReluParams {
    /// Exact, from and to shares mod 2^`bits`, in digits of four.
    pub const fn new(bits: u32) -> Self {
        Self { bits, output: Modulus::power_of_two(bits), digit: 4, ignored: 0 }
    }
}

impl Selection for ReluParams {
    const KIND: NonlinearKind = NonlinearKind::Relu;

    fn check(&self) -> Result<(), MpcError> {
        check_range("width of shares", self.bits, 3..=WIDEST)?;
        check_output("width of a ReLU's result", self.output, self.bits..=self.bits + 32)?;
        check_range("number of ignored bits", self.ignored, 0..=self.bits - 2)?;
        check_digit(self.digit)
    }

    fn bits(&self) -> u32 {
        self.bits
    }

    fn digit(&self) -> u32 {
        self.digit
    }

    fn ignoring(self, ignored: u32) -> Self {
        Self { ignored, ..self }
    }

    fn formula(&self) -> Formula {
        Formula::sign(self.bits, self.digit, self.ignored)
    }

    fn output(&self) -> Modulus {
        self.output
    }

    fn second(&self) -> Option<Modulus> {
        None
    }

    fn join(&self, selected: Vec<u64>, _: Option<Vec<u64>>) -> Vec<u64> {
        selected
    }
}

/// A prepared batch of ReLUs, for one run.
///
/// ```
/// use jaguar_mpc::{Party, Relu, ReluParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, share: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let relu = Relu::prepare(&mut party, chan, 1, ReluParams::new(16)).unwrap();
///     let y = relu.run(chan, &[share]).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, 5));
///     (one(Role::Client, &mut to_server, 65530), server.join().unwrap())
/// });
/// assert_eq!(reference::open(65530, 5, 16), -1);
/// assert_eq!(reference::open(client, server, 16), 0);
/// ```
///
/// What was prepared serves once; a second run does not compile:
///
/// ```compile_fail,E0382
/// # use jaguar_mpc::Relu;
/// fn twice(relu: Relu, chan: &mut jaguar_wire::Channel, x: &[u64]) {
///     let _ = relu.run(chan, x);
///     let _ = relu.run(chan, x);
/// }
/// ```
pub type Relu = Selections<ReluParams>;
