//! Small rings and matrices: all randomness of what is masked, so that what each party sees can be counted; the triple
//! against plain integers; and the attack that an encryption of zero prevents, which succeeds without it.
//!
//! *Functionality.* Of X and Y, shared mod 2^L, the client gets a uniform z_c mod 2^L and the server z_s = X·Y − z_c
//! (for a triple without an error); the client's result is ⌊z_c / 2^s⌋, the server's ⌈z_s / 2^s⌉.

use jaguar_ring::he::rns::{Ciphertext, JointKeys, SecretKey, Values};
use jaguar_wire::memory_pair;

use super::keys::OfServer;
use super::rows::{RowProductParams, Rows};
use super::squares::SquaredRowsParams;
use super::tiling::{DIGITS, MORE, RINGS, SECRETS, Tiling};
use super::triple::{all, client_share, hide, products, server_share};
use super::twice::{Products, RowsTwiceParams, Squares, State};
use super::*;
use crate::protocols::opening::tests::by_turns;

/// All come up equally often, of so many that there may be.
#[track_caller]
fn assert_uniform(values: impl Iterator<Item = usize>, of: usize, what: &str) {
    assert!(are_uniform(values, of), "{what}");
}

fn are_uniform(values: impl Iterator<Item = usize>, of: usize) -> bool {
    let mut counts = vec![0u32; of];
    values.for_each(|value| counts[value] += 1);
    counts[0] > 0 && counts.iter().all(|&count| count == counts[0])
}

fn sizes([batch, rows, inner, columns]: [usize; 4]) -> Matrices {
    Matrices { batch, rows, inner, columns, transposed: [false; 2] }
}

/// Takes `bits` bits off a number.
fn take(from: &mut usize, bits: u32) -> u64 {
    let low = *from & ((1 << bits) - 1);
    *from >>= bits;
    low as u64
}

/// Online, of a row of two by a column of two modulo four: all triples with all shares of them. For all inputs that are
/// tried each view of either party comes up exactly once, and the parties' z are shares of X·Y.
#[test]
fn online_neither_learns_anything_of_the_others_input() {
    const L: u32 = 2;
    let all = 1usize << (9 * L);
    let of = sizes([all, 1, 2, 1]);
    let params = MatrixProductParams { out_bits: 1, shift: 1, matrices: of };
    let mut drawn: [[Vec<u64>; 3]; 2] = Default::default();
    for mut random in 0..all {
        let [a, b] = [0, 1].map(|_| [0, 1].map(|_| [0, 1].map(|_| take(&mut random, L))));
        let sum = |x: [[u64; 2]; 2], i: usize| x[0][i] + x[1][i];
        let c = [take(&mut random, L)];
        let product = (0..2).map(|i| sum(a, i) * sum(b, i)).sum::<u64>();
        for (party, drawn) in drawn.iter_mut().enumerate() {
            drawn[0].extend(a[party]);
            drawn[1].extend(b[party]);
            drawn[2].push(if party == 0 { c[0] } else { product.wrapping_sub(c[0]) % 4 });
        }
    }
    let tried = [[0, 0, 0, 0], [1, 2, 3, 0], [3, 3, 3, 3], [2, 0, 1, 1], [0, 1, 0, 2]];
    for x in tried {
        for y in tried {
            let inputs = [x, y];
            let [mut client, mut server] = [0, 1].map(|party| {
                let mut run = with_triple(params, party, &drawn[party]);
                // The first factor's values, then the second's.
                let [own, others] = [&inputs[party][..2], &inputs[party][2..]].map(|part| part.repeat(all));
                run.start(&[own, others].concat());
                run
            });
            let sent = [client.opening.values.clone(), server.opening.values.clone()];
            by_turns(&mut client, &mut server);
            for party in [0, 1] {
                let view = |e: usize| {
                    let [a, b, c] = &drawn[party];
                    let theirs = &sent[1 - party];
                    let second = 2 * all;
                    let parts = [a[2 * e], a[2 * e + 1], b[2 * e], b[2 * e + 1], c[e]];
                    let seen = [0, 1].map(|i| [theirs[2 * e + i], theirs[second + 2 * e + i]]);
                    let parts = parts.into_iter().chain(seen.into_iter().flatten());
                    parts.fold(0, |view, part| view << L | part as usize)
                };
                assert_uniform((0..all).map(view), all, &format!("party {party}, inputs {inputs:?}"));
            }
            let product = (0..2).map(|i| (x[i] + y[i]) * (x[i + 2] + y[i + 2])).sum::<u64>() % 4;
            let (c, s) = (client.finish(), server.finish());
            // Rounded up as often as it is odd: no bias.
            let up = c.iter().zip(&s).filter(|(c, s)| (*c + *s) % 2 != product / 2).count();
            assert_eq!(2 * up, all * (product as usize % 2));
        }
    }
}

/// A run of party 0, the client, or 1 with this triple.
fn with_triple(params: MatrixProductParams, party: usize, drawn: &[Vec<u64>; 3]) -> Run {
    let role = [Role::Client, Role::Server][party];
    let [a, b, c] = drawn.clone().map(Zeroizing::new);
    let opening = Opening { role, bits: params.ring_bits(), values: Vec::new() };
    let counts = params.matrices.counts().expect("small");
    Run { params, counts, material: Material::Made(Triple { a, b, c, ..Triple::default() }), opening }
}

/// Online, of a row of two by its number modulo four: all triples with all shares of them, and a constant that is added to the number.
#[test]
fn online_neither_learns_anything_of_the_others_row() {
    const L: u32 = 2;
    let all = 1usize << (8 * L);
    let product = ProductParams { out_bits: 1, shift: 1, offsets: [0, 3] };
    let params = RowProductParams { product, rows: all, columns: 2 };
    let mut drawn: [[Vec<u64>; 3]; 2] = Default::default();
    for mut random in 0..all {
        let number = [0, 1].map(|_| take(&mut random, L));
        let row = [0, 1].map(|_| [0, 1].map(|_| take(&mut random, L)));
        let client = [0, 1].map(|_| take(&mut random, L));
        for (party, drawn) in drawn.iter_mut().enumerate() {
            drawn[0].push(number[party]);
            drawn[1].extend(row[party]);
            drawn[2].extend([0, 1].map(|j| {
                let made = (number[0] + number[1]) * (row[0][j] + row[1][j]);
                if party == 0 { client[j] } else { made.wrapping_sub(client[j]) % 4 }
            }));
        }
    }
    // The number, and the row.
    let tried = [[0, 0, 0], [1, 2, 3], [3, 3, 3], [2, 0, 1]];
    for x in tried {
        for y in tried {
            let inputs = [x, y];
            let [mut client, mut server] = [0, 1].map(|party| {
                let mut rows = Rows { run: with_triple(params.matrices(), party, &drawn[party]), params };
                let [number, first, second] = inputs[party];
                rows.start(&[first, number, second, number].repeat(all));
                rows
            });
            let sent = [client.run.opening.values.clone(), server.run.opening.values.clone()];
            by_turns(&mut client, &mut server);
            for party in [0, 1] {
                let view = |e: usize| {
                    let [a, b, c] = &drawn[party];
                    let theirs = &sent[1 - party];
                    let own = [a[e], b[2 * e], b[2 * e + 1], c[2 * e], c[2 * e + 1]];
                    let seen = [theirs[e], theirs[all + 2 * e], theirs[all + 2 * e + 1]];
                    own.into_iter().chain(seen).fold(0, |view, part| view << L | part as usize)
                };
                assert_uniform((0..all).map(view), all, &format!("party {party}, inputs {inputs:?}"));
            }
            let (c, s) = (client.finish(), server.finish());
            for j in 0..2 {
                let made = (x[0] + y[0] + 3) * (x[j + 1] + y[j + 1]) % 4;
                let of = |shares: &[u64]| shares.iter().skip(j).step_by(2).copied().collect::<Vec<u64>>();
                let up = of(&c).iter().zip(of(&s)).filter(|(c, s)| (*c + s) % 2 != made / 2).count();
                assert_eq!(2 * up, all * (made as usize % 2));
            }
        }
    }
}

/// Online, of a row of two by itself modulo four: all pairs with all shares of them, of either kind. By ciphertexts the client's share of γ is
/// uniform; value by value its lowest bit is that of its own squares.
#[test]
fn online_neither_learns_anything_of_the_others_squares() {
    const L: u32 = 2;
    for encrypted in [true, false] {
        let (free, step) = if encrypted { (L, 1) } else { (L - 1, 2) };
        let all = 1usize << (4 * L + free);
        let params = SquaredRowsParams { out_bits: 1, shift: 1, rows: all, columns: 2 };
        let mut drawn: [[Vec<u64>; 2]; 2] = Default::default();
        for mut random in 0..all {
            let alpha = [0, 1].map(|_| [0, 1].map(|_| take(&mut random, L)));
            let gamma = (0..2).map(|i| (alpha[0][i] + alpha[1][i]).pow(2)).sum::<u64>();
            let own = if encrypted { 0 } else { alpha[0].iter().map(|a| a * a).sum() };
            let client = (own + step * take(&mut random, free)) % 4;
            for (party, drawn) in drawn.iter_mut().enumerate() {
                drawn[0].extend(alpha[party]);
                drawn[1].push(if party == 0 { client } else { gamma.wrapping_sub(client) % 4 });
            }
        }
        let tried = [[0, 0], [1, 2], [3, 3], [2, 1], [0, 3]];
        for x in tried {
            for y in tried {
                let inputs = [x, y];
                let [mut client, mut server] = [0, 1].map(|party| {
                    let opening =
                        Opening { role: [Role::Client, Role::Server][party], bits: L, values: Vec::new() };
                    let [a, c] = drawn[party].clone().map(Zeroizing::new);
                    let material = Material::Made(Triple { a, c, ..Triple::default() });
                    let mut run = squares::Run { params, material, opening };
                    run.start(&inputs[party].repeat(all));
                    run
                });
                let sent = [client.opening.values.clone(), server.opening.values.clone()];
                by_turns(&mut client, &mut server);
                for party in [0, 1] {
                    let view = |e: usize| {
                        let ([a, c], theirs) = (&drawn[party], &sent[1 - party]);
                        let seen = [a[2 * e], a[2 * e + 1], theirs[2 * e], theirs[2 * e + 1]];
                        let view = seen.into_iter().fold(0, |view, part| view << L | part as usize);
                        view << free | (c[e] >> (L - free)) as usize
                    };
                    let what = format!("party {party}, inputs {inputs:?}, encrypted: {encrypted}");
                    assert_uniform((0..all).map(view), all, &what);
                }
                let squares = (0..2).map(|i| (x[i] + y[i]).pow(2)).sum::<u64>() % 4;
                let (c, s) = (client.finish(), server.finish());
                let up = c.iter().zip(&s).filter(|(c, s)| (*c + *s) % 2 != squares / 2).count();
                assert_eq!(2 * up, all * (squares as usize % 2));
            }
        }
    }
}

/// Online, of rows by themselves and then by a number of each, of two values modulo four, and of one modulo eight that is
/// multiplied modulo four: all randomness of both layers. For all rows and numbers that are tried each party's view of both
/// comes up exactly once, and results are those of the reference. If another row were opened by the same mask, it would not
/// be so.
#[test]
fn online_neither_learns_anything_of_rows_that_are_taken_twice() {
    // M, modulo what numbers are.
    const M: u32 = 2;
    for (columns, ring) in [(2, 2), (1, 3)] {
        let all = 1usize << (columns as u32 * (2 * ring + M) + 2 * M + ring);
        let product = ProductParams { out_bits: 1, shift: M - 1, offsets: [1, 3] };
        let product = RowProductParams { product, rows: all, columns };
        let squares = SquaredRowsParams { out_bits: 1, shift: ring - 1, rows: all, columns };
        let params = RowsTwiceParams { squares, product };
        // Of each party: α, ν, γ, δ.
        let mut drawn: [[Vec<u64>; 4]; 2] = Default::default();
        for mut random in 0..all {
            let mut row = |bits: u32| (0..columns).map(|_| take(&mut random, bits)).collect::<Vec<u64>>();
            let (alpha, delta) = ([row(ring), row(ring)], row(M));
            let number = [0, 1].map(|_| take(&mut random, M));
            let gamma = take(&mut random, ring);
            assert_eq!(random, 0);
            let sum = |j: usize| alpha[0][j] + alpha[1][j];
            for (party, drawn) in drawn.iter_mut().enumerate() {
                drawn[0].extend(&alpha[party]);
                drawn[1].push(number[party]);
                let squares = (0..columns).map(|j| sum(j).pow(2)).sum::<u64>();
                drawn[2].push(if party == 0 { gamma } else { squares.wrapping_sub(gamma) });
                let made = |j: usize| (number[0] + number[1]) * sum(j);
                let share = |j: usize| if party == 0 { delta[j] } else { made(j).wrapping_sub(delta[j]) };
                drawn[3].extend((0..columns).map(share));
            }
        }
        // Rows, and their number.
        for (x, y) in [([0, 0, 0], [0, 0, 0]), ([1, 2, 3], [3, 3, 1]), ([7, 0, 2], [5, 1, 0])] {
            let inputs = [x, y].map(|x: [u64; 3]| x.map(|x| x % (1 << ring)));
            let runs = |party: usize| {
                let role = [Role::Client, Role::Server][party];
                let [alpha, a, gamma, c] = drawn[party].clone().map(Zeroizing::new);
                let common = Arc::new(Mutex::new(State::Made { alpha, squares: gamma }));
                let opening = |bits| Opening { role, bits, values: Vec::new() };
                let mut first = Squares { params, opening: opening(ring), common: Arc::clone(&common) };
                first.start(&inputs[party][..columns].repeat(all));
                let material = Material::Made(Triple { a, c, ..Triple::default() });
                (first, Products { params, material, opening: opening(M), common })
            };
            let ([mut client, mut server], [mut behind, mut behind_server]) = {
                let [(a, b), (c, d)] = [runs(0), runs(1)];
                ([a, c], [b, d])
            };
            let rows = [client.opening.values.clone(), server.opening.values.clone()];
            by_turns(&mut client, &mut server);
            let squares = [client.finish(), server.finish()];
            for (party, run) in [&mut behind, &mut behind_server].into_iter().enumerate() {
                // (Of the values nothing is read.)
                run.start(&[9, inputs[party][2]].repeat(all * columns));
            }
            let numbers = [behind.opening.values.clone(), behind_server.opening.values.clone()];
            by_turns(&mut behind, &mut behind_server);
            let products = [behind.finish(), behind_server.finish()];
            for party in [0, 1] {
                let own = &drawn[party];
                let row = |of: &[u64], e: usize, bits: u32| {
                    let row = &of[columns * e..][..columns];
                    row.iter().fold(0, |view, x| view << bits | (x % (1 << bits)) as usize)
                };
                let one = |of: &[u64], e: usize, bits: u32| (of[e] % (1 << bits)) as usize;
                let seen = |theirs: &[u64], e: usize| {
                    let row_bits = columns as u32;
                    let view = row(&own[0], e, ring) << M | one(&own[1], e, M);
                    let view = view << ring | one(&own[2], e, ring);
                    let view = view << (row_bits * M) | row(&own[3], e, M);
                    let view = view << (row_bits * ring) | row(theirs, e, ring);
                    view << M | one(&numbers[1 - party], e, M)
                };
                let (theirs, what) =
                    (&rows[1 - party], format!("party {party}, inputs {inputs:?}, {columns}"));
                assert_uniform((0..all).map(|e| seen(theirs, e)), all, &what);
                // Another row by the same mask: one opening tells the other.
                let again = |e: usize| {
                    let other = theirs[columns * e].wrapping_add(1) % (1 << ring);
                    row(&own[0], e, ring) << (2 * ring) | (theirs[columns * e] << ring | other) as usize
                };
                let views = 1 << ((columns as u32 + 2) * ring);
                assert!(!are_uniform((0..all).map(again), views), "{what}");
            }
            let sum = |j: usize| inputs[0][j] + inputs[1][j];
            let exact = (0..columns).map(|j| sum(j).pow(2)).sum::<u64>() % (1 << ring);
            let ups = |[c, s]: [Vec<u64>; 2], below: u64, exact: u64, low: u64| {
                let up = c.iter().zip(&s).filter(|(c, s)| (*c + *s) % 2 != below).count() as u64;
                assert_eq!(up << low, c.len() as u64 * exact);
            };
            let low = ring - 1;
            ups(squares, (exact >> low) % 2, exact % (1 << low), u64::from(low));
            for j in 0..columns {
                let made = (sum(j) + 1) * (sum(2) + 3) % (1 << M);
                let of = |shares: &[u64]| shares.iter().skip(j).step_by(columns).copied().collect();
                ups(products.each_ref().map(|of_party| of(of_party)), made / 2, made % 2, 1);
            }
        }
    }
}

/// γ is Σ α² but for less than two units of what shares are made of, of random halves and of the largest.
#[test]
fn squared_rows_are_ones_but_for_their_last_places() {
    for (out_bits, shift) in [(20, 14), (28, 20), (16, 2)] {
        for (rows, columns) in [(1, 5000), (197, 192), (23, 33), (5, 4096)] {
            for extreme in [false, true] {
                let (ring, made) = (out_bits + shift, out_bits + shift.min(SLACK));
                let layout = Layout::of_terms(&[[rows, 1, columns, 1]], ring, made).unwrap();
                let of = sizes([rows, 1, columns, 1]);
                let mask = u64::MAX >> (64 - ring);
                let one = |role: Role, chan: &mut Channel| {
                    let tools = Tools::new(Cpu::detect(), layout.clone()).unwrap();
                    let (mut prg, keys) = (Prg::new([17 + role as u8; 32]), Mutex::default());
                    let alone = |a: Words| {
                        let mut c = Zeroizing::new(vec![0; rows]);
                        add_products(&of, &a, &a, &mut c);
                        Triple { a, c, ..Triple::default() }
                    };
                    if role == Role::Client {
                        let of_factors = |mut factors: Vec<Words>| alone(factors.pop().unwrap());
                        let mut sent = client(tools, of_factors, &keys, chan, &mut prg).unwrap();
                        return sent.receive(&of, chan).unwrap();
                    }
                    let mut a = Zeroizing::new(vec![0; rows * columns]);
                    prg.fill_words(&mut a, ring);
                    if extreme {
                        // (Doubled, the largest numbers are those of a quarter.)
                        let most = [1 << (ring - 2), mask - (1 << (ring - 2)), 0];
                        a.iter_mut().enumerate().for_each(|(i, word)| *word = most[i % 3]);
                    }
                    let mut triple = alone(a);
                    let factors = [squares::doubled(&triple.a, ring)];
                    server(&tools, &of, &mut triple, &factors, &keys, chan, &mut prg).unwrap();
                    triple
                };
                let (mut a, mut b) = memory_pair();
                let [client, server] = std::thread::scope(|scope| {
                    let server = scope.spawn(|| one(Role::Server, &mut b));
                    [one(Role::Client, &mut a), server.join().unwrap()]
                });
                let unit = 1i64 << (shift - shift.min(SLACK));
                for row in 0..rows {
                    let alpha =
                        (row * columns..).take(columns).map(|i| client.a[i].wrapping_add(server.a[i]));
                    let exact = alpha.fold(0u64, |sum, a| sum.wrapping_add(a.wrapping_mul(a)));
                    let error = client.c[row].wrapping_add(server.c[row]).wrapping_sub(exact) << (64 - ring);
                    let error = error as i64 >> (64 - ring);
                    assert!(error.abs() < 2 * unit, "{error} of units of {unit}, {rows} of {columns}");
                }
            }
        }
    }
}

/// What hides a b half: all phases of a result and all numbers that both know in its place, in shares of three bits.
/// For every phase the server's shares come up equally often, and for every product that the client adds the client's
/// do; and shares add up to one of the two numbers next to the phase.
#[test]
fn shares_of_a_half_are_uniform_and_neighbours() {
    const MADE: u32 = 3;
    let bits = MADE + MORE;
    let unit = 1u64 << MORE;
    for phase in 0..1u64 << bits {
        let of_server = |shown| server_share(phase, shown, bits) % (1 << MADE);
        assert_uniform((0..1u64 << bits).map(|shown| of_server(shown) as usize), 1 << MADE, "the server's");
        for added in (0..1u64 << bits).step_by(37) {
            let whole = (phase + added) % (1 << bits);
            let near = [whole / unit, whole.div_ceil(unit)].map(|near| near % (1 << MADE));
            let of_client = |shown| client_share(shown, added, bits);
            assert_uniform(
                (0..1u64 << bits).map(|shown| of_client(shown) as usize),
                1 << MADE,
                "the client's",
            );
            let mut above = 0;
            for shown in 0..1u64 << bits {
                let sum = (of_client(shown) + of_server(shown)) % (1 << MADE);
                assert!(near.contains(&sum), "{phase} + {added}: {sum} for {whole} / {unit}");
                above += u64::from(sum != near[0]);
            }
            // No bias: the upper neighbour as often as the phase is beyond the lower.
            assert_eq!(above, (whole % unit) << MADE);
        }
    }
}

/// Both parties' triple, of which the server's numbers are the extremes or random.
fn both(params: MatrixProductParams, layout: &Layout, extreme: bool) -> [Triple; 2] {
    let (mut a, mut b) = memory_pair();
    let of = &params.matrices;
    let one = |role: Role, chan: &mut Channel| {
        let tools = Tools::new(Cpu::detect(), layout.clone()).unwrap();
        let (mut prg, keys) = (Prg::new([17 + role as u8; 32]), Mutex::default());
        if role == Role::Client {
            let of_factors = |factors: Vec<Words>| Triple::of_factors(of, factors);
            return client(tools, of_factors, &keys, chan, &mut prg).unwrap().receive(of, chan).unwrap();
        }
        let mut triple = Triple::drawn(of, of.counts().unwrap(), params.ring_bits(), &mut prg);
        if extreme {
            let Triple { mut a, mut b, .. } = triple;
            for (i, word) in a.iter_mut().chain(b.iter_mut()).enumerate() {
                *word = [1 << (params.ring_bits() - 1), params.mask(), 0][i % 3];
            }
            triple = Triple::of(of, a, b);
        }
        let factors = triple.factors(of);
        server(&tools, of, &mut triple, &factors, &keys, chan, &mut prg).unwrap();
        triple
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| one(Role::Server, &mut b));
        [one(Role::Client, &mut a), server.join().unwrap()]
    })
}

/// C is A·B but for less than two units of what shares are made of for each term that is packed by itself; and mostly
/// less than one. In rings of all kinds:
/// of either length, with digits of both sizes, of packs alone and of several with one a half.
#[test]
fn a_triple_is_one_but_for_its_last_places() {
    let kinds =
        RINGS.iter().flat_map(|ring| DIGITS.map(|digits| SECRETS.map(|secrets| (*ring, (digits, secrets)))));
    let kinds: Vec<_> = kinds.flatten().collect();
    let mut tried = vec![0; kinds.len()];
    let mut turn = 0;
    for (out_bits, shift) in [(20, 14), (27, 20), (16, 2), (28, 28), (27, 27), (22, 9)] {
        // (So that each meets other matrices.)
        turn += 1;
        // (Of vectors both terms are added up, and of the last three several share a ciphertext.)
        for of in
            [[2, 9, 20, 11], [1, 70, 3, 33], [1, 1, 130, 2], [37, 1, 1, 150], [23, 3, 2, 5], [400, 1, 1, 64]]
        {
            for extreme in [false, true] {
                let params = MatrixProductParams { out_bits, shift, matrices: sizes(of) };
                let [batch, n, k, m] = of;
                let terms = [[batch, n, k, m], [batch, m, k, n]];
                let made = out_bits + shift.min(SLACK);
                // By turns, those that have room.
                let fitting = (turn..turn + kinds.len()).find_map(|at| {
                    let (ring, kind) = kinds[at % kinds.len()];
                    Some((at, Layout::of_kind(&terms, params.ring_bits(), made, ring, kind)?))
                });
                let (at, layout) = fitting.unwrap();
                tried[at % kinds.len()] += 1;
                turn = at + 1;
                let [client, server] = both(params, &layout, extreme);
                let mask = params.mask();
                let add = |x: &[u64], y: &[u64]| -> Vec<u64> {
                    x.iter().zip(y).map(|(x, y)| x.wrapping_add(*y) & mask).collect()
                };
                let [a, b, c] = [(&client.a, &server.a), (&client.b, &server.b), (&client.c, &server.c)]
                    .map(|(x, y)| add(x, y));
                let mut exact = vec![0; c.len()];
                add_products(&params.matrices, &a, &b, &mut exact);
                let unit = 1i64 << (shift - shift.min(SLACK));
                let above = 64 - params.ring_bits();
                let errors = c.iter().zip(&exact).map(|(c, exact)| {
                    let error = (c.wrapping_sub(*exact) << above) as i64 >> above;
                    let most = 2 * layout.groups().count() as i64 * unit;
                    assert!(error.abs() < most, "{error} of units of {unit}, {of:?}, {layout:?}");
                    u32::from(error.abs() > unit)
                });
                // (Each of two terms is off by one where its fraction is near a half; by noise alone hardly ever.)
                assert!(errors.sum::<u32>() as usize <= c.len() / 2, "{of:?}, {layout:?}");
            }
        }
    }
    assert!(tried.iter().all(|&times| times > 2), "{tried:?}");
}

/// Shares add up to a neighbour of a sum as often as noise of the deviation on record makes them: where all bits of a
/// share are made, they are off by one with a chance of the noise's magnitude, whose mean is √(2/π) deviations. Of
/// rings of all kinds, and for the largest numbers that the server may have, of either sign.
#[test]
fn shares_are_off_by_the_deviation_on_record() {
    const L: u32 = 38;
    let (of, mask) = (sizes([1, 256, 64, 128]), (1u64 << L) - 1);
    for ring in RINGS {
        for kind in DIGITS.into_iter().flat_map(|digits| SECRETS.map(|secrets| (digits, secrets))) {
            let layout = Layout::of_kind(&[[1, 256, 64, 128]], L, L, ring, kind).unwrap();
            let one = |role: Role, chan: &mut Channel| {
                let tools = Tools::new(Cpu::detect(), layout.clone()).unwrap();
                let (mut prg, keys) = (Prg::new([5 + role as u8; 32]), Mutex::default());
                let alone = |factor: Words| {
                    let c = Zeroizing::new(vec![0; of.rows * of.columns]);
                    Triple { a: factor, c, ..Triple::default() }
                };
                if role == Role::Client {
                    let of_factors = |mut factors: Vec<Words>| alone(factors.pop().unwrap());
                    return client(tools, of_factors, &keys, chan, &mut prg)
                        .unwrap()
                        .receive(&of, chan)
                        .unwrap();
                }
                let mut w = Zeroizing::new(vec![0; of.inner * of.columns]);
                prg.fill_words(&mut w, 1);
                w.iter_mut().for_each(|word| *word = (1 << (L - 1)) - *word);
                let mut triple = alone(w.clone());
                server(&tools, &of, &mut triple, &[w], &keys, chan, &mut prg).unwrap();
                triple
            };
            let (mut a, mut b) = memory_pair();
            let [client, server] = std::thread::scope(|scope| {
                let server = scope.spawn(|| one(Role::Server, &mut b));
                [one(Role::Client, &mut a), server.join().unwrap()]
            });
            let mut exact = vec![0; of.rows * of.columns];
            add_products(&of, &client.a, &server.a, &mut exact);
            let off = client.c.iter().zip(server.c.iter()).zip(&exact).map(|((c, s), exact)| {
                let error = c.wrapping_add(*s).wrapping_sub(*exact) & mask;
                error.min(mask + 1 - error)
            });
            let mean = off.sum::<u64>() as f64 / exact.len() as f64;
            let ratio = mean / (layout.deviation() * (2.0 / std::f64::consts::PI).sqrt());
            assert!((0.9..1.1).contains(&ratio), "{ratio} of {}, {layout:?}", layout.deviation());
        }
    }
}

/// What `garbage_in_joint_keys_gives_wrong_values` of the security tests rests on.
#[test]
fn many_packs_share_an_a_half() {
    let matrices = sizes([1, 197, 64, 197]);
    let (_, layout) = MatrixProductParams { out_bits: 26, shift: 16, matrices }.sizes().unwrap();
    assert_eq!(layout.unwrap().secrets, 4);
    let (_, layout) =
        MatrixProductParams { out_bits: 26, shift: 16, matrices: sizes([1, 2, 2, 2]) }.sizes().unwrap();
    assert_eq!(layout.unwrap().secrets, 1);
}

/// Products of one query share keys: the second sends none, and is as right as the first. What is sent is what is
/// counted.
#[test]
fn keys_are_sent_once_in_a_query() {
    let [first, second] = [[2, 9, 20, 11], [2, 9, 20, 12]].map(|of| MatrixProductParams {
        out_bits: 20,
        shift: 14,
        matrices: sizes(of),
    });
    let mut keys = SentKeys::default();
    let sent = [first, second, first].map(|params| params.cost().prepare_up - params.known(&mut keys));
    assert_eq!(sent[0], first.cost().prepare_up);
    assert!(sent[2] < first.cost().prepare_up / 2, "{sent:?}");
    let (mut a, mut b) = memory_pair();
    let one = |role: Role, chan: &mut Channel| -> Vec<(u64, Vec<u64>)> {
        let dealer = jaguar_ot::insecure_test_dealer::InsecureTestDealer::new(1, role);
        let mut party = Party::new(role, dealer);
        let mut run = |params: MatrixProductParams, forget: bool| {
            if forget {
                party.forget_keys();
            }
            let before = chan.total().sent;
            let blocks = completed(MatrixProduct::blocks(&party, params).unwrap(), chan).unwrap();
            chan.flush().unwrap();
            let sent = chan.total().sent - before;
            let [x, y, _] = params.matrices.counts().unwrap();
            let values: Vec<u64> =
                (0..(x + y) as u64).map(|i| i << (7 * u64::from(role == Role::Server))).collect();
            (sent, block::run(blocks, chan, &values).unwrap())
        };
        let made = vec![run(first, false), run(second, false), run(first, false), run(first, true)];
        // With the last of a query they are gone: nothing that was prepared has them.
        let keys = Arc::downgrade(&party.keys);
        let prepared = completed(MatrixProduct::blocks(&party, first).unwrap(), chan).unwrap();
        chan.flush().unwrap();
        assert!(party.keeps_keys() && keys.upgrade().is_some());
        party.forget_keys();
        assert!(!party.keeps_keys() && keys.upgrade().is_none());
        drop(prepared);
        made
    };
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let made = one(Role::Server, &mut b);
            b.flush().unwrap();
            made
        });
        (one(Role::Client, &mut a), server.join().unwrap())
    });
    let bytes: Vec<u64> = client.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(bytes, [sent[0], sent[1], sent[2], sent[0]]);
    for ((params, (_, client)), (_, server)) in [first, second, first, first].iter().zip(&client).zip(&server)
    {
        let of = &params.matrices;
        let [x, y, made] = of.counts().unwrap();
        let values: Vec<u64> = (0..(x + y) as u64).map(|i| i + (i << 7)).collect();
        let mut exact = vec![0; made];
        add_products(of, &values[..x], &values[x..], &mut exact);
        for ((c, s), exact) in client.iter().zip(server).zip(exact) {
            let found = (c + s) % (1 << 20);
            let expected = (exact >> 14) % (1 << 20);
            let off = (found + (1 << 20) - expected) % (1 << 20);
            assert!(off <= 1 || off == (1 << 20) - 1, "{found} for {expected}");
        }
    }
}

/// A client that looks at the a half of a response, for a server's single number of 12 bits: it tries all that there
/// are. Without the encryption of zero one of them explains every word of what it sees, and it is the right one. With
/// it none does. Of a pack alone, and of two that share an a half, each a product by that number.
#[test]
fn without_an_encryption_of_zero_a_response_shows_the_servers_number() {
    for (secrets, count) in [(1, 1), (4, 2)] {
        let mut layout = Layout::of_kind(&[[count, 1, 1, 1]], 12, 12, RINGS[0], (1, secrets)).unwrap();
        layout.terms[0] = Tiling { gap_log2: 0, pack_log2: 0, together: 1, ..layout.terms[0] };
        assert_eq!(layout.terms[0].packs(), count);
        let tools = Tools::new(Cpu::detect(), layout).unwrap();
        let (ring, layout) = (&tools.ring, &tools.layout);
        let mut prg = Prg::new([3; 32]);
        let own: Vec<SecretKey> = (0..secrets).map(|_| SecretKey::from_prg(ring, &mut prg)).collect();
        let joint = JointKeys::new(ring, &own.iter().collect::<Vec<_>>(), layout.prime_bits, &mut prg);
        let keys = OfServer::of(layout, joint);
        for number in [0u64, 0x5a3] {
            let sent = (0..count).map(|_| own[0].encrypt(ring, &ring.zero(), &mut prg).expand(ring));
            let inputs = [sent.collect::<Vec<_>>()];
            let w = [Zeroizing::new(vec![number; count])];
            // The first eight words of an a half, as the weak server would round it.
            let weak = |packs: Vec<Ciphertext<Values>>| -> Vec<u64> {
                let packs = packs.into_iter().map(|pack| tools.leaving(pack)).collect();
                let joined = keys.joint(layout).join(ring, packs);
                tools.half.round(&tools.left, &joined.a)[..8].to_vec()
            };
            let packs = || (0..count).map(|pack| products(&tools, &layout.terms, &keys, &inputs, &w, pack));
            let tries = |seen: &[u64]| -> Vec<u64> {
                let explains = |candidate| {
                    let signed = ((candidate as u64) << 52) as i64 >> 52;
                    let explained = inputs[0].iter().map(|sent| {
                        let mut explained = Ciphertext { a: sent.a.duplicate(), b: ring.zero() };
                        explained.multiply_scalar(ring, signed);
                        explained
                    });
                    weak(explained.collect()) == seen
                };
                let mut found = Vec::new();
                let take = |candidate, explains| -> Result<(), ()> {
                    if explains {
                        found.push(candidate as u64);
                    }
                    Ok(())
                };
                all(1 << 12, explains, take).unwrap();
                found
            };
            assert_eq!(tries(&weak(packs().collect())), [number]);
            let packs = packs().map(|pack| tools.leaving(pack)).collect();
            let shown = vec![vec![0]; count];
            let ours = hide(&tools, &layout.terms[0], &keys, packs, 0, &shown, &mut prg);
            assert!(tries(&ours.a[..8]).is_empty());
        }
    }
}
