//! One party of a session: its role, its source of correlated OTs, and the pads made of them.

use jaguar_ot::{Block, CotSource, Role, Tccr};
use jaguar_wire::Channel;
use zeroize::{Zeroize, Zeroizing};

use crate::error::MpcError;
use crate::kernels::loops::Level;

/// The high half of the tweaks of OTs sent by the server and by the client: "mpc" and the direction.
const DOMAIN: [u128; 2] = [0x006d_7063_0000_0000 << 64, 0x006d_7063_0000_0001 << 64];

/// What the preparations of a session draw from. **One for the whole life of a COT source**: it numbers the
/// correlated OTs, and no number may come twice under the same Δ.
///
/// Every COT (q; r, t = q ⊕ r·Δ) becomes a random OT by hashing: the sender has the pads H(i, q) and
/// H(i, q ⊕ Δ), the receiver H(i, t), which is the pad number r. So the sender hashes twice and the receiver
/// once. The assumption is the tweakable correlation robustness of H, see [`jaguar_ot::hash`].
pub struct Party<S: ?Sized> {
    role: Role,
    hash: Tccr,
    pub(crate) level: Level,
    sent: u64,
    received: u64,
    first: Zeroizing<Vec<Block>>,
    second: Zeroizing<Vec<Block>>,
    choices: Vec<bool>,
    /// Drawing has failed, or has not come to its end.
    spent: bool,
    // Last, so that a party may stand for one with any source (`Party<dyn CotSource>`).
    source: S,
}

/// The random OTs of one direction as this party has them.
pub(crate) enum Pads<'a> {
    /// This party sends: both pads of each.
    Sender(&'a [Block], &'a [Block]),
    /// This party receives: its pad of each, and its choice.
    Receiver(&'a [Block], &'a [bool]),
}

impl<S: CotSource> Party<S> {
    /// The party with this role, drawing from `source`.
    pub fn new(role: Role, source: S) -> Self {
        Self {
            role,
            hash: Tccr::new(),
            level: Level::best(),
            sent: 0,
            received: 0,
            first: Zeroizing::default(),
            second: Zeroizing::default(),
            choices: Vec::new(),
            spent: false,
            source,
        }
    }
}

impl<S: CotSource + ?Sized> Party<S> {
    /// Promises to draw `sends` COTs as a sender before this party sends anything else over the channel
    /// ([`CotSource::promise`]). Offline the client sends nothing else.
    pub fn promise(&mut self, sends: u64) {
        self.source.promise(sends);
    }

    /// What is left of the promise: nothing, when this party sends something else.
    pub fn promised(&self) -> u64 {
        self.source.promised()
    }

    /// Which of the two parties this one is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// How many correlated OTs have been used up, as a sender and as a receiver.
    pub fn used(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// The source, to look at its own counters.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The next `n` random OTs sent by `sender`. After an error there are none: numbers and correlations of the two parties may
    /// have come apart.
    pub(crate) fn pads(&mut self, chan: &mut Channel, sender: Role, n: usize) -> Result<Pads<'_>, MpcError> {
        if std::mem::replace(&mut self.spent, true) {
            return Err(MpcError::Spent);
        }
        let room = n.max(self.first.len());
        self.first.resize(room, Block::ZERO);
        let first = &mut self.first[..n];
        let domain = DOMAIN[usize::from(sender == Role::Client)];
        if sender == self.role {
            self.second.resize(room, Block::ZERO);
            let second = &mut self.second[..n];
            self.source.send(chan, first)?;
            let delta = self.source.delta();
            for (a, b) in first.iter().zip(second.iter_mut()) {
                *b = *a ^ delta;
            }
            let tweak = domain | u128::from(self.sent);
            self.sent += n as u64;
            self.hash.hash(tweak, 0, first);
            self.hash.hash(tweak, 0, second);
            self.spent = false;
            Ok(Pads::Sender(first, second))
        } else {
            self.choices.resize(n.max(self.choices.len()), false);
            let choices = &mut self.choices[..n];
            self.source.receive(chan, first, choices)?;
            let tweak = domain | u128::from(self.received);
            self.received += n as u64;
            self.hash.hash(tweak, 0, first);
            self.spent = false;
            Ok(Pads::Receiver(first, choices))
        }
    }
}

impl<S: ?Sized> Drop for Party<S> {
    fn drop(&mut self) {
        self.choices.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use jaguar_ot::OtError;
    use jaguar_wire::{WireError, memory_pair};

    use super::*;

    /// Fails at its second call.
    struct FailsOnce(u32);

    impl CotSource for FailsOnce {
        fn delta(&self) -> Block {
            Block::ZERO.with_lsb(true)
        }

        fn send(&mut self, _: &mut Channel, _: &mut [Block]) -> Result<(), OtError> {
            self.0 += 1;
            if self.0 == 2 { Err(WireError::misbehaved("a test", 0, 1).into()) } else { Ok(()) }
        }

        fn receive(&mut self, chan: &mut Channel, t: &mut [Block], _: &mut [bool]) -> Result<(), OtError> {
            self.send(chan, t)
        }
    }

    #[test]
    fn an_error_ends_the_party() {
        for (first, then) in [(Role::Client, Role::Server), (Role::Server, Role::Client)] {
            let (mut chan, _peer) = memory_pair();
            let mut party = Party::new(Role::Client, FailsOnce(0));
            assert!(party.pads(&mut chan, first, 3).is_ok());
            assert!(matches!(party.pads(&mut chan, first, 3), Err(MpcError::Ot(_))));
            assert!(matches!(party.pads(&mut chan, then, 3), Err(MpcError::Spent)));
            assert_eq!(party.source().0, 2, "the source is not asked again");
        }
    }
}
