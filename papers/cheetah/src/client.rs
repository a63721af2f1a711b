//! The client's half: it knows no weight, and of the layer only what `Layer` says.

use std::sync::Arc;

use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::lanes::SecretKey;
use jaguar_ring::prg::Prg;
use jaguar_ring::product::rns::{LIMB_BITS, Rns, RnsPoly};
use jaguar_wire::pack;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Encoding, Layer, PublicKey, Response, Upload, a_half, p1};
use jaguar_linear::cut;

/// The client's secret, for layers of one number of limbs: one for any number of queries. Neither copied,
/// printed nor stored.
pub struct Secret {
    key: Arc<SecretKey>,
    prg: Prg,
}

/// What the client keeps of one layer for one query: `e − a·s` for every ciphertext. Used once.
pub struct ClientPrepared {
    rns: Rns,
    /// The a halves come from it.
    seed: [u8; 32],
    zeros: Vec<RnsPoly>,
}

impl Secret {
    /// A fresh secret from the operating system's randomness, for layers of as many limbs as `layer` has. What is
    /// computed with it uses the instructions that `cpu` has.
    pub fn fresh<E: Encoding>(cpu: Cpu, layer: &Layer<E>) -> Self {
        Self::from_prg(cpu, layer, Prg::from_os())
    }

    /// A secret from given randomness (tests fix it).
    pub(crate) fn from_prg<E: Encoding>(cpu: Cpu, layer: &Layer<E>, mut prg: Prg) -> Self {
        let key = SecretKey::from_prg(&layer.ring(cpu), &mut prg);
        Self { key: Arc::new(key), prg }
    }

    /// The layers that it serves have so many primes.
    pub(crate) fn limbs(&self) -> usize {
        self.key.ring().limbs()
    }

    /// What decrypts the responses of a query, for as long as it runs.
    pub(super) fn share(&self) -> Arc<SecretKey> {
        Arc::clone(&self.key)
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.prg.fill(&mut seed);
        seed
    }

    /// Step 1: `p0 = e − p1·s`. Every call makes another.
    pub fn key(&mut self) -> PublicKey {
        let (seed, noise) = (self.seed(), Zeroizing::new(self.seed()));
        let rns = self.key.ring();
        let p1 = rns.transform(p1(rns, &seed));
        let p0 = self.key.encrypt_zero(&p1, &mut Prg::new(*noise));
        PublicKey { seed, p0: pack_poly(rns, &p0) }
    }

    /// Step 2, before the input: encryptions of zero for one query of `layer`, other ones at every call.
    ///
    /// # Panics
    /// When the secret is one for another number of limbs.
    pub fn prepare<E: Encoding>(&mut self, layer: &Layer<E>) -> ClientPrepared {
        check(&self.key, layer);
        let (seed, noise) = (self.seed(), Zeroizing::new(self.seed()));
        let zero = |i: usize| {
            let rns = self.key.ring();
            let a = rns.transform(a_half(rns, &seed, i));
            self.key.encrypt_zero(&a, &mut Prg::derive(&noise, "cheetah b noise", &[i as u64]))
        };
        let zeros = (0..layer.layout.ciphertexts()).into_par_iter().map(zero).collect();
        ClientPrepared { rns: self.key.ring().clone(), seed, zeros }
    }

    /// Step 5: the client's output share, `[C, H, W]` modulo 2^l.
    ///
    /// # Panics
    /// When `response` is one to another layer, or the secret is one for another number of limbs.
    pub fn decrypt<E: Encoding>(&self, layer: &Layer<E>, response: &Response) -> Vec<u64> {
        decrypt(&self.key, layer, response)
    }
}

fn check<E: Encoding>(key: &SecretKey, layer: &Layer<E>) {
    let found = (key.ring().n(), key.ring().limbs());
    assert_eq!(found, (layer.params.ring_dim(), layer.limbs()), "a secret for layers of another ring");
}

/// As [`Secret::decrypt`].
pub(super) fn decrypt<E: Encoding>(key: &SecretKey, layer: &Layer<E>, response: &Response) -> Vec<u64> {
    check(key, layer);
    let (n, bits) = (key.ring().n(), layer.a_bits());
    assert_eq!(response.a.len(), layer.layout.responses() * layer.a_bytes(), "a response to another layer");
    assert_eq!(response.b.len(), layer.layout.outputs(), "a response to another layer");
    let mask = (1u64 << layer.share_bits) - 1;
    let step = layer.layout.column_stride();
    // Shares take the places of B, response by response.
    let mut shares = Zeroizing::new(response.b.clone());
    let pieces = cut(&mut shares, layer.exported());
    response.a.par_chunks(layer.a_bytes()).zip(pieces).enumerate().for_each_init(
        || Zeroizing::new(vec![0; n]),
        |product, (i, (a, mut shares))| {
            key.multiply_rounded_into(&pack::unpack(a, n, bits), bits, product);
            let (tile, block) = layer.place(i);
            for (from, _, len) in layer.layout.exports(tile, block) {
                let (row, rest) = shares.split_at_mut(len);
                for (share, &product) in row.iter_mut().zip(product[from..].iter().step_by(step)) {
                    // R is a multiple of B's last place: half of one more, and small noise of either sign
                    // stays on its side of the border.
                    let phase = ((2 * *share + 1) << (bits - layer.b_bits() - 1)).wrapping_add(product);
                    *share = (phase >> (bits - layer.share_bits)) & mask;
                }
                shares = rest;
            }
        },
    );
    let mut out = vec![0; layer.layout.outputs()];
    let mut rest = shares.as_slice();
    for i in 0..layer.layout.responses() {
        let (tile, block) = layer.place(i);
        for (_, to, len) in layer.layout.exports(tile, block) {
            let (row, others) = rest.split_at(len);
            out[to..to + len].copy_from_slice(row);
            rest = others;
        }
    }
    out
}

impl ClientPrepared {
    /// Step 2: encrypts the client's input share `x` (`[C, H, W]`, modulo 2^l).
    ///
    /// # Panics
    /// When this was prepared for another layer, or `x` has not its input shape.
    pub fn encrypt<E: Encoding>(self, layer: &Layer<E>, x: &[u64]) -> Upload {
        let (layout, rns) = (&layer.layout, &self.rns);
        assert_eq!(x.len(), layout.inputs(), "input of another shape");
        assert_eq!(self.zeros.len(), layout.ciphertexts(), "prepared for another layer");
        let mut b = vec![0; layout.ciphertexts() * layer.poly_bytes()];
        let ciphertexts = b.par_chunks_mut(layer.poly_bytes()).zip(self.zeros);
        ciphertexts.enumerate().for_each_init(
            || Zeroizing::new(vec![0; rns.n()]),
            |values, (i, (bytes, mut b))| {
                values.fill(0);
                let (tile, block) = (i / layout.in_blocks(), i % layout.in_blocks());
                layout.write_inputs(tile, block, x, values);
                rns.add_scaled(&mut b, values, layer.share_bits);
                bytes.copy_from_slice(&pack_poly(rns, &b));
            },
        );
        Upload { seed: self.seed, b }
    }
}

/// A polynomial for the wire, [`Layer::poly_bytes`] of it.
fn pack_poly(rns: &Rns, poly: &RnsPoly) -> Vec<u8> {
    pack::pack(&rns.to_words(poly), LIMB_BITS)
}
