//! Measures every kernel of `jaguar-ring` against its scalar twin, in one run.
//!
//! `cargo run --release -p jaguar-ring --example kernels [-- --threads T --repeats R --json FILE]`
//!
//! Times are the median and the best of R repeats on a rayon pool of T threads (default 1; the products and streams use one thread
//! in any case). Inputs are random. Repeats are timed one by one for the matrix products and in batches for what
//! takes microseconds.

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::product::prime::PrimeRing;
use jaguar_ring::spectral::{SpectralProduct, Wanted};
use jaguar_ring::{
    Kernel, LimbPlanes, Multiplier, PackedWeights, Prg, Spectral, Term, sample, spa_gemm_part,
};
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

const WORD_BITS: u32 = 48;
const WEIGHT_BITS: u32 = 12;

/// Kernels against their scalar twins.
#[derive(Parser)]
struct Options {
    /// Threads of the pool.
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: usize,
    /// Repeats of each measurement.
    #[arg(long, default_value_t = 9, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeats: usize,
    /// Where to write the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Seconds of one call: the median, and the least (what the machine does when nobody disturbs it).
#[derive(Clone, Copy)]
struct Time {
    median: f64,
    best: f64,
}

impl Time {
    /// `work` units a call as billions a second.
    fn rate(self, work: f64) -> Time {
        Time { median: work / self.median / 1e9, best: work / self.best / 1e9 }
    }

    fn microseconds(self) -> Time {
        Time { median: self.median * 1e6, best: self.best * 1e6 }
    }
}

/// Times `repeats` batches of `batch` calls of `f`, after one call to warm up.
fn time(repeats: usize, batch: usize, mut f: impl FnMut()) -> Time {
    f();
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            (0..batch).for_each(|_| f());
            start.elapsed().as_secs_f64() / batch as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Time { median: times[times.len() / 2], best: times[0] }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    name.unwrap_or(std::env::consts::ARCH).to_string()
}

/// One row of the table; `speedup` is over the scalar twin, median against median.
fn report(rows: &mut Vec<Value>, what: &str, kernel: &str, value: Time, unit: &str, speedup: Option<f64>) {
    let ratio = speedup.map_or(String::new(), |speedup| format!("{speedup:.1}x"));
    let Time { median, best } = value;
    println!("{what:<48} {kernel:<12} {median:>9.2} {best:>9.2} {unit:<7} {ratio:>7}");
    rows.push(json!({
        "what": what, "kernel": kernel, "median": median, "best": best, "unit": unit, "speedup_over_scalar": speedup,
    }));
}

struct Shape {
    name: &'static str,
    terms: usize,
    outs: usize,
    len: usize,
    batch: usize,
}

fn gemm(rows: &mut Vec<Value>, repeats: usize, shape: &Shape) {
    let Shape { name, terms, outs, len, batch } = *shape;
    let mut prg = Prg::new([1; 32]);
    // Nine terms a row, as a 3x3 kernel has, or one.
    let per_row = if terms.is_multiple_of(9) { 9 } else { 1 };
    let row_count = terms / per_row;
    let row_len = len + 128;
    let mut planes = LimbPlanes::new(Kernel::of(Cpu::detect()), WORD_BITS, row_count, row_len);
    let mut words = vec![0; row_len];
    for row in 0..row_count {
        prg.fill_words(&mut words, WORD_BITS);
        planes.set_row(row, &words);
    }
    let terms: Vec<Term> =
        (0..terms).map(|t| Term { row: (t / per_row) as u32, offset: (t % per_row * 11) as u32 }).collect();
    let most = (1i16 << (WEIGHT_BITS - 1)) - 1;
    let weights: Vec<i16> =
        (0..outs * terms.len()).map(|_| (prg.next_u64() % (2 * most as u64 + 1)) as i16 - most).collect();
    let packed = PackedWeights::new(outs, terms.len(), WEIGHT_BITS, &weights);
    let mut out = vec![0; outs * len];
    let work = (outs * terms.len() * len) as f64;
    let mut scalar = 0.0;
    for kernel in Kernel::all(Cpu::detect()) {
        // The twin takes seconds on the long shapes: fewer repeats.
        let repeats = if kernel == Kernel::SCALAR && work > 1e9 { repeats.min(3) } else { repeats };
        let rate = time(repeats, batch, || {
            spa_gemm_part(kernel, &planes, &terms, &packed, 0..outs, len, black_box(&mut out), len);
        })
        .rate(work);
        if kernel == Kernel::SCALAR {
            scalar = rate.median;
        }
        report(rows, name, kernel.name(), rate, "Gmac/s", Some(rate.median / scalar));
    }
}

/// Maps packed into one row of 2048, each seen through `shifts` shifts.
struct Packed {
    name: &'static str,
    lanes: usize,
    rows: usize,
    shifts: usize,
    outs: usize,
    word_bits: u32,
}

/// Multiply-adds are those of the same product as a matrix product over terms.
fn spectral(rows: &mut Vec<Value>, repeats: usize, shape: &Packed) {
    const N: usize = 2048;
    let Packed { name, lanes, rows: row_count, shifts, outs, word_bits } = *shape;
    let mut prg = Prg::new([4; 32]);
    let mut words = vec![vec![0; N]; row_count];
    words.iter_mut().for_each(|row| prg.fill_words(row, word_bits));
    let term =
        |row: usize, map: usize, shift: usize| Term { row: row as u32, offset: (map * lanes + shift) as u32 };
    let terms: Vec<Term> = (0..row_count)
        .flat_map(|row| (0..N / lanes).map(move |map| (row, map)))
        .flat_map(|(row, map)| (0..shifts).map(move |shift| term(row, map, shift)))
        .collect();
    let most = (1i16 << (WEIGHT_BITS - 1)) - 1;
    let weights: Vec<i16> =
        (0..outs * terms.len()).map(|_| (prg.next_u64() % (2 * most as u64 + 1)) as i16 - most).collect();
    let packed = PackedWeights::new(outs, terms.len(), WEIGHT_BITS, &weights);
    let mut out = vec![0u32; outs * N];
    let work = (outs * terms.len() * N) as f64;
    let mut scalar = 0.0;
    for kernel in Kernel::all(Cpu::detect()) {
        let repeats = if kernel == Kernel::SCALAR { repeats.min(3) } else { repeats };
        let product = SpectralProduct {
            n: N,
            bits: word_bits,
            rows: row_count,
            terms: &terms,
            weight_bits: WEIGHT_BITS,
            wanted: Wanted::first(N),
        };
        let plan = Spectral::with_lanes(kernel, product, lanes);
        let plan = plan.expect("a product that six primes cover");
        let ordered = plan.weights(&packed);
        let transformed = plan.rows(|row, to| to.copy_from_slice(&words[row]));
        let multiply = time(repeats, 1, || {
            plan.multiply(&transformed, &ordered, black_box(&mut out), |_, words, out| {
                out.iter_mut().zip(words).for_each(|(out, &word)| *out = (word >> 16) as u32);
            });
        });
        let prepare = time(repeats, 1, || {
            drop(black_box(plan.rows(|row, to| to.copy_from_slice(&words[row]))));
        });
        let order = time(repeats, 1, || drop(black_box(plan.weights(&packed))));
        if kernel == Kernel::SCALAR {
            scalar = multiply.median;
        }
        let per_output = Time { median: multiply.median / outs as f64, best: multiply.best / outs as f64 };
        let what = |part: &str| format!("{name}: {part}");
        let gain = Some(scalar / multiply.median);
        report(rows, &what("product"), kernel.name(), multiply.rate(work), "Gmac/s", gain);
        report(rows, &what("an output"), kernel.name(), per_output.microseconds(), "us", gain);
        report(rows, &what("all rows"), kernel.name(), prepare.microseconds(), "us", None);
        report(rows, &what("weights' order"), kernel.name(), order.microseconds(), "us", None);
    }
}

fn product(rows: &mut Vec<Value>, repeats: usize, n: usize, bits: u32) {
    let mut prg = Prg::new([2; 32]);
    let (mut x, mut s, mut out) = (vec![0; n], vec![0i8; n], vec![0; n]);
    prg.fill_words(&mut x, bits);
    sample::ternary(Kernel::of(Cpu::detect()), &mut prg, &mut s);
    let mut scalar = [0.0; 4];
    for kernel in Kernel::all(Cpu::detect()) {
        let multiplier = Multiplier::new(kernel, n);
        let small = multiplier.prepare_small(&s);
        let wide = multiplier.prepare_wide(&x, bits);
        let times = [
            (
                "product, small side prepared",
                time(repeats, 100, || multiplier.multiply_into(&x, bits, &small, black_box(&mut out))),
            ),
            (
                "product, both sides prepared",
                time(repeats, 100, || multiplier.multiply(&wide, &small, black_box(&mut out))),
            ),
            ("prepare small", time(repeats, 100, || drop(black_box(multiplier.prepare_small(&s))))),
            ("prepare wide", time(repeats, 100, || drop(black_box(multiplier.prepare_wide(&x, bits))))),
        ];
        for ((what, time), scalar) in times.into_iter().zip(&mut scalar) {
            if kernel == Kernel::SCALAR {
                *scalar = time.median;
            }
            let what = format!("{what}, n = {n}, {bits} bits");
            report(rows, &what, kernel.name(), time.microseconds(), "us", Some(*scalar / time.median));
        }
    }
}

/// Products modulo one prime: a prepared operand times a small one, both sides; `count` coefficients come back.
fn prime_product(rows: &mut Vec<Value>, repeats: usize, n: usize, count: usize) {
    let mut prg = Prg::new([4; 32]);
    let (mut x, mut s, mut out) = (vec![0; n], vec![0i8; n], vec![0; count]);
    prg.fill_words(&mut x, WORD_BITS);
    sample::ternary(Kernel::of(Cpu::detect()), &mut prg, &mut s);
    let mut scalar = [0.0; 2];
    for kernel in Kernel::all(Cpu::detect()) {
        let ring = PrimeRing::new(kernel, n, 26);
        let (mut small, mut received) = (ring.small(), ring.residues());
        let wide = ring.round_at_random(&x, WORD_BITS, &mut prg);
        ring.round_into(&x, WORD_BITS, &mut received);
        ring.small_into(&s, &mut small);
        // What is left of a received operand is residues again: as good as any.
        let received_time = time(repeats, 100, || {
            ring.multiply_received_into(&mut received, &small, WORD_BITS, 1, black_box(&mut out));
        });
        let both_time = time(repeats, 100, || {
            ring.small_into(&s, &mut small);
            ring.multiply_into(&wide, &small, &mut received, WORD_BITS, 1, black_box(&mut out));
        });
        let times =
            [("one prime, received operand", received_time), ("one prime, small side too", both_time)];
        for ((what, time), scalar) in times.into_iter().zip(&mut scalar) {
            if kernel == Kernel::SCALAR {
                *scalar = time.median;
            }
            let what = format!("{what}, n = {n}, first {count}");
            report(rows, &what, kernel.name(), time.microseconds(), "us", Some(*scalar / time.median));
        }
    }
}

/// What has no kernel of its own: the AES crate chooses its instructions, the samplers are plain Rust.
fn streams(rows: &mut Vec<Value>, repeats: usize) {
    let mut prg = Prg::new([3; 32]);
    let mut bytes = vec![0u8; 1 << 20];
    let mut words = vec![0u64; 1 << 17];
    let mut small = vec![0i8; 2048];
    let kernel = Kernel::of(Cpu::detect());
    let mut planes = LimbPlanes::new(kernel, WORD_BITS, 1, 4096);
    let source: Vec<u64> = (0..2048).map(|_| prg.next_u64()).collect();
    let size = bytes.len() as f64;
    let rates = [
        ("stream, 1 MiB", time(repeats, 10, || prg.fill(black_box(&mut bytes))).rate(size)),
        (
            "stream, 48-bit words, 1 MiB",
            time(repeats, 10, || prg.fill_words(black_box(&mut words), 48)).rate(size),
        ),
        ("stream, 64 bytes", time(repeats, 10_000, || prg.fill(black_box(&mut bytes[..64]))).rate(64.0)),
    ];
    for (what, rate) in rates {
        report(rows, what, "", rate, "GB/s", None);
    }
    let times = [
        ("derive a stream", time(repeats, 1000, || drop(black_box(Prg::derive(&[1; 32], "label", &[1, 2]))))),
        ("ternary, 2048", time(repeats, 100, || sample::ternary(kernel, &mut prg, black_box(&mut small)))),
        ("noise, 2048", time(repeats, 100, || sample::noise(kernel, &mut prg, black_box(&mut small)))),
        (
            "limb planes, negacyclic row of 2048 words",
            time(repeats, 100, || planes.set_row_negacyclic(0, black_box(&source))),
        ),
    ];
    for (what, time) in times {
        report(rows, what, "", time.microseconds(), "us", None);
    }
}

fn main() -> Result<(), String> {
    let Options { threads, repeats, json } = Options::parse();
    let processor = processor();
    println!("{processor}, {threads} threads, median and best of {repeats} repeats");
    println!("matrix products: words of {WORD_BITS} bits, weights of {WEIGHT_BITS}\n");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    pool.install(|| {
        for shape in [
            Shape {
                name: "64 terms -> 256 outputs, 2048 positions",
                terms: 64,
                outs: 256,
                len: 2048,
                batch: 4,
            },
            Shape {
                name: "4608 terms -> 512 outputs, 2048 positions",
                terms: 4608,
                outs: 512,
                len: 2048,
                batch: 1,
            },
            Shape {
                name: "512 terms -> 512 outputs, 64 positions",
                terms: 512,
                outs: 512,
                len: 64,
                batch: 4,
            },
            Shape { name: "9 terms -> 1 output, 2048 positions", terms: 9, outs: 1, len: 2048, batch: 1000 },
        ] {
            gemm(&mut rows, repeats, &shape);
        }
        for shape in [
            Packed {
                name: "7x7 3x3 512>512",
                lanes: 64,
                rows: 16,
                shifts: 9,
                outs: 512,
                word_bits: WORD_BITS,
            },
            Packed {
                name: "7x7 1x1 512>512",
                lanes: 64,
                rows: 16,
                shifts: 1,
                outs: 512,
                word_bits: WORD_BITS,
            },
            Packed {
                name: "14x14 1x1 256>256",
                lanes: 256,
                rows: 32,
                shifts: 1,
                outs: 256,
                word_bits: WORD_BITS,
            },
            Packed {
                name: "7x7 1x1 512>512, 54 bits",
                lanes: 64,
                rows: 16,
                shifts: 1,
                outs: 512,
                word_bits: 54,
            },
            Packed {
                name: "1x1 2048>1000",
                lanes: 32,
                rows: 1,
                shifts: 32,
                outs: 1000,
                word_bits: WORD_BITS,
            },
        ] {
            spectral(&mut rows, repeats, &shape);
        }
        product(&mut rows, repeats, 2048, 48);
        for count in [64, 208, 2048] {
            prime_product(&mut rows, repeats, 2048, count);
        }
        product(&mut rows, repeats, 4096, 53);
        streams(&mut rows, repeats);
    });
    if let Some(path) = json {
        let all = json!({
            "processor": processor, "threads": threads, "repeats": repeats,
            "word_bits": WORD_BITS, "weight_bits": WEIGHT_BITS, "results": rows,
        });
        let text = serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
