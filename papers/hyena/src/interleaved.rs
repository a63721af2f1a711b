//! Channels interleaved in SIMD slots: weights that are constant on each channel are then plaintexts of a small subring.
//!
//! c_n channels share a ciphertext, h = c_n/2 of them each of its two rows (where c_n is 1, the rows hold two tiles of one channel):
//!
//! ```text
//! slot = place·h + channel        within a row of N/2; place as in [`Windows`]
//! ```
//!
//! So a plaintext that is constant on each channel repeats every h slots. It is one of Z\[X^(N/D)\], D = c_n or 4 for two channels: D
//! coefficients, and a product with it is a product with one number on each of D stretches of a ciphertext
//! ([`Subring`](jaguar_ring::he::rns::Subring)). Weights stay numbers, and no pattern is needed.
//!
//! **Rotations.** The output in channel j of row r is `Σ_{u, v, o} w·x[place + o]` over the taps o and the channels (j + u) mod h of row
//! r ^ v. u = a + b·B, with *baby steps* a below B and *giant steps* b and v. The input is rotated by step·h + a; behind the sum all of
//! a giant step's sum is rotated by b·B, and rows are exchanged if v. A rotation of channels wraps: where j + u is h or more, the
//! channel comes from the next place. There step is o − 1 in place of o, which is one more rotation for each row of a kernel:
//!
//! ```text
//! sum_{b,v}[r ^ v][place·h + i] = Σ_{a, step} f(i)·x[r ^ v][(place + step)·h + i + a],   j = i − b·B mod h, step = o − [j + u >= h]
//! ```
//!
//! (A window of one place is repeated in all places: then nothing wraps.)

use std::collections::BTreeSet;
use std::ops::Range;

use jaguar_graph::network::{Linear, Shape};
use jaguar_ring::he::rns::{rotation, row_swap};
use jaguar_ring::modular::slices::BLOCK;
use zeroize::Zeroizing;

use super::windows::{Windows, in_windows};

/// A layer's places in slots, channels interleaved.
#[derive(Clone, Debug, PartialEq)]
pub struct Interleaved {
    windows: Windows,
    /// How far each tap reads behind an output's place, `[k_h][k_w]`.
    taps: Vec<usize>,
    /// N: how many slots a ciphertext has.
    n: usize,
    /// c_n: channels in a ciphertext, a power of two.
    channels: usize,
    /// Tiles that share a ciphertext: two where c_n is 1, one elsewhere.
    together: usize,
    /// B: baby steps, a power of two of up to h.
    babies: usize,
    /// All rotations of inputs, ascending.
    turns: Vec<Turn>,
    /// What the server does for a group of tiles.
    work: InterleavedWork,
}

/// What the server does with each group of tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterleavedWork {
    /// Products of ciphertexts with numbers.
    pub(crate) products: usize,
    /// Sums of them, each for a giant step of an output block.
    pub(crate) sums: usize,
    /// Of these, how many are moved.
    pub(crate) moved: usize,
    /// The sums of one output block, at most, and products in them.
    pub(crate) most: [usize; 2],
    /// Products in one sum, at most.
    pub(crate) longest: usize,
    /// Products of one output block with inputs that are rotated, at most.
    pub(crate) turned: usize,
}

/// A rotation of inputs, before the products: a baby step and a step of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    baby: usize,
    step: usize,
}

/// A rotation behind the products: b and v.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Giant {
    b: usize,
    v: usize,
}

/// A sum: the part of an output block that a giant step moves to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) block: usize,
    pub(crate) giant: Giant,
    /// Of what: input blocks and, by place in [`Interleaved::turns`], how they are rotated.
    pub(crate) terms: Vec<(usize, usize)>,
}

/// A term of sums: an input block, a baby step, and the taps of its step, without and with a wrap.
pub(crate) struct Term {
    input: usize,
    baby: usize,
    taps: [Option<usize>; 2],
}

/// Where a slot's weight comes from: an output channel, an input channel, a tap.
type Weight = (usize, usize, usize);

impl Interleaved {
    /// All ways to pack a layer into `n` slots, by number of channels in a ciphertext, then of baby steps, ascending. Empty if the
    /// places that a single output reads do not fit a row, or the spec does not fit its input.
    pub(crate) fn all(n: usize, spec: &Linear, in_shape: Shape) -> Vec<Self> {
        // A kernel as large as its map is a product with a matrix: of each place of each channel as a channel of one place.
        let [channels, height, width] = in_shape;
        let matrix = Linear { kernel: [1; 2], stride: [1; 2], dilation: [1; 2], ..spec.clone() };
        let whole = spec.kernel == [height, width] && spec.pads == [0; 4] && spec.groups == 1;
        let whole = whole && spec.dilation == [1; 2] && spec.blocks.is_none();
        let (spec, in_shape) =
            if whole { (&matrix, [channels * height * width, 1, 1]) } else { (spec, in_shape) };
        let most = in_shape[0].max(spec.out_channels).next_power_of_two().min(n / BLOCK).max(2);
        let mut fewest = usize::MAX;
        let mut all = Vec::new();
        for log in 0..=most.ilog2() {
            let (channels, together) = (1 << log, if log == 0 { 2 } else { 1 });
            let row = (channels / 2).max(1);
            let Some(windows) = Windows::new(spec, in_shape, n / 2 / row) else { break };
            let taps = windows.taps();
            let (turns, work) = (Vec::new(), InterleavedWork::default());
            let first = Self { windows, taps, n, channels, together, babies: 1, turns, work };
            // More channels in smaller tiles, only if fewer slots are empty.
            let count = first.ciphertexts() + first.responses();
            if first.tile_count() > 1 && count >= fewest {
                continue;
            }
            fewest = fewest.min(count);
            all.extend((0..log.max(1)).map(|baby| {
                let packing = Self { babies: 1 << baby, ..first.clone() };
                let (turns, work) = packing.counted();
                Self { turns, work, ..packing }
            }));
        }
        all
    }

    in_windows!();

    /// c_n: channels in a ciphertext.
    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Ciphertexts of a group, from the client.
    pub(crate) fn in_blocks(&self) -> usize {
        self.in_shape()[0].div_ceil(self.channels)
    }

    /// Ciphertexts of a group, of the answer.
    pub(crate) fn out_blocks(&self) -> usize {
        self.spec().out_channels.div_ceil(self.channels)
    }

    /// Every figure that both parties must have alike.
    pub(crate) fn figures(&self) -> Vec<u64> {
        let own = [self.n, self.channels, self.babies];
        own.into_iter().chain(self.windows.figures()).map(|v| v as u64).collect()
    }

    /// D: the dimension of the plaintexts' subring.
    pub(crate) fn dimension(&self) -> usize {
        if self.channels == 1 { 1 } else { self.channels.max(4) }
    }

    pub(crate) fn work(&self) -> InterleavedWork {
        self.work
    }

    /// h: channels of a row.
    fn row(&self) -> usize {
        (self.channels / 2).max(1)
    }

    /// How many places a rotation by h steps goes through until it is back.
    fn places(&self) -> usize {
        if self.repeats() { 1 } else { self.n / 2 / self.row() }
    }

    /// Whether all places hold the same one.
    fn repeats(&self) -> bool {
        self.windows.area() == 1 && self.channels > 1
    }

    // ---- Rotations ----

    /// The steps of a rotation of channels of which some do not wrap, or do: `met`. Ascending.
    fn steps(&self, met: [bool; 2]) -> Vec<usize> {
        let places = self.places();
        let each = |wrap: usize| self.taps.iter().map(move |tap| (tap + places - wrap) % places);
        let mut steps: Vec<usize> = (0..2).filter(|&wrap| met[wrap]).flat_map(each).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// All rotations of inputs, ascending.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The giant steps.
    fn giants(&self) -> impl Iterator<Item = Giant> + use<> {
        let (count, rows) = (self.row() / self.babies, self.channels.min(2));
        (0..rows).flat_map(move |v| (0..count).map(move |b| Giant { b, v }))
    }

    /// By how many slots inputs are rotated.
    pub(crate) fn turned_by(&self, Turn { baby, step }: Turn) -> usize {
        step * self.row() + baby
    }

    /// The automorphisms of all rotations of inputs. The one that leaves everything in its place is 1.
    pub(crate) fn turn_elements(&self) -> Vec<usize> {
        self.turns.iter().map(|&turn| rotation(self.n, self.turned_by(turn) as i64)).collect()
    }

    /// By how many slots a giant step's sum is rotated, and whether its rows are exchanged.
    pub(crate) fn moved_by(&self, Giant { b, v }: Giant) -> (usize, bool) {
        (b * self.babies, v == 1)
    }

    /// The automorphism that moves a giant step's sum; `None` if it stays.
    pub(crate) fn giant_element(&self, giant: Giant) -> Option<usize> {
        let (by, swapped) = self.moved_by(giant);
        let turn = rotation(self.n, by as i64);
        let element = if swapped { turn * row_swap(self.n) % (2 * self.n) } else { turn };
        (element != 1).then_some(element)
    }

    /// The automorphisms that a layer takes.
    pub(crate) fn elements(&self) -> Vec<usize> {
        let turns = self.turn_elements().into_iter().filter(|&element| element != 1);
        // Without groups the first block has as many channels as any other.
        let blocks = if self.spec().groups == 1 { 1 } else { self.out_blocks() };
        let taken = |giant: &Giant| {
            (0..blocks).any(|block| self.terms(block, *giant, self.inputs_of(block)).next().is_some())
        };
        turns.chain(self.giants().filter(taken).filter_map(|giant| self.giant_element(giant))).collect()
    }

    // ---- Sums ----

    /// The channels of output block `block`.
    fn outputs_in(&self, block: usize) -> Range<usize> {
        block * self.channels..((block + 1) * self.channels).min(self.spec().out_channels)
    }

    /// The output and the input channel that meet at slot i of row `row` in a rotation of channels by u, into output block `block`
    /// and from input block `input`, and whether it wraps there; `None` if there is none, or the one does not read the other.
    fn pair(
        &self,
        block: usize,
        input: usize,
        Giant { b, v }: Giant,
        u: usize,
        [row, i]: [usize; 2],
    ) -> Option<(usize, usize, bool)> {
        // Of all weights in every query: h is a power of two, and no division is made.
        let h = self.row();
        let j = (i + h - b * self.babies) & (h - 1);
        let out = block * self.channels + (row ^ v) * h + j;
        let channel = input * self.channels + row * h + ((j + u) & (h - 1));
        let exist = out < self.spec().out_channels && channel < self.in_shape()[0];
        let met = exist && (self.spec().groups == 1 || self.windows.reads(out).contains(&channel));
        met.then_some((out, channel, j + u >= h))
    }

    /// Whether a rotation of channels brings any pair together that does not wrap, and one that does.
    fn meets(&self, block: usize, input: usize, giant: Giant, u: usize) -> [bool; 2] {
        if self.spec().groups == 1 {
            // Of each row the first channels exist: the first output reads channel u, and output h - u is the first that wraps.
            let h = self.row();
            let in_row = |count: usize, row: usize| count.saturating_sub(row * h).min(h);
            let [outputs, inputs] =
                [self.outputs_in(block).len(), self.in_shape()[0] - input * self.channels];
            let rows =
                (0..self.channels.min(2)).map(|row| [in_row(outputs, row ^ giant.v), in_row(inputs, row)]);
            return rows.fold([false; 2], |met, [outputs, inputs]| {
                [met[0] || (outputs > 0 && inputs > u), met[1] || (outputs + u > h && inputs > 0)]
            });
        }
        let mut met = [false; 2];
        for at in (0..self.channels.min(2)).flat_map(|row| (0..self.row()).map(move |i| [row, i])) {
            if let Some((_, _, wraps)) = self.pair(block, input, giant, u, at) {
                met[usize::from(wraps)] = true;
                if met == [true; 2] {
                    break;
                }
            }
        }
        met
    }

    /// The input blocks that an output block reads.
    fn inputs_of(&self, block: usize) -> Range<usize> {
        let outputs = self.outputs_in(block);
        let read = self.windows.reads(outputs.start).start..self.windows.reads(outputs.end - 1).end;
        read.start / self.channels..read.end.div_ceil(self.channels)
    }

    /// What an output block's sum for a giant step is of: these input blocks, and how they are rotated.
    fn terms(
        &self,
        block: usize,
        giant: Giant,
        inputs: Range<usize>,
    ) -> impl Iterator<Item = (usize, Turn)> + '_ {
        let of = move |input: usize, baby: usize| {
            let steps = self.steps(self.meets(block, input, giant, baby + giant.b * self.babies));
            steps.into_iter().map(move |step| (input, Turn { baby, step }))
        };
        inputs.flat_map(move |input| (0..self.babies).flat_map(move |baby| of(input, baby)))
    }

    /// The sums of output block `block`.
    pub(crate) fn sums(&self, block: usize) -> Vec<Sum> {
        let at = |turn: Turn| self.turns.binary_search(&turn).expect("the turns are those of all terms");
        let inputs = self.inputs_of(block);
        let sum = |giant: Giant| {
            let terms =
                self.terms(block, giant, inputs.clone()).map(|(input, turn)| (input, at(turn))).collect();
            Sum { block, giant, terms }
        };
        self.giants().map(sum).filter(|sum| !sum.terms.is_empty()).collect()
    }

    /// All rotations of inputs, and the work of a group of tiles.
    fn counted(&self) -> (Vec<Turn>, InterleavedWork) {
        // By what is met, the steps of a rotation of channels; by baby step, which of these it takes.
        let steps = [[false; 2], [true, false], [false, true], [true; 2]].map(|met| self.steps(met));
        let mut taken = vec![[false; 4]; self.babies];
        let mut of = |block: usize| {
            // Sums, products, the longest sum's products, sums that are moved, products with rotated inputs.
            let mut count = [0; 5];
            let inputs = self.inputs_of(block);
            // Without groups all input blocks but the last are alike.
            let counted: Vec<(usize, usize)> = match self.spec().groups {
                1 if inputs.len() > 1 => vec![(inputs.start, inputs.len() - 1), (inputs.end - 1, 1)],
                _ => inputs.map(|input| (input, 1)).collect(),
            };
            for giant in self.giants() {
                let mut products = 0;
                for &(input, times) in &counted {
                    for (baby, taken) in taken.iter_mut().enumerate() {
                        let met = self.meets(block, input, giant, baby + giant.b * self.babies);
                        let met = usize::from(met[0]) + 2 * usize::from(met[1]);
                        taken[met] = true;
                        let stays = baby == 0 && steps[met].first() == Some(&0);
                        products += times * steps[met].len();
                        count[4] += times * (steps[met].len() - usize::from(stays));
                    }
                }
                let is_moved = self.giant_element(giant).is_some();
                count[0] += usize::from(products > 0);
                count[1] += products;
                count[2] = count[2].max(products);
                count[3] += usize::from(products > 0 && is_moved);
            }
            count
        };
        let blocks = self.out_blocks();
        // Without groups all blocks but the last are alike.
        let counts: Vec<([usize; 5], usize)> = match self.spec().groups {
            1 => vec![(of(0), blocks - 1), (of(blocks - 1), 1)],
            _ => (0..blocks).map(|block| (of(block), 1)).collect(),
        };
        let total = |i: usize| counts.iter().map(|(count, times)| count[i] * times).sum();
        let [sums, products, longest, turned] =
            [0, 1, 2, 4].map(|i| counts.iter().map(|(count, _)| count[i]).max().unwrap_or(0));
        let work = InterleavedWork {
            sums: total(0),
            products: total(1),
            moved: total(3),
            most: [sums, products],
            longest,
            turned,
        };
        let of = |(baby, taken): (usize, &[bool; 4])| -> BTreeSet<Turn> {
            let steps = steps.iter().zip(taken).filter_map(|(steps, taken)| taken.then_some(steps));
            steps.flatten().map(|&step| Turn { baby, step }).collect()
        };
        (taken.iter().enumerate().flat_map(of).collect(), work)
    }

    /// Where the weights of a term of sums come from: of an input block, and a rotation by its place in [`turns`](Self::turns).
    pub(crate) fn term(&self, input: usize, turn: usize) -> Term {
        let (turn, places) = (self.turns[turn], self.places());
        let tap = |wrap: usize| self.taps.iter().position(|tap| tap % places == (turn.step + wrap) % places);
        Term { input, baby: turn.baby, taps: [0, 1].map(tap) }
    }

    /// The weight of a term of a sum at a slot of the subring, counted row by row; `None` where it is zero.
    pub(crate) fn weight(&self, sum: &Sum, term: &Term, slot: usize) -> Option<Weight> {
        let each = self.dimension().div_ceil(2);
        let u = term.baby + sum.giant.b * self.babies;
        let at = [usize::from(slot >= each), slot & (each - 1) & (self.row() - 1)];
        let (out, channel, wraps) = self.pair(sum.block, term.input, sum.giant, u, at)?;
        Some((out, channel, term.taps[usize::from(wraps)]?))
    }

    // ---- Values and slots ----

    /// By channel of a block, its window of group `group`, and its first slot; `h` apart.
    fn channel_slots(
        &self,
        group: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (row, half, together, tiles) = (self.row(), self.n / 2, self.together, self.tile_count());
        (0..self.channels.max(together)).filter_map(move |s| {
            let (window, channel) = if together == 2 { (group * 2 + s, 0) } else { (group, s) };
            let slot = s / row * half + s % row;
            (window < tiles && channel < count).then_some((window, channel, slot))
        })
    }

    /// Writes a group's block of an input `[C, H, W]` into its slots, which are zero.
    pub(crate) fn write_inputs(&self, group: usize, block: usize, x: &[u64], slots: &mut [u64]) {
        let first = block * self.channels;
        let mut window = Zeroizing::new(vec![0; self.windows.area()]);
        for (number, channel, slot) in self.channel_slots(group, self.in_shape()[0] - first) {
            window.fill(0);
            self.windows.write(number, first + channel, x, &mut window);
            let end = (slot / (self.n / 2) + 1) * (self.n / 2);
            let places = slots[slot..end].iter_mut().step_by(self.row());
            match self.repeats() {
                true => places.for_each(|place| *place = window[0]),
                false => places.zip(window.iter()).for_each(|(place, &value)| *place = value),
            }
        }
    }

    /// The outputs of a response: slot, and place in `[C, H, W]`.
    pub(crate) fn outputs_of(&self, group: usize, block: usize) -> Vec<(usize, usize)> {
        let channels = self.outputs_in(block);
        let outputs = self.channel_slots(group, channels.len()).flat_map(|(window, channel, slot)| {
            let outputs = self.windows.outputs(window, channels.start + channel);
            outputs.map(move |(place, at)| (slot + place * self.row(), at))
        });
        outputs.collect()
    }
}
