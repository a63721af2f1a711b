//! A place among N = 2^k, made by moving: all messages are the server's.
//!
//! The server knows ρ_s, and begins with its share V_s = e(ρ_s), the client's being zero. For the t-th bit of ρ_c, the client's choice in an OT, e has
//! to change places with its neighbour at the distance 2^t where that bit is set:
//! V ⊕ ρ_c,t·D, where D = V ⊕ (V moved by v → v ⊕ 2^t). The client's part of D it multiplies by itself. The server's part is the same at
//! both places of a pair, so N/2 bits of pads K0, K1 and **one message D_s ⊕ K0 ⊕ K1 of N/2 bits** make shares K0 and K0 ⊕ ρ_c,t·D_s.
//! The server knows its share of V before the next bit by itself, so all messages go at once.

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::halves::{FIRST, Product};
use crate::error::MpcError;
use crate::kernels::lanes::{GROUP, group_len};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// The bits of places among 2^k: in two words of half of them each, lowest place first.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// 2 to 7.
    pub(super) k: u32,
    /// r is a number mod 2^`ring`.
    pub(super) ring: u32,
}

impl Form {
    /// Bits of a word, and of a message.
    pub(super) const fn width(self) -> u32 {
        1 << (self.k - 1)
    }

    /// The product of the `t`-th bits.
    const fn product(self, t: u32) -> Product {
        Product { t, bits: self.ring - t - 1 }
    }

    /// Bits of places whose `t`-th bit is zero, in a word: those of one of a pair.
    const fn lower(t: u32) -> u64 {
        u64::MAX / ((1 << (1 << t)) + 1)
    }

    /// D of these bits, at one place of each pair.
    const fn differences(self, t: u32, [low, high]: [u64; 2]) -> u64 {
        if t + 1 == self.k {
            return low ^ high;
        }
        let lower = Self::lower(t);
        (low ^ low >> (1 << t)) & lower | ((high ^ high >> (1 << t)) & lower) << (1 << t)
    }

    /// Adds `half` to `e` at both places of each pair.
    const fn add(self, t: u32, half: u64, [low, high]: [u64; 2]) -> [u64; 2] {
        if t + 1 == self.k {
            return [low ^ half, high ^ half];
        }
        let lower = Self::lower(t);
        let [first, second] = [half & lower, half >> (1 << t) & lower];
        [low ^ first ^ first << (1 << t), high ^ second ^ second << (1 << t)]
    }

    /// The bits of a pad that are for D.
    const fn of_pad(self, pad: jaguar_ot::Block) -> u64 {
        (pad.0 >> FIRST) as u64 & (u64::MAX >> (64 - self.width()))
    }

    /// Bytes from the server.
    pub(super) fn sent(self, count: usize) -> usize {
        let of = |t| pack::packed_len(count, self.width()) + self.product(t).sent(count);
        (0..self.k).map(of).sum()
    }
}

/// Prepared places, element by element.
pub(super) struct Moved {
    /// This party's share of e.
    pub(super) e: Zeroizing<Vec<[u64; 2]>>,
    /// And of r.
    pub(super) r: Zeroizing<Vec<u16>>,
}

/// One group, to be made: the places, what the server knows of them, and the messages of an OT.
pub(super) struct Group<'a> {
    pub(super) e: &'a mut [[u64; 2]],
    pub(super) r: &'a mut [u16],
    /// ρ_s.
    pub(super) rho: &'a mut [u64],
    pub(super) halves: &'a mut [u64],
    pub(super) products: &'a mut [u64],
}

impl Moved {
    pub(super) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        form: Form,
    ) -> Result<Self, MpcError> {
        let sends = party.role() == Role::Server;
        let words = || Zeroizing::new(vec![0u64; count]);
        let (mut e, mut r) = (Zeroizing::new(vec![[0; 2]; count]), Zeroizing::new(vec![0; count]));
        let mut rho = words();
        let mut drawn = Vec::new();
        for _ in 0..form.k {
            drawn.push(party.draw(chan, Role::Server, Width::Bit, count)?);
        }
        // The server's part of r comes first: it begins with all of it.
        if sends {
            for (t, drawn) in drawn.iter().enumerate() {
                let groups = rho.chunks_mut(GROUP).enumerate();
                each_with(groups.collect(), Room::default, |room, (g, rho): (usize, &mut [u64])| {
                    if let Pads::Sender(zero, one) = drawn.pads(g * GROUP, group_len(count, g), room) {
                        own_bits(t as u32, zero, one, rho);
                    }
                });
            }
            begin(form, &rho, &mut e);
        }
        let (mut halves, mut products) = (words(), words());
        for (t, drawn) in drawn.into_iter().enumerate() {
            let t = t as u32;
            if !sends {
                for halves in halves.chunks_mut(PACKED_AT_ONCE) {
                    halves.copy_from_slice(&chan.recv_packed(halves.len(), form.width())?);
                }
                form.product(t).receive(chan, &mut products)?;
            }
            let places = e.chunks_mut(GROUP).zip(r.chunks_mut(GROUP)).zip(rho.chunks_mut(GROUP));
            let messages = halves.chunks_mut(GROUP).zip(products.chunks_mut(GROUP));
            let group = |(((e, r), rho), (halves, products))| Group { e, r, rho, halves, products };
            let groups = places.zip(messages).map(group).enumerate();
            each_with(groups.collect(), Room::default, |room, (g, group): (usize, Group<'_>)| {
                group.absorb(&drawn.pads(g * GROUP, group_len(count, g), room), form, t);
            });
            drop(drawn);
            if sends {
                for halves in halves.chunks(PACKED_AT_ONCE) {
                    chan.send_packed(halves, form.width())?;
                }
                form.product(t).send(chan, &products)?;
            }
        }
        Ok(Self { e, r })
    }
}

/// The server's bit of each place: of the pads that nothing else uses.
pub(super) fn own_bits(t: u32, zero: &[jaguar_ot::Block], one: &[jaguar_ot::Block], rho: &mut [u64]) {
    for (rho, (zero, one)) in rho.iter_mut().zip(zero.iter().zip(one)) {
        *rho |= (((zero.0 ^ one.0) >> 127) as u64) << t;
    }
}

/// Sets the bits number `rho` in zeros.
pub(super) fn begin(form: Form, rho: &[u64], e: &mut [[u64; 2]]) {
    let masks = BitMasks::new();
    for (e, rho) in e.iter_mut().zip(rho) {
        let (within, high) = (rho % u64::from(form.width()), rho / u64::from(form.width()));
        *e = [masks.of(high ^ 1), masks.of(high)].map(|mask| (1 << within) & mask);
    }
}

impl Group<'_> {
    /// Takes in the pads of the OTs for bit `t`: makes the messages, or takes them.
    pub(super) fn absorb(self, pads: &Pads, form: Form, t: u32) {
        let Self { e, r, rho, halves, products } = self;
        let (product, masks) = (form.product(t), BitMasks::new());
        let each = e.iter_mut().zip(halves).zip(products).zip(r).enumerate();
        for (i, (((e, half), d_product), r)) in each {
            match *pads {
                Pads::Sender(zero, one) => {
                    let [pad, other] = [zero[i], one[i]].map(|pad| form.of_pad(pad));
                    *half = form.differences(t, *e) ^ pad ^ other;
                    *e = form.add(t, pad, *e);
                    let (d, share) = product.of_sender(rho[i] >> t & 1, zero[i], one[i]);
                    *d_product = d;
                    *r = r.wrapping_add(share);
                }
                Pads::Receiver(pads, choices) => {
                    let choice = u64::from(choices[i]);
                    let own = (form.differences(t, *e) ^ *half) & masks.of(choice);
                    *e = form.add(t, form.of_pad(pads[i]) ^ own, *e);
                    *r = r.wrapping_add(product.of_receiver(masks, choice, pads[i], *d_product));
                }
            }
        }
    }
}
