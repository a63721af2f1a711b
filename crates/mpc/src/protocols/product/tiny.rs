//! The product on rings of three to five bits: all inputs against plain integers, and all randomness, so that what
//! each party sees can be counted.
//!
//! *Functionality.* Of a and b, shared mod 2^L, the client gets a uniform z_c mod 2^L and the server z_s = a·b − z_c;
//! the client's result is ⌊z_c / 2^s⌋, the server's ⌈z_s / 2^s⌉.
//!
//! A party's view is what it chose, what it drew and what it received. A simulator that has the party's input and its
//! z must make it. So, for every input of the other party: each view must come up equally often, and the other
//! party's z must follow from this one's. Both are counted, for the two parts that have nothing but α, β and γ in
//! common:
//!
//! - *offline*: an OT after the other, and all of a small ring together. The client's view must be uniform whatever
//!   the server draws, and so must its γ. (The server receives nothing there: of an OT's choice its sender learns
//!   nothing, by what an OT is.)
//! - *online*: all triples, both parties' views.

use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_wire::memory_pair;

use super::*;
use crate::party::Pads;
use crate::protocols::cross::{DRAWN, Group};
use crate::protocols::opening::tests::by_turns;
use crate::reference::signed;

/// How often each of `views` comes up, of so many that there may be.
fn counts(views: impl Iterator<Item = usize>, of: usize) -> Vec<u32> {
    let mut counts = vec![0; of];
    views.for_each(|view| counts[view] += 1);
    counts
}

/// All come up equally often.
#[track_caller]
fn assert_uniform(views: impl Iterator<Item = usize>, of: usize, what: &str) {
    let counts = counts(views, of);
    let odd = counts.iter().position(|&count| count != counts[0]);
    assert!(odd.is_none() && counts[0] > 0, "{what}: view {odd:?} is not as frequent as view 0");
}

/// Numbers of these widths, packed into one, the first lowest.
fn packed(parts: &[(u64, u32)]) -> usize {
    let pack = |(all, at): (u64, u32), &(part, bits): &(u64, u32)| {
        assert!(part >> bits == 0, "{part} in {bits} bits");
        (all | part << at, at + bits)
    };
    parts.iter().fold((0, 0), pack).0 as usize
}

/// Takes `bits` bits off a number.
fn take(from: &mut u64, bits: u32) -> u64 {
    let low = *from & ((1 << bits) - 1);
    *from >>= bits;
    low
}

/// Parameters whose ring has `out` + `shift` bits: smaller ones than `check` takes, too.
fn params(out_bits: u32, shift: u32) -> ProductParams {
    ProductParams { out_bits, shift, offsets: [0; 2] }
}

/// What one half of a triple's preparation makes of some elements, by the protocol's own code: corrections by bit,
/// and both parties' γ.
struct Half {
    chosen: Vec<u64>,
    drawn: Vec<u64>,
    corrections: Vec<Vec<u64>>,
    gamma_client: Vec<u64>,
    gamma_server: Vec<u64>,
}

/// `pads` are those of each bit's OTs, both of each, and `choices` the client's. What the server draws begins as
/// `drawn`.
fn half(
    ring: u32,
    bits: Range<u32>,
    pads: &[[Vec<jaguar_ot::Block>; 2]],
    choices: &[Vec<bool>],
    drawn: Vec<u64>,
) -> Half {
    let count = drawn.len();
    let mask = u64::MAX >> (64 - ring);
    let words = || vec![0u64; count];
    let mut made = Half {
        chosen: words(),
        drawn,
        corrections: Vec::new(),
        gamma_client: words(),
        gamma_server: words(),
    };
    for ((bit, [zero, one]), choices) in bits.zip(pads).zip(choices) {
        let cross = Cross { ring, doubled: 0 };
        let mut corrections = words();
        let server =
            Group { own: &mut made.drawn, share: &mut made.gamma_server, corrections: &mut corrections };
        server.absorb(&Pads::Sender(zero, one), cross, bit);
        let own = zero.iter().zip(one).zip(choices);
        let own: Vec<jaguar_ot::Block> = own.map(|((z, o), &choice)| if choice { *o } else { *z }).collect();
        let mut sent = corrections.clone();
        let client = Group { own: &mut made.chosen, share: &mut made.gamma_client, corrections: &mut sent };
        client.absorb(&Pads::Receiver(&own, choices), cross, bit);
        made.corrections.push(corrections);
    }
    for gamma in [&mut made.gamma_client, &mut made.gamma_server] {
        gamma.iter_mut().for_each(|gamma| *gamma &= mask);
    }
    made
}

/// One OT: all pads, choices and factors. The client's view is its choice, its pad and the correction.
#[test]
fn one_ot_tells_the_client_nothing_of_the_factor() {
    for ring in 3..=5 {
        // (The factor is drawn in the OT of bit 0: see the next test.)
        for bit in 1..ring {
            let width = ring - bit;
            let all = 1u64 << (2 * width + 1);
            for factor in 0..1u64 << ring {
                let mut pads = [Vec::new(), Vec::new()];
                let mut choices = Vec::new();
                for mut random in 0..all {
                    pads.iter_mut().for_each(|pads| {
                        pads.push(jaguar_ot::Block(take(&mut random, width).into()));
                    });
                    choices.push(random == 1);
                }
                let drawn = vec![factor; all as usize];
                let made = half(ring, bit..bit + 1, &[pads.clone()], &[choices.clone()], drawn);
                let views = (0..all as usize).map(|e| {
                    let choice = choices[e];
                    let own = pads[usize::from(choice)][e].0 as u64;
                    let sum = made.gamma_client[e].wrapping_add(made.gamma_server[e]) % (1 << ring);
                    assert_eq!(sum, (u64::from(choice) << bit).wrapping_mul(factor) % (1 << ring));
                    packed(&[(choice.into(), 1), (own, width), (made.corrections[0][e], width)])
                });
                assert_uniform(views, all as usize, &format!("bit {bit} of {ring}, factor {factor}"));
            }
        }
    }
}

/// All OTs of one half in a ring of three bits, and the drawing of the server's factor: all pads and choices. By
/// factor that was drawn: the client's view is uniform, and so is its share, for each of its own factors.
#[test]
fn a_half_of_a_triple_tells_the_client_nothing_of_the_factor() {
    const RING: u32 = 3;
    let random = 3 * RING + 2 * (1..=RING).sum::<u32>();
    let all = 1usize << random;
    let mut pads: Vec<[Vec<jaguar_ot::Block>; 2]> = (0..RING).map(|_| Default::default()).collect();
    let mut choices: Vec<Vec<bool>> = vec![Vec::new(); RING as usize];
    for mut random in 0..all as u64 {
        for (bit, (pads, choices)) in pads.iter_mut().zip(&mut choices).enumerate() {
            for pads in pads {
                let low = take(&mut random, RING - bit as u32);
                // The upper half, of which the server's factor comes.
                let high = if bit == 0 { take(&mut random, RING) } else { 0 };
                pads.push(jaguar_ot::Block(u128::from(low) | u128::from(high) << DRAWN));
            }
            choices.push(take(&mut random, 1) == 1);
        }
    }
    let made = half(RING, 0..RING, &pads, &choices, vec![0; all]);
    let factors = 1usize << RING;
    let (mut views, mut shares) = (vec![Vec::new(); factors], vec![Vec::new(); factors * factors]);
    for e in 0..all {
        let (chosen, drawn) = (made.chosen[e], made.drawn[e]);
        let gamma = made.gamma_client[e];
        assert_eq!(gamma.wrapping_add(made.gamma_server[e]) % 8, chosen * drawn % 8);
        let mut view = Vec::new();
        for bit in 0..RING as usize {
            let width = RING - bit as u32;
            let choice = choices[bit][e];
            let own = pads[bit][usize::from(choice)][e].0;
            view.extend(
                [(choice.into(), 1), (own as u64, width), (made.corrections[bit][e], width)]
                    .map(|(part, bits)| (part & ((1 << bits) - 1), bits)),
            );
            if bit == 0 {
                view.push(((own >> DRAWN) as u64, RING));
            }
        }
        views[drawn as usize].push(packed(&view));
        shares[drawn as usize * factors + chosen as usize].push(gamma as usize);
    }
    for (drawn, views) in views.into_iter().enumerate() {
        assert_uniform(views.into_iter(), all / factors, &format!("factor {drawn}"));
    }
    for (pair, shares) in shares.into_iter().enumerate() {
        assert_uniform(shares.into_iter(), factors, &format!("the client's share, factors {pair}"));
    }
}

/// Runs both parties on these inputs, with triples as given: what each sent, and the results.
fn run(
    params: ProductParams,
    triples: [[Vec<u64>; 3]; 2],
    pairs: &[Vec<u64>; 2],
) -> [(Vec<u64>, Vec<u64>); 2] {
    let roles = [Role::Client, Role::Server];
    let [mut client, mut server] = [0, 1].map(|i| {
        let [alpha, beta, gamma] = triples[i].clone().map(Zeroizing::new);
        let triples = Triples { alpha, beta, gamma };
        let opening = Opening { role: roles[i], bits: params.ring_bits(), values: Vec::new() };
        Run { params, triples, opening }
    });
    client.start(&pairs[0]);
    server.start(&pairs[1]);
    let sent = [client.opening.values.clone(), server.opening.values.clone()];
    by_turns(&mut client, &mut server);
    let [of_client, of_server] = sent;
    [(of_client, client.finish()), (of_server, server.finish())]
}

/// All triples with all shares of them, in a ring of three bits: element by element the shares of α, of β, and of γ.
fn all_triples() -> [[Vec<u64>; 3]; 2] {
    let mut triples: [[Vec<u64>; 3]; 2] = Default::default();
    for mut random in 0..1u64 << 15 {
        let [alpha_c, alpha_s, beta_c, beta_s, gamma_c] = std::array::from_fn(|_| take(&mut random, 3));
        let gamma = (alpha_c + alpha_s) * (beta_c + beta_s);
        let gamma_s = gamma.wrapping_sub(gamma_c) % 8;
        for (triples, share) in
            triples.iter_mut().zip([[alpha_c, beta_c, gamma_c], [alpha_s, beta_s, gamma_s]])
        {
            triples.iter_mut().zip(share).for_each(|(all, one)| all.push(one));
        }
    }
    triples
}

/// Online: for all of one party's inputs each view of the other one comes up exactly once, and the parties' z are
/// shares of a·b.
#[test]
fn online_neither_learns_anything_of_the_others_input() {
    let triples = all_triples();
    let all = 1usize << 15;
    let mask = 7;
    for (out, shift) in [(1, 2), (2, 1)] {
        for inputs in 0..1u64 << 12 {
            // All of the one party's, and some of the other one's, for both.
            let mut from = inputs;
            let [a_c, b_c, a_s, b_s] = std::array::from_fn(|_| take(&mut from, 3));
            let few = |a: u64, b: u64| (a, b) == (0, 0) || (a, b) == (5, 3);
            if !(few(a_c, b_c) || few(a_s, b_s)) {
                continue;
            }
            let repeated = |a: u64, b: u64| [a, b].repeat(all);
            let made = run(params(out, shift), triples.clone(), &[repeated(a_c, b_c), repeated(a_s, b_s)]);
            let sent = |party: usize, e: usize| [made[party].0[2 * e], made[party].0[2 * e + 1]];
            // What a party has of the unrounded product, from its view alone.
            let z = |party: usize, e: usize| {
                let [mine, theirs] = [sent(party, e), sent(1 - party, e)];
                let [d, f] = [0, 1].map(|i| (mine[i] + theirs[i]) & mask);
                let [alpha, beta, gamma] = [0, 1, 2].map(|i| triples[party][i][e]);
                let both = if party == 1 { d * f } else { 0 };
                (both + d * beta + f * alpha + gamma) & mask
            };
            for party in [0, 1] {
                let view = |e: usize| {
                    let [alpha, beta, gamma] = [0, 1, 2].map(|i| (triples[party][i][e], 3));
                    let [d, f] = sent(1 - party, e).map(|part| (part, 3));
                    packed(&[alpha, beta, gamma, d, f])
                };
                let what = format!("party {party}, inputs {:?}", [a_c, b_c, a_s, b_s]);
                assert_uniform((0..all).map(view), all, &what);
            }
            let product = ((a_c + a_s) * (b_c + b_s)) & mask;
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
    for (out_bits, shift) in [(3, 1), (3, 2), (4, 1)] {
        let params = params(out_bits, shift);
        params.check().unwrap();
        let ring = params.ring_bits();
        let mask = (1u64 << ring) - 1;
        let mut pairs: [Vec<u64>; 2] = Default::default();
        let mut values = Vec::new();
        for mut from in 0..1u64 << (4 * ring) {
            let [a, b, a_c, b_c] = std::array::from_fn(|_| take(&mut from, ring));
            values.push([a, b].map(|value| signed(value, ring)));
            pairs[0].extend([a_c, b_c]);
            pairs[1].extend([a.wrapping_sub(a_c) & mask, b.wrapping_sub(b_c) & mask]);
        }
        let one = |role: Role, chan: &mut Channel, pairs: &[u64]| {
            let mut party = Party::new(role, InsecureTestDealer::new(3, role));
            let product = Product::prepare(&mut party, chan, values.len(), params).unwrap();
            let result = product.run(chan, pairs).unwrap();
            chan.flush().unwrap();
            result
        };
        let (mut a, mut b) = memory_pair();
        let (client, server) = std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, &mut b, &pairs[1]));
            (one(Role::Client, &mut a, &pairs[0]), server.join().unwrap())
        });
        let unit = 1i64 << shift;
        let mut seen = std::collections::BTreeSet::new();
        for ((&[a, b], c), s) in values.iter().zip(client).zip(server) {
            let (low, high) = ((a * b).div_euclid(unit), -(-a * b).div_euclid(unit));
            let off = signed(c.wrapping_add(s).wrapping_sub(low as u64) & ((1 << out_bits) - 1), out_bits);
            assert!((0..=high - low).contains(&off), "{a} · {b}: {off}");
            seen.insert(off);
        }
        assert!(seen.into_iter().eq(0..=1), "both roundings come up");
    }
}
