//! Silent extension of correlated OTs: a few hundred thousand turn into four million for 0.05 bytes each.
//!
//! `q ; (t, r) <- Extend(Δ ; )` with t_i = q_i ⊕ r_i·Δ, r random; bit 0 of Δ is set, bit 0 of q_i zero, bit 0 of t_i
//! = r_i. Ferret (Yang, Weng, Lan, Zhang and Wang, CCS 2020, ePrint 2020/924), semi-honest, with regular noise:
//!
//! > q = A·p ⊕ v,  t = A·s ⊕ w
//!
//! where (p, s) are k COTs made before, A is a public sparse matrix ([`crate::lpn`]), and (v, w) are one
//! single-point COT per bin ([`crate::ggm`]). The choice bits r = A·(bit 0 of s) ⊕ e, with one error in every bin,
//! look random by the LPN assumption; the algebra on whole blocks carries bit 0 along. Each iteration puts
//! aside what the next one needs (k COTs, and h for every tree), then gives out the rest bin by bin: memory does not
//! grow with the number of COTs.
//!
//! Messages go from sender to receiver only, 16·h bytes a bin: the sender may run ahead by as much as the
//! connection buffers. Who learns what: the receiver sees messages that are masked by fresh COTs, the sender
//! nothing at all.

use jaguar_ring::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::aes::Key;
use crate::lpn::Matrix;
use crate::{Block, OtError, ggm};

/// An LPN instance with regular noise: n = `bins`·2^`log_bin` samples with one error in each bin, a secret of k =
/// `secret` bits, rows of weight [`crate::gather::WEIGHT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lpn {
    /// k, the length of the secret.
    pub secret: usize,
    /// t, the number of bins and of errors.
    pub bins: usize,
    /// h: a bin has 2^h samples.
    pub log_bin: usize,
}

impl Lpn {
    /// The main instance. Security: 135 bits by the cheapest of all attacks in `params/lpn.py`, at the most
    /// favourable terms for the attacker; 163 bits by those that are usually counted. Both sides must agree on it.
    ///
    /// The instance of other implementations with as few unknowns as fit into the cache (n = 10,180,608,
    /// k = 124,000, t = 4971) is not for us: k < 2^11·√t, so the quadratic equations of regular noise determine
    /// the secret by linear algebra alone, at 2^92 operations or fewer.
    pub(crate) const MAIN: Self = Self { secret: 323_584, bins: 1024, log_bin: 12 };

    /// The instance that makes the first base of the main one. Security: 134 bits and 159 bits, as above.
    pub(crate) const SETUP: Self = Self { secret: 41_968, bins: 656, log_bin: 9 };

    /// Samples in a bin.
    pub(crate) const fn bin(self) -> usize {
        1 << self.log_bin
    }

    /// COTs that one iteration uses up: the secret, and h for every tree.
    pub(crate) const fn cost(self) -> usize {
        self.secret + self.bins * self.log_bin
    }

    /// COTs that one iteration makes, those for the next one included.
    pub(crate) const fn samples(self) -> usize {
        self.bins << self.log_bin
    }
}

// The setup instance makes exactly what the main one needs, and the main one's own needs are whole bins.
const _: () = assert!(Lpn::SETUP.samples() == Lpn::MAIN.cost());
const _: () = assert!(Lpn::MAIN.cost().is_multiple_of(Lpn::MAIN.bin()));

/// How many bins are made between two flushes: the receiver starts on the first while the sender makes the next. The
/// fewer, the better for requests that alternate in direction (16 bins each: 4 was twice as fast as 16, and 1 a third
/// faster than 4), but every flush is a frame of its own.
const FLUSH_BINS: u64 = 2;

/// What sender and receiver do differently: one bin of single-point COT.
pub(crate) trait Side {
    /// Fills `leaves`, using up the halves `base`, and flushes now and then. `key` is the tree's.
    fn tree(
        &mut self,
        chan: &mut Channel,
        key: &Key,
        base: &[Block],
        leaves: &mut [Block],
    ) -> Result<(), OtError>;

    /// Called after the last bin of a request.
    fn rest(&mut self, chan: &mut Channel) -> Result<(), OtError>;
}

/// The COT sender: holds Δ.
pub(crate) struct Sender {
    pub(crate) delta: Zeroizing<Block>,
    /// Secret randomness, for the trees' seeds.
    pub(crate) prg: Prg,
    trees: u64,
}

impl Sender {
    pub(crate) fn new(delta: Block, prg: Prg) -> Self {
        Self { delta: Zeroizing::new(delta), prg, trees: 0 }
    }
}

impl Side for Sender {
    fn tree(
        &mut self,
        chan: &mut Channel,
        key: &Key,
        base: &[Block],
        leaves: &mut [Block],
    ) -> Result<(), OtError> {
        let mut seed = Zeroizing::new([0; 16]);
        self.prg.fill(seed.as_mut());
        let message = &mut [Block::ZERO; 64][..base.len()];
        ggm::send(key, *self.delta, Block::from_bytes(*seed), base, leaves, message);
        chan.send_ahead(bytemuck::cast_slice(message))?;
        self.trees += 1;
        if self.trees.is_multiple_of(FLUSH_BINS) { Ok(chan.flush()?) } else { Ok(()) }
    }

    fn rest(&mut self, chan: &mut Channel) -> Result<(), OtError> {
        Ok(chan.flush()?)
    }
}

/// The COT receiver: holds nothing but its halves.
pub(crate) struct Receiver;

impl Side for Receiver {
    fn tree(
        &mut self,
        chan: &mut Channel,
        key: &Key,
        base: &[Block],
        leaves: &mut [Block],
    ) -> Result<(), OtError> {
        let message = &mut [Block::ZERO; 64][..base.len()];
        chan.recv_into(bytemuck::cast_slice_mut(message))?;
        ggm::receive(key, base, message, leaves);
        Ok(())
    }

    fn rest(&mut self, _chan: &mut Channel) -> Result<(), OtError> {
        Ok(())
    }
}

/// The public keys that an instance draws its matrices and trees from.
pub(crate) struct PublicKeys {
    pub(crate) matrix: Block,
    pub(crate) trees: Block,
}

/// One direction of one LPN instance: makes bins of COTs in order.
struct Instance {
    lpn: Lpn,
    matrix: Matrix,
    trees: Block,
    iteration: u64,
    /// The bin of this iteration that comes next.
    next: usize,
    /// k COTs for the secret, then h for every tree.
    base: Zeroizing<Vec<Block>>,
}

impl Instance {
    fn new(lpn: Lpn, keys: &PublicKeys, base: Zeroizing<Vec<Block>>) -> Self {
        assert_eq!(base.len(), lpn.cost());
        Self { lpn, matrix: Matrix::new(keys.matrix), trees: keys.trees, iteration: 0, next: 0, base }
    }

    /// Makes the next bin of this iteration.
    fn make_bin(
        &mut self,
        chan: &mut Channel,
        side: &mut impl Side,
        out: &mut [Block],
    ) -> Result<(), OtError> {
        let Lpn { secret, bins, log_bin } = self.lpn;
        assert!(self.next < bins && out.len() == self.lpn.bin());
        let bin = self.next;
        self.next += 1;
        // 1. The errors: a single-point COT. The key is a new one for every tree.
        let number = (u128::from(self.iteration) << 32) + bin as u128;
        let key = Key::new(Block(self.trees.0.wrapping_add(number)));
        let used = secret + bin * log_bin;
        side.tree(chan, &key, &self.base[used..used + log_bin], out)?;
        // 2. The product with the matrix.
        self.matrix.add_rows(self.iteration, (bin << log_bin) as u64, &self.base[..secret], out);
        Ok(())
    }
}

/// A stream of COTs in one direction.
pub(crate) struct Ferret<S> {
    side: S,
    instance: Instance,
    /// The base of the next iteration, while it is being made.
    reserve: Zeroizing<Vec<Block>>,
    /// A bin that a request used only in part: `bin[taken..]` is left.
    bin: Zeroizing<Vec<Block>>,
    taken: usize,
}

impl<S: Side> Ferret<S> {
    /// Starts the stream from `base`, which holds [`Lpn::cost`] COTs for [`Lpn::SETUP`].
    pub(crate) fn new(
        chan: &mut Channel,
        mut side: S,
        base: Zeroizing<Vec<Block>>,
        keys: [PublicKeys; 2],
    ) -> Result<Self, OtError> {
        let mut setup = Instance::new(Lpn::SETUP, &keys[0], base);
        let mut first = Zeroizing::new(vec![Block::ZERO; Lpn::MAIN.cost()]);
        for bin in first.chunks_exact_mut(Lpn::SETUP.bin()) {
            setup.make_bin(chan, &mut side, bin)?;
        }
        side.rest(chan)?;
        Ok(Self {
            side,
            instance: Instance::new(Lpn::MAIN, &keys[1], first),
            reserve: Zeroizing::new(Vec::new()),
            bin: Zeroizing::new(vec![Block::ZERO; Lpn::MAIN.bin()]),
            taken: Lpn::MAIN.bin(),
        })
    }

    pub(crate) fn side(&self) -> &S {
        &self.side
    }

    /// Makes the next bin that is not put aside.
    fn make_bin(&mut self, chan: &mut Channel, out: &mut [Block]) -> Result<(), OtError> {
        let Self { side, instance, reserve, .. } = self;
        // 1. An iteration is over: what it put aside is the base of the next one.
        if instance.next == instance.lpn.bins {
            std::mem::swap(&mut instance.base, reserve);
            instance.iteration += 1;
            instance.next = 0;
        }
        // 2. An iteration begins: its first bins are put aside.
        if instance.next == 0 {
            reserve.resize(instance.lpn.cost(), Block::ZERO);
            for bin in reserve.chunks_exact_mut(instance.lpn.bin()) {
                instance.make_bin(chan, side, bin)?;
            }
        }
        instance.make_bin(chan, side, out)
    }

    /// Fills `out` with the next COTs.
    pub(crate) fn fill(&mut self, chan: &mut Channel, out: &mut [Block]) -> Result<(), OtError> {
        // 1. What the last request left, which is then forgotten.
        let size = self.bin.len();
        let ready = out.len().min(size - self.taken);
        let (head, rest) = out.split_at_mut(ready);
        take(&mut self.bin[self.taken..self.taken + ready], head);
        self.taken += ready;
        if rest.is_empty() {
            return Ok(());
        }
        // 2. Whole bins are made where they are wanted.
        let mut bins = rest.chunks_exact_mut(size);
        for bin in &mut bins {
            self.make_bin(chan, bin)?;
        }
        // 3. The last one may be used in part only.
        let tail = bins.into_remainder();
        if !tail.is_empty() {
            let mut bin = std::mem::take(&mut *self.bin);
            let made = self.make_bin(chan, &mut bin);
            *self.bin = bin;
            made?;
            take(&mut self.bin[..tail.len()], tail);
            self.taken = tail.len();
        }
        self.side.rest(chan)
    }
}

/// Moves blocks; zeros stay behind.
fn take(from: &mut [Block], to: &mut [Block]) {
    to.copy_from_slice(from);
    from.fill(Block::ZERO);
}
