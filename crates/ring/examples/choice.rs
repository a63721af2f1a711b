//! How good the choice between limb planes and frequencies is on this machine: [`Spectral::best`] against every form it chooses from.
//!
//! `cargo run --release -p jaguar-ring --example choice [-- --repeats R --json FILE]`
//!
//! Products of maps packed P apart into rows of 2048, as an a half has them: all shapes between those given below, on one thread.
//! A time is the least of R runs, rows and planes included. The table gives, for each product, the matrix product's time, that of every
//! number of lanes, and by how much what was chosen is slower than the fastest. The JSON has what the rule's constants can be fitted to.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::spectral::{SpectralProduct, Wanted};
use jaguar_ring::{Kernel, LimbPlanes, PackedWeights, Prg, Spectral, Term, spa_gemm};
use serde_json::json;

const N: usize = 2048;
const WEIGHT_BITS: u32 = 14;

/// The choice of how an a half is computed.
#[derive(Parser)]
struct Options {
    /// Runs of each form.
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeats: usize,
    /// Where to write the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Microseconds: the least of some runs.
fn least(repeats: usize, mut f: impl FnMut()) -> f64 {
    let times = (0..repeats).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e6
    });
    times.fold(f64::INFINITY, f64::min)
}

struct Case {
    /// Distance of the maps.
    apart: usize,
    channels: usize,
    /// Shifts of each map: one of a 1×1 kernel, nine of a 3×3 kernel.
    shifts: usize,
    outs: usize,
    bits: u32,
}

fn products() -> Vec<Case> {
    let mut all = Vec::new();
    for (apart, channels, outs) in [
        (32, 2048, 1000),
        (64, 512, 512),
        (64, 512, 2048),
        (64, 2048, 512),
        (64, 160, 960),
        (256, 256, 256),
        (256, 1024, 256),
        (256, 96, 576),
        (512, 128, 512),
        (1024, 64, 128),
        (1024, 256, 64),
    ] {
        for shifts in [1, 9] {
            // The largest would take a minute.
            if channels * outs * shifts < 1 << 23 {
                all.extend([48, 54].map(|bits| Case { apart, channels, shifts, outs, bits }));
            }
        }
    }
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { repeats, json: file } = Options::parse();
    let kernel = Kernel::of(Cpu::detect());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!("{}, one thread, {repeats} runs; microseconds", kernel.name());
    println!("{:<34} {:>10}  {:<52} {:>8} {:>8}", "product", "planes", "lanes: time", "chosen", "slower");
    let (mut worst, mut lost, mut all, mut rows) = (1.0f64, 0.0, 0.0, Vec::new());
    for product in products() {
        let Case { apart, channels, shifts, outs, bits } = product;
        let maps = N / apart;
        let count = channels.div_ceil(maps);
        let terms: Vec<Term> = (0..channels)
            .flat_map(|c| (0..shifts).map(move |s| (c, s)))
            .map(|(c, s)| Term { row: (c / maps) as u32, offset: (c % maps * apart + s) as u32 })
            .collect();
        let mut prg = Prg::new([3; 32]);
        let mut words = vec![vec![0; N]; count];
        words.iter_mut().for_each(|row| prg.fill_words(row, bits));
        let most = (1i16 << (WEIGHT_BITS - 1)) - 1;
        let span = 2 * most as u64 + 1;
        let weights: Vec<i16> =
            (0..outs * terms.len()).map(|_| (prg.next_u64() % span) as i16 - most).collect();
        let packed = PackedWeights::new(outs, terms.len(), WEIGHT_BITS, &weights);
        let mut out = vec![0u64; outs * N];
        let planes = pool.install(|| {
            least(repeats, || {
                let mut planes = LimbPlanes::new(kernel, bits, count, N + N);
                words.iter().enumerate().for_each(|(row, words)| planes.set_row_negacyclic(row, words));
                spa_gemm(&planes, &terms, &packed, N, black_box(&mut out), N);
            })
        });
        let mut kept = vec![0u32; outs * N];
        let whole = SpectralProduct {
            n: N,
            bits,
            rows: count,
            terms: &terms,
            weight_bits: WEIGHT_BITS,
            wanted: Wanted::first(N),
        };
        let mut forms = Vec::new();
        for lanes in (0..6).map(|i| 32 << i).filter(|&lanes| N / lanes <= 64 && lanes < N) {
            let Some(plan) = Spectral::with_lanes(kernel, whole, lanes) else {
                continue;
            };
            let ordered = plan.weights(&packed);
            let time = pool.install(|| {
                least(repeats, || {
                    let rows = plan.rows(|row, to| to.copy_from_slice(&words[row]));
                    plan.multiply(&rows, &ordered, black_box(&mut kept), |_, words, kept| {
                        kept.iter_mut().zip(words).for_each(|(kept, &word)| *kept = (word >> 16) as u32);
                    });
                })
            });
            forms.push((lanes, plan.taps(), plan.primes(), time));
        }
        let best = Spectral::best(kernel, whole, outs);
        let chosen = best.and_then(|best| forms.iter().find(|form| form.0 == best.lanes()));
        let taken = chosen.map_or(planes, |form| form.3);
        let fastest = forms.iter().map(|form| form.3).fold(planes, f64::min);
        let slower = taken / fastest;
        (worst, lost, all) = (worst.max(slower), lost + taken - fastest, all + fastest);
        let size = if shifts == 1 { "1x1" } else { "3x3" };
        let name = format!("{channels}>{outs} {size}, {apart} apart, {bits} bits");
        let listed: Vec<String> = forms.iter().map(|form| format!("{}: {:.0}", form.0, form.3)).collect();
        let choice = chosen.map_or("planes".to_owned(), |form| form.0.to_string());
        println!("{name:<34} {planes:>10.0}  {:<52} {choice:>8} {slower:>7.2}x", listed.join(", "));
        rows.push(json!({
            "product": name, "rows": count, "terms": terms.len(), "outs": outs, "bits": bits, "planes_us": planes, "chosen": choice,
            "lanes": forms.iter().map(|(lanes, taps, primes, time)| json!({
                "lanes": lanes, "taps": taps, "primes": primes, "us": time,
            })).collect::<Vec<_>>(),
        }));
    }
    println!("chosen against fastest: {:.1} % in all, at worst {worst:.2}x", 100.0 * lost / all);
    if let Some(file) = file {
        let report = json!({ "kernel": kernel.name(), "n": N, "weight_bits": WEIGHT_BITS, "repeats": repeats, "products": rows });
        std::fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}
