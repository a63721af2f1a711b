//! \[x / 2^s\] mod 2^out <- Truncate(\[x\] mod 2^n), s ≥ 1, rounded up or down.
//!
//! Two steps, of which only the first needs the peer:
//!
//! 1. *Room.* The shares are extended to the ring mod 2^(out+s) (`extend.rs`): whether they wrapped mod 2^n must
//!    be known to as many bits as the shift moves into the result. For out + s ≤ n this falls away: **where the
//!    ring shrinks with the value nothing is sent**, which is how Jaguar's linear layers truncate.
//!    A ReLU makes the room in its own flights when its `output` is 2^(out + s).
//! 2. *Shift.* The client takes ⌊x_c / 2^s⌋, the server ⌈x_s / 2^s⌉, both mod 2^out.
//!
//! Step 2 leaves out the carry between the parts that are cut off, as Cheetah does (Huang, Lu, Hong, Ding, USENIX
//! Security 2022, section 4.2, *one-bit approximate truncation*); the exact one needs a comparison of s bits. Step 1
//! is Cheetah's use of a known top bit when [`TruncateParams::range`] is `NonNegative` (after a ReLU) or `Signed`
//! (small values, by an offset), and SIRNN's general extension (Rathee et al., S&P 2021) when it is `Full`.
//!
//! **Error.** With r_c, r_s the parts cut off and f = x mod 2^s: r_c + r_s is f or f + 2^s. The sum of the shares is
//! ⌊x / 2^s⌋ + 1 when 0 < r_s ≤ f, and ⌊x / 2^s⌋ otherwise. So it differs from x / 2^s by **less than one ulp**, is
//! exact on multiples of 2^s, and, r_s being uniform, rounds up with probability f / 2^s: no bias. (With two floors,
//! as published, the error is from −2 to 0 ulp and its mean 2^−s − 1.) No other failure.
//!
//! Neither party learns a thing; step 2 sends nothing. For n = out = 37, s = 12, per element: 13 bits and one COT
//! (`NonNegative`, `Signed`), one flight down and one up. Exact figures:
//! [`Nonlinear::cost`].

use crate::share::Modulus;
use jaguar_ot::{CotSource, Role};
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights};
use crate::cost::Cost;
use crate::error::{MpcError, check_range};
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::extend::{Extend, ExtendParams, Range};

/// What a truncation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TruncateParams {
    /// The shares come mod 2^`bits`: 3 to [`crate::WIDEST`], or to 63 where the ring shrinks.
    pub bits: u32,
    /// And leave mod 2^`out_bits`: at least 1, with `out_bits` + `shift` at most `bits` + 32 and at most 63.
    pub out_bits: u32,
    /// How many bits are cut off: 1 to `bits` − 1.
    pub shift: u32,
    /// The values' range. Where the ring shrinks (`out_bits` + `shift` ≤ `bits`) any value will do.
    pub range: Range,
}

impl TruncateParams {
    /// The widest ring that the quotients of shares mod 2^`bits`, cut by `shift` bits, may leave in: words have 64 bits, and what is
    /// cut off is in them first.
    pub const fn most_out_bits(bits: u32, shift: u32) -> u32 {
        let room = if bits + 32 < 63 { bits + 32 } else { 63 };
        room.saturating_sub(shift)
    }

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        check_range("width before a truncation", self.bits, 3..=63)?;
        check_range("number of bits cut off", self.shift, 1..=self.bits - 1)?;
        let most = Self::most_out_bits(self.bits, self.shift);
        check_range("width after a truncation", self.out_bits, 1..=most)?;
        // An extension has its own, lower limit.
        self.extension().map_or(Ok(()), |extension| extension.check())
    }

    /// The extension that makes room, if the ring does not have it.
    pub(crate) fn extension(&self) -> Option<ExtendParams> {
        let room = self.out_bits + self.shift;
        (room > self.bits).then(|| ExtendParams {
            bits: self.bits,
            output: Modulus::power_of_two(room),
            range: self.range,
        })
    }

    /// Step 2, in place: shares mod 2^(out + s) or more to shares mod 2^out of the quotient.
    fn shift(&self, role: Role, x: &mut [u64]) {
        let (s, mask) = (self.shift, u64::MAX >> (64 - self.out_bits));
        // ⌈x / 2^s⌉ = ⌊(x + 2^s − 1) / 2^s⌋, and shares of at most 63 bits leave room for the sum.
        let up = if role == Role::Server { (1 << s) - 1 } else { 0 };
        let ring = u64::MAX >> (64 - self.out_bits - s);
        x.iter_mut().for_each(|x| *x = ((*x & ring) + up) >> s & mask);
    }
}

impl Elementwise<TruncateParams> {
    /// Step 1, if there is one.
    fn room(&self) -> Option<Elementwise<ExtendParams>> {
        Some(Elementwise { count: self.count, params: self.params.extension()? })
    }
}

impl Nonlinear for Elementwise<TruncateParams> {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Extension
    }

    fn error(&self) -> f64 {
        1.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    /// That of the extension.
    fn cost(&self) -> Cost {
        self.room().map_or_else(Cost::default, |room| room.cost())
    }

    fn digit(&self) -> Option<u32> {
        self.room().and_then(|room| room.digit())
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(Truncate::prepare(party, chan, self.count, self.params)?.into_blocks())
    }
}

/// A prepared batch of truncations, for one run.
///
/// ```
/// use jaguar_mpc::{Party, Range, Truncate, TruncateParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let params = TruncateParams { bits: 37, out_bits: 37, shift: 12, range: Range::NonNegative };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, share: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let truncate = Truncate::prepare(&mut party, chan, 1, params).unwrap();
///     let y = truncate.run(chan, &[share]).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// // 100.5 · 2^12, in shares that wrap.
/// let (x_c, x_s) = ((1 << 37) - 5, 100 * 4096 + 2048 + 5);
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, x_s));
///     (one(Role::Client, &mut to_server, x_c), server.join().unwrap())
/// });
/// assert!([100, 101].contains(&reference::open(client, server, 37)));
/// ```
pub struct Truncate {
    blocks: Vec<Block>,
}

impl Truncate {
    /// Prepares `count` truncations.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: TruncateParams,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let blocks = match params.extension() {
            Some(extension) => Extend::prepare(party, chan, count, extension)?.into_blocks(),
            // Nothing is sent, so there is nothing to cut into blocks.
            None if count > 0 => vec![Block::new(0..count, 0..count, Alone(Zeroizing::default()))],
            None => Vec::new(),
        };
        let role = party.role();
        let blocks = blocks.into_iter().map(|block| block.then(move |x| params.shift(role, x)));
        Ok(Self { blocks: blocks.collect() })
    }

    /// Its blocks, for who runs them step by step; see [`Extend::into_blocks`].
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// This party's shares mod 2^out_bits of x / 2^shift, rounded up or down; `x` are its shares mod 2^bits
    /// (higher bits are ignored). The client's last message may still be in the channel's buffer.
    ///
    /// 1. Both make room for the shift, where the ring does not have it.
    /// 2. Each party shifts by itself.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

/// Where step 1 falls away: this party's shares as they are.
struct Alone(Zeroizing<Vec<u64>>);

impl Flights for Alone {
    fn steps(&self) -> usize {
        1
    }

    fn start(&mut self, x: &[u64]) {
        self.0 = Zeroizing::new(x.to_vec());
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, _: &mut Channel, _: usize) -> Result<(), MpcError> {
        Ok(())
    }

    fn reads(&self, _: usize) -> Option<usize> {
        Some(0)
    }

    fn finish(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0)
    }
}
