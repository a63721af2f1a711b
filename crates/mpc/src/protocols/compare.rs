//! \[bit\] <- LessThan(a of the client, b of the server), and \[bit\] <- NonNegative(\[x\]).
//!
//! The millionaires' problem by digits looked up with OT and a tree of ANDs (Garay, Schoenmakers and
//! Villegas, PKC 2007; with 1-of-2^m OT as in CrypTFlow2, CCS 2020, Section 3, here of adjacent thresholds), all hashing
//! offline; see the headers of `formula.rs` (what is computed) and `evaluate.rs` (how, and who learns what). The sign
//! of a shared x mod 2^n is msb(x_c) ⊕ msb(x_s) ⊕ the carry out of the lower n − 1 bits, and that carry is
//! ¬x_c < x_s there.
//!
//! Exact. The results are shares by exclusive or; neither party learns a thing. Costs:
//! [`LessThan::cost`], [`NonNegative::cost`]. For 15 bits in digits of four: 91 bits in all,
//! 7 vector correlations, 6 COTs, two levels of gates.

use jaguar_ot::{CotSource, Role};
use jaguar_wire::Channel;

use crate::cost::{self, Cost};
use crate::error::MpcError;
use crate::error::{check_count, check_range};
use crate::gates::bits::Bits;
use crate::gates::evaluate::{self, Corrections, FormulaMaterial, exchange};
use crate::gates::formula::Formula;
use crate::party::Party;
use crate::shares::WIDEST;

/// Bits per digit: 1..=4.
pub(crate) fn check_digit(digit: u32) -> Result<(), MpcError> {
    check_range("bits per digit", digit, 1..=4)
}

/// Compares; the last message may remain in the channel's buffer, on either side.
pub(crate) fn compare(prepared: FormulaMaterial, chan: &mut Channel, x: &[u64]) -> Result<Bits, MpcError> {
    check_count("operands", x.len(), prepared.count)?;
    let role = prepared.role;
    // 1. The client sends its corrections. 2. The server answers with tables.
    let mut running = match role {
        Role::Client => {
            prepared.client_correct(chan, x)?;
            prepared.client_take(chan, x)?
        }
        Role::Server => prepared.server_serve(&mut Corrections::Online, chan, x)?,
    };
    // 3. Both open the gates, level by level.
    for turn in 1..=running.levels_left() {
        let mine = running.opening();
        let theirs = exchange(chan, role, turn, &mine, |_| Ok(()))?;
        running.close(&theirs);
    }
    Ok(running.results().swap_remove(0))
}

/// What `count` comparisons by `formula` cost.
fn cost(count: usize, formula: &Formula) -> Cost {
    let (client_rounds, server_rounds) = cost::rounds(count, formula.depth());
    Cost { client_rounds, server_rounds, ..evaluate::cost(count, formula) }
}

fn run(prepared: FormulaMaterial, chan: &mut Channel, x: &[u64]) -> Result<Bits, MpcError> {
    let role = prepared.role;
    let bits = compare(prepared, chan, x)?;
    // The server says nothing more by itself, and the client may be waiting for its last half.
    if role == Role::Server {
        chan.flush()?;
    }
    Ok(bits)
}

/// A prepared comparison of the client's numbers with the server's, for one run.
pub struct LessThan(FormulaMaterial);

impl LessThan {
    /// What `count` comparisons of numbers of `bits` bits in digits of `digit` bits cost.
    pub fn cost(count: usize, bits: u32, digit: u32) -> Cost {
        cost(count, &Formula::less(bits, digit))
    }

    /// Prepares `count` comparisons of numbers of `bits` bits (1 to [`WIDEST`]) in digits of `digit` bits (1..=4).
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
        digit: u32,
    ) -> Result<Self, MpcError> {
        check_range("width of a comparison", bits, 1..=WIDEST)?;
        check_digit(digit)?;
        Ok(Self(FormulaMaterial::new(party, chan, count, Formula::less(bits, digit))?))
    }

    /// Shares of \[client's number < server's number\]; `own` are this party's numbers.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, own: &[u64]) -> Result<Bits, MpcError> {
        run(self.0, chan, own)
    }
}

/// A prepared sign test of shared values, for one run.
pub struct NonNegative(FormulaMaterial);

impl NonNegative {
    /// What `count` tests of values shared mod 2^`bits` in digits of `digit` bits cost.
    pub fn cost(count: usize, bits: u32, digit: u32) -> Cost {
        cost(count, &Formula::sign(bits, digit, 0))
    }

    /// Prepares `count` tests of values shared mod 2^`bits` (3 to [`WIDEST`]), in digits of `digit` bits (1..=4).
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
        digit: u32,
    ) -> Result<Self, MpcError> {
        check_range("width of shares", bits, 3..=WIDEST)?;
        check_digit(digit)?;
        Ok(Self(FormulaMaterial::new(party, chan, count, Formula::sign(bits, digit, 0))?))
    }

    /// Shares of \[x ≥ 0\]; `x` are this party's shares, values signed.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Bits, MpcError> {
        run(self.0, chan, x)
    }
}
