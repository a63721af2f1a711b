//! The server's half: it holds the weights, and never a secret of the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jaguar_graph::network::{Bias, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::{
    Ciphertext, Coefficients, GaloisKey, Hoisted, JointCiphertext, JointKeys, Poly, Ring, SeededCiphertext,
    Subring, SwitchingKey, Values,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, Stage, pack};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::client::{TOGETHER, checked, encode, joints, seeds};
use super::interleaved::{Interleaved, Sum, Term};
use super::layer::HyenaLayers;
use super::{Encoding, Form, Layer, Places, Tools, response_ring};
use jaguar_linear::backend::{BackendError, BackendParty, ClientKeys, Online, Output};

/// One layer with its weights.
pub(super) struct ServerLayer {
    pub(super) layer: Layer,
    pub(super) fixed: Arc<Fixed>,
    weights: Weights,
    /// Where weights are plaintexts, by output block, then term ([`Terms`]): what memory holds.
    pub(super) plaintexts: Vec<Vec<Poly<Values>>>,
}

/// What layers of one plaintext prime and number of channels share.
pub(super) struct Fixed {
    pub(super) tools: Tools,
    /// The ±1 patterns times k, without the first one, which is constant.
    pub(super) patterns: Vec<Poly<Values>>,
    /// Where channels are interleaved: that of weights.
    subring: Option<Subring>,
}

impl Fixed {
    /// That of `layer`.
    pub(super) fn new(ring: &Ring, layer: &Layer) -> Self {
        let tools = checked(layer.tools(ring));
        let patterns = if layer.form() == Form::WalshHadamard { 1..layer.slots().channels() } else { 0..0 };
        let (p, k) = (layer.modulus, layer.modulus.reduce(layer.factor()));
        let pattern =
            |i: usize| plaintext(ring, layer, &tools, |s| if hadamard(i, s) > 0 { k } else { p.neg(k) });
        let patterns = patterns.map(pattern).collect();
        let subring = match layer.packing() {
            Places::Interleaved(packing) => {
                Some(checked(Subring::new(ring, layer.fitted.plain.p, packing.dimension())))
            }
            Places::Channels(_) | Places::Blocks(_) => None,
        };
        Self { tools, patterns, subring }
    }

    /// Bytes of the patterns.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.patterns.iter().map(|poly| size_of_val(poly.residues())).sum()
    }
}

/// A vector that is constant on parts, as a known factor with small coefficients.
fn plaintext(ring: &Ring, layer: &Layer, tools: &Tools, of: impl Fn(usize) -> u64) -> Poly<Values> {
    factor(ring, tools, Zeroizing::new(layer.slots().on_parts(of)))
}

/// A polynomial that ciphertexts are multiplied by, from what stands at its places.
pub(super) fn factor(ring: &Ring, tools: &Tools, places: Zeroizing<Vec<u64>>) -> Poly<Values> {
    ring.to_values(ring.from_signed(&Zeroizing::new(tools.plain.centred(&tools.encode(places)))))
}

/// What an output block sums up for one diagonal.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) d: usize,
    pub(super) inputs: Vec<usize>,
    /// Where the diagonal's plaintexts begin.
    first: usize,
}

/// Sums of numbers times the same ciphertexts that are made at once, about: memory is read once for all of them.
const SUMS_TOGETHER: usize = 32;

/// Inputs that are rotated at once: keys are read from memory once for all of them.
pub const ROTATED_TOGETHER: usize = 4;

/// Sums of interleaved channels that are made at once, at most, and so many stretches of them, about: each has numbers of its own.
pub(super) const MOST_SUMS: usize = 64;
const STRETCHES: usize = 1 << 12;

/// Words of numbers that are made at once, about, and terms at most: they stay in a cache.
const NUMBERS: usize = 1 << 20;
const MOST_TERMS: usize = 256;

impl ServerLayer {
    /// Takes the weights; encodes them, where they are plaintexts and kept.
    pub(super) fn new(ring: &Ring, layer: &Layer, fixed: Arc<Fixed>, weights: &Weights) -> Self {
        let count = layer.spec().weights_len(layer.in_shape()[0]);
        assert_eq!(Some(weights.weights.len()), count, "weights of another layer");
        let mut server =
            Self { layer: layer.clone(), fixed, weights: weights.clone(), plaintexts: Vec::new() };
        if layer.held {
            let encode = |block: usize| match layer.packing() {
                Places::Blocks(packing) => server.blocks_encoded(ring, packing, block),
                Places::Interleaved(_) => Vec::new(),
                Places::Channels(_) => {
                    let terms = server.terms(block).into_iter();
                    terms.flat_map(|terms| server.encoded(ring, block, &terms)).collect::<Vec<_>>()
                }
            };
            let blocks = if layer.plaintexts() > 0 { layer.packing().out_blocks() } else { 0 };
            server.plaintexts = (0..blocks).into_par_iter().map(encode).collect();
        }
        server
    }

    /// Bytes of weights as plaintexts.
    #[cfg(test)]
    pub(super) fn plaintext_bytes(&self) -> usize {
        self.plaintexts.iter().flatten().map(|poly| size_of_val(poly.residues())).sum()
    }

    /// What it shares with other layers, and bytes of its own: weights as they came, and plaintexts.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> (&Fixed, usize) {
        (&self.fixed, size_of_val(&self.weights.weights[..]) + self.plaintext_bytes())
    }

    /// By diagonal, the input blocks that output block `block` reads.
    pub(super) fn terms(&self, block: usize) -> Vec<Terms> {
        let packing = self.layer.slots();
        let mut next = 0;
        let terms = |(d, inputs): (usize, Vec<usize>)| {
            let first = next;
            next += inputs.len() * packing.taps().len();
            Terms { d, inputs, first }
        };
        packing.diagonals(block).into_iter().map(terms).collect()
    }

    /// The weight of a pair of channels and a tap, its exponent included.
    pub(super) fn weight(&self, out: usize, channel: usize, tap: usize) -> i64 {
        let spec = self.layer.spec();
        let (channels, taps) = (self.layer.in_shape()[0], spec.kernel[0] * spec.kernel[1]);
        let at = match spec.groups {
            1 => out * channels + channel,
            groups => out * (channels / groups) + channel % (channels / groups),
        };
        i64::from(self.weights.weights[at * taps + tap]) << self.weights.exponent(out)
    }

    /// By part s, the weights f of a term.
    pub(super) fn on_parts(&self, block: usize, d: usize, input: usize, tap: usize) -> Vec<i64> {
        let packing = self.layer.slots();
        let of =
            |s| packing.pair(block, input, d, s).map_or(0, |(out, channel)| self.weight(out, channel, tap));
        (0..packing.channels()).map(of).collect()
    }

    /// The plaintexts of a diagonal, by input block, then tap.
    pub(super) fn encoded(&self, ring: &Ring, block: usize, terms: &Terms) -> Vec<Poly<Values>> {
        let taps = self.layer.slots().taps().len();
        let pairs = terms.inputs.iter().flat_map(|&input| (0..taps).map(move |tap| (input, tap)));
        let plaintext = |(input, tap)| {
            let f = Zeroizing::new(self.on_parts(block, terms.d, input, tap));
            plaintext(ring, &self.layer, &self.fixed.tools, |s| self.layer.modulus.from_signed(f[s]))
        };
        pairs.map(plaintext).collect()
    }

    /// The first half of step 4: a ciphertext as it came, with the server's share of its part of `x` added.
    pub(super) fn input(
        &self,
        ring: &Ring,
        (seed, b): &([u8; 32], Vec<u8>),
        index: usize,
        x: &[u64],
    ) -> Ciphertext<Values> {
        let b = ring.from_residues(&pack::unpack(b, ring.words(), self.layer.ring.limb_bits()));
        let mut ciphertext = SeededCiphertext { seed: *seed, b }.expand(ring);
        ciphertext.add_plain(ring, &encode(&self.layer, ring, &self.fixed.tools, index, x));
        ciphertext
    }

    /// The other half, for blocks from `first` on: each rotated by every tap, or by its baby steps.
    pub(super) fn rotated(
        &self,
        ring: &Ring,
        keys: &Keys,
        first: usize,
        ciphertexts: Vec<Ciphertext<Values>>,
    ) -> Vec<Vec<Ciphertext<Values>>> {
        let digits = self.layer.ring.digit_bits;
        let blocks: Vec<(Vec<usize>, Ciphertext<Values>)> =
            (first..).map(|block| self.turn_elements(block)).zip(ciphertexts).collect();
        let alike = blocks.chunk_by(|(x, _), (y, _)| x == y);
        let rotate = |blocks: &[(Vec<usize>, Ciphertext<Values>)]| -> Vec<Vec<Ciphertext<Values>>> {
            let elements = &blocks[0].0;
            let keys: Vec<&GaloisKey> =
                elements.iter().filter(|&&element| element != 1).map(|&element| keys.of(element)).collect();
            let hoisted: Vec<Hoisted> = match keys.len() {
                0 => Vec::new(),
                _ => blocks.iter().map(|(_, c)| Hoisted::new(ring, c, digits)).collect(),
            };
            let mut turned = Hoisted::apply_all(ring, &hoisted, &keys).into_iter();
            let all = |(_, ciphertext): &(_, Ciphertext<Values>)| {
                let mut turned = turned.next().unwrap_or_default().into_iter();
                let of = |&element: &usize| match element {
                    1 => ciphertext.duplicate(),
                    _ => turned.next().expect("one for each key"),
                };
                elements.iter().map(of).collect()
            };
            blocks.iter().map(all).collect()
        };
        alike.flat_map(rotate).collect()
    }

    /// The automorphisms by which block `input` is rotated. The one that leaves everything in its place is 1.
    pub(super) fn turn_elements(&self, input: usize) -> Vec<usize> {
        match self.layer.packing() {
            Places::Channels(packing) => {
                packing.taps().into_iter().map(|tap| packing.tap_element(tap)).collect()
            }
            Places::Interleaved(packing) => packing.turn_elements(),
            Places::Blocks(packing) => {
                packing.baby_steps(input).into_iter().map(|d| packing.element(d)).collect()
            }
        }
    }

    /// Step 5 for some output blocks.
    pub(super) fn evaluate_all(
        &self,
        ring: &Ring,
        keys: &Keys,
        inputs: &[Vec<Ciphertext<Values>>],
        blocks: &[usize],
    ) -> Vec<Ciphertext<Values>> {
        match self.layer.packing() {
            Places::Interleaved(packing) => self.interleaved(ring, keys, packing, inputs, blocks),
            Places::Channels(_) | Places::Blocks(_) => {
                blocks.par_iter().map(|&block| self.evaluate(ring, keys, inputs, block)).collect()
            }
        }
    }

    /// The same for interleaved channels. Sums of different blocks read the same inputs, so many are made together.
    fn interleaved(
        &self,
        ring: &Ring,
        keys: &Keys,
        packing: &Interleaved,
        inputs: &[Vec<Ciphertext<Values>>],
        blocks: &[usize],
    ) -> Vec<Ciphertext<Values>> {
        let threads = rayon::current_num_threads();
        let chunks = sums_together(packing, blocks, threads);
        // Where there are fewer chunks than threads, several share the terms of one.
        let pieces = threads.div_ceil(chunks.len());
        // Sums are added as they come, so that none waits in memory.
        let zero = |_| Mutex::new(Ciphertext { a: ring.zero(), b: ring.zero() });
        let totals: Vec<Mutex<Ciphertext<Values>>> = blocks.par_iter().map(zero).collect();
        chunks.par_iter().for_each(|chunk| {
            let of = |terms: &[(usize, usize)]| {
                self.sums_of_numbers(ring, packing, chunk, terms, |input, turn| &inputs[input][turn])
            };
            let terms = &chunk[0].terms;
            let add = |mut sums: Vec<Ciphertext<Values>>, others: Vec<Ciphertext<Values>>| {
                sums.iter_mut().zip(&others).for_each(|(sum, other)| sum.add_assign(ring, other));
                sums
            };
            let sums = terms.par_chunks(terms.len().div_ceil(pieces)).map(of).reduce_with(add);
            let sums = sums.expect("a sum has terms");
            chunk.par_iter().zip(sums).for_each(|(Sum { block, giant, .. }, sum)| {
                let moved = match packing.giant_element(*giant) {
                    None => sum,
                    Some(element) => sum.apply(ring, keys.of(element)),
                };
                let at = blocks.iter().position(|own| own == block).expect("a sum of one of the blocks");
                totals[at].lock().expect("no thread has panicked").add_assign(ring, &moved);
            });
        });
        totals.into_iter().map(|total| total.into_inner().expect("no thread has panicked")).collect()
    }

    /// What some of their terms add to sums that have the same ones, of inputs by block and rotation.
    pub(super) fn sums_of_numbers<'a>(
        &self,
        ring: &Ring,
        packing: &Interleaved,
        sums: &[Sum],
        terms: &[(usize, usize)],
        inputs: impl Fn(usize, usize) -> &'a Ciphertext<Values>,
    ) -> Vec<Ciphertext<Values>> {
        let (tools, subring) =
            (&self.fixed.tools, self.fixed.subring.as_ref().expect("of interleaved channels"));
        let words = subring.dimension() * ring.limbs() * sums.len();
        let zero = |_: &Sum| Ciphertext { a: ring.zero(), b: ring.zero() };
        let mut totals: Vec<Ciphertext<Values>> = sums.iter().map(zero).collect();
        for terms in terms.chunks((NUMBERS / words).clamp(8, MOST_TERMS)) {
            let width = (terms.len() * sums.len()).next_multiple_of(8);
            let mut slots = Zeroizing::new(vec![0; subring.dimension() * width]);
            let of: Vec<Term> = terms.iter().map(|&(input, turn)| packing.term(input, turn)).collect();
            // Terms last: those of one output channel lie side by side in memory.
            for (slot, &place) in subring.places().iter().enumerate() {
                let slots = &mut slots[place as usize * width..][..width];
                for (row, sum) in sums.iter().enumerate() {
                    for (slots, term) in slots.chunks_mut(sums.len()).zip(&of) {
                        if let Some((out, channel, tap)) = packing.weight(sum, term, slot) {
                            slots[row] = self.layer.modulus.from_signed(self.weight(out, channel, tap));
                        }
                    }
                }
            }
            let factors = subring.encode(ring, &tools.plain, &mut slots, width);
            let own: Vec<&Ciphertext<Values>> =
                terms.iter().map(|&(input, turn)| inputs(input, turn)).collect();
            ring.add_subring_products(&own, &factors, &mut totals);
        }
        totals
    }

    /// Step 5 for one output block: the sum over its diagonals.
    pub(super) fn evaluate(
        &self,
        ring: &Ring,
        keys: &Keys,
        inputs: &[Vec<Ciphertext<Values>>],
        block: usize,
    ) -> Ciphertext<Values> {
        match self.layer.packing() {
            Places::Interleaved(packing) => {
                let mut sums = self.interleaved(ring, keys, packing, inputs, &[block]);
                return sums.pop().expect("one for the block");
            }
            Places::Blocks(packing) => return self.blocks_evaluated(ring, keys, packing, inputs, block),
            Places::Channels(_) => {}
        }
        let terms = self.terms(block);
        let groups = self.groups(&terms);
        let add = |mut sum: Ciphertext<Values>, other: Ciphertext<Values>| {
            sum.add_assign(ring, &other);
            sum
        };
        let diagonals = |&group: &&[Terms]| {
            let own: Vec<&Ciphertext<Values>> =
                group[0].inputs.iter().flat_map(|&input| &inputs[input]).collect();
            let kept = self.plaintexts.get(block).map(|kept| &kept[group[0].first..]);
            let sums = self.sums(ring, &own, block, group, kept);
            let turned = group.iter().zip(sums).map(|(terms, sum)| self.turned(ring, keys, sum, terms.d));
            turned.reduce(add).expect("a group of at least one")
        };
        sum(ring, groups.par_iter().map(diagonals))
    }

    /// Diagonals whose sums are made together, for they read the same inputs.
    pub(super) fn groups<'a>(&self, terms: &'a [Terms]) -> Vec<&'a [Terms]> {
        let rows = if self.layer.form() == Form::WalshHadamard { self.layer.slots().channels() } else { 1 };
        let same = terms.chunk_by(|x, y| x.inputs == y.inputs);
        same.flat_map(|same| same.chunks(SUMS_TOGETHER.div_ceil(rows))).collect()
    }

    /// By diagonal of a group, the sum of its products. `inputs` are those of its terms, by input block, then tap; `kept`
    /// begins with the group's plaintexts, if memory holds them.
    pub(super) fn sums(
        &self,
        ring: &Ring,
        inputs: &[&Ciphertext<Values>],
        block: usize,
        group: &[Terms],
        kept: Option<&[Poly<Values>]>,
    ) -> Vec<Ciphertext<Values>> {
        let of = |terms: &Terms| {
            let kept = kept.map(|kept| &kept[terms.first - group[0].first..]);
            self.by_plaintexts(ring, inputs, block, terms, kept)
        };
        match self.layer.form() {
            Form::Padded => self.by_number(ring, inputs, block, group),
            Form::WalshHadamard => self.by_patterns(ring, inputs, block, group),
            Form::Interleaved | Form::Conventional | Form::Blocks => group.iter().map(of).collect(),
        }
    }

    /// A diagonal's sum, moved to where its outputs are.
    pub(super) fn turned(
        &self,
        ring: &Ring,
        keys: &Keys,
        sum: Ciphertext<Values>,
        d: usize,
    ) -> Ciphertext<Values> {
        match d {
            0 => sum,
            d => sum.apply(ring, keys.of(self.layer.slots().diagonal_element(d))),
        }
    }

    /// Step 6 for the sums of all diagonals of responses with one a half: it and their b halves, packed.
    pub(super) fn respond(
        &self,
        ring: &Ring,
        small: &Ring,
        keys: &Keys,
        sums: Vec<Ciphertext<Values>>,
        cover: &Cover,
    ) -> Vec<Vec<u8>> {
        let wide = response_ring(ring, self.layer.ring.joint_limbs());
        let dropped = |sum: Ciphertext<Values>| without_primes(ring, small, sum.into_coefficients(ring));
        let mut sums = keys.joint.join(&wide, sums.into_iter().map(dropped).collect());
        sums.add_assign(small, &cover.zeros);
        sums.halves().map(|half| pack::pack(half.residues(), self.layer.ring.limb_bits())).collect()
    }

    /// Bits of the numbers that ciphertexts are multiplied by.
    fn number_bits(&self) -> u32 {
        self.layer.weight_bits - 1 + self.layer.slots().channels().ilog2()
    }

    /// By diagonal of a group, the sum of its products with numbers.
    fn by_number(
        &self,
        ring: &Ring,
        inputs: &[&Ciphertext<Values>],
        block: usize,
        group: &[Terms],
    ) -> Vec<Ciphertext<Values>> {
        let packing = self.layer.slots();
        let row = |terms: &Terms| -> Vec<i64> {
            let s = packing.moved(packing.target(block), terms.d);
            let of = |&input: &usize| {
                let pair = packing.pair(block, input, terms.d, s);
                (0..packing.taps().len())
                    .map(move |tap| pair.map_or(0, |(out, channel)| self.weight(out, channel, tap)))
            };
            terms.inputs.iter().flat_map(of).collect()
        };
        let rows: Vec<Vec<i64>> = group.iter().map(row).collect();
        ring.weighted_sums(inputs, &rows, self.number_bits())
    }

    /// By diagonal of a group, the sum over patterns of its products with numbers.
    fn by_patterns(
        &self,
        ring: &Ring,
        inputs: &[&Ciphertext<Values>],
        block: usize,
        group: &[Terms],
    ) -> Vec<Ciphertext<Values>> {
        let rows = self.rows(block, group);
        let (bits, scale) = (self.number_bits(), self.layer.factor() as i64);
        ring.weighted_sums_by_patterns(inputs, &rows, bits, scale, &self.fixed.patterns)
    }

    /// The numbers g of a group's terms, by diagonal and pattern, then input block and tap.
    pub(super) fn rows(&self, block: usize, group: &[Terms]) -> Vec<Vec<i64>> {
        let (channels, taps) = (self.layer.slots().channels(), self.layer.slots().taps().len());
        let mut rows = vec![Vec::with_capacity(group[0].inputs.len() * taps); group.len() * channels];
        for (terms, rows) in group.iter().zip(rows.chunks_exact_mut(channels)) {
            for &input in &terms.inputs {
                for tap in 0..taps {
                    let mut g = self.on_parts(block, terms.d, input, tap);
                    walsh_hadamard(&mut g);
                    rows.iter_mut().zip(g).for_each(|(row, g)| row.push(g));
                }
            }
        }
        rows
    }

    fn by_plaintexts(
        &self,
        ring: &Ring,
        inputs: &[&Ciphertext<Values>],
        block: usize,
        terms: &Terms,
        kept: Option<&[Poly<Values>]>,
    ) -> Ciphertext<Values> {
        let mut total = Ciphertext { a: ring.zero(), b: ring.zero() };
        match kept {
            Some(kept) => {
                inputs.iter().zip(kept).for_each(|(x, w)| total.multiply_add(ring, x, w));
            }
            None => {
                let encoded = self.encoded(ring, block, terms);
                inputs.iter().zip(&encoded).for_each(|(x, w)| total.multiply_add(ring, x, w));
            }
        }
        total
    }
}

/// The sums of some output blocks, by those that are made at once on one of so many threads: they have the same terms.
pub(super) fn sums_together(packing: &Interleaved, blocks: &[usize], threads: usize) -> Vec<Vec<Sum>> {
    let mut sums: Vec<Sum> = blocks.iter().flat_map(|&block| packing.sums(block)).collect();
    sums.sort_by(|x, y| x.terms.cmp(&y.terms));
    let most = (STRETCHES / packing.dimension()).clamp(8, MOST_SUMS);
    let same = sums.chunk_by(|x, y| x.terms == y.terms);
    let together = |sums: &[Sum]| sums.len().div_ceil(threads).next_multiple_of(8).min(most);
    same.flat_map(|same| same.chunks(together(same))).map(<[Sum]>::to_vec).collect()
}

/// The sum of ciphertexts that are made on all threads.
pub(super) fn sum(
    ring: &Ring,
    terms: impl ParallelIterator<Item = Ciphertext<Values>>,
) -> Ciphertext<Values> {
    let zero = || Ciphertext { a: ring.zero(), b: ring.zero() };
    let add = |mut sum: Ciphertext<Values>, other: Ciphertext<Values>| {
        sum.add_assign(ring, &other);
        sum
    };
    terms.reduce(zero, add)
}

/// Entry (i, s) of the Walsh-Hadamard matrix.
fn hadamard(i: usize, s: usize) -> i64 {
    1 - 2 * i64::from((i & s).count_ones() % 2)
}

/// H·f, in place. The length is a power of two.
pub(super) fn walsh_hadamard(f: &mut [i64]) {
    let mut half = 1;
    while half < f.len() {
        for block in f.chunks_exact_mut(2 * half) {
            let (left, right) = block.split_at_mut(half);
            left.iter_mut().zip(right).for_each(|(x, y)| (*x, *y) = (*x + *y, *x - *y));
        }
        half *= 2;
    }
}

/// What the client published: kept from one session to the next.
pub(super) struct Keys {
    /// With which zero is encrypted, and several responses get one a half.
    pub(super) joint: JointKeys,
    /// In the order of their elements.
    pub(super) rotations: Vec<GaloisKey>,
}

impl Keys {
    pub(super) fn of(&self, element: usize) -> &GaloisKey {
        let at = self.rotations.binary_search_by_key(&element, GaloisKey::element);
        &self.rotations[at.expect("the plan lists every automorphism")]
    }
}

/// The server's layers, once per model.
pub(super) struct HyenaModel {
    pub(super) layers: Arc<HyenaLayers>,
    pub(super) ring: Ring,
    /// By node; `None` where the backend has no layer.
    servers: Vec<Option<Arc<ServerLayer>>>,
}

impl HyenaModel {
    pub(super) fn server(&self, node: usize) -> Arc<ServerLayer> {
        Arc::clone(self.servers.get(node).and_then(Option::as_ref).expect("the plan's layers have weights"))
    }
}

impl HyenaLayers {
    /// These layers with their weights, for sessions.
    pub(super) fn with_weights(self: Arc<Self>, cpu: Cpu, weights: &[Option<Weights>]) -> HyenaModel {
        let ring = self.ring(cpu);
        let mut fixed: HashMap<Encoding, Arc<Fixed>> = HashMap::new();
        let servers = self.by_node.iter().zip(weights).map(|(layer, weights)| {
            let (layer, weights) = (layer.as_ref()?, weights.as_ref()?);
            let fixed = fixed.entry(layer.encoding()).or_insert_with(|| Arc::new(Fixed::new(&ring, layer)));
            Some(Arc::new(ServerLayer::new(&ring, layer, Arc::clone(fixed), weights)))
        });
        let servers = servers.collect();
        HyenaModel { layers: self, ring, servers }
    }
}

/// The server's side of a session.
pub(super) struct Server {
    model: Arc<HyenaModel>,
    keys: Option<Arc<Keys>>,
    /// Masks and encryptions of zero come from it.
    prg: Prg,
}

impl Server {
    pub(super) fn new(model: Arc<HyenaModel>, prg: Prg) -> Self {
        Self { model, keys: None, prg }
    }
}

/// Step 2 for responses with one a half: encryptions of zero without the primes that are dropped, an R added to each b half, and −R
/// rounded to Z_p, in slots. Used once.
pub(super) struct Cover {
    zeros: JointCiphertext<Coefficients>,
    shares: Vec<Zeroizing<Vec<u64>>>,
}

impl Cover {
    /// Of so many responses, from a seed of its own.
    pub(super) fn new(
        ring: &Ring,
        small: &Ring,
        layer: &ServerLayer,
        keys: &Keys,
        count: usize,
        seed: &[u8; 32],
    ) -> Self {
        let mut prg = Prg::new(*seed);
        let wide = response_ring(ring, layer.layer.ring.joint_limbs());
        let mut zeros = keys.joint.encrypt_zeros(&wide, count, &mut prg).into_coefficients(&wide);
        if wide.limbs() > small.limbs() {
            zeros = zeros.drop_prime(&wide);
        }
        let share = |b: &mut Poly<Coefficients>| {
            let mut mask: Poly<Coefficients> = small.uniform(&mut prg);
            small.add_assign(b, &mask);
            small.negate(&mut mask);
            layer.fixed.tools.decode(small, &mask)
        };
        let shares = zeros.b.iter_mut().map(share).collect();
        Self { zeros, shares }
    }
}

/// A ciphertext of `ring` in the ring of responses, `small`.
pub(super) fn without_primes(
    ring: &Ring,
    small: &Ring,
    mut ciphertext: Ciphertext<Coefficients>,
) -> Ciphertext<Coefficients> {
    let mut level = ring.clone();
    while level.limbs() > small.limbs() {
        ciphertext = ciphertext.drop_prime(&level);
        level = level.smaller().expect("more primes than are kept");
    }
    ciphertext
}

impl BackendParty for Server {
    /// Step 1: the client's keys come, or are kept from an earlier session.
    fn take_keys(
        &mut self,
        kept: Option<ClientKeys>,
        channel: &mut Channel,
    ) -> Result<Option<ClientKeys>, BackendError> {
        channel.enter(Stage::Client, "keys");
        if let Some(kept) = kept {
            let keys = kept.downcast::<Keys>();
            let keys = keys.map_err(|_| BackendError::Peer("keys of another backend were kept".into()))?;
            self.keys = Some(Arc::clone(&keys));
            return Ok(Some(keys));
        }
        let HyenaModel { layers, ring, .. } = &*self.model;
        let chosen = &layers.ring;
        let bits = chosen.limb_bits();
        let seed = |channel: &mut Channel| -> Result<[u8; 32], BackendError> {
            let mut seed = [0; 32];
            channel.recv_into(&mut seed)?;
            Ok(seed)
        };
        let half = |channel: &mut Channel, ring: &Ring| -> Result<Poly<Values>, BackendError> {
            let bytes = channel.recv(chosen.poly_bytes(ring.limbs()))?;
            Ok(ring.from_residues(&pack::unpack(&bytes, ring.words(), bits)))
        };
        let joint = chosen.joint;
        let own = seed(channel)?;
        let polys = JointKeys::polys(joint.count, chosen.joint_digits());
        let wide = response_ring(ring, chosen.joint_limbs());
        let halves = (0..polys).map(|_| half(channel, &wide)).collect::<Result<Vec<_>, _>>()?;
        let joint = JointKeys::from_parts(&wide, joint.count, joint.digit_bits, own, halves);
        let mut rotations = Vec::with_capacity(layers.elements.len());
        for &element in &layers.elements {
            let seed = seed(channel)?;
            let halves = (0..chosen.digits()).map(|_| half(channel, ring)).collect::<Result<Vec<_>, _>>()?;
            let key = SwitchingKey::from_parts(ring, chosen.digit_bits, seed, halves);
            rotations.push(GaloisKey::from_parts(ring, element, key));
        }
        let keys = Arc::new(Keys { joint, rotations });
        self.keys = Some(Arc::clone(&keys));
        Ok(Some(keys))
    }

    /// Step 2: covers of the responses, of which some are made ahead.
    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let layer = self.model.server(node);
        let (model, keys) =
            (Arc::clone(&self.model), Arc::clone(self.keys.as_ref().expect("keys were taken")));
        let joints: Vec<usize> = joints(&layer.layer).map(|(_, blocks)| blocks.len()).collect();
        let seeds = seeds(&mut self.prg, joints.len());
        let small = response_ring(&model.ring, model.layers.ring.kept);
        let made = seeds[..layer.layer.ahead[1]].par_iter().zip(&joints);
        let cover = |(seed, &count): (&Zeroizing<[u8; 32]>, &usize)| {
            Cover::new(&model.ring, &small, &layer, &keys, count, seed)
        };
        let covers = made.map(cover).collect();
        let seeds = seeds[layer.layer.ahead[1]..].to_vec();
        Ok(Box::new(ServerOnline { model, layer, keys, small, covers, seeds, upload: Vec::new() }))
    }
}

struct ServerOnline {
    model: Arc<HyenaModel>,
    layer: Arc<ServerLayer>,
    keys: Arc<Keys>,
    /// The ring of responses: the primes that they keep.
    small: Ring,
    /// What hides the first responses, by a half, for one use.
    covers: Vec<Cover>,
    /// Of the others, for one use.
    seeds: Vec<Zeroizing<[u8; 32]>>,
    /// By ciphertext, the seed of the a half and the b half, packed.
    upload: Vec<([u8; 32], Vec<u8>)>,
}

/// By block, a ciphertext rotated by every tap.
type Rotated = Vec<Vec<Ciphertext<Values>>>;

impl ServerOnline {
    /// Step 4 for a group of tiles.
    fn inputs(&self, group: usize, x: &[u64]) -> Rotated {
        let Self { model, layer, keys, upload, .. } = self;
        let ring = &model.ring;
        let blocks = layer.layer.packing().in_blocks();
        let together = blocks.div_ceil(rayon::current_num_threads()).min(ROTATED_TOGETHER);
        let starts: Vec<usize> = (0..blocks).step_by(together).collect();
        let rotated = |&first: &usize| {
            let input = |block: usize| {
                let index = group * blocks + block;
                layer.input(ring, &upload[index], index, x)
            };
            let inputs = (first..blocks.min(first + together)).map(input).collect();
            layer.rotated(ring, keys, first, inputs)
        };
        starts.par_iter().flat_map(rotated).collect()
    }

    /// Step 6 for the sums of output blocks whose responses have a half number `index`: the packed halves, and the server's shares.
    fn response(
        &self,
        sums: Vec<Ciphertext<Values>>,
        index: usize,
    ) -> (Vec<Vec<u8>>, Vec<Zeroizing<Vec<u64>>>) {
        let Self { model, layer, keys, small, covers, seeds, .. } = self;
        let ring = &model.ring;
        match covers.get(index) {
            Some(cover) => (layer.respond(ring, small, keys, sums, cover), cover.shares.clone()),
            None => {
                let seed = &seeds[index - covers.len()];
                let cover = Cover::new(ring, small, layer, keys, sums.len(), seed);
                (layer.respond(ring, small, keys, sums, &cover), cover.shares)
            }
        }
    }
}

impl Online for ServerOnline {
    /// Step 3: the client's ciphertexts come.
    fn feed_all(&mut self, channel: &mut Channel, _: &[u64]) -> Result<(), BackendError> {
        let bytes = self.model.layers.ring.poly_bytes(self.model.ring.limbs());
        for _ in 0..self.layer.layer.packing().ciphertexts() {
            let mut seed = [0; 32];
            channel.recv_into(&mut seed)?;
            self.upload.push((seed, channel.recv(bytes)?));
        }
        Ok(())
    }

    /// Steps 4 to 7: rotations, products, covers, and the responses go.
    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let (layer, tools, bias) = (&self.layer.layer, &self.layer.fixed.tools, &self.layer.weights.bias);
        let packing = layer.packing();
        let [_, h, w] = packing.out_shape();
        let m = tools.plain.modulus();
        let multiple = m.factor(layer.fitted.plain.multiple);
        let blocks: Vec<usize> = (0..packing.out_blocks()).collect();
        let mut output = Zeroizing::new(vec![0; layer.outputs()]);
        for group in 0..packing.groups() {
            let inputs = self.inputs(group, x);
            let count = layer.ring.joint.count;
            let first = group * blocks.len().div_ceil(count);
            for blocks in blocks.chunks(TOGETHER.next_multiple_of(count)) {
                let mut sums =
                    self.layer.evaluate_all(&self.model.ring, &self.keys, &inputs, blocks).into_iter();
                let joint: Vec<(&[usize], Vec<Ciphertext<Values>>)> = (blocks.chunks(count))
                    .map(|blocks| (blocks, sums.by_ref().take(blocks.len()).collect()))
                    .collect();
                let response = |(blocks, sums): (&[usize], Vec<Ciphertext<Values>>)| {
                    let (halves, shares) = self.response(sums, first + blocks[0] / count);
                    let mut opened = Vec::new();
                    for (&block, share) in blocks.iter().zip(&shares) {
                        for (slot, place) in packing.outputs_of(group, block) {
                            let bias = match bias {
                                Bias::PerChannel(bias) => bias[place / (h * w)],
                                Bias::PerElement(bias) => bias[place],
                            };
                            let bias = m.mul_factor(m.reduce_signed(bias), multiple);
                            let sum = m.add(m.mul_factor(share[slot], tools.back), bias);
                            opened.push((place, layer.rounding.server(sum)));
                        }
                    }
                    (halves, Zeroizing::new(opened))
                };
                let responses: Vec<_> = joint.into_par_iter().map(response).collect();
                for (halves, shares) in responses {
                    halves.iter().try_for_each(|half| channel.send(half))?;
                    shares.iter().for_each(|&(place, share)| output[place] = share);
                }
            }
            // All threads give the memory back.
            inputs.into_par_iter().for_each(drop);
        }
        Ok(Box::new(output))
    }
}
