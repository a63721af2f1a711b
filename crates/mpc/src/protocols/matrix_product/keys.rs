//! Keys of a query. The client has a few secrets for each ring, and what is published of them serves all products of
//! matrices of the query: keys of automorphisms of the first, and joint keys, by which packs share an a half
//! (`he/rns/joint.rs`; of one secret alone a public key). The first product that takes one sends it.

use std::sync::Arc;

use jaguar_ring::he::rns::{
    Ciphertext, GaloisKey, JointKeys, Poly, Ring, RoundedSecret, SecretKey, SwitchingKey, Values,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;

use super::tiling::{Layout, Part, SentKeys, Tiling};
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
    n: usize,
    /// The first one encrypts.
    pub secrets: Vec<SecretKey>,
    pub rounded: Vec<Arc<RoundedSecret>>,
    sent: SentKeys,
}

/// What the server has of them.
#[derive(Default)]
pub(super) struct OfServer {
    n: usize,
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
    /// The client sends what was not sent yet. `prg` is secret.
    pub(super) fn send(
        &mut self,
        tools: &Tools,
        chan: &mut Channel,
        prg: &mut Prg,
    ) -> Result<&OfClient, MpcError> {
        let Tools { layout, ring, .. } = tools;
        let place = self.client.iter().position(|own| own.n == layout.n()).unwrap_or_else(|| {
            self.client.push(OfClient { n: layout.n(), ..OfClient::default() });
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
                let key = GaloisKey::new(&own.secrets[0], element, layout.digit_bits, prg);
                let (seed, parts) = key.switching_key().parts();
                tools.send(chan, seed, &parts.collect::<Vec<_>>())?;
            }
        }
        Ok(own)
    }

    /// The server receives them.
    pub(super) fn receive(&mut self, tools: &Tools, chan: &mut Channel) -> Result<&OfServer, MpcError> {
        let Tools { layout, ring, .. } = tools;
        let place = self.server.iter().position(|own| own.n == layout.n()).unwrap_or_else(|| {
            self.server.push(OfServer { n: layout.n(), ..OfServer::default() });
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
            let key = SwitchingKey::from_parts(ring, layout.digit_bits, seed, parts?);
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
        Self { n: layout.n(), joints: vec![(Part::joint(layout), joint)], levels: Vec::new() }
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
        for level in (0..tiling.pack_log2).rev() {
            let part = Part::of_level(layout, level + tiling.apart_log2());
            let own = self.levels.iter().find(|own| own.part == part);
            let Level { key, moved, .. } = own.expect("a key for each level of a pack");
            for t in 0..1 << level {
                let Some(sum) = of[t].take() else { continue };
                of[t] = Some(joined(ring, sum, of[t + (1 << level)].take(), key, moved));
            }
        }
        of.into_iter().next().flatten()
    }
}

/// x + X^h·y + σ(x − X^h·y).
fn joined(
    ring: &Ring,
    mut sum: Ciphertext<Values>,
    other: Option<Ciphertext<Values>>,
    key: &GaloisKey,
    moved: &Poly<Values>,
) -> Ciphertext<Values> {
    let mut difference = sum.duplicate();
    if let Some(mut other) = other {
        other.multiply_assign(ring, moved);
        sum.add_assign(ring, &other);
        ring.sub_assign(&mut difference.a, &other.a);
        ring.sub_assign(&mut difference.b, &other.b);
    }
    sum.add_assign(ring, &difference.apply(ring, key));
    sum
}
