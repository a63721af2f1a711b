//! A double of the real COT source for the tests of protocols above: **no security at all**.
//!
//! Both parties know one seed, and every correlation, the peer's Δ included, follows from it. Nothing is
//! sent. The correlations have the same form as the real ones.

use jaguar_wire::Channel;

use crate::{Block, CotSource, Drawn, OtError, Role, Width, combinations};

/// Hands out correlations that follow from a seed which both parties know. For tests only.
pub struct InsecureTestDealer {
    role: Role,
    seed: u64,
    sent: Drawn,
    received: Drawn,
    deltas: [Vec<Block>; 2],
}

impl InsecureTestDealer {
    /// The dealer's end for `role`. The peer must be given the same seed.
    pub fn new(seed: u64, role: Role) -> Self {
        let mut this = Self {
            role,
            seed,
            sent: Drawn::default(),
            received: Drawn::default(),
            deltas: [Vec::new(), Vec::new()],
        };
        this.deltas = Width::ALL.map(|width| this.deltas_of(role, width));
        this
    }

    /// Both ends of one dealer, the client's first.
    pub fn pair(seed: u64) -> (Self, Self) {
        (Self::new(seed, Role::Client), Self::new(seed, Role::Server))
    }

    /// How many correlations this party has got as a sender and as a receiver.
    pub fn counters(&self) -> (Drawn, Drawn) {
        (self.sent, self.received)
    }

    /// 128 bits that depend on the seed, on who sends, and on `index`.
    fn draw(&self, sender: Role, width: Width, index: u64, what: u8) -> u128 {
        let mut input = [0; 19];
        input[..8].copy_from_slice(&self.seed.to_le_bytes());
        input[8..16].copy_from_slice(&index.to_le_bytes());
        input[16] = (sender == Role::Client).into();
        input[17] = what;
        input[18] = width as u8;
        let digest = blake3::derive_key("jaguar-ot insecure test dealer", &input);
        u128::from_le_bytes(digest[..16].try_into().expect("16 of 32 bytes"))
    }

    fn deltas_of(&self, sender: Role, width: Width) -> Vec<Block> {
        let delta = |j: u32| Block(self.draw(sender, width, j.into(), 0) & !width.choice_mask() | 1 << j);
        (0..width.choice_mask().count_ones()).map(delta).collect()
    }

    fn half(&self, sender: Role, width: Width, index: u64) -> Block {
        Block(self.draw(sender, width, index, 1) & !width.choice_mask())
    }
}

/// The number for this width.
fn counter(drawn: &mut Drawn, width: Width) -> &mut u64 {
    match width {
        Width::Bit => &mut drawn.bits,
        Width::Vector => &mut drawn.vectors,
    }
}

impl CotSource for InsecureTestDealer {
    fn nonce(&self) -> Block {
        Block(self.draw(Role::Client, Width::Bit, 0, 3))
    }

    fn deltas(&self, width: Width) -> &[Block] {
        &self.deltas[width as usize]
    }

    fn send(&mut self, _chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
        let first = *counter(&mut self.sent, width);
        for (q, i) in q.iter_mut().zip(first..) {
            *q = self.half(self.role, width, i);
        }
        *counter(&mut self.sent, width) += q.len() as u64;
        Ok(())
    }

    fn receive(&mut self, _chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
        let (sender, first) = (self.role.peer(), *counter(&mut self.received, width));
        let mut deltas = self.deltas_of(sender, width);
        deltas.resize(4, Block::ZERO);
        let sums = combinations(deltas[..].try_into().expect("four"));
        for (t, i) in t.iter_mut().zip(first..) {
            let choice = self.draw(sender, width, i, 2) & width.choice_mask();
            *t = self.half(sender, width, i) ^ sums[choice as usize];
        }
        *counter(&mut self.received, width) += t.len() as u64;
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
        for width in Width::ALL {
            for n in [0usize, 1, 5, 300] {
                let (mut q, mut t) = (vec![Block::ZERO; n], vec![Block::ZERO; n]);
                client.send(&mut a, width, &mut q).unwrap();
                server.receive(&mut b, width, &mut t).unwrap();
                check(&client, width, &q, &t, &mut seen);
                server.send(&mut b, width, &mut q).unwrap();
                client.receive(&mut a, width, &mut t).unwrap();
                check(&server, width, &q, &t, &mut seen);
            }
            assert!(client.deltas(width) != server.deltas(width));
        }
        let all = Drawn { bits: 306, vectors: 306 };
        assert_eq!((client.counters(), server.counters()), ((all, all), (all, all)));
    }

    fn check(
        sender: &InsecureTestDealer,
        width: Width,
        q: &[Block],
        t: &[Block],
        seen: &mut std::collections::HashSet<u128>,
    ) {
        for (q, t) in q.iter().zip(t) {
            let deltas = sender.deltas(width).iter().enumerate();
            let want = deltas.fold(*q, |sum, (j, delta)| sum ^ delta.masked(t.0 >> j & 1 == 1));
            assert!(*t == want && q.0 & width.choice_mask() == 0);
            assert!(seen.insert(q.0));
        }
    }
}
