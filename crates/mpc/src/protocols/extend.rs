//! \[x\] mod M <- Extend(\[x\] mod 2^n): the same value in shares of another ring, M = 2^out with out > n, or odd.
//!
//! For 0 ≤ x < 2^(n−1), x = x_c + x_s − 2^n·(m_c ∨ m_s) over the integers, where m are the shares' top bits:
//! the shares wrap unless both are small. That holds modulo any M. With m_c ∨ m_s = m_c + m_s − m_c·m_s only the
//! product needs the peer: one random OT with the server's m_s as choice, for shares of 2^n·m_c·m_s mod M: ⌈log2 M⌉
//! bits, of which the lowest n are zero and stay away where M is a power of two. A signed x in [−2^(n−2), 2^(n−2))
//! becomes non-negative by adding 2^(n−2) (Rathee et al., SIRNN, S&P 2021, for the general
//! case).
//!
//! Exact in that range (modulo M: whether M holds the value is for the caller to know); outside of it the result is
//! wrong by 2^n.
//!
//! [`Range::Full`] takes any signed x: after adding 2^(n−1), x = x_c + x_s − 2^n·w, where w, the carry out of
//! all n bits, is the comparison ¬x_c < x_s, converted to shares mod 2^(out−n), or M, as in `bit.rs`. That costs what a
//! sign costs, some 25 times the bytes at n = 37.
//!
//! For the other ranges: the server is the receiver: it sends m_s ⊕ r, one bit, and the client answers d = m_c + k0 −
//! k1, out − n bits, and has its own final share as soon as it has the server's bit. So d rides along with what the
//! client sends next. One COT an element, from the client. r and the unknown pad make both messages uniform.
//!
//! *Odd M.* The pads are 128 bits, taken modulo M: a pad, and so d = 2^n·m_c + k0 − k1 mod M, is within 2^−66 of uniform
//! ([`Modulus::reduce_wide`]; M < 2^62). Of a million extensions that is 2^−46 in all.

use std::iter;

use crate::share::Modulus;
use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_output, check_range};
use crate::gates::evaluate::{self, exchange};
use crate::gates::formula::Formula;
use crate::kernels::lanes::{GROUP, Lanes, add_plane, group_len, groups, plane_bytes, plane_to_bytes};
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::{Correlations, Make, Pads, Party, Room};
use crate::protocols::bit;
use crate::protocols::compare::{check_digit, compare};
use crate::protocols::mux::PACKED_AT_ONCE;
use crate::shares::WIDEST;

/// Prepared pads, for one or more alternative values ("candidates") of every element, of which one will be extended.
pub(crate) struct ExtendMaterial {
    count: usize,
    rings: Rings,
    side: Side,
}

/// From which ring an extension leads to which, and its arithmetic.
#[derive(Clone, Copy)]
pub struct Rings {
    /// n: shares come modulo 2^n.
    bits: u32,
    /// M: shares go modulo this.
    output: Modulus,
    /// The ring of what the wrap takes away, 2^n·m_c·m_s: modulo M, and if that is 2^out without the lowest n bits.
    wrap: Modulus,
    /// The residue in it of 2^n, or of one if the lowest bits are left out.
    weight: u64,
    masks: BitMasks,
}

impl Rings {
    /// From shares mod 2^`bits` to `output`, which is odd or a power of two that is larger by [`ExtendParams::MOST_ADDED`] bits at most.
    ///
    /// # Panics
    /// When it is neither: a pad has no more bits for a power of two, and what went beyond them would be sent without a mask.
    pub fn new(bits: u32, output: Modulus) -> Self {
        let masks = BitMasks::new();
        match output.log2() {
            Some(out) => {
                assert!(out - bits <= ExtendParams::MOST_ADDED, "an extension adds {} bits", out - bits);
                Self { bits, output, wrap: Modulus::power_of_two(out - bits), weight: 1, masks }
            }
            None => Self { bits, output, wrap: output, weight: output.power(bits), masks },
        }
    }

    /// The ring of what the wrap takes away.
    pub fn wrap(&self) -> Modulus {
        self.wrap
    }

    /// What the wrap would take away if this bit decided it.
    pub fn weighed(&self, bit: u64) -> u64 {
        self.weight & self.masks.of(bit)
    }

    /// Bytes of a pad in memory.
    fn pad_bytes(&self) -> usize {
        if self.output.log2().is_some() { 4 } else { 8 }
    }

    /// The top bit of share `x`, which the wrap is made of.
    pub fn top(&self, x: u64) -> u64 {
        x >> (self.bits - 1) & 1
    }

    /// The share modulo M of share `x` mod 2^n, less what the wrap takes away: `wrap`, this party's share of it.
    pub fn without(&self, x: u64, wrap: u64) -> u64 {
        match self.output.log2() {
            Some(_) => PowerOfTwo::new(self).without(x, wrap),
            None => Odd::new(self).without(x, wrap),
        }
    }
}

/// The arithmetic of the last step, in the ring of the wrap: one type for each kind of M, so that the loops over elements ask for no
/// kind.
trait Last: Copy {
    /// The pad of element `e`.
    fn pad(self, words: &Words, e: usize) -> u64;

    /// What the wrap would take away if this bit decided it.
    fn weighed(self, bit: u64) -> u64;

    fn add(self, x: u64, y: u64) -> u64;

    fn sub(self, x: u64, y: u64) -> u64;

    /// What came over the wire, made a residue if it is none.
    fn received(self, d: u64) -> u64;

    /// As [`Rings::without`].
    fn without(self, x: u64, wrap: u64) -> u64;
}

/// M is a power of two: words wrap around, and what is above the ring falls away at the end.
#[derive(Clone, Copy)]
struct PowerOfTwo {
    bits: u32,
    /// Of n bits, and of M.
    masks: [u64; 2],
}

impl PowerOfTwo {
    fn new(rings: &Rings) -> Self {
        let masks = [rings.bits, rings.output.bits()].map(|bits| u64::MAX >> (64 - bits));
        Self { bits: rings.bits, masks }
    }
}

impl Last for PowerOfTwo {
    fn pad(self, words: &Words, e: usize) -> u64 {
        u64::from(words.low[e])
    }

    fn weighed(self, bit: u64) -> u64 {
        bit
    }

    fn add(self, x: u64, y: u64) -> u64 {
        x.wrapping_add(y)
    }

    fn sub(self, x: u64, y: u64) -> u64 {
        x.wrapping_sub(y)
    }

    fn received(self, d: u64) -> u64 {
        d
    }

    fn without(self, x: u64, wrap: u64) -> u64 {
        (x & self.masks[0]).wrapping_sub(wrap << self.bits) & self.masks[1]
    }
}

/// M is odd: everything is a residue.
#[derive(Clone, Copy)]
struct Odd(Rings);

impl Odd {
    fn new(rings: &Rings) -> Self {
        Self(*rings)
    }
}

impl Last for Odd {
    fn pad(self, words: &Words, e: usize) -> u64 {
        u64::from(words.low[e]) | u64::from(words.high[e]) << 32
    }

    fn weighed(self, bit: u64) -> u64 {
        self.0.weighed(bit)
    }

    fn add(self, x: u64, y: u64) -> u64 {
        self.0.output.add(x, y)
    }

    fn sub(self, x: u64, y: u64) -> u64 {
        self.0.output.sub(x, y)
    }

    fn received(self, d: u64) -> u64 {
        self.0.output.reduce(d)
    }

    fn without(self, x: u64, wrap: u64) -> u64 {
        let x = x & (u64::MAX >> (64 - self.0.bits));
        self.0.output.sub(self.0.output.reduce(x), wrap)
    }
}

/// A pad for every element, as it is used: its lowest 32 bits for a power of two, its residue for an odd modulus.
#[derive(Default)]
struct Words {
    low: Zeroizing<Vec<u32>>,
    /// None for a power of two, whose wrap has at most 32 bits.
    high: Zeroizing<Vec<u32>>,
}

impl Words {
    fn new(count: usize, rings: &Rings) -> Self {
        let high = if rings.output.log2().is_some() { 0 } else { count };
        Self { low: Zeroizing::new(vec![0; count]), high: Zeroizing::new(vec![0; high]) }
    }

    /// Group by group, to be made.
    fn groups(&mut self) -> impl Iterator<Item = [&mut [u32]; 2]> {
        let high = self.high.chunks_mut(GROUP).map(Some).chain(iter::repeat_with(|| None));
        self.low.chunks_mut(GROUP).zip(high).map(|(low, high)| [low, high.unwrap_or_default()])
    }

    /// Makes a group of pads.
    fn make([low, high]: [&mut [u32]; 2], rings: &Rings, pads: &[jaguar_ot::Block]) {
        if rings.output.log2().is_some() {
            low.iter_mut().zip(pads).for_each(|(low, pad)| *low = pad.0 as u32);
            return;
        }
        for ((low, high), pad) in low.iter_mut().zip(high).zip(pads) {
            let residue = rings.wrap.reduce_wide(pad.0);
            *low = residue as u32;
            *high = (residue >> 32) as u32;
        }
    }

    /// Of every element the second where `c` is set.
    fn pick(&mut self, c: &[Lanes], second: &Self) {
        pick_words(c, &mut self.low, &second.low);
        pick_words(c, &mut self.high, &second.high);
    }
}

enum Side {
    /// Candidate by candidate: both pads of every OT, and where the server's corrected choice swaps them, once it is
    /// here.
    Client(Vec<([Words; 2], Vec<Lanes>)>),
    /// The pad and the random choice of every OT.
    Server(Vec<(Words, Zeroizing<Vec<Lanes>>)>),
}

/// Of every element the first or, where `c` is set, the second.
fn pick_words(c: &[Lanes], first: &mut [u32], second: &[u32]) {
    let masks = BitMasks::new();
    for (g, (first, second)) in first.chunks_mut(GROUP).zip(second.chunks(GROUP)).enumerate() {
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            *first ^= (*first ^ second) & masks.of(c[g].bit(i)) as u32;
        }
    }
}

/// What extensions of the full range cost.
fn full_cost(count: usize, digit: u32, rings: &Rings) -> Cost {
    let formula = Formula::less(rings.bits, digit);
    let all = evaluate::cost(count, &formula) + bit::cost(count, rings.wrap);
    let opened = plane_bytes(count, 1) as u64;
    let (client_rounds, server_rounds) = cost::rounds(count, formula.depth() + 1);
    Cost { up: all.up + opened, down: all.down + opened, client_rounds, server_rounds, ..all }
}

/// What an extension of one of `candidates` values of every element costs, in the other ranges.
pub(crate) fn cost(count: usize, candidates: usize, rings: &Rings) -> Cost {
    let pads = count * rings.pad_bytes();
    Cost {
        bits_from_client: (candidates * count) as u64,
        client_memory: (candidates * pads * 2) as u64,
        server_memory: (candidates * (pads + groups(count) * size_of::<Lanes>())) as u64,
        up: pack::packed_len(count, rings.wrap.bits()) as u64,
        down: plane_bytes(count, candidates) as u64,
        ..Cost::default()
    }
}

/// What the client keeps of a candidate: both pads of every OT.
fn client_words(drawn: &Correlations, count: usize, rings: &Rings) -> [Words; 2] {
    let mut words = [0, 1].map(|_| Words::new(count, rings));
    let [zeros, ones] = &mut words;
    let groups = zeros.groups().zip(ones.groups()).enumerate();
    each_with(groups.collect(), Room::default, |room, (g, (zeros, ones))| {
        match drawn.pads(g * GROUP, group_len(count, g), room) {
            Pads::Sender(zero, one) => {
                Words::make(zeros, rings, zero);
                Words::make(ones, rings, one);
            }
            Pads::Receiver(..) => unreachable!("the client sends"),
        }
    });
    words
}

/// What the server keeps of a candidate: the pad of its choice, and the choice.
fn server_words(drawn: &Correlations, count: usize, rings: &Rings) -> (Words, Zeroizing<Vec<Lanes>>) {
    let mut words = Words::new(count, rings);
    let mut random = Zeroizing::new(vec![Lanes::ZERO; groups(count)]);
    let groups = words.groups().zip(random.iter_mut()).enumerate();
    each_with(groups.collect(), Room::default, |room, (g, (words, random))| {
        match drawn.pads(g * GROUP, group_len(count, g), room) {
            Pads::Receiver(pad, choices) => {
                Words::make(words, rings, pad);
                *random = Lanes::from_bools(choices);
            }
            Pads::Sender(..) => unreachable!("the server receives"),
        }
    });
    (words, random)
}

impl ExtendMaterial {
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        candidates: usize,
        rings: Rings,
    ) -> Result<Self, MpcError> {
        Ok(Self::draw(party, chan, count, candidates, rings)?())
    }

    /// Draws all that [`new`](Self::new) takes; makes it when it is asked for.
    pub(crate) fn draw<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        candidates: usize,
        rings: Rings,
    ) -> Result<Make<Self>, MpcError> {
        let role = party.role();
        let drawn = (0..candidates).map(|_| party.draw(chan, Role::Client, Width::Bit, count));
        let drawn = drawn.collect::<Result<Vec<Correlations>, MpcError>>()?;
        Ok(Box::new(move || {
            let side = match role {
                Role::Client => Side::Client(
                    drawn.iter().map(|drawn| (client_words(drawn, count, &rings), Vec::new())).collect(),
                ),
                Role::Server => {
                    Side::Server(drawn.iter().map(|drawn| server_words(drawn, count, &rings)).collect())
                }
            };
            Self { count, rings, side }
        }))
    }

    /// Server, step 1: sends its corrected choices for every candidate.
    pub(crate) fn server_send<V: AsRef<[u64]>>(
        &self,
        chan: &mut Channel,
        candidates: &[V],
    ) -> Result<(), MpcError> {
        let Side::Server(prepared) = &self.side else { unreachable!("a server's step") };
        for (x, (_, random)) in candidates.iter().zip(prepared) {
            let mut plane = Vec::with_capacity(random.len());
            for (x, &random) in x.as_ref().chunks(GROUP).zip(random.iter()) {
                let mut lanes = random;
                for (i, eight) in x.chunks(8).enumerate() {
                    for (word, &x) in lanes.0.iter_mut().zip(eight) {
                        *word ^= self.rings.top(x) << i;
                    }
                }
                plane.push(lanes);
            }
            chan.send(&plane_to_bytes(&plane, self.count))?;
        }
        Ok(())
    }

    /// Bytes of the server's corrected choices.
    pub(crate) fn choice_bytes(&self) -> usize {
        let candidates = match &self.side {
            Side::Client(prepared) => prepared.len(),
            Side::Server(prepared) => prepared.len(),
        };
        candidates * plane_bytes(self.count, 1)
    }

    /// Bytes of the client's answer.
    pub(crate) fn answer_bytes(&self) -> usize {
        pack::packed_len(self.count, self.rings.wrap.bits())
    }

    /// Client, step 1: receives the server's corrected choices.
    pub(crate) fn client_recv(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let Side::Client(prepared) = &mut self.side else { unreachable!("a client's step") };
        for (_, swaps) in prepared {
            let bytes = chan.recv(plane_bytes(self.count, 1))?;
            *swaps = vec![Lanes::ZERO; groups(self.count)];
            add_plane(swaps, self.count, &mut &bytes[..]);
        }
        Ok(())
    }

    /// Both, of two candidates: from now on there is only the one that `c` says, which both know.
    pub(crate) fn pick(&mut self, c: &[Lanes]) {
        match &mut self.side {
            Side::Client(prepared) => {
                let (pads, swaps) = prepared.pop().expect("two candidates");
                let (first, first_swaps) = &mut prepared[0];
                first.iter_mut().zip(&pads).for_each(|(first, pads)| first.pick(c, pads));
                for ((first, second), c) in first_swaps.iter_mut().zip(swaps).zip(c) {
                    let words = first.0.iter_mut().zip(second.0).zip(c.0);
                    words.for_each(|((first, second), c)| *first ^= (*first ^ second) & c);
                }
            }
            Side::Server(prepared) => {
                let (pads, _) = prepared.pop().expect("two candidates");
                prepared[0].0.pick(c, &pads);
            }
        }
    }

    /// Client, step 2: sends the pads' corrections; its extended shares of the one candidate.
    pub(crate) fn client_answer(
        self,
        chan: &mut Channel,
        x: &[u64],
    ) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        match self.rings.output.log2() {
            Some(_) => self.answer(chan, x, PowerOfTwo::new(&self.rings)),
            None => self.answer(chan, x, Odd::new(&self.rings)),
        }
    }

    fn answer(
        &self,
        chan: &mut Channel,
        x: &[u64],
        last: impl Last,
    ) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let Side::Client(prepared) = &self.side else { unreachable!("a client's step") };
        let [([zero, one], swaps)] = &prepared[..] else { unreachable!("picked") };
        let (rings, wrap_bits) = (self.rings, self.rings.wrap.bits());
        let mut out = Zeroizing::new(Vec::with_capacity(self.count));
        let mut block = Vec::with_capacity(PACKED_AT_ONCE);
        for (e, &x) in x.iter().enumerate() {
            let (zero, one) = (last.pad(zero, e), last.pad(one, e));
            // The server's choice was corrected by this bit, so the pads change places by it.
            let swap = (zero ^ one) & rings.masks.of(swaps[e / GROUP].bit(e % GROUP));
            let (zero, one) = (zero ^ swap, one ^ swap);
            // This party's share of what the wrap takes away: its top bit, less −zero of the product.
            let wrap = last.add(last.weighed(rings.top(x)), zero);
            block.push(last.sub(wrap, one));
            out.push(last.without(x, wrap));
            if block.len() == PACKED_AT_ONCE {
                chan.send_packed(&block, wrap_bits)?;
                block.clear();
            }
        }
        chan.send_packed(&block, wrap_bits)?;
        Ok(out)
    }

    /// Server, step 2: receives the corrections; its extended shares of the one candidate.
    pub(crate) fn server_finish(
        self,
        chan: &mut Channel,
        x: &[u64],
    ) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        match self.rings.output.log2() {
            Some(_) => self.take_answer(chan, x, PowerOfTwo::new(&self.rings)),
            None => self.take_answer(chan, x, Odd::new(&self.rings)),
        }
    }

    fn take_answer(
        &self,
        chan: &mut Channel,
        x: &[u64],
        last: impl Last,
    ) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let Side::Server(prepared) = &self.side else { unreachable!("a server's step") };
        let [(pads, _)] = &prepared[..] else { unreachable!("picked") };
        let rings = self.rings;
        let mut out = Zeroizing::new(Vec::with_capacity(self.count));
        for (b, x) in x.chunks(PACKED_AT_ONCE).enumerate() {
            let d = chan.recv_packed(x.len(), rings.wrap.bits())?;
            for (i, (&x, d)) in x.iter().zip(d).enumerate() {
                let top = rings.top(x);
                let product =
                    last.add(last.pad(pads, b * PACKED_AT_ONCE + i), last.received(d) & rings.masks.of(top));
                out.push(last.without(x, last.sub(last.weighed(top), product)));
            }
        }
        Ok(out)
    }
}

/// Which values an extension takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// −2^(n−2) ≤ x < 2^(n−2).
    Signed,
    /// 0 ≤ x < 2^(n−1), as after a ReLU.
    NonNegative,
    /// Any signed x of n bits, by a comparison in digits of `digit` bits (1..=4).
    Full {
        /// Bits per digit.
        digit: u32,
    },
}

/// What an extension does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendParams {
    /// The shares' ring before is mod 2^`bits`: 3 to [`WIDEST`].
    pub bits: u32,
    /// And after it modulo this: 2^`bits` times two at least, and times 2^32 at most; or any odd number.
    pub output: Modulus,
    /// In which range the values lie. Values outside come out wrong by 2^`bits`.
    pub range: Range,
}

impl ExtendParams {
    /// By so many bits a ring may grow.
    pub const MOST_ADDED: u32 = 32;

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        if let Range::Full { digit } = self.range {
            check_digit(digit)?;
        }
        check_range("width before an extension", self.bits, 3..=WIDEST)?;
        check_output("width after an extension", self.output, self.bits + 1..=self.bits + Self::MOST_ADDED)
    }

    fn rings(&self) -> Rings {
        Rings::new(self.bits, self.output)
    }

    fn offset(&self) -> u64 {
        match self.range {
            Range::Signed => 1 << (self.bits - 2),
            Range::NonNegative => 0,
            Range::Full { .. } => 1 << (self.bits - 1),
        }
    }
}

impl Nonlinear for Elementwise<ExtendParams> {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Extension
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    fn cost(&self) -> Cost {
        let (count, rings) = (self.count, self.params.rings());
        match self.params.range {
            Range::Signed | Range::NonNegative => cost::in_one_round(count, cost(count, 1, &rings)),
            Range::Full { digit } => full_cost(count, digit, &rings),
        }
    }

    fn digit(&self) -> Option<u32> {
        match self.params.range {
            Range::Signed | Range::NonNegative => None,
            Range::Full { digit } => Some(digit),
        }
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(Extend::prepare(party, chan, self.count, self.params)?.into_blocks())
    }
}

/// A prepared extension, for one run.
pub struct Extend {
    blocks: Vec<Block>,
}

/// A block of an extension.
struct Extension {
    params: ExtendParams,
    role: Role,
    wrap: Wrap,
    /// This party's shares; the server's carry the offset.
    x: Zeroizing<Vec<u64>>,
    out: Zeroizing<Vec<u64>>,
}

/// Where the wrap comes from; taken when it is used.
enum Wrap {
    /// From the top bits of the shares.
    Tops(Option<ExtendMaterial>),
    /// From a comparison, converted.
    Carry(Option<Box<(evaluate::FormulaMaterial, bit::BitMaterial)>>),
}

impl Extend {
    /// Prepares `count` extensions.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ExtendParams,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let rings = params.rings();
        let ranges: Vec<std::ops::Range<usize>> = match params.range {
            Range::Signed | Range::NonNegative => block::ranges(count).collect(),
            // It goes through its flights at one go, so it is one block.
            Range::Full { .. } => iter::once(0..count).filter(|all| !all.is_empty()).collect(),
        };
        let blocks = ranges
            .into_iter()
            .map(|range| {
                let count = range.len();
                let wrap = match params.range {
                    Range::Signed | Range::NonNegative => {
                        Wrap::Tops(Some(ExtendMaterial::new(party, chan, count, 1, rings)?))
                    }
                    Range::Full { digit } => {
                        let formula = Formula::less(params.bits, digit);
                        let compare = evaluate::FormulaMaterial::new(party, chan, count, formula)?;
                        let convert = bit::BitMaterial::new(party, chan, count, rings.wrap)?;
                        Wrap::Carry(Some(Box::new((compare, convert))))
                    }
                };
                let (x, out) = (Zeroizing::default(), Zeroizing::default());
                let extension = Extension { params, role: party.role(), wrap, x, out };
                Ok(Block::new(range.clone(), range, extension))
            })
            .collect::<Result<_, MpcError>>()?;
        Ok(Self { blocks })
    }

    /// Its blocks, for who runs them step by step. (The one block of the full range takes all its flights in one step:
    /// it may not share a batch with other blocks, whose messages would be under way then.)
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// This party's shares modulo `output`. The client's last message may still be in the channel's buffer.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

impl Flights for Extension {
    fn steps(&self) -> usize {
        match self.wrap {
            Wrap::Tops(_) => 2,
            Wrap::Carry(_) => 1,
        }
    }

    /// It begins with the server.
    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn start(&mut self, x: &[u64]) {
        let offset = if self.role == Role::Server { self.params.offset() } else { 0 };
        let mask = u64::MAX >> (64 - self.params.bits);
        self.x = Zeroizing::new(x.iter().map(|x| x.wrapping_add(offset) & mask).collect());
    }

    /// 1. The server sends its corrected choices (its step 0).
    /// 2. The client answers with the pads' corrections (step 1 of both).
    ///
    /// For the full range, in one step: 1. both compare ¬x_c with x_s; 2. both open the result under a prepared bit.
    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match &mut self.wrap {
            Wrap::Tops(prepared) => match (self.role, step) {
                (Role::Client, 0) => {}
                (Role::Server, 0) => {
                    // 1.
                    prepared.as_ref().expect("runs once").server_send(chan, &[&self.x[..]])?;
                }
                (role, _) => {
                    let mut prepared = prepared.take().expect("runs once");
                    self.out = match role {
                        Role::Client => {
                            // 1 and 2.
                            prepared.client_recv(chan)?;
                            prepared.client_answer(chan, &self.x)?
                        }
                        // 2.
                        Role::Server => prepared.server_finish(chan, &self.x)?,
                    };
                }
            },
            Wrap::Carry(prepared) => {
                let prepared = prepared.take().expect("runs once");
                self.out = Zeroizing::new(by_carry(*prepared, chan, &self.x, &self.params.rings())?);
            }
        }
        Ok(())
    }

    /// The server's share loses the offset again.
    fn reads(&self, step: usize) -> Option<usize> {
        match (&self.wrap, self.role, step) {
            (Wrap::Tops(_), _, 0) => Some(0),
            (Wrap::Tops(prepared), role, _) => {
                let prepared = prepared.as_ref().expect("runs once");
                Some(if role == Role::Client { prepared.choice_bytes() } else { prepared.answer_bytes() })
            }
            (Wrap::Carry(_), _, _) => None,
        }
    }

    fn finish(&mut self) -> Vec<u64> {
        let offset = if self.role == Role::Server { self.params.offset() } else { 0 };
        let output = self.params.output;
        let offset = output.reduce(offset);
        self.out.iter().map(|&x| output.sub(x, offset)).collect()
    }
}

/// Shares modulo M of x_c + x_s − 2^n·\[¬x_c < x_s\].
fn by_carry(
    (prepared, wrap): (evaluate::FormulaMaterial, bit::BitMaterial),
    chan: &mut Channel,
    x: &[u64],
    rings: &Rings,
) -> Result<Vec<u64>, MpcError> {
    let (role, count, turns) = (prepared.role, prepared.count, prepared.formula.depth() + 1);
    // 1.
    let operand = match role {
        Role::Client => Zeroizing::new(x.iter().map(|x| !x).collect::<Vec<_>>()),
        Role::Server => Zeroizing::new(x.to_vec()),
    };
    let carry = compare(prepared, chan, &operand)?;
    // 2.
    let mut c = wrap.opening(&carry);
    let mine = plane_to_bytes(&c, count);
    let theirs = exchange(chan, role, turns, &mine, |_| Ok(()))?;
    if role == Role::Server {
        chan.flush()?;
    }
    add_plane(&mut c, count, &mut &theirs[..]);
    let wraps = Zeroizing::new(wrap.finish(&c));
    Ok(x.iter()
        .zip(wraps.iter())
        .map(|(&x, &wrap)| rings.without(x, rings.wrap.mul(rings.weight, wrap)))
        .collect())
}
