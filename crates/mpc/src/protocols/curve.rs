//! \[f(x)\] mod 2^out <- Curve(\[x\] mod 2^n), f a public curve in pieces ([`Pieces`]), rounded up or down.
//!
//! x has d = low + k bits that count: k for the piece i, `low` for the place u in it. y = (offset_i·2^a + slope_i·u) / 2^shift.
//! Let L = out + shift; y is added up mod 2^L and shifted by each party alone at the end. Slopes are multiplied by u mod 2^p: p is L, or
//! less where that saves enough ([`CurveParams::sum_bits`]); offsets are added up in units of 2^a, in as many bits as L has above these or in fewer.
//!
//! 1. *Carry.* κ, the carry out of the lowest `low` bits of the shares, is ¬x_c < x_s there: a comparison (`compare.rs`).
//! 2. *Into both rings.* κ becomes shares mod 2^(p − low), or mod 2^k if that is more (`bit.rs`). So u = u_c + u_s − 2^low·κ is shared
//!    mod 2^p, and i = i_c + i_s + κ mod 2^k.
//! 3. *Look-up.* With a prepared place r (`one_hot.rs`) both open δ = i + r mod 2^k. Then each party adds up its shares of
//!    the coefficients of piece i, bit by bit, by itself.
//! 4. *Line.* Each bit of an offset becomes a number (`bit.rs`), each bit of a slope is multiplied by u (`mux.rs`), all with one
//!    opening. What all pieces have in common, the least offset and slope, is public.
//! 5. *Extension*, of each sum whose ring is narrower, to L bits (`extend.rs`).
//! 6. *Shift.* As in a truncation: the client takes ⌊z_c / 2^shift⌋, the server ⌈z_s / 2^shift⌉.
//!
//! The corrections of the slopes' multiplications need u, and no coefficient: they go with δ.
//!
//! **Slopes in a ring of their own.** Let m be the largest |slope·u| of a slope below zero, or 0. All slope·u + m lie from 0 to a public
//! bound, which is below 2^(p − 1). So their shares mod 2^p wrap exactly where one of them has its top bit, as those of a value that is not
//! negative: one COT, the server's masked top bit and an answer of L − p bits make of them shares mod 2^L, and m is taken off there. Exact. Of each bit
//! of a slope both ways take L − p bits less. Likewise, an offset less the least one has as many bits as are looked up, and a ring of one more is enough for it:
//! conversions are as much narrower. Extensions begin when the last turn is closed: with the server's half of it or, where the client's half
//! comes last, in a flight more.
//!
//! **Error.** Less than one ulp from the line, and no bias, as of a truncation; exact on multiples of 2^shift. How far the lines
//! are from f is for who makes them. Which piece is taken does not depend on how the shares fall: the comparison takes all bits.
//! Bits of x above d are left out, so f is that of the domain, repeated, unless the lines go on.
//!
//! **Who learns what.** *Functionality*: the client gets a uniform z_c mod 2^L, the server the rest; each cuts off its part. δ is masked by r, which is
//! uniform to each party; everything else is as in the parts. So neither learns a thing: `one_hot/tiny.rs` counts all views of a
//! small place and its opening.
//! f is public.
//!
//! **Lines that go on** ([`Beyond::Straight`]): x of all n bits; beyond the pieces its first and last lines go on. With t = x + 2^(d−1)
//! one comparison gives κ, whether t is within the pieces, 0 ≤ t < 2^d, and whether it is above (`Formula::place`). Let a_c, a_s be the
//! shares of t without the lowest `low` bits, so that t >> low is a_c + a_s + κ. The place becomes
//!
//! ```text
//! i = within·(a_c + a_s) + κ − 2·above mod 2^k
//! ```
//!
//! which is t >> low within the pieces, one of the first two below them, and one of the last two above them: each two have one line, so
//! that κ need not be multiplied. Above, the line of the place taken lacks c·2^low·((t >> low) − i), c its slope, a whole number; κ cancels,
//! and above·(a_c + a_s − 2^k + 2)·c·2^low is added behind the shift. So two or three bits more are opened along with κ, and the factors a
//! go with them: one multiplication of k bits and, unless c is 0, one of out − low − j bits, if c is 2^j times an odd number.
//! As x is known mod 2^n, so is that part of the result mod 2^(n + j): out may be so large.
//!
//! **Level beyond** ([`Beyond::Level`]), with t = x − begin: the same without "above", i = within·(a_c + a_s) + κ mod 2^k. All that is outside
//! becomes one of the first two pieces, which have one line without a slope.
//!
//! From 64 pieces on the client has a message of the preparation's, too, which comes last ([`Block::complete`]).
//!
//! Costs: [`Nonlinear::cost`], and by example in `docs/protocols/nonlinear.md`.

use std::sync::Arc;

use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::declassify;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{self, BLOCK_ELEMENTS, Block, Flights};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_range};
use crate::gates::bits::Bits;
use crate::gates::evaluate::{self, Corrections, FormulaMaterial, Running};
use crate::gates::formula::Formula;
use crate::kernels::lanes::{GROUP, Lanes, add_plane, group_len, groups, plane_bytes, plane_to_bytes};
use crate::kernels::loops::Level;
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::bit::{self, BitMaterial};
use crate::protocols::compare::check_digit;
use crate::protocols::extend::{self, ExtendMaterial, ExtendParams, Rings};
use crate::protocols::mux::{self, MuxMaterial, PACKED_AT_ONCE, choose};
use crate::protocols::one_hot::{self, OneHot};
use crate::semantics::{Beyond, Pieces};
use crate::share::Modulus;
use crate::shares::{WIDEST, ring_mask};

/// What a curve does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurveParams {
    /// The shares come mod 2^`bits`: 3 to [`WIDEST`], and at least as many as the pieces' domain has.
    pub bits: u32,
    /// And leave mod 2^`out_bits`: with the pieces' shift at most 63, and more than the pieces' domain has.
    pub out_bits: u32,
    /// Bits per digit of the comparison: 1..=4.
    pub digit: u32,
    /// The curve.
    pub pieces: Arc<Pieces>,
}

impl CurveParams {
    /// L: y is computed mod 2^L.
    fn ring_bits(&self) -> u32 {
        self.out_bits + self.pieces.shift
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.ring_bits())
    }

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        check_range("width of shares", self.bits, 3..=WIDEST)?;
        check_digit(self.digit)?;
        self.pieces
            .check()
            .map_err(|what| MpcError::misuse(what, "another", "what a curve's pieces may have"))?;
        let domain = self.pieces.domain_bits();
        match self.pieces.beyond {
            Beyond::Repeated => check_range("domain of a curve", domain, 3..=self.bits)?,
            Beyond::Straight | Beyond::Level { .. } => {
                let least = 3.max((2 * self.bits).saturating_sub(64));
                check_range("domain of a curve whose lines go on", domain, least..=self.bits - 2)?;
                // (What is above them is known modulo 2^bits only, and so its line's part modulo as much times its slope.)
                let most = if self.pieces.tail() == 0 { 62 } else { self.bits + self.tail_shift() };
                check_range("width of the result of a curve whose lines go on", self.out_bits, 1..=most)?;
            }
        }
        if let Beyond::Level { begin } = self.pieces.beyond
            && !(-(1 << (self.bits - 2))..1 << (self.bits - 2)).contains(&begin)
        {
            return Err(MpcError::misuse("begin of a curve's pieces", "another", "no more than may come"));
        }
        check_range("width of a curve's ring", self.ring_bits(), domain + 1..=63)?;
        check_range("shift of a curve's offsets", self.pieces.offset_shift, 0..=self.ring_bits() - 1)?;
        check_range("width of a curve's result", self.out_bits, 1..=62)
    }

    fn formula(&self) -> Formula {
        let Pieces { low, beyond, .. } = *self.pieces;
        match beyond {
            Beyond::Repeated => Formula::less(low, self.digit),
            Beyond::Straight => Formula::place(self.bits, self.pieces.domain_bits(), low, self.digit),
            Beyond::Level { .. } => Formula::within(self.bits, self.pieces.domain_bits(), low, self.digit),
        }
    }

    /// Where lines go on or all is level, what is multiplied by "within" and by "above": so many bits; of the second none if nothing is added.
    fn outside(&self) -> Option<(u32, Option<u32>)> {
        let above = self.out_bits.saturating_sub(self.pieces.low + self.tail_shift());
        let tail = (above > 0 && self.pieces.tail() != 0).then_some(above);
        (self.pieces.beyond != Beyond::Repeated).then_some((self.pieces.log2(), tail))
    }

    /// So many bits of what is added above the pieces are zero, whatever it is, but for those of a piece: the slope's, where there is one.
    fn tail_shift(&self) -> u32 {
        self.pieces.tail().trailing_zeros() % i64::BITS
    }

    /// How many bits are opened along with κ.
    fn opened_outside(&self) -> usize {
        let known = usize::from(self.above().is_some());
        self.outside().map_or(0, |(_, tail)| 1 + known + usize::from(tail.is_some()))
    }

    /// Modulo what "above" is shared, where it is known: it is taken twice.
    fn above(&self) -> Option<Modulus> {
        let twice = || Modulus::power_of_two(self.pieces.log2() - 1);
        (self.pieces.beyond == Beyond::Straight).then(twice)
    }

    /// In how many bits a layer of `count` values adds up the bits of offsets, above the lowest `offset_shift`, and slopes' products with u.
    /// In fewer than y has, where that saves 16 KiB (a flight more). Both parties and whoever asks for the cost decide so, by public sizes.
    pub fn sum_bits(&self, count: usize) -> [u32; 2] {
        let ring = self.ring_bits();
        let [offsets, slopes] = self.tables();
        let wide = [ring - offsets.weight, ring];
        let least = [offsets.bits + 1, self.least_product_bits()];
        let narrow = [0, 1]
            .map(|sum| least[sum].max(wide[sum].saturating_sub(ExtendParams::MOST_ADDED)).min(wide[sum]));
        let fewer = [0, 1].map(|sum| wide[sum] - narrow[sum]);
        let carries = self.carry_bits(wide[1]) - self.carry_bits(narrow[1]);
        let gains = [offsets.bits * fewer[0], 2 * slopes.bits * fewer[1] + carries];
        // (What an extension takes: its answer, its choice, and as much for its COT.)
        let saved = [0, 1].map(|sum| u64::from(gains[sum].saturating_sub(fewer[sum] + 2)));
        let enough = (saved[0] + saved[1]) * count as u64 / 8 >= FLIGHT_BYTES;
        [0, 1].map(|sum| if enough && saved[sum] > 0 { narrow[sum] } else { wide[sum] })
    }

    /// In the least ring of slope·u whose top bit is known, none being below zero: twice as much as they can be fits in.
    fn least_product_bits(&self) -> u32 {
        let [least, most] = self.products();
        let bits = u128::BITS - (most - least).unsigned_abs().leading_zeros();
        (bits + 1).max(self.pieces.low + 1)
    }

    /// The least and the largest that slope·u may be, zero among them.
    fn products(&self) -> [i128; 2] {
        let Pieces { low, slopes, .. } = &*self.pieces;
        let most_u = (1i128 << low) - 1;
        let ends = [slopes.iter().min(), slopes.iter().max()];
        let [least, most] = ends.map(|end| i128::from(end.copied().unwrap_or_default()) * most_u);
        [least.min(0), most.max(0)]
    }

    /// In how many bits the carry is shared where slopes' products have so many: it is part of u, and of the place.
    fn carry_bits(&self, products: u32) -> u32 {
        (products - self.pieces.low).max(self.pieces.log2())
    }

    /// The bits that tell the pieces' coefficients apart.
    fn tables(&self) -> [Table; 2] {
        let Pieces { offset_shift, offsets, slopes, .. } = &*self.pieces;
        [Table::new(offsets, *offset_shift, self.ring_bits()), Table::new(slopes, 0, self.ring_bits())]
    }
}

/// So many bytes a layer saves at least where it has sums in rings of their own, for which it takes a flight more: what a link of 100 Mbit/s
/// carries in a millisecond or two.
const FLIGHT_BYTES: u64 = 1 << 14;

/// What is looked up: numbers, as far as they differ.
struct Table {
    /// What all have in common.
    least: i64,
    /// Bit j of the rest weighs 2^(`weight` + j).
    weight: u32,
    /// How many bits there are.
    bits: u32,
    /// The numbers without the least, in the order of the places mod 2^k: the piece of zero first.
    rest: Vec<u64>,
}

impl Table {
    fn new(all: &[i64], weight: u32, ring: u32) -> Self {
        let least = all.iter().copied().min().unwrap_or_default();
        let mut rest: Vec<u64> = all.iter().map(|c| c.wrapping_sub(least) as u64).collect();
        let pieces = rest.len();
        rest.rotate_left(pieces / 2);
        let widest = rest.iter().map(|c| 64 - c.leading_zeros()).max().unwrap_or_default();
        // One at least, so that a curve always takes as many turns.
        Self { least, weight, bits: widest.clamp(1, ring - weight), rest }
    }

    /// In how many bits each of its bits is wanted, of a sum of so many.
    fn widths(&self, sum: u32) -> impl Iterator<Item = u32> {
        (0..self.bits).map(move |j| sum - j)
    }

    /// For each bit the places −w that have it, w as a bit of a word.
    fn planes(&self) -> Vec<Vec<u64>> {
        let pieces = self.rest.len();
        let plane = |j: u32| {
            let mut plane = vec![0u64; pieces.div_ceil(64)];
            for w in 0..pieces {
                plane[w / 64] |= (self.rest[(pieces - w) % pieces] >> j & 1) << (w % 64);
            }
            plane
        };
        (0..self.bits).map(plane).collect()
    }
}

impl Nonlinear for Elementwise<CurveParams> {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Curve
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    fn cost(&self) -> Cost {
        Public::new(&self.params, self.count).cost(self.count)
    }

    /// Rounding.
    fn error(&self) -> f64 {
        1.0
    }

    fn correction_bytes(&self) -> u64 {
        plane_bytes(self.count, self.params.formula().corrections()) as u64
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Curve::blocks(party, chan, self.count, &self.params)
    }
}

/// A prepared batch of curves, for one run.
///
/// ```
/// use std::sync::Arc;
///
/// use jaguar_mpc::semantics::{Beyond, Pieces};
/// use jaguar_mpc::{Curve, CurveParams, Party, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// // |x|, of numbers of ten bits: four pieces are enough.
/// let offsets = vec![512, 256, 0, 256];
/// let slopes = vec![-2, -2, 2, 2];
/// let pieces = Pieces { low: 8, offset_shift: 1, shift: 1, offsets, slopes, beyond: Beyond::Repeated };
/// let params = CurveParams { bits: 16, out_bits: 16, digit: 4, pieces: Arc::new(pieces) };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, share: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let curve = Curve::prepare(&mut party, chan, 1, &params).unwrap();
///     let y = curve.run(chan, &[share]).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, 5));
///     (one(Role::Client, &mut to_server, 65436), server.join().unwrap())
/// });
/// assert_eq!(reference::open(65436, 5, 16), -95);
/// assert_eq!(reference::open(client, server, 16), 95);
/// ```
pub struct Curve {
    blocks: Vec<Block>,
}

impl Curve {
    /// Prepares `count` of them: uses up COTs, needs no input. The last message is the client's.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    ///
    /// # Panics
    /// When the client has promised to draw more than that ([`Party::promise`]).
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: &CurveParams,
    ) -> Result<Self, MpcError> {
        let mut blocks = Self::blocks(party, chan, count, params)?;
        assert_eq!(
            party.promised(),
            0,
            "all that was promised is drawn before the client says anything else"
        );
        blocks.iter_mut().try_for_each(|block| block.complete(chan))?;
        // The server waits for this.
        chan.flush()?;
        Ok(Self { blocks })
    }

    /// As many, to be completed.
    fn blocks<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: &CurveParams,
    ) -> Result<Vec<Block>, MpcError> {
        params.check()?;
        let public = Arc::new(Public::new(params, count));
        Block::each(count, |count| Run::new(party, chan, count, &public))
    }

    /// This party's shares mod 2^out of f(x); `x` are its shares mod 2^bits (higher bits are ignored). The client's last
    /// message may still be in the channel's buffer.
    ///
    /// 1. The comparison of κ; 2. κ is opened, masked, and made a number; 3. both open δ and send what the multiplications by u need,
    ///    and look the coefficients up; 4. both open these, masked; 5. sums in
    ///    narrower rings are extended; 6. each party shifts.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

/// The parameters, with what follows from them.
struct Public {
    params: CurveParams,
    /// In how many bits offsets are added up, and slopes' products: those of L, or [fewer](CurveParams::sum_bits).
    sums: [u32; 2],
    offsets: Table,
    slopes: Table,
}

impl Public {
    /// Of a layer of `count` values.
    fn new(params: &CurveParams, count: usize) -> Self {
        let [offsets, slopes] = params.tables();
        Self { params: params.clone(), sums: params.sum_bits(count), offsets, slopes }
    }

    /// How many bits of coefficients are looked up, the offsets' first.
    fn looked_up(&self) -> usize {
        (self.offsets.bits + self.slopes.bits) as usize
    }

    /// Modulo what the carry is shared.
    fn carry(&self) -> Modulus {
        Modulus::power_of_two(self.params.carry_bits(self.sums[1]))
    }

    /// From which ring the offsets' sum and that of the slopes' products lead to which, if it is another.
    fn extensions(&self) -> [Option<Rings>; 2] {
        let ring = self.params.ring_bits();
        let wide = [ring - self.offsets.weight, ring];
        let extension = |sum: u32, wide| (sum < wide).then(|| Rings::new(sum, Modulus::power_of_two(wide)));
        [0, 1].map(|sum| extension(self.sums[sum], wide[sum]))
    }

    fn extends(&self) -> bool {
        self.extensions().iter().any(Option::is_some)
    }

    /// What is added to the slopes' products, so that none is below zero.
    fn lift(&self) -> u64 {
        let [least, _] = self.params.products();
        (-least) as u64
    }

    fn turns(&self) -> usize {
        self.params.formula().depth() + Turns::MORE
    }

    /// What so many of the layer's values take.
    fn cost(&self, count: usize) -> Cost {
        let Self { params, sums, offsets, slopes } = self;
        let k = params.pieces.log2();
        let mut all = evaluate::cost(count, &params.formula())
            + bit::cost(count, self.carry())
            + one_hot::cost(count, k);
        for width in offsets.widths(sums[0]) {
            all = all + bit::cost(count, Modulus::power_of_two(width));
        }
        for width in slopes.widths(sums[1]) {
            all = all + mux::cost(count, &[width]);
        }
        if let Some((within, tail)) = params.outside() {
            all = all + mux::cost(count, &[within]);
            if let Some(above) = params.above() {
                all = all + bit::cost(count, above);
            }
            if let Some(tail) = tail {
                all = all + mux::cost(count, &[tail]);
            }
        }
        // (The server's choices begin extensions: behind its half of the last turn, or behind the client's, in a flight of its own. The
        // client's answer is the last message.)
        let mut turns = self.turns();
        for rings in self.extensions().iter().flatten() {
            all = all + extend::cost(count, 1, rings);
        }
        if self.extends() {
            turns = (turns + 1) | 1;
        }
        let planes = 1 + params.opened_outside() + self.looked_up();
        let opened = (plane_bytes(count, planes) + pack::packed_len(count, k)) as u64;
        let (client_rounds, server_rounds) = cost::rounds(count, turns);
        Cost { up: all.up + opened, down: all.down + opened, client_rounds, server_rounds, ..all }
    }
}

/// What is prepared, but for the comparison.
struct Material {
    carry: BitMaterial,
    outside: Option<Outside>,
    place: OneHot,
    offsets: Vec<BitMaterial>,
    slopes: Vec<MuxMaterial>,
    extensions: [Option<ExtendMaterial>; 2],
}

/// Where lines go on or all is level: for what is multiplied by "within"; for "above" as a number, and for what is multiplied by "above".
struct Outside {
    within: MuxMaterial,
    above: Option<BitMaterial>,
    tail: Option<MuxMaterial>,
}

impl Outside {
    fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: &CurveParams,
    ) -> Result<Option<Self>, MpcError> {
        let Some((within, tail)) = params.outside() else { return Ok(None) };
        let above = match params.above() {
            Some(above) => Some(BitMaterial::new(party, chan, count, above)?),
            None => None,
        };
        let within = MuxMaterial::new(party, chan, count, &[within])?;
        let tail = match tail {
            Some(bits) => Some(MuxMaterial::new(party, chan, count, &[bits])?),
            None => None,
        };
        Ok(Some(Self { within, above, tail }))
    }

    /// This party's shares of what is opened along with κ, of a comparison's results.
    fn opening(&self, results: &[Bits]) -> Vec<Vec<Lanes>> {
        let [_, within, known @ ..] = results else { unreachable!("a place has two results at least") };
        let above = self.above.iter().zip(known).map(|(bit, above)| bit.opening(above));
        let tail = self.tail.iter().zip(known).map(|(tail, above)| tail.opening(above));
        std::iter::once(self.within.opening(within)).chain(above).chain(tail).collect()
    }

    /// The factors: the place without its carry; and the server's, less the last place but one.
    fn factors(x: &[u64], role: Role, pieces: &Pieces) -> [Zeroizing<Vec<u64>>; 2] {
        let last = if role == Role::Server { (1u64 << pieces.log2()) - 2 } else { 0 };
        let places = || x.iter().map(|x| x >> pieces.low);
        [Zeroizing::new(places().collect()), Zeroizing::new(places().map(|a| a.wrapping_sub(last)).collect())]
    }

    fn send_corrections(
        &self,
        chan: &mut Channel,
        x: &[u64],
        role: Role,
        pieces: &Pieces,
    ) -> Result<(), MpcError> {
        let [place, beyond] = Self::factors(x, role, pieces);
        self.within.send_corrections(chan, 0, &place)?;
        self.tail.iter().try_for_each(|tail| tail.send_corrections(chan, 0, &beyond))
    }

    /// Of what was opened, and of the peer's corrections: this party's shares of within·a − 2·above, and of what is added to the result.
    fn close(
        self,
        chan: &mut Channel,
        corrections: &mut Corrections,
        opened: &[Vec<Lanes>],
        at: &At<'_>,
    ) -> Result<Outer, MpcError> {
        let pieces = &*at.public.params.pieces;
        let [place, beyond] = Self::factors(at.x, at.role, pieces);
        let products = self.within.products(corrections, chan, 0, &place)?;
        let within = choose(at.level, self.within.candidates(0, &place, products), &opened[0]);
        let mut places = Zeroizing::new(within);
        if let Some(above) = self.above {
            let above = Zeroizing::new(above.finish(&opened[1]));
            places
                .iter_mut()
                .zip(above.iter())
                .for_each(|(place, above)| *place = place.wrapping_sub(above << 1));
        }
        // (The first place is not that of zero, which comes first in the tables: the server moves it.)
        let first = if at.role == Role::Server { 1u64 << (pieces.log2() - 1) } else { 0 };
        places.iter_mut().for_each(|place| *place = place.wrapping_add(first));
        let tail = match self.tail {
            Some(tail) => {
                let products = tail.products(corrections, chan, 0, &beyond)?;
                let mut tail =
                    Zeroizing::new(choose(at.level, tail.candidates(0, &beyond, products), &opened[2]));
                let times = (pieces.tail() as u64) << pieces.low;
                tail.iter_mut().for_each(|tail| *tail = tail.wrapping_mul(times));
                Some(tail)
            }
            None => None,
        };
        Ok(Outer { places, tail })
    }
}

/// Where a party is.
struct At<'a> {
    role: Role,
    level: Level,
    public: &'a Public,
    x: &'a [u64],
}

/// What [`Outside`] becomes: shares of places without their carry, and of what is added behind the shift.
struct Outer {
    places: Zeroizing<Vec<u64>>,
    tail: Option<Zeroizing<Vec<u64>>>,
}

/// The run of one block.
struct Run {
    role: Role,
    level: Level,
    count: usize,
    public: Arc<Public>,
    /// Until the tables are served or taken.
    compare: Option<FormulaMaterial>,
    material: Option<Material>,
    /// The server's: where its first message comes from.
    corrections: Corrections,
    /// The client's: its first message has been sent.
    corrected: bool,
    /// This party's shares: of the pieces' domain; or, where lines go on, of how far above its lower end x is.
    x: Zeroizing<Vec<u64>>,
    /// From then on.
    turns: Option<Turns>,
}

impl Run {
    fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        public: &Arc<Public>,
    ) -> Result<Self, MpcError> {
        let params = &public.params;
        // What all parts take is drawn at one go, kind by kind.
        if count <= BLOCK_ELEMENTS {
            let cost = public.cost(count);
            party.stock(chan, Role::Server, Width::Vector, cost.from_server().vectors as usize)?;
            party.stock(chan, Role::Server, Width::Bit, cost.from_server().bits as usize)?;
            party.stock(chan, Role::Client, Width::Bit, cost.from_client().bits as usize)?;
        }
        let compare = FormulaMaterial::new(party, chan, count, params.formula())?;
        let carry = BitMaterial::new(party, chan, count, public.carry())?;
        let outside = Outside::new(party, chan, count, params)?;
        let place = OneHot::new(party, chan, count, params.pieces.log2())?;
        let mut offsets = Vec::new();
        for width in public.offsets.widths(public.sums[0]) {
            offsets.push(BitMaterial::new(party, chan, count, Modulus::power_of_two(width))?);
        }
        let mut slopes = Vec::new();
        for width in public.slopes.widths(public.sums[1]) {
            slopes.push(MuxMaterial::new(party, chan, count, &[width])?);
        }
        let mut extensions = [None, None];
        for (extension, rings) in extensions.iter_mut().zip(public.extensions()) {
            if let Some(rings) = rings {
                *extension = Some(ExtendMaterial::new(party, chan, count, 1, rings)?);
            }
        }
        Ok(Self {
            role: party.role(),
            level: party.level,
            count,
            public: Arc::clone(public),
            compare: Some(compare),
            material: Some(Material { carry, outside, place, offsets, slopes, extensions }),
            corrections: Corrections::Online,
            corrected: false,
            x: Zeroizing::default(),
            turns: None,
        })
    }

    /// What this party puts into the comparison: the client's operand of ¬x_c < x_s. (Where lines go on, the formula has it so.)
    fn compared(&self, x: &[u64]) -> Zeroizing<Vec<u64>> {
        let Pieces { low, beyond, .. } = *self.public.params.pieces;
        if beyond != Beyond::Repeated {
            return Zeroizing::new(x.to_vec());
        }
        let low = u64::MAX >> (64 - low);
        let flip = if self.role == Role::Client { low } else { 0 };
        Zeroizing::new(x.iter().map(|x| (x & low) ^ flip).collect())
    }

    fn begin(&mut self, running: Running) {
        let material = self.material.take().expect("the first steps leave it");
        self.turns = Some(Turns {
            role: self.role,
            level: self.level,
            count: self.count,
            public: Arc::clone(&self.public),
            running,
            state: State::Comparing(Box::new(material)),
            x: std::mem::take(&mut self.x),
            left: self.public.turns(),
        });
    }

    fn turns(&mut self) -> &mut Turns {
        self.turns.as_mut().expect("the first steps make it")
    }

    /// 1. Corrections; then the tables, and the turns: an odd one begins with the server.
    fn client(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        let (all, last) = (self.public.turns(), step + 1 == self.steps());
        if step == 0 {
            let compare = self.compare.as_ref().expect("at the start");
            return if self.corrected {
                Ok(())
            } else {
                compare.client_correct(chan, &self.compared(&self.x))
            };
        }
        if step == 1 {
            let compare = self.compare.take().expect("the first step leaves it");
            let running = compare.client_take(chan, &self.compared(&self.x))?;
            self.begin(running);
        }
        let turns = self.turns();
        // The server's half of an even turn, this party's having gone out with the step before.
        if step > 1 && 2 * step - 2 <= all {
            let theirs = turns.receive(chan)?;
            turns.close(chan, theirs)?;
        }
        if 2 * step - 1 <= all {
            let theirs = turns.receive(chan)?;
            turns.send(chan)?;
            turns.close(chan, theirs)?;
        }
        if last {
            turns.extend(chan)?;
        }
        if 2 * step <= all { turns.send(chan) } else { Ok(()) }
    }

    /// 1. Takes the client's corrections, answers with tables; then the turns.
    fn server(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        let (all, last) = (self.public.turns(), step + 1 == self.steps());
        if step == 0 {
            let compare = self.compare.take().expect("at the start");
            let mut corrections = std::mem::replace(&mut self.corrections, Corrections::Online);
            let running = compare.server_serve(&mut corrections, chan, &self.compared(&self.x))?;
            self.begin(running);
        }
        let turns = self.turns();
        if step > 0 {
            // The client's half of an odd turn, this party's having gone out with the step before.
            if 2 * step - 1 <= all {
                let theirs = turns.receive(chan)?;
                turns.close(chan, theirs)?;
            }
            if 2 * step <= all {
                let theirs = turns.receive(chan)?;
                turns.send(chan)?;
                turns.close(chan, theirs)?;
            }
        }
        if 2 * step < all {
            turns.send(chan)?;
        }
        if step == all.div_ceil(2) {
            turns.choose(chan)?;
        }
        if last {
            turns.extend(chan)?;
        }
        // It has nothing more to say by itself.
        Ok(chan.flush()?)
    }
}

impl Flights for Run {
    /// (Extensions begin when the server has closed the last turn.)
    fn steps(&self) -> usize {
        let turns = self.public.turns();
        2 + if self.public.extends() { turns.div_ceil(2) } else { turns / 2 }
    }

    fn start(&mut self, x: &[u64]) {
        let CurveParams { bits, pieces, .. } = &self.public.params;
        self.x = match pieces.beyond {
            Beyond::Repeated => ring_mask(x, pieces.domain_bits()),
            Beyond::Straight | Beyond::Level { .. } => {
                // From the lowest piece on. The server alone moves it, so the client's corrections know nothing of it.
                let mut x = ring_mask(x, *bits);
                if self.role == Role::Server {
                    let (begin, mask) = (pieces.begin() as u64, u64::MAX >> (64 - bits));
                    x.iter_mut().for_each(|x| *x = x.wrapping_sub(begin) & mask);
                }
                x
            }
        };
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.material.as_mut().expect("before the start").place.complete(chan)
    }

    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        match x {
            Some(x) => {
                let compare = self.compare.as_ref().expect("before the start");
                compare.client_correct(chan, &self.compared(x))?;
                self.corrected = true;
            }
            None => {
                let params = &self.public.params;
                let bytes = chan.recv(plane_bytes(self.count, params.formula().corrections()))?;
                self.corrections = Corrections::Early(bytes, 0);
            }
        }
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match self.role {
            Role::Client => self.client(chan, step),
            Role::Server => self.server(chan, step),
        }
    }

    fn reads(&self, _: usize) -> Option<usize> {
        None
    }

    fn finish(&mut self) -> Vec<u64> {
        self.turns.take().expect("all steps are taken").finish()
    }
}

/// The turns: of the comparison's gates, of κ, of δ and of the coefficients. Both parties send as many bytes in each. Behind them sums may have
/// to be extended.
struct Turns {
    role: Role,
    level: Level,
    count: usize,
    public: Arc<Public>,
    running: Running,
    state: State,
    x: Zeroizing<Vec<u64>>,
    /// Turns to be closed.
    left: usize,
}

/// Between a turn's half that is made and its end, what it needs.
enum State {
    /// The gates' turns: before κ.
    Comparing(Box<Material>),
    /// c = κ ⊕ β, this party's share; and of what else is opened with it.
    Carry(Box<Material>, Vec<Vec<Lanes>>),
    /// u in the ring of its products, and i + r.
    Placed(Box<Placed>),
    /// The coefficients' bits, looked up, and the slopes' products with u to choose from.
    LookedUp(Box<LookedUp>),
    /// The sums, of which one at least is to be extended.
    Added(Box<Added>),
    Done(Zeroizing<Vec<u64>>),
    /// While it changes.
    None,
}

struct Placed {
    place: OneHot,
    offsets: Vec<BitMaterial>,
    slopes: Vec<MuxMaterial>,
    extensions: [Option<ExtendMaterial>; 2],
    u: Zeroizing<Vec<u64>>,
    delta: Vec<u64>,
    /// What is added to the result where lines go on.
    tail: Option<Zeroizing<Vec<u64>>>,
}

struct LookedUp {
    offsets: Vec<BitMaterial>,
    slopes: Vec<[Zeroizing<Vec<u64>>; 2]>,
    extensions: [Option<ExtendMaterial>; 2],
    u: Zeroizing<Vec<u64>>,
    /// Shares of c by bit, the offsets' first.
    opened: Vec<Vec<Lanes>>,
    tail: Option<Zeroizing<Vec<u64>>>,
}

struct Added {
    extensions: [Option<ExtendMaterial>; 2],
    /// Shares of the offset, without its lowest bits, and of slope·u, lifted: in their rings.
    sums: [Zeroizing<Vec<u64>>; 2],
    tail: Option<Zeroizing<Vec<u64>>>,
}

impl Turns {
    /// Turns behind the gates'.
    const MORE: usize = 3;

    /// Sends this party's half of the next turn.
    fn send(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        if self.running.levels_left() > 0 {
            return Ok(chan.send(&self.running.opening())?);
        }
        self.state = match std::mem::replace(&mut self.state, State::None) {
            State::Comparing(material) => {
                let results = self.running.results();
                let mut opened = vec![material.carry.opening(&results[0])];
                opened.extend(material.outside.iter().flat_map(|outside| outside.opening(&results)));
                for c in &opened {
                    chan.send(&plane_to_bytes(c, self.count))?;
                }
                if let Some(outside) = &material.outside {
                    outside.send_corrections(chan, &self.x, self.role, &self.public.params.pieces)?;
                }
                State::Carry(material, opened)
            }
            State::Placed(placed) => {
                for delta in placed.delta.chunks(PACKED_AT_ONCE) {
                    chan.send_packed(delta, self.public.params.pieces.log2())?;
                }
                for slope in &placed.slopes {
                    slope.send_corrections(chan, 0, &placed.u)?;
                }
                State::Placed(placed)
            }
            State::LookedUp(looked_up) => {
                for c in &looked_up.opened {
                    chan.send(&plane_to_bytes(c, self.count))?;
                }
                State::LookedUp(looked_up)
            }
            State::Carry(..) | State::Added(_) | State::Done(_) | State::None => {
                unreachable!("a half is sent while turns are left, and after the one before was closed")
            }
        };
        Ok(())
    }

    /// The peer's half of the next turn, as it came.
    fn receive(&mut self, chan: &mut Channel) -> Result<Vec<u8>, MpcError> {
        let (count, public) = (self.count, &self.public);
        let bytes = match self.left {
            1 => plane_bytes(count, public.looked_up()),
            2 => {
                let widths = public.slopes.widths(public.sums[1]);
                let corrections = widths.map(|width| pack::packed_len(count, width));
                pack::packed_len(count, public.params.pieces.log2()) + corrections.sum::<usize>()
            }
            3 => {
                let widths = public.params.outside().map(|(within, above)| [Some(within), above]);
                let widths = widths.into_iter().flatten().flatten();
                let corrections: usize = widths.map(|width| pack::packed_len(count, width)).sum();
                plane_bytes(count, 1 + public.params.opened_outside()) + corrections
            }
            left => {
                let formula = public.params.formula();
                let level = formula.depth() + Self::MORE - left;
                let opened = formula.circuit.levels[level].iter().map(|and| and.opened());
                plane_bytes(count, opened.sum())
            }
        };
        Ok(chan.recv(bytes)?)
    }

    /// Finishes the turn with the peer's half.
    fn close(&mut self, chan: &mut Channel, theirs: Vec<u8>) -> Result<(), MpcError> {
        self.left -= 1;
        if self.left >= Self::MORE {
            self.running.close(&theirs);
            return Ok(());
        }
        self.state = match std::mem::replace(&mut self.state, State::None) {
            State::Carry(material, mut opened) => {
                let mut planes = &theirs[..];
                opened.iter_mut().for_each(|c| add_plane(c, self.count, &mut planes));
                let read = theirs.len() - planes.len();
                let mut corrections = Corrections::Early(theirs, read);
                State::Placed(Box::new(self.place(chan, *material, &opened, &mut corrections)?))
            }
            State::Placed(placed) => State::LookedUp(Box::new(self.look_up(chan, *placed, theirs)?)),
            State::LookedUp(looked_up) => self.lines(*looked_up, &theirs),
            State::Comparing(_) | State::Added(_) | State::Done(_) | State::None => {
                unreachable!("a turn is closed after its half was sent")
            }
        };
        Ok(())
    }

    /// 2. This party's shares of u and of i + r.
    fn place(
        &self,
        chan: &mut Channel,
        material: Material,
        opened: &[Vec<Lanes>],
        corrections: &mut Corrections,
    ) -> Result<Placed, MpcError> {
        let Material { carry, outside, place, offsets, slopes, extensions } = material;
        let Pieces { low, .. } = *self.public.params.pieces;
        let [ring, places] =
            [self.public.sums[1], self.public.params.pieces.log2()].map(|bits| u64::MAX >> (64 - bits));
        let carry = Zeroizing::new(carry.finish(&opened[0]));
        let lowest = u64::MAX >> (64 - low);
        let shares = self.x.iter().zip(carry.iter());
        let u = shares.map(|(x, carry)| (x & lowest).wrapping_sub(carry << low) & ring).collect();
        let at = At { role: self.role, level: self.level, public: &self.public, x: &self.x };
        let outer = match outside {
            Some(outside) => outside.close(chan, corrections, &opened[1..], &at)?,
            None => Outer { places: self.x.iter().map(|x| x >> low).collect::<Vec<_>>().into(), tail: None },
        };
        let delta = outer.places.iter().zip(carry.iter()).zip(place.masks());
        let delta = delta
            .map(|((place, carry), r)| place.wrapping_add(*carry).wrapping_add((*r).into()) & places)
            .collect();
        Ok(Placed { place, offsets, slopes, extensions, u: Zeroizing::new(u), delta, tail: outer.tail })
    }

    /// 3. The coefficients' bits, and what the slopes' bits choose from.
    fn look_up(&self, chan: &mut Channel, placed: Placed, theirs: Vec<u8>) -> Result<LookedUp, MpcError> {
        let Placed { place, offsets, slopes, extensions, u, mut delta, tail } = placed;
        let k = self.public.params.pieces.log2();
        let opened = pack::packed_len(self.count, k);
        let places = u64::MAX >> (64 - k);
        let theirs_delta = pack::unpack(&theirs[..opened], self.count, k);
        delta.iter_mut().zip(theirs_delta).for_each(|(own, theirs)| *own = own.wrapping_add(theirs) & places);
        // It was opened.
        declassify(&mut delta);
        let mut corrections = Corrections::Early(theirs, opened);
        let mut candidates = Vec::with_capacity(slopes.len());
        for slope in &slopes {
            let products = slope.products(&mut corrections, chan, 0, &u)?;
            candidates.push(slope.candidates(0, &u, products));
        }
        let bits = self.bits(&place, &delta);
        let opened = bits.iter().enumerate().map(|(j, bits)| match j.checked_sub(offsets.len()) {
            None => offsets[j].opening(bits),
            Some(j) => slopes[j].opening(bits),
        });
        let opened = opened.collect();
        Ok(LookedUp { offsets, slopes: candidates, extensions, u, opened, tail })
    }

    /// This party's shares of every bit of the coefficients.
    fn bits(&self, place: &OneHot, delta: &[u64]) -> Vec<Bits> {
        let Public { offsets, slopes, .. } = &*self.public;
        let planes = [offsets.planes(), slopes.planes()].concat();
        let mut lanes = vec![Zeroizing::new(vec![Lanes::ZERO; groups(self.count)]); planes.len()];
        let mut moved = Zeroizing::new(vec![0; one_hot::words(self.public.params.pieces.log2())]);
        for g in 0..groups(self.count) {
            for e in 0..group_len(self.count, g) {
                let element = g * GROUP + e;
                place.moved_into(element, delta[element], &mut moved);
                for (lanes, plane) in lanes.iter_mut().zip(&planes) {
                    let sum = moved.iter().zip(plane).fold(0, |sum, (moved, plane)| sum ^ (moved & plane));
                    lanes[g].0[e % 8] |= u64::from(sum.count_ones() & 1) << (e / 8);
                }
            }
        }
        lanes.into_iter().map(|mut lanes| Bits::from_lanes(self.count, std::mem::take(&mut lanes))).collect()
    }

    /// 4., and 6. unless there is an extension before it.
    fn lines(&self, looked_up: LookedUp, mut theirs: &[u8]) -> State {
        let LookedUp { offsets, slopes, extensions, u, mut opened, tail } = looked_up;
        let public = &*self.public;
        opened.iter_mut().for_each(|c| add_plane(c, self.count, &mut theirs));
        // (Constants are the server's to add.)
        let lift = if self.role == Role::Server { public.lift() } else { 0 };
        let slope = public.slopes.least as u64;
        let products = u.iter().map(|u| slope.wrapping_mul(*u).wrapping_add(lift)).collect();
        let mut sums = [vec![0; self.count], products].map(Zeroizing::new);
        let [offset, product] = &mut sums;
        let mut opened = opened.iter();
        for (j, (bit, c)) in offsets.into_iter().zip(opened.by_ref()).enumerate() {
            add_weighed(offset, &Zeroizing::new(bit.finish(c)), j as u32);
        }
        for (j, (candidates, c)) in slopes.into_iter().zip(opened).enumerate() {
            add_weighed(product, &Zeroizing::new(choose(self.level, candidates, c)), j as u32);
        }
        if !public.extends() {
            return State::Done(self.shifted(sums, tail));
        }
        for (sum, bits) in sums.iter_mut().zip(public.sums) {
            let mask = u64::MAX >> (64 - bits);
            sum.iter_mut().for_each(|sum| *sum &= mask);
        }
        State::Added(Box::new(Added { extensions, sums, tail }))
    }

    /// 5. The server's choices of the extensions, if there are any.
    fn choose(&self, chan: &mut Channel) -> Result<(), MpcError> {
        let added = match &self.state {
            State::Added(added) => added,
            State::Done(_) => return Ok(()),
            State::Comparing(_) | State::Carry(..) | State::Placed(_) | State::LookedUp(_) | State::None => {
                unreachable!("all turns are closed")
            }
        };
        let Added { extensions, sums, .. } = &**added;
        let each = extensions.iter().zip(sums);
        each.filter_map(|(extension, sum)| Some((extension.as_ref()?, sum)))
            .try_for_each(|(extension, sum)| extension.server_send(chan, &[&**sum]))
    }

    /// The client's answers to them, or the server's end; and 6.
    fn extend(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let added = match std::mem::replace(&mut self.state, State::None) {
            State::Added(added) => *added,
            done @ State::Done(_) => {
                self.state = done;
                return Ok(());
            }
            State::Comparing(_) | State::Carry(..) | State::Placed(_) | State::LookedUp(_) | State::None => {
                unreachable!("all turns are closed")
            }
        };
        let Added { mut extensions, mut sums, tail } = added;
        if self.role == Role::Client {
            extensions.iter_mut().flatten().try_for_each(|extension| extension.client_recv(chan))?;
        }
        for (extension, sum) in extensions.into_iter().zip(&mut sums) {
            let Some(extension) = extension else { continue };
            *sum = match self.role {
                Role::Client => extension.client_answer(chan, sum)?,
                Role::Server => extension.server_finish(chan, sum)?,
            };
        }
        self.state = State::Done(self.shifted(sums, tail));
        Ok(())
    }

    /// 6.
    fn shifted(
        &self,
        [offsets, mut sum]: [Zeroizing<Vec<u64>>; 2],
        tail: Option<Zeroizing<Vec<u64>>>,
    ) -> Zeroizing<Vec<u64>> {
        let Public { params, offsets: Table { least, weight, .. }, .. } = &*self.public;
        add_weighed(&mut sum, &offsets, *weight);
        let (shift, ring, out) = (params.pieces.shift, params.mask(), u64::MAX >> (64 - params.out_bits));
        // ⌈z / 2^s⌉ = ⌊(z + 2^s − 1) / 2^s⌋, and shares of at most 63 bits leave room for the sum. (Constants are the server's.)
        let (least, up) = match self.role {
            Role::Server => (((*least as u64) << weight).wrapping_sub(self.public.lift()), (1 << shift) - 1),
            Role::Client => (0, 0),
        };
        sum.iter_mut().for_each(|y| *y = ((y.wrapping_add(least) & ring) + up) >> shift & out);
        if let Some(tail) = tail {
            sum.iter_mut().zip(tail.iter()).for_each(|(y, tail)| *y = y.wrapping_add(*tail) & out);
        }
        sum
    }

    fn finish(self) -> Vec<u64> {
        let State::Done(mut results) = self.state else { unreachable!("all turns are closed") };
        std::mem::take(&mut results)
    }
}

/// Adds 2^`weight` times `values`.
fn add_weighed(sum: &mut [u64], values: &[u64], weight: u32) {
    sum.iter_mut().zip(values).for_each(|(y, v)| *y = y.wrapping_add(v << weight));
}
