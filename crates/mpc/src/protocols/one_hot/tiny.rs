//! All randomness of a place among four: what each party sees is uniform, whatever the other one drew and holds.
//!
//! *Functionality.* A uniform r and shares of it and of e; the server knows ρ_s, the client ρ_c, with r = ρ_c ⊕ ρ_s. Then δ = i + r is
//! opened, where i is shared.
//!
//! The client's view are its choices, its pads, what the server sent, and the server's share of δ. It must be the same for all
//! ρ_s and i_s. The server's view are its pads, of which ρ_s comes, and the client's share of δ.

use super::*;

/// Bits of the pads that are used: of D, of the product (of the first OT only), and the highest.
const USED: [u32; 2] = [2 + 1 + 1, 2 + 1];

const K: u32 = 2;

/// Everything that both parties have of one OT, for all randomness side by side.
struct Ot {
    pads: [Vec<jaguar_ot::Block>; 2],
    choices: Vec<bool>,
    messages: Messages,
}

/// Takes `bits` bits off a number.
fn take(from: &mut u64, bits: u32) -> u64 {
    let low = *from & ((1 << bits) - 1);
    *from >>= bits;
    low
}

/// A pad of so many bits, where the protocol looks for them.
fn pad(bits: u64, used: u32) -> jaguar_ot::Block {
    let (d, top, product) = (bits & 3, bits >> 2 & 1, bits >> 3);
    assert!(product < 1 << (used - 3));
    jaguar_ot::Block(u128::from(d) << FIRST | u128::from(top) << 127 | u128::from(product))
}

/// The bits of a pad, as [`pad`] took them.
fn bits_of(pad: jaguar_ot::Block) -> u64 {
    (pad.0 >> FIRST) as u64 & 3 | ((pad.0 >> 127) as u64) << 2 | (pad.0 as u64 & 1) << 3
}

/// The protocol's own code on all randomness; ρ_s, and both parties' places. `weak` spoils the messages of an OT.
fn all(weak: impl Fn(&mut Ot)) -> (Vec<Ot>, Vec<u64>, [OneHot; 2]) {
    let form = Form { k: K };
    let random: u32 = USED.iter().map(|used| 2 * used + 1).sum();
    let count = 1usize << random;
    let mut ots: Vec<Ot> = USED
        .iter()
        .map(|_| Ot {
            pads: Default::default(),
            choices: Vec::new(),
            messages: Messages { halves: vec![0; count], products: vec![0; count] },
        })
        .collect();
    for mut from in 0..1u64 << random {
        for (ot, &used) in ots.iter_mut().zip(&USED) {
            ot.pads.iter_mut().for_each(|pads| pads.push(pad(take(&mut from, used), used)));
            ot.choices.push(take(&mut from, 1) == 1);
        }
    }
    let words = form.words();
    let zeros = |len: usize| Zeroizing::new(vec![0u64; len]);
    let mut rho = zeros(count);
    for (t, ot) in ots.iter().enumerate() {
        own_bits(t as u32, &ot.pads[0], &ot.pads[1], &mut rho);
    }
    let [mut client, mut server] = [0; 2].map(|_| OneHot { form, e: zeros(words * count), r: zeros(count) });
    let masks = BitMasks::new();
    server.e.chunks_mut(words).zip(rho.iter()).for_each(|(e, &rho)| set(form, masks, e, rho));
    for (t, ot) in ots.iter_mut().enumerate() {
        let Ot { pads: [zero, one], choices, messages: Messages { halves, products } } = ot;
        let group = Group { e: &mut server.e, r: &mut server.r, rho: &mut rho, halves, products };
        group.absorb(&Pads::Sender(zero, one), form, t as u32);
        let own = zero.iter().zip(&*one).zip(&*choices);
        let own: Vec<_> = own.map(|((z, o), &choice)| if choice { *o } else { *z }).collect();
        let (mut halves, mut products, mut nothing) = (halves.clone(), products.clone(), vec![0; count]);
        let group = Group {
            e: &mut client.e,
            r: &mut client.r,
            rho: &mut nothing,
            halves: &mut halves,
            products: &mut products,
        };
        group.absorb(&Pads::Receiver(&own, choices), form, t as u32);
        weak(ot);
    }
    for places in [&mut client, &mut server] {
        places.r.iter_mut().for_each(|r| *r %= 4);
    }
    (ots, rho.to_vec(), [client, server])
}

/// Whether all of so many views that there may be come up equally often.
fn uniform(views: impl Iterator<Item = u64>, of: u32) -> bool {
    let mut counts = vec![0u32; 1 << of];
    views.for_each(|view| counts[view as usize] += 1);
    counts.iter().all(|&count| count == counts[0] && count > 0)
}

/// What the client sees of element e without δ, and of how many bits.
fn of_client(ots: &[Ot], e: usize) -> (u64, u32) {
    let mut view = (0, 0);
    let mut push = |part: u64, bits: u32| {
        assert!(part < 1 << bits);
        view = (view.0 | part << view.1, view.1 + bits);
    };
    for (ot, &used) in ots.iter().zip(&USED) {
        let choice = ot.choices[e];
        push(choice.into(), 1);
        push(bits_of(ot.pads[usize::from(choice)][e]), used);
        push(ot.messages.halves[e], 2);
        push(ot.messages.products[e], used - 3);
    }
    view
}

/// Whether the client's view is uniform for all that the server drew and holds: of ρ_s, and of its share of i.
fn client_learns_nothing(weak: impl Fn(&mut Ot)) -> bool {
    let (ots, rho, [_, server]) = all(weak);
    let bits = of_client(&ots, 0).1;
    (0..4).all(|drawn| {
        let own = || (0..rho.len()).filter(|&e| rho[e] == drawn);
        (0..4).all(|i| {
            // Once ρ_s is fixed the server's share of δ may follow from the view, but not i from both.
            let view = |e: usize| of_client(&ots, e).0 | ((server.r[e] + i) % 4) << bits;
            let alone = uniform(own().map(|e| of_client(&ots, e).0), bits);
            let mut counts = vec![[0u32; 4]; 1 << bits];
            (0..rho.len()).for_each(|e| {
                let view = view(e);
                counts[view as usize % (1 << bits)][(view >> bits) as usize] += 1;
            });
            alone && counts.iter().all(|deltas| deltas.iter().all(|&n| n == deltas[0]))
        })
    })
}

#[test]
fn the_client_learns_nothing_of_the_place() {
    assert!(client_learns_nothing(|_| ()));
}

/// What the test must find: a message under one pad only, one without, and a product that is not masked.
#[test]
fn planted_weaknesses_are_found() {
    let d = |ot: &Ot, pad: usize, e: usize| bits_of(ot.pads[pad][e]) & 3;
    assert!(!client_learns_nothing(
        |ot| (0..ot.choices.len()).for_each(|e| ot.messages.halves[e] ^= d(ot, 0, e))
    ));
    assert!(!client_learns_nothing(
        |ot| (0..ot.choices.len()).for_each(|e| ot.messages.halves[e] ^= d(ot, 0, e) ^ d(ot, 1, e))
    ));
    assert!(!client_learns_nothing(|ot| (0..ot.choices.len()).for_each(|e| {
        let [zero, one] = [0, 1].map(|pad| bits_of(ot.pads[pad][e]) >> 3);
        ot.messages.products[e] ^= zero ^ one;
    })));
}

/// Of all that the server has, the client's share of δ is uniform, whatever the client holds; and the places are those of r.
#[test]
fn the_server_learns_nothing_and_the_place_is_right() {
    let (ots, rho, [client, server]) = all(|_| ());
    let pads = |e: usize| {
        let parts =
            ots.iter().zip(&USED).flat_map(|(ot, &used)| ot.pads.each_ref().map(|p| (bits_of(p[e]), used)));
        parts.fold((0, 0), |(all, at), (part, bits)| (all | part << at, at + bits))
    };
    let bits = pads(0).1;
    for i in 0..4 {
        let views = (0..rho.len()).map(|e| pads(e).0 | ((client.r[e] + i) % 4) << bits);
        assert!(uniform(views, bits + 2));
    }
    for (e, rho) in rho.iter().enumerate() {
        let chosen = u64::from(ots[0].choices[e]) | u64::from(ots[1].choices[e]) << 1;
        let r = (client.r[e] + server.r[e]) % 4;
        assert_eq!(r, chosen ^ rho);
        let [mut c, mut s] = [[0], [0]];
        client.moved_into(e, 0, &mut c);
        server.moved_into(e, 0, &mut s);
        assert_eq!(c[0] ^ s[0], 1 << r);
    }
}

/// Each of the server's bits is one of its own.
#[test]
fn the_server_draws_every_bit() {
    let [high, low] = [1u128 << 127, 0].map(jaguar_ot::Block);
    for t in 0..9 {
        for (zero, one, set) in [(high, low, 1), (low, high, 1), (high, high, 0), (low, low, 0)] {
            let mut rho = [0];
            own_bits(t, &[zero], &[one], &mut rho);
            assert_eq!(rho, [set << t]);
        }
    }
}
