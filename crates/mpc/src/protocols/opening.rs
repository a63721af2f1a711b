//! Masked numbers that both parties open: one turn, the client first.

use jaguar_ot::Role;
use jaguar_wire::{Channel, pack};

use crate::error::MpcError;
use crate::protocols::mux::PACKED_AT_ONCE;

/// This party's shares of numbers mod 2^`bits`, then their sums (with higher bits).
pub(crate) struct Opening {
    pub role: Role,
    pub bits: u32,
    pub values: Vec<u64>,
}

impl Opening {
    /// Steps that a block takes for it ([`crate::Block`]).
    pub(crate) const STEPS: usize = 2;

    /// Bytes that a step reads, of `count` numbers ([`crate::parts::Flights::reads`]).
    pub(crate) fn reads(&self, count: usize, step: usize) -> usize {
        let reads = (self.role == Role::Server) == (step == 0);
        if reads { pack::packed_len(count, self.bits) } else { 0 }
    }

    /// Sets this party's shares of values, each without this party's mask.
    pub(crate) fn mask(&mut self, values: impl Iterator<Item = u64>, masks: &[u64]) {
        let ring = u64::MAX >> (64 - self.bits);
        self.values = values.zip(masks).map(|(value, mask)| value.wrapping_sub(*mask) & ring).collect();
    }

    fn send(&self, chan: &mut Channel) -> Result<(), MpcError> {
        for values in self.values.chunks(PACKED_AT_ONCE) {
            chan.send_packed(values, self.bits)?;
        }
        Ok(())
    }

    /// The peer's shares; not yet added, for this party's may still have to be sent.
    fn receive(&self, chan: &mut Channel) -> Result<Vec<u64>, MpcError> {
        let mut theirs = Vec::with_capacity(self.values.len());
        for own in self.values.chunks(PACKED_AT_ONCE) {
            theirs.extend(chan.recv_packed(own.len(), self.bits)?);
        }
        Ok(theirs)
    }

    fn open(&mut self, theirs: &[u64]) {
        self.values.iter_mut().zip(theirs).for_each(|(own, theirs)| *own = own.wrapping_add(*theirs));
    }

    pub(crate) fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match (self.role, step) {
            (Role::Client, 0) => self.send(chan),
            (Role::Server, 0) => {
                let theirs = self.receive(chan)?;
                self.send(chan)?;
                self.open(&theirs);
                Ok(())
            }
            (Role::Client, _) => {
                let theirs = self.receive(chan)?;
                self.open(&theirs);
                Ok(())
            }
            (Role::Server, _) => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jaguar_wire::memory_pair;

    use crate::block::Flights;

    /// Both parties' two steps of an opening, by turns on one thread: what is opened fits into the buffers.
    pub(crate) fn by_turns(client: &mut impl Flights, server: &mut impl Flights) {
        let (mut a, mut b) = memory_pair();
        client.step(&mut a, 0).unwrap();
        a.flush().unwrap();
        server.step(&mut b, 0).unwrap();
        b.flush().unwrap();
        client.step(&mut a, 1).unwrap();
        server.step(&mut b, 1).unwrap();
    }
}
