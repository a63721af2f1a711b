//! What the OTs of places have in common: how the halves of a bit of r become a number, and which bits of a pad are for what.

use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};

use crate::error::MpcError;
use crate::protocols::mux::PACKED_AT_ONCE;

/// Where the bits for a string begin in a pad's first block; the products' are below.
pub(super) const FIRST: u32 = 32;

/// The product of the t-th bits of both parties' halves, shared by an OT mod 2^`bits`: what makes their exclusive or a sum.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) t: u32,
    pub(super) bits: u32,
}

impl Product {
    const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The sender's message, and its share of 2^t·(exclusive or).
    pub(super) const fn of_sender(
        self,
        own: u64,
        zero: jaguar_ot::Block,
        one: jaguar_ot::Block,
    ) -> (u64, u16) {
        let (zero, one) = (zero.0 as u64, one.0 as u64);
        let d = own.wrapping_add(zero).wrapping_sub(one) & self.mask();
        (d, (own.wrapping_add((zero & self.mask()) << 1) << self.t) as u16)
    }

    /// The receiver's share.
    pub(super) const fn of_receiver(
        self,
        masks: BitMasks,
        choice: u64,
        pad: jaguar_ot::Block,
        d: u64,
    ) -> u16 {
        let shared = (pad.0 as u64).wrapping_add(d & masks.of(choice)) & self.mask();
        (choice.wrapping_sub(shared << 1) << self.t) as u16
    }

    /// Bytes of so many messages.
    pub(super) fn sent(self, count: usize) -> usize {
        if self.bits > 0 { pack::packed_len(count, self.bits) } else { 0 }
    }

    pub(super) fn send(self, chan: &mut Channel, messages: &[u64]) -> Result<(), MpcError> {
        if self.bits > 0 {
            for messages in messages.chunks(PACKED_AT_ONCE) {
                chan.send_packed(messages, self.bits)?;
            }
        }
        Ok(())
    }

    pub(super) fn receive(self, chan: &mut Channel, messages: &mut [u64]) -> Result<(), MpcError> {
        if self.bits > 0 {
            for messages in messages.chunks_mut(PACKED_AT_ONCE) {
                messages.copy_from_slice(&chan.recv_packed(messages.len(), self.bits)?);
            }
        }
        Ok(())
    }
}
