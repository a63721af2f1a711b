//! Silent extension: a few hundred thousand correlations turn into millions for a fraction of a byte each.
//!
//! `q ; t <- Extend(Δ ; )` with t_i = q_i ⊕ Σ_j r_ij·Δ_j, r_i random, of one bit or of four; bit j of Δ_j is set and of
//! the others zero, those bits of q_i are zero, and those of t_i = r_i. Ferret (Yang, Weng, Lan, Zhang and Wang, CCS 2020,
//! ePrint 2020/924), semi-honest, with regular noise:
//!
//! > q = A·p ⊕ v,  t = A·s ⊕ w
//!
//! where (p, s) are k correlations made before, A is a public sparse matrix ([`crate::lpn`]), and (v, w) are one
//! single-point correlation per bin ([`crate::ggm`]). The choices r = A·(choices of s) ⊕ e look random by the LPN assumption: for
//! bits with one error in every bin, for vectors with one random vector e in every bin, so that each of the four bits is an
//! instance of its own with an error in every second bin. The algebra on whole blocks carries the choices along. Each
//! iteration puts aside what the next one needs, then gives out the rest bin by bin: memory does not grow with the number
//! of correlations.
//!
//! The trees of vectors spend bits of the same direction, one a level, and one vector each.
//!
//! Messages go from sender to receiver only: the sender may run ahead by as much as the connection buffers. Who learns
//! what: the receiver sees messages that are masked by fresh correlations, the sender nothing at all.
//!
//! Bins are independent: they are spread over the threads of the current rayon pool. What is sent, and in which order, does not
//! depend on how many there are.

use jaguar_ring::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::aes::Key;
use crate::instance::Lpn;
use crate::lpn::Matrix;
use crate::threads::each;
use crate::{Block, Hash, OtError, Width, ggm};

/// Outputs that are made together, and whose messages are one flush: enough for all threads, and little enough for the
/// receiver not to wait long for the first.
const BATCH: usize = 1 << 15;

/// Some bins that are made together.
pub(crate) struct Bins<'a> {
    lpn: Lpn,
    iteration: u64,
    /// Which bin of the iteration is the first.
    first: usize,
    /// The public key of the trees of this direction and width.
    trees: Block,
    matrix: &'a Matrix,
    secret: &'a [Block],
    /// h bits a tree.
    levels: &'a [Block],
    /// For vectors, one a tree.
    errors: &'a [Block],
}

impl Bins<'_> {
    /// Makes each bin while it is in the cache: by `tree`, which gets the tree's key, levels, error, leaves, and its
    /// part of `message`, the single-point correlation; then the product with the matrix is added.
    fn each<T: Send>(
        &self,
        out: &mut [Block],
        message: impl Iterator<Item = T>,
        tree: impl Fn(&Key, &[Block], Option<Block>, &mut [Block], T) + Sync + Send,
    ) {
        let bins = out.chunks_exact_mut(self.lpn.bin()).zip(message).enumerate();
        each(bins.collect(), |(b, (out, message))| {
            let bin = self.first + b;
            // A new key for every tree.
            let number = (u128::from(self.iteration) << 32) + bin as u128;
            let key = Key::new(Block(self.trees.0.wrapping_add(number)));
            let levels = &self.levels[b * self.lpn.log_bin..][..self.lpn.log_bin];
            tree(&key, levels, self.errors.get(b).copied(), out, message);
            let row = (bin << self.lpn.log_bin) as u64;
            self.matrix.add_rows(self.iteration, row, self.secret, out);
        });
    }
}

/// What sender and receiver do differently.
pub(crate) trait Side {
    /// Makes whole bins.
    fn make(&mut self, chan: &mut Channel, bins: &Bins, out: &mut [Block]) -> Result<(), OtError>;

    /// Fills `vectors` from four times as many `bits`: each is turned into a bit with a Δ_j of its own, by one message
    /// c = H(q) ⊕ H(q ⊕ Δ) ⊕ Δ_j, and four of these add up to a vector correlation.
    fn add_up(
        &mut self,
        chan: &mut Channel,
        hash: &Hash,
        bits: &[Block],
        vectors: &mut [Block],
    ) -> Result<(), OtError>;
}

/// The sender: holds every Δ.
pub(crate) struct Sender {
    /// Of the bits.
    pub(crate) delta: Zeroizing<[Block; 1]>,
    /// Of the vectors.
    pub(crate) deltas: Zeroizing<[Block; 4]>,
    /// Secret randomness, for the trees' seeds.
    prg: Prg,
}

impl Sender {
    /// With this Δ for bits, and randomness for the rest.
    pub(crate) fn new(delta: Block, mut prg: Prg) -> Self {
        let mut deltas = Zeroizing::new([Block::ZERO; 4]);
        prg.fill(bytemuck::cast_slice_mut(&mut deltas[..]));
        for (j, delta) in deltas.iter_mut().enumerate() {
            *delta = Block(delta.0 & !Width::Vector.choice_mask() | 1 << j);
        }
        Self { delta: Zeroizing::new([delta]), deltas, prg }
    }
}

impl Side for Sender {
    fn make(&mut self, chan: &mut Channel, bins: &Bins, out: &mut [Block]) -> Result<(), OtError> {
        let count = out.len() / bins.lpn.bin();
        let mut seeds = Zeroizing::new(vec![Block::ZERO; count]);
        self.prg.fill(bytemuck::cast_slice_mut(&mut seeds));
        let mut message = vec![Block::ZERO; count * bins.lpn.message()];
        let delta = self.delta[0];
        let parts = message.chunks_exact_mut(bins.lpn.message()).zip(seeds.iter());
        bins.each(out, parts, |key, q, error, leaves, (message, seed)| match error {
            None => ggm::send(key, delta, *seed, q, leaves, message),
            Some(error) => ggm::send_vector(key, delta, *seed, q, error, leaves, message),
        });
        chan.send_ahead(bytemuck::cast_slice(&message))?;
        Ok(chan.flush()?)
    }

    fn add_up(
        &mut self,
        chan: &mut Channel,
        hash: &Hash,
        bits: &[Block],
        vectors: &mut [Block],
    ) -> Result<(), OtError> {
        let mut pads = Zeroizing::new(vec![Block::ZERO; 2 * bits.len()]);
        hash.pads(0, &[Block::ZERO, self.delta[0]], bits, &mut pads);
        let (zeros, ones) = pads.split_at(bits.len());
        let mut message = vec![Block::ZERO; bits.len()];
        for (i, (c, (zero, one))) in message.iter_mut().zip(zeros.iter().zip(ones)).enumerate() {
            let (zero, one) = (without_choices(*zero), without_choices(*one));
            *c = zero ^ one ^ self.deltas[i % 4];
            vectors[i / 4] ^= zero;
        }
        chan.send_ahead(bytemuck::cast_slice(&message))?;
        Ok(chan.flush()?)
    }
}

/// The receiver: holds nothing but its halves.
pub(crate) struct Receiver;

impl Side for Receiver {
    fn make(&mut self, chan: &mut Channel, bins: &Bins, out: &mut [Block]) -> Result<(), OtError> {
        let mut message = vec![Block::ZERO; out.len() / bins.lpn.bin() * bins.lpn.message()];
        chan.recv_into(bytemuck::cast_slice_mut(&mut message))?;
        let parts = message.chunks_exact(bins.lpn.message());
        bins.each(out, parts, |key, t, error, leaves, message| match error {
            None => ggm::receive(key, t, message, leaves),
            Some(error) => ggm::receive_vector(key, t, error, message, leaves),
        });
        Ok(())
    }

    fn add_up(
        &mut self,
        chan: &mut Channel,
        hash: &Hash,
        bits: &[Block],
        vectors: &mut [Block],
    ) -> Result<(), OtError> {
        let mut pads = Zeroizing::new(vec![Block::ZERO; bits.len()]);
        hash.pads(0, &[Block::ZERO], bits, &mut pads);
        let mut message = vec![Block::ZERO; bits.len()];
        chan.recv_into(bytemuck::cast_slice_mut(&mut message))?;
        for (i, ((c, pad), t)) in message.iter().zip(pads.iter()).zip(bits).enumerate() {
            vectors[i / 4] ^= without_choices(*pad) ^ c.masked(t.lsb());
        }
        Ok(())
    }
}

/// A pad with zeros where a vector correlation has its choices.
fn without_choices(pad: Block) -> Block {
    Block(pad.0 & !Width::Vector.choice_mask())
}

/// The public keys that the instances of one width draw their matrices and trees from: one pair for each of a chain.
pub(crate) struct PublicKeys {
    pub(crate) matrix: Block,
    pub(crate) trees: Block,
}

/// What an instance needs besides itself.
pub(crate) struct Context<'a, S> {
    pub(crate) chan: &'a mut Channel,
    pub(crate) side: &'a mut S,
    /// Where trees of vectors take their levels from.
    pub(crate) bits: Option<&'a mut Stream>,
}

/// One direction of one LPN instance: makes bins of correlations in order, and its own next secrets.
pub(crate) struct Stream {
    lpn: Lpn,
    matrix: Matrix,
    trees: Block,
    iteration: u64,
    /// The bin of this iteration that comes next.
    next: usize,
    /// k correlations for the secret, then what every tree spends.
    base: Zeroizing<Vec<Block>>,
    /// The base of the next iteration, while it is being made.
    reserve: Zeroizing<Vec<Block>>,
    /// A bin that a request used only in part: `bin[taken..]` is left.
    bin: Zeroizing<Vec<Block>>,
    taken: usize,
}

impl Stream {
    /// Starts the last instance of `chain` from what the first one spends; `keys` are as many.
    pub(crate) fn start<S: Side>(
        context: &mut Context<S>,
        chain: &[Lpn],
        keys: &[PublicKeys],
        base: Zeroizing<Vec<Block>>,
    ) -> Result<Self, OtError> {
        let mut stream = Self::new(chain[0], &keys[0], base);
        for (&lpn, keys) in chain[1..].iter().zip(&keys[1..]) {
            let mut first =
                Zeroizing::new(vec![Block::ZERO; stream.lpn.bins_for(lpn.cost()) * stream.lpn.bin()]);
            stream.make(context, &mut first)?;
            stream = Self::new(lpn, keys, first);
        }
        Ok(stream)
    }

    fn new(lpn: Lpn, keys: &PublicKeys, base: Zeroizing<Vec<Block>>) -> Self {
        assert!(base.len() >= lpn.cost());
        Self {
            lpn,
            matrix: Matrix::new(keys.matrix),
            trees: keys.trees,
            iteration: 0,
            next: 0,
            base,
            reserve: Zeroizing::default(),
            bin: Zeroizing::new(vec![Block::ZERO; lpn.bin()]),
            taken: lpn.bin(),
        }
    }

    /// Makes the next bins of this iteration.
    fn make<S: Side>(&mut self, context: &mut Context<S>, out: &mut [Block]) -> Result<(), OtError> {
        let lpn = self.lpn;
        for out in out.chunks_mut(BATCH) {
            let (first, bins) = (self.next, out.len() / lpn.bin());
            assert!(out.len().is_multiple_of(lpn.bin()) && first + bins <= lpn.bins);
            self.next += bins;
            let (secret, spent) = self.base.split_at(lpn.secret);
            let spent = &spent[first * lpn.spent()..][..bins * lpn.spent()];
            let drawn: Zeroizing<Vec<Block>>;
            let (levels, errors): (&[Block], &[Block]) = match lpn.width {
                Width::Bit => (spent, &[]),
                Width::Vector => {
                    let mut levels = Zeroizing::new(vec![Block::ZERO; bins * lpn.log_bin]);
                    let Context { chan, side, bits } = context;
                    let bits = bits.as_deref_mut().expect("vectors come with bits");
                    bits.fill(&mut Context { chan, side: &mut **side, bits: None }, &mut levels)?;
                    drawn = levels;
                    (&drawn, spent)
                }
            };
            let (iteration, trees, matrix) = (self.iteration, self.trees, &self.matrix);
            let bins = Bins { lpn, iteration, first, trees, matrix, secret, levels, errors };
            context.side.make(context.chan, &bins, out)?;
        }
        Ok(())
    }

    /// Makes the next bins that are not put aside.
    fn make_for_use<S: Side>(&mut self, context: &mut Context<S>, out: &mut [Block]) -> Result<(), OtError> {
        let mut out = out;
        while !out.is_empty() {
            // 1. An iteration is over: what it put aside is the base of the next one.
            if self.next == self.lpn.bins {
                std::mem::swap(&mut self.base, &mut self.reserve);
                self.iteration += 1;
                self.next = 0;
            }
            // 2. An iteration begins: its first bins are put aside.
            if self.next == 0 {
                let mut reserve = std::mem::take(&mut self.reserve);
                let size = self.lpn.bins_for(self.lpn.cost()) * self.lpn.bin();
                if reserve.len() != size {
                    reserve = Zeroizing::new(vec![Block::ZERO; size]);
                }
                self.make(context, &mut reserve)?;
                self.reserve = reserve;
            }
            // 3. As much of it as is left.
            let now = out.len().min((self.lpn.bins - self.next) * self.lpn.bin());
            let (head, rest) = out.split_at_mut(now);
            self.make(context, head)?;
            out = rest;
        }
        Ok(())
    }

    /// Fills `out` with the next correlations.
    pub(crate) fn fill<S: Side>(
        &mut self,
        context: &mut Context<S>,
        out: &mut [Block],
    ) -> Result<(), OtError> {
        // 1. What the last request left, which is then forgotten.
        let size = self.bin.len();
        let ready = out.len().min(size - self.taken);
        let (head, rest) = out.split_at_mut(ready);
        take(&mut self.bin[self.taken..self.taken + ready], head);
        self.taken += ready;
        // 2. Whole bins are made where they are wanted.
        let (whole, tail) = rest.split_at_mut(rest.len() / size * size);
        self.make_for_use(context, whole)?;
        // 3. The last one may be used in part only.
        if !tail.is_empty() {
            let mut bin = std::mem::take(&mut self.bin);
            let made = self.make_for_use(context, &mut bin);
            self.bin = bin;
            made?;
            take(&mut self.bin[..tail.len()], tail);
            self.taken = tail.len();
        }
        Ok(())
    }
}

/// Moves blocks; zeros stay behind.
fn take(from: &mut [Block], to: &mut [Block]) {
    to.copy_from_slice(from);
    from.fill(Block::ZERO);
}
