//! The client's half: it knows no weight, and of the layer only what `Layer` says.

use jaguar_ring::prg::Prg;
use jaguar_ring::product::rns::{Rns, RnsNtt, RnsSmall};
use jaguar_ring::product::{Multiplier, SmallNtt};
use jaguar_ring::sample;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Layer, PublicKey, Response, Upload, p1};

/// The client's secret of one query, for layers of one number of limbs. Neither copied, printed nor stored.
pub struct Query {
    rns: Rns,
    multiplier: Multiplier,
    /// s for products modulo q, and for those modulo a power of two.
    s: RnsSmall,
    s_binary: SmallNtt,
    prg: Prg,
}

impl Query {
    /// A fresh secret from the operating system's randomness, for layers of as many limbs as `layer` has.
    pub fn fresh(layer: &Layer) -> Self {
        Self::from_prg(layer, Prg::from_os())
    }

    /// A secret from given randomness (tests fix it).
    pub fn from_prg(layer: &Layer, mut prg: Prg) -> Self {
        let rns = layer.rns.clone();
        let multiplier = Multiplier::new(rns.n());
        let mut s = Zeroizing::new(vec![0i8; rns.n()]);
        sample::ternary(&mut prg, &mut s);
        Self { s: rns.prepare_small(&s), s_binary: multiplier.prepare_small(&s), multiplier, rns, prg }
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.prg.fill(&mut seed);
        seed
    }

    fn check(&self, layer: &Layer) {
        let found = (self.rns.n(), self.rns.limbs());
        assert_eq!(found, (layer.rns.n(), layer.limbs()), "a secret for layers of another ring");
    }

    /// Step 1: `p0 = e − p1·s`. Every call makes another.
    pub fn key(&mut self) -> PublicKey {
        let (seed, noise) = (self.seed(), Zeroizing::new(self.seed()));
        let p1 = self.rns.transform(p1(&self.rns, &seed));
        let p0 = encrypt(&self.rns, &self.s, &p1, &mut Prg::new(*noise), |_| {});
        PublicKey { seed, p0 }
    }

    /// Step 2: encrypts the client's input share `x` (`[C, H, W]`, modulo 2^l).
    ///
    /// # Panics
    /// When `x` has not the layer's input shape, or the secret is one for another number of limbs.
    pub fn encrypt(&mut self, layer: &Layer, x: &[u64]) -> Upload {
        self.check(layer);
        let (seed, noise) = (self.seed(), Zeroizing::new(self.seed()));
        let layout = &layer.layout;
        assert_eq!(x.len(), layout.in_shape().iter().product::<usize>(), "input of another shape");
        let b: Vec<Vec<u64>> = (0..layout.ciphertexts())
            .into_par_iter()
            .map_init(
                || Zeroizing::new(vec![0; layer.rns.n()]),
                |values, i| {
                    let a = layer.rns.transform(layer.a(&seed, i));
                    let mut noise = Prg::derive(&noise, "cheetah b noise", &[i as u64]);
                    values.fill(0);
                    let (tile, block) = (i / layout.in_blocks(), i % layout.in_blocks());
                    for (at, from) in layout.contents(&layout.tiles()[tile], block) {
                        values[at] = x[from];
                    }
                    encrypt(&layer.rns, &self.s, &a, &mut noise, |b| {
                        layer.rns.add_scaled(b, values, layer.share_bits);
                    })
                },
            )
            .collect();
        Upload { seed, b: b.concat() }
    }

    /// Step 5: the client's output share, `[C, H, W]` modulo 2^l.
    ///
    /// # Panics
    /// When `response` is one to another layer, or the secret is one for another number of limbs.
    pub fn decrypt(&self, layer: &Layer, response: &Response) -> Vec<u64> {
        self.check(layer);
        let (n, bits) = (layer.rns.n(), layer.a_bits());
        let exports: Vec<_> = layer.responses().collect();
        assert_eq!(response.a.len(), exports.len() * n, "a response to another layer");
        let mut rest = response.b.as_slice();
        let b: Vec<&[u64]> = exports
            .iter()
            .map(|exports| {
                let (first, others) = rest.split_at(exports.len());
                rest = others;
                first
            })
            .collect();
        let mask = (1u64 << layer.share_bits) - 1;
        let shares: Vec<Vec<u64>> = response
            .a
            .par_chunks(n)
            .zip(exports.par_iter().zip(b))
            .map_init(
                || vec![0; n],
                |product, (a, (exports, b))| {
                    self.multiplier.multiply_into(a, bits, &self.s_binary, product);
                    exports
                        .iter()
                        .zip(b)
                        .map(|(&(at, _), &b)| {
                            // R is a multiple of B's last place: half of one more, and small noise of either
                            // sign stays on its side of the border.
                            let phase =
                                ((2 * b + 1) << (bits - layer.b_bits() - 1)).wrapping_add(product[at]);
                            (phase >> (bits - layer.share_bits)) & mask
                        })
                        .collect()
                },
            )
            .collect();
        let mut out = vec![0; layer.layout.outputs()];
        for (&(_, to), &share) in exports.iter().flatten().zip(shares.iter().flatten()) {
            out[to] = share;
        }
        out
    }
}

/// The residues of `e − a·s + what 'message' adds`.
fn encrypt(
    rns: &Rns,
    s: &RnsSmall,
    a: &RnsNtt,
    noise: &mut Prg,
    message: impl FnOnce(&mut jaguar_ring::product::rns::RnsPoly),
) -> Vec<u64> {
    let mut b = rns.multiply(a, s);
    rns.negate(&mut b);
    let mut e = Zeroizing::new(vec![0i8; rns.n()]);
    sample::noise(noise, &mut e);
    rns.add_small(&mut b, &e);
    message(&mut b);
    rns.to_words(&b)
}
