//! The client's half: keys, ciphertexts of its share, and its share of the result.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::ParameterError;
use jaguar_ring::he::rns::{GaloisKey, JointKeys, Poly, Ring, SecretKey, SeededCiphertext, Values};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, Stage, pack};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::layer::HyenaLayers;
use super::{Encoding, Layer, Tools, response_ring};
use jaguar_linear::backend::{BackendError, BackendParty, Online, Output};

/// The client's side of a session.
pub(super) struct Client {
    layers: Arc<HyenaLayers>,
    ring: Ring,
    /// Fresh randomness comes from it: what encryptions take.
    prg: Prg,
    /// Of ciphertexts, then those of further responses with one a half.
    secrets: Option<Arc<Vec<SecretKey>>>,
    /// By [`Layer::encoding`].
    tools: HashMap<Encoding, Arc<Tools>>,
}

impl Client {
    pub(super) fn new(layers: Arc<HyenaLayers>, cpu: Cpu, prg: Prg) -> Self {
        let ring = layers.ring(cpu);
        Self { layers, ring, prg, secrets: None, tools: HashMap::new() }
    }
}

/// What a plan's own figures cannot cause.
pub(super) fn checked<T>(result: Result<T, ParameterError>) -> T {
    result.expect("the search chose primes that fit")
}

/// Sends a seed and a polynomial.
fn send_half(
    channel: &mut Channel,
    seed: &[u8; 32],
    b: &Poly<Values>,
    bits: u32,
) -> Result<(), BackendError> {
    channel.send(seed)?;
    Ok(channel.send(&pack::pack(b.residues(), bits))?)
}

impl BackendParty for Client {
    /// 1. A secret, and what is published of it: always the same for a seed.
    fn send_keys(
        &mut self,
        seed: &[u8; 32],
        missing: bool,
        channel: &mut Channel,
    ) -> Result<(), BackendError> {
        channel.enter(Stage::Client, "keys");
        let Self { layers, ring, .. } = self;
        let (bits, digit_bits) = (layers.ring.limb_bits(), layers.ring.digit_bits);
        // Two lists of keys must not share their randomness: the difference of two keys with the same a and the same noise
        // tells the secret.
        let primes = ring.primes().iter().copied();
        let elements = layers.elements.iter().map(|&g| g as u64);
        let joint = layers.ring.joint;
        let figures: Vec<u64> = [ring.n() as u64, u64::from(digit_bits), ring.limbs() as u64]
            .into_iter()
            .chain([joint.count as u64, u64::from(joint.digit_bits)])
            .chain(primes)
            .chain(elements)
            .collect();
        let prg = &mut Prg::derive(seed, "jaguar hyena client", &figures);
        let secrets: Vec<SecretKey> = (0..joint.count).map(|_| SecretKey::from_prg(ring, prg)).collect();
        if missing {
            let own: Vec<&SecretKey> = secrets.iter().collect();
            let wide = response_ring(ring, layers.ring.joint_limbs());
            let keys = JointKeys::new(&wide, &own, joint.digit_bits, prg);
            let (seed, mut halves) = keys.parts();
            channel.send(seed)?;
            halves.try_for_each(|b| channel.send(&pack::pack(b.residues(), bits)))?;
            for &element in &layers.elements {
                let key = GaloisKey::new(&secrets[0], element, digit_bits, prg);
                let (seed, mut halves) = key.switching_key().parts();
                channel.send(seed)?;
                halves.try_for_each(|b| channel.send(&pack::pack(b.residues(), bits)))?;
            }
            channel.flush()?;
        }
        self.secrets = Some(Arc::new(secrets));
        Ok(())
    }

    /// Step 2: encryptions of zero, of which some are made ahead.
    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let secrets = Arc::clone(self.secrets.as_ref().expect("set up"));
        let (layer, ring) = (self.layers.of(node), self.ring.clone());
        let seeds = seeds(&mut self.prg, layer.packing().ciphertexts());
        let tools =
            self.tools.entry(layer.encoding()).or_insert_with(|| Arc::new(checked(layer.tools(&ring))));
        let tools = Arc::clone(tools);
        let zero = ring.zero();
        let made = seeds[..layer.ahead[0]].par_iter();
        let fresh = made.map(|seed| secrets[0].encrypt(&ring, &zero, &mut Prg::new(**seed))).collect();
        let seeds = seeds[layer.ahead[0]..].to_vec();
        let layers = Arc::clone(&self.layers);
        Ok(Box::new(ClientOnline { layers, node, ring, secrets, tools, fresh, seeds }))
    }
}

/// So many seeds, each for one ciphertext.
pub(super) fn seeds(prg: &mut Prg, count: usize) -> Vec<Zeroizing<[u8; 32]>> {
    let seed = |_| {
        let mut seed = Zeroizing::new([0; 32]);
        prg.fill(&mut seed[..]);
        seed
    };
    (0..count).map(seed).collect()
}

/// Ciphertexts are made, and responses taken apart, so many at a time: each is hundreds of kilobytes.
pub(super) const TOGETHER: usize = 32;

struct ClientOnline {
    layers: Arc<HyenaLayers>,
    node: usize,
    ring: Ring,
    secrets: Arc<Vec<SecretKey>>,
    tools: Arc<Tools>,
    /// Encryptions of zero: the first ciphertexts, until they are used.
    fresh: Vec<SeededCiphertext>,
    /// Seeds of the other ciphertexts, for one use.
    seeds: Vec<Zeroizing<[u8; 32]>>,
}

/// The responses that share a halves, in the order in which they leave: of which group of tiles, and which blocks of it.
pub(super) fn joints(layer: &Layer) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
    let (groups, blocks) = (layer.packing().groups(), layer.packing().out_blocks());
    let count = layer.ring.joint.count;
    let of = move |first: usize| first..(first + count).min(blocks);
    (0..groups).flat_map(move |group| (0..blocks).step_by(count).map(move |first| (group, of(first))))
}

/// The slots of a ciphertext's part of `x`, as what is added to its b half.
pub(super) fn encode(layer: &Layer, ring: &Ring, tools: &Tools, index: usize, x: &[u64]) -> Poly<Values> {
    let blocks = layer.packing().in_blocks();
    let mut slots = Zeroizing::new(vec![0; ring.n()]);
    layer.packing().write_inputs(index / blocks, index % blocks, x, &mut slots);
    let message = tools.encode(slots);
    ring.to_values(tools.plain.scale(ring, &message))
}

/// The slots of responses with one a half, which comes first. Their `ring` has the primes that they kept.
pub(super) fn decrypt(
    secrets: &[SecretKey],
    ring: &Ring,
    bits: u32,
    tools: &Tools,
    halves: &[Vec<u8>],
) -> Vec<Zeroizing<Vec<u64>>> {
    let poly = |bytes: &[u8]| ring.from_residues(&pack::unpack(bytes, ring.words(), bits));
    let a = ring.to_values(poly(&halves[0]));
    let slots =
        |(b, secret): (&Vec<u8>, &SecretKey)| tools.decode(ring, &secret.phase_of(ring, &a, &poly(b)));
    halves[1..].iter().zip(secrets).map(slots).collect()
}

impl Online for ClientOnline {
    /// Step 3: the share of the input is added, and the ciphertexts go.
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let (layer, bits) = (self.layers.of(self.node), self.layers.ring.limb_bits());
        // Each of them is used once.
        let (fresh, seeds) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.seeds));
        let Self { ring, tools, secrets, .. } = &*self;
        let zero = ring.zero();
        let mut sent = 0;
        let mut send = |mut ciphertexts: Vec<SeededCiphertext>| -> Result<(), BackendError> {
            let add = |(i, fresh): (usize, &mut SeededCiphertext)| {
                ring.add_assign(&mut fresh.b, &encode(layer, ring, tools, sent + i, x));
            };
            ciphertexts.par_iter_mut().enumerate().for_each(add);
            sent += ciphertexts.len();
            ciphertexts.iter().try_for_each(|c| send_half(channel, &c.seed, &c.b, bits))
        };
        let mut fresh = fresh.into_iter();
        while fresh.len() > 0 {
            send(fresh.by_ref().take(TOGETHER).collect())?;
        }
        for seeds in seeds.chunks(TOGETHER) {
            let encrypt = |seed: &Zeroizing<[u8; 32]>| secrets[0].encrypt(ring, &zero, &mut Prg::new(**seed));
            send(seeds.par_iter().map(encrypt).collect())?;
        }
        Ok(())
    }

    /// Step 7: responses come and are decrypted.
    fn finish(self: Box<Self>, channel: &mut Channel, _: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { layers, node, ring, secrets, tools, .. } = *self;
        let (layer, chosen) = (layers.of(node), &layers.ring);
        let ring = response_ring(&ring, chosen.kept);
        let bytes = chosen.poly_bytes(chosen.kept);
        let share = |halves: &Vec<Vec<u8>>| decrypt(&secrets, &ring, chosen.limb_bits(), &tools, halves);
        let mut output = Zeroizing::new(vec![0; layer.outputs()]);
        let joint: Vec<_> = joints(layer).collect();
        for joint in joint.chunks(TOGETHER.div_ceil(chosen.joint.count)) {
            let halves: Vec<Vec<Vec<u8>>> = (joint.iter())
                .map(|(_, blocks)| (0..=blocks.len()).map(|_| Ok(channel.recv(bytes)?)).collect())
                .collect::<Result<_, BackendError>>()?;
            let slots: Vec<_> = halves.par_iter().map(share).collect();
            for ((group, blocks), slots) in joint.iter().zip(slots) {
                for (block, slots) in blocks.clone().zip(slots) {
                    for (slot, place) in layer.packing().outputs_of(*group, block) {
                        let share = tools.plain.modulus().mul_factor(slots[slot], tools.back);
                        output[place] = layer.rounding.client(share);
                    }
                }
            }
        }
        Ok(Box::new(output))
    }
}
