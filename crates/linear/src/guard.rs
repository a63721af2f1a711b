//! Noise in the guard bits: `[y + ν] <- Guard([y], g)`, ν known to the server only.
//!
//! Each party truncates its share of a linear layer's output alone. So the value is rounded up or down by a coin that the
//! client knows: the part that it cuts off. With g guard bits ([`jaguar_graph::network::Network::guard_bits`]) the coin
//! moves the value by one unit of 2^-g of the network's former last place. The server adds a fresh ν to every value, whose
//! standard deviation is 0.29 of that last place. Nothing passes between the parties.
//!
//! **ν** is that of [`guard_noise`]: below 2^g in absolute value.
//!
//! **Who learns what.** The server learns nothing: it adds to its own share. For the client, a coin's effect stands beside
//! ν with a ratio of 2^-g in amplitude, so an attacker who could count coins needs about 4^g times as many queries;
//! `docs/attacks.md` has the arithmetic, `jaguar/coins.rs` (a test) the attack.

use std::sync::Arc;

use jaguar_graph::network::{Network, elements};
use jaguar_mpc::semantics::guard_noise;
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::backend::{BackendError, BackendParty, ClientKeys, Domain, Layers, Online, Output};

/// The server's party of one backend, with noise in the guard bits of what its layers make.
pub struct Guarded {
    party: Box<dyn BackendParty>,
    layers: Arc<dyn Layers>,
    /// By node: how many values it makes.
    values: Arc<[usize]>,
    guard_bits: u32,
    noise: Prg,
}

impl Guarded {
    /// The server's `party` for `layers` of `network`, for queries of `images` images; as it is, where the network has no guard bits.
    pub fn wrap(
        party: Box<dyn BackendParty>,
        layers: &Arc<dyn Layers>,
        network: &Network,
        images: usize,
    ) -> Box<dyn BackendParty> {
        if network.guard_bits == 0 {
            return party;
        }
        Box::new(Self {
            party,
            layers: Arc::clone(layers),
            values: network.nodes.iter().map(|node| images * elements(node.shape).unwrap_or(0)).collect(),
            guard_bits: network.guard_bits,
            noise: Prg::from_os(),
        })
    }
}

impl BackendParty for Guarded {
    fn take_keys(
        &mut self,
        kept: Option<ClientKeys>,
        channel: &mut Channel,
    ) -> Result<Option<ClientKeys>, BackendError> {
        self.party.take_keys(kept, channel)
    }

    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.party.setup(channel)
    }

    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.party.begin_query(channel)
    }

    fn exchange(&mut self, node: usize, hint: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        self.party.exchange(node, hint, channel)
    }

    fn collect(&mut self, node: usize, channel: &mut Channel) -> Result<(), BackendError> {
        self.party.collect(node, channel)
    }

    fn prepare(
        &mut self,
        node: usize,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let online = self.party.prepare(node, hint, channel)?;
        let mut noise = Zeroizing::new(vec![0; self.values[node]]);
        draw(&mut self.noise, self.guard_bits, &mut noise);
        let domain = self.layers.layer(node).expect("a layer of this backend").output();
        Ok(Box::new(GuardedOnline { online, noise, domain }))
    }
}

/// Fills `out` with independent ν.
pub fn draw(prg: &mut Prg, guard_bits: u32, out: &mut [i16]) {
    let mut words = Zeroizing::new([0; 256]);
    for out in out.chunks_mut(words.len()) {
        let words = &mut words[..out.len()];
        prg.fill_u64(words);
        out.iter_mut().zip(&*words).for_each(|(out, &word)| *out = guard_noise(word, guard_bits) as i16);
    }
}

struct GuardedOnline {
    online: Box<dyn Online>,
    noise: Zeroizing<Vec<i16>>,
    domain: Domain,
}

impl Online for GuardedOnline {
    fn feed(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.online.feed(channel, x)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.online.feed_all(channel, x)
    }

    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { online, noise, domain } = *self;
        let output = online.finish(channel, x)?;
        Ok(Box::new(GuardedOutput {
            values: Zeroizing::new(Vec::with_capacity(noise.len())),
            output,
            noise,
            domain,
        }))
    }
}

struct GuardedOutput {
    output: Box<dyn Output>,
    noise: Zeroizing<Vec<i16>>,
    domain: Domain,
    /// The first values, with their noise.
    values: Zeroizing<Vec<u64>>,
}

impl Output for GuardedOutput {
    fn values(&self) -> &[u64] {
        &self.values
    }

    fn make(&mut self, count: usize) {
        self.output.make(count);
        let made = self.values.len();
        let pairs = self.output.values()[made..].iter().zip(&self.noise[made..]);
        let Domain { modulus, excess } = self.domain;
        self.values.extend(
            pairs.map(|(&y, &noise)| modulus.add(y, modulus.from_signed(i64::from(noise) << excess))),
        );
    }

    fn into_values(mut self: Box<Self>) -> Vec<u64> {
        self.make(self.noise.len());
        std::mem::take(&mut self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_distribution_that_is_claimed() {
        for guard_bits in [2, 3, 4, 8, 12] {
            let mut noise = vec![0; 100_000];
            draw(&mut Prg::derive(&[3; 32], "noise", &[u64::from(guard_bits)]), guard_bits, &mut noise);
            let unit = f64::from(1u32 << guard_bits);
            let mean = noise.iter().map(|&v| f64::from(v)).sum::<f64>() / noise.len() as f64;
            let variance = noise.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / noise.len() as f64;
            let half = unit / 2.0;
            assert!(variance.sqrt() > 0.24 * unit, "{guard_bits}: {variance}");
            assert!(
                (variance - (half * half - 1.0) / 3.0).abs() <= 0.02 * half * half,
                "{guard_bits}: {variance}"
            );
            assert!(mean.abs() < 0.005 * unit, "{guard_bits}: {mean}");
            assert!(noise.iter().all(|v| f64::from(v.abs()) < unit), "{guard_bits}");
            // Neighbours know nothing of each other.
            let products = noise.windows(2).map(|w| f64::from(w[0]) * f64::from(w[1])).sum::<f64>();
            assert!(products.abs() / noise.len() as f64 <= 0.02 * half * half, "{guard_bits}");
        }
    }
}
