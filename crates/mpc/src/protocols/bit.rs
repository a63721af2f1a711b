//! \[b\] mod 2^bits <- BitToArithmetic(\[b\]): from shares by exclusive or to shares by addition.
//!
//! A random bit β is prepared in both kinds of shares. With halves β_c (the client's choice in a random OT)
//! and β_s (a bit that only the sender, the server, knows: the sum of bits of both pads), β = β_c + β_s −
//! 2·β_c·β_s, and the OT shares the product once the server has sent d = β_s + k0 − k1, bits − 1 bits, in
//! preparation. Online both open c = b ⊕ β; then b = c + (1 − 2c)·β. (Rotaru and Wood, INDOCRYPT
//! 2019, call it a daBit.)
//!
//! Exact. One COT, from the server; bits − 1 bits down offline, one bit each way online. Each message
//! is masked by a pad or by a half of β that its receiver does not know.

use jaguar_ot::{CotSource, Role, Width};
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::cost::{self, Cost};
use crate::error::{MpcError, check_count, check_range};
use crate::gates::bits::Bits;
use crate::gates::evaluate::exchange;
use crate::kernels::lanes::{GROUP, Lanes, add_plane, group_len, groups, plane_bytes, plane_to_bytes};
use crate::party::{Pads, Party, Room};

/// Prepared random bits.
pub(crate) struct BitMaterial {
    role: Role,
    count: usize,
    bits: u32,
    /// This party's share of β by addition.
    share: Zeroizing<Vec<u64>>,
    /// And by exclusive or.
    beta: Zeroizing<Vec<Lanes>>,
}

/// What the preparation costs.
pub(crate) fn cost(count: usize, bits: u32) -> Cost {
    let kept = (count * 8 + groups(count) * size_of::<Lanes>()) as u64;
    Cost {
        bits_from_server: count as u64,
        client_memory: kept,
        server_memory: kept,
        prepare_down: if bits > 1 { pack::packed_len(count, bits - 1) as u64 } else { 0 },
        ..Cost::default()
    }
}

impl BitMaterial {
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
    ) -> Result<Self, MpcError> {
        let mut share = Zeroizing::new(Vec::with_capacity(count));
        let mut beta = Zeroizing::new(Vec::with_capacity(groups(count)));
        let mask = u64::MAX >> (64 - bits);
        let drawn = party.draw(chan, Role::Server, Width::Bit, count)?;
        let mut room = Room::default();
        for g in 0..groups(count) {
            let len = group_len(count, g);
            match drawn.pads(g * GROUP, len, &mut room) {
                Pads::Sender(zero, one) => {
                    // Bit 127 of the pads is not used otherwise.
                    let own: Vec<bool> = zero.iter().zip(one).map(|(z, o)| (z.0 ^ o.0) >> 127 == 1).collect();
                    let own = Zeroizing::new(own);
                    beta.push(Lanes::from_bools(&own));
                    let mut d = Vec::with_capacity(len);
                    for ((&own, zero), one) in own.iter().zip(zero).zip(one) {
                        let (own, zero, one) = (u64::from(own), zero.0 as u64, one.0 as u64);
                        d.push(own.wrapping_add(zero).wrapping_sub(one));
                        share.push(own.wrapping_add(zero << 1) & mask);
                    }
                    if bits > 1 {
                        chan.send_packed(&d, bits - 1)?;
                    }
                }
                Pads::Receiver(pads, choices) => {
                    beta.push(Lanes::from_bools(choices));
                    let d = if bits > 1 { chan.recv_packed(len, bits - 1)? } else { vec![0; len] };
                    for ((&choice, pad), d) in choices.iter().zip(pads).zip(d) {
                        let own = u64::from(choice);
                        let product = (pad.0 as u64).wrapping_add(own.wrapping_neg() & d);
                        share.push(own.wrapping_sub(product << 1) & mask);
                    }
                }
            }
        }
        // The client waits for this.
        chan.flush()?;
        Ok(Self { role: party.role(), count, bits, share, beta })
    }

    /// This party's share of c = b ⊕ β.
    pub(crate) fn opening(&self, b: &Bits) -> Vec<Lanes> {
        b.lanes.iter().zip(self.beta.iter()).map(|(&b, &beta)| b ^ beta).collect()
    }

    /// This party's shares of b, once c is known.
    pub(crate) fn finish(mut self, c: &[Lanes]) -> Vec<u64> {
        let mask = u64::MAX >> (64 - self.bits);
        let one = u64::from(self.role == Role::Server);
        for (share, c) in self.share.chunks_mut(GROUP).zip(c) {
            for (e, share) in share.iter_mut().enumerate() {
                let c = c.bit(e);
                // ±β + c, where one party only adds c.
                *share = (*share ^ c.wrapping_neg()).wrapping_add(c).wrapping_add(c & one) & mask;
            }
        }
        std::mem::take(&mut self.share)
    }
}

/// A prepared conversion of shared bits, for one run.
pub struct BitToArithmetic {
    prepared: BitMaterial,
}

impl BitToArithmetic {
    /// What `count` conversions to shares mod 2^`bits` cost.
    pub fn cost(count: usize, bits: u32) -> Cost {
        let opened = plane_bytes(count, 1) as u64;
        cost::in_one_round(count, Cost { up: opened, down: opened, ..cost(count, bits) })
    }

    /// Prepares `count` conversions to shares mod 2^`bits`, `bits` in 1..=63.
    ///
    /// # Errors
    /// When `bits` is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
    ) -> Result<Self, MpcError> {
        check_range("width of a converted bit", bits, 1..=63)?;
        Ok(Self { prepared: BitMaterial::new(party, chan, count, bits)? })
    }

    /// This party's shares mod 2^bits of the bits. Both open c; the client sends first.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, b: &Bits) -> Result<Vec<u64>, MpcError> {
        check_count("bits", b.len(), self.prepared.count)?;
        let mut c = self.prepared.opening(b);
        let mine = plane_to_bytes(&c, self.prepared.count);
        let theirs = exchange(chan, self.prepared.role, 2, &mine, |_| Ok(()))?;
        if self.prepared.role == Role::Server {
            chan.flush()?;
        }
        add_plane(&mut c, self.prepared.count, &mut &theirs[..]);
        Ok(self.prepared.finish(&c))
    }
}
