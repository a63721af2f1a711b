//! The protocol in rings so small that all can be enumerated, as products are (`product/tiny.rs`).
//!
//! *Functionality.* Of x, shared mod 2^L, the client gets a uniform z_c mod 2^L and the server z_s = (x + a)·(x + b) − z_c; each cuts off s bits of its own.
//!
//! - *offline*: all OTs of a small ring together. The client's view must be uniform whatever the server draws, and so must its share of 2·α_c·α_s.
//! - *online*: all pairs, both parties' views.

use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_wire::memory_pair;

use super::*;
use crate::party::Pads;
use crate::protocols::cross::{DRAWN, Group};
use crate::protocols::opening::tests::by_turns;
use crate::reference::signed;

/// Whether all of so many views that there may be come up equally often.
fn uniform(views: impl Iterator<Item = u64>, of: u32) -> bool {
    let mut counts = vec![0u32; 1 << of];
    views.for_each(|view| counts[view as usize] += 1);
    counts.iter().all(|&count| count == counts[0] && count > 0)
}

/// Numbers of these widths, packed into one, the first lowest; and all bits.
fn packed(parts: impl IntoIterator<Item = (u64, u32)>) -> (u64, u32) {
    parts.into_iter().fold((0, 0), |(all, at), (part, bits)| {
        assert!(part >> bits == 0, "{part} in {bits} bits");
        (all | part << at, at + bits)
    })
}

/// Takes `bits` bits off a number.
fn take(from: &mut u64, bits: u32) -> u64 {
    let low = *from & ((1 << bits) - 1);
    *from >>= bits;
    low
}

/// Parameters whose ring has `out` + `shift` bits: smaller ones than `check` takes, too.
fn params(out_bits: u32, shift: u32, offsets: [i64; 2]) -> SquareParams {
    SquareParams(ProductParams { out_bits, shift, offsets })
}

const RING: u32 = 3;

const CROSS: Cross = Cross { ring: RING, doubled: 1 };

/// The cross terms of all pads and choices in a ring of three bits.
struct Crossed {
    /// α of the client and of the server, and their shares of 2·α_c·α_s.
    own: [Vec<u64>; 2],
    shares: [Vec<u64>; 2],
    /// What the client sees, and of how many bits.
    views: Vec<(u64, u32)>,
}

/// The protocol's own code. `weak` takes something off the correction for a bit, of both of its pads.
fn crossed(weak: impl Fn(u32, [u64; 2]) -> u64) -> Crossed {
    let random = 2 * RING + RING * (RING - 1) + RING;
    let all = 1usize << random;
    let mut pads: Vec<[Vec<jaguar_ot::Block>; 2]> = vec![Default::default(); RING as usize];
    let mut choices: Vec<Vec<bool>> = vec![Vec::new(); RING as usize];
    for mut random in 0..all as u64 {
        for (bit, (pads, choices)) in pads.iter_mut().zip(&mut choices).enumerate() {
            for pads in pads {
                let low = take(&mut random, RING - 1 - bit as u32);
                // The upper half, of which the server's factor comes.
                let high = if bit == 0 { take(&mut random, RING) } else { 0 };
                pads.push(jaguar_ot::Block(u128::from(low) | u128::from(high) << DRAWN));
            }
            choices.push(take(&mut random, 1) == 1);
        }
    }
    let words = || vec![0u64; all];
    let mut made = Crossed { own: [words(), words()], shares: [words(), words()], views: Vec::new() };
    let mut corrections = Vec::new();
    for (bit, (pads, choices)) in (0..).zip(pads.iter().zip(&choices)) {
        let [zero, one] = pads;
        let mut sent = words();
        let [own, shares] = [&mut made.own, &mut made.shares].map(|both| &mut both[1]);
        let server = Group { own, share: shares, corrections: &mut sent };
        server.absorb(&Pads::Sender(zero, one), CROSS, bit);
        let of_choice = zero.iter().zip(one).zip(choices);
        let received: Vec<_> = of_choice.map(|((z, o), &choice)| if choice { *o } else { *z }).collect();
        let mut taken = sent.clone();
        let [own, shares] = [&mut made.own, &mut made.shares].map(|both| &mut both[0]);
        let client = Group { own, share: shares, corrections: &mut taken };
        client.absorb(&Pads::Receiver(&received, choices), CROSS, bit);
        for (e, sent) in sent.iter_mut().enumerate() {
            let spoilt = sent.wrapping_sub(weak(bit, [zero[e].0 as u64, one[e].0 as u64]));
            *sent = spoilt & ((1 << (RING - 1 - bit)) - 1);
        }
        corrections.push(sent);
    }
    made.views = (0..all)
        .map(|e| {
            packed((0..RING as usize).flat_map(|bit| {
                let (choice, width) = (choices[bit][e], RING - 1 - bit as u32);
                let own = pads[bit][usize::from(choice)][e].0;
                let high = if bit == 0 { RING } else { 0 };
                let low = own as u64 & ((1 << width) - 1);
                [
                    (choice.into(), 1),
                    (low, width),
                    (corrections[bit][e], width),
                    ((own >> DRAWN) as u64, high),
                ]
            }))
        })
        .collect();
    made
}

/// Whether the client's view is uniform for each half that the server draws.
fn client_learns_nothing(made: &Crossed) -> bool {
    let bits = made.views[0].1;
    (0..1 << RING).all(|drawn| {
        let own = made.views.iter().zip(&made.own[1]).filter(|(_, own)| **own == drawn);
        uniform(own.map(|(view, _)| view.0), bits)
    })
}

#[test]
fn a_pair_tells_the_client_nothing_of_the_servers_half() {
    let made = crossed(|_, _| 0);
    assert!(client_learns_nothing(&made));
    let mut shares = vec![Vec::new(); 1 << (2 * RING)];
    for e in 0..made.views.len() {
        let [[alpha_c, alpha_s], [share_c, share_s]] =
            [&made.own, &made.shares].map(|both| both.each_ref().map(|of| of[e]));
        assert_eq!(share_c.wrapping_add(share_s) % 8, 2 * alpha_c * alpha_s % 8);
        assert_eq!(share_c % 2, 0);
        shares[(alpha_c << RING | alpha_s) as usize].push((share_c % 8) >> 1);
    }
    for (pair, shares) in shares.into_iter().enumerate() {
        assert!(uniform(shares.into_iter(), RING - 1), "the client's share, halves {pair}");
    }
}

/// What the test must find: a correction without one of its pads, and one without both.
#[test]
fn planted_weaknesses_are_found() {
    for bit in 0..RING - 1 {
        for of in [[1, 0], [0, 1], [1, 1]] {
            let found = crossed(
                |of_bit, [zero, one]| {
                    if of_bit == bit { (zero * of[0]).wrapping_sub(one * of[1]) } else { 0 }
                },
            );
            assert!(!client_learns_nothing(&found), "bit {bit}, pads {of:?}");
        }
    }
}

/// Runs both parties on these inputs, with pairs as given: what each sent, and the results.
fn run(params: SquareParams, pairs: [[Vec<u64>; 2]; 2], x: &[Vec<u64>; 2]) -> [(Vec<u64>, Vec<u64>); 2] {
    let roles = [Role::Client, Role::Server];
    let [mut client, mut server] = [0, 1].map(|i| {
        let [alpha, gamma] = pairs[i].clone().map(Zeroizing::new);
        let opening = Opening { role: roles[i], bits: params.0.ring_bits(), values: Vec::new() };
        Run { params, pairs: Pairs { alpha, gamma }, opening }
    });
    client.start(&x[0]);
    server.start(&x[1]);
    let sent = [&client, &server].map(|run| run.opening.values.clone());
    by_turns(&mut client, &mut server);
    let [of_client, of_server] = sent;
    [(of_client, client.finish()), (of_server, server.finish())]
}

/// All pairs with all shares of them that come up, in a ring of three bits: the shares of α, and of γ.
fn all_pairs() -> [[Vec<u64>; 2]; 2] {
    let mut pairs: [[Vec<u64>; 2]; 2] = Default::default();
    for mut random in 0..1u64 << (3 * RING - 1) {
        let [alpha_c, alpha_s] = [0; 2].map(|_| take(&mut random, RING));
        // The client's share of the cross term is even.
        let gamma_c = (alpha_c * alpha_c + 2 * random) % 8;
        let gamma_s = ((alpha_c + alpha_s) * (alpha_c + alpha_s)).wrapping_sub(gamma_c) % 8;
        for (pairs, share) in pairs.iter_mut().zip([[alpha_c, gamma_c], [alpha_s, gamma_s]]) {
            pairs.iter_mut().zip(share).for_each(|(all, one)| all.push(one));
        }
    }
    pairs
}

/// Online: for all of both parties' inputs each view comes up exactly once of those that may, the client's z is uniform, and the parties' z are
/// shares of the product.
#[test]
fn online_neither_learns_anything_of_the_others_input() {
    let pairs = all_pairs();
    let all = pairs[0][0].len();
    let mask = (1u64 << RING) - 1;
    for (out, shift, offsets) in
        [(1, 2, [0, 0]), (2, 1, [0, 0]), (2, 1, [3, 3]), (1, 2, [1, -2]), (2, 1, [0, 5])]
    {
        for inputs in 0..1u64 << (2 * RING) {
            let shares = [inputs >> RING, inputs & mask];
            let params = params(out, shift, offsets);
            let made = run(params, pairs.clone(), &shares.map(|share| vec![share; all]));
            let sent = |party: usize, e: usize| made[party].0[e];
            // What a party has of the unrounded product, from its view alone.
            let z = |party: usize, e: usize| {
                let d = (sent(0, e) + sent(1, e)) & mask;
                let [alpha, gamma] = [0, 1].map(|i| pairs[party][i][e]);
                let own = if party == 1 { d } else { 0 };
                let apart = (offsets[1] - offsets[0]) as u64;
                let share = d * own + 2 * d * alpha + gamma;
                share.wrapping_add(apart.wrapping_mul(alpha + own)) & mask
            };
            for party in [0, 1] {
                let view = |e: usize| {
                    let [alpha, gamma] = [0, 1].map(|i| pairs[party][i][e]);
                    assert_eq!(alpha % 2, gamma % 2);
                    packed([(alpha, RING), (gamma >> 1, RING - 1), (sent(1 - party, e), RING)]).0
                };
                assert!(uniform((0..all).map(view), 3 * RING - 1), "party {party}, inputs {shares:?}");
            }
            // Where the factors are always one odd and one even, the product is even, and so is each share.
            let even = (offsets[1] - offsets[0]) as u32 % 2;
            assert!(even == 0 || (0..all).all(|e| z(0, e) % 2 == 0));
            assert!(
                uniform((0..all).map(|e| z(0, e) >> even), RING - even),
                "the client's z, inputs {shares:?}"
            );
            let factor = |offset: i64| (shares[0] + shares[1]).wrapping_add(offset as u64);
            let product = factor(offsets[0]).wrapping_mul(factor(offsets[1])) & mask;
            let mut up = 0;
            for e in 0..all {
                let [z_c, z_s] = [z(0, e), z(1, e)];
                assert_eq!((z_c + z_s) & mask, product);
                let results = [z_c >> shift, z_s.div_ceil(1 << shift)].map(|r| r & ((1 << out) - 1));
                assert_eq!([made[0].1[e], made[1].1[e]], results);
                up += usize::from((results[0] + results[1]) % (1 << out) != (product >> shift) % (1 << out));
            }
            // It is rounded up as often as it is more than a multiple: no bias.
            assert_eq!(up << shift, all * (product as usize % (1 << shift)));
        }
    }
}

/// Every value and every sharing of it, through the whole protocol, against plain integers: within one unit, and
/// exact on multiples.
#[test]
fn all_inputs_of_small_rings_agree_with_plain_integers() {
    for (out_bits, shift, offsets) in [(3, 1, [0, 0]), (3, 2, [1, 1]), (4, 2, [2, -3]), (5, 4, [0, 7])] {
        let params = params(out_bits, shift, offsets);
        params.0.check().unwrap();
        let ring = params.0.ring_bits();
        let mask = (1u64 << ring) - 1;
        let mut shares: [Vec<u64>; 2] = Default::default();
        let mut values = Vec::new();
        for mut from in 0..1u64 << (2 * ring) {
            let [x, x_c] = std::array::from_fn(|_| take(&mut from, ring));
            values.push(signed(x, ring));
            shares[0].push(x_c);
            shares[1].push(x.wrapping_sub(x_c) & mask);
        }
        let one = |role: Role, chan: &mut Channel, x: &[u64]| {
            let mut party = Party::new(role, InsecureTestDealer::new(3, role));
            let square = Square::prepare(&mut party, chan, values.len(), params).unwrap();
            let result = square.run(chan, x).unwrap();
            chan.flush().unwrap();
            result
        };
        let (mut a, mut b) = memory_pair();
        let (client, server) = std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, &mut b, &shares[1]));
            (one(Role::Client, &mut a, &shares[0]), server.join().unwrap())
        });
        let unit = 1i64 << shift;
        let mut seen = std::collections::BTreeSet::new();
        for ((&x, c), s) in values.iter().zip(client).zip(server) {
            let product = (x + offsets[0]) * (x + offsets[1]);
            let (low, high) = (product.div_euclid(unit), -(-product).div_euclid(unit));
            let off = signed(c.wrapping_add(s).wrapping_sub(low as u64) & ((1 << out_bits) - 1), out_bits);
            assert!((0..=high - low).contains(&off), "{x}, {offsets:?}: {off}");
            seen.insert(off);
        }
        assert!(seen.into_iter().eq(0..=1), "both roundings come up");
    }
}
