//! \[e\], \[r\] <- OneHot: a random r mod N = 2^k, shared by addition, and N shared bits e of which number r alone is set.
//!
//! With it a **public table is looked up at a shared place** i for the opening of δ = i + r: entry i is the sum of e_v·T\[δ − v\],
//! which each party adds up by itself, and as many tables as there are bits to an entry cost nothing more.
//!
//! r = ρ_c ⊕ ρ_s bit by bit. The server knows ρ_s, and begins with its share V_s = e(ρ_s), the client's being zero. For the t-th
//! bit of ρ_c, the client's choice in an OT, e has to change places with its neighbour at the distance 2^t where that bit is set:
//! V ⊕ ρ_c,t·D, where D = V ⊕ (V moved by v → v ⊕ 2^t). The client's part of D it multiplies by itself. The server's part is the same at
//! both places of a pair, so N/2 bits of pads K0, K1 and **one message D_s ⊕ K0 ⊕ K1 of N/2 bits** make shares K0 and K0 ⊕ ρ_c,t·D_s.
//! The server knows its share of V before the next bit by itself, so all messages go at once.
//!
//! The same OTs share the products of ρ_c,t and ρ_s,t mod 2^(k−t−1), and so r = Σ 2^t·(ρ_c,t + ρ_s,t − 2·ρ_c,t·ρ_s,t) mod 2^k: as in `bit.rs`.
//!
//! Exact. k COTs and N·k/2 + k·(k − 1)/2 bits, all from the server, offline: 21.9 bytes for k = 6, 131.5 for k = 8.
//!
//! **Who learns what.** The server receives nothing. The client receives, OT by OT, D_s and ρ_s,t under the sum of both pads, of which it knows one. Bits of
//! a pad: 16 for the product, one (the sum of both pads' bit 127) for ρ_s,t, and N/2 of their own. So ρ_s is uniform to the client, ρ_c to the server,
//! and r to both; each party's shares of e and r are masked by pads of the other one's.

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use crate::cost::Cost;
use crate::error::MpcError;
use crate::kernels::lanes::{GROUP, group_len};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// Where the bits for D begin in a pad's first block; the product's are below.
const FIRST: u32 = 32;

/// Prepared places, element by element.
pub(crate) struct OneHot {
    form: Form,
    /// This party's share of e, in words of [`Form::width`] bits, lowest place first.
    e: Zeroizing<Vec<u64>>,
    /// And of r.
    r: Zeroizing<Vec<u64>>,
}

/// How 2^k bits lie in words: at least two, so that half of them are whole words too.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    k: u32,
}

impl Form {
    fn words(self) -> usize {
        1 << self.k.saturating_sub(6).max(1)
    }

    /// Bits of a word.
    fn width(self) -> u32 {
        1 << (self.k - 1).min(6)
    }

    /// Blocks of a pad: 64 bits of the first are for D.
    fn blocks(self) -> usize {
        let half = self.words() / 2;
        1 + (half - 1).div_ceil(2)
    }

    /// Bits of the `t`-th product.
    fn product(self, t: u32) -> u32 {
        self.k - t - 1
    }

    /// Bits of places whose `t`-th bit is zero, in a word: those of one of a pair.
    fn lower(self, t: u32) -> u64 {
        u64::MAX / ((1 << (1 << t)) + 1)
    }

    /// The lower half of what is the same at both places of each pair.
    fn fold(self, t: u32, d: &[u64], half: &mut [u64]) {
        if 1 << t >= self.width() {
            let stride = (1usize << t) / self.width() as usize;
            for (half, d) in half.chunks_mut(stride).zip(d.chunks(2 * stride)) {
                half.copy_from_slice(&d[..stride]);
            }
            return;
        }
        let lower = self.lower(t);
        for (half, d) in half.iter_mut().zip(d.chunks_exact(2)) {
            *half = (d[0] & lower) | (d[1] & lower) << (1 << t);
        }
    }

    /// Adds `half` to `e` at both places of each pair.
    fn add(self, t: u32, half: &[u64], e: &mut [u64]) {
        if 1 << t >= self.width() {
            let stride = (1usize << t) / self.width() as usize;
            for (half, e) in half.chunks(stride).zip(e.chunks_mut(2 * stride)) {
                e.iter_mut().zip(half.iter().cycle()).for_each(|(e, half)| *e ^= half);
            }
            return;
        }
        let lower = self.lower(t);
        for (half, e) in half.iter().zip(e.chunks_exact_mut(2)) {
            for (e, half) in e.iter_mut().zip([half & lower, half >> (1 << t) & lower]) {
                *e ^= half | half << (1 << t);
            }
        }
    }

    /// D of these bits.
    fn differences(self, t: u32, e: &[u64], d: &mut [u64]) {
        if 1 << t >= self.width() {
            let stride = (1usize << t) / self.width() as usize;
            d.iter_mut().enumerate().for_each(|(w, d)| *d = e[w] ^ e[w ^ stride]);
            return;
        }
        let lower = self.lower(t);
        for (d, e) in d.iter_mut().zip(e) {
            *d = e ^ (e >> (1 << t) & lower) ^ (e & lower) << (1 << t);
        }
    }

    /// Word `w` of those bits of a pad that are for D; `pad(j)` is block j.
    fn of_pad(self, w: usize, pad: impl Fn(usize) -> u128) -> u64 {
        let word = match w.checked_sub(1) {
            None => pad(0) >> FIRST,
            Some(w) => pad(1 + w / 2) >> (64 * (w % 2)),
        };
        word as u64 & (u64::MAX >> (64 - self.width()))
    }
}

/// What the server sends of some elements, OT by OT.
struct Messages {
    /// The halves of D, `words / 2` an element.
    halves: Vec<u64>,
    /// Of the product.
    products: Vec<u64>,
}

/// One group, to be made.
struct Group<'a> {
    e: &'a mut [u64],
    r: &'a mut [u64],
    /// ρ_s.
    rho: &'a mut [u64],
    halves: &'a mut [u64],
    products: &'a mut [u64],
}

/// What a preparation costs.
pub(crate) fn cost(count: usize, k: u32) -> Cost {
    let form = Form { k };
    let halves = form.words() / 2 * count;
    let sent = (0..k).map(|t| {
        let product = form.product(t);
        pack::packed_len(halves, form.width())
            + if product > 0 { pack::packed_len(count, product) } else { 0 }
    });
    let kept = (count * (form.words() + 1) * size_of::<u64>()) as u64;
    Cost {
        bits_from_server: u64::from(k) * count as u64,
        client_memory: kept,
        server_memory: kept,
        prepare_down: sent.sum::<usize>() as u64,
        ..Cost::default()
    }
}

impl OneHot {
    /// `count` places among 2^`k`, k from 2 to 9.
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        k: u32,
    ) -> Result<Self, MpcError> {
        let form = Form { k };
        let (words, sends) = (form.words(), party.role() == Role::Server);
        let zeros = |len: usize| Zeroizing::new(vec![0u64; len]);
        let (mut e, mut r, mut rho) = (zeros(words * count), zeros(count), zeros(count));
        let mut drawn = Vec::new();
        for _ in 0..k {
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
            let masks = BitMasks::new();
            e.chunks_mut(words).zip(rho.iter()).for_each(|(e, &rho)| set(form, masks, e, rho));
        }
        for (t, drawn) in drawn.into_iter().enumerate() {
            let t = t as u32;
            let mut messages = Messages { halves: vec![0; words / 2 * count], products: vec![0; count] };
            if !sends {
                messages.receive(chan, form, t)?;
            }
            let all = e
                .chunks_mut(words * GROUP)
                .zip(r.chunks_mut(GROUP).zip(rho.chunks_mut(GROUP)))
                .zip(messages.halves.chunks_mut(words / 2 * GROUP).zip(messages.products.chunks_mut(GROUP)));
            let groups = all
                .map(|((e, (r, rho)), (halves, products))| Group { e, r, rho, halves, products })
                .enumerate();
            each_with(groups.collect(), Room::default, |room, (g, group): (usize, Group<'_>)| {
                let pads = drawn.wide_pads(g * GROUP, group_len(count, g), form.blocks(), room);
                group.absorb(&pads, form, t);
            });
            party.done_with(drawn);
            if sends {
                messages.send(chan, form, t)?;
            }
        }
        let mask = u64::MAX >> (64 - k);
        r.iter_mut().for_each(|r| *r &= mask);
        // The client waits for this.
        chan.flush()?;
        Ok(Self { form, e, r })
    }

    /// This party's shares of r mod 2^k.
    pub(crate) fn masks(&self) -> &[u64] {
        &self.r
    }

    /// This party's share of e of one element, moved so that bit w is that of place w + `by` mod N: of 64 bits a word, the lowest
    /// place first.
    pub(crate) fn moved_into(&self, element: usize, by: u64, out: &mut [u64]) {
        let Form { k } = self.form;
        let words = self.form.words();
        let e = &self.e[element * words..][..words];
        if k <= 6 {
            let all = e[0] | e[1] << self.form.width();
            let (n, mask) = (1 << k, u64::MAX >> (64 - (1 << k)));
            // (In two steps: nothing may be moved by all 64 bits.)
            out[0] = (all >> by | (all << (n - 1 - by)) << 1) & mask;
            return;
        }
        let (skip, shift) = ((by / 64) as usize, by % 64);
        for (w, out) in out.iter_mut().enumerate() {
            let [low, high] = [0, 1].map(|next| e[(w + skip + next) % words]);
            *out = low >> shift | (high << (63 - shift)) << 1;
        }
    }
}

/// Words of 64 bits that [`OneHot::moved_into`] fills.
pub(crate) fn words(k: u32) -> usize {
    (1usize << k).div_ceil(64)
}

/// The server's bit of each place: of the pads that nothing else uses.
fn own_bits(t: u32, zero: &[jaguar_ot::Block], one: &[jaguar_ot::Block], rho: &mut [u64]) {
    for (rho, (zero, one)) in rho.iter_mut().zip(zero.iter().zip(one)) {
        *rho |= (((zero.0 ^ one.0) >> 127) as u64) << t;
    }
}

/// Sets the bit number `rho` in zeros.
fn set(form: Form, masks: BitMasks, e: &mut [u64], rho: u64) {
    let (within, word) = (rho % u64::from(form.width()), rho / u64::from(form.width()));
    for (w, e) in e.iter_mut().enumerate() {
        // 1 where w is the word.
        let hit = (w as u64 ^ word).wrapping_sub(1) >> 63;
        *e = (1 << within) & masks.of(hit);
    }
}

impl Group<'_> {
    /// Takes in the pads of the OTs for bit `t`: makes the messages, or takes them.
    fn absorb(self, pads: &Pads, form: Form, t: u32) {
        let Self { e, r, rho, halves, products } = self;
        let (words, masks) = (form.words(), BitMasks::new());
        let product = (1u64 << form.product(t)) - 1;
        let (mut d, mut half) = (Zeroizing::new(vec![0; words]), Zeroizing::new(vec![0; words / 2]));
        let count = r.len();
        let each = e.chunks_mut(words).zip(halves.chunks_mut(words / 2)).zip(products).zip(r).enumerate();
        for (i, (((e, message), d_product), r)) in each {
            match *pads {
                Pads::Sender(zero, one) => {
                    let block = |of: &[jaguar_ot::Block], j: usize| of[j * count + i].0;
                    form.differences(t, e, &mut d);
                    form.fold(t, &d, &mut half);
                    for (w, (message, half)) in message.iter_mut().zip(half.iter_mut()).enumerate() {
                        let zero = form.of_pad(w, |j| block(zero, j));
                        *message = *half ^ zero ^ form.of_pad(w, |j| block(one, j));
                        *half = zero;
                    }
                    form.add(t, &half, e);
                    let (zero, one) = (block(zero, 0) as u64, block(one, 0) as u64);
                    let own = rho[i] >> t & 1;
                    *d_product = own.wrapping_add(zero).wrapping_sub(one) & product;
                    *r = r.wrapping_add(own.wrapping_add((zero & product) << 1) << t);
                }
                Pads::Receiver(pads, choices) => {
                    let block = |j: usize| pads[j * count + i].0;
                    let (choice, chosen) = (u64::from(choices[i]), masks.of(u64::from(choices[i])));
                    form.differences(t, e, &mut d);
                    form.fold(t, &d, &mut half);
                    for (w, (half, message)) in half.iter_mut().zip(message).enumerate() {
                        *half = form.of_pad(w, block) ^ ((*half ^ *message) & chosen);
                    }
                    form.add(t, &half, e);
                    let shared = (block(0) as u64).wrapping_add(*d_product & chosen) & product;
                    *r = r.wrapping_add(choice.wrapping_sub(shared << 1) << t);
                }
            }
        }
    }
}

impl Messages {
    fn send(&self, chan: &mut Channel, form: Form, t: u32) -> Result<(), MpcError> {
        for halves in self.halves.chunks(PACKED_AT_ONCE) {
            chan.send_packed(halves, form.width())?;
        }
        if form.product(t) > 0 {
            for products in self.products.chunks(PACKED_AT_ONCE) {
                chan.send_packed(products, form.product(t))?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, chan: &mut Channel, form: Form, t: u32) -> Result<(), MpcError> {
        for halves in self.halves.chunks_mut(PACKED_AT_ONCE) {
            halves.copy_from_slice(&chan.recv_packed(halves.len(), form.width())?);
        }
        if form.product(t) > 0 {
            for products in self.products.chunks_mut(PACKED_AT_ONCE) {
                products.copy_from_slice(&chan.recv_packed(products.len(), form.product(t))?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tiny;

#[cfg(test)]
mod tests {
    use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
    use jaguar_wire::memory_pair;

    use super::*;

    /// Both parties' places.
    fn places(count: usize, k: u32) -> [OneHot; 2] {
        let (mut a, mut b) = memory_pair();
        let one = |role: Role, chan: &mut Channel| {
            let mut party = Party::new(role, InsecureTestDealer::new(7, role));
            let made = OneHot::new(&mut party, chan, count, k).unwrap();
            assert_eq!(chan.total().sent, if role == Role::Server { cost(count, k).prepare_down } else { 0 });
            made
        };
        std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, &mut b));
            [one(Role::Client, &mut a), server.join().unwrap()]
        })
    }

    /// One bit is set, that of the place which the other shares add up to; and moving it moves it.
    #[test]
    fn one_place_is_set() {
        for k in 2..=9 {
            let (count, n) = (1500, 1u64 << k);
            let [client, server] = places(count, k);
            let mut seen = vec![0; n as usize];
            for i in 0..count {
                let r = (client.masks()[i] + server.masks()[i]) % n;
                seen[r as usize] += 1;
                for by in [0, 1, n - 1, i as u64 % n] {
                    let [mut c, mut s] = [vec![0; words(k)], vec![0; words(k)]];
                    client.moved_into(i, by, &mut c);
                    server.moved_into(i, by, &mut s);
                    for w in 0..n {
                        let bit = (c[w as usize / 64] ^ s[w as usize / 64]) >> (w % 64) & 1;
                        assert_eq!(bit == 1, (w + by) % n == r, "{w} + {by}, {r} of {n}");
                    }
                }
            }
            let mean = count as f64 / n as f64;
            assert!(seen.iter().all(|&s| (f64::from(s) - mean).abs() < 6.0 * mean.sqrt() + 3.0), "{seen:?}");
        }
    }
}
