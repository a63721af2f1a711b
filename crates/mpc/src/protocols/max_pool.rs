//! \[max over each window\] mod 2^n <- MaxPool(\[x\] mod 2^n), x of shape `[C, H, W]`, |x| < 2^(n−2).
//!
//! max(a, b) = b + ReLU(a − b), where the ReLU may ignore the lowest bit. Who meets whom is `semantics::Bracket`'s to
//! say: a tournament in each window, rows first, then columns, all windows of a level in one batch; comparisons that
//! two windows have in common are made once. Padding never wins: a window at the border takes the largest of its real
//! places.
//!
//! Exact in the stated range, which makes a − b fit, unless asked to ignore low bits, below. Neither party learns a
//! thing. Cost: a ReLU from and to n bits for each comparison, and its flights for each level; the client's last
//! message of a level travels with its first of the next. Exact figures: [`Nonlinear::cost`].
//!
//! *Ignoring low bits.* With s = [`PoolParams::ignored`] > 1 the sign is that of a − b + 2^(s−1) − 1, without its
//! lowest s bits: either of two values may win that lie less than 2^(s−1) from each other, the larger of two that are
//! t apart with probability 1/2 + t/2^s over the shares (`relu.rs`); farther apart it wins always. So the result is
//! one of the window's values, at most 2^(s−1) − 1 below the largest **for each level** (a 3 × 3 window has four),
//! provided |x| < 2^(n−2) − 2^(s−2). The offset is the server's to add, in the comparison only. Without it b alone
//! would win by mistake, from twice as far: for as much error, it spares one more bit. **s = 1 is exact.** Whether a
//! network bears more is for a calibration to say.

use std::ops::Range;
use std::sync::Arc;

use crate::semantics::{Bracket, pool_slack};
use jaguar_ot::CotSource;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::block::{self, BLOCK_ELEMENTS, Block, Flights};
use crate::cost::Cost;
use crate::error::MpcError;
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::relu::{Relu, ReluParams};
use crate::protocols::select::{self, SelectBlock};
use crate::protocols::selection::Selection;

/// A max-pool's geometry. Everything is in places of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// How many channels, C: 1 to 2^16. Each is pooled by itself.
    pub channels: usize,
    /// Height and width of a channel, `[H, W]`: 1 to 2^16 each.
    pub size: [usize; 2],
    /// Height and width of a window, in places: 1 to 2^16 each.
    pub kernel: [usize; 2],
    /// Steps from one window to the next, `[down, right]`: 1 to 2^16 each.
    pub stride: [usize; 2],
    /// Rows and columns of padding, `[top, left, bottom, right]`: fewer than the window has.
    pub pads: [usize; 4],
}

impl PoolShape {
    /// Height and width of the output, rounded down as is usual.
    ///
    /// # Errors
    /// When a dimension, window or step is zero or above 2^16, a padding is as large as the window, or no window
    /// fits.
    pub fn output(&self) -> Result<[usize; 2], MpcError> {
        Ok([self.output_along(0)?, self.output_along(1)?])
    }

    fn output_along(&self, axis: usize) -> Result<usize, MpcError> {
        let (size, kernel, stride) = (self.size[axis], self.kernel[axis], self.stride[axis]);
        let (before, after) = (self.pads[axis], self.pads[axis + 2]);
        let limit = 1..=1 << 16;
        if let Some(bad) = [self.channels, size, kernel, stride].iter().find(|n| !limit.contains(*n)) {
            return Err(MpcError::misuse("pooling shape", bad, "1 to 65536"));
        }
        if before >= kernel || after >= kernel {
            return Err(MpcError::misuse("padding", before.max(after), format!("less than {kernel}")));
        }
        let Some(slack) = (size + before + after).checked_sub(kernel) else {
            return Err(MpcError::misuse("window", kernel, format!("at most {size} and the padding")));
        };
        Ok(slack / stride + 1)
    }

    /// The real places of window `at` along an axis (0: rows, 1: columns).
    pub fn window(&self, axis: usize, at: usize) -> std::ops::Range<usize> {
        let start = (at * self.stride[axis]) as isize - self.pads[axis] as isize;
        let end = start + self.kernel[axis] as isize;
        start.max(0) as usize..(end as usize).min(self.size[axis])
    }

    /// Who meets whom in a channel, for the size of [`PoolShape::output`].
    fn bracket(&self, output: [usize; 2]) -> Bracket {
        let spans = [0, 1].map(|axis| (0..output[axis]).map(|at| self.window(axis, at)).collect::<Vec<_>>());
        Bracket::new(self.size, &spans[0], &spans[1])
    }
}

/// How a max-pool compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolParams {
    /// The shares come and leave mod 2^`bits`: 3 to [`crate::WIDEST`].
    pub bits: u32,
    /// Bits per digit of the comparisons: 1..=4. Four takes the fewest levels, three fewer bytes.
    pub digit: u32,
    /// Low bits that the comparisons ignore: 0 and 1 (exact, for |x| < 2^(bits − 2)) to `bits` − 2.
    pub ignored: u32,
}

impl PoolParams {
    /// Exact, on shares mod 2^`bits`, in digits of four. A difference is at least −2^(n−1) + 2, so ignoring one bit
    /// changes nothing; see `relu.rs`.
    pub const fn new(bits: u32) -> Self {
        Self { bits, digit: 4, ignored: 1 }
    }

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        self.relu().check()
    }

    /// What is added to a difference before its sign is taken, so that what the sign ignores is lost on both sides
    /// alike.
    fn offset(&self) -> u64 {
        pool_slack(self.ignored) as u64
    }

    /// The ReLU of a difference.
    pub(crate) const fn relu(&self) -> ReluParams {
        ReluParams { digit: self.digit, ignored: self.ignored, ..ReluParams::new(self.bits) }
    }
}

/// Comparisons of every level of a max-pool, block by block of channels. None for a shape that is refused.
pub fn level_counts(shape: &PoolShape) -> Vec<Vec<usize>> {
    let Ok(output) = shape.output() else { return Vec::new() };
    let bracket = shape.bracket(output);
    blocks(&bracket, shape.channels)
        .map(|channels| bracket.levels().iter().map(|level| level.len() * channels.len()).collect())
        .collect()
}

/// Channels by block: as many as keep the biggest level within a block's elements, at least one.
fn blocks(bracket: &Bracket, channels: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let most = bracket.levels().iter().map(Vec::len).max().unwrap_or(0).max(1);
    let each = (BLOCK_ELEMENTS / most).max(1);
    (0..channels).step_by(each).map(move |at| at..channels.min(at + each))
}

/// A max-pool with its geometry, as a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pooling {
    /// The windows, and the tensor `[C, H, W]` that they lie in.
    pub shape: PoolShape,
    /// The ring of the shares, and how the comparisons in a window are made.
    pub params: PoolParams,
}

impl Nonlinear for Pooling {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::MaxPool
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()?;
        self.shape.output().map(drop)
    }

    fn cost(&self) -> Cost {
        let formula = self.params.relu().formula();
        let block = |counts: Vec<usize>| {
            let levels = counts.into_iter().map(|count| (count, vec![self.params.bits]));
            select::tournament_cost(levels, &formula)
        };
        // The blocks of channels share their rounds.
        level_counts(&self.shape).into_iter().map(block).fold(Cost::default(), Cost::alongside)
    }

    /// The first level's.
    fn correction_bytes(&self) -> u64 {
        let relu = |count| Elementwise { count, params: self.params.relu() };
        let first = |block: Vec<usize>| block.first().map_or(0, |&count| relu(count).correction_bytes());
        level_counts(&self.shape).into_iter().map(first).sum()
    }

    fn digit(&self) -> Option<u32> {
        Some(self.params.digit)
    }

    fn ignoring(&self, ignored: u32) -> Option<Arc<dyn Nonlinear>> {
        Some(Arc::new(Self { params: PoolParams { ignored, ..self.params }, ..*self }))
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(MaxPool::prepare(party, chan, self.shape, self.params)?.into_blocks())
    }
}

/// A prepared max-pool, for one run.
pub struct MaxPool {
    blocks: Vec<Block>,
}

impl MaxPool {
    /// Prepares one max-pool.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        shape: PoolShape,
        params: PoolParams,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let blocks = tournaments(party, chan, &shape, params.bits, |party, chan, count| {
            sealed_level(party, chan, count, params)
        })?;
        Ok(Self { blocks })
    }

    /// Its blocks, for who runs them step by step.
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// This party's shares of the output, `[C, H', W']` mod 2^bits; `x` are its shares of `[C, H, W]`. The
    /// client's last message may still be in the channel's buffer.
    ///
    /// # Errors
    /// When the count differs from the shape's, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

/// The blocks of a max-pool on shares mod 2^`bits`, whose `level` prepares so many ReLUs of differences.
///
/// # Errors
/// When the shape is refused; what `level` says.
pub fn tournaments<S: CotSource + ?Sized, L: Flights + 'static>(
    party: &mut Party<S>,
    chan: &mut Channel,
    shape: &PoolShape,
    bits: u32,
    mut level: impl FnMut(&mut Party<S>, &mut Channel, usize) -> Result<L, MpcError>,
) -> Result<Vec<Block>, MpcError> {
    let bracket = Arc::new(shape.bracket(shape.output()?));
    let (places, windows) = (bracket.places(), bracket.outputs().len());
    let block = |channels: Range<usize>| {
        let level = |count| level(party, chan, count);
        let tournament = Tournament::prepare(&bracket, channels.len(), bits, level)?;
        let inputs = channels.start * places..channels.end * places;
        let outputs = channels.start * windows..channels.end * windows;
        Ok(Block::new(inputs, outputs, tournament))
    };
    blocks(&bracket, shape.channels).map(block).collect()
}

/// The ReLUs of a level's differences.
fn sealed_level<S: CotSource + ?Sized>(
    party: &mut Party<S>,
    chan: &mut Channel,
    count: usize,
    params: PoolParams,
) -> Result<SelectBlock, MpcError> {
    let layer = Relu::block(party, chan, count, params.relu())?;
    Ok(layer.comparing_above(party.role(), params.offset()))
}

/// A few channels of a max-pool: a level's last step is the next one's first.
struct Tournament<L> {
    bits: u32,
    bracket: Arc<Bracket>,
    levels: Vec<L>,
    /// By channel: what is known so far, in the bracket's numbers.
    values: Vec<Zeroizing<Vec<u64>>>,
}

impl<L: Flights> Tournament<L> {
    fn prepare(
        bracket: &Arc<Bracket>,
        channels: usize,
        bits: u32,
        mut level: impl FnMut(usize) -> Result<L, MpcError>,
    ) -> Result<Self, MpcError> {
        let levels = bracket.levels().iter().map(|pairs| level(pairs.len() * channels));
        let levels = levels.collect::<Result<_, MpcError>>()?;
        Ok(Self { bits, bracket: Arc::clone(bracket), levels, values: Vec::new() })
    }

    /// a − b of a level's pairs, channel by channel.
    fn differences(&self, level: usize) -> Zeroizing<Vec<u64>> {
        let pairs = &self.bracket.levels()[level];
        let mut all = Zeroizing::new(Vec::with_capacity(pairs.len() * self.values.len()));
        for v in &self.values {
            all.extend(pairs.iter().map(|&(a, b)| v[a].wrapping_sub(v[b])));
        }
        all
    }

    /// Appends the larger of every pair of a level.
    fn advance(&mut self, level: usize) {
        let pairs = &self.bracket.levels()[level];
        let larger = Zeroizing::new(self.levels[level].finish());
        let mask = u64::MAX >> (64 - self.bits);
        for (v, larger) in self.values.iter_mut().zip(larger.chunks(pairs.len().max(1))) {
            for (&(_, b), r) in pairs.iter().zip(larger) {
                let winner = v[b].wrapping_add(*r) & mask;
                v.push(winner);
            }
        }
    }

    fn take(&mut self, x: &[u64]) {
        let mask = u64::MAX >> (64 - self.bits);
        // Room for the winners, so that no copy of a share is left behind.
        let channel = |x: &[u64]| {
            let mut values = Zeroizing::new(Vec::with_capacity(self.bracket.values()));
            values.extend(x.iter().map(|x| x & mask));
            values
        };
        self.values = x.chunks(self.bracket.places()).map(channel).collect();
    }
}

impl<L: Flights> Flights for Tournament<L> {
    fn steps(&self) -> usize {
        self.levels.iter().map(|level| level.steps() - 1).sum::<usize>() + 1
    }

    /// That of the first level.
    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        if self.levels.is_empty() {
            return Ok(());
        }
        let differences = x.map(|x| {
            self.take(x);
            self.differences(0)
        });
        self.levels[0].correct(chan, differences.as_ref().map(|d| &d[..]))
    }

    fn start(&mut self, x: &[u64]) {
        self.take(x);
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        // All levels take as many steps.
        let each = self.levels.first().map_or(1, |level| level.steps() - 1);
        let level = step / each;
        if step.is_multiple_of(each) {
            if let Some(before) = level.checked_sub(1) {
                self.levels[before].step(chan, each)?;
                self.advance(before);
            }
            if level < self.levels.len() {
                let differences = self.differences(level);
                self.levels[level].start(&differences);
            }
        }
        match self.levels.get_mut(level) {
            Some(level) => level.step(chan, step % each),
            None => Ok(()),
        }
    }

    fn reads(&self, step: usize) -> Option<usize> {
        let each = self.levels.first().map_or(1, |level| level.steps() - 1);
        let (level, within) = (step / each, step % each);
        let before = match level.checked_sub(1) {
            Some(before) if within == 0 => self.levels[before].reads(each)?,
            Some(_) | None => 0,
        };
        let own = self.levels.get(level).map_or(Some(0), |level| level.reads(within))?;
        Some(before + own)
    }

    fn finish(&mut self) -> Vec<u64> {
        // At full length: growing would leave copies of shares behind.
        let outputs = self.bracket.outputs();
        let mut results = Vec::with_capacity(self.values.len() * outputs.len());
        self.values.iter().for_each(|v| results.extend(outputs.iter().map(|&o| v[o])));
        results
    }
}

#[cfg(test)]
mod tests {
    use crate::semantics::channel_ignoring;
    use jaguar_ot::Role;
    use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
    use proptest::prelude::*;

    use super::*;
    use crate::reference::{non_negative_ignoring, open, residue};

    /// One party's run of a whole tournament: its shares of every value of every channel, in the bracket's numbers.
    fn play(
        role: Role,
        mut chan: Channel,
        bracket: &Arc<Bracket>,
        params: PoolParams,
        x: &[u64],
    ) -> Vec<Vec<u64>> {
        let mut party = Party::new(role, InsecureTestDealer::new(7, role));
        let channels = x.len() / bracket.places();
        let level = |count| sealed_level(&mut party, &mut chan, count, params);
        let mut tournament = Tournament::prepare(bracket, channels, params.bits, level).unwrap();
        tournament.start(x);
        (0..tournament.steps()).for_each(|step| tournament.step(&mut chan, step).unwrap());
        chan.flush().unwrap();
        tournament.values.iter().map(|values| values.to_vec()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Every comparison, opened, is what `relu.rs` states of both parties' shares; and the network's plaintext
        /// reference, which knows the client's shares only, makes of the values just what the protocol does, bit for
        /// bit.
        #[test]
        fn the_imitation_of_reduced_comparisons_is_exact(
            channels in 1usize..4,
            size in [1usize..9, 1usize..9], kernel in [1usize..6, 1usize..6], stride in [1usize..4, 1usize..4],
            pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
            bits in 8u32..=20, low in 0u32..20, digit in 1u32..=4,
            words in prop::collection::vec(any::<[u64; 2]>(), 3 * 64),
        ) {
            // Paddings are less than the window.
            let pads: [usize; 4] = std::array::from_fn(|side| pads[side] % kernel[side % 2]);
            let shape = PoolShape { channels, size, kernel, stride, pads };
            let Ok(output) = shape.output() else { return Err(TestCaseError::reject("no window")) };
            let params = PoolParams { bits, digit, ignored: low % (bits - 1) };
            let most = (1i64 << (bits - 2)) - ((1 << params.ignored) / 4) - 1;
            // Close to each other, and anywhere in the range.
            let value = |&[a, b]: &[u64; 2]| match b % 3 {
                0 => (a % (2 * most as u64 + 1)) as i64 - most,
                _ => ((a % (3 << params.ignored)) as i64 - (1 << params.ignored)).clamp(-most, most),
            };
            let words = &words[..channels * size[0] * size[1]];
            let x: Vec<i64> = words.iter().map(value).collect();
            let client: Vec<u64> = words.iter().map(|w| residue((w[0] ^ w[1].rotate_left(9)) as i64, bits)).collect();
            let server: Vec<u64> = x.iter().zip(&client).map(|(&x, &c)| residue(x.wrapping_sub(c as i64), bits)).collect();

            let bracket = Arc::new(shape.bracket(output));
            let (to_server, to_client) = jaguar_wire::memory_pair();
            let [client, server] = std::thread::scope(|scope| {
                let server = scope.spawn(|| play(Role::Server, to_client, &bracket, params, &server));
                [play(Role::Client, to_server, &bracket, params, &client), server.join().unwrap()]
            });
            for (c, s) in client.iter().zip(&server) {
                let opened = |i: usize| open(c[i], s[i], bits);
                for (i, &(a, b)) in bracket.levels().iter().flatten().enumerate() {
                    let (c, s) = (c[a].wrapping_sub(c[b]), s[a].wrapping_sub(s[b]));
                    let above = s.wrapping_add(params.offset());
                    let first = non_negative_ignoring(c, above, bits, params.ignored);
                    let larger = opened(if first { a } else { b });
                    prop_assert_eq!(opened(bracket.places() + i), larger);
                }
            }
            let imitated = |(c, x): (usize, &[i64])| channel_ignoring(&bracket, x, params.ignored, |i| client[c][i]);
            let want: Vec<i64> = x.chunks(bracket.places()).enumerate().flat_map(imitated).collect();
            let outputs = client.iter().zip(&server).flat_map(|(c, s)| bracket.outputs().iter().map(|&i| open(c[i], s[i], bits)));
            prop_assert_eq!(outputs.collect::<Vec<_>>(), want);
        }
    }
}
