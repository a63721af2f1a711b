//! \[(x + a)·(x + b) / 2^s\] mod 2^out <- Square(\[x\] mod 2^(out+s)), rounded up or down: a product whose factors are one value, but for public constants.
//!
//! As a product (`product.rs`), with one mask instead of two and one cross term instead of two. Let L = out + s and t = x + a (the server adds a to its
//! share). A random α and γ = α² mod 2^L are prepared, both shared. Online both open d = t − α: **one turn**, L bits each way. Then
//! t² = d² + 2·d·α + γ, where only the server adds d², and each party adds (b − a)·t of its share of t.
//!
//! *The pair*, offline: α² = α_c² + α_s² + 2·α_c·α_s, and only the last needs both parties ([`Cross`]).
//!
//! **Error** as of a product.
//!
//! **Who learns what**, too. d is masked by the other party's half of α, uniform mod 2^L. The lowest bit of γ's share is that of α's (a square is odd where its
//! root is), and so that of z_c is the lowest bit of α_c: uniform, and hidden from the server as α_c is. (Or zero, where b − a is odd: the product is even then.)
//! `square/tiny.rs` counts all views of small rings.
//!
//! L COTs an element, from the server; L·(L − 1)/2 bits down offline, L bits each way online. For L = 40 that is 97.5 bytes
//! offline and 5 each way online. Exact figures: [`Nonlinear::cost`].

use jaguar_ot::{CotSource, Role};
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::block::{self, Block, Flights};
use crate::cost::{self, Cost};
use crate::error::MpcError;
use crate::nonlinear::{Elementwise, Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::cross::Cross;
use crate::protocols::opening::Opening;
use crate::protocols::product::ProductParams;

/// What a square does: what a product does whose factors are one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SquareParams(pub ProductParams);

impl SquareParams {
    /// Of the only term that takes both parties.
    const fn cross(&self) -> Cross {
        Cross { ring: self.0.ring_bits(), doubled: 1 }
    }
}

impl Nonlinear for Elementwise<SquareParams> {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    /// Rounding.
    fn error(&self) -> f64 {
        1.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.0.check()
    }

    fn cost(&self) -> Cost {
        let (count, bits) = (self.count, self.params.0.ring_bits());
        let opened = pack::packed_len(count, bits) as u64;
        let kept = (count * 2 * size_of::<u64>()) as u64;
        cost::in_one_round(
            count,
            Cost {
                bits_from_server: u64::from(bits) * count as u64,
                client_memory: kept,
                server_memory: kept,
                prepare_down: self.params.cross().sent(count) as u64,
                up: opened,
                down: opened,
                ..Cost::default()
            },
        )
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        Ok(Square::prepare(party, chan, self.count, self.params)?.blocks)
    }
}

/// A prepared batch of squares, for one run.
///
/// ```
/// use jaguar_mpc::{Party, ProductParams, Square, SquareParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let params = SquareParams(ProductParams { out_bits: 16, shift: 12, offsets: [0; 2] });
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, x: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let square = Square::prepare(&mut party, chan, 1, params).unwrap();
///     let y = square.run(chan, &[x]).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// // −3.5 · −3.5, where 4096 stands for one; the shares wrap mod 2^28.
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, (1 << 28) - 14336 - 9));
///     (one(Role::Client, &mut to_server, 9), server.join().unwrap())
/// });
/// assert_eq!(reference::open(client, server, 16), -15360, "12.25 is beyond sixteen bits: 50176 − 2^16");
/// ```
pub struct Square {
    blocks: Vec<Block>,
}

impl Square {
    /// Prepares `count` squares.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: SquareParams,
    ) -> Result<Self, MpcError> {
        params.0.check()?;
        let blocks = Block::each(count, |count| Run::new(party, chan, count, params))?;
        Ok(Self { blocks })
    }

    /// This party's shares mod 2^out of (x + a)·(x + b) / 2^s, rounded up or down; `x` are its shares of x mod 2^(out + s) (higher bits are
    /// ignored). The server's last message may remain in the channel's buffer.
    ///
    /// 1. C: sends its share of d = t − α.
    /// 2. S: sends its own.
    /// 3. Both: 2·d·α + γ + (b − a)·t, and S adds d². Each party shifts by itself.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, x)
    }
}

/// This party's shares of α and of its square.
struct Pairs {
    alpha: Zeroizing<Vec<u64>>,
    gamma: Zeroizing<Vec<u64>>,
}

impl Pairs {
    fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: SquareParams,
    ) -> Result<Self, MpcError> {
        let words = || Zeroizing::new(vec![0u64; count]);
        let Self { mut alpha, mut gamma } = Self { alpha: words(), gamma: words() };
        params.cross().prepare(party, chan, &mut alpha, &mut gamma)?;
        // The client waits for this.
        chan.flush()?;
        for (gamma, alpha) in gamma.iter_mut().zip(alpha.iter()) {
            *gamma = gamma.wrapping_add(alpha.wrapping_mul(*alpha)) & params.0.mask();
        }
        Ok(Self { alpha, gamma })
    }
}

/// The run of one block.
struct Run {
    params: SquareParams,
    pairs: Pairs,
    /// Of d.
    opening: Opening,
}

impl Run {
    fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: SquareParams,
    ) -> Result<Self, MpcError> {
        let pairs = Pairs::prepare(party, chan, count, params)?;
        let opening = Opening { role: party.role(), bits: params.0.ring_bits(), values: Vec::new() };
        Ok(Self { params, pairs, opening })
    }
}

impl Flights for Run {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn start(&mut self, x: &[u64]) {
        let Self { params: SquareParams(params), pairs, opening } = self;
        // (Constants are the server's to add.)
        let a = if opening.role == Role::Server { params.offsets[0] as u64 } else { 0 };
        let masked = |(x, alpha): (&u64, &u64)| x.wrapping_add(a).wrapping_sub(*alpha) & params.mask();
        opening.values = x.iter().zip(pairs.alpha.iter()).map(masked).collect();
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(self.pairs.alpha.len(), step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let Self { params: SquareParams(params), pairs: Pairs { alpha, gamma }, opening } = self;
        let own = if opening.role == Role::Server { u64::MAX } else { 0 };
        let apart = params.offsets[1].wrapping_sub(params.offsets[0]) as u64;
        alpha
            .iter()
            .zip(gamma.iter())
            .zip(&opening.values)
            .map(|((alpha, gamma), &d)| {
                // t = d + α, and d is the server's to add.
                let t = alpha.wrapping_add(d & own);
                let square = d.wrapping_mul(d & own).wrapping_add((d << 1).wrapping_mul(*alpha));
                let share = square.wrapping_add(*gamma).wrapping_add(apart.wrapping_mul(t));
                params.shifted(opening.role, share)
            })
            .collect()
    }
}

#[cfg(test)]
mod tiny;
