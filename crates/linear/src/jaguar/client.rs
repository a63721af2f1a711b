//! The client's half: it knows no weight, and of the layer only what `Layer` says.

use jaguar_ring::he::power_of_two::{PublicSeed, QuerySecret, Ring, client_share};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, WireError, pack};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::Layer;
use crate::inputs::Upload;

/// What the client keeps of one layer for one query. Used once: `run` consumes it.
pub struct ClientPrepared {
    /// e − a·s at the coefficients that are sent, in their order.
    zeros: Zeroizing<Vec<u64>>,
    /// How many ciphertexts have been sent.
    sent: usize,
    /// The client's share of the layer's output, `[C, image, H, W]` modulo 2^n. Known before the input is.
    pub output: Zeroizing<Vec<u64>>,
}

/// Prepares `layer` for one query.
///
/// `hint` is the layer's part of the hint (`layer.hint_bytes()` bytes), `secrets` are the query's, at least
/// [`Layer::secrets`] of them, `mask_seed` came from the server for this query. The work is one ring product for each input ciphertext, and for each response one modulo a single prime, of which the
/// hint holds the transformed operand.
///
/// # Panics
/// When `hint` has another length, or there are fewer secrets.
pub fn prepare(
    layer: &Layer,
    ring: &Ring,
    public: &PublicSeed,
    hint: &[u8],
    secrets: &mut [QuerySecret],
    mask_seed: &[u8; 32],
) -> ClientPrepared {
    assert_eq!(hint.len(), layer.hint_bytes(), "the hint of another layer");
    let layout = &layer.layout;
    let n = layout.ring_dim();
    let noise_seed = secrets[0].noise_seed();
    let secrets = &secrets[..layer.secrets()];

    // 1. Encryptions of zero under every input ciphertext's a.
    let mut zeros = Zeroizing::new(vec![0; layer.inputs.count()]);
    layer.inputs.split_mut(&mut zeros).into_par_iter().enumerate().for_each_init(
        || vec![0; n],
        |a, (i, mut zeros)| {
            let secret = &secrets[i / layout.ciphertexts_per_tile() % secrets.len()];
            public.a(&layer.params, layer.index, layer.a_of(i), a);
            let mut noise = Prg::derive(&noise_seed, "jaguar b noise", &[layer.index as u64, i as u64]);
            let b = Zeroizing::new(secret.encrypt_zero(ring, a, &mut noise));
            let interleaved = layer.inputs.interleaved();
            for run in &layer.inputs.ciphertext(i).pattern.read {
                let (part, rest) = zeros.split_at_mut(run.len() * interleaved);
                part.copy_from_slice(&b[run.start as usize * interleaved..run.end as usize * interleaved]);
                zeros = rest;
            }
        },
    );

    // 2. The output share: the phase B + A·s, rounded.
    let plane_len = layout.plane_len();
    let hint_ring = layer.hint_ring(ring.kernel());
    let small: Vec<_> = secrets.iter().map(|secret| secret.for_responses(&hint_ring)).collect();
    let (block, parts) = (layout.block(), layout.parts());
    let mut output = layer.masks(mask_seed);
    output.par_chunks_mut(block * plane_len).enumerate().for_each_init(
        || (hint_ring.residues(), Zeroizing::new(vec![0u64; n])),
        |(response, product), (at, planes)| {
            let rows = at * (block / parts)..(at + 1) * (block / parts);
            for (row, (t, tile)) in
                rows.flat_map(|row| layout.tiles().iter().enumerate().map(move |t| (row, t)))
            {
                let from = t / secrets.len() * layout.responses_per_tile() + row;
                let packed = &hint[from * layer.hint_response_bytes()..][..layer.hint_response_bytes()];
                pack::unpack_u32_into(packed, layer.hint_bits, response.words_mut());
                let (small, bits) = (&small[t % secrets.len()], layer.params.modulus_bits());
                let len = layout.export_len(tile);
                let product = &mut product[..parts * len];
                hint_ring.multiply_received_into(response, small, bits, parts, product);
                for part in 0..parts {
                    let plane = &mut planes[layout.channel(row, part) % block * plane_len..][..plane_len];
                    layout.each_export(tile, &product[part * len..], plane, |_, y, p| {
                        *y = client_share(y.wrapping_add(p), &layer.params, layer.activation_bits);
                    });
                }
            }
        },
    );
    ClientPrepared { zeros, sent: 0, output }
}

impl ClientPrepared {
    /// Sends every ciphertext of the client's input share that was not sent yet and can be made of `x`, the first values of the
    /// share (`[C, image, H, W]`, modulo 2^(n+f) or more).
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&mut self, layer: &Layer, channel: &mut Channel, x: &[u64]) -> Result<(), WireError> {
        let (delta, mask) = (layer.delta_bits(), layer.params.mask());
        let (dropped, half) = (layer.dropped(), (1u64 << layer.dropped()) >> 1);
        let inputs = &layer.inputs;
        let ready = inputs.ready(x.len()).max(self.sent);
        let encrypt = |upload: &Upload| {
            let count = inputs.ciphertext(upload.index).pattern.count;
            let mut b = Zeroizing::new(self.zeros[upload.start..][..count].to_vec());
            inputs.each_value(
                upload.index,
                x,
                &mut b,
                |run| run.rank,
                |w, x| *w = w.wrapping_add(x << delta),
            );
            b.iter_mut().for_each(|w| *w = (w.wrapping_add(half) & mask) >> dropped);
            pack::pack(&b, layer.upload_bits)
        };
        let packed: Vec<Vec<u8>> = inputs.uploads()[self.sent..ready].par_iter().map(encrypt).collect();
        self.sent = ready;
        packed.iter().try_for_each(|bytes| channel.send(bytes))
    }

    /// Sends what was not sent yet of the encryption of the client's input share (`[C, image, H, W]`, modulo 2^(n+f)). The client's
    /// output share is [`ClientPrepared::output`]; nothing comes back.
    ///
    /// # Errors
    /// When the connection is gone.
    ///
    /// # Panics
    /// When `x` has not the layer's input shape.
    pub fn run(mut self, layer: &Layer, channel: &mut Channel, x: &[u64]) -> Result<Vec<u64>, WireError> {
        assert_eq!(x.len(), layer.layout.inputs(), "input of another shape");
        self.send(layer, channel, x)?;
        Ok(std::mem::take(&mut *self.output))
    }
}
