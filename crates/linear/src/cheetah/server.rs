//! The server's half: it holds the weights, and never a secret of the client.

use jaguar_graph::network::{Bias, Weights};
use jaguar_ring::prg::Prg;
use jaguar_ring::product::rns::{PANEL_OUTS, RnsNtt, RnsPairs, RnsPanel, RnsSum};
use jaguar_ring::sample;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Layer, PublicKey, Response, Upload, p1};

/// One linear layer with its weights, transformed.
pub struct ServerLayer {
    layer: Layer,
    panels: Vec<Panel>,
    bias: Bias,
}

/// Output blocks that see the same input blocks.
struct Panel {
    /// Of the output blocks.
    first: usize,
    /// Of the input blocks.
    inputs: std::ops::Range<usize>,
    weights: RnsPanel,
}

/// The client's key, transformed.
pub struct Key {
    p0: RnsNtt,
    p1: RnsNtt,
}

/// One response before it is put in its place.
struct Exported {
    number: usize,
    a: Vec<u64>,
    b: Vec<u64>,
    /// `−(R >> 5)`.
    shares: Vec<u64>,
}

impl Key {
    /// Prepares a key for layers of as many limbs as `layer` has.
    ///
    /// # Panics
    /// When the key is one for another number of limbs.
    pub fn new(layer: &Layer, key: &PublicKey) -> Self {
        let rns = &layer.rns;
        Self { p0: rns.transform(rns.from_words(&key.p0)), p1: rns.transform(p1(rns, &key.seed)) }
    }
}

impl ServerLayer {
    /// Transforms the weights: once per model. They take `layout().products() · 4·N·limbs` bytes, divided by the number
    /// of windows.
    ///
    /// # Panics
    /// When the weights are not the layer's (`Model::validate` excludes it).
    pub fn new(layer: Layer, weights: &Weights) -> Self {
        let layout = &layer.layout;
        let count = layout.spec().out_channels * super::layout::terms(layout.spec(), layout.in_shape());
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
        let panels = blocks
            .into_par_iter()
            .map(|(first, outs)| {
                let inputs = layout.inputs_of(first);
                let fill = |out: usize, term: usize, to: &mut [i16]| {
                    layout.write_weights(first + out, inputs.start + term, &weights.weights, to);
                };
                Panel { first, inputs: inputs.clone(), weights: layer.rns.panel(outs, inputs.len(), fill) }
            })
            .collect();
        Self { panels, bias: weights.bias.clone(), layer }
    }

    /// What both parties know of the layer.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Bytes of the transformed weights.
    pub fn weight_bytes(&self) -> usize {
        self.panels.iter().map(|panel| panel.weights.bytes()).sum()
    }

    /// Steps 3 and 4: the answer to the client, and the server's output share (`[C, H, W]` modulo 2^l). `x` is its
    /// input share, of the same ring; `prg` makes the masks and the encryptions of zero, anew for every call.
    ///
    /// # Panics
    /// When `x` has not the layer's input shape, or key or upload are those of another layer.
    pub fn evaluate(&self, key: &Key, upload: &Upload, x: &[u64], prg: &mut Prg) -> (Response, Vec<u64>) {
        let layer = &self.layer;
        let layout = &layer.layout;
        assert_eq!(x.len(), layout.in_shape().iter().product::<usize>(), "input of another shape");
        let inputs = self.inputs(upload, x);
        let mut seed = Zeroizing::new([0; 32]);
        prg.fill(&mut seed[..]);

        let (blocks, tiles) = (layout.out_blocks(), layout.tiles());
        let exported: Vec<Exported> = self
            .panels
            .par_iter()
            .flat_map_iter(|panel| {
                let sums = layer.rns.accumulate(&panel.weights, &inputs, panel.inputs.start);
                let outs = sums.len() / tiles.len();
                let seed = &seed;
                sums.into_iter().enumerate().map(move |(i, sum)| {
                    self.export(key, i / outs * blocks + panel.first + i % outs, sum, seed)
                })
            })
            .collect();

        let n = layer.rns.n();
        let mut by_number: Vec<Option<Exported>> = (0..layout.responses()).map(|_| None).collect();
        for response in exported {
            let number = response.number;
            by_number[number] = Some(response);
        }
        let mut response = Response {
            a: Vec::with_capacity(layout.responses() * n),
            b: Vec::with_capacity(layout.outputs()),
        };
        let mut share = vec![0; layout.outputs()];
        let plane = layout.out_shape()[1] * layout.out_shape()[2];
        let mask = (1u64 << layer.share_bits) - 1;
        for (exported, exports) in by_number.into_iter().zip(layer.responses()) {
            let exported = exported.expect("every response belongs to one panel");
            for (&(_, to), &r) in exports.iter().zip(&exported.shares) {
                let bias = match &self.bias {
                    Bias::PerChannel(b) => b[to / plane],
                    Bias::PerElement(b) => b[to],
                };
                share[to] = r.wrapping_add(bias as u64) & mask;
            }
            response.a.extend(exported.a);
            response.b.extend(exported.b);
        }
        (response, share)
    }

    /// Step 3, before the products: by window, both halves of every block, transformed.
    fn inputs(&self, upload: &Upload, x: &[u64]) -> Vec<RnsPairs> {
        let Layer { rns, layout, share_bits, .. } = &self.layer;
        let (blocks, words) = (layout.in_blocks(), rns.n() * rns.limbs());
        assert_eq!(upload.b.len(), layout.ciphertexts() * words, "an upload for another layer");
        layout
            .tiles()
            .iter()
            .enumerate()
            .map(|(t, tile)| {
                let pairs: Vec<[RnsNtt; 2]> = (0..blocks)
                    .into_par_iter()
                    .map_init(
                        || Zeroizing::new(vec![0; rns.n()]),
                        |values, block| {
                            let i = t * blocks + block;
                            let mut b = rns.from_words(&upload.b[i * words..(i + 1) * words]);
                            values.fill(0);
                            for (at, from) in layout.contents(tile, block) {
                                values[at] = x[from];
                            }
                            rns.add_scaled(&mut b, values, *share_bits);
                            [rns.transform(self.layer.a(&upload.seed, i)), rns.transform(b)]
                        },
                    )
                    .collect();
                rns.pairs(&pairs)
            })
            .collect()
    }

    /// Step 4 for one response.
    fn export(&self, key: &Key, number: usize, sum: [RnsSum; 2], seed: &[u8; 32]) -> Exported {
        let layer = &self.layer;
        let (rns, layout) = (&layer.rns, &layer.layout);
        let mut prg = Prg::derive(seed, "cheetah response", &[number as u64]);

        // A fresh encryption of zero; b's part needs no noise of its own, R covers it.
        let mut small = Zeroizing::new(vec![0i8; rns.n()]);
        sample::ternary(&mut prg, &mut small);
        let u = rns.prepare_small(&small);
        let [mut a, mut b] = sum;
        rns.add_product(&mut a, &key.p1, &u);
        rns.add_product(&mut b, &key.p0, &u);
        let (mut a, b) = (rns.invert(a), rns.invert(b));
        sample::noise(&mut prg, &mut small);
        rns.add_small(&mut a, &small);

        let mut phases = Zeroizing::new(vec![0; rns.n()]);
        rns.switch_into(&b, layer.b_bits(), &mut phases);
        let mut a_words = vec![0; rns.n()];
        rns.switch_into(&a, layer.a_bits(), &mut a_words);

        // B = b + R, and the server's share of what R hides.
        let blocks = layout.out_blocks();
        let tile = &layout.tiles()[number / blocks];
        let mut b: Vec<u64> = layout.exports(tile, number % blocks).map(|(at, _)| phases[at]).collect();
        let mut shares = vec![0; b.len()];
        prg.fill_words(&mut shares, layer.b_bits());
        let mask = (1u64 << layer.b_bits()) - 1;
        for (b, r) in b.iter_mut().zip(&mut shares) {
            *b = b.wrapping_add(*r) & mask;
            *r = (*r >> (layer.b_bits() - layer.share_bits)).wrapping_neg();
        }
        Exported { number, a: a_words, b, shares }
    }
}
