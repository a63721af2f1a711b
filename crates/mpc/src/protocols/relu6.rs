//! \[min(max(x, 0), 2^j)\] mod M <- ReLU6(\[x\] mod 2^n), for any signed x of n bits; M is 2^out with out ≥ n, or odd.
//!
//! The scale is chosen so that six is 2^j. Then "0 ≤ x < 2^j" and "x ≥ 2^j" depend on the bits from j up and
//! on the carry into bit j only, so one comparison of the low j bits serves both, and the few bits above are
//! looked up once, by adjacent places, in tables with two bits an entry; see `Formula::clip`. With in and clip for the
//! two results, y = in·x + 2^j·clip: a multiplication as in `mux.rs` (with its extension), and a conversion as in
//! `bit.rs`.
//!
//! Exact. Neither party learns a thing. For n = out = 16, j = 12, digits of four bits, per element: 19.625
//! bytes, 7 vector correlations and 11 COTs, against 15.625, 7 and 8 for a ReLU, in the same five flights, and another
//! 3/8 byte in preparation. Exact figures: [`crate::Nonlinear::cost`].
//!
//! *Ignoring low bits* works as for the ReLU: with s = [`Relu6Params::ignored`] > 0 the result may be 0
//! instead of x where 0 ≤ x < 2^s − 1, and x instead of 2^j where 2^j < x < 2^j + 2^s − 1, and is exact
//! everywhere else, provided x ≥ −2^(n−1) + 2^s. Again s = 1 is exact in that range.

use crate::share::Modulus;

use crate::error::{MpcError, check_output, check_range};
use crate::gates::formula::Formula;
use crate::nonlinear::NonlinearKind;
use crate::protocols::compare::check_digit;
use crate::protocols::selection::{Selection, Selections};
use crate::shares::WIDEST;

/// What a ReLU6 does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relu6Params {
    /// The shares come mod 2^`bits`: 3 to [`WIDEST`].
    pub bits: u32,
    /// And leave modulo this: 2^`bits` at least and 2^32 times as much at most; or any odd number.
    pub output: Modulus,
    /// Bits per digit of the comparison: 1..=4.
    pub digit: u32,
    /// j: values are clipped to \[0, 2^j\]; 1..=`bits` − 2, and at least 2·`bits` − 64.
    pub log2_six: u32,
    /// Low bits that the comparison ignores: 0 (exact) to j − 1.
    pub ignored: u32,
}

impl Relu6Params {
    /// Exact, from and to shares mod 2^`bits`, in digits of four.
    pub const fn new(bits: u32, log2_six: u32) -> Self {
        Self { bits, output: Modulus::power_of_two(bits), digit: 4, log2_six, ignored: 0 }
    }
}

impl Selection for Relu6Params {
    const KIND: NonlinearKind = NonlinearKind::Relu6;

    fn check(&self) -> Result<(), MpcError> {
        check_range("width of shares", self.bits, 3..=WIDEST)?;
        check_output("width of a ReLU6's result", self.output, self.bits..=self.bits + 32)?;
        let lowest = 1.max((2 * self.bits).saturating_sub(64));
        check_range("position of six", self.log2_six, lowest..=self.bits - 2)?;
        check_range("number of ignored bits", self.ignored, 0..=self.log2_six - 1)?;
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
        Formula::clip(self.bits, self.log2_six, self.digit, self.ignored)
    }

    fn output(&self) -> Modulus {
        self.output
    }

    fn second(&self) -> Option<Modulus> {
        Some(match self.output.log2() {
            Some(out) => Modulus::power_of_two(out - self.log2_six),
            None => self.output,
        })
    }

    fn join(&self, mut selected: Vec<u64>, second: Option<Vec<u64>>) -> Vec<u64> {
        let six = self.output.power(self.log2_six);
        for (y, clip) in selected.iter_mut().zip(second.expect("asked for")) {
            *y = self.output.add(*y, self.output.mul(clip, six));
        }
        selected
    }
}

/// A prepared batch of ReLU6s, for one run.
pub type Relu6 = Selections<Relu6Params>;
