//! \[a·b / 2^s\] mod 2^out <- Product(\[a\], \[b\] mod 2^(out+s)), rounded up or down. Public
//! constants may be added to a and b first: the server adds them to its shares.
//!
//! Let L = out + s. A triple α, β, γ = α·β mod 2^L is prepared, all three shared (Beaver, CRYPTO 1991). Online both open
//! d = a − α and e = b − β. Then a·b = d·e + d·β + e·α + γ, where only the server adds d·e: **one turn**, 2L bits each way.
//! The shares of a·b are truncated as in `truncate.rs`: the ring has room for the shift, so nothing is sent for that.
//!
//! *The triple*, by products of shares (Gilboa, CRYPTO 1999). α·β = α_c·β_c + α_s·β_s + α_c·β_s + α_s·β_c, and only the last
//! two need both parties. In both the server sends the OTs:
//!
//! 1. The client's choices r_i in L random OTs are the bits of α_c. The server takes β_s from its pads, see below.
//! 2. For bit i the server sends d_i = k0 − k1 + β_s mod 2^(L−i). The client has k0 + r_i·β_s; the server has −k0.
//! 3. Both add these up with the weights 2^i: shares of α_c·β_s. In the same way those of β_c·α_s, by L more OTs.
//!
//! All of that is offline and comes from the server, so there is nothing to complete.
//!
//! *What the server draws* it takes from the upper halves of pads, of which masks use the lower ones: k0 ⊕ k1 of the OT for
//! bit 0 gives β_s (and α_s). The client knows one pad of each OT, so they are uniform to it.
//!
//! The client knows the part that it cuts off, and so the coin by which a value is rounded, as behind a linear layer:
//! `docs/attacks.md`, *Rounding coins*.
//!
//! **Error.** Less than one ulp and no bias, as of a truncation. Exact on multiples of 2^s. The
//! result is wrong by a multiple of 2^out where a·b / 2^s does not fit into out bits.
//!
//! **Who learns what.** *Functionality*: the client gets a uniform z_c mod 2^L, the server z_s = a·b − z_c; each cuts
//! off s bits of its own. d and e are masked by α and β of the other party, uniform mod 2^L;
//! the d_i by a pad that the client does not know. So neither learns a thing: `product/tiny.rs` counts all views of
//! small rings. Semi-honest.
//!
//! 2L COTs an element, from the server; L·(L+1) bits down offline, 2L bits each way online. For L = 40 that is 205 bytes
//! offline and 10 each way online. Exact figures: [`Nonlinear::cost`].

use std::ops::Range;

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights, ranges};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_range};
use crate::kernels::lanes::{GROUP, group_len};
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// What a product does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProductParams {
    /// The results are shares mod 2^`out_bits`: 3 to 61.
    pub out_bits: u32,
    /// How many bits of the product are cut off: 1 or more, with `out_bits` at most 63. The operands are shares mod
    /// 2^(`out_bits` + `shift`).
    pub shift: u32,
    /// What the server adds to a and to b first.
    pub offsets: [i64; 2],
}

/// Pads of 128 bits lend the upper half to what the server draws.
const DRAWN: u32 = 64;

impl ProductParams {
    /// L: the operands' ring is mod 2^L.
    pub const fn ring_bits(&self) -> u32 {
        self.out_bits + self.shift
    }

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        check_range("width of a product", self.out_bits, 3..=61)?;
        check_range("number of bits cut off a product", self.shift, 1..=63 - self.out_bits)
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.ring_bits())
    }
}

impl Nonlinear for Elementwise<ProductParams> {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    /// Rounding.
    fn error(&self) -> f64 {
        1.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    fn cost(&self) -> Cost {
        let (count, bits) = (self.count, self.params.ring_bits());
        let opened = pack::packed_len(2 * count, bits) as u64;
        let corrections: usize = (1..=bits).map(|width| 2 * pack::packed_len(count, width)).sum();
        let kept = count * 3 * size_of::<u64>();
        cost::in_one_round(
            count,
            Cost {
                bits_from_server: 2 * u64::from(bits) * count as u64,
                client_memory: kept as u64,
                server_memory: kept as u64,
                prepare_down: corrections as u64,
                up: opened,
                down: opened,
                ..Cost::default()
            },
        )
    }

    /// Its blocks take pairs: a and b of the first element, then of the second, and so on.
    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(Product::prepare(party, chan, self.count, self.params)?.blocks)
    }
}

/// A prepared batch of products, for one run.
///
/// ```
/// use jaguar_mpc::{Party, Product, ProductParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let params = ProductParams { out_bits: 16, shift: 12, offsets: [0; 2] };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, a: u64, b: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let product = Product::prepare(&mut party, chan, 1, params).unwrap();
///     let y = product.run(chan, &[a, b]).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// // 300 · −3.5, where 4096 stands for one; the shares wrap mod 2^28.
/// let ring = 1 << 28;
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, 307, ring - 14336 - 9));
///     (one(Role::Client, &mut to_server, ring - 7, 9), server.join().unwrap())
/// });
/// assert_eq!(reference::open(client, server, 16), -1050);
/// ```
pub struct Product {
    blocks: Vec<Block>,
}

impl Product {
    /// Prepares `count` products.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ProductParams,
    ) -> Result<Self, MpcError> {
        params.check()?;
        let pairs = |range: &Range<usize>| 2 * range.start..2 * range.end;
        let blocks = ranges(count).map(|range| {
            let run = Run::new(party, chan, range.len(), params)?;
            Ok(Block::new(pairs(&range), range, run))
        });
        Ok(Self { blocks: blocks.collect::<Result<_, MpcError>>()? })
    }

    /// This party's shares mod 2^out of a·b / 2^s, rounded up or down; `pairs` are its shares of
    /// a and b mod 2^(out + s), element by element (higher bits are ignored). The server's last message may remain in the
    /// channel's buffer.
    ///
    /// 1. C: sends its shares of d = a − α and e = b − β.
    /// 2. S: sends its own.
    /// 3. Both: d·β + e·α + γ, and S adds d·e. Each party shifts by itself.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, pairs: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, pairs)
    }
}

/// This party's shares of the triples of a block.
struct Triples {
    alpha: Zeroizing<Vec<u64>>,
    beta: Zeroizing<Vec<u64>>,
    gamma: Zeroizing<Vec<u64>>,
}

/// One group of what is made in one direction: of the factor whose bits the client chooses, and of the other one.
struct Group<'a> {
    chosen: &'a mut [u64],
    other: &'a mut [u64],
    gamma: &'a mut [u64],
    corrections: &'a mut [u64],
}

impl Triples {
    fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ProductParams,
    ) -> Result<Self, MpcError> {
        let (bits, mask, sends) = (params.ring_bits(), params.mask(), party.role() == Role::Server);
        let words = || Zeroizing::new(vec![0u64; count]);
        let mut this = Self { alpha: words(), beta: words(), gamma: words() };
        let mut corrections = words();
        for first in [true, false] {
            party.stock(chan, Role::Server, Width::Bit, bits as usize * count)?;
            for bit in 0..bits {
                let width = bits - bit;
                let drawn = party.draw(chan, Role::Server, Width::Bit, count)?;
                if !sends {
                    for d in corrections.chunks_mut(PACKED_AT_ONCE) {
                        d.copy_from_slice(&chan.recv_packed(d.len(), width)?);
                    }
                }
                let groups = this.groups(first, &mut corrections).into_iter().enumerate();
                each_with(groups.collect(), Room::default, |room, (g, group)| {
                    let pads = drawn.pads(g * GROUP, group_len(count, g), room);
                    group.absorb(&pads, bit, (width, mask));
                });
                party.done_with(drawn);
                if sends {
                    for d in corrections.chunks(PACKED_AT_ONCE) {
                        chan.send_packed(d, width)?;
                    }
                }
            }
        }
        // The client waits for this.
        chan.flush()?;
        let Self { alpha, beta, gamma } = &mut this;
        for (gamma, (alpha, beta)) in gamma.iter_mut().zip(alpha.iter().zip(beta.iter())) {
            *gamma = gamma.wrapping_add(alpha.wrapping_mul(*beta)) & mask;
        }
        Ok(this)
    }

    /// In the first half of the OTs the client's choices make α, in the second β.
    fn groups<'a>(&'a mut self, first: bool, corrections: &'a mut [u64]) -> Vec<Group<'a>> {
        let Self { alpha, beta, gamma } = self;
        let (chosen, other) = if first { (alpha, beta) } else { (beta, alpha) };
        let words = chosen.chunks_mut(GROUP).zip(other.chunks_mut(GROUP));
        let results = gamma.chunks_mut(GROUP).zip(corrections.chunks_mut(GROUP));
        words
            .zip(results)
            .map(|((chosen, other), (gamma, corrections))| Group { chosen, other, gamma, corrections })
            .collect()
    }
}

impl Group<'_> {
    /// Takes in the pads of the OTs for one bit, of weight 2^`bit`: makes the corrections, or takes them.
    fn absorb(self, pads: &Pads, bit: u32, (width, mask): (u32, u64)) {
        let Self { chosen, other, gamma, corrections } = self;
        let (narrow, masks) = (u64::MAX >> (64 - width), BitMasks::new());
        match *pads {
            Pads::Sender(zero, one) => {
                let upper = |e: usize| ((zero[e].0 ^ one[e].0) >> DRAWN) as u64;
                if bit == 0 {
                    other.iter_mut().enumerate().for_each(|(e, other)| *other = upper(e) & mask);
                }
                let pads = zero.iter().zip(one);
                for (((d, gamma), other), (zero, one)) in
                    corrections.iter_mut().zip(gamma).zip(other).zip(pads)
                {
                    let (zero, one) = (zero.0 as u64, one.0 as u64);
                    *d = zero.wrapping_sub(one).wrapping_add(*other) & narrow;
                    *gamma = gamma.wrapping_sub(zero << bit);
                }
            }
            Pads::Receiver(pads, choices) => {
                let received = corrections.iter().zip(pads.iter().zip(choices));
                for ((chosen, gamma), (&d, (pad, &choice))) in chosen.iter_mut().zip(gamma).zip(received) {
                    let choice = u64::from(choice);
                    *chosen |= choice << bit;
                    let product = (pad.0 as u64).wrapping_add(d & masks.of(choice));
                    *gamma = gamma.wrapping_add(product << bit);
                }
            }
        }
    }
}

/// The run of one block.
struct Run {
    role: Role,
    params: ProductParams,
    triples: Triples,
    /// This party's shares of d and e, pair by pair; then the opened values.
    opened: Vec<u64>,
}

impl Run {
    fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ProductParams,
    ) -> Result<Self, MpcError> {
        let triples = Triples::prepare(party, chan, count, params)?;
        Ok(Self { role: party.role(), params, triples, opened: Vec::new() })
    }

    fn send(&self, chan: &mut Channel) -> Result<(), MpcError> {
        for values in self.opened.chunks(PACKED_AT_ONCE) {
            chan.send_packed(values, self.params.ring_bits())?;
        }
        Ok(())
    }

    /// The peer's shares of d and e; not yet added, for this party's may still have to be sent.
    fn receive(&self, chan: &mut Channel) -> Result<Vec<u64>, MpcError> {
        let mut theirs = Vec::with_capacity(self.opened.len());
        for own in self.opened.chunks(PACKED_AT_ONCE) {
            theirs.extend(chan.recv_packed(own.len(), self.params.ring_bits())?);
        }
        Ok(theirs)
    }

    fn open(&mut self, theirs: &[u64]) {
        self.opened.iter_mut().zip(theirs).for_each(|(own, theirs)| *own = own.wrapping_add(*theirs));
    }
}

impl Flights for Run {
    fn steps(&self) -> usize {
        2
    }

    fn start(&mut self, pairs: &[u64]) {
        let (mask, Triples { alpha, beta, .. }) = (self.params.mask(), &self.triples);
        let masks = alpha.iter().zip(beta.iter());
        // (Constants are the server's to add.)
        let [a, b] = if self.role == Role::Server { self.params.offsets.map(|o| o as u64) } else { [0; 2] };
        let opened = |(pair, (alpha, beta)): (&[u64], (&u64, &u64))| {
            let d = pair[0].wrapping_add(a).wrapping_sub(*alpha);
            [d & mask, pair[1].wrapping_add(b).wrapping_sub(*beta) & mask]
        };
        self.opened = pairs.chunks_exact(2).zip(masks).flat_map(opened).collect();
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match (self.role, step) {
            (Role::Client, 0) => self.send(chan),
            (Role::Server, 0) => {
                let theirs = self.receive(chan)?;
                self.send(chan)?;
                self.open(&theirs);
                Ok(())
            }
            (Role::Client, _) => {
                let theirs = self.receive(chan)?;
                self.open(&theirs);
                Ok(())
            }
            (Role::Server, _) => Ok(()),
        }
    }

    fn reads(&self, step: usize) -> Option<usize> {
        let reads = (self.role == Role::Server) == (step == 0);
        let values = self.triples.alpha.len() * 2;
        Some(if reads { jaguar_wire::pack::packed_len(values, self.params.ring_bits()) } else { 0 })
    }

    fn finish(&mut self) -> Vec<u64> {
        let (server, shift) = (self.role == Role::Server, self.params.shift);
        let (ring, out) = (self.params.mask(), u64::MAX >> (64 - self.params.out_bits));
        // As in a truncation: the server rounds up, ⌈z / 2^s⌉ = ⌊(z + 2^s − 1) / 2^s⌋, and shares leave room for the sum.
        let (own, up) = if server { (u64::MAX, (1 << shift) - 1) } else { (0, 0) };
        let Triples { alpha, beta, gamma } = &self.triples;
        let triples = alpha.iter().zip(beta.iter()).zip(gamma.iter());
        triples
            .zip(self.opened.chunks_exact(2))
            .map(|(((alpha, beta), gamma), opened)| {
                let (d, e) = (opened[0], opened[1]);
                let both = d.wrapping_mul(e) & own;
                let product = d.wrapping_mul(*beta).wrapping_add(e.wrapping_mul(*alpha));
                let share = product.wrapping_add(both).wrapping_add(*gamma) & ring;
                ((share + up) >> shift) & out
            })
            .collect()
    }
}

#[cfg(test)]
mod tiny;
