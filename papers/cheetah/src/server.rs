//! The server's half: it holds the weights, and never a secret of the client.

use std::ops::Range;

use jaguar_graph::network::{Bias, Weights};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::lanes::{PublicKey, Zero};
use jaguar_ring::prg::Prg;
use jaguar_ring::product::rns::{PANEL_OUTS, Rns, RnsNtt, RnsPairs, RnsPanel, RnsPoly, RnsSum};
use jaguar_wire::pack;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Encoding, Layer, Layout, Response, Upload, a_half, p1, unpack_poly};
use jaguar_linear::cut;

/// One linear layer with its weights.
pub struct ServerLayer<E = Layout> {
    layer: Layer<E>,
    rns: Rns,
    panels: Vec<Panel>,
    /// As they came; where they are kept transformed, without the weights themselves.
    weights: Weights,
}

/// Output blocks that see the same input blocks.
struct Panel {
    /// Of the output blocks, and how many there are.
    first: usize,
    outs: usize,
    /// Of the input blocks.
    inputs: Range<usize>,
    /// Transformed, if that is kept.
    weights: Option<RnsPanel>,
}

impl Panel {
    /// Transforms the panel's part of `weights`, which are the whole layer's.
    fn transform<E: Encoding>(&self, rns: &Rns, layer: &Layer<E>, weights: &Weights) -> RnsPanel {
        rns.panel(self.outs, self.inputs.len(), |out, term, to| {
            layer.layout.write_weights(self.first + out, self.inputs.start + term, weights, to);
        })
    }
}

/// What the server keeps of one layer for one query. Used once.
pub struct ServerPrepared {
    /// The masks R come from it. (In a block of its own: who moves this leaves no copy behind.)
    seed: Box<Zeroizing<[u8; 32]>>,
    /// Encryptions of zero, one for each response.
    zeros: Vec<Zero>,
}

/// Where one response goes, and its encryption of zero.
struct Place<'a> {
    number: usize,
    zero: Zero,
    a: &'a mut [u8],
    b: &'a mut [u64],
    /// `−(R >> 5)`, in B's order.
    shares: &'a mut [u64],
}

/// Memory that responses share one after the other.
struct Scratch {
    sums: Vec<[RnsSum; 2]>,
    polys: [RnsPoly; 2],
    words: Zeroizing<Vec<u64>>,
}

impl Scratch {
    fn new(rns: &Rns) -> Self {
        Self { sums: Vec::new(), polys: [rns.zero(), rns.zero()], words: Zeroizing::new(vec![0; rns.n()]) }
    }
}

impl super::PublicKey {
    /// Prepares the key for layers of as many limbs as `layer` has.
    ///
    /// # Panics
    /// When the key is one for another number of limbs.
    pub fn prepare<E: Encoding>(&self, cpu: Cpu, layer: &Layer<E>) -> PublicKey {
        let rns = layer.ring(cpu);
        PublicKey::new(&rns, unpack_poly(&rns, &self.p0), p1(&rns, &self.seed))
    }
}

impl<E: Encoding> ServerLayer<E> {
    /// Transforms the weights, once per model, with the instructions that `cpu` has. They take [`Layer::weight_bytes`].
    ///
    /// # Panics
    /// When the weights are not the layer's (`Model::validate` excludes it).
    pub fn new(cpu: Cpu, layer: Layer<E>, weights: &Weights) -> Self {
        let mut server = Self::on_the_way(cpu, layer, weights);
        let (rns, layer, weights) = (&server.rns, &server.layer, &server.weights);
        server
            .panels
            .par_iter_mut()
            .for_each(|panel| panel.weights = Some(panel.transform(rns, layer, weights)));
        server.weights.weights = Vec::new();
        server
    }

    /// Transforms the weights anew in every query, for want of memory to keep them. What is transformed is used at
    /// once, while it is in a cache.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub(crate) fn on_the_way(cpu: Cpu, layer: Layer<E>, weights: &Weights) -> Self {
        let layout = &layer.layout;
        let count = layout.spec().out_channels * layout.terms();
        assert_eq!(weights.weights.len(), count, "weights of another layer");
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for block in 0..layout.out_blocks() {
            match blocks.last_mut() {
                Some((first, outs))
                    if *outs < PANEL_OUTS && layout.inputs_of(*first) == layout.inputs_of(block) =>
                {
                    *outs += 1;
                }
                _ => blocks.push((block, 1)),
            }
        }
        let panel = |(first, outs)| Panel { first, outs, inputs: layout.inputs_of(first), weights: None };
        let panels = blocks.into_iter().map(panel).collect();
        Self { rns: layer.ring(cpu), panels, weights: weights.clone(), layer }
    }

    /// What both parties know of the layer.
    pub fn layer(&self) -> &Layer<E> {
        &self.layer
    }

    /// Bytes of the transformed weights that are kept.
    pub fn weight_bytes(&self) -> usize {
        self.panels.iter().filter_map(|panel| panel.weights.as_ref()).map(RnsPanel::bytes).sum()
    }

    /// Step 4, before the input: the randomness of one query, out of `prg`, anew for every call.
    pub fn prepare(&self, prg: &mut Prg) -> ServerPrepared {
        let mut seed = Box::new(Zeroizing::new([0; 32]));
        prg.fill(&mut seed[..]);
        let zero = |number: usize| {
            Zero::from_prg(&self.rns, &mut Prg::derive(&seed, "cheetah zero", &[number as u64]))
        };
        let zeros = (0..self.layer.layout.responses()).into_par_iter().map(zero).collect();
        ServerPrepared { seed, zeros }
    }

    /// Steps 3 and 4: the answer to the client, and the server's output share (`[C, H, W]` modulo 2^l). `x`
    /// is its input share, of the same ring.
    ///
    /// # Panics
    /// When `x` has not the layer's input shape, or key, upload or what was prepared are another layer's.
    pub fn evaluate(
        &self,
        prepared: ServerPrepared,
        key: &PublicKey,
        upload: &Upload,
        x: &[u64],
    ) -> (Response, Vec<u64>) {
        let layer = &self.layer;
        let layout = &layer.layout;
        assert_eq!(x.len(), layout.inputs(), "input of another shape");
        assert_eq!(prepared.zeros.len(), layout.responses(), "prepared for another layer");
        let inputs = self.inputs(upload, x);
        let ServerPrepared { seed, zeros } = prepared;

        let mut response =
            Response { a: vec![0; layout.responses() * layer.a_bytes()], b: vec![0; layout.outputs()] };
        let mut masks = Zeroizing::new(vec![0; layout.outputs()]);
        let pieces = response.a.chunks_exact_mut(layer.a_bytes()).zip(cut(&mut response.b, layer.exported()));
        let pieces = pieces.zip(cut(&mut masks, layer.exported())).zip(zeros).enumerate();
        let mut places: Vec<Option<Place>> = pieces
            .map(|(number, (((a, b), shares), zero))| Some(Place { number, zero, a, b, shares }))
            .collect();
        // By panel, its responses in the order of the sums: tile by tile. Where there are fewer panels than threads, in several parts.
        let (blocks, tiles) = (layout.out_blocks(), layout.tile_count());
        let parts = rayon::current_num_threads().div_ceil(self.panels.len()).min(tiles);
        let part = tiles.div_ceil(parts);
        let parts = (0..tiles).step_by(part).map(|first| first..(first + part).min(tiles));
        let mut work: Vec<(&Panel, Range<usize>, Vec<Place>)> = Vec::new();
        for tiles in parts {
            for panel in &self.panels {
                let numbers =
                    tiles.clone().flat_map(|t| (0..panel.outs).map(move |o| t * blocks + panel.first + o));
                let own = numbers.map(|number| places[number].take().expect("a response is of one panel"));
                work.push((panel, tiles.clone(), own.collect()));
            }
        }
        work.into_par_iter().for_each_init(
            || Scratch::new(&self.rns),
            |scratch, (panel, tiles, places)| {
                let mut sums = std::mem::take(&mut scratch.sums);
                let transformed;
                let weights = match &panel.weights {
                    Some(weights) => weights,
                    None => {
                        transformed = panel.transform(&self.rns, layer, &self.weights);
                        &transformed
                    }
                };
                self.rns.accumulate(weights, &inputs[tiles], panel.inputs.start, &mut sums);
                for (sums, place) in sums.iter_mut().zip(places) {
                    self.export(key, sums, &seed, scratch, place);
                }
                scratch.sums = sums;
            },
        );

        let mut share = vec![0; layout.outputs()];
        let plane = layout.out_shape()[1] * layout.out_shape()[2];
        let mask = (1u64 << layer.share_bits) - 1;
        let mut rest = masks.as_slice();
        for number in 0..layout.responses() {
            let (tile, block) = layer.place(number);
            for (_, to, len) in layout.exports(tile, block) {
                let (row, others) = rest.split_at(len);
                for (i, (share, &r)) in share[to..to + len].iter_mut().zip(row).enumerate() {
                    let bias = match &self.weights.bias {
                        Bias::PerChannel(b) => b[to / plane],
                        Bias::PerElement(b) => b[to + i],
                    };
                    *share = r.wrapping_add(bias as u64) & mask;
                }
                rest = others;
            }
        }
        (response, share)
    }

    /// Step 3, before the products: by window, both halves of every block, transformed.
    fn inputs(&self, upload: &Upload, x: &[u64]) -> Vec<RnsPairs> {
        let Self { rns, layer, .. } = self;
        let Layer { layout, share_bits, .. } = layer;
        let (blocks, size) = (layout.in_blocks(), layer.poly_bytes());
        assert_eq!(upload.b.len(), layout.ciphertexts() * size, "an upload for another layer");
        (0..layout.tile_count())
            .map(|tile| {
                let pairs: Vec<[RnsNtt; 2]> = (0..blocks)
                    .into_par_iter()
                    .map_init(
                        || Zeroizing::new(vec![0; rns.n()]),
                        |values, block| {
                            let i = tile * blocks + block;
                            let mut b = unpack_poly(rns, &upload.b[i * size..(i + 1) * size]);
                            values.fill(0);
                            layout.write_inputs(tile, block, x, values);
                            rns.add_scaled(&mut b, values, *share_bits);
                            [rns.transform(a_half(rns, &upload.seed, i)), rns.transform(b)]
                        },
                    )
                    .collect();
                rns.pairs(&pairs)
            })
            .collect()
    }

    /// Step 4 for one response.
    fn export(
        &self,
        key: &PublicKey,
        sums: &mut [RnsSum; 2],
        seed: &[u8; 32],
        scratch: &mut Scratch,
        to: Place,
    ) {
        let Self { rns, layer, .. } = self;
        let layout = &layer.layout;
        let (a_bits, b_bits) = (layer.a_bits(), layer.b_bits());
        let Scratch { polys, words, .. } = scratch;

        key.rerandomise_into(rns, sums, &to.zero, polys);
        let [a, b] = polys;
        rns.switch_into(a, a_bits, words);
        to.a.copy_from_slice(&pack::pack(words, a_bits));

        // B = b + R, and the server's share of what R hides.
        rns.switch_into(b, b_bits, words);
        Prg::derive(seed, "cheetah R", &[to.number as u64]).fill_words(to.shares, b_bits);
        let mask = (1u64 << b_bits) - 1;
        let (tile, block) = layer.place(to.number);
        let mut masked = to.b.iter_mut().zip(to.shares);
        for (from, _, len) in layout.exports(tile, block) {
            let phases = words[from..].iter().step_by(layout.column_stride()).take(len);
            for (&phase, (b, r)) in phases.zip(&mut masked) {
                *b = phase.wrapping_add(*r) & mask;
                *r = (*r >> (b_bits - layer.share_bits)).wrapping_neg();
            }
        }
    }
}
