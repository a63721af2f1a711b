//! \[b·x\] <- Mux(\[b\], \[x\]): an arithmetic share times a bit, b shared by exclusive or, x mod 2^bits.
//!
//! A random bit β = β_c ⊕ β_s is prepared, with β_c and β_s the parties' choices in two random OTs. Each
//! party is the sender of one of them: its pads k0, k1 give δ = k1 − k0, and the receiver has k0 + β'·δ,
//! where β' is its choice. With (β_c ⊕ β_s)·x_s = β_s·x_s + β_c·(1 − 2β_s)·x_s, the server sends ε = (1 −
//! 2β_s)·x_s − δ and the client adds β_c·ε; the same the other way round. That gives shares of β·x **before b
//! is known**. Once it is, both open c = b ⊕ β, and b·x = c·x + (1 − 2c)·β·x is local. So a multiplication by
//! the result of a comparison costs one turn after it, of one bit each way.
//!
//! Exact. bits + 1 bits each way and two COTs an element, one in each direction. δ is unknown to the receiver
//! of ε, one of β's halves to the receiver of the opening: both see uniform values. Several values (at most
//! two parts) can be multiplied by the same bit for the same COTs.

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_wire::{Channel, pack};
use zeroize::{Zeroize, Zeroizing};

use crate::cost::{self, Cost};
use crate::error::{MpcError, check_count, check_range};
use crate::gates::bits::Bits;
use crate::gates::evaluate::{Corrections, exchange};
use crate::kernels::lanes::{GROUP, Lanes, add_plane, group_len, groups, plane_bytes, plane_to_bytes};
use crate::kernels::loops::{self, Level};
use crate::party::{Correlations, Make, Pads, Party, Room};
use crate::shares::WIDEST;

/// Packed values are sent and read so many at a time (a multiple of 8, so that no block ends inside a byte).
pub(crate) const PACKED_AT_ONCE: usize = 8192;

/// One value per element that is multiplied.
struct Part {
    bits: u32,
    words: Words,
}

/// Material of a part, in words as wide as the ring asks for: most rings are narrow, and this is much of what is
/// kept.
enum Words {
    /// Words of up to 32 bits.
    Narrow(Pair<u32>),
    /// Words of 33 to 64 bits.
    Wide(Pair<u64>),
}

/// What an element's two OTs leave to this party.
struct Pair<W: Zeroize> {
    /// The share that falls to it: its pad as a receiver − pad 0 as a sender.
    pad: Zeroizing<Vec<W>>,
    /// Pad 1 − pad 0 as a sender.
    delta: Zeroizing<Vec<W>>,
}

/// A stored word.
trait Word: Copy + Default + Zeroize + Into<u64> {
    /// The low bits of `x`.
    fn low(x: u64) -> Self;
}

impl Word for u32 {
    fn low(x: u64) -> Self {
        x as Self
    }
}

impl Word for u64 {
    fn low(x: u64) -> Self {
        x
    }
}

impl<W: Word> Pair<W> {
    fn new(count: usize) -> Self {
        Self {
            pad: Zeroizing::new(vec![W::default(); count]),
            delta: Zeroizing::new(vec![W::default(); count]),
        }
    }
}

/// Takes in the pads of a group, of which a part uses the bits from `shift` up.
fn absorb<W: Word>(pad: &mut [W], delta: &mut [W], pads: &Pads, shift: usize, mask: u64) {
    match *pads {
        Pads::Sender(zero, one) => {
            for ((pad, delta), (zero, one)) in pad.iter_mut().zip(delta).zip(zero.iter().zip(one)) {
                let (zero, one) = ((zero.0 >> shift) as u64, (one.0 >> shift) as u64);
                *delta = W::low(one.wrapping_sub(zero) & mask);
                *pad = W::low((*pad).into().wrapping_sub(zero) & mask);
            }
        }
        Pads::Receiver(pads, _) => {
            for (pad, received) in pad.iter_mut().zip(pads) {
                *pad = W::low((*pad).into().wrapping_add((received.0 >> shift) as u64) & mask);
            }
        }
    }
}

/// A group of a part, to be made.
struct Group<'a> {
    mask: u64,
    words: GroupWords<'a>,
}

/// Pads and differences.
enum GroupWords<'a> {
    Narrow(&'a mut [u32], &'a mut [u32]),
    Wide(&'a mut [u64], &'a mut [u64]),
}

impl Group<'_> {
    fn absorb(&mut self, pads: &Pads, shift: usize) {
        match &mut self.words {
            GroupWords::Narrow(pad, delta) => absorb(pad, delta, pads, shift, self.mask),
            GroupWords::Wide(pad, delta) => absorb(pad, delta, pads, shift, self.mask),
        }
    }
}

impl Part {
    fn new(bits: u32, count: usize) -> Self {
        let words = if bits <= 32 { Words::Narrow(Pair::new(count)) } else { Words::Wide(Pair::new(count)) };
        Self { bits, words }
    }

    /// Bytes kept per element.
    const fn kept(bits: u32) -> usize {
        2 * if bits <= 32 { size_of::<u32>() } else { size_of::<u64>() }
    }

    fn groups(&mut self) -> Vec<Group<'_>> {
        let mask = u64::MAX >> (64 - self.bits);
        let words: Vec<GroupWords<'_>> = match &mut self.words {
            Words::Narrow(Pair { pad, delta }) => {
                let pairs = pad.chunks_mut(GROUP).zip(delta.chunks_mut(GROUP));
                pairs.map(|(pad, delta)| GroupWords::Narrow(pad, delta)).collect()
            }
            Words::Wide(Pair { pad, delta }) => {
                let pairs = pad.chunks_mut(GROUP).zip(delta.chunks_mut(GROUP));
                pairs.map(|(pad, delta)| GroupWords::Wide(pad, delta)).collect()
            }
        };
        words.into_iter().map(|words| Group { mask, words }).collect()
    }

    /// The corrections of the elements from `at` on, at most one group.
    fn correct(&self, level: Level, masked: &mut [u64], x: &[u64], at: usize, beta: &Lanes) {
        match &self.words {
            Words::Narrow(pair) => loops::correct(level, masked, x, &pair.delta[at..], beta, self.bits),
            Words::Wide(pair) => loops::correct_wide(level, masked, x, &pair.delta[at..], beta, self.bits),
        }
    }

    /// Turns the peer's corrections in `w` into this party's shares of the products.
    fn product(&self, level: Level, w: &mut [u64], x: &[u64], at: usize, beta: &Lanes) {
        match &self.words {
            Words::Narrow(pair) => loops::product(level, w, x, &pair.pad[at..], beta, self.bits),
            Words::Wide(pair) => loops::product_wide(level, w, x, &pair.pad[at..], beta, self.bits),
        }
    }
}

/// Prepared material.
pub(crate) struct MuxMaterial {
    level: Level,
    count: usize,
    parts: Vec<Part>,
    beta: Zeroizing<Vec<Lanes>>,
}

/// What a preparation costs in COTs and memory, and a run in corrections.
pub(crate) fn cost(count: usize, parts: &[u32]) -> Cost {
    let values: usize = parts.iter().map(|&bits| pack::packed_len(count, bits)).sum();
    let words: usize = parts.iter().map(|&bits| Part::kept(bits) * count).sum();
    let kept = (groups(count) * size_of::<Lanes>() + words) as u64;
    Cost {
        bits_from_server: count as u64,
        bits_from_client: count as u64,
        client_memory: kept,
        server_memory: kept,
        up: values as u64,
        down: values as u64,
        ..Cost::default()
    }
}

impl MuxMaterial {
    /// `parts` are the widths, at most two, each at most 64 bits.
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        parts: &[u32],
    ) -> Result<Self, MpcError> {
        Ok(Self::draw(party, chan, count, parts)?())
    }

    /// Draws all that [`new`](Self::new) takes; makes it when it is asked for.
    pub(crate) fn draw<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        parts: &[u32],
    ) -> Result<Make<Self>, MpcError> {
        assert!(parts.len() <= 2, "a pad has room for two parts");
        let (level, parts) = (party.level, parts.to_vec());
        let from_server = party.draw(chan, Role::Server, Width::Bit, count)?;
        let from_client = party.draw(chan, Role::Client, Width::Bit, count)?;
        Ok(Box::new(move || {
            let parts = parts.iter().map(|&bits| Part::new(bits, count)).collect();
            let beta = Zeroizing::new(vec![Lanes::ZERO; groups(count)]);
            let mut this = Self { level, count, parts, beta };
            [&from_server, &from_client].into_iter().for_each(|drawn| this.absorb(drawn));
            this
        }))
    }

    fn absorb(&mut self, drawn: &Correlations) {
        let Self { count, parts, beta, .. } = self;
        let count = *count;
        let mut parts: Vec<_> = parts.iter_mut().map(|part| part.groups().into_iter()).collect();
        let groups = beta.iter_mut().enumerate().map(|(g, beta)| {
            let own: Vec<Group<'_>> = parts.iter_mut().filter_map(Iterator::next).collect();
            (g, beta, own)
        });
        each_with(groups.collect(), Room::default, |room, (g, beta, mut own)| {
            let pads = drawn.pads(g * GROUP, group_len(count, g), room);
            if let Pads::Receiver(_, choices) = pads {
                *beta = Lanes::from_bools(choices);
            }
            own.iter_mut().enumerate().for_each(|(p, part)| part.absorb(&pads, 64 * p));
        });
    }

    /// Bytes of the corrections of all parts.
    pub(crate) fn correction_bytes(&self) -> usize {
        self.parts.iter().map(|part| pack::packed_len(self.count, part.bits)).sum()
    }

    /// Sends the correction ε of every value of part `p`.
    pub(crate) fn send_corrections(&self, chan: &mut Channel, p: usize, x: &[u64]) -> Result<(), MpcError> {
        let part = &self.parts[p];
        let mut masked = [0; PACKED_AT_ONCE];
        for (block, x) in x.chunks(PACKED_AT_ONCE).enumerate() {
            let masked = &mut masked[..x.len()];
            for (g, (masked, x)) in masked.chunks_mut(GROUP).zip(x.chunks(GROUP)).enumerate() {
                let g = block * (PACKED_AT_ONCE / GROUP) + g;
                part.correct(self.level, masked, x, g * GROUP, &self.beta[g]);
            }
            chan.send_packed(masked, part.bits)?;
        }
        Ok(())
    }

    /// Takes the peer's corrections, as they come from `corrected`; this party's share of β·x.
    pub(crate) fn products(
        &self,
        corrected: &mut Corrections,
        chan: &mut Channel,
        p: usize,
        x: &[u64],
    ) -> Result<Zeroizing<Vec<u64>>, MpcError> {
        let part = &self.parts[p];
        let mut products = Zeroizing::new(Vec::with_capacity(self.count));
        for (block, x) in x.chunks(PACKED_AT_ONCE).enumerate() {
            let bytes = corrected.take(chan, pack::packed_len(x.len(), part.bits))?;
            let mut w = Zeroizing::new(pack::unpack(&bytes, x.len(), part.bits));
            for (g, (w, x)) in w.chunks_mut(GROUP).zip(x.chunks(GROUP)).enumerate() {
                let g = block * (PACKED_AT_ONCE / GROUP) + g;
                part.product(self.level, w, x, g * GROUP, &self.beta[g]);
            }
            products.extend_from_slice(&w);
        }
        Ok(products)
    }

    /// This party's share of c = b ⊕ β.
    pub(crate) fn opening(&self, b: &Bits) -> Vec<Lanes> {
        b.lanes.iter().zip(self.beta.iter()).map(|(&b, &beta)| b ^ beta).collect()
    }

    /// For c = 0 and for c = 1, this party's share of b·x, where `products` are its shares of β·x.
    pub(crate) fn candidates(
        &self,
        p: usize,
        x: &[u64],
        products: Zeroizing<Vec<u64>>,
    ) -> [Zeroizing<Vec<u64>>; 2] {
        let mask = u64::MAX >> (64 - self.parts[p].bits);
        let other = x.iter().zip(products.iter()).map(|(x, w)| x.wrapping_sub(*w) & mask).collect();
        [products, Zeroizing::new(other)]
    }
}

/// Picks the candidate that the opened c names.
pub(crate) fn choose(level: Level, candidates: [Zeroizing<Vec<u64>>; 2], c: &[Lanes]) -> Vec<u64> {
    let [mut zero, one] = candidates;
    for ((zero, one), c) in zero.chunks_mut(GROUP).zip(one.chunks(GROUP)).zip(c) {
        loops::choose(level, zero, one, c);
    }
    std::mem::take(&mut zero)
}

/// A prepared multiplication of shared values by shared bits, for one run.
pub struct Mux {
    role: Role,
    prepared: MuxMaterial,
}

impl Mux {
    /// What `count` multiplications mod 2^`bits` cost.
    pub fn cost(count: usize, bits: u32) -> Cost {
        let opened = plane_bytes(count, 1) as u64;
        let cost = cost(count, &[bits]);
        cost::in_one_round(count, Cost { up: cost.up + opened, down: cost.down + opened, ..cost })
    }

    /// Prepares `count` multiplications mod 2^`bits`, `bits` from 1 to [`WIDEST`].
    ///
    /// # Errors
    /// When `bits` is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
    ) -> Result<Self, MpcError> {
        check_range("width of a multiplication", bits, 1..=WIDEST)?;
        Ok(Self { role: party.role(), prepared: MuxMaterial::new(party, chan, count, &[bits])? })
    }

    /// This party's shares of `b·x` mod 2^bits.
    ///
    /// 1. Both send the corrections ε and their shares of c = b ⊕ β, the client first.
    /// 2. Both compute c·x + (1 − 2c)·β·x.
    ///
    /// # Errors
    /// When the counts differ from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, b: &Bits, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        let prepared = self.prepared;
        check_count("bits", b.len(), prepared.count)?;
        check_count("shares", x.len(), prepared.count)?;
        // 1. Both are known at the start, so both travel in the same flight.
        let mut c = prepared.opening(b);
        let mine = plane_to_bytes(&c, prepared.count);
        let (products, theirs);
        if self.role == Role::Client {
            prepared.send_corrections(chan, 0, x)?;
            chan.send(&mine)?;
            products = prepared.products(&mut Corrections::Online, chan, 0, x)?;
            theirs = chan.recv(mine.len())?;
        } else {
            products = prepared.products(&mut Corrections::Online, chan, 0, x)?;
            prepared.send_corrections(chan, 0, x)?;
            theirs = exchange(chan, self.role, 2, &mine, |_| Ok(()))?;
            chan.flush()?;
        }
        // 2.
        add_plane(&mut c, prepared.count, &mut &theirs[..]);
        let candidates = prepared.candidates(0, x, products);
        Ok(choose(prepared.level, candidates, &c))
    }
}
