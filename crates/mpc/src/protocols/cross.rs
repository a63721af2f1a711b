//! \[2^w·a·b\] mod 2^L <- Cross: a is the client's, b the server's, both random.
//!
//! By products of shares (Gilboa, CRYPTO 1999); in all OTs the server sends:
//!
//! 1. The client's choices r_i in L random OTs are the bits of a. The server takes b from its pads, see below.
//! 2. For bit i the server sends d_i = k0 − k1 + b mod 2^(L−w−i). The client has k0 + r_i·b; the server has −k0.
//! 3. Both add these up with the weights 2^(w+i). (Where nothing of a bit's weight is left in the ring, the OT only draws the bit.)
//!
//! All of that is offline and comes from the server, so there is nothing to complete.
//!
//! *What the server draws* it takes from the upper halves of pads, of which masks use the lower ones: k0 ⊕ k1 of the OT for
//! bit 0 gives b. The client knows one pad of each OT, so b is uniform to it; d_i is masked by the other one. The server receives nothing.
//!
//! L COTs from the server, and m·(m + 1)/2 bits down, m = L − w.

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::error::MpcError;
use crate::kernels::lanes::{GROUP, group_len};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// Pads of 128 bits lend the upper half to what the server draws.
pub(crate) const DRAWN: u32 = 64;

/// Which products: L, at most 63, and w.
#[derive(Clone, Copy)]
pub(crate) struct Cross {
    pub ring: u32,
    pub doubled: u32,
}

/// One group, to be made: this party's factor, its share of the product, and the messages of an OT.
pub(crate) struct Group<'a> {
    pub own: &'a mut [u64],
    pub share: &'a mut [u64],
    pub corrections: &'a mut [u64],
}

impl Cross {
    /// Bits of the message for `bit`: none where the product with it is beyond the ring.
    const fn width(self, bit: u32) -> u32 {
        (self.ring - bit).saturating_sub(self.doubled)
    }

    /// Bytes from the server.
    pub(crate) fn sent(self, count: usize) -> usize {
        let widths = (0..self.ring).map(|bit| self.width(bit)).filter(|&width| width > 0);
        widths.map(|width| pack::packed_len(count, width)).sum()
    }

    /// Draws this party's factors into `own`, which are zeros (the client's a or the server's b, mod 2^L), and adds its shares of the products to `shares`,
    /// where higher bits are to be ignored.
    pub(crate) fn prepare<S: CotSource + ?Sized>(
        self,
        party: &mut Party<S>,
        chan: &mut Channel,
        own: &mut [u64],
        shares: &mut [u64],
    ) -> Result<(), MpcError> {
        let (count, sends) = (own.len(), party.role() == Role::Server);
        let mut corrections = Zeroizing::new(vec![0u64; count]);
        party.stock(chan, Role::Server, Width::Bit, self.ring as usize * count)?;
        for bit in 0..self.ring {
            let width = self.width(bit);
            let drawn = party.draw(chan, Role::Server, Width::Bit, count)?;
            if !sends && width > 0 {
                for d in corrections.chunks_mut(PACKED_AT_ONCE) {
                    d.copy_from_slice(&chan.recv_packed(d.len(), width)?);
                }
            }
            let words = own.chunks_mut(GROUP).zip(shares.chunks_mut(GROUP));
            let group = |((own, share), corrections)| Group { own, share, corrections };
            let groups = words.zip(corrections.chunks_mut(GROUP)).map(group).enumerate();
            each_with(groups.collect(), Room::default, |room, (g, group): (usize, Group<'_>)| {
                group.absorb(&drawn.pads(g * GROUP, group_len(count, g), room), self, bit);
            });
            drop(drawn);
            if sends && width > 0 {
                for d in corrections.chunks(PACKED_AT_ONCE) {
                    chan.send_packed(d, width)?;
                }
            }
        }
        Ok(())
    }
}

impl Group<'_> {
    /// Takes in the pads of the OTs for one bit: makes the corrections, or takes them.
    pub(crate) fn absorb(self, pads: &Pads, cross: Cross, bit: u32) {
        let Self { own, share, corrections } = self;
        let (ring, masks) = (u64::MAX >> (64 - cross.ring), BitMasks::new());
        let (narrow, weight) = ((1 << cross.width(bit)) - 1, bit + cross.doubled);
        match *pads {
            Pads::Sender(zero, one) => {
                let upper = |e: usize| ((zero[e].0 ^ one[e].0) >> DRAWN) as u64;
                if bit == 0 {
                    own.iter_mut().enumerate().for_each(|(e, own)| *own = upper(e) & ring);
                }
                let pads = zero.iter().zip(one);
                for (((d, share), own), (zero, one)) in corrections.iter_mut().zip(share).zip(own).zip(pads) {
                    let (zero, one) = (zero.0 as u64, one.0 as u64);
                    *d = zero.wrapping_sub(one).wrapping_add(*own) & narrow;
                    *share = share.wrapping_sub(zero << weight);
                }
            }
            Pads::Receiver(pads, choices) => {
                let received = corrections.iter().zip(pads.iter().zip(choices));
                for ((own, share), (&d, (pad, &choice))) in own.iter_mut().zip(share).zip(received) {
                    let choice = u64::from(choice);
                    *own |= choice << bit;
                    let product = (pad.0 as u64).wrapping_add(d & masks.of(choice));
                    *share = share.wrapping_add(product << weight);
                }
            }
        }
    }
}
