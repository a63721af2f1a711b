//! CirEncode: where channels sit in SIMD slots, so that a product with a plaintext is a product with a whole block of
//! weights (PrivCirNet, sections 3.2 and 3.3).
//!
//! N slots are two rows, cut into *parts* of L = b·S. A part holds one block of b channels, each with a window of at most
//! S places ([`Windows`]), as the transform of the polynomial
//!
//! ```text
//! Σ over channels j of the block and places q of the window: x[j][q]·X^(j·S + q)
//! ```
//!
//! modulo X^L − 1 (circulant blocks) or X^L + 1 (skew ones, and dense layers: b = 1). Products of slots are products of
//! these polynomials, and weights are `Σ over k below b and taps t: w_k[t]·X^(k·S − t)`: coefficient j·S + q of the product
//! is `Σ over k and t: ±w_k[t]·x[j − k][q + t]`, the block times the channels, convolved. (q + t stays in the window.)
//!
//! **Across blocks** a layer is a matrix product whose entries are blocks. Of M parts, diagonal d takes the block in part
//! q + d to part q. The baby-step giant-step method turns inputs by d < B and sums by multiples of B: B − 1 rotations for
//! each input ciphertext, M/B − 1 for each output ciphertext. Parts are added row by row: d of M/2 and more exchanges the
//! rows.
//!
//! **Two windows together.** A layer with few blocks may leave parts empty. Then the two rows may hold the same channels of
//! two windows: M is half as large, and d turns rows only.

use jaguar_graph::network::{BlockKind, Linear, Shape, block_size};
use jaguar_ring::Kernel;
use jaguar_ring::he::rns::{rotation, row_swap};
use jaguar_ring::modular::{self, Factor, Modulus, Ntt};

use crate::windows::{Windows, in_windows};

/// Shortest transform of a part: shorter ones are not in [`Ntt`].
const LEAST_PART: usize = *modular::LENGTHS.start();

/// A layer's places in slots.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockPacking {
    windows: Windows,
    /// N: how many slots a ciphertext has.
    n: usize,
    /// S: the map of a channel takes so many slots.
    map: usize,
    /// Windows that share a ciphertext: one in each row, or one.
    together: usize,
    /// B: a power of two.
    babies: usize,
    /// What a group of windows takes.
    work: GroupWork,
}

/// Operations of one group of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupWork {
    /// Products with plaintexts: as many plaintexts there are.
    pub products: usize,
    /// Input ciphertexts that are turned at all.
    pub turned: usize,
    /// Baby steps other than 0.
    pub babies: usize,
    /// Giant steps other than 0.
    pub giants: usize,
}

/// How much homomorphic work a layer is, in operations of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Products of a ciphertext with a plaintext.
    pub products: usize,
    /// Rotations of ciphertexts in a query.
    pub rotations: usize,
    /// Ciphertexts of a query, up and down together.
    pub ciphertexts: usize,
}

/// One product of an output ciphertext's sum: the input ciphertext and the baby step that it is turned by.
pub type Term = (usize, usize);

impl BlockPacking {
    /// All ways to pack a layer into `n` slots: by S, by windows together, by B. Empty if the places that one output reads
    /// do not fit a part, or the spec does not fit its input.
    pub fn all(n: usize, spec: &Linear, in_shape: Shape) -> Vec<Self> {
        let size = block_size(spec);
        let least = LEAST_PART.div_ceil(size);
        let maps = (0..).map(|log| 1usize << log).skip_while(|&map| map < least);
        let maps = maps.take_while(|map| map * size <= n / 2);
        let windows = |map: usize| Some((map, Windows::new(spec, in_shape, map)?));
        let mut packings = Vec::new();
        for (map, windows) in maps.filter_map(windows) {
            for together in [1, 2] {
                if together > windows.count() {
                    continue;
                }
                let parts = n / (together * map * size);
                for log in 0..=parts.ilog2() {
                    let (windows, work) = (windows.clone(), GroupWork::default());
                    let mut packing = Self { windows, n, map, together, babies: 1 << log, work };
                    packing.work = packing.count();
                    packings.push(packing);
                }
            }
        }
        packings
    }

    /// The windows that the map is cut into.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    in_windows!();

    /// b: channels of a block of weights.
    pub(crate) fn block_size(&self) -> usize {
        block_size(self.spec())
    }

    /// How blocks repeat; a dense layer's, of one channel, are of either kind.
    pub(crate) fn kind(&self) -> BlockKind {
        self.spec().blocks.map_or(BlockKind::Skew, |blocks| blocks.kind)
    }

    /// L: slots of a part.
    pub(crate) fn part(&self) -> usize {
        self.block_size() * self.map
    }

    /// M: parts that diagonals run over.
    pub(crate) fn parts(&self) -> usize {
        self.n / (self.together * self.part())
    }

    /// B: inputs are turned by d < B.
    pub(crate) fn babies(&self) -> usize {
        self.babies
    }

    /// Channels in a ciphertext, of one window.
    pub(crate) fn channels(&self) -> usize {
        self.parts() * self.block_size()
    }

    /// Blocks of input channels and of output channels.
    fn blocks(&self) -> [usize; 2] {
        [self.in_shape()[0], self.spec().out_channels].map(|channels| channels.div_ceil(self.block_size()))
    }

    /// Ciphertexts of a group, from the client.
    pub(crate) fn in_blocks(&self) -> usize {
        self.blocks()[0].div_ceil(self.parts())
    }

    /// Ciphertexts of a group, of the answer.
    pub(crate) fn out_blocks(&self) -> usize {
        self.blocks()[1].div_ceil(self.parts())
    }

    /// Every figure that both parties must have alike.
    pub(crate) fn figures(&self) -> Vec<u64> {
        let own = [self.n, self.map, self.together, self.babies];
        own.into_iter().chain(self.windows.figures()).map(|v| v as u64).collect()
    }

    // ---- Blocks and parts ----

    /// Parts of a row that diagonals run over.
    fn row(&self) -> usize {
        if self.together == 2 { self.parts() } else { self.parts() / 2 }
    }

    /// The part that `d` leads to from part `q`.
    fn moved(&self, q: usize, d: usize) -> usize {
        let row = self.row();
        ((q / row) ^ (d / row)) * row + (q + d) % row
    }

    /// The part that `d` leads to `s` from.
    fn moved_back(&self, s: usize, d: usize) -> usize {
        let row = self.row();
        ((s / row) ^ (d / row)) * row + (s + row - d % row) % row
    }

    /// The pair of an output and an input block, each by its number in the layer, that meet in part `r` of input
    /// ciphertext `input` turned by `baby`, if `giant` then takes the sum to output ciphertext `output`. `None` if there
    /// is none.
    pub(super) fn pair(
        &self,
        output: usize,
        giant: usize,
        (input, baby): Term,
        r: usize,
    ) -> Option<[usize; 2]> {
        let [in_blocks, out_blocks] = self.blocks();
        let out = output * self.parts() + self.moved_back(r, giant);
        let block = input * self.parts() + self.moved(r, baby);
        (out < out_blocks && block < in_blocks && self.reads(out, block)).then_some([out, block])
    }

    /// Whether an output block reads an input block. (Where there are groups, blocks are channels.)
    fn reads(&self, out: usize, block: usize) -> bool {
        let groups = self.spec().groups;
        groups == 1 || out / (self.spec().out_channels / groups) == block / (self.in_shape()[0] / groups)
    }

    /// How many blocks ciphertext `number` holds, of `blocks` in all: they fill its first parts.
    fn held(&self, blocks: usize, number: usize) -> usize {
        (blocks - number * self.parts()).min(self.parts())
    }

    /// By diagonal, whether output ciphertext `output` reads anything of input ciphertext `input` by it.
    fn diagonals(&self, output: usize, input: usize) -> Vec<bool> {
        let (parts, row) = (self.parts(), self.row());
        let [in_blocks, out_blocks] = self.blocks();
        let (inputs, outputs) = (self.held(in_blocks, input), self.held(out_blocks, output));
        let mut read = vec![false; parts];
        let mut add = |q: usize, s: usize| {
            read[((q / row) ^ (s / row)) * row + (s % row + row - q % row) % row] = true;
        };
        if self.spec().groups == 1 {
            // Within a pair of rows all differences from the last output to the first input and back.
            for (q, s) in (0..parts / row).flat_map(|q| (0..parts / row).map(move |s| (q * row, s * row))) {
                let (last_q, last_s) = (outputs.min(q + row), inputs.min(s + row));
                if last_q > q && last_s > s {
                    (q..last_q).for_each(|q| add(q, s));
                    (s..last_s).for_each(|s| add(q, s));
                }
            }
        } else {
            let each = self.in_shape()[0] / self.spec().groups;
            let outs = self.spec().out_channels / self.spec().groups;
            for q in 0..outputs {
                let first = (output * parts + q) / outs * each;
                let blocks = first.max(input * parts)..(first + each).min(input * parts + inputs);
                blocks.for_each(|block| add(q, block - input * parts));
            }
        }
        read
    }

    /// What output ciphertext `output` sums up, by giant step, ascending; without what brings no pair together.
    pub(crate) fn terms(&self, output: usize) -> Vec<(usize, Vec<Term>)> {
        let mut by_giant = vec![Vec::new(); self.parts() / self.babies];
        for input in 0..self.in_blocks() {
            for (d, _) in self.diagonals(output, input).into_iter().enumerate().filter(|(_, read)| *read) {
                by_giant[d / self.babies].push((input, d % self.babies));
            }
        }
        let giants = by_giant.into_iter().enumerate().map(|(i, terms)| (i * self.babies, terms));
        giants.filter(|(_, terms)| !terms.is_empty()).collect()
    }

    /// The baby steps that any output ciphertext reads input ciphertext `input` by, ascending.
    pub(crate) fn baby_steps(&self, input: usize) -> Vec<usize> {
        let mut read = vec![false; self.babies];
        for output in self.kinds(self.out_blocks()) {
            let diagonals = self.diagonals(output, input).into_iter().enumerate();
            diagonals.filter(|(_, used)| *used).for_each(|(d, _)| read[d % self.babies] = true);
        }
        (0..self.babies).filter(|&baby| read[baby]).collect()
    }

    /// Ciphertexts that stand for all of so many: without groups all but the last one are alike.
    fn kinds(&self, count: usize) -> Vec<usize> {
        if self.spec().groups == 1 && count > 1 { vec![0, count - 1] } else { (0..count).collect() }
    }

    /// The steps that ciphertexts are turned by, ascending, without 0.
    fn steps(&self) -> Vec<usize> {
        let mut steps: Vec<usize> =
            self.kinds(self.in_blocks()).into_iter().flat_map(|i| self.baby_steps(i)).collect();
        let giants = self.kinds(self.out_blocks()).into_iter().flat_map(|output| self.terms(output));
        steps.extend(giants.map(|(giant, _)| giant));
        steps.retain(|&step| step != 0);
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The automorphism that moves what is in part `moved(q, d)` into part q, for all q.
    pub(crate) fn element(&self, d: usize) -> usize {
        let row = self.row();
        let turn = rotation(self.n, ((d % row) * self.part()) as i64);
        if d / row == 0 { turn } else { turn * row_swap(self.n) % (2 * self.n) }
    }

    /// The automorphisms that it takes.
    pub(crate) fn elements(&self) -> Vec<usize> {
        self.steps().into_iter().map(|step| self.element(step)).collect()
    }

    /// Counts what a group takes.
    fn count(&self) -> GroupWork {
        // By ciphertext, each kind as often as it stands for others.
        let times = |count: usize| -> Vec<(usize, usize)> {
            match self.kinds(count)[..] {
                [first, last] if count > 2 => vec![(first, count - 1), (last, 1)],
                ref all => all.iter().map(|&i| (i, 1)).collect(),
            }
        };
        let mut work = GroupWork::default();
        for (input, times) in times(self.in_blocks()) {
            let babies = self.baby_steps(input).into_iter().filter(|&baby| baby != 0).count();
            work.turned += times * usize::from(babies > 0);
            work.babies += times * babies;
        }
        for (output, times) in times(self.out_blocks()) {
            let terms = self.terms(output);
            work.giants += times * terms.iter().filter(|(giant, _)| *giant != 0).count();
            work.products += times * terms.iter().map(|(_, terms)| terms.len()).sum::<usize>();
        }
        work
    }

    /// What a group of windows takes.
    pub fn work(&self) -> GroupWork {
        self.work
    }

    /// How many operations and ciphertexts a query takes.
    pub fn counts(&self) -> Counts {
        let GroupWork { products, babies, giants, .. } = self.work;
        Counts {
            products: self.groups() * products,
            rotations: self.groups() * (babies + giants),
            ciphertexts: self.ciphertexts() + self.responses(),
        }
    }

    // ---- Values and slots ----

    /// The window in row `row` of group `group` (where a ciphertext holds two), or the only one.
    fn window_at(&self, group: usize, s: usize) -> Option<usize> {
        let number = group * self.together + s / self.parts();
        (number < self.windows.count()).then_some(number)
    }

    /// Writes a group's input ciphertext of `x`, `[C, H, W]`, as coefficients of its parts' polynomials, which are zero.
    pub(crate) fn write_inputs(&self, group: usize, block: usize, x: &[u64], coefficients: &mut [u64]) {
        let size = self.block_size();
        for (s, part) in coefficients.chunks_exact_mut(self.part()).enumerate() {
            let Some(window) = self.window_at(group, s) else { continue };
            let first = (block * self.parts() + s % self.parts()) * size;
            for (channel, map) in (first..self.in_shape()[0]).zip(part.chunks_exact_mut(self.map)) {
                self.windows.write(window, channel, x, map);
            }
        }
    }

    /// The outputs of a response: place among the coefficients of all parts, and in `[C, H, W]`.
    pub(crate) fn outputs_of(&self, group: usize, block: usize) -> Vec<(usize, usize)> {
        let size = self.block_size();
        let mut places = Vec::new();
        for s in 0..self.n / self.part() {
            let Some(window) = self.window_at(group, s) else { continue };
            let first = (block * self.parts() + s % self.parts()) * size;
            for (j, channel) in (first..self.spec().out_channels).take(size).enumerate() {
                let at = s * self.part() + j * self.map;
                places.extend(self.windows.outputs(window, channel).map(|(q, place)| (at + q, place)));
            }
        }
        places
    }

    /// The plaintext of a term, as coefficients of its parts' polynomials modulo `m`: `weight(out, channel, tap)` are the
    /// layer's weights.
    pub(crate) fn weights(
        &self,
        m: &Modulus,
        output: usize,
        giant: usize,
        term: Term,
        weight: impl Fn(usize, usize, usize) -> i64,
    ) -> Vec<u64> {
        let (size, taps, part) = (self.block_size(), self.windows.taps(), self.part());
        let skew = self.kind() == BlockKind::Skew;
        let mut coefficients = vec![0; self.n];
        for (s, to) in coefficients.chunks_exact_mut(part).enumerate() {
            let Some([out, block]) = self.pair(output, giant, term, s % self.parts()) else { continue };
            for k in 0..size {
                for (tap, &reach) in taps.iter().enumerate() {
                    // X^(k·S − reach); X^L is 1 or −1.
                    let w = m.reduce_signed(weight(out * size + k, block * size, tap));
                    let (at, w) = match (k * self.map).checked_sub(reach) {
                        Some(at) => (at, w),
                        None => (part + k * self.map - reach, if skew { m.negate(w) } else { w }),
                    };
                    to[at] = m.add(to[at], w);
                }
            }
        }
        coefficients
    }
}

/// The transform of parts: coefficients modulo X^L − 1 or X^L + 1 to values and back.
#[derive(Clone, Debug)]
pub struct Parts {
    ntt: Ntt,
    /// Powers of a root of X^L = −1 and of its inverse, which take X^L − 1 to X^L + 1; for circulant blocks.
    twist: Option<[Vec<Factor>; 2]>,
}

impl Parts {
    /// Parts of `part` slots modulo `p`; `None` if p is no prime that is 1 modulo 2L.
    pub(crate) fn new(kernel: Kernel, part: usize, kind: BlockKind, p: u64) -> Option<Self> {
        let ntt = Ntt::new(part, p)?.on(kernel);
        let m = *ntt.modulus();
        // The value of X at the root.
        let mut x = vec![0; part];
        x[1] = 1;
        ntt.forward(&mut x);
        let root = x[ntt.index(1)];
        let powers = |root: u64| -> Vec<Factor> {
            let powers = std::iter::successors(Some(1), |&power| Some(m.mul(power, root)));
            powers.take(part).map(|power| m.factor(power)).collect()
        };
        let twist = (kind == BlockKind::Circulant).then(|| Some([powers(root), powers(m.inverse(root)?)]));
        Some(Self { ntt, twist: twist.flatten() })
    }

    fn turn(&self, values: &mut [u64], back: usize) {
        let Some(powers) = self.twist.as_ref().map(|twist| &twist[back]) else { return };
        let m = self.ntt.modulus();
        values.iter_mut().zip(powers).for_each(|(value, &power)| *value = m.mul_factor(*value, power));
    }

    /// Coefficients to values, in every part. Residues below p in and out.
    ///
    /// # Panics
    /// If `slots` is no whole number of parts.
    pub(crate) fn forward(&self, slots: &mut [u64]) {
        for part in slots.chunks_mut(self.ntt.len()) {
            self.turn(part, 0);
            self.ntt.forward(part);
        }
    }

    /// Values to coefficients, in every part. Residues below p in and out.
    ///
    /// # Panics
    /// If `slots` is no whole number of parts.
    pub(crate) fn backward(&self, slots: &mut [u64]) {
        for part in slots.chunks_mut(self.ntt.len()) {
            self.ntt.backward(part);
            self.turn(part, 1);
        }
    }
}
