//! One party of a session: its role, its source of correlations, and the pads made of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use jaguar_ot::threads::{self, Later, UnderWay};
use jaguar_ot::{Block, CotSource, Drawn, Hash, Role, Width, combination, pair};
use jaguar_ring::cpu::Cpu;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::cost::{AHEAD, ahead};
use crate::error::MpcError;
use crate::kernels::loops::Level;
use crate::protocols::matrix_product::QueryKeys;

/// What the preparations of a session draw from. **One for the whole life of a source**: it numbers the
/// correlations, and no number may come twice under the same keys.
///
/// Every correlation of a bit (q; r, t = q ⊕ r·Δ) becomes a random OT by hashing: the sender has the pads H(q) and
/// H(q ⊕ Δ), the receiver H(t), which is the pad number r. A vector correlation becomes one of 16 in the same way. So a
/// sender hashes 2 or 16 times and the receiver once. The assumption is the correlation robustness of H, see
/// [`jaguar_ot::hash`].
pub struct Party<S: ?Sized> {
    role: Role,
    pub(crate) level: Level,
    pub(crate) cpu: Cpu,
    sent: Drawn,
    received: Drawn,
    /// Room for halves, used before: a large one is dear to come by.
    spare: Arc<Spare>,
    /// Preparations that were begun.
    under_way: UnderWay,
    /// Of what this party sends, by width, once it has sent any.
    sums: [Option<Sums>; 2],
    /// Drawn for several that will ask, by width: what this party receives, and what it sends.
    stocks: [[Stock; 2]; 2],
    ahead: Ahead,
    /// Of products of matrices in the present query.
    pub(crate) keys: Arc<Mutex<QueryKeys>>,
    /// Drawing has failed, or has not come to its end.
    spent: bool,
    // Last, so that a party may stand for one with any source (`Party<dyn CotSource>`).
    source: S,
}

/// Correlations of one direction and width that were drawn at one go: `halves[taken..end]` are left.
#[derive(Default)]
struct Stock {
    halves: Arc<Halves>,
    taken: usize,
    end: usize,
}

impl Stock {
    fn left(&self) -> usize {
        self.end - self.taken
    }

    /// The next `n`, from the place that is returned on.
    fn take(&mut self, n: usize) -> (Arc<Halves>, usize) {
        assert!(n <= self.left(), "a stock is for all that draw from it");
        let start = self.taken;
        self.taken += n;
        let halves = Arc::clone(&self.halves);
        if self.left() == 0 {
            *self = Self::default();
        }
        (halves, start)
    }
}

/// Bits that this party sends and that were drawn ahead of their use, in order ([`Party::promise`]).
#[derive(Default)]
struct Ahead {
    stocks: VecDeque<Stock>,
    /// How many more will be drawn before anything else is sent: those in `stocks`, and those to come.
    promised: u64,
}

impl Ahead {
    fn left(&self) -> usize {
        self.stocks.iter().map(Stock::left).sum()
    }
}

/// Halves of correlations, in room that may be larger and that is kept when they have served.
#[derive(Default)]
struct Halves {
    blocks: Zeroizing<Vec<Block>>,
    /// (None has no room.)
    kept_by: Option<Arc<Spare>>,
}

impl Drop for Halves {
    fn drop(&mut self) {
        if let Some(spare) = self.kept_by.take() {
            spare.keep(std::mem::take(&mut self.blocks));
        }
    }
}

/// Room that was used before. There is never more, with what is in use, than was in use at once: new room is made in place of some that
/// is too small, or where there is none. And [`UnderWay`] bounds what is in use.
#[derive(Default)]
struct Spare(Mutex<Vec<Zeroizing<Vec<Block>>>>);

impl Spare {
    fn keep(&self, room: Zeroizing<Vec<Block>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }

    /// Room for `n` or more, with anything in it.
    fn take(&self, n: usize) -> Zeroizing<Vec<Block>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that will do, for the next may want more.
        let fits = kept.iter().enumerate().filter(|(_, room)| room.len() >= n);
        match fits.min_by_key(|(_, room)| room.len()).map(|(at, _)| at) {
            Some(at) => kept.swap_remove(at),
            // Not by growing one, which would leave a copy behind.
            None => {
                kept.pop();
                drop(kept);
                Zeroizing::new(vec![Block::ZERO; n])
            }
        }
    }
}

/// Some correlations of one direction as this party has them, not hashed yet. May be hashed by several threads.
pub struct Correlations {
    /// Of which the first ones may belong to others.
    halves: Arc<Halves>,
    start: usize,
    /// The first one's number.
    number: u64,
    hash: Hash,
    /// The sender's ([`Party::sums`]).
    sums: Option<Sums>,
}

/// All sums of a sender's Δ_j, the empty one first. (Held once, and by a pointer: values that are moved about leave copies behind.)
type Sums = Arc<Zeroizing<Vec<Block>>>;

/// Material in the making: what is made of correlations that were drawn.
pub(crate) type Make<T> = Box<dyn FnOnce() -> T + Send>;

/// Room for pads: as much as was asked for at once.
#[derive(Default)]
pub struct Room {
    pads: Zeroizing<Vec<Block>>,
    /// Halves of pairs.
    pairs: Zeroizing<Vec<Block>>,
    choices: Zeroizing<Vec<bool>>,
}

/// Room for `n` blocks.
fn room_for(room: &mut Zeroizing<Vec<Block>>, n: usize) -> &mut [Block] {
    if room.len() < n {
        *room = Zeroizing::new(vec![Block::ZERO; n]);
    }
    &mut room[..n]
}

/// The random OTs of bits as this party has them.
pub enum Pads<'a> {
    /// This party sends: both pads of each.
    Sender(&'a [Block], &'a [Block]),
    /// This party receives: its pad of each, and its choice.
    Receiver(&'a [Block], &'a [bool]),
}

/// Tables of masks as this party has them.
pub(crate) enum Masks {
    /// This party sends: all entries.
    Sender,
    /// This party receives: its choices, and the mask of each.
    Receiver,
}

impl Correlations {
    fn halves(&self, at: usize, len: usize) -> &[Block] {
        &self.halves.blocks[self.start + at..][..len]
    }

    /// The random OTs made of `len` bits from the `at`-th on. **Each is to be asked for once**: what it masks twice is
    /// not masked.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn pads<'r>(&self, at: usize, len: usize, room: &'r mut Room) -> Pads<'r> {
        self.wide_pads(at, len, 1, room)
    }

    /// The same with pads of `blocks` blocks (1..=3), all first blocks before all second ones. Block j of a pad is the hash of
    /// its half moved by a public constant, zero for the first. Under one key there are then three times as many pads unknown
    /// to a receiver, 96: fewer than the 120 that [`jaguar_ot::hash`] counts with.
    pub(crate) fn wide_pads<'r>(&self, at: usize, len: usize, blocks: usize, room: &'r mut Room) -> Pads<'r> {
        assert!(len == 0 || (1..=3).contains(&blocks), "a key serves for so many");
        let (halves, number) = (self.halves(at, len), self.number + at as u64);
        // (Even, so no sum of them is a Δ.)
        let moved = |by: Block| (0..blocks as u128).map(move |j| by ^ Block(j << 1));
        let pads = room_for(&mut room.pads, 2 * blocks * len);
        match &self.sums {
            Some(sums) => {
                let shifts: Zeroizing<Vec<Block>> =
                    Zeroizing::new(moved(sums[0]).chain(moved(sums[1])).collect());
                self.hash.pads(number, &shifts, halves, pads);
                let (zero, one) = pads.split_at(blocks * len);
                Pads::Sender(zero, one)
            }
            None => {
                room.choices.clear();
                room.choices.extend(halves.iter().map(|t| t.lsb()));
                let shifts: Vec<Block> = moved(Block::ZERO).collect();
                let pads = &mut pads[..blocks * len];
                self.hash.pads(number, &shifts, halves, pads);
                Pads::Receiver(pads, &room.choices)
            }
        }
    }

    /// Masks of `bits` bits (1..=4) as tables of 2^`choices` entries, one for each of `words`, from the `at`-th correlation
    /// on: of vectors (four choices), of bits (one), or of bits two by two ([`pair`]; those of the lower choices come
    /// first). The sender gets all entries in a word, entry v from bit v·`bits` on; the receiver that of its choice, and the
    /// `chosen`. Each is to be asked for once.
    pub(crate) fn masks(
        &self,
        at: usize,
        choices: usize,
        bits: u32,
        words: &mut [u64],
        chosen: &mut [u64],
        room: &mut Room,
    ) -> Masks {
        let number = self.number + at as u64;
        let Room { pads, pairs, .. } = room;
        let (first, second) = match choices {
            2 => self.halves(at, 2 * words.len()).split_at(words.len()),
            _ => (self.halves(at, words.len()), &[][..]),
        };
        let halves = if second.is_empty() {
            first
        } else {
            let pairs = room_for(pairs, words.len());
            for ((both, &a), &b) in pairs.iter_mut().zip(first).zip(second) {
                *both = pair(a, b);
            }
            &pairs[..]
        };
        let low = (1 << bits) - 1;
        match &self.sums {
            Some(sums) if choices == Width::Vector.choices() => {
                let sums = sums[..].try_into().expect("16 sums of four keys");
                self.hash.tables(number, sums, bits, halves, words);
                Masks::Sender
            }
            Some(sums) => {
                let delta = sums[1];
                let moved = pair(Block::ZERO, delta);
                let shifts = Zeroizing::new([Block::ZERO, delta, moved, delta ^ moved]);
                let pads = room_for(pads, words.len() << choices);
                self.hash.pads(number, &shifts[..1 << choices], halves, pads);
                words.fill(0);
                for (v, pads) in pads.chunks(words.len()).enumerate() {
                    for (word, pad) in words.iter_mut().zip(pads) {
                        *word |= (pad.0 as u64 & low) << (v as u32 * bits);
                    }
                }
                Masks::Sender
            }
            None => {
                let pads = room_for(pads, words.len());
                self.hash.pads(number, &[Block::ZERO], halves, pads);
                for (word, pad) in words.iter_mut().zip(pads) {
                    *word = pad.0 as u64 & low;
                }
                let mask = if choices == Width::Vector.choices() { Width::Vector } else { Width::Bit };
                for (chosen, t) in chosen.iter_mut().zip(first) {
                    *chosen = (t.0 & mask.choice_mask()) as u64;
                }
                for (chosen, t) in chosen.iter_mut().zip(second) {
                    *chosen |= u64::from(t.lsb()) << 1;
                }
                Masks::Receiver
            }
        }
    }
}

impl<S: CotSource> Party<S> {
    /// The party with this role, drawing from `source`.
    pub fn new(role: Role, source: S) -> Self {
        Self::on(Cpu::detect(), role, source)
    }

    /// As [`new`](Self::new), with the instructions of `cpu` only.
    pub fn on(cpu: Cpu, role: Role, source: S) -> Self {
        let (sent, received) = Default::default();
        Self {
            role,
            level: Level::of(cpu),
            cpu,
            sent,
            received,
            spare: Arc::default(),
            under_way: UnderWay::default(),
            sums: Default::default(),
            stocks: Default::default(),
            ahead: Ahead::default(),
            keys: Arc::default(),
            spent: false,
            source,
        }
    }
}

impl<S: CotSource + ?Sized> Party<S> {
    /// Promises to draw `sends` bits as a sender, and no vectors as one, before this party sends anything else over the channel.
    /// Offline the client sends nothing else. Then some are made ahead of their use, so that two parties that alternate between
    /// both directions do not wait a round trip for each other at every turn.
    pub fn promise(&mut self, sends: u64) {
        self.ahead.promised = sends;
    }

    /// What is left of the promise: nothing, when this party sends something else.
    pub fn promised(&self) -> u64 {
        self.ahead.promised
    }

    /// Begins or ends the preparation of a query: what is prepared from now on shares no keys with what was before
    /// ([`SentKeys`](crate::SentKeys)). What was prepared and not completed yet keeps its own; with the last of it they
    /// are wiped.
    pub fn forget_keys(&mut self) {
        self.keys = Arc::default();
    }

    /// Whether it has keys of products of matrices that it did not forget.
    pub fn keeps_keys(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).are_any()
    }

    /// Which of the two parties this one is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// How many correlations have been used up, as a sender and as a receiver.
    pub fn used(&self) -> (Drawn, Drawn) {
        (self.sent, self.received)
    }

    /// The source, to look at its own counters.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The next `n` of the source, in room of their own.
    fn fill(
        &mut self,
        chan: &mut Channel,
        sends: bool,
        width: Width,
        n: usize,
    ) -> Result<Zeroizing<Vec<Block>>, MpcError> {
        let mut blocks = self.spare.take(n);
        if sends {
            self.source.send(chan, width, &mut blocks[..n])?;
        } else {
            self.source.receive(chan, width, &mut blocks[..n])?;
        }
        Ok(blocks)
    }

    /// A stock of the first `n` of `blocks`.
    fn stock_of(&self, blocks: Zeroizing<Vec<Block>>, n: usize) -> Stock {
        let kept_by = Some(Arc::clone(&self.spare));
        Stock { halves: Arc::new(Halves { blocks, kept_by }), taken: 0, end: n }
    }

    /// Makes bits ahead of their use, as far as was promised, when half of those that were made are used up.
    fn run_ahead(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        // (Some may have been drawn for several that have not asked for all of them.)
        let owed = self.ahead.promised.saturating_sub(self.stocks[1][Width::Bit as usize].left() as u64);
        let want = ahead(threads::count()).min(usize::try_from(owed).unwrap_or(usize::MAX));
        let mut more = want.saturating_sub(self.ahead.left());
        if more > want / 2 {
            // In pieces, whose room serves again when they are used up.
            while more > 0 {
                let piece = more.min(AHEAD);
                self.make_ahead(chan, piece)?;
                more -= piece;
            }
        }
        Ok(())
    }

    /// Makes `n` more bits ahead of their use.
    fn make_ahead(&mut self, chan: &mut Channel, n: usize) -> Result<(), MpcError> {
        let blocks = self.fill(chan, true, Width::Bit, n)?;
        let stock = self.stock_of(blocks, n);
        self.ahead.stocks.push_back(stock);
        Ok(())
    }

    /// `n` of the bits that were made ahead; those that are missing come behind them.
    fn take_ahead(&mut self, chan: &mut Channel, n: usize) -> Result<(Arc<Halves>, usize), MpcError> {
        let Ahead { stocks, .. } = &mut self.ahead;
        while stocks.front().is_some_and(|stock| stock.left() == 0) {
            stocks.pop_front();
        }
        if let Some(stock) = stocks.front_mut().filter(|stock| stock.left() >= n) {
            return Ok(stock.take(n));
        }
        // They lie in several places: they are copied into one.
        let mut blocks = self.spare.take(n);
        let mut done = 0;
        while let Some(stock) = stocks.front_mut().filter(|_| done < n) {
            let some = stock.left().min(n - done);
            let (halves, start) = stock.take(some);
            blocks[done..done + some].copy_from_slice(&halves.blocks[start..start + some]);
            done += some;
            if stock.left() == 0 {
                stocks.pop_front();
            }
        }
        self.source.send(chan, Width::Bit, &mut blocks[done..n])?;
        Ok(self.stock_of(blocks, n).take(n))
    }

    /// Draws the next `n` correlations sent by `sender` at one go, for several that will ask for as many together, so that
    /// one secret of the source stays in the cache. (What was made ahead serves them as it is.)
    ///
    /// # Panics
    /// When some of a former stock are left.
    pub(crate) fn stock(
        &mut self,
        chan: &mut Channel,
        sender: Role,
        width: Width,
        n: usize,
    ) -> Result<(), MpcError> {
        if std::mem::replace(&mut self.spent, true) {
            return Err(MpcError::Spent);
        }
        let sends = sender == self.role;
        match (sends, width) {
            // The peer takes all of them now, before it says what this party waits for.
            (true, Width::Bit) if self.ahead.left() > 0 => {
                let missing = n.saturating_sub(self.ahead.left());
                if missing > 0 {
                    self.make_ahead(chan, missing)?;
                }
            }
            (true, Width::Bit) => self.keep(chan, sends, width, n)?,
            (true, Width::Vector) => {
                // Their trees take bits, which would be those behind the ones made ahead: the peer takes the next.
                assert!(self.ahead.left() == 0, "who promised bits draws no vectors meanwhile");
                self.keep(chan, sends, width, n)?;
            }
            (false, _) => {
                self.run_ahead(chan)?;
                self.keep(chan, sends, width, n)?;
            }
        }
        self.spent = false;
        Ok(())
    }

    fn keep(&mut self, chan: &mut Channel, sends: bool, width: Width, n: usize) -> Result<(), MpcError> {
        let blocks = self.fill(chan, sends, width, n)?;
        let made = self.stock_of(blocks, n);
        let stock = &mut self.stocks[usize::from(sends)][width as usize];
        assert!(stock.left() == 0, "what was drawn before has been used");
        *stock = made;
        Ok(())
    }

    /// The next `n` correlations sent by `sender`, from the stock if there is one. After an error there are none: numbers
    /// and correlations of the two parties may have come apart. Both parties draw the same, in the same order.
    ///
    /// # Errors
    /// When the connection fails, the peer breaks the protocol, or an earlier draw has failed.
    pub fn draw(
        &mut self,
        chan: &mut Channel,
        sender: Role,
        width: Width,
        n: usize,
    ) -> Result<Correlations, MpcError> {
        if self.spent {
            return Err(MpcError::Spent);
        }
        let sends = sender == self.role;
        let of = |party: &Self| party.stocks[usize::from(sends)][width as usize].left();
        let ahead = sends && width == Width::Bit && self.ahead.left() > 0;
        if of(self) == 0 && !ahead {
            self.stock(chan, sender, width, n)?;
        }
        let (halves, start) = if of(self) == 0 && sends && width == Width::Bit {
            self.spent = true;
            let taken = self.take_ahead(chan, n)?;
            self.spent = false;
            taken
        } else {
            self.stocks[usize::from(sends)][width as usize].take(n)
        };
        let sums = sends.then(|| self.sums(width));
        let drawn = if sends { &mut self.sent } else { &mut self.received };
        let counter = match width {
            Width::Bit => &mut drawn.bits,
            Width::Vector => &mut drawn.vectors,
        };
        let number = *counter;
        *counter += n as u64;
        if sends && width == Width::Bit {
            self.ahead.promised = self.ahead.promised.saturating_sub(n as u64);
        }
        let hash = Hash::new(self.source.nonce(), sender, width);
        Ok(Correlations { halves, start, number, hash, sums })
    }

    fn sums(&mut self, width: Width) -> Sums {
        let made = self.sums[width as usize].get_or_insert_with(|| {
            let deltas = self.source.deltas(width);
            let mut sums = Zeroizing::new(vec![Block::ZERO; 1 << Width::Vector.choices()]);
            sums.iter_mut().enumerate().for_each(|(v, sum)| *sum = combination(deltas, v));
            Arc::new(sums)
        });
        Arc::clone(made)
    }

    /// What `make` makes of correlations that were drawn: on another thread, while this one draws the next. With one thread, at once.
    pub(crate) fn later<T: Send + 'static>(&mut self, make: impl FnOnce() -> T + Send + 'static) -> Later<T> {
        if threads::count() > 1 { Later::by(self.under_way.spawn(make)) } else { Later::from(make()) }
    }
}

#[cfg(test)]
mod tests {
    use jaguar_ot::OtError;
    use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
    use jaguar_wire::{WireError, memory_pair};

    use super::*;

    /// Fails at its second call.
    struct FailsOnce(u32, [Block; 4]);

    impl CotSource for FailsOnce {
        fn nonce(&self) -> Block {
            Block::ZERO
        }

        fn deltas(&self, width: Width) -> &[Block] {
            &self.1[..if width == Width::Bit { 1 } else { 4 }]
        }

        fn send(&mut self, _: &mut Channel, _: Width, _: &mut [Block]) -> Result<(), OtError> {
            self.0 += 1;
            if self.0 == 2 { Err(WireError::misbehaved("a test", 0, 1).into()) } else { Ok(()) }
        }

        fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
            self.send(chan, width, t)
        }
    }

    #[test]
    fn an_error_ends_the_party() {
        for (first, then) in [(Role::Client, Role::Server), (Role::Server, Role::Client)] {
            let (mut chan, _peer) = memory_pair();
            let mut party = Party::new(Role::Client, FailsOnce(0, [Block::ZERO; 4]));
            assert!(party.draw(&mut chan, first, Width::Bit, 3).is_ok());
            assert!(matches!(party.draw(&mut chan, first, Width::Bit, 3), Err(MpcError::Ot(_))));
            assert!(matches!(party.draw(&mut chan, then, Width::Vector, 3), Err(MpcError::Spent)));
            assert_eq!(party.source().0, 2, "the source is not asked again");
        }
    }

    /// A dealer that counts what it was asked for as a sender.
    struct Counted(InsecureTestDealer, Vec<usize>);

    impl CotSource for Counted {
        fn nonce(&self) -> Block {
            self.0.nonce()
        }

        fn deltas(&self, width: Width) -> &[Block] {
            self.0.deltas(width)
        }

        fn send(&mut self, chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
            self.1.push(q.len());
            self.0.send(chan, width, q)
        }

        fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
            self.0.receive(chan, width, t)
        }
    }

    /// What a client gets that draws so many bits from both sides in turn, some of its own for two draws at one go; how many it
    /// asked the source for each time; and what is left of its promise.
    fn in_turn(draws: &[(usize, usize)], promises: bool) -> (Vec<Vec<u128>>, Vec<usize>, u64) {
        let (mut chan, _peer) = memory_pair();
        let dealer = Counted(InsecureTestDealer::new(1, Role::Client), Vec::new());
        let mut party = Party::new(Role::Client, dealer);
        if promises {
            party.promise(draws.iter().map(|(own, _)| *own as u64).sum());
        }
        let mut got = Vec::new();
        let mut held = Vec::new();
        let mut taken = 0;
        for &(own, theirs) in draws {
            party.stock(&mut chan, Role::Client, Width::Bit, own).unwrap();
            // The peer draws as many now, and says nothing before it has them.
            taken += own;
            assert!(party.source.1.iter().sum::<usize>() >= taken, "{taken} bits, of {:?}", party.source.1);
            let own = [own / 3, own - own / 3];
            for (sender, n) in [(Role::Client, own[0]), (Role::Server, theirs), (Role::Client, own[1])] {
                let drawn = party.draw(&mut chan, sender, Width::Bit, n).unwrap();
                got.push(drawn.halves(0, n).iter().map(|half| half.0).collect());
                // (Some are held for a while, as by threads that make something of them.)
                held.push(drawn);
            }
            held.drain(..held.len().saturating_sub(5));
        }
        let left = party.promised();
        (got, party.source.1, left)
    }

    /// Who promises what it will draw has it made ahead, as far as that goes: the same correlations, of which none is drawn that
    /// was not promised.
    #[test]
    fn running_ahead_changes_nothing_but_the_order() {
        let some = AHEAD / 7;
        for draws in [
            vec![(10, 20), (30, 0), (0, 5), (60, 0)],
            (0..20).map(|i| (some + i, 100)).collect(),
            vec![(2 * AHEAD, 1), (AHEAD / 2, 1), (AHEAD / 2 + 1, 0), (3, 3), (2 * AHEAD + 5, 0)],
        ] {
            let all: usize = draws.iter().map(|(own, _)| own).sum();
            let (want, asked, _) = in_turn(&draws, false);
            assert_eq!(asked.iter().sum::<usize>(), all);
            let (got, asked, left) = in_turn(&draws, true);
            assert!(got == want);
            assert_eq!((asked.iter().sum::<usize>(), left), (all, 0), "{asked:?}");
            // Room for a piece, or for one draw, serves all of them.
            let largest = draws.iter().map(|(own, _)| *own).max().unwrap_or(0);
            assert!(asked.iter().all(|&n| n <= largest.max(AHEAD)), "{asked:?}");
            // Before the second of its own draws, much of what follows is there.
            assert!(asked.len() < draws.len() || asked[1] >= AHEAD / 2, "{asked:?}");
        }
    }

    #[test]
    #[should_panic(expected = "draws no vectors meanwhile")]
    fn who_promised_bits_draws_no_vectors() {
        let (mut chan, _peer) = memory_pair();
        let mut party = Party::new(Role::Client, InsecureTestDealer::new(1, Role::Client));
        party.promise(100);
        party.draw(&mut chan, Role::Server, Width::Bit, 1).unwrap();
        let _ = party.draw(&mut chan, Role::Client, Width::Vector, 1);
    }

    /// The halves and the first number of each draw from the client's dealer, with stocks of such sizes.
    fn drawn(stocks: &[usize], draws: &[usize]) -> Vec<(u64, Vec<u128>)> {
        let (mut chan, _peer) = memory_pair();
        let mut party = Party::new(Role::Client, InsecureTestDealer::new(1, Role::Client));
        let mut stocks = stocks.iter();
        let mut left = 0;
        let mut draw = |&n: &usize| {
            if left == 0
                && let Some(&stock) = stocks.next()
            {
                party.stock(&mut chan, Role::Server, Width::Bit, stock).unwrap();
                left = stock;
            }
            left = left.saturating_sub(n);
            let drawn = party.draw(&mut chan, Role::Server, Width::Bit, n).unwrap();
            let result = (drawn.number, drawn.halves(0, n).iter().map(|half| half.0).collect());
            drop(drawn);
            result
        };
        draws.iter().map(&mut draw).collect()
    }

    #[test]
    fn a_stock_gives_what_would_be_drawn() {
        let draws = [3, 0, 7, 5, 600, 2, 9];
        let want = drawn(&[], &draws);
        assert_eq!(want.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 3, 3, 10, 15, 615, 617]);
        assert!(drawn(&[10, 605], &draws) == want);
        assert!(drawn(&[626], &draws) == want);
    }

    /// Of every table, of bits, of pairs of them and of vectors, the receiver has the entry of its choice; any two entries of
    /// the sender's are as alike as random ones.
    #[test]
    fn a_receivers_mask_is_the_senders_entry() {
        let (mut a, mut b) = memory_pair();
        let [mut client, mut server] =
            [Role::Client, Role::Server].map(|role| Party::new(role, InsecureTestDealer::new(5, role)));
        let (n, bits) = (4000, 3);
        for (choices, width, each) in [(1, Width::Bit, 1), (2, Width::Bit, 2), (4, Width::Vector, 1)] {
            let (mut table, mut mask, mut chosen) = (vec![0; n], vec![0; n], vec![0; n]);
            let drawn = client.draw(&mut a, Role::Server, width, 10 + each * n).unwrap();
            let receiver = drawn.masks(10, choices, bits, &mut mask, &mut chosen, &mut Room::default());
            let drawn = server.draw(&mut b, Role::Server, width, 10 + each * n).unwrap();
            let sender = drawn.masks(10, choices, bits, &mut table, &mut vec![0; n], &mut Room::default());
            assert!(matches!((receiver, sender), (Masks::Receiver, Masks::Sender)));
            let entry = |i: usize, v: u64| table[i] >> (v * u64::from(bits)) & 7;
            assert!((0..n).all(|i| mask[i] == entry(i, chosen[i]) && chosen[i] < 1 << choices));
            for v in 0..1 << choices {
                // 500 times of 4,000, or every choice alike; deviations are 21 and at most 32.
                let equal = (0..n).filter(|&i| v != 0 && entry(i, v) == entry(i, 0)).count();
                assert!(v == 0 || equal.abs_diff(n / 8) < 110, "{equal} of {n}: {v} of {choices}");
                let wanted = chosen.iter().filter(|&&c| c == v).count();
                assert!(wanted.abs_diff(n >> choices) < 160, "{wanted} of {n}: {v} of {choices}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a stock is for all")]
    fn more_than_a_stock_is_refused() {
        drawn(&[5], &[3, 3]);
    }
}
