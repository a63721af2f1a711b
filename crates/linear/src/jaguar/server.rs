//! The server's half: it holds the weights, and never a key of the client.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use jaguar_graph::network::{Bias, Weights};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::gemm::{PackedWeights, TILE, Term, spa_gemm, spa_gemm_part};
use jaguar_ring::he::power_of_two::{PublicSeed, Rerandomiser, Ring, ZeroKey, server_share};
use jaguar_ring::planes::LimbPlanes;
use jaguar_ring::product::WideNtt;
use jaguar_ring::spectral::{BLOCK, Spectral, SpectralProduct, SpectralRows, SpectralWeights, Wanted};
use jaguar_wire::{Channel, WireError, pack};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{A_HALF_BITS, Layer};
use crate::backend::Output;
use crate::layout::{Layout, Tile};

/// One linear layer with its weights.
pub struct ServerLayer {
    layer: Layer,
    kernel: Kernel,
    /// By group: of every output channel, or of every one in part 0 of a response.
    weights: Vec<PackedWeights>,
    /// By group: what each output is the sum of. Where responses have parts, that is one group; by part then.
    terms: Vec<Vec<Term>>,
    /// By output channel: sums are multiplied by two to this. Empty: by one.
    exponents: Vec<u8>,
    bias: Bias,
    /// The largest shift of any term.
    reach: usize,
    /// Σ w·X^shift·a of every response of the hint, its high 32 bits.
    a_half: OnceLock<Vec<u32>>,
    /// Whether [`Spectral`] may be used.
    may_transform: bool,
    /// The online product by way of a transform over the parts of the ring, where that is faster.
    online: Option<(Spectral, SpectralWeights)>,
}

/// What the transformed inputs of one layer may take, of all its tiles: they stay until its last channel is made.
const MAX_TRANSFORMED: usize = 32 << 20;

/// b + Δ·x of one tile, as the online product reads it.
enum Rows {
    Limbs(LimbPlanes),
    Frequencies(SpectralRows),
}

/// What the server keeps of one layer for one query. Used once: `begin` consumes it.
pub struct ServerPrepared {
    /// B − z0 at the outputs, `[C, image, H, W]`.
    masks: Zeroizing<Vec<u64>>,
}

/// What the client sent of one layer: b at the coefficients that are read.
#[derive(Default)]
pub struct Upload {
    words: Vec<u64>,
    /// How many ciphertexts of it are there.
    received: usize,
}

impl ServerLayer {
    /// As [`new`](Self::new), but both halves are always computed from limb planes: what they are tested against and measured
    /// against.
    ///
    /// # Panics
    /// As `new`.
    pub fn from_limbs(cpu: Cpu, layer: Layer, weights: &Weights, weight_bits: u32) -> Self {
        Self { may_transform: false, online: None, ..Self::new(cpu, layer, weights, weight_bits) }
    }

    /// Packs the weights for the kernels, of which the fastest one that `cpu` allows is taken.
    ///
    /// # Panics
    /// When the weights are not the layer's (`Model::validate` excludes it).
    pub fn new(cpu: Cpu, layer: Layer, weights: &Weights, weight_bits: u32) -> Self {
        let layout = &layer.layout;
        let (groups, each) = (layout.spec().groups, layout.terms_per_output());
        let outs = layout.out_shape()[0] / groups;
        assert_eq!(weights.weights.len(), groups * outs * each, "weights of another layer");
        let (packed, terms) = if layout.parts() > 1 {
            let row = |row: usize| &weights.weights[layout.channel(row, 0) * each..][..each];
            let first: Zeroizing<Vec<i16>> =
                Zeroizing::new((0..layout.responses_per_tile()).flat_map(row).copied().collect());
            let packed = PackedWeights::new(layout.responses_per_tile(), each, weight_bits, &first);
            let terms = gemm_terms(layout, 0);
            let shifted = |part: usize| {
                let shift = (part * layout.part_len()) as u32;
                terms.iter().map(|term| Term { offset: term.offset + shift, ..*term }).collect()
            };
            (vec![packed], (0..layout.parts()).map(shifted).collect())
        } else {
            let of_group = |w: &[i16]| PackedWeights::new(outs, each, weight_bits, w);
            let terms: Vec<_> = (0..groups).map(|g| gemm_terms(layout, g)).collect();
            (weights.weights.chunks(outs * each).map(of_group).collect(), terms)
        };
        // (Of part 0, if there are several.)
        let groups = if layout.parts() > 1 { &terms[..1] } else { &terms[..] };
        let reach = groups.iter().flatten().map(|term| term.offset).max().unwrap_or(0) as usize;
        let kernel = Kernel::of(cpu);
        let online = (layout.parts() > 1).then(|| transformed_online(kernel, &layer, &packed[0], &terms[0]));
        Self {
            reach,
            online: online.flatten(),
            terms,
            weights: packed,
            exponents: weights.exponents.clone(),
            bias: weights.bias.clone(),
            a_half: OnceLock::new(),
            may_transform: true,
            kernel,
            layer,
        }
    }

    /// What both parties know of the layer.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// For the responses `rows` of one tile (whole groups, or of a single group those from a multiple of [`TILE`] on): the first
    /// `len` coefficients of each of `parts` parts of Σ w·X^-shift·(the ciphertexts in `planes`), as `[rows][parts][len]`.
    fn convolve(&self, planes: &LimbPlanes, rows: Range<usize>, parts: usize, len: usize) -> Vec<u64> {
        let layout = &self.layer.layout;
        let mut out = vec![0; rows.len() * parts * len];
        if let [weights] = &self.weights[..] {
            for (part, terms) in self.terms[..parts].iter().enumerate() {
                let out = &mut out[part * len..];
                spa_gemm_part(planes.kernel(), planes, terms, weights, rows.clone(), len, out, parts * len);
            }
        } else {
            let outs = layout.out_shape()[0] / layout.spec().groups;
            let first = rows.start / outs;
            out.par_chunks_mut(outs * len).enumerate().for_each(|(g, out)| {
                let g = first + g;
                spa_gemm(planes, &self.terms[g], &self.weights[g], len, out, len);
            });
        }
        out
    }

    fn exponent(&self, channel: usize) -> u32 {
        self.exponents.get(channel).map_or(0, |&e| u32::from(e))
    }

    /// The a half of every response of the hint. Needs no client; kept.
    pub fn prepare_model(&self, public: &PublicSeed) {
        self.a_half(public);
    }

    /// Computed by the limb planes' matrix product, or by way of a transform over the maps of packed ciphertexts where that is
    /// faster ([`Spectral::best`]); both give the same bits.
    pub(super) fn a_half(&self, public: &PublicSeed) -> &[u32] {
        self.a_half.get_or_init(|| {
            let Layer { layout, params, index, .. } = &self.layer;
            let (n, k, per_tile) = (layout.ring_dim(), params.modulus_bits(), layout.ciphertexts_per_tile());
            let keep = |row: usize, words: &[u64], out: &mut [u32]| {
                let exponent = self.exponent(layout.channel(row, 0));
                for (out, &w) in out.iter_mut().zip(words) {
                    *out = high_bits(w << exponent, k, A_HALF_BITS.min(k)) as u32;
                }
            };
            let spectral = self.spectral();
            let mut kept = vec![0; self.layer.hint_responses() * n];
            let sets = kept.chunks_exact_mut(layout.responses_per_tile() * n);
            for (set, kept) in sets.enumerate() {
                let a = |i: usize, words: &mut [u64]| public.a(params, *index, set * per_tile + i, words);
                if let Some((plan, weights)) = &spectral {
                    plan.multiply(&plan.rows(a), weights, kept, keep);
                } else {
                    let mut planes = LimbPlanes::new(self.kernel, k, per_tile, n + self.reach);
                    planes.fill_negacyclic(n, a);
                    let words = self.convolve(&planes, 0..layout.responses_per_tile(), 1, n);
                    let outputs = words.par_chunks(n).zip(kept.par_chunks_mut(n)).enumerate();
                    outputs.for_each(|(d, (words, kept))| keep(d, words, kept));
                }
            }
            kept
        })
    }

    /// How the a half is transformed, with the weights ordered for it, if that is faster. A grouped layer has as many small
    /// products as groups, in which no two terms fall together.
    pub(super) fn spectral(&self) -> Option<(Spectral, SpectralWeights)> {
        let Layer { layout, params, .. } = &self.layer;
        let [weights] = &self.weights[..] else { return None };
        if !self.may_transform {
            return None;
        }
        let product = SpectralProduct {
            n: layout.ring_dim(),
            bits: params.modulus_bits(),
            rows: layout.ciphertexts_per_tile(),
            terms: &self.terms[0],
            weight_bits: weights.weight_bits(),
            wanted: Wanted::first(layout.ring_dim()),
        };
        let plan = Spectral::best(self.kernel, product, weights.outs())?;
        let weights = plan.weights(weights);
        Some((plan, weights))
    }

    /// The hint's responses `range` for the client whose hint key this is: `A = Σ w·X^shift·a + p1·u + e1`, rounded to
    /// a prime of `hint_bits`, transformed and packed. The same call gives the same bytes.
    ///
    /// # Panics
    /// When `range` reaches beyond the hint's responses.
    pub fn hint(
        &self,
        ring: &Ring,
        public: &PublicSeed,
        p1: &WideNtt,
        hint_key: &[u8; 32],
        range: Range<usize>,
    ) -> Vec<u8> {
        let Layer { layout, params, index, hint_bits, .. } = &self.layer;
        let (n, k) = (layout.ring_dim(), params.modulus_bits());
        let a_half = self.a_half(public);
        let up = k - A_HALF_BITS.min(k);
        let hint_ring = self.layer.hint_ring(ring.kernel());
        let mut packed = vec![0; range.len() * self.layer.hint_response_bytes()];
        packed.par_chunks_mut(self.layer.hint_response_bytes()).zip(range).for_each_init(
            || (vec![0u64; n], hint_ring.residues()),
            |(words, rounded), (packed, r)| {
                for (word, &kept) in words.iter_mut().zip(&a_half[r * n..(r + 1) * n]) {
                    *word = u64::from(kept) << up;
                }
                let hint = Rerandomiser::new(ring, hint_key, *index, r).hint(ring, words, p1);
                hint_ring.round_into(&hint, k, rounded);
                words.iter_mut().zip(rounded.words()).for_each(|(word, &r)| *word = u64::from(r));
                packed.copy_from_slice(&pack::pack(words, *hint_bits));
            },
        );
        packed
    }

    /// Prepares the layer for one query: for each response one product modulo a single prime. `keys` are the client's for the
    /// query, at least [`Layer::secrets`] of them.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn prepare(
        &self,
        ring: &Ring,
        hint_key: &[u8; 32],
        keys: &[ZeroKey],
        mask_seed: &[u8; 32],
    ) -> ServerPrepared {
        let layer = &self.layer;
        let layout = &layer.layout;
        let plane_len = layout.plane_len();
        let (block, parts, keys) = (layout.block(), layout.parts(), &keys[..layer.secrets()]);
        let mut masks = layer.masks(mask_seed);
        masks.par_chunks_mut(block * plane_len).enumerate().for_each_init(
            || (keys[0].scratch(), Zeroizing::new(vec![0; layout.ring_dim()])),
            |(scratch, z0), (at, planes)| {
                for row in at * (block / parts)..(at + 1) * (block / parts) {
                    for (t, tile) in layout.tiles().iter().enumerate() {
                        if t % keys.len() == 0 {
                            // One u for all tiles of the set.
                            let index = t / keys.len() * layout.responses_per_tile() + row;
                            Rerandomiser::new(ring, hint_key, layer.index, index)
                                .transform_into(&keys[0], scratch);
                        }
                        let len = layout.export_len(tile);
                        let z0 = &mut z0[..parts * len];
                        keys[t % keys.len()].times_transformed(scratch, parts, z0);
                        for part in 0..parts {
                            let channel = layout.channel(row, part) % block;
                            let plane = &mut planes[channel * plane_len..][..plane_len];
                            layout.each_export(tile, &z0[part * len..], plane, |_, r, z| {
                                *r = r.wrapping_sub(z)
                            });
                        }
                    }
                }
            },
        );
        ServerPrepared { masks }
    }

    /// Receives the client's b.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn receive(&self, channel: &mut Channel) -> Result<Upload, WireError> {
        let mut upload = Upload::default();
        self.receive_ready(&mut upload, channel, usize::MAX)?;
        Ok(upload)
    }

    /// Receives as much of the client's b as it sends when it knows the first `values` of its input share, and has not sent
    /// before.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn receive_ready(
        &self,
        upload: &mut Upload,
        channel: &mut Channel,
        values: usize,
    ) -> Result<(), WireError> {
        let (inputs, bits) = (&self.layer.inputs, self.layer.upload_bits);
        upload.words.resize(inputs.count(), 0);
        let ready = inputs.ready(values).max(upload.received);
        for one in &inputs.uploads()[upload.received..ready] {
            let count = inputs.ciphertext(one.index).pattern.count;
            upload.words[one.start..one.start + count].copy_from_slice(&channel.recv_packed(count, bits)?);
        }
        upload.received = ready;
        Ok(())
    }

    /// Adds the server's input share `x` (`[C, image, H, W]`, modulo 2^(n+f)) to the client's b. What comes is the server's output
    /// share, to be made as it is wanted.
    ///
    /// # Panics
    /// When `x` has not the layer's input shape, or b is not complete.
    pub fn begin(&self, prepared: ServerPrepared, b: Upload, x: &[u64]) -> ServerOutput<&Self> {
        ServerOutput::new(self, prepared, b, x)
    }

    /// As [`begin`](Self::begin), for an output that keeps the layer alive.
    ///
    /// # Panics
    /// As `begin`.
    pub(crate) fn begin_shared(
        self: Arc<Self>,
        prepared: ServerPrepared,
        b: Upload,
        x: &[u64],
    ) -> ServerOutput<Arc<Self>> {
        ServerOutput::new(self, prepared, b, x)
    }

    /// b + Δ·x of some tiles, where `b` is cut into the ciphertexts' parts.
    fn rows(&self, tiles: Range<usize>, b: &[&mut [u64]], x: &[u64]) -> Vec<Rows> {
        let layer = &self.layer;
        let layout = &layer.layout;
        let (n, k) = (layout.ring_dim(), layer.params.modulus_bits());
        let per_tile = layout.ciphertexts_per_tile();
        if let Some((plan, _)) = &self.online {
            let low = layer.low_zeros();
            let of_tile = |tile: usize| {
                plan.rows(|i, words| {
                    let index = tile * per_tile + i;
                    self.words(index, b[index], x, words);
                    words.iter_mut().for_each(|word| *word >>= low);
                })
            };
            return tiles.map(|tile| Rows::Frequencies(of_tile(tile))).collect();
        }
        let planes_of = |tile: &Tile| {
            // Unless some shift reads beyond the last coefficient, nothing wraps around.
            let read = (layout.parts() - 1) * layout.part_len() + layout.export_len(tile);
            let reach = self.reach + read;
            LimbPlanes::new(self.kernel, k, per_tile, if reach > n { 2 * n } else { reach })
        };
        let first = tiles.start * per_tile;
        let mut planes: Vec<LimbPlanes> = layout.tiles()[tiles].iter().map(planes_of).collect();
        let rows = planes.iter_mut().flat_map(|planes| {
            let len = planes.row_len();
            planes.rows_mut().map(move |row| (len, row))
        });
        let rows: Vec<_> = rows.enumerate().collect();
        rows.into_par_iter().for_each_init(
            || vec![0u64; n],
            |words, (i, (len, mut row))| {
                self.words(first + i, b[first + i], x, words);
                if len > n { row.set_negacyclic(words) } else { row.set(&words[..len]) }
            },
        );
        planes.into_iter().map(Rows::Limbs).collect()
    }

    /// b + Δ·x of ciphertext `index`, all N coefficients; zeros where none is read. Bits above the modulus mean nothing.
    fn words(&self, index: usize, mut b: &[u64], x: &[u64], words: &mut [u64]) {
        let Layer { inputs, .. } = &self.layer;
        let (dropped, delta) = (self.layer.dropped(), self.layer.delta_bits());
        let input = inputs.ciphertext(index);
        words.fill(0);
        let interleaved = inputs.interleaved();
        for run in &input.pattern.read {
            let (part, rest) = b.split_at(run.len() * interleaved);
            for (word, &b) in words[run.start as usize * interleaved..].iter_mut().zip(part) {
                *word = b << dropped;
            }
            b = rest;
        }
        inputs.each_value(index, x, words, |run| run.at, |word, x| *word = word.wrapping_add(x << delta));
    }

    /// For the responses `responses` of one tile, as [`convolve`](Self::convolve) takes them: `len` coefficients of each part.
    fn product(&self, rows: &Rows, responses: Range<usize>, len: usize) -> Vec<u64> {
        let layout = &self.layer.layout;
        match (rows, &self.online) {
            (Rows::Frequencies(rows), Some((plan, weights))) => {
                let low = self.layer.low_zeros();
                let mut out = vec![0; responses.len() * layout.parts() * len];
                plan.multiply_part(rows, weights, responses, &mut out, |_, words, out| {
                    // (A tile may be smaller than the largest one.)
                    for (out, words) in out.chunks_mut(len).zip(words.chunks(words.len() / layout.parts())) {
                        out.iter_mut().zip(words).for_each(|(out, &word)| *out = word << low);
                    }
                });
                out
            }
            (Rows::Limbs(planes), _) => self.convolve(planes, responses, layout.parts(), len),
            (Rows::Frequencies(_), None) => unreachable!("rows are transformed by the plan alone"),
        }
    }

    /// The server's output share modulo 2^n, all of it: [`begin`](Self::begin) to the end.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn run(&self, prepared: ServerPrepared, b: Upload, x: &[u64]) -> Vec<u64> {
        self.begin(prepared, b, x).finish()
    }

    /// What a part must be a multiple of: whole groups, whole tiles of the product, whole blocks.
    pub(super) fn channels_indivisible(&self) -> usize {
        let layout = &self.layer.layout;
        // (Blocks and parts are powers of two, as a tile is.)
        let tile = if self.online.is_some() { BLOCK } else { TILE };
        let whole = (tile * layout.parts()).max(layout.block());
        if self.weights.len() == 1 { whole } else { layout.out_shape()[0] / self.weights.len() }
    }

    /// Whether the online product is by frequencies.
    #[cfg(test)]
    pub(super) fn transforms_online(&self) -> bool {
        self.online.is_some()
    }

    /// How many channels are made together, at least.
    pub(super) fn channels_together(&self) -> usize {
        let layout = &self.layer.layout;
        let positions: usize = layout.tiles().iter().map(|tile| layout.export_len(tile)).sum();
        let work = positions.saturating_mul(layout.terms_per_output());
        crate::product::channels_together(layout.out_shape()[0], work, self.channels_indivisible())
    }
}

/// The server's share of a layer's output in the making: channels from the first on, as they are wanted, so that what follows
/// the layer can begin before its last channel.
///
/// Until the last channel is made it holds b + Δ·x of all tiles, transformed (32 MiB at most, layers with blocks only) or in limbs: at k = 48 6 bytes for each coefficient of the rows, that is
/// the input's values, halos, what lies between maps, and all of it twice where a shift wraps around. (5 MiB for ResNet-50's largest input.)
pub struct ServerOutput<S> {
    server: S,
    /// By tile. None left when all is made.
    rows: Vec<Rows>,
    /// `[C, image, H, W]`: of the channels that are made the shares, of the others B − z0.
    values: Zeroizing<Vec<u64>>,
    /// How many channels are made.
    channels: usize,
    /// How many are made at once, at least. A multiple of what is indivisible.
    pub(super) together: usize,
}

impl<S: Deref<Target = ServerLayer>> ServerOutput<S> {
    /// With all of b. Where a batch falls into several tiles, they are computed one after the other, as many at a time as there are threads:
    /// all of them together would fit no cache, so nothing is left to be made then.
    fn new(server: S, prepared: ServerPrepared, b: Upload, x: &[u64]) -> Self {
        let (layout, inputs) = (&server.layer.layout, &server.layer.inputs);
        assert_eq!(x.len(), layout.inputs(), "input of another shape");
        assert_eq!(b.received, inputs.uploads().len(), "the whole of b");
        let (mut words, mut values) = (b.words, prepared.masks);
        let b = inputs.split_mut(&mut words);
        let (tiles, together) = (layout.tiles().len(), server.channels_together());
        let (mut rows, mut channels) = (Vec::new(), 0);
        if layout.images() == 1 || tiles == 1 {
            rows = server.rows(0..tiles, &b, x);
        } else {
            channels = layout.out_shape()[0];
            let at_once = rayon::current_num_threads();
            for first in (0..tiles).step_by(at_once) {
                let some = first..tiles.min(first + at_once);
                let rows = server.rows(some.clone(), &b, x);
                for from in (0..channels).step_by(together) {
                    let new = from..channels.min(from + together);
                    let values = &mut values[new.start * layout.plane_len()..new.end * layout.plane_len()];
                    server.share(&rows, &layout.tiles()[some.clone()], new, values);
                }
            }
        }
        Self { server, rows, values, channels, together }
    }

    /// What is made: the first values, modulo 2^n.
    pub(crate) fn ready(&self) -> &[u64] {
        &self.values[..self.channels * self.server.layer.layout.plane_len()]
    }

    /// Makes at least the first `values` values (all, if there are not so many), and others where that costs little.
    pub(crate) fn make(&mut self, values: usize) {
        let layout = &self.server.layer.layout;
        let channels = layout.out_shape()[0];
        let wanted = values.div_ceil(layout.plane_len()).min(channels);
        if let Some(missing) = wanted.checked_sub(self.channels).filter(|&missing| missing > 0) {
            self.convolve((self.channels + missing.next_multiple_of(self.together)).min(channels));
        }
    }

    /// Makes the rest.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        self.make(usize::MAX);
        // Each mask became a share.
        std::mem::take(&mut *self.values)
    }

    /// R = B − z0 − conv(b) − Δ·bias up to channel `end`.
    fn convolve(&mut self, end: usize) {
        let server: &ServerLayer = &self.server;
        let layout = &server.layer.layout;
        let new = self.channels..end;
        let values = &mut self.values[new.start * layout.plane_len()..new.end * layout.plane_len()];
        server.share(&self.rows, layout.tiles(), new, values);
        self.channels = end;
        if end == layout.out_shape()[0] {
            self.rows = Vec::new();
        }
    }
}

impl ServerLayer {
    /// The shares of channels `new` of the outputs in `tiles`, whose b + Δ·x are `rows`: `values` hold B − z0 of these channels.
    fn share(&self, rows: &[Rows], tiles: &[Tile], new: Range<usize>, values: &mut [u64]) {
        let Self { layer, bias, .. } = self;
        let layout = &layer.layout;
        let ([_, h, w], delta) = (layout.out_shape(), layer.delta_bits());
        let (block, parts, plane_len) = (layout.block(), layout.parts(), layout.plane_len());
        let new_rows = new.start / parts..new.end / parts;
        let products = |(rows, tile): (&Rows, &Tile)| {
            let len = layout.export_len(tile);
            (len, Zeroizing::new(self.product(rows, new_rows.clone(), len)))
        };
        // Of few responses the products are small: tiles side by side then.
        let sums: Vec<_> = rows.par_iter().zip(tiles).map(products).collect();
        for ((len, sums), tile) in sums.into_iter().zip(tiles) {
            let blocks = values.par_chunks_mut(block * plane_len).zip(sums.par_chunks(block * len));
            blocks.zip(new.start / block..new.end / block).for_each(|((values, sums), at)| {
                for (i, sums) in sums.chunks(len).enumerate() {
                    let d = layout.channel(at * (block / parts) + i / parts, i % parts);
                    let exponent = self.exponent(d);
                    let plane = &mut values[d % block * plane_len..][..plane_len];
                    layout.each_export(tile, sums, plane, |i, y, s| {
                        let bias = match bias {
                            Bias::PerChannel(b) => b[d],
                            Bias::PerElement(b) => b[d * h * w + i],
                        };
                        let r = y.wrapping_sub(s << exponent).wrapping_sub((bias as u64) << delta);
                        *y = server_share(r, &layer.params, layer.activation_bits);
                    });
                }
            });
        }
    }
}

impl<S: Deref<Target = ServerLayer> + Send> Output for ServerOutput<S> {
    fn values(&self) -> &[u64] {
        self.ready()
    }

    fn make(&mut self, count: usize) {
        ServerOutput::make(self, count);
    }

    fn into_values(self: Box<Self>) -> Vec<u64> {
        (*self).finish()
    }
}

/// How a layer in parts is computed online by way of a transform over them, if that is faster: an output takes fewer products then.
fn transformed_online(
    kernel: Kernel,
    layer: &Layer,
    weights: &PackedWeights,
    terms: &[Term],
) -> Option<(Spectral, SpectralWeights)> {
    let layout = &layer.layout;
    let len = layout.tiles().iter().map(|tile| layout.export_len(tile)).max()?;
    let product = SpectralProduct {
        n: layout.ring_dim(),
        bits: layer.params.modulus_bits() - layer.low_zeros(),
        rows: layout.ciphertexts_per_tile(),
        terms,
        weight_bits: weights.weight_bits(),
        wanted: Wanted { parts: layout.parts(), len },
    };
    let plan = Spectral::best(kernel, product, weights.outs())?;
    let fits = plan.rows_bytes().saturating_mul(layout.tiles().len()) <= MAX_TRANSFORMED;
    fits.then(|| {
        let weights = plan.weights(weights);
        (plan, weights)
    })
}

/// The terms of a group's outputs, as kernels take them.
pub(crate) fn gemm_terms(layout: &Layout, group: usize) -> Vec<Term> {
    let terms = layout.terms(group).into_iter();
    terms.map(|(row, offset)| Term { row: row as u32, offset: offset as u32 }).collect()
}

/// The `keep` highest of k bits, rounded.
fn high_bits(word: u64, k: u32, keep: u32) -> u64 {
    let drop = k - keep;
    (word.wrapping_add((1u64 << drop) >> 1) & (u64::MAX >> (64 - k))) >> drop
}
