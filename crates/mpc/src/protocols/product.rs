//! \[a·b / 2^s\] mod 2^out <- Product(\[a\], \[b\] mod 2^(out+s)), rounded up or down. Public
//! constants may be added to a and b first: the server adds them to its shares.
//!
//! Let L = out + s. A triple α, β, γ = α·β mod 2^L is prepared, all three shared (Beaver, CRYPTO 1991). Online both open
//! d = a − α and e = b − β. Then a·b = d·e + d·β + e·α + γ, where only the server adds d·e: **one turn**, 2L bits each way.
//! The shares of a·b are truncated as in `truncate.rs`: the ring has room for the shift, so nothing is sent for that.
//!
//! *The triple*, offline: α·β = α_c·β_c + α_s·β_s + α_c·β_s + α_s·β_c, and only the last
//! two need both parties ([`Cross`]). A product of a value with itself needs half of all that: `square.rs`.
//!
//! The client knows the part that it cuts off, and so the coin by which a value is rounded, as behind a linear layer:
//! `docs/attacks.md`, *Rounding coins*.
//!
//! **Error.** Less than one ulp and no bias, as of a truncation. Exact on multiples of 2^s. The
//! result is wrong by a multiple of 2^out where a·b / 2^s does not fit into out bits.
//!
//! **Who learns what.** *Functionality*: the client gets a uniform z_c mod 2^L, the server z_s = a·b − z_c; each cuts
//! off s bits of its own. d and e are masked by α and β of the other party, uniform mod 2^L;
//! what prepares them by pads that the client does not know. So neither learns a thing: `product/tiny.rs` counts all views of
//! small rings. Semi-honest.
//!
//! 2L COTs an element, from the server; L·(L+1) bits down offline, 2L bits each way online. For L = 40 that is 205 bytes
//! offline and 10 each way online. Exact figures: [`Nonlinear::cost`].

use std::ops::Range;

use jaguar_ot::{CotSource, Role};
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights, ranges};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_range};
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::cross::Cross;
use crate::protocols::opening::Opening;

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

    pub(crate) const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.ring_bits())
    }

    /// Of both terms of a triple.
    const fn cross(&self) -> Cross {
        Cross { ring: self.ring_bits(), doubled: 0 }
    }

    /// This party's share of a product, of that of 2^s times it: as in a truncation.
    pub(crate) fn shifted(&self, role: Role, share: u64) -> u64 {
        // The server rounds up, ⌈z / 2^s⌉ = ⌊(z + 2^s − 1) / 2^s⌋, and shares leave room for the sum.
        let up = if role == Role::Server { (1 << self.shift) - 1 } else { 0 };
        (((share & self.mask()) + up) >> self.shift) & (u64::MAX >> (64 - self.out_bits))
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
        let kept = count * 3 * size_of::<u64>();
        cost::in_one_round(
            count,
            Cost {
                bits_from_server: 2 * u64::from(bits) * count as u64,
                client_memory: kept as u64,
                server_memory: kept as u64,
                prepare_down: 2 * self.params.cross().sent(count) as u64,
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

impl Triples {
    fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ProductParams,
    ) -> Result<Self, MpcError> {
        let words = || Zeroizing::new(vec![0u64; count]);
        let mut this = Self { alpha: words(), beta: words(), gamma: words() };
        let Self { alpha, beta, gamma } = &mut this;
        let client = party.role() == Role::Client;
        for first in [true, false] {
            // First the client's α and the server's β are drawn.
            let own = if first == client { &mut *alpha } else { &mut *beta };
            params.cross().prepare(party, chan, own, gamma)?;
        }
        // The client waits for this.
        chan.flush()?;
        for (gamma, (alpha, beta)) in gamma.iter_mut().zip(alpha.iter().zip(beta.iter())) {
            *gamma = gamma.wrapping_add(alpha.wrapping_mul(*beta)) & params.mask();
        }
        Ok(this)
    }
}

/// The run of one block.
struct Run {
    params: ProductParams,
    triples: Triples,
    /// Of d and e, pair by pair.
    opening: Opening,
}

impl Run {
    fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: ProductParams,
    ) -> Result<Self, MpcError> {
        let triples = Triples::prepare(party, chan, count, params)?;
        let opening = Opening { role: party.role(), bits: params.ring_bits(), values: Vec::new() };
        Ok(Self { params, triples, opening })
    }
}

impl Flights for Run {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn start(&mut self, pairs: &[u64]) {
        let (mask, Triples { alpha, beta, .. }) = (self.params.mask(), &self.triples);
        let masks = alpha.iter().zip(beta.iter());
        // (Constants are the server's to add.)
        let [a, b] =
            if self.opening.role == Role::Server { self.params.offsets.map(|o| o as u64) } else { [0; 2] };
        let opened = |(pair, (alpha, beta)): (&[u64], (&u64, &u64))| {
            let d = pair[0].wrapping_add(a).wrapping_sub(*alpha);
            [d & mask, pair[1].wrapping_add(b).wrapping_sub(*beta) & mask]
        };
        self.opening.values = pairs.chunks_exact(2).zip(masks).flat_map(opened).collect();
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(2 * self.triples.alpha.len(), step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let Self { params, triples: Triples { alpha, beta, gamma }, opening } = self;
        let own = if opening.role == Role::Server { u64::MAX } else { 0 };
        let triples = alpha.iter().zip(beta.iter()).zip(gamma.iter());
        triples
            .zip(opening.values.chunks_exact(2))
            .map(|(((alpha, beta), gamma), opened)| {
                let (d, e) = (opened[0], opened[1]);
                let both = d.wrapping_mul(e) & own;
                let product = d.wrapping_mul(*beta).wrapping_add(e.wrapping_mul(*alpha));
                params.shifted(opening.role, product.wrapping_add(both).wrapping_add(*gamma))
            })
            .collect()
    }
}

#[cfg(test)]
mod tiny;
