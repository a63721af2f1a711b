//! A double of the real COT source for the tests of protocols above: **no security at all**.
//!
//! Both parties know one seed, and every correlation, the peer's Δ included, follows from it. Nothing is
//! sent. The correlations have the same form as the real ones.

use jaguar_wire::Channel;

use crate::{Block, CotSource, OtError, Role};

/// Hands out correlations that follow from a seed which both parties know. For tests only.
pub struct InsecureTestDealer {
    role: Role,
    seed: u64,
    sent: u64,
    received: u64,
}

impl InsecureTestDealer {
    /// The dealer's end for `role`. The peer must be given the same seed.
    pub fn new(seed: u64, role: Role) -> Self {
        Self { role, seed, sent: 0, received: 0 }
    }

    /// Both ends of one dealer, the client's first.
    pub fn pair(seed: u64) -> (Self, Self) {
        (Self::new(seed, Role::Client), Self::new(seed, Role::Server))
    }

    /// How many correlations this party has got as a sender and as a receiver.
    pub fn counters(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// 128 bits that depend on the seed, on who sends, and on `index`.
    fn draw(&self, sender: Role, index: u64, what: u8) -> u128 {
        let mut input = [0; 18];
        input[..8].copy_from_slice(&self.seed.to_le_bytes());
        input[8..16].copy_from_slice(&index.to_le_bytes());
        input[16] = (sender == Role::Client).into();
        input[17] = what;
        let digest = blake3::derive_key("jaguar-ot insecure test dealer", &input);
        u128::from_le_bytes(digest[..16].try_into().expect("16 of 32 bytes"))
    }

    fn delta_of(&self, sender: Role) -> Block {
        Block(self.draw(sender, 0, 0)).with_lsb(true)
    }

    fn half(&self, sender: Role, index: u64) -> Block {
        Block(self.draw(sender, index, 1)).with_lsb(false)
    }
}

impl CotSource for InsecureTestDealer {
    fn delta(&self) -> Block {
        self.delta_of(self.role)
    }

    fn send(&mut self, _chan: &mut Channel, q: &mut [Block]) -> Result<(), OtError> {
        for (q, i) in q.iter_mut().zip(self.sent..) {
            *q = self.half(self.role, i);
        }
        self.sent += q.len() as u64;
        Ok(())
    }

    fn receive(&mut self, _chan: &mut Channel, t: &mut [Block], r: &mut [bool]) -> Result<(), OtError> {
        assert_eq!(t.len(), r.len(), "as many choice bits as blocks");
        let sender = self.role.peer();
        let delta = self.delta_of(sender);
        for ((t, r), i) in t.iter_mut().zip(r.iter_mut()).zip(self.received..) {
            *r = self.draw(sender, i, 2) & 1 == 1;
            *t = self.half(sender, i) ^ delta.masked(*r);
        }
        self.received += t.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jaguar_wire::memory_pair;

    use super::*;

    #[test]
    fn both_directions_correlate_and_never_repeat() {
        let (mut client, mut server) = InsecureTestDealer::pair(7);
        let (mut a, mut b) = memory_pair();
        let mut seen = std::collections::HashSet::new();
        for n in [0usize, 1, 5, 300] {
            let (mut q, mut t, mut r) = (vec![Block::ZERO; n], vec![Block::ZERO; n], vec![false; n]);
            client.send(&mut a, &mut q).unwrap();
            server.receive(&mut b, &mut t, &mut r).unwrap();
            for i in 0..n {
                assert!(t[i] == q[i] ^ client.delta().masked(r[i]) && t[i].lsb() == r[i]);
                assert!(seen.insert(q[i].0));
            }
            server.send(&mut b, &mut q).unwrap();
            client.receive(&mut a, &mut t, &mut r).unwrap();
            for i in 0..n {
                assert!(t[i] == q[i] ^ server.delta().masked(r[i]) && t[i].lsb() == r[i]);
                assert!(seen.insert(q[i].0));
            }
        }
        assert!(client.delta() != server.delta());
        assert_eq!((client.counters(), server.counters()), ((306, 306), (306, 306)));
    }
}
