//! Four times as many places: the outer product of a place V of n and one of four, e(b0, b1).
//!
//! Four bits of which number b0 + 2·b1 is set are sums of 1, b0, b1 and b2 = b0·b1. So three products b_j·V make four times as many places: V + b0·V + b1·V +
//! b2·V, b0·V + b2·V, b1·V + b2·V, b2·V. Of V and of each b_j both parties have shares by exclusive or, and each product has two parts that need both parties:
//!
//! - b_j^c·V_s, by an OT from the server: the client's choice is x_j, the server sends V_s ⊕ K0 ⊕ K1, and K0 and K0 ⊕ x_j·V_s are shares of x_j·V_s.
//! - b_j^s·V_c, likewise by an OT from the client with the server's choice x'_j.
//!
//! For b0 and b1 the choices are the shares: these are drawn. Their product has the parts b0^c·b1^s and b1^c·b0^s, a bit more each of the
//! OTs for x_0 and x_1. So the server knows its share of b2 by itself, and tells x'_2 ⊕ b2^s; the client knows its own once
//! it has the server's messages, and tells x_2 ⊕ b2^c. Whoever learns such a bit adds it times its own share of V.
//!
//! All that the server sends follows from what it drew; all that the client sends, from that and what it drew. So the server
//! waits for nothing: the client's messages may come at the end of the offline stage ([`Rest`]).

use jaguar_ot::threads::each_with;
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::halves::{FIRST, Product};
use super::moved::Moved;
use crate::error::MpcError;
use crate::kernels::lanes::{
    GROUP, Lanes, group_len, groups, plane_bytes, plane_to_bytes, read_lanes, write_lanes,
};
use crate::party::{Pads, Party, Room};
use crate::protocols::mux::PACKED_AT_ONCE;

/// b0, b1 and their product.
const PRODUCTS: usize = 3;

/// Of a pad, the bit for a product of the parties' shares of b0 and b1.
pub(super) const AND: u32 = 24;

/// What the server says of an element besides strings, a bit each: b1^s and b0^s, masked, and x'_2 ⊕ b2^s.
const SAID: usize = 3;

/// Of V, which has 2^`low` places: strings of as many bits.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// 4 to 7 (and smaller, where tests take a word of few bits).
    pub(super) low: u32,
}

impl Form {
    /// Words of a string.
    pub(super) const fn words(self) -> usize {
        (1usize << self.low).div_ceil(64)
    }

    /// Bits of a word.
    const fn width(self) -> u32 {
        if self.low < 6 { 1 << self.low } else { 64 }
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width())
    }

    /// The products of the parties' halves of b0 and b1, for r.
    const fn products(self) -> [Product; 2] {
        [Product { t: self.low, bits: 1 }, Product { t: self.low + 1, bits: 0 }]
    }

    /// Word `w` of V.
    const fn string(self, v: [u64; 2], w: usize) -> u64 {
        if self.low > 6 { v[w] } else { v[0] | v[1] << (self.width() / 2) }
    }

    /// What word `w` of a pad's string is of `pads`, as many elements' first blocks and then their second ones.
    fn of_pad(self, pads: &[jaguar_ot::Block], i: usize, w: usize) -> u64 {
        let word = if w == 0 { pads[i].0 >> FIRST } else { pads[pads.len() / self.words() * w + i].0 };
        word as u64 & self.mask()
    }

    /// Where word `w` of block `b` of an element's places lies: in which word, and from which bit on.
    const fn at(self, b: usize, w: usize) -> (usize, u32) {
        let per_word = (64 / self.width()) as usize;
        ((b * self.words() + w) / per_word, (b % per_word) as u32 * self.width())
    }

    /// Adds word `w` of V and of the products to an element's places.
    fn add(self, e: &mut [u64], w: usize, v: u64, [y0, y1, y2]: [u64; PRODUCTS]) {
        for (b, block) in [v ^ y0 ^ y1 ^ y2, y0 ^ y2, y1 ^ y2, y2].into_iter().enumerate() {
            let (at, bit) = self.at(b, w);
            e[at] ^= block << bit;
        }
    }

    /// Word `w` of V, of an element's places.
    fn sum(self, e: &[u64], w: usize) -> u64 {
        let block = |b| {
            let (at, bit) = self.at(b, w);
            e[at] >> bit
        };
        (block(0) ^ block(1) ^ block(2) ^ block(3)) & self.mask()
    }

    /// Words of 64 bits of an element's places.
    pub(super) const fn places(self) -> usize {
        (1usize << (self.low + 2)).div_ceil(64)
    }

    fn strings_sent(self, count: usize) -> usize {
        pack::packed_len(count * PRODUCTS * self.words(), self.width())
    }

    /// Bytes from the server.
    pub(super) fn sent(self, count: usize) -> usize {
        plane_bytes(count, SAID) + self.products()[0].sent(count) + self.strings_sent(count)
    }

    /// Bytes from the client, at the end.
    pub(super) fn rest(self, count: usize) -> usize {
        plane_bytes(count, 1) + self.strings_sent(count)
    }

    /// Bytes that the client and the server keep until then, besides the places.
    pub(super) fn kept(self, count: usize) -> [usize; 2] {
        let planes = groups(count) * size_of::<Lanes>();
        [count * PRODUCTS * self.words() * size_of::<u64>() + planes, PRODUCTS * planes]
    }

    fn send(self, chan: &mut Channel, strings: &[u64]) -> Result<(), MpcError> {
        for strings in strings.chunks(PACKED_AT_ONCE) {
            chan.send_packed(strings, self.width())?;
        }
        Ok(())
    }

    fn receive(self, chan: &mut Channel, strings: &mut [u64]) -> Result<(), MpcError> {
        for strings in strings.chunks_mut(PACKED_AT_ONCE) {
            strings.copy_from_slice(&chan.recv_packed(strings.len(), self.width())?);
        }
        Ok(())
    }
}

/// What is left to be done once all preparations have drawn: the client's messages.
pub(super) enum Rest {
    /// The client's: x_2 ⊕ b2^c, and three strings an element.
    Client(Vec<Lanes>, Zeroizing<Vec<u64>>),
    /// The server's choices, three planes.
    Server(Zeroizing<Vec<Lanes>>),
}

/// One group, to be made.
pub(super) struct Group<'a> {
    pub(super) v: &'a [[u64; 2]],
    pub(super) e: &'a mut [u64],
    pub(super) r: &'a mut [u16],
    /// What the server says of b0, b1 and b2.
    pub(super) said: &'a mut [Lanes],
    pub(super) products: &'a mut [u64],
    /// The server's strings, three an element; at the client then its own.
    pub(super) strings: &'a mut [u64],
    /// The client's: x_2 ⊕ b2^c.
    pub(super) opened: &'a mut Lanes,
    /// The server's: its choices, as planes.
    pub(super) chosen: &'a mut [Lanes],
}

/// The product; r becomes that of all places.
pub(super) fn make<S: CotSource + ?Sized>(
    party: &mut Party<S>,
    chan: &mut Channel,
    Moved { e: v, r }: &mut Moved,
    form: Form,
) -> Result<(Zeroizing<Vec<u64>>, Rest), MpcError> {
    let (count, sends) = (v.len(), party.role() == Role::Server);
    let mut draw = |sender| -> Result<[_; PRODUCTS], MpcError> {
        let mut draw = || party.draw(chan, sender, Width::Bit, count);
        Ok([draw()?, draw()?, draw()?])
    };
    let (to, from) = (draw(Role::Server)?, draw(Role::Client)?);
    let zeros = |len: usize| Zeroizing::new(vec![0u64; len]);
    let planes = |n: usize| Zeroizing::new(vec![Lanes::ZERO; n * groups(count)]);
    let mut e = zeros(count * form.places());
    let (mut products, mut strings) = (zeros(count), zeros(count * PRODUCTS * form.words()));
    let (mut said, mut opened) = (vec![Lanes::ZERO; SAID * groups(count)], vec![Lanes::ZERO; groups(count)]);
    let mut chosen = planes(PRODUCTS);
    if !sends {
        let bytes = chan.recv(plane_bytes(count, SAID))?;
        let mut bytes = &bytes[..];
        for (g, said) in said.chunks_mut(SAID).enumerate() {
            said.iter_mut().for_each(|said| *said = read_lanes(&mut bytes, group_len(count, g)));
        }
        form.products()[0].receive(chan, &mut products)?;
        form.receive(chan, &mut strings)?;
    }
    let places = v.chunks(GROUP).zip(e.chunks_mut(GROUP * form.places())).zip(r.chunks_mut(GROUP));
    let strings_of = strings.chunks_mut(GROUP * PRODUCTS * form.words());
    let messages = said.chunks_mut(SAID).zip(products.chunks_mut(GROUP)).zip(strings_of);
    let own = opened.iter_mut().zip(chosen.chunks_mut(PRODUCTS));
    let group = |((((v, e), r), ((said, products), strings)), (opened, chosen))| Group {
        v,
        e,
        r,
        said,
        products,
        strings,
        opened,
        chosen,
    };
    let all = places.zip(messages).zip(own).map(group).enumerate();
    each_with(all.collect(), <[Room; 2 * PRODUCTS]>::default, |room, (g, group): (usize, Group<'_>)| {
        let mut pads = to
            .iter()
            .chain(&from)
            .zip(room)
            .map(|(drawn, room)| drawn.wide_pads(g * GROUP, group_len(count, g), form.words(), room));
        let mut three = || std::array::from_fn(|_| pads.next().expect("three each way"));
        group.absorb(form, &three(), &three());
    });
    drop((to, from));
    if sends {
        let mut bytes = Vec::with_capacity(plane_bytes(count, SAID));
        for (g, said) in said.chunks(SAID).enumerate() {
            said.iter().for_each(|said| write_lanes(&mut bytes, said, group_len(count, g)));
        }
        chan.send(&bytes)?;
        form.products()[0].send(chan, &products)?;
        form.send(chan, &strings)?;
    }
    Ok((e, if sends { Rest::Server(chosen) } else { Rest::Client(opened, strings) }))
}

impl Rest {
    /// The client's messages, sent or taken.
    pub(super) fn exchange(self, chan: &mut Channel, form: Form, e: &mut [u64]) -> Result<(), MpcError> {
        let count = e.len() / form.places();
        match self {
            Self::Client(opened, strings) => {
                chan.send(&plane_to_bytes(&opened, count))?;
                form.send(chan, &strings)
            }
            Self::Server(chosen) => {
                let opened = chan.recv(plane_bytes(count, 1))?;
                let mut strings = Zeroizing::new(vec![0; count * PRODUCTS * form.words()]);
                form.receive(chan, &mut strings)?;
                let groups = e
                    .chunks_mut(GROUP * form.places())
                    .zip(strings.chunks(GROUP * PRODUCTS * form.words()))
                    .zip(chosen.chunks(PRODUCTS));
                let mut opened = &opened[..];
                for (g, ((e, strings), chosen)) in groups.enumerate() {
                    answer(form, e, strings, chosen, &read_lanes(&mut opened, group_len(count, g)));
                }
                Ok(())
            }
        }
    }
}

/// Adds to the server's places of a group what the client says.
pub(super) fn answer(form: Form, e: &mut [u64], strings: &[u64], chosen: &[Lanes], opened: &Lanes) {
    let masks = BitMasks::new();
    let each = e.chunks_mut(form.places()).zip(strings.chunks(PRODUCTS * form.words()));
    for (i, (e, strings)) in each.enumerate() {
        let (chosen, opened) = ([0, 1, 2].map(|j| masks.of(chosen[j].bit(i))), masks.of(opened.bit(i)));
        for w in 0..form.words() {
            let v = form.sum(e, w);
            let [y0, y1, y2] = [0, 1, 2].map(|j| strings[j * form.words() + w] & chosen[j]);
            form.add(e, w, 0, [y0, y1, y2 ^ (v & opened)]);
        }
    }
}

/// Of three OTs, both pads of each.
fn sender<'a>(pads: &[Pads<'a>; PRODUCTS]) -> [[&'a [jaguar_ot::Block]; 2]; PRODUCTS] {
    pads.each_ref().map(|pads| match *pads {
        Pads::Sender(zero, one) => [zero, one],
        Pads::Receiver(..) => unreachable!("this party sends"),
    })
}

/// Of three OTs, the pads and the choices.
fn receiver<'a>(pads: &[Pads<'a>; PRODUCTS]) -> [(&'a [jaguar_ot::Block], &'a [bool]); PRODUCTS] {
    pads.each_ref().map(|pads| match *pads {
        Pads::Receiver(pads, choices) => (pads, choices),
        Pads::Sender(..) => unreachable!("this party receives"),
    })
}

/// The bit of a pad that masks a product of bits.
const fn and_bit(pad: jaguar_ot::Block) -> u64 {
    (pad.0 >> AND) as u64 & 1
}

/// Sets the bit of element `i`, which is zero.
const fn set(lanes: &mut Lanes, i: usize, bit: u64) {
    lanes.0[i % 8] |= bit << (i / 8);
}

impl Group<'_> {
    /// Takes in the pads of the OTs from the server and from the client: makes the messages, or takes them and makes its own.
    pub(super) fn absorb(self, form: Form, to: &[Pads; PRODUCTS], from: &[Pads; PRODUCTS]) {
        match to[0] {
            Pads::Sender(..) => self.server(form, sender(to), receiver(from)),
            Pads::Receiver(..) => self.client(form, receiver(to), sender(from)),
        }
    }

    fn server(
        self,
        form: Form,
        to: [[&[jaguar_ot::Block]; 2]; PRODUCTS],
        from: [(&[jaguar_ot::Block], &[bool]); PRODUCTS],
    ) {
        let (words, masks) = (form.words(), BitMasks::new());
        let all = self.e.chunks_mut(form.places()).zip(self.strings.chunks_mut(PRODUCTS * words));
        for (i, ((e, strings), (v, (r, d)))) in
            all.zip(self.v.iter().zip(self.r.iter_mut().zip(self.products))).enumerate()
        {
            let [b0, b1, x2] = from.map(|(_, choices)| u64::from(choices[i]));
            let [first, second] = [0, 1].map(|j| to[j].map(|pads| and_bit(pads[i])));
            let b2 = (b0 & b1) ^ first[0] ^ second[0];
            let said = [b1 ^ first[0] ^ first[1], b0 ^ second[0] ^ second[1], x2 ^ b2];
            self.said.iter_mut().zip(said).for_each(|(lanes, bit)| set(lanes, i, bit));
            self.chosen.iter_mut().zip([b0, b1, x2]).for_each(|(lanes, bit)| set(lanes, i, bit));
            for ((j, product), b) in form.products().into_iter().enumerate().zip([b0, b1]) {
                let (sent, share) = product.of_sender(b, to[j][0][i], to[j][1][i]);
                // (The second is none.)
                *d |= sent;
                *r = r.wrapping_add(share);
            }
            let own = [b0, b1, b2].map(|bit| masks.of(bit));
            for w in 0..words {
                let v = form.string(*v, w);
                let y = std::array::from_fn(|j| {
                    let [zero, one] = to[j].map(|pads| form.of_pad(pads, i, w));
                    strings[j * words + w] = v ^ zero ^ one;
                    (v & own[j]) ^ zero ^ form.of_pad(from[j].0, i, w)
                });
                form.add(e, w, v, y);
            }
        }
    }

    fn client(
        self,
        form: Form,
        to: [(&[jaguar_ot::Block], &[bool]); PRODUCTS],
        from: [[&[jaguar_ot::Block]; 2]; PRODUCTS],
    ) {
        let (words, masks) = (form.words(), BitMasks::new());
        let all = self.e.chunks_mut(form.places()).zip(self.strings.chunks_mut(PRODUCTS * words));
        for (i, ((e, strings), (v, (r, d)))) in
            all.zip(self.v.iter().zip(self.r.iter_mut().zip(self.products))).enumerate()
        {
            let [x0, x1, x2] = to.map(|(_, choices)| u64::from(choices[i]));
            let [first, second, said] = [0, 1, 2].map(|j| self.said[j].bit(i));
            let [first, second] =
                [(first & x0, 0), (second & x1, 1)].map(|(sent, j)| and_bit(to[j].0[i]) ^ sent);
            let b2 = (x0 & x1) ^ first ^ second;
            set(self.opened, i, x2 ^ b2);
            for ((j, product), b) in form.products().into_iter().enumerate().zip([x0, x1]) {
                *r = r.wrapping_add(product.of_receiver(masks, b, to[j].0[i], *d));
            }
            let [own, chosen] = [[x0, x1, b2], [x0, x1, x2]].map(|bits| bits.map(|bit| masks.of(bit)));
            let said = [0, 0, masks.of(said)];
            for w in 0..words {
                let v = form.string(*v, w);
                let y = std::array::from_fn(|j| {
                    let [zero, one] = from[j].map(|pads| form.of_pad(pads, i, w));
                    let message = &mut strings[j * words + w];
                    let received = form.of_pad(to[j].0, i, w) ^ (*message & chosen[j]);
                    *message = v ^ zero ^ one;
                    (v & (own[j] ^ said[j])) ^ received ^ zero
                });
                form.add(e, w, v, y);
            }
        }
    }
}
