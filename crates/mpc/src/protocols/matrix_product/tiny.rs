//! Small rings and matrices: all randomness of what is masked, so that what each party sees can be counted; the triple
//! against plain integers; and the attack that an encryption of zero prevents, which succeeds without it.
//!
//! *Functionality.* Of X and Y, shared mod 2^L, the client gets a uniform z_c mod 2^L and the server z_s = X·Y − z_c
//! (for a triple without an error); the client's result is ⌊z_c / 2^s⌋, the server's ⌈z_s / 2^s⌉.

use jaguar_wire::memory_pair;

use super::rows::{RowProductParams, Rows};
use super::squares::SquaredRowsParams;
use super::tiling::{A_MORE, B_MORE};
use super::triple::{Keys, all, hide, masked, products, unmasked};
use super::*;
use crate::protocols::opening::tests::by_turns;

/// All come up equally often, of so many that there may be.
#[track_caller]
fn assert_uniform(values: impl Iterator<Item = usize>, of: usize, what: &str) {
    let mut counts = vec![0u32; of];
    values.for_each(|value| counts[value] += 1);
    assert!(counts[0] > 0 && counts.iter().all(|&count| count == counts[0]), "{what}");
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
    Run { params, counts, material: Material::Made(Triple { a, b, c }), opening }
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
                    let material = Material::Made(Triple { a, b: Zeroizing::default(), c });
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
                    let mut prg = Prg::new([17 + role as u8; 32]);
                    let mut a = Zeroizing::new(vec![0; rows * columns]);
                    prg.fill_words(&mut a, ring);
                    if extreme {
                        let most = [1 << (ring - 1), mask, 0];
                        a.iter_mut().enumerate().for_each(|(i, word)| *word = most[i % 3]);
                    }
                    let mut c = Zeroizing::new(vec![0; rows]);
                    add_products(&of, &a, &a, &mut c);
                    let mut triple = Triple { a, b: Zeroizing::default(), c };
                    let mut factor = squares::factor(&triple, role);
                    factor.iter_mut().for_each(|word| *word &= mask);
                    if role == Role::Client {
                        let mut sent = client(tools, triple, &[factor], chan, &mut prg).unwrap();
                        return sent.receive(&of, chan).unwrap();
                    }
                    server(&tools, &of, &mut triple, &[factor], chan, &mut prg).unwrap();
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

/// What hides a b half: all phases of a result and all masks, in shares of three bits. What is sent is uniform whatever
/// the phase is, and the shares add up to one of the two numbers next to the phase, whatever the a half adds.
#[test]
fn a_masked_half_is_uniform_and_shares_are_neighbours() {
    const MADE: u32 = 3;
    let (a_bits, b_bits) = (MADE + A_MORE, MADE + B_MORE);
    let unit = 1u64 << A_MORE;
    for phase in 0..1u64 << b_bits {
        let pairs = |(): ()| (0..1u64 << b_bits).map(|r| masked(phase, r, b_bits));
        assert_uniform(pairs(()).map(|(sent, _)| sent as usize), 1 << b_bits, "a b half");
        for added in (0..1u64 << a_bits).step_by(7) {
            for (sent, server) in pairs(()) {
                let client = unmasked(sent, added, a_bits);
                let whole = ((phase << (A_MORE - B_MORE)) + added) % (1 << a_bits);
                let sum = client.wrapping_add(server) % (1 << MADE);
                // (Up to eight 256ths more than the phase are rounded down to it.)
                let near = [whole / unit, whole.div_ceil(unit)].map(|near| near % (1 << MADE));
                let edge = (whole + 8) / unit % (1 << MADE);
                assert!(near.contains(&sum) || sum == edge, "{phase} + {added}: {sum} for {whole} / {unit}");
            }
        }
    }
}

/// Both parties' triple, of which the client's numbers are the extremes or random.
fn both(params: MatrixProductParams, extreme: bool) -> [Triple; 2] {
    let (counts, layout) = params.sizes().unwrap();
    let layout = layout.unwrap();
    let (mut a, mut b) = memory_pair();
    let one = |role: Role, chan: &mut Channel| {
        let tools = Tools::new(Cpu::detect(), layout.clone()).unwrap();
        let mut prg = Prg::new([17 + role as u8; 32]);
        let mut triple = Triple::drawn(&params.matrices, counts, params.ring_bits(), &mut prg);
        if extreme {
            for (i, word) in triple.a.iter_mut().chain(triple.b.iter_mut()).enumerate() {
                *word = [1 << (params.ring_bits() - 1), params.mask(), 0][i % 3];
            }
            triple.c.fill(0);
            add_products(&params.matrices, &triple.a, &triple.b, &mut triple.c);
        }
        let of = &params.matrices;
        let factors = triple.factors(of, role == Role::Client);
        if role == Role::Client {
            return client(tools, triple, &factors, chan, &mut prg).unwrap().receive(of, chan).unwrap();
        }
        server(&tools, of, &mut triple, &factors, chan, &mut prg).unwrap();
        triple
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| one(Role::Server, &mut b));
        [one(Role::Client, &mut a), server.join().unwrap()]
    })
}

/// C is A·B but for less than four units of what shares are made of; and mostly less than two.
#[test]
fn a_triple_is_one_but_for_its_last_places() {
    for (out_bits, shift) in [(20, 14), (26, 20), (16, 2)] {
        // (Of the last two, several share a ciphertext.)
        for of in [[2, 9, 20, 11], [1, 70, 3, 33], [1, 1, 130, 2], [37, 1, 1, 150], [23, 3, 2, 5]] {
            for extreme in [false, true] {
                let params = MatrixProductParams { out_bits, shift, matrices: sizes(of) };
                let [client, server] = both(params, extreme);
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
                    assert!(error.abs() < 4 * unit, "{error} of units of {unit}, {of:?}");
                    u32::from(error.abs() > unit)
                });
                // (Each of two terms is off by one where its fraction is near a half; by noise alone hardly ever.)
                assert!(errors.sum::<u32>() as usize <= c.len() / 2, "{of:?}");
            }
        }
    }
}

/// A client that looks at the a half of a response, for a server's single number of 12 bits: it tries all that there
/// are. Without the encryption of zero one of them explains every word of what it sees, and it is the right one. With
/// it none does.
#[test]
fn without_an_encryption_of_zero_a_response_shows_the_servers_number() {
    let params = MatrixProductParams { out_bits: 8, shift: 4, matrices: sizes([1, 1, 1, 1]) };
    let tools = Tools::new(Cpu::detect(), params.sizes().unwrap().1.unwrap()).unwrap();
    let (ring, tiling) = (&tools.ring, &tools.layout.terms[0]);
    let mut prg = Prg::new([3; 32]);
    let secret = jaguar_ring::he::rns::SecretKey::from_prg(ring, &mut prg);
    let keys = Keys::of(jaguar_ring::he::rns::JointKeys::public(ring, &secret, &mut prg));
    for number in [0u64, 0x5a3] {
        let sent = secret.encrypt(ring, &ring.zero(), &mut prg).expand(ring);
        let a = sent.a.duplicate();
        let inputs = [sent];
        // All candidates' a halves, as the weak server would round them: their first eight words.
        let weak = |number: u64| -> Vec<u64> {
            let packed = products(&tools, tiling, &keys, &inputs, &[number], 0);
            tools.rounded_a(packed)[..8].to_vec()
        };
        let tries = |seen: &[u64]| -> Vec<u64> {
            let explains = |candidate| {
                let signed = ((candidate as u64) << 52) as i64 >> 52;
                let mut explained = jaguar_ring::he::rns::Ciphertext { a: a.duplicate(), b: ring.zero() };
                explained.multiply_scalar(ring, signed);
                tools.rounded_a(explained)[..8] == *seen
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
        assert_eq!(tries(&weak(number)), [number]);
        let packed = products(&tools, tiling, &keys, &inputs, &[number], 0);
        let ours = hide(&tools, tiling, &keys, packed, 0, &mut prg);
        assert!(tries(&ours.a[..8]).is_empty());
    }
}
