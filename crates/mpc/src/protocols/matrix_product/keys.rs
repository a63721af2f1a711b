//! Keys of a query. The client has a few secrets for each ring, and what is published of them serves all products of
//! matrices of the query: keys of automorphisms of the first, and joint keys, by which packs share an a half
//! (`he/rns/joint.rs`; of one secret alone a public key). The first product that takes one sends it. When all are
//! prepared, both parties forget them ([`Party::forget_keys`](crate::Party::forget_keys)), which wipes them.

use std::sync::Arc;

use jaguar_ring::he::rns::{
    Ciphertext, GaloisKey, JointKeys, Poly, Ring, Room, RoundedSecret, SecretKey, SwitchingKey, Values,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;

use super::tiling::{DIGITS, Layout, Part, RINGS, RingId, SECRETS, SentKeys, Tiling};
use super::tools::Tools;
use crate::error::MpcError;

/// What a party has of the keys of a query.
#[derive(Default)]
pub(crate) struct QueryKeys {
    client: Vec<OfClient>,
    server: Vec<OfServer>,
}

/// The client's, of one ring.
#[derive(Default)]
pub(super) struct OfClient {
    ring: RingId,
    /// The first one encrypts.
    pub secrets: Vec<SecretKey>,
    pub rounded: Vec<Arc<RoundedSecret>>,
    sent: SentKeys,
}

/// What the server has of them.
#[derive(Default)]
pub(super) struct OfServer {
    ring: RingId,
    joints: Vec<(Part, JointKeys)>,
    levels: Vec<Level>,
}

/// The automorphism that changes the sign of X^h, and X^h.
struct Level {
    part: Part,
    key: GaloisKey,
    moved: Poly<Values>,
}

impl QueryKeys {
    /// Whether there are any.
    pub fn are_any(&self) -> bool {
        !self.client.is_empty() || !self.server.is_empty()
    }

    /// The client sends what was not sent yet. `prg` is secret.
    pub(super) fn send(
        &mut self,
        tools: &Tools,
        chan: &mut Channel,
        prg: &mut Prg,
    ) -> Result<&OfClient, MpcError> {
        let Tools { layout, ring, .. } = tools;
        let place = self.client.iter().position(|own| own.ring == layout.ring()).unwrap_or_else(|| {
            self.client.push(OfClient { ring: layout.ring(), ..OfClient::default() });
            self.client.len() - 1
        });
        let own = &mut self.client[place];
        while own.secrets.len() < layout.secrets {
            let secret = SecretKey::from_prg(ring, prg);
            own.rounded.push(Arc::new(secret.rounded()));
            own.secrets.push(secret);
        }
        if own.sent.add(Part::joint(layout)) {
            let secrets: Vec<&SecretKey> = own.secrets[..layout.secrets].iter().collect();
            let key = JointKeys::new(ring, &secrets, layout.prime_bits, prg);
            let (seed, polys) = key.parts();
            tools.send(chan, seed, &polys.collect::<Vec<_>>())?;
        }
        for (log2, element) in layout.elements() {
            if own.sent.add(Part::of_level(layout, log2)) {
                let key = GaloisKey::rounded(&own.secrets[0], element, layout.digit_bits, prg);
                let (seed, parts) = key.switching_key().parts();
                tools.send(chan, seed, &parts.collect::<Vec<_>>())?;
            }
        }
        Ok(own)
    }

    /// The server receives them.
    pub(super) fn receive(&mut self, tools: &Tools, chan: &mut Channel) -> Result<&OfServer, MpcError> {
        let Tools { layout, ring, .. } = tools;
        let place = self.server.iter().position(|own| own.ring == layout.ring()).unwrap_or_else(|| {
            self.server.push(OfServer { ring: layout.ring(), ..OfServer::default() });
            self.server.len() - 1
        });
        let own = &mut self.server[place];
        if own.joints.iter().all(|(part, _)| *part != Part::joint(layout)) {
            let seed = tools.receive_seed(chan)?;
            let polys = (0..layout.joint_polys()).map(|_| tools.receive_poly(chan));
            let polys = polys.collect::<Result<Vec<_>, _>>()?;
            let joint = JointKeys::from_parts(ring, layout.secrets, layout.prime_bits, seed, polys);
            own.joints.push((Part::joint(layout), joint));
        }
        for (log2, element) in layout.elements() {
            let part = Part::of_level(layout, log2);
            if own.levels.iter().any(|level| level.part == part) {
                continue;
            }
            let seed = tools.receive_seed(chan)?;
            let parts: Result<Vec<_>, MpcError> =
                (0..layout.digits()).map(|_| tools.receive_poly(chan)).collect();
            let key = SwitchingKey::from_rounded_parts(ring, layout.digit_bits, seed, parts?);
            let mut moved = vec![0i8; layout.n()];
            moved[1 << log2] = 1;
            let moved = ring.to_values(ring.from_signed(&moved));
            own.levels.push(Level { part, key: GaloisKey::from_parts(ring, element, key), moved });
        }
        Ok(own)
    }
}

impl OfServer {
    /// Keys without automorphisms.
    #[cfg(test)]
    pub fn of(layout: &Layout, joint: JointKeys) -> Self {
        Self { ring: layout.ring(), joints: vec![(Part::joint(layout), joint)], levels: Vec::new() }
    }

    /// The joint keys of as many secrets as the layout asks for.
    pub fn joint(&self, layout: &Layout) -> &JointKeys {
        let own = self.joints.iter().find(|(part, _)| *part == Part::joint(layout));
        &own.expect("received before").1
    }

    /// One ciphertext with the coefficients at multiples of K of all: of the t-th at K·i + K/R·t, times R. (What is
    /// between these means nothing.)
    pub fn pack(
        &self,
        Tools { layout, ring, .. }: &Tools,
        tiling: &Tiling,
        mut of: Vec<Option<Ciphertext<Values>>>,
    ) -> Option<Ciphertext<Values>> {
        let mut room = Room::default();
        for level in (0..tiling.pack_log2).rev() {
            let part = Part::of_level(layout, level + tiling.apart_log2());
            let own = self.levels.iter().find(|own| own.part == part);
            let own = own.expect("a key for each level of a pack");
            let (low, high) = of.split_at_mut(1 << level);
            for (sum, other) in low.iter_mut().zip(high) {
                if let Some(sum) = sum {
                    join(ring, sum, other.take(), own, &mut room);
                }
            }
        }
        of.into_iter().next().flatten()
    }
}

/// Bytes of all keys that the client and the server may have at a time, at most: of each ring, with digits of each
/// kind and each number of secrets.
pub(super) fn keys_bytes() -> [u64; 2] {
    let mut words = [0; 2];
    for (n, primes, _) in RINGS {
        let poly = n * primes;
        let secrets = SECRETS.into_iter().max().unwrap_or(0);
        // (Of a rounded one residues of half a word, modulo three primes at most.)
        words[0] += secrets * (poly + 3 * n / 2);
        // Encryptions of digits, and X^h.
        let level: usize = DIGITS.iter().map(|&digits| 2 * (primes - 1) * digits as usize + 1).sum();
        let joint = |count: usize| (count + 1) * JointKeys::encryptions(count, primes - 1);
        words[1] += (n.ilog2() as usize * level + SECRETS.into_iter().map(joint).sum::<usize>()) * poly;
    }
    words.map(|words| (words * size_of::<u64>()) as u64)
}

/// x + X^h·y + σ(x − X^h·y), in the place of x.
fn join(
    ring: &Ring,
    sum: &mut Ciphertext<Values>,
    other: Option<Ciphertext<Values>>,
    Level { key, moved, .. }: &Level,
    room: &mut Room,
) {
    let difference = match other {
        Some(mut other) => {
            sum.sum_and_difference(ring, &mut other, moved);
            other
        }
        None => sum.duplicate(),
    };
    sum.add_applied(ring, difference, key, room);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// All keys that there are, as they are sent, in words: of each polynomial that is sent the server has two, or
    /// somewhat more than one where several packs share an a half.
    #[test]
    fn all_keys_are_counted() {
        let mut all = BTreeMap::new();
        for ring in RINGS {
            for kind in DIGITS.into_iter().flat_map(|digits| SECRETS.map(|secrets| (digits, secrets))) {
                let mut layout = Layout::of_kind(&[[1, 1, ring.0, 1]], 30, 30, ring, kind).unwrap();
                layout.terms[0].pack_log2 = layout.terms[0].gap_log2;
                assert_eq!(layout.elements().count(), ring.0.ilog2() as usize, "all that there may be");
                all.extend(layout.keys().map(|(part, bytes)| (part, bytes * 64 / ring.2 as usize)));
            }
        }
        let sent = all.values().sum::<usize>() as f64;
        let [_, server] = keys_bytes();
        assert!((1.9..2.1).contains(&(server as f64 / sent)), "{server} for {sent}");
    }
}
