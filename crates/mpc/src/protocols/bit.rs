//! \[b\] mod 2^bits <- BitToArithmetic(\[b\]): from shares by exclusive or to shares by addition.
//!
//! A random bit β is prepared in both kinds of shares. With halves β_c (the client's choice in a random OT)
//! and β_s (a bit that only the sender, the server, knows: the sum of bits of both pads), β = β_c + β_s −
//! 2·β_c·β_s, and the OT shares the product once the server has sent d = β_s + k0 − k1, bits − 1 bits, in
//! offline. Modulo an odd M it is ⌈log2 M⌉ bits. Online both open c = b ⊕ β; then b = c + (1 − 2c)·β. (Rotaru and Wood, INDOCRYPT
//! 2019, call it a daBit.)
//!
//! Exact. One COT, from the server; bits − 1 bits down offline, one bit each way online. Each message
//! is masked by a pad or by a half of β that its receiver does not know. (Modulo an odd M < 2^62 a pad of 127 bits is within
//! 2^−65 of uniform.)

use crate::share::Modulus;
use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::cost::{self, Cost};
use crate::error::{MpcError, check_count};
use crate::gates::bits::Bits;
use crate::gates::evaluate::exchange;
use crate::kernels::lanes::{GROUP, Lanes, add_plane, group_len, groups, plane_bytes, plane_to_bytes};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// Prepared random bits.
pub(crate) struct BitMaterial {
    role: Role,
    count: usize,
    modulus: Modulus,
    /// This party's share of β by addition.
    share: Zeroizing<Vec<u64>>,
    /// And by exclusive or.
    beta: Zeroizing<Vec<Lanes>>,
}

/// Bits of d: of the product of the halves as it is doubled, so one less for a power of two.
fn product_bits(modulus: Modulus) -> u32 {
    modulus.log2().map_or(modulus.bits(), |bits| bits - 1)
}

/// What the preparation costs.
pub(crate) fn cost(count: usize, modulus: Modulus) -> Cost {
    let bits = product_bits(modulus);
    let kept = (count * 8 + groups(count) * size_of::<Lanes>()) as u64;
    Cost {
        bits_from_server: count as u64,
        client_memory: kept,
        server_memory: kept,
        prepare_down: if bits > 0 { pack::packed_len(count, bits) as u64 } else { 0 },
        ..Cost::default()
    }
}

impl BitMaterial {
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        modulus: Modulus,
    ) -> Result<Self, MpcError> {
        let (bits, masks) = (product_bits(modulus), BitMasks::new());
        // Without the bit that makes β_s.
        let reduced = |pad: &jaguar_ot::Block| modulus.reduce_wide(pad.0 & (u128::MAX >> 1));
        let drawn = party.draw(chan, Role::Server, Width::Bit, count)?;
        let mut share = Zeroizing::new(vec![0; count]);
        let mut beta = Zeroizing::new(vec![Lanes::ZERO; groups(count)]);
        // The server's corrections d, made or received.
        let mut corrections = vec![0; count];
        let sends = party.role() == Role::Server;
        if !sends && bits > 0 {
            for d in corrections.chunks_mut(PACKED_AT_ONCE) {
                d.copy_from_slice(&chan.recv_packed(d.len(), bits)?);
            }
        }
        let groups =
            share.chunks_mut(GROUP).zip(beta.iter_mut()).zip(corrections.chunks_mut(GROUP)).enumerate();
        each_with(groups.collect(), Room::default, |room, (g, ((share, beta), d))| {
            match drawn.pads(g * GROUP, group_len(count, g), room) {
                Pads::Sender(zero, one) => {
                    // Bit 127 of the pads is not used otherwise.
                    let own: Vec<bool> = zero.iter().zip(one).map(|(z, o)| (z.0 ^ o.0) >> 127 == 1).collect();
                    let own = Zeroizing::new(own);
                    *beta = Lanes::from_bools(&own);
                    let made = share.iter_mut().zip(d).zip(zero.iter().zip(one)).zip(own.iter());
                    for (((share, d), (zero, one)), &own) in made {
                        let (own, zero, one) = (u64::from(own), reduced(zero), reduced(one));
                        *d = modulus.sub(modulus.add(own, zero), one);
                        *share = modulus.add(own, modulus.add(zero, zero));
                    }
                }
                Pads::Receiver(pads, choices) => {
                    *beta = Lanes::from_bools(choices);
                    for (((share, &d), pad), &choice) in share.iter_mut().zip(&*d).zip(pads).zip(choices) {
                        let own = u64::from(choice);
                        // (What a peer sends may be no residue.)
                        let d = modulus.reduce(d) & masks.of(own);
                        let product = modulus.add(reduced(pad), d);
                        *share = modulus.sub(own, modulus.add(product, product));
                    }
                }
            }
        });
        drop(drawn);
        if sends && bits > 0 {
            for d in corrections.chunks(PACKED_AT_ONCE) {
                chan.send_packed(d, bits)?;
            }
        }
        // The client waits for this.
        chan.flush()?;
        Ok(Self { role: party.role(), count, modulus, share, beta })
    }

    /// This party's share of c = b ⊕ β.
    pub(crate) fn opening(&self, b: &Bits) -> Vec<Lanes> {
        b.lanes.iter().zip(self.beta.iter()).map(|(&b, &beta)| b ^ beta).collect()
    }

    /// This party's shares of b, once c is known.
    pub(crate) fn finish(mut self, c: &[Lanes]) -> Vec<u64> {
        let (one, masks) = (u64::from(self.role == Role::Server), BitMasks::new());
        if let Some(bits) = self.modulus.log2() {
            let mask = u64::MAX >> (64 - bits);
            for (share, c) in self.share.chunks_mut(GROUP).zip(c) {
                for (e, share) in share.iter_mut().enumerate() {
                    let c = c.bit(e);
                    // ±β + c, where one party only adds c.
                    *share = (*share ^ masks.of(c)).wrapping_add(c).wrapping_add(c & one) & mask;
                }
            }
            return std::mem::take(&mut self.share);
        }
        let modulus = self.modulus;
        for (share, c) in self.share.chunks_mut(GROUP).zip(c) {
            for (e, share) in share.iter_mut().enumerate() {
                let c = c.bit(e);
                let negated = *share ^ ((*share ^ modulus.neg(*share)) & masks.of(c));
                *share = modulus.add(negated, c & one);
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
    /// What `count` conversions to shares modulo `modulus` cost.
    pub fn cost(count: usize, modulus: Modulus) -> Cost {
        let opened = plane_bytes(count, 1) as u64;
        cost::in_one_round(count, Cost { up: opened, down: opened, ..cost(count, modulus) })
    }

    /// Prepares `count` conversions to shares modulo `modulus`.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        modulus: Modulus,
    ) -> Result<Self, MpcError> {
        Ok(Self { prepared: BitMaterial::new(party, chan, count, modulus)? })
    }

    /// This party's shares of the bits. Both open c; the client sends first.
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
