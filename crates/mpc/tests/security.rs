//! What a party sees, what a peer that lies can do, and what goes wrong when material is used twice.

mod common;

use std::sync::Arc;

use common::{TestParty, both, share, words};
use jaguar_mpc::reference::signed;
use jaguar_mpc::semantics::{Beyond, Matrices, Pieces};
use jaguar_mpc::*;
use jaguar_ot::Role;
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ring::prg::with_insecure_fixed_randomness;
use jaguar_wire::double::{Fault, Faulty, Recorder, Transcript};
use jaguar_wire::{Channel, memory_pair, memory_transports};

type Prepare<P> = fn(&mut TestParty, &mut Channel) -> Result<P, MpcError>;

/// Runs a protocol, recording all that the client sends and receives from the start of the run on.
fn recorded<P: Send, T: Send>(
    seed: u64,
    prepare: impl Fn(&mut TestParty, &mut Channel) -> Result<P, MpcError> + Sync,
    run: impl Fn(P, Role, &mut Channel) -> Result<T, MpcError> + Sync,
) -> Transcript {
    let prepare = |role: Role| {
        let prepare = &prepare;
        move |chan: &mut Channel| prepare(&mut Party::new(role, InsecureTestDealer::new(seed, role)), chan)
    };
    // Preparation over a link of its own.
    let (mut a, mut b) = memory_pair();
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let prepared = prepare(Role::Server)(&mut b).unwrap();
            b.flush().unwrap();
            prepared
        });
        (prepare(Role::Client)(&mut a).unwrap(), server.join().unwrap())
    });
    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::new(a);
    let (mut a, mut b) = (Channel::new(a), Channel::new(b));
    std::thread::scope(|scope| {
        let run = &run;
        let server = scope.spawn(move || {
            run(server, Role::Server, &mut b).unwrap();
            b.flush().unwrap();
            b
        });
        run(client, Role::Client, &mut a).unwrap();
        a.flush().unwrap();
        server.join().unwrap();
    });
    transcript
}

fn of(role: Role, pair: &[Vec<u64>; 2]) -> &[u64] {
    &pair[usize::from(role == Role::Server)]
}

/// Multiplies shared values by shared bits, and returns what the client received.
fn mux_seen(seed: u64, shares: &[Vec<u64>; 2]) -> Vec<u8> {
    let n = shares[0].len();
    let bits = Bits::new(&vec![true; n]);
    let run = |p: Mux, role, chan: &mut Channel| p.run(chan, &bits, of(role, shares));
    recorded(seed, |p, c| Mux::prepare(p, c, n, 16), run).received()
}

/// The attack: material that serves twice, the second time for shares that the client knows. The server's
/// corrections are ±x − δ with the same sign and δ both times, so their difference gives its first shares up to
/// the sign. Returns how many shares it finds.
fn shares_found(first_seed: u64, second_seed: u64) -> usize {
    let n = 1000;
    let secret = [words(1, n), words(2, n)].map(|s| s.iter().map(|w| w & 0xffff).collect::<Vec<u64>>());
    let known = [secret[0].clone(), vec![0; n]];
    let (first, second) = (mux_seen(first_seed, &secret), mux_seen(second_seed, &known));
    let word = |bytes: &[u8], i: usize| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
    (0..n)
        .filter(|&i| {
            let difference = word(&first, i).wrapping_sub(word(&second, i));
            [difference, difference.wrapping_neg()].contains(&(secret[1][i] as u16))
        })
        .count()
}

#[test]
fn material_used_twice_gives_the_servers_shares_away() {
    // The weak variant: a dealer that starts over. The types forbid it for one `Mux`.
    assert_eq!(shares_found(7, 7), 1000);
    // Fresh material: the attack guesses one of 2^16 with two tries.
    assert!(shares_found(7, 8) < 5);
}

fn relu_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let params = ReluParams { output: Modulus::power_of_two(30), ..ReluParams::new(16) };
    recorded(seed, |p, c| Relu::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

/// Modulo an odd number that is far from a power of two, so that not all bits of a residue are even.
const ODD: u64 = (1 << 31) + (1 << 30) + 1;

fn odd() -> Modulus {
    Modulus::odd(ODD).unwrap()
}

fn odd_extend_transcript(seed: u64, shares: &[Vec<u64>; 2], range: Range) -> Transcript {
    let n = shares[0].len();
    let params = ExtendParams { bits: 16, output: odd(), range };
    recorded(seed, |p, c| Extend::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

fn odd_relu_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let params = ReluParams { output: odd(), ..ReluParams::new(16) };
    recorded(seed, |p, c| Relu::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

fn odd_relu6_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let params = Relu6Params { output: odd(), ..Relu6Params::new(16, 9) };
    recorded(seed, |p, c| Relu6::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

fn relu6_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let params = Relu6Params { output: Modulus::power_of_two(30), ..Relu6Params::new(16, 9) };
    recorded(seed, |p, c| Relu6::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

/// A ReLU at full width, then the truncation of any value.
fn full_width_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let any = TruncateParams { range: Range::Full { digit: 4 }, ..CUT };
    let prepare = |p: &mut TestParty, c: &mut Channel| {
        Ok((Relu::prepare(p, c, n, ReluParams::new(37))?, Truncate::prepare(p, c, n, any)?))
    };
    recorded(seed, prepare, |(relu, cut): (Relu, Truncate), role, chan| {
        let y = relu.run(chan, of(role, shares))?;
        cut.run(chan, &y)
    })
}

fn product_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len() / 2;
    recorded(seed, |p, c| Product::prepare(p, c, n, PRODUCT), |p, role, chan| p.run(chan, of(role, shares)))
}

/// Of `n` values in all, a product of matrices as networks run it.
fn matrices(n: usize) -> MatrixProductParams {
    let matrices = Matrices { batch: 2, rows: 2, inner: n / 8, columns: 2, transposed: [false, true] };
    MatrixProductParams { out_bits: 24, shift: 20, matrices }
}

/// Its preparation, with a party's own randomness of a seed.
fn prepare_matrices(
    seed: u64,
    n: usize,
    p: &mut TestParty,
    c: &mut Channel,
) -> Result<MatrixProduct, MpcError> {
    let own = [seed as u8, p.role() as u8].repeat(16);
    with_insecure_fixed_randomness(own.try_into().expect("32 bytes"), || {
        MatrixProduct::prepare(p, c, matrices(n))
    })
}

fn matrix_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    recorded(seed, |p, c| prepare_matrices(seed, n, p, c), |p, role, chan| p.run(chan, of(role, shares)))
}

/// Rows by numbers, of `n` pairs in all.
fn by_rows(n: usize) -> RowProductParams {
    RowProductParams { product: PRODUCT, rows: n / 10, columns: 10 }
}

fn prepare_rows(seed: u64, n: usize, p: &mut TestParty, c: &mut Channel) -> Result<RowProduct, MpcError> {
    let own = [seed as u8, 3 + p.role() as u8].repeat(16);
    with_insecure_fixed_randomness(own.try_into().expect("32 bytes"), || {
        RowProduct::prepare(p, c, by_rows(n))
    })
}

fn row_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len() / 20 * 10;
    let pairs = |role| &of(role, shares)[..2 * n];
    recorded(seed, |p, c| prepare_rows(seed, n, p, c), |p, role, chan| p.run(chan, pairs(role)))
}

/// A row by itself, by ciphertexts.
fn squared_row(n: usize) -> SquaredRowsParams {
    SquaredRowsParams { out_bits: PRODUCT.out_bits, shift: PRODUCT.shift, rows: 1, columns: n }
}

fn prepare_squares(
    seed: u64,
    params: SquaredRowsParams,
    p: &mut TestParty,
    c: &mut Channel,
) -> Result<SquaredRows, MpcError> {
    let own = [seed as u8, 6 + p.role() as u8].repeat(16);
    with_insecure_fixed_randomness(own.try_into().expect("32 bytes"), || SquaredRows::prepare(p, c, params))
}

fn squares_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let params = squared_row(shares[0].len());
    recorded(seed, |p, c| prepare_squares(seed, params, p, c), |p, role, chan| p.run(chan, of(role, shares)))
}

/// Short rows, value by value.
fn short_squares_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let params = SquaredRowsParams { rows: shares[0].len() / 4, columns: 4, ..squared_row(0) };
    assert!(!params.is_encrypted());
    recorded(seed, |p, c| prepare_squares(seed, params, p, c), |p, role, chan| p.run(chan, of(role, shares)))
}

/// What is sent while it is prepared.
fn squares_preparation(seed: u64, n: usize) -> Transcript {
    let params = SquaredRowsParams { rows: 3, ..squared_row(n) };
    assert!(params.is_encrypted());
    prepared(seed, |p, c| prepare_squares(seed, params, p, c).map(drop))
}

/// Rows by themselves, and then by numbers: of `rows` rows of `columns`.
fn twice(rows: usize, columns: usize) -> RowsTwiceParams {
    let squares = SquaredRowsParams { shift: PRODUCT.shift + 3, rows, columns, ..squared_row(0) };
    RowsTwiceParams { squares, product: RowProductParams { product: PRODUCT, rows, columns } }
}

fn prepare_twice(
    seed: u64,
    params: RowsTwiceParams,
    p: &mut TestParty,
    c: &mut Channel,
) -> Result<RowsTwice, MpcError> {
    let own = [seed as u8, 9 + p.role() as u8].repeat(16);
    with_insecure_fixed_randomness(own.try_into().expect("32 bytes"), || RowsTwice::prepare(p, c, params))
}

/// Both runs, on these values and numbers out of them.
fn run_twice(rows: RowsTwice, chan: &mut Channel, x: &[u64]) -> Result<Vec<u64>, MpcError> {
    let (squares, opened) = rows.squares(chan, x)?;
    chan.flush()?;
    let pairs: Vec<u64> = x.iter().flat_map(|&value| [value, value]).collect();
    Ok([squares, opened.multiply(chan, &pairs)?].concat())
}

fn twice_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let params = twice(shares[0].len() / 8, 8);
    recorded(
        seed,
        |p, c| prepare_twice(seed, params, p, c),
        |p, role, chan| run_twice(p, chan, of(role, shares)),
    )
}

/// What is sent while it is prepared.
fn twice_preparation(seed: u64, n: usize) -> Transcript {
    prepared(seed, |p, c| prepare_twice(seed, twice(3, n / 3), p, c).map(drop))
}

/// What is sent while it is prepared.
fn row_preparation(seed: u64, n: usize) -> Transcript {
    prepared(seed, |p, c| prepare_rows(seed, n, p, c).map(drop))
}

/// What is sent while it is prepared.
fn matrix_preparation(seed: u64, n: usize) -> Transcript {
    prepared(seed, |p, c| prepare_matrices(seed, n, p, c).map(drop))
}

/// SiLU-like lines over 16 bits.
fn curve_params() -> CurveParams {
    let offsets = (0..256).map(|i: i64| (i - 128).max(0) * 256 - i % 5).collect();
    let slopes = (0..256).map(|i: i64| (i - 128).max(0) * 2 - i % 7).collect();
    let pieces =
        Arc::new(Pieces { low: 8, offset_shift: 6, shift: 8, offsets, slopes, beyond: Beyond::Repeated });
    CurveParams { bits: 16, out_bits: 20, digit: 4, pieces }
}

/// The same around zero, and a line from there on.
fn straight_params() -> CurveParams {
    let offsets =
        (0..128).map(|i: i64| (i - 64).max(0) * 64 - if (2..126).contains(&i) { i % 5 } else { 0 }).collect();
    let mut slopes: Vec<i64> = (0..128).map(|i: i64| (i - 64).max(0) * 2 - i % 7).collect();
    slopes[..2].fill(0);
    slopes[126..].fill(64);
    let pieces = Pieces { low: 6, offset_shift: 6, shift: 6, offsets, slopes, beyond: Beyond::Straight };
    CurveParams { bits: 16, out_bits: 16, digit: 4, pieces: Arc::new(pieces) }
}

/// The same from a place on, and level outside.
fn level_params() -> CurveParams {
    let straight = straight_params();
    let beyond = Beyond::Level { begin: -1500 };
    CurveParams { pieces: Arc::new(Pieces { beyond, ..Pieces::clone(&straight.pieces) }), ..straight }
}

/// The same in so wide a ring that slopes are multiplied in one of their own, whatever the number of values.
fn narrow_params() -> CurveParams {
    let params = CurveParams { out_bits: 40, ..level_params() };
    let [offsets, products] = params.sum_bits(400);
    assert!(products < 40 && offsets < 40 - 6, "both sums are extended");
    params
}

fn square_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    let n = shares[0].len();
    let params = SquareParams(PRODUCT);
    recorded(seed, |p, c| Square::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

fn curve_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    one_curve(seed, shares, &curve_params())
}

fn straight_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    one_curve(seed, shares, &straight_params())
}

fn level_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    one_curve(seed, shares, &level_params())
}

fn narrow_transcript(seed: u64, shares: &[Vec<u64>; 2]) -> Transcript {
    one_curve(seed, shares, &narrow_params())
}

fn one_curve(seed: u64, shares: &[Vec<u64>; 2], params: &CurveParams) -> Transcript {
    let n = shares[0].len();
    recorded(seed, |p, c| Curve::prepare(p, c, n, params), |p, role, chan| p.run(chan, of(role, shares)))
}

/// What is sent while a curve is prepared: one after the other, the places' messages and the conversions' corrections; the client's strings.
fn curve_preparation(seed: u64, n: usize) -> Transcript {
    prepared(seed, |p, c| Curve::prepare(p, c, n, &curve_params()).map(drop))
}

fn prepared(
    seed: u64,
    prepare: impl Fn(&mut TestParty, &mut Channel) -> Result<(), MpcError> + Sync,
) -> Transcript {
    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::new(a);
    let one = |role: Role, mut chan: Channel| {
        let mut party = Party::new(role, InsecureTestDealer::new(seed, role));
        prepare(&mut party, &mut chan).unwrap();
        chan.flush().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| one(Role::Server, Channel::new(b)));
        one(Role::Client, Channel::new(a));
    });
    transcript
}

/// Share of ones, and of bits that differ.
fn ones(bytes: impl Iterator<Item = u8>) -> f64 {
    let (ones, all) = bytes.fold((0, 0), |(ones, all), b| (ones + b.count_ones(), all + 8));
    f64::from(ones) / f64::from(all)
}

#[test]
fn messages_look_uniform_and_depend_on_the_material() {
    // Several hundred thousand bits, so 0.01 is ten standard deviations. The inputs are as regular as can be.
    let n = 4096;
    let even = 0.49..0.51;
    for transcript in [
        relu_transcript,
        relu6_transcript,
        full_width_transcript,
        product_transcript,
        square_transcript,
        matrix_transcript,
        row_transcript,
        squares_transcript,
        short_squares_transcript,
        twice_transcript,
        curve_transcript,
        straight_transcript,
        level_transcript,
        narrow_transcript,
    ] {
        let zeros = [vec![0; n], vec![0; n]];
        let ones_in = [vec![0xffff; n], vec![0x8000; n]];
        let runs = [(1, &zeros), (2, &zeros), (3, &ones_in)].map(|(seed, shares)| transcript(seed, shares));
        for run in &runs {
            assert!(even.contains(&ones(run.sent().into_iter())));
            assert!(even.contains(&ones(run.received().into_iter())));
        }
        for other in &runs[1..] {
            let differ = |a: Vec<u8>, b: Vec<u8>| ones(a.into_iter().zip(b).map(|(a, b)| a ^ b));
            assert!(even.contains(&differ(runs[0].sent(), other.sent())));
            assert!(even.contains(&differ(runs[0].received(), other.received())));
        }
        // Nothing else is random: the same material gives the same messages.
        assert_eq!(transcript(1, &zeros).digest(), runs[0].digest());
    }
}

/// The offline messages of a curve and of a product of matrices look uniform, too, of both parties.
#[test]
fn what_prepares_curves_and_matrices_looks_uniform() {
    let curves = [1, 2].map(|seed| curve_preparation(seed, 2048));
    let matrices = [1, 2].map(|seed| matrix_preparation(seed, 1200));
    let rows = [1, 2].map(|seed| row_preparation(seed, 1200));
    let squares = [1, 2].map(|seed| squares_preparation(seed, 8000));
    let twice = [1, 2].map(|seed| twice_preparation(seed, 1200));
    let both = [Transcript::received, Transcript::sent];
    for (runs, of) in
        [&curves, &matrices, &rows, &squares, &twice].into_iter().flat_map(|runs| both.map(|of| (runs, of)))
    {
        let [first, second] = runs.each_ref().map(of);
        // (Deviations are about a thousandth.)
        assert!(first.len() > 20_000, "{}", first.len());
        for bytes in [first.clone(), first.into_iter().zip(second).map(|(a, b)| a ^ b).collect()] {
            let share = ones(bytes.into_iter());
            assert!((0.495..0.505).contains(&share), "{share}");
        }
    }
}

/// Of `residues` modulo `modulus` in `cells` equal parts of the range: chi-square, which has `cells` − 1 degrees of freedom if they
/// are uniform.
fn chi_square(residues: &[u64], modulus: u64, cells: usize) -> f64 {
    let mut counts = vec![0u64; cells];
    for &r in residues {
        assert!(r < modulus, "a residue");
        counts[(u128::from(r) * cells as u128 / u128::from(modulus)) as usize] += 1;
    }
    let expected = residues.len() as f64 / cells as f64;
    counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum()
}

/// The corrections of an extension into an odd modulus are uniform residues, whatever the shares, and the shares that come out are
/// uniform too.
#[test]
fn corrections_modulo_an_odd_number_are_uniform() {
    let (n, cells) = (1 << 16, 96);
    let unpack = |bytes: &[u8]| jaguar_wire::pack::unpack(bytes, n, odd().bits());
    for shares in [[vec![0; n], vec![0; n]], [vec![0xffff; n], vec![0x8000; n]]] {
        for seed in [1, 2] {
            // All that the client sends is d, element by element: blocks are whole bytes.
            let sent = odd_extend_transcript(seed, &shares, Range::NonNegative).sent();
            assert_eq!(sent.len(), jaguar_wire::pack::packed_len(n, 32));
            // 95 degrees of freedom: their deviation is 14. (The seeds are fixed.)
            let found = chi_square(&unpack(&sent), ODD, cells);
            assert!((40.0..180.0).contains(&found), "{found}");
            // The check has teeth: pads of 32 bits taken modulo ODD, as if they were enough.
            let narrow: Vec<u64> = words(seed, n).iter().map(|w| (w >> 32) % ODD).collect();
            assert!(chi_square(&narrow, ODD, cells) > 1000.0);
            let params = ExtendParams { bits: 16, output: odd(), range: Range::NonNegative };
            let run = |p: Extend, role, c: &mut Channel| p.run(c, of(role, &shares));
            for (share, _) in both(seed, |p, c| Extend::prepare(p, c, n, params), run) {
                let found = chi_square(&share, ODD, cells);
                assert!((40.0..180.0).contains(&found), "{found}");
            }
        }
    }
}

/// The messages of every protocol under fixed seeds. A change here is a change of the wire format (or of the
/// test dealer).
#[test]
fn the_wire_format_is_as_recorded() {
    let values: Vec<i64> = words(5, 600).iter().map(|&w| signed(w, 14)).collect();
    let shares = share(&values, 16, 6);
    let n = values.len();
    let shape = PoolShape { channels: 1, size: [20, 30], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 1, 1] };
    let extend = ExtendParams { bits: 16, output: Modulus::power_of_two(30), range: Range::Signed };
    let on = |p: Result<Vec<u64>, MpcError>| p.map(drop);
    let all = [
        ("relu", relu_transcript(1, &shares)),
        ("relu6", relu6_transcript(1, &shares)),
        (
            "extend",
            recorded(1, |p, c| Extend::prepare(p, c, n, extend), |p, r, c| on(p.run(c, of(r, &shares)))),
        ),
        (
            "maxpool",
            recorded(
                1,
                |p, c| MaxPool::prepare(p, c, shape, PoolParams::new(16)),
                |p, r, c| on(p.run(c, of(r, &shares))),
            ),
        ),
        (
            "argmax",
            recorded(
                1,
                |p, c| Argmax::prepare(p, c, ArgmaxParams { count: n, bits: 16, digit: 4 }),
                |p, r, c| p.run(c, of(r, &shares)).map(drop),
            ),
        ),
        (
            "less than",
            recorded(
                1,
                |p, c| LessThan::prepare(p, c, n, 16, 3),
                |p, r, c| p.run(c, of(r, &shares)).map(drop),
            ),
        ),
        (
            "truncate",
            recorded(1, |p, c| Truncate::prepare(p, c, n, CUT), |p, r, c| on(p.run(c, of(r, &shares)))),
        ),
        (
            "truncate any",
            recorded(
                1,
                |p, c| Truncate::prepare(p, c, n, TruncateParams { range: Range::Full { digit: 4 }, ..CUT }),
                |p, r, c| on(p.run(c, of(r, &shares))),
            ),
        ),
        (
            "wide relu",
            recorded(
                1,
                |p, c| Relu::prepare(p, c, n, ReluParams::new(37)),
                |p, r, c| on(p.run(c, of(r, &shares))),
            ),
        ),
        (
            "bits",
            recorded(
                1,
                |p, c| BitToArithmetic::prepare(p, c, n, Modulus::power_of_two(9)),
                |p, _, c| on(p.run(c, &Bits::new(&vec![true; n]))),
            ),
        ),
        ("product", product_transcript(1, &shares)),
        ("square", square_transcript(1, &shares)),
        ("matrices", matrix_transcript(1, &shares)),
        ("matrices prepared", matrix_preparation(1, 600)),
        ("rows", row_transcript(1, &shares)),
        ("rows prepared", row_preparation(1, 600)),
        ("squares prepared", squares_preparation(1, 8000)),
        ("short squares", short_squares_transcript(1, &shares)),
        ("rows twice", twice_transcript(1, &shares)),
        ("rows twice prepared", twice_preparation(1, 600)),
        ("curve", curve_transcript(1, &shares)),
        ("curve prepared", curve_preparation(1, 700)),
        ("straight curve", straight_transcript(1, &shares)),
        ("level curve", level_transcript(1, &shares)),
        ("narrow curve", narrow_transcript(1, &shares)),
        ("odd relu", odd_relu_transcript(1, &shares)),
        ("odd relu6", odd_relu6_transcript(1, &shares)),
        ("odd extend", odd_extend_transcript(1, &shares, Range::Signed)),
        ("odd extend any", odd_extend_transcript(1, &shares, Range::Full { digit: 4 })),
    ];
    let found: Vec<String> = all
        .iter()
        .map(|(name, t)| {
            let hex: String = t.digest()[..8].iter().map(|b| format!("{b:02x}")).collect();
            format!("{name} {hex}")
        })
        .collect();
    assert_eq!(found, RECORDED);
}

/// The same bytes on any number of threads.
/// Steps on other threads say the same in the same order, and have the same results, as steps on the party's own thread.
#[test]
fn steps_on_all_threads_change_nothing() {
    if rayon::current_num_threads() == 1 {
        println!("skip: there is one thread only");
        return;
    }
    let n = 5 * (1 << 14) + 300;
    let shares = share(&words(3, n).iter().map(|&w| signed(w, 14)).collect::<Vec<_>>(), 16, 4);
    let pools = [0, 1].map(|_| rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let relu = ReluParams { output: odd(), ..ReluParams::new(16) };
    let pool = PoolShape { channels: 50, size: [40, 40], kernel: [3, 3], stride: [2, 2], pads: [1; 4] };
    let pooled: [Vec<u64>; 2] = shares.each_ref().map(|s| s[..50 * 1600].to_vec());
    let runs = |here: bool| {
        let results = std::sync::Mutex::new(Vec::new());
        let run = |blocks: Vec<Block>, role: Role, chan: &mut Channel, x: &[u64]| {
            let y = match here {
                // A thread of a pool takes its steps itself.
                true => pools[usize::from(role == Role::Server)].install(|| run_blocks(blocks, chan, x)),
                false => run_blocks(blocks, chan, x),
            }?;
            results.lock().unwrap().push((role == Role::Server, y));
            Ok(())
        };
        let layer: &dyn Nonlinear = &Elementwise { count: n, params: relu };
        let first = recorded(1, |p, c| layer.prepare(p, c), |p, role, c| run(p, role, c, of(role, &shares)));
        let layer: &dyn Nonlinear = &Pooling { shape: pool, params: PoolParams::new(16) };
        let second = recorded(2, |p, c| layer.prepare(p, c), |p, role, c| run(p, role, c, of(role, &pooled)));
        let mut results = results.into_inner().unwrap();
        // The two parties may end in any order.
        results[..2].sort_unstable();
        results[2..].sort_unstable();
        ([first.digest(), second.digest()], results)
    };
    assert!(runs(true) == runs(false));
}

#[test]
fn threads_change_nothing() {
    let shares = [words(1, 3000), words(2, 3000)].map(|s| s.iter().map(|w| w & 0xffff).collect::<Vec<u64>>());
    let params = ReluParams { output: Modulus::power_of_two(30), ..ReluParams::new(16) };
    let digest = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let prepare = |p: &mut TestParty, c: &mut Channel| pool.install(|| Relu::prepare(p, c, 3000, params));
        recorded(1, prepare, |p, role, c| p.run(c, of(role, &shares))).digest()
    };
    assert_eq!(digest(1), digest(3));
}

/// A truncation as Cheetah's networks run it.
const CUT: TruncateParams = TruncateParams { bits: 37, out_bits: 37, shift: 12, range: Range::NonNegative };

/// A product as networks run it.
const PRODUCT: ProductParams = ProductParams { out_bits: 24, shift: 20, offsets: [5, -1] };

const RECORDED: [&str; 29] = [
    "relu e01ef2a3d1fdd9a3",
    "relu6 b656816741e7702b",
    "extend 6643fcf405373417",
    "maxpool 26f6363f010e8395",
    "argmax 3a55baae6f57fa90",
    "less than cb9aba6790721ff0",
    "truncate 5e807ad69e0e16a4",
    "truncate any 2c556435452a5506",
    "wide relu 650ea76ac6b3e3d8",
    "bits 9519240429083843",
    "product 47b002a0bed812d3",
    "square 5e975080da99e120",
    "matrices cb9e02af23a4f3ff",
    "matrices prepared bba8ec957c40e913",
    "rows 01370c23357b28f8",
    "rows prepared 022c89e80b639ada",
    "squares prepared 07e0cf68e3a660d3",
    "short squares 9daf55bea773e224",
    "rows twice bccf569ec0e89069",
    "rows twice prepared 348a18b953713111",
    "curve f09110d6627e34f3",
    "curve prepared 23bbebc7b3792947",
    "straight curve d4886eae26658d68",
    "level curve 1ce7c51f8115e889",
    "narrow curve 5716bab585f24587",
    "odd relu 86e653d57973d4cb",
    "odd relu6 2257d99750da1687",
    "odd extend d58ca288435f2b2f",
    "odd extend any a223fdaee3c3fa7e",
];

/// One party over `chan` alone, with material whose other half nobody has.
fn alone<P>(
    role: Role,
    prepare: impl Fn(&mut TestParty, &mut Channel) -> Result<P, MpcError>,
    chan: &mut Channel,
) -> Result<P, MpcError> {
    prepare(&mut Party::new(role, InsecureTestDealer::new(3, role)), chan)
}

/// Runs every protocol as `role`, one after the other over a channel of its own from `connect`.
fn every_protocol(role: Role, connect: impl Fn() -> Channel) -> Vec<Result<(), MpcError>> {
    let n = 700;
    let x = words(1, n);
    let b = Bits::new(&x.iter().map(|w| w & 1 == 1).collect::<Vec<_>>());
    let shape = PoolShape { channels: 7, size: [10, 10], kernel: [3, 3], stride: [2, 2], pads: [1; 4] };
    let relu: Prepare<Relu> = |p, c| {
        Relu::prepare(p, c, 700, ReluParams { output: Modulus::power_of_two(40), ..ReluParams::new(16) })
    };
    let relu6: Prepare<Relu6> = |p, c| {
        Relu6::prepare(
            p,
            c,
            700,
            Relu6Params { output: Modulus::power_of_two(40), ..Relu6Params::new(20, 9) },
        )
    };
    let signed: Prepare<Extend> = |p, c| {
        Extend::prepare(
            p,
            c,
            700,
            ExtendParams { bits: 16, output: Modulus::power_of_two(48), range: Range::Signed },
        )
    };
    let odd_relu6: Prepare<Relu6> =
        |p, c| Relu6::prepare(p, c, 700, Relu6Params { output: odd(), ..Relu6Params::new(20, 9) });
    let odd_any: Prepare<Extend> = |p, c| {
        let range = Range::Full { digit: 3 };
        Extend::prepare(p, c, 700, ExtendParams { bits: 16, output: odd(), range })
    };
    vec![
        {
            let c = &mut connect();
            alone(role, relu, c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, relu6, c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, signed, c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| MaxPool::prepare(p, c, shape, PoolParams::new(16)), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Argmax::prepare(p, c, ArgmaxParams { count: n, bits: 16, digit: 4 }), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| NonNegative::prepare(p, c, n, 16, 3), c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Mux::prepare(p, c, n, 40), c).and_then(|p| p.run(c, &b, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| BitToArithmetic::prepare(p, c, n, Modulus::power_of_two(63)), c)
                .and_then(|p| p.run(c, &b))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Truncate::prepare(p, c, n, CUT), c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            let any = TruncateParams { range: Range::Full { digit: 4 }, ..CUT };
            alone(role, |p, c| Truncate::prepare(p, c, n, any), c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Product::prepare(p, c, n / 2, PRODUCT), c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            let params = SquareParams(PRODUCT);
            alone(role, |p, c| Square::prepare(p, c, n, params), c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            // (Few: the keys alone are 200 KB.)
            alone(role, |p, c| MatrixProduct::prepare(p, c, matrices(24)), c)
                .and_then(|p| p.run(c, &x[..24]))
                .map(drop)
        },
        {
            let c = &mut connect();
            let few = RowProductParams { rows: 3, columns: 4, ..by_rows(0) };
            alone(role, |p, c| RowProduct::prepare(p, c, few), c).and_then(|p| p.run(c, &x[..24])).map(drop)
        },
        {
            let c = &mut connect();
            let few = SquaredRowsParams { rows: 3, columns: 8, ..squared_row(0) };
            alone(role, |p, c| SquaredRows::prepare(p, c, few), c).and_then(|p| p.run(c, &x[..24])).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| RowsTwice::prepare(p, c, twice(3, 8)), c)
                .and_then(|p| run_twice(p, c, &x[..24]))
                .map(drop)
        },
        {
            let c = &mut connect();
            let long = squared_row(8000);
            alone(role, |p, c| SquaredRows::prepare(p, c, long), c)
                .and_then(|p| p.run(c, &[7; 8000]))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, odd_relu6, c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, odd_any, c).and_then(|p| p.run(c, &x)).map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Curve::prepare(p, c, n, &curve_params()), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Curve::prepare(p, c, n, &straight_params()), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Curve::prepare(p, c, n, &level_params()), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
        {
            let c = &mut connect();
            alone(role, |p, c| Curve::prepare(p, c, n, &narrow_params()), c)
                .and_then(|p| p.run(c, &x))
                .map(drop)
        },
    ]
}

#[test]
fn garbage_gives_wrong_values_or_an_error() {
    for role in [Role::Client, Role::Server] {
        for seed in 0..8 {
            let results = every_protocol(role, || {
                let (a, mut b) = memory_pair();
                let garbage: Vec<u8> = match seed {
                    0 => vec![0; 1 << 20],
                    1 => vec![0xff; 1 << 20],
                    _ => words(seed, 1 << 17).iter().flat_map(|w| w.to_le_bytes()).collect(),
                };
                b.send(&garbage).unwrap();
                b.flush().unwrap();
                // The far end stays open for as long as the test runs.
                std::mem::forget(b);
                a
            });
            for (i, result) in results.into_iter().enumerate() {
                // Only argmax has a result that can be seen to be wrong.
                let position = i == 4 && matches!(result, Err(MpcError::Wire(_)));
                assert!(result.is_ok() || position, "protocol {i}");
            }
        }
    }
}

/// The same of a product whose packs share an a half: keys of four secrets (`many_packs_share_an_a_half` says that they are).
#[test]
fn garbage_in_joint_keys_gives_wrong_values() {
    let matrices = Matrices { batch: 1, rows: 197, inner: 64, columns: 197, transposed: [false; 2] };
    let params = MatrixProductParams { out_bits: 26, shift: 16, matrices };
    let length = (params.cost().prepare_up + params.cost().up).div_ceil(8) as usize;
    for role in [Role::Client, Role::Server] {
        for seed in 0..3 {
            let (mut a, mut b) = memory_pair();
            let garbage: Vec<u8> = match seed {
                0 => vec![0; 8 * length],
                1 => vec![0xff; 8 * length],
                _ => words(seed, length).iter().flat_map(|w| w.to_le_bytes()).collect(),
            };
            b.send(&garbage).unwrap();
            b.flush().unwrap();
            let product = alone(role, |p, c| MatrixProduct::prepare(p, c, params), &mut a).unwrap();
            assert!(product.run(&mut a, &vec![7; 2 * 197 * 64]).is_ok());
        }
    }
}

#[test]
fn a_peer_that_stops_gives_an_error() {
    for role in [Role::Client, Role::Server] {
        for bytes in [0, 1, 40] {
            let results = every_protocol(role, || {
                let (a, mut b) = memory_pair();
                b.send(&vec![7; bytes]).unwrap();
                b.flush().unwrap();
                a
            });
            for (i, result) in results.into_iter().enumerate() {
                assert!(
                    matches!(result, Err(MpcError::Wire(_) | MpcError::Ot(_))),
                    "protocol {i}, {bytes} bytes"
                );
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_panics() {
    let n = 600;
    let values: Vec<i64> = words(5, n).iter().map(|&w| signed(w, 14)).collect();
    let shares = share(&values, 16, 6);
    let params = ReluParams { output: Modulus::power_of_two(30), ..ReluParams::new(16) };
    for byte in [0, 5, 1000, 2000, 5000, 9000] {
        let one = |role, mut chan: Channel| {
            let mut party = Party::new(role, InsecureTestDealer::new(1, role));
            let relu = Relu::prepare(&mut party, &mut chan, n, params).unwrap();
            let result = relu.run(&mut chan, of(role, &shares));
            chan.flush().unwrap();
            result.unwrap()
        };
        let (a, b) = memory_transports();
        let a = Faulty::new(a, Fault::FlipReceived { byte, bit: 3 });
        let (c, s) = std::thread::scope(|scope| {
            let client = scope.spawn(|| one(Role::Client, Channel::new(a)));
            let server = scope.spawn(|| one(Role::Server, Channel::new(b)));
            (client.join().unwrap(), server.join().unwrap())
        });
        let wrong = (0..n).filter(|&i| reference::open(c[i], s[i], 30) != reference::relu(values[i])).count();
        assert!(wrong <= 1, "one bit belongs to one element: {wrong} wrong");
    }
}

#[test]
fn misuse_is_an_error() {
    let params = ReluParams::new(16);
    for count in [0, 5, 7] {
        let result = both(
            1,
            |p, c| Relu::prepare(p, c, 6, params),
            |p, _, c| Ok(matches!(p.run(c, &vec![0; count]), Err(MpcError::Misuse { .. }))),
        );
        assert!(result[0].0 && result[1].0);
    }
    let refused = |result: Result<(), MpcError>| matches!(result, Err(MpcError::Misuse { .. }));
    let (mut chan, _peer) = memory_pair();
    let mut party = Party::new(Role::Client, InsecureTestDealer::new(1, Role::Client));
    let (p, c) = (&mut party, &mut chan);
    for bad in [
        ReluParams { bits: 2, ..params },
        ReluParams { bits: 49, output: Modulus::power_of_two(49), ..params },
        ReluParams { output: Modulus::power_of_two(15), ..params },
        ReluParams { output: Modulus::power_of_two(49), ..params },
        ReluParams { ignored: 15, ..params },
        ReluParams { digit: 0, ..params },
        ReluParams { digit: 5, ..params },
    ] {
        assert!(refused(Relu::prepare(p, c, 1, bad).map(drop)), "{bad:?}");
    }
    for bad in [
        Relu6Params::new(16, 0),
        Relu6Params::new(16, 15),
        Relu6Params { ignored: 4, ..Relu6Params::new(16, 4) },
        Relu6Params::new(37, 9),
    ] {
        assert!(refused(Relu6::prepare(p, c, 1, bad).map(drop)), "{bad:?}");
    }
    let extend = ExtendParams { bits: 16, output: Modulus::power_of_two(30), range: Range::Signed };
    for bad in [
        ExtendParams { output: Modulus::power_of_two(16), ..extend },
        ExtendParams { output: Modulus::power_of_two(49), ..extend },
        ExtendParams { range: Range::Full { digit: 5 }, ..extend },
    ] {
        assert!(refused(Extend::prepare(p, c, 1, bad).map(drop)), "{bad:?}");
    }
    for bad in [
        TruncateParams { bits: 49, out_bits: 38, ..CUT },
        TruncateParams { shift: 0, ..CUT },
        TruncateParams { shift: 37, out_bits: 1, ..CUT },
        TruncateParams { out_bits: 0, ..CUT },
        TruncateParams { out_bits: 52, ..CUT },
        TruncateParams { bits: 16, shift: 12, ..CUT },
        TruncateParams { range: Range::Full { digit: 0 }, ..CUT },
    ] {
        assert!(refused(Truncate::prepare(p, c, 1, bad).map(drop)), "{bad:?}");
    }
    for bad in [
        ProductParams { out_bits: 2, ..PRODUCT },
        ProductParams { out_bits: 62, shift: 1, ..PRODUCT },
        ProductParams { shift: 0, ..PRODUCT },
        ProductParams { shift: 40, ..PRODUCT },
    ] {
        assert!(refused(Product::prepare(p, c, 1, bad).map(drop)), "{bad:?}");
        assert!(refused(Square::prepare(p, c, 1, SquareParams(bad)).map(drop)), "{bad:?}");
    }
    let good = matrices(8);
    let of = |change: fn(&mut Matrices)| {
        let mut bad = good;
        change(&mut bad.matrices);
        bad
    };
    for bad in [
        MatrixProductParams { out_bits: 2, ..good },
        MatrixProductParams { out_bits: 40, shift: 1, ..good },
        MatrixProductParams { shift: 0, ..good },
        MatrixProductParams { shift: 35, ..good },
        of(|matrices| matrices.rows = usize::MAX),
        of(|matrices| matrices.batch = usize::MAX / 2),
    ] {
        assert!(bad.check().is_err() && refused(MatrixProduct::prepare(p, c, bad).map(drop)), "{bad:?}");
        assert_eq!(bad.cost(), Cost::default());
    }
    let by_row = |product: ProductParams| RowProductParams { product, ..by_rows(40) };
    for bad in [
        by_row(ProductParams { out_bits: 2, ..PRODUCT }),
        by_row(ProductParams { out_bits: 40, shift: 1, ..PRODUCT }),
        by_row(ProductParams { shift: 0, ..PRODUCT }),
        by_row(ProductParams { out_bits: 24, shift: 35, ..PRODUCT }),
        RowProductParams { rows: usize::MAX, ..by_rows(40) },
        RowProductParams { rows: usize::MAX / 2, columns: usize::MAX / 2, product: PRODUCT },
        RowProductParams { columns: (1 << 28) + 1, ..by_rows(10) },
    ] {
        assert!(bad.check().is_err() && !bad.pays(), "{bad:?}");
        assert!(refused(RowProduct::prepare(p, c, bad).map(drop)), "{bad:?}");
        assert_eq!(bad.cost(), Cost::default());
    }
    let squares = squared_row(8000);
    for bad in [
        SquaredRowsParams { out_bits: 2, ..squares },
        SquaredRowsParams { out_bits: 40, ..squares },
        SquaredRowsParams { shift: 0, ..squares },
        SquaredRowsParams { out_bits: 24, shift: 40, ..squares },
        SquaredRowsParams { columns: 0, ..squares },
        SquaredRowsParams { rows: usize::MAX, ..squares },
        SquaredRowsParams { rows: usize::MAX / 2, columns: usize::MAX / 2, ..squares },
        SquaredRowsParams { columns: (1 << 28) + 1, ..squares },
    ] {
        assert!(bad.check().is_err() && !bad.is_encrypted(), "{bad:?}");
        assert!(refused(SquaredRows::prepare(p, c, bad).map(drop)), "{bad:?}");
        assert_eq!(bad.cost(), Cost::default());
    }
    let good = twice(3, 40);
    let of = |change: fn(&mut RowsTwiceParams)| {
        let mut bad = good;
        change(&mut bad);
        bad
    };
    for bad in [
        of(|params| params.squares.out_bits = 40),
        of(|params| params.product.product.shift = 40),
        // Other rows, products in the wider ring, and shares made of other bits.
        of(|params| params.product.rows = 4),
        of(|params| params.product.product.shift = 24),
        of(|params| params.squares.out_bits = 25),
        // Too wide for a ring on record.
        of(|params| params.squares.shift = 39),
        of(|params| (params.squares.rows, params.product.rows) = (usize::MAX, usize::MAX)),
    ] {
        assert!(!bad.pays() && refused(RowsTwice::prepare(p, c, bad).map(drop)), "{bad:?}");
        assert!(bad.layers().iter().all(|layer| layer.check().is_err() && layer.cost() == Cost::default()));
    }
    // The second is nothing without the first, and takes its blocks once.
    let [first, second] = good.layers();
    assert!(refused(second.prepare(p, c).map(drop)));
    let mut blocks = first.prepare(p, c).unwrap();
    let behind = second.prepare_behind(&mut blocks, p, c).unwrap();
    assert!(refused(second.prepare_behind(&mut blocks, p, c).map(drop)));
    assert!(refused(second.prepare_behind(&mut [], p, c).map(drop)));
    // Neither runs before it is complete.
    assert!(refused(run_blocks(blocks, c, &[0; 120]).map(drop)));
    assert!(refused(run_blocks(behind, c, &[0; 240]).map(drop)));
    let curve = curve_params();
    let low = |low| Arc::new(Pieces { low, ..Pieces::clone(&curve.pieces) });
    for bad in [
        CurveParams { bits: 15, ..curve.clone() },
        CurveParams { bits: 49, ..curve.clone() },
        CurveParams { digit: 5, ..curve.clone() },
        CurveParams { out_bits: 8, ..curve.clone() },
        CurveParams { out_bits: 56, ..curve.clone() },
        CurveParams { pieces: low(0), ..curve.clone() },
        CurveParams { pieces: low(11), ..curve.clone() },
    ] {
        assert!(refused(Curve::prepare(p, c, 1, &bad).map(drop)), "{bad:?}");
    }
    let (straight, level) = (straight_params(), level_params());
    let begin = |begin| Arc::new(Pieces { beyond: Beyond::Level { begin }, ..Pieces::clone(&level.pieces) });
    for bad in [
        CurveParams { bits: 14, ..level.clone() },
        CurveParams { pieces: begin(1 << 14), ..level.clone() },
        CurveParams { pieces: begin(-(1 << 14) - 1), ..level.clone() },
    ] {
        assert!(refused(Curve::prepare(p, c, 1, &bad).map(drop)), "{bad:?}");
    }
    let changed = |change: fn(&mut Pieces)| {
        let mut pieces = Pieces::clone(&straight.pieces);
        change(&mut pieces);
        Arc::new(pieces)
    };
    for bad in [
        CurveParams { bits: 14, ..straight.clone() },
        CurveParams { bits: 40, out_bits: 40, ..straight.clone() },
        CurveParams { out_bits: 17, ..straight.clone() },
        CurveParams { pieces: changed(|p| p.slopes[127] = 63), ..straight.clone() },
        CurveParams { pieces: changed(|p| p.slopes[1] = 1), ..straight.clone() },
    ] {
        assert!(refused(Curve::prepare(p, c, 1, &bad).map(drop)), "{bad:?}");
    }
    assert!(refused(Argmax::prepare(p, c, ArgmaxParams { count: 0, bits: 16, digit: 4 }).map(drop)));
    assert!(refused(LessThan::prepare(p, c, 1, WIDEST + 1, 4).map(drop)));
    assert!(refused(NonNegative::prepare(p, c, 1, 2, 4).map(drop)));
    assert!(refused(Mux::prepare(p, c, 1, WIDEST + 1).map(drop)));
    assert_eq!(party.used(), Default::default());
}
