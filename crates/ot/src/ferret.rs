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
//! iteration gives out what it makes bin by bin, and at its end makes what the next one needs: memory does not grow with the
//! number of correlations.
//!
//! **Lines of four.** The instances in use have p and s of 4·k correlations, four in a cache line, and each row of A gives four
//! outputs: one line read serves all four, and so does each place drawn. The lanes have their errors in the same rows, an error
//! being a random vector with a bit (or four) for each lane: what vectors have, with more bits. Lines are made where nothing
//! else uses the memory ([`Room`]), for the product with A passes over many rows five times.
//!
//! **Stationary noise**, where both parties ask for it ([`crate::Noise`]): trees are sent in one iteration of several. Each of these
//! iterations makes them again of what was kept, and hashes their last level under keys of its own; there a bin takes one
//! correlation and one message a lane.
//!
//! The trees of vectors spend bits of the same direction, one a level, and one vector a lane; the trees of lines of bits four
//! bits more.
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
use crate::block::{LANES, Line};
use crate::instance::Lpn;
use crate::lpn::Matrix;
use crate::threads::{each, share};
use crate::{Block, Hash, OtError, Width, ggm};

/// Rows of lines that a thread makes together: their lines, and two segments of the secret, stay in the L2 cache.
const ROWS: usize = 1 << 13;

/// Room for lines in the making, for all streams of a session. There are zeros in it between calls.
#[derive(Default)]
pub(crate) struct Room(Zeroizing<Vec<Line>>);

impl Room {
    /// The most lines that are in the making: of eight threads, or fewer of each of more.
    pub(crate) const MOST: usize = 8 * ROWS;

    fn lines(&mut self, count: usize) -> &mut [Line] {
        if self.0.len() < count {
            self.0 = Zeroizing::new(vec![Line::ZERO; count]);
        }
        &mut self.0[..count]
    }
}

/// Correlations whose trees' levels are drawn together. It says in which order messages of vectors and of bits come, so it is the
/// same for both parties.
const DRAWN: usize = 1 << 19;

/// Correlations that are made together, and whose messages are one flush: enough for all threads, and little enough for the
/// receiver not to wait long for the first. Messages and their order do not depend on it.
fn together(lanes: usize) -> usize {
    match lanes {
        1 => LANES * ROWS,
        _ => LANES * (share() * ROWS).min(Room::MOST),
    }
}

/// What the trees of bins are made of again in iterations that have their errors in the same rows: nothing, where noise is fresh.
/// (Their last levels would take 30 to 98 times as much, and save a quarter of an AES call an output.)
struct Kept {
    /// By bin: the sender's seed, or what the receiver has learned of each level.
    roots: Zeroizing<Vec<Block>>,
    /// By bin, at the receiver: α, which is secret.
    paths: Zeroizing<Vec<u64>>,
}

/// That of one bin.
type KeptBin<'a> = Option<(&'a mut [Block], &'a mut u64)>;

impl Kept {
    /// With `each` blocks a bin.
    fn new(lpn: Lpn, each: usize) -> Self {
        let bins = if lpn.life > 1 { lpn.bins } else { 0 };
        Self { roots: Zeroizing::new(vec![Block::ZERO; bins * each]), paths: Zeroizing::new(vec![0; bins]) }
    }

    /// Of `count` bins from `first` on, one by one.
    fn bins(&mut self, lpn: Lpn, first: usize, count: usize) -> Vec<KeptBin<'_>> {
        if lpn.life == 1 {
            return std::iter::repeat_with(|| None).take(count).collect();
        }
        let each = self.roots.len() / lpn.bins;
        let roots = self.roots[first * each..].chunks_exact_mut(each);
        roots.zip(&mut self.paths[first..]).take(count).map(Some).collect()
    }
}

/// Where bins are made: all in a row, but for one that may lie elsewhere, behind them.
pub(crate) struct Out<'a> {
    row: &'a mut [Block],
    /// Of one bin, or empty.
    last: &'a mut [Block],
}

impl<'a> Out<'a> {
    fn len(&self) -> usize {
        self.row.len() + self.last.len()
    }

    /// The first `len`, of whole bins, and the others.
    fn split_at(self, len: usize) -> (Self, Self) {
        let in_row = len.min(self.row.len());
        let (row, rest) = self.row.split_at_mut(in_row);
        let (last, none) = self.last.split_at_mut(len - in_row);
        (Self { row, last }, Self { row: rest, last: none })
    }

    /// Pieces of `size`, of whole bins; the last one may be shorter.
    fn chunks(self, size: usize) -> Vec<Self> {
        let mut chunks = Vec::with_capacity(self.len().div_ceil(size));
        let mut rest = self;
        while rest.len() > 0 {
            let now = size.min(rest.len());
            let (chunk, others) = rest.split_at(now);
            chunks.push(chunk);
            rest = others;
        }
        chunks
    }

    /// The bins one by one.
    fn bins(self, size: usize) -> impl Iterator<Item = &'a mut [Block]> {
        self.row.chunks_exact_mut(size).chain((!self.last.is_empty()).then_some(self.last))
    }
}

/// Some bins that are made together.
pub(crate) struct Bins<'a> {
    lpn: Lpn,
    iteration: u64,
    /// Which bin of the iteration is the first.
    first: usize,
    /// The public key of the trees of this direction and width.
    trees: Block,
    matrix: &'a Matrix,
    secret: &'a [Line],
    /// Of each bin: one bit for each level of its tree, and one correlation for each error.
    spent: &'a [[&'a [Block]; 2]],
}

/// What a bin is made from, and in.
struct BinInMaking<'a> {
    /// Of its own iteration: for hashes of leaves.
    key: &'a Key,
    /// Of the iteration that has sent its tree, which may be the same.
    tree_key: &'a Key,
    /// Levels of its tree: none, if none is sent in this iteration.
    levels: &'a [Block],
    errors: &'a [Block],
    kept: KeptBin<'a>,
    leaves: &'a mut [Block],
}

/// What a tree is made of, and its α: the `new`, which are `kept` where that is asked for, or, without one, those that were kept.
fn roots<'a>(kept: &'a mut KeptBin<'_>, new: Option<(&'a [Block], u64)>) -> (&'a [Block], u64) {
    match (kept, new) {
        (None, new) => new.expect("a tree in every iteration"),
        (Some((roots, path)), new) => {
            if let Some((new, alpha)) = new {
                roots.copy_from_slice(new);
                **path = alpha;
            }
            (roots, **path)
        }
    }
}

impl Bins<'_> {
    /// Makes the single-point correlation of each bin by `make`, which gets the bin and its part of `message`; then adds the product
    /// with the matrix, while all of it is in the cache.
    fn each<T: Send>(
        &self,
        room: &mut Room,
        out: Out<'_>,
        kept: Vec<KeptBin<'_>>,
        message: impl Iterator<Item = T>,
        make: impl Fn(BinInMaking<'_>, T) + Sync + Send,
    ) {
        let Self { lpn, iteration, first, .. } = *self;
        let tree = |b: usize, leaves: &mut [Block], (kept, message): (KeptBin<'_>, T)| {
            // A new key for every bin of every iteration.
            let key = |iteration: u64| {
                let number = (u128::from(iteration) << 32) + (first + b) as u128;
                Key::new(Block(self.trees.0.wrapping_add(number)))
            };
            let own = key(iteration);
            let before = (!lpn.has_trees(iteration)).then(|| key(lpn.trees_of(iteration)));
            let [levels, errors] = self.spent[b];
            let tree_key = before.as_ref().unwrap_or(&own);
            make(BinInMaking { key: &own, tree_key, levels, errors, kept, leaves }, message);
        };
        let rows = |b: usize| self.matrix.rows(iteration, (first + b) * lpn.rows());
        let message = kept.into_iter().zip(message);
        if lpn.lanes == 1 {
            let secret = &bytemuck::must_cast_slice(self.secret)[..lpn.secret];
            let bins = out.bins(lpn.bin()).zip(message).enumerate();
            return each(bins.collect(), |(b, (out, message))| {
                tree(b, out, message);
                rows(b).add(secret, out);
            });
        }
        let part = self.spent.len().div_ceil(share()).min(ROWS / lpn.rows());
        let lines = room.lines(out.len() / LANES).chunks_mut(part * lpn.rows());
        let mut messages: Vec<(KeptBin<'_>, T)> = message.collect();
        let mut parts = Vec::new();
        for ((lines, out), number) in lines.zip(out.chunks(part * lpn.bin())).zip(0..) {
            let rest = messages.split_off(part.min(messages.len()));
            parts.push((number * part, lines, out, std::mem::replace(&mut messages, rest)));
        }
        each(parts, |(b, lines, out, messages)| {
            let leaves = bytemuck::must_cast_slice_mut::<Line, Block>(lines).chunks_exact_mut(lpn.bin());
            for ((leaves, message), b) in leaves.zip(messages).zip(b..) {
                tree(b, leaves, message);
            }
            rows(b).add_lines(&self.secret[..lpn.secret], lines, [out.row, out.last]);
        });
    }
}

/// What sender and receiver do differently.
pub(crate) trait Side {
    /// Blocks that a bin's tree is made of again.
    fn kept(lpn: Lpn) -> usize;

    /// Makes whole bins.
    fn make(
        &mut self,
        chan: &mut Channel,
        room: &mut Room,
        bins: &Bins,
        kept: Vec<KeptBin<'_>>,
        out: Out<'_>,
    ) -> Result<(), OtError>;

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
    /// The global difference of correlations of one bit.
    pub(crate) delta: Zeroizing<[Block; 1]>,
    /// The four global differences of vector correlations.
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
    fn kept(_: Lpn) -> usize {
        1
    }

    fn make(
        &mut self,
        chan: &mut Channel,
        room: &mut Room,
        bins: &Bins,
        kept: Vec<KeptBin<'_>>,
        out: Out<'_>,
    ) -> Result<(), OtError> {
        let (count, each) = (out.len() / bins.lpn.bin(), bins.lpn.message(bins.iteration));
        let mut seeds = Zeroizing::new(vec![Block::ZERO; count]);
        let new = bins.lpn.has_trees(bins.iteration);
        if new {
            self.prg.fill(bytemuck::cast_slice_mut(&mut seeds));
        }
        let mut message = vec![Block::ZERO; count * each];
        let (delta, clear) = (self.delta[0], bins.lpn.width.choice_mask());
        let parts = message.chunks_exact_mut(each).zip(seeds.iter());
        bins.each(room, out, kept, parts, |mut bin, (message, seed)| {
            if bin.errors.is_empty() {
                return ggm::send(bin.tree_key, delta, *seed, bin.levels, bin.leaves, message);
            }
            let (levels, last) = message.split_at_mut(bin.levels.len());
            let (seed, _) = roots(&mut bin.kept, new.then_some((std::slice::from_ref(seed), 0)));
            let nodes = ggm::nodes(bin.leaves, bin.errors.len());
            ggm::send_nodes(bin.tree_key, delta, seed[0], bin.levels, nodes, levels);
            ggm::send_rows(bin.key, clear, bin.errors, bin.leaves, last);
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
    fn kept(lpn: Lpn) -> usize {
        lpn.log_bin
    }

    fn make(
        &mut self,
        chan: &mut Channel,
        room: &mut Room,
        bins: &Bins,
        kept: Vec<KeptBin<'_>>,
        out: Out<'_>,
    ) -> Result<(), OtError> {
        let each = bins.lpn.message(bins.iteration);
        let new = bins.lpn.has_trees(bins.iteration);
        // What is learned of trees takes the place of their messages.
        let mut message = Zeroizing::new(vec![Block::ZERO; out.len() / bins.lpn.bin() * each]);
        chan.recv_into(bytemuck::cast_slice_mut(&mut message))?;
        let clear = bins.lpn.width.choice_mask();
        let parts = message.chunks_exact_mut(each);
        bins.each(room, out, kept, parts, |mut bin, message| {
            if bin.errors.is_empty() {
                return ggm::receive(bin.tree_key, bin.levels, message, bin.leaves);
            }
            let (levels, last) = message.split_at_mut(bin.levels.len());
            let learned = ggm::learn(bin.levels, levels);
            let (sums, path) = roots(&mut bin.kept, new.then_some((levels, learned)));
            let nodes = ggm::nodes(bin.leaves, bin.errors.len());
            ggm::receive_nodes(bin.tree_key, sums, path, nodes);
            ggm::receive_rows(bin.key, clear, bin.errors, last, path, bin.leaves);
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
    pub(crate) room: &'a mut Room,
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
    /// Correlations for the secret, then what every tree spends.
    base: Zeroizing<Vec<Line>>,
    /// Where the base of the next iteration is made.
    reserve: Zeroizing<Vec<Line>>,
    kept: Kept,
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
        base: &[Block],
    ) -> Result<Self, OtError> {
        let mut first = lines(base.len());
        bytemuck::must_cast_slice_mut::<_, Block>(&mut first)[..base.len()].copy_from_slice(base);
        let mut stream = Self::new::<S>(chain[0], &keys[0], first);
        for (&lpn, keys) in chain[1..].iter().zip(&keys[1..]) {
            let mut first = lines(stream.lpn.bins_for(lpn.cost(0)) * stream.lpn.bin());
            stream.make(context, Out { row: bytemuck::must_cast_slice_mut(&mut first), last: &mut [] })?;
            stream = Self::new::<S>(lpn, keys, first);
        }
        Ok(stream)
    }

    fn new<S: Side>(lpn: Lpn, keys: &PublicKeys, base: Zeroizing<Vec<Line>>) -> Self {
        assert!(base.len() * LANES >= lpn.cost(0));
        Self {
            lpn,
            matrix: Matrix::new(keys.matrix),
            trees: keys.trees,
            iteration: 0,
            next: 0,
            base,
            reserve: Zeroizing::default(),
            kept: Kept::new(lpn, S::kept(lpn)),
            bin: Zeroizing::new(vec![Block::ZERO; lpn.bin()]),
            taken: lpn.bin(),
        }
    }

    /// Makes the next bins of this iteration.
    fn make<S: Side>(&mut self, context: &mut Context<S>, out: Out<'_>) -> Result<(), OtError> {
        let (lpn, iteration) = (self.lpn, self.iteration);
        let levels = lpn.levels(iteration);
        for out in out.chunks(DRAWN) {
            let (first, bins) = (self.next, out.len() / lpn.bin());
            assert!(out.len().is_multiple_of(lpn.bin()) && first + bins <= lpn.bins);
            self.next += bins;
            let Context { chan, side, bits, room } = context;
            let mut drawn = Zeroizing::default();
            if lpn.width == Width::Vector && levels > 0 {
                drawn = Zeroizing::new(vec![Block::ZERO; bins * levels]);
                let bits = bits.as_deref_mut().expect("vectors come with bits");
                bits.fill(&mut Context { chan, side: &mut **side, bits: None, room }, &mut drawn)?;
            }
            let spent = &bytemuck::must_cast_slice::<_, Block>(&self.base)[lpn.lanes * lpn.secret..];
            let spent = spent.chunks_exact(lpn.spent(iteration)).skip(first).take(bins);
            let spent: Vec<[&[Block]; 2]> = match lpn.width {
                Width::Bit => spent.map(|spent| spent.split_at(levels).into()).collect(),
                Width::Vector if levels == 0 => spent.map(|errors| [&[][..], errors]).collect(),
                Width::Vector => drawn.chunks_exact(levels).zip(spent).map(|tree| tree.into()).collect(),
            };
            let (trees, matrix, secret) = (self.trees, &self.matrix, &self.base[..]);
            let size = together(lpn.lanes);
            let parts = out.chunks(size).into_iter().zip(spent.chunks(size / lpn.bin()));
            for ((out, spent), first) in parts.zip((first..).step_by(size / lpn.bin())) {
                let bins = Bins { lpn, iteration, first, trees, matrix, secret, spent };
                let kept = self.kept.bins(lpn, first, spent.len());
                side.make(chan, room, &bins, kept, out)?;
            }
        }
        Ok(())
    }

    /// Makes the next bins that are for use.
    fn make_for_use<S: Side>(&mut self, context: &mut Context<S>, out: Out<'_>) -> Result<(), OtError> {
        let mut out = out;
        while out.len() > 0 {
            let aside = self.lpn.aside(self.iteration);
            // 1. An iteration is over: its last bins are the base of the next one.
            if self.next == self.lpn.bins - aside {
                let mut reserve = std::mem::take(&mut self.reserve);
                let size = aside * self.lpn.bin();
                if reserve.len() * LANES != size {
                    reserve = lines(size);
                }
                let row = bytemuck::must_cast_slice_mut(&mut reserve);
                self.make(context, Out { row, last: &mut [] })?;
                self.reserve = std::mem::replace(&mut self.base, reserve);
                self.iteration += 1;
                self.next = 0;
                continue;
            }
            // 2. As much of it as is left.
            let now = out.len().min((self.lpn.bins - aside - self.next) * self.lpn.bin());
            let (head, rest) = out.split_at(now);
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
        // 2. Whole bins are made where they are wanted; of a last one only a part may be.
        let (row, tail) = rest.split_at_mut(rest.len() / size * size);
        let mut bin = std::mem::take(&mut self.bin);
        let last = if tail.is_empty() { &mut [][..] } else { &mut bin[..] };
        let made = self.make_for_use(context, Out { row, last });
        self.bin = bin;
        made?;
        if !tail.is_empty() {
            take(&mut self.bin[..tail.len()], tail);
            self.taken = tail.len();
        }
        Ok(())
    }
}

/// Zeros, in lines: at least as many blocks.
fn lines(blocks: usize) -> Zeroizing<Vec<Line>> {
    Zeroizing::new(vec![Line::ZERO; blocks.div_ceil(LANES)])
}

/// Moves blocks; zeros stay behind.
fn take(from: &mut [Block], to: &mut [Block]) {
    to.copy_from_slice(from);
    from.fill(Block::ZERO);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{combinations, cost, two_parties};

    /// Small lines, three iterations of which have their errors in the same rows.
    const SMALL: Lpn = Lpn { width: Width::Bit, lanes: LANES, life: 3, secret: 640, bins: 80, log_bin: 6 };

    /// What a party has after each iteration: its secret before it, what it made for use, and at the receiver the errors' rows.
    type Iterations = Vec<(Vec<Line>, Vec<Block>, Vec<u64>)>;

    fn party(chan: &mut Channel, side: &mut impl Side, width: Width, bases: &[Vec<Block>; 2]) -> Iterations {
        let (mut room, lpn) = (Room::default(), Lpn { width, ..SMALL });
        let keys = |n: u128| PublicKeys { matrix: Block(n), trees: Block(n + 1) };
        let mut context = Context { chan, side, bits: None, room: &mut room };
        let bits = Lpn { life: 1, ..SMALL };
        let mut bits = Stream::start(&mut context, &[bits], &[keys(7)], &bases[0]).unwrap();
        let mut stream = Stream::start(&mut context, &[lpn], &[keys(9)], &bases[1]).unwrap();
        let mut all = Vec::new();
        for iteration in 0..7 {
            let mut out = vec![Block::ZERO; (lpn.bins - lpn.aside(iteration)) * lpn.bin()];
            let secret = |stream: &Stream| stream.base[..lpn.secret].to_vec();
            // The first bin is of a new iteration, and its secret is there then.
            let (first, rest) = out.split_at_mut(lpn.bin());
            let mut context = Context {
                chan: &mut *context.chan,
                side: &mut *context.side,
                bits: Some(&mut bits),
                room: &mut *context.room,
            };
            stream.make_for_use(&mut context, Out { row: first, last: &mut [] }).unwrap();
            let secret = secret(&stream);
            stream.make_for_use(&mut context, Out { row: rest, last: &mut [] }).unwrap();
            assert_eq!((stream.iteration, stream.next), (iteration, lpn.bins - lpn.aside(iteration)));
            // Those behind are of bins that are made for the next iteration, later.
            let paths = stream.kept.paths[..out.len() / lpn.bin()].to_vec();
            all.push((secret, out, paths));
        }
        context.chan.flush().unwrap();
        all
    }

    /// Every correlation holds; what is handed out is the product with the secret, and errors in rows that stay for a life, with
    /// values that do not. No leaf comes twice: with v ⊕ e·Δ and v ⊕ e'·Δ a receiver would have Δ. Bytes are those that `cost` says.
    #[test]
    fn stationary_errors_stay_in_their_rows_and_change_their_values() {
        for width in Width::ALL {
            let lpn = Lpn { width, ..SMALL };
            let mut prg = Prg::new([5; 32]);
            let mut random = |count: usize| {
                let mut blocks = vec![Block::ZERO; count];
                prg.fill(bytemuck::cast_slice_mut(&mut blocks));
                blocks
            };
            let delta = random(1)[0].with_lsb(true);
            let mut sender = Sender::new(delta, Prg::new([6; 32]));
            let sums = |width, sender: &Sender| match width {
                Width::Bit => vec![Block::ZERO, delta],
                Width::Vector => combinations(&sender.deltas).to_vec(),
            };
            let mut bases = || {
                [(Width::Bit, Lpn { life: 1, ..SMALL }), (width, lpn)].map(|(width, lpn)| {
                    let mask = width.choice_mask();
                    let pair = |x: &Block| {
                        let q = Block(x.0 & !mask);
                        (q, q ^ sums(width, &sender)[(x.0 & mask) as usize])
                    };
                    random(lpn.cost(0)).iter().map(pair).unzip::<_, _, Vec<_>, Vec<_>>()
                })
            };
            let [bits, own] = bases();
            let sums = sums(width, &sender);
            let run = two_parties::run(
                |chan| party(chan, &mut sender, width, &[bits.0, own.0]),
                |chan| party(chan, &mut Receiver, width, &[bits.1, own.1]),
            );
            let mask = width.choice_mask();
            let made = run.first.iter().map(|(_, out, _)| out.len() as u64).sum();
            let own = cost::sent(lpn, made);
            let bits = match width {
                Width::Bit => 0,
                Width::Vector => cost::sent(Lpn { life: 1, ..SMALL }, own.levels).bytes(),
            };
            assert_eq!(run.traffic.sent, own.bytes() + bits, "{width:?}");
            let matrix = Matrix::new(Block(9));
            let product = |iteration: usize, secret: &[Line], count: usize| {
                let mut rows = vec![Line::ZERO; count / LANES];
                let mut product = vec![Block::ZERO; count];
                matrix.rows(iteration as u64, 0).add_lines(secret, &mut rows, [&mut product, &mut []]);
                product
            };
            let mut errors = Vec::new();
            let mut leaves = HashSet::new();
            for (iteration, (theirs, ours)) in run.first.iter().zip(&run.second).enumerate() {
                for (q, p) in theirs.1.iter().zip(product(iteration, &theirs.0, theirs.1.len())) {
                    assert!(
                        leaves.insert((*q ^ p).0),
                        "{width:?}: a leaf of iteration {iteration} was there"
                    );
                }
                for (q, t) in theirs.1.iter().zip(&ours.1) {
                    assert!(
                        q.0 & mask == 0 && *t == *q ^ sums[(t.0 & mask) as usize],
                        "{width:?} {iteration}"
                    );
                }
                let product = product(iteration, &ours.0, ours.1.len());
                let e: Vec<u128> = ours.1.iter().zip(&product).map(|(t, p)| (*t ^ *p).0 & mask).collect();
                let mut found = vec![0u128; e.len() / lpn.bin()];
                for (i, e) in e.iter().enumerate().filter(|(_, e)| **e != 0) {
                    let (bin, row) = (i / lpn.bin(), i % lpn.bin() / LANES);
                    assert!(row as u64 == ours.2[bin], "{width:?}: an error in row {row} of bin {bin}");
                    found[bin] |= e << (4 * (i % LANES));
                }
                errors.push(found);
            }
            for (i, pair) in run.second.windows(2).enumerate() {
                let same = pair[0].2.iter().zip(&pair[1].2).filter(|(a, b)| a == b).count();
                // One in 64 is the same by chance.
                let most = pair[0].2.len().min(pair[1].2.len());
                assert!(
                    if (i + 1) % 3 == 0 { same < most / 4 } else { same == most },
                    "{i}: {same} of {most}"
                );
                // Values of four or sixteen bits: one in sixteen is the same by chance, or fewer.
                let (a, b) = (&errors[i], &errors[i + 1]);
                let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
                assert!(same < a.len().min(b.len()) / 3, "{i}: {same} values again");
            }
        }
    }
}
