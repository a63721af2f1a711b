//! SPA-Conv with the export that Jaguar's paper describes: **it reveals the server's weights to the client**. It
//! exists to reproduce and measure the paper; no session can select it.
//!
//! `[⌊(Σ w·x + bias) / 2^f⌋] mod 2^(ℓ-f)  <-  Linear([x] mod 2^ℓ)`, exact (no rounding error). Jaguar, section 3.1 (algorithms 1
//! and 2, theorem 1), 3.3, figure 4 and appendix J.2; q = 2^54, both halves at query time.
//!
//! 1. The client encrypts its share: `(a, b)` with `b + a·s = Δ·m + e`, Δ = 2^(54-ℓ), and sends both halves.
//! 2. The server adds its share and the bias, and evaluates SPA-Conv on both halves.
//! 3. It shifts both down by f, masks b with Δ·r at the target precision, and sends a whole and b at the outputs.
//! 4. The client decodes in two steps: divide by Δ/2^f and round, then shift down by f.
//!
//! Exact if `‖e‖∞ + 2^f·(1 + ‖s‖₁) < Δ/2` (theorem 1), where e is the noise after the convolution.
//!
//! # What it leaks
//!
//! The client sees, in clear: the low f bits of every product m, since the mask covers only what is above them; a = Σ w·X^shift·a_c
//! with every a_c known to it; and the noise Σ w·e_c with every e_c known to it. The first alone gives the weights of a layer whose
//! input it knows (the first) by elimination modulo 2^f: see this module's tests. The parameters fall short of 128 bits too.

use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_ring::gemm::{PackedWeights, Term, spa_gemm};
use jaguar_ring::planes::LimbPlanes;
use jaguar_ring::prg::Prg;
use jaguar_rlwe::{Parameters, QuerySecret, Ring};

use crate::layout::{Layout, LayoutError};

/// The published parameters: 126 bits by today's estimates.
pub fn insecure_published_parameters() -> Parameters {
    Parameters::insecure(2048, 54)
}

/// A layer in the published form.
pub struct InsecurePublishedLayer {
    params: Parameters,
    layout: Layout,
    /// ℓ: bits of the plaintext modulus.
    plaintext_bits: u32,
}

/// What the client sends.
pub struct Upload {
    /// Both halves of every input ciphertext, tile by tile.
    ciphertexts: Vec<[Vec<u64>; 2]>,
}

/// What the server sends back.
pub struct Export {
    /// By response: a shifted down by f, N words modulo 2^(54-f).
    a: Vec<Vec<u64>>,
    /// b shifted down by f and masked, at the outputs `[C, H, W]`.
    b: Vec<u64>,
}

impl InsecurePublishedLayer {
    /// A layer whose products are taken modulo 2^`plaintext_bits`.
    ///
    /// # Errors
    /// When the kernel does not fit the ring.
    pub fn new(
        params: Parameters,
        spec: &Linear,
        in_shape: Shape,
        plaintext_bits: u32,
    ) -> Result<Self, LayoutError> {
        Ok(Self { layout: Layout::new(params.ring_dim(), spec, in_shape)?, params, plaintext_bits })
    }

    fn shift(&self) -> u32 {
        self.layout.spec().shift
    }

    fn delta_bits(&self) -> u32 {
        self.params.modulus_bits() - self.plaintext_bits
    }

    /// Modulus of the exported words.
    fn exported_mask(&self) -> u64 {
        self.params.mask() >> self.shift()
    }

    /// Whether theorem 1 covers noise of at most `noise` after the convolution, under a secret of this 1-norm.
    pub fn is_exact(&self, noise: u64, secret_norm: u64) -> bool {
        noise + ((1 + secret_norm) << self.shift()) < 1 << (self.delta_bits() - 1)
    }

    /// Step 1, client.
    pub fn encrypt(&self, ring: &Ring, secret: &QuerySecret, x: &[u64], prg: &mut Prg) -> Upload {
        let mut ciphertexts = Vec::new();
        for tile in self.layout.tiles() {
            for i in 0..self.layout.ciphertexts_per_tile() {
                let mut a = vec![0; self.params.ring_dim()];
                prg.fill_words(&mut a, self.params.modulus_bits());
                let mut b = secret.encrypt_zero(ring, &a, prg);
                for &(at, from) in &self.layout.contents(tile, i).data {
                    let word = &mut b[at as usize];
                    *word = word.wrapping_add(x[from as usize] << self.delta_bits()) & self.params.mask();
                }
                ciphertexts.push([a, b]);
            }
        }
        Upload { ciphertexts }
    }

    /// Steps 2 and 3, server: the export and the server's share modulo 2^(ℓ-f). `x` is the server's share of the input.
    pub fn evaluate(
        &self,
        weights: &Weights,
        weight_bits: u32,
        upload: &Upload,
        x: &[u64],
        prg: &mut Prg,
    ) -> (Export, Vec<u64>) {
        let layout = &self.layout;
        let [channels, h, w] = layout.out_shape();
        let (groups, terms) = (layout.spec().groups, layout.terms_per_output());
        let (k, n) = (self.params.modulus_bits(), layout.ring_dim());
        let outs = channels / groups;
        let mut share = vec![0; layout.outputs()];
        prg.fill_words(&mut share, self.plaintext_bits - self.shift());
        let mut export = Export { a: Vec::new(), b: vec![0; layout.outputs()] };
        for (t, tile) in layout.tiles().iter().enumerate() {
            let per_tile = layout.ciphertexts_per_tile();
            let mut halves = [LimbPlanes::new(k, per_tile, 2 * n), LimbPlanes::new(k, per_tile, 2 * n)];
            for i in 0..per_tile {
                let [a, b] = &upload.ciphertexts[t * per_tile + i];
                let mut b = b.clone();
                for &(at, from) in &layout.contents(tile, i).data {
                    let word = &mut b[at as usize];
                    *word = word.wrapping_add(x[from as usize] << self.delta_bits()) & self.params.mask();
                }
                halves[0].set_row_negacyclic(i, a);
                halves[1].set_row_negacyclic(i, &b);
            }
            for group in 0..groups {
                let packed = PackedWeights::new(
                    outs,
                    terms,
                    weight_bits,
                    &weights.weights[group * outs * terms..(group + 1) * outs * terms],
                );
                let terms: Vec<Term> = layout
                    .terms(group)
                    .into_iter()
                    .map(|(row, offset)| Term { row: row as u32, offset: offset as u32 })
                    .collect();
                let [a, b] = halves.each_ref().map(|planes| {
                    let mut out = vec![0; outs * n];
                    spa_gemm(planes, &terms, &packed, n, &mut out, n);
                    out
                });
                for d in 0..outs {
                    let channel = group * outs + d;
                    export.a.push(a[d * n..(d + 1) * n].iter().map(|v| v >> self.shift()).collect());
                    for (from, to, len) in layout.exports(tile) {
                        for j in 0..len {
                            let to = channel * h * w + to + j;
                            let bias = match &weights.bias {
                                Bias::PerChannel(b) => b[channel],
                                Bias::PerElement(b) => b[to],
                            };
                            let phase = b[d * n + from + j].wrapping_add((bias as u64) << self.delta_bits());
                            export.b[to] = ((phase & self.params.mask()) >> self.shift())
                                .wrapping_sub(share[to] << self.delta_bits())
                                & self.exported_mask();
                        }
                    }
                }
            }
        }
        (export, share)
    }

    /// Step 4, client, up to the rounding: the masked products modulo 2^ℓ, `[C, H, W]`. Their low f bits are not masked.
    fn masked_products(&self, ring: &Ring, secret: &QuerySecret, export: &Export) -> Vec<u64> {
        let [channels, h, w] = self.layout.out_shape();
        let bits = self.params.modulus_bits() - self.shift();
        let step = self.delta_bits() - self.shift();
        let mut out = export.b.clone();
        let mut product = vec![0; self.params.ring_dim()];
        for (r, a) in export.a.iter().enumerate() {
            secret.times(ring, a, bits, &mut product);
            let (t, d) = (r / channels, r % channels);
            for (from, to, len) in self.layout.exports(&self.layout.tiles()[t]) {
                for j in 0..len {
                    let m = &mut out[d * h * w + to + j];
                    *m = (m.wrapping_add(product[from + j]).wrapping_add(1 << (step - 1))
                        & self.exported_mask())
                        >> step;
                }
            }
        }
        out
    }

    /// Step 4, client: its share modulo 2^(ℓ-f).
    pub fn decode(&self, ring: &Ring, secret: &QuerySecret, export: &Export) -> Vec<u64> {
        self.masked_products(ring, secret, export).iter().map(|m| m >> self.shift()).collect()
    }
}

#[cfg(test)]
mod tests {
    use jaguar_graph::reference::linear_exact;

    use super::*;
    use crate::jaguar;

    const ELL: u32 = 29;
    const F: u32 = 12;

    fn pointwise(out_channels: usize) -> Linear {
        Linear {
            out_channels,
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4],
            groups: 1,
            shift: F,
        }
    }

    fn random(prg: &mut Prg, count: usize, bits: u32) -> Vec<i64> {
        (0..count).map(|_| (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1))).collect()
    }

    fn weights(prg: &mut Prg, count: usize, outs: usize) -> Weights {
        Weights {
            weights: random(prg, count, 12).iter().map(|&w| w.max(-2047) as i16).collect(),
            bias: Bias::PerChannel(vec![0; outs]),
        }
    }

    /// Theorem 1: the sum of the shares is the exact floor, for every kind of layer.
    #[test]
    fn the_published_truncation_is_exact() {
        let params = insecure_published_parameters();
        let ring = Ring::new(params);
        let mut prg = Prg::new([3; 32]);
        for (spec, shape) in [
            (pointwise(8), [64, 28, 28]),
            (Linear { kernel: [3, 3], pads: [1; 4], ..pointwise(4) }, [3, 56, 56]),
            (Linear { kernel: [3, 3], pads: [1; 4], stride: [2, 2], groups: 6, ..pointwise(6) }, [6, 20, 20]),
        ] {
            let layer = InsecurePublishedLayer::new(params, &spec, shape, ELL).unwrap();
            let count = spec.out_channels * layer.layout.terms_per_output();
            let weights = weights(&mut prg, count, spec.out_channels);
            let x = random(&mut prg, shape.iter().product(), 11);
            let mut server_x = vec![0; x.len()];
            prg.fill_words(&mut server_x, ELL);
            let client_x: Vec<u64> = x
                .iter()
                .zip(&server_x)
                .map(|(&x, &s)| (x as u64).wrapping_sub(s) & ((1 << ELL) - 1))
                .collect();
            let secret = QuerySecret::from_prg(&ring, &mut prg);
            let upload = layer.encrypt(&ring, &secret, &client_x, &mut prg);
            let (export, server) = layer.evaluate(&weights, 12, &upload, &server_x, &mut prg);
            let client = layer.decode(&ring, &secret, &export);
            let mask = (1u64 << (ELL - F)) - 1;
            for (i, m) in linear_exact(&spec, shape, &weights, &x).into_iter().enumerate() {
                assert_eq!(
                    client[i].wrapping_add(server[i]) & mask,
                    (m >> F) as u64 & mask,
                    "output {i} of {spec:?}"
                );
            }
            // 9 noise terms of 960 channels at most: the bound of the paper's largest layer leaves room.
            assert!(layer.is_exact(1 << 22, 1500));
            assert!(!layer.is_exact(1 << 24, 1500));
        }
    }

    /// Solves `rows · w = values (mod 2^f)` by elimination; `None` if no pivot is odd.
    fn solve(mut rows: Vec<Vec<u64>>, mut values: Vec<u64>, f: u32) -> Option<Vec<u64>> {
        let mask = (1u64 << f) - 1;
        let unknowns = rows[0].len();
        for c in 0..unknowns {
            let pivot = (c..rows.len()).find(|&r| rows[r][c] & 1 == 1)?;
            rows.swap(c, pivot);
            values.swap(c, pivot);
            // The inverse of an odd number modulo 2^f, by Newton's iteration.
            let p = rows[c][c];
            let inverse = (0..6).fold(1u64, |i, _| i.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(i))));
            rows[c].iter_mut().for_each(|v| *v = v.wrapping_mul(inverse) & mask);
            values[c] = values[c].wrapping_mul(inverse) & mask;
            let (row, value) = (rows[c].clone(), values[c]);
            for r in (0..rows.len()).filter(|&r| r != c) {
                let factor = rows[r][c];
                if factor != 0 {
                    rows[r]
                        .iter_mut()
                        .zip(&row)
                        .for_each(|(v, p)| *v = v.wrapping_sub(factor.wrapping_mul(*p)) & mask);
                    values[r] = values[r].wrapping_sub(factor.wrapping_mul(value)) & mask;
                }
            }
        }
        Some(values[..unknowns].to_vec())
    }

    /// A client that only looks, at the first layer: its own input and the low f bits of what it decodes.
    fn attack(x: &[i64], shape: Shape, low_bits: &[u64], f: u32) -> Vec<i64> {
        let plane = shape[1] * shape[2];
        let rows =
            (0..4 * shape[0]).map(|j| (0..shape[0]).map(|c| x[c * plane + j] as u64).collect()).collect();
        let values = low_bits[..4 * shape[0]].to_vec();
        let half = 1i64 << (f - 1);
        solve(rows, values, f)
            .map(|w| {
                w.iter().map(|&w| if w as i64 >= half { w as i64 - 2 * half } else { w as i64 }).collect()
            })
            .unwrap_or_else(|| vec![i64::MAX; shape[0]])
    }

    /// The attack recovers every weight from the published export, and nothing from what our client sees.
    #[test]
    fn weights_leak_from_the_published_export_and_not_from_ours() {
        let shape = [64, 28, 28];
        let spec = pointwise(1);
        let mut prg = Prg::new([4; 32]);
        let weights = weights(&mut prg, 64, 1);
        let x = random(&mut prg, shape.iter().product(), 11);
        let truth: Vec<i64> = weights.weights.iter().map(|&w| i64::from(w)).collect();
        let hits = |got: &[i64]| got.iter().zip(&truth).filter(|(a, b)| a == b).count();

        let params = insecure_published_parameters();
        let ring = Ring::new(params);
        let layer = InsecurePublishedLayer::new(params, &spec, shape, ELL).unwrap();
        let secret = QuerySecret::from_prg(&ring, &mut prg);
        let shares: Vec<u64> = x.iter().map(|&v| v as u64 & ((1 << ELL) - 1)).collect();
        let upload = layer.encrypt(&ring, &secret, &shares, &mut prg);
        let (export, _) = layer.evaluate(&weights, 12, &upload, &vec![0; x.len()], &mut prg);
        let seen = layer.masked_products(&ring, &secret, &export);
        let low: Vec<u64> = seen.iter().map(|m| m & ((1 << F) - 1)).collect();
        assert_eq!(hits(&attack(&x, shape, &low, F)), 64, "the published export gives every weight");

        // Ours: the client's whole phase, and in it the bits where the published form shows the product's low ones.
        let phases = jaguar::tests::client_phases(&spec, shape, &weights, &x);
        let (k, n) = (48, 16);
        let low: Vec<u64> = phases.iter().map(|p| (p >> (k - n - F)) & ((1 << F) - 1)).collect();
        let found = hits(&attack(&x, shape, &low, F));
        assert!(found <= 3, "{found} of 64 weights recovered from re-randomised, fully masked phases");
    }
}
