//! The client's half: it knows no weight, and of the layer only what `Layer` says.

use jaguar_ring::prg::Prg;
use jaguar_rlwe::{PublicSeed, QuerySecret, Ring, client_share};
use jaguar_wire::{Channel, WireError, pack};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::Layer;

/// What the client keeps of one layer for one query. Used once: `run` consumes it.
pub struct ClientPrepared {
    /// e − a·s at the coefficients that are sent, in their order.
    zeros: Zeroizing<Vec<u64>>,
    /// The client's share of the layer's output, `[C, H, W]` modulo 2^n. Known before the input is.
    pub output: Vec<u64>,
}

/// Prepares `layer` for one query.
///
/// `hint` is the layer's part of the hint (`layer.hint_bytes()` bytes), `mask_seed` came from the server for
/// this query. The work is one ring product per input ciphertext and one per response.
///
/// # Panics
/// When `hint` has another length.
pub fn prepare(
    layer: &Layer,
    ring: &Ring,
    public: &PublicSeed,
    hint: &[u8],
    secret: &mut QuerySecret,
    mask_seed: &[u8; 32],
) -> ClientPrepared {
    assert_eq!(hint.len(), layer.hint_bytes(), "the hint of another layer");
    let layout = &layer.layout;
    let (n, per_tile) = (layout.ring_dim(), layout.ciphertexts_per_tile());
    let noise_seed = secret.noise_seed();
    let secret = &*secret;

    // 1. Encryptions of zero under every input ciphertext's a.
    let zeros: Vec<Zeroizing<Vec<u64>>> = (0..layout.ciphertexts())
        .into_par_iter()
        .map(|i| {
            let mut a = vec![0; n];
            public.a(&layer.params, layer.index, i, &mut a);
            let mut noise = Prg::derive(&noise_seed, "jaguar b noise", &[layer.index as u64, i as u64]);
            let b = Zeroizing::new(secret.encrypt_zero(ring, &a, &mut noise));
            let contents = layout.contents(&layout.tiles()[i / per_tile], i % per_tile);
            Zeroizing::new(contents.read.iter().map(|&r| b[r as usize]).collect())
        })
        .collect();

    // 2. The output share: the phase B + A·s, rounded.
    let mut output = layer.masks(mask_seed);
    let plane = layout.out_shape()[1] * layout.out_shape()[2];
    let dropped = layer.params.modulus_bits() - layer.hint_bits;
    let channels: Vec<_> = output.chunks_mut(plane).collect();
    let channel_count = channels.len();
    channels.into_par_iter().enumerate().for_each_init(
        || Zeroizing::new(vec![0u64; n]),
        |product, (d, plane)| {
            for (t, tile) in layout.tiles().iter().enumerate() {
                let at = (t * channel_count + d) * layer.hint_response_bytes();
                let response = pack::unpack(&hint[at..at + layer.hint_response_bytes()], n, layer.hint_bits);
                secret.times(ring, &response, layer.hint_bits, product);
                for (from, to, len) in layout.exports(tile) {
                    for (y, &p) in plane[to..to + len].iter_mut().zip(&product[from..from + len]) {
                        *y = client_share(y.wrapping_add(p << dropped), &layer.params, layer.activation_bits);
                    }
                }
            }
        },
    );
    let mut all = Zeroizing::new(Vec::with_capacity(layer.uploads));
    zeros.iter().for_each(|z| all.extend_from_slice(z));
    ClientPrepared { zeros: all, output }
}

impl ClientPrepared {
    /// Sends the encryption of the client's input share (`[C, H, W]`, modulo 2^(n+f)). The client's output share is
    /// [`ClientPrepared::output`]; nothing comes back.
    ///
    /// # Errors
    /// When the connection is gone.
    ///
    /// # Panics
    /// When `x` has not the layer's input shape.
    pub fn run(self, layer: &Layer, channel: &mut Channel, x: &[u64]) -> Result<Vec<u64>, WireError> {
        let layout = &layer.layout;
        assert_eq!(x.len(), layout.in_shape().iter().product::<usize>(), "input of another shape");
        let mut b = self.zeros;
        let per_tile = layout.ciphertexts_per_tile();
        let (delta, mask) = (layer.delta_bits(), layer.params.mask());
        let (dropped, half) = (layer.dropped(), (1u64 << layer.dropped()) >> 1);
        let mut rank = vec![0u32; layout.ring_dim()];
        let mut start = 0;
        for i in 0..layout.ciphertexts() {
            let contents = layout.contents(&layout.tiles()[i / per_tile], i % per_tile);
            contents.read.iter().enumerate().for_each(|(r, &at)| rank[at as usize] = r as u32);
            for &(at, from) in &contents.data {
                let word = &mut b[start + rank[at as usize] as usize];
                *word = word.wrapping_add(x[from as usize] << delta);
            }
            start += contents.read.len();
        }
        b.iter_mut().for_each(|w| *w = (w.wrapping_add(half) & mask) >> dropped);
        channel.send_packed(&b, layer.upload_bits)?;
        Ok(self.output)
    }
}
