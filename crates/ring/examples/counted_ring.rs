//! Runs one kernel of `jaguar-ring` some times, for a tool that counts instructions (`tools/arm_counts.py`).
//!
//! `counted_ring` lists kernels and instruction sets; `counted_ring WHAT SET TIMES` runs. Two runs with different TIMES differ by nothing else.

use std::hint::black_box;

use jaguar_ring::cpu::Cpu;
use jaguar_ring::modular::{Ntt, primes};
use jaguar_ring::product::prime::PrimeRing;
use jaguar_ring::spectral::{SpectralProduct, Wanted};
use jaguar_ring::{
    Kernel, LimbPlanes, Multiplier, PackedWeights, Prg, Spectral, Term, sample, spa_gemm_part,
};

const N: usize = 2048;
const BITS: u32 = 48;
const WEIGHT_BITS: u32 = 12;

const WHAT: [&str; 12] = [
    "transform-small",
    "transform-words",
    "product",
    "prime-product",
    "prime-small",
    "matrix",
    "matrix-one-output",
    "frequencies",
    "limbs",
    "ternary",
    "noise",
    "transform-64",
];

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, set, times] = arguments.as_slice() else {
        println!("{}", WHAT.join(" "));
        println!("{}", Kernel::all(Cpu::detect()).map(Kernel::name).collect::<Vec<_>>().join(" "));
        return Ok(());
    };
    let kernel = Kernel::all(Cpu::detect()).find(|kernel| kernel.name() == set);
    let kernel = kernel.ok_or_else(|| format!("no instructions {set} here"))?;
    let times: usize = times.parse().map_err(|_| format!("{times} is no number of times"))?;
    let mut run = prepare(what, kernel)?;
    // On this thread: its tasks would otherwise wait for each other, in loops that count.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    pool.map_err(|e| e.to_string())?.install(|| (0..times).for_each(|_| run()));
    Ok(())
}

/// What runs `what` once.
fn prepare(what: &str, kernel: Kernel) -> Result<Box<dyn FnMut() + Send>, String> {
    let mut prg = Prg::new([1; 32]);
    let (mut words, mut small, mut out) = (vec![0; N], vec![0i8; N], vec![0; N]);
    prg.fill_words(&mut words, BITS);
    sample::ternary(kernel, &mut prg, &mut small);
    let multiplier = Multiplier::new(kernel, N);
    let ring = PrimeRing::new(kernel, N, 26);
    Ok(match what {
        "transform-small" => Box::new(move || drop(black_box(multiplier.prepare_small(&small)))),
        "transform-words" => Box::new(move || drop(black_box(multiplier.prepare_wide(&words, BITS)))),
        "product" => {
            let (words, small) = (multiplier.prepare_wide(&words, BITS), multiplier.prepare_small(&small));
            Box::new(move || multiplier.multiply(&words, &small, black_box(&mut out)))
        }
        "prime-product" => {
            let (mut received, mut prepared) = (ring.residues(), ring.small());
            ring.round_into(&words, BITS, &mut received);
            ring.small_into(&small, &mut prepared);
            Box::new(move || {
                ring.multiply_received_into(&mut received, &prepared, BITS, 1, black_box(&mut out))
            })
        }
        "prime-small" => {
            let mut prepared = ring.small();
            Box::new(move || ring.small_into(&small, black_box(&mut prepared)))
        }
        "matrix" => matrix(kernel, 64, 64, 256),
        "matrix-one-output" => matrix(kernel, 9, 1, N),
        "frequencies" => frequencies(kernel)?,
        "limbs" => {
            let mut planes = LimbPlanes::new(kernel, BITS, 1, 2 * N);
            Box::new(move || planes.set_row_negacyclic(0, black_box(&words)))
        }
        "ternary" => Box::new(move || sample::ternary(kernel, &mut prg, black_box(&mut small))),
        "noise" => Box::new(move || sample::noise(kernel, &mut prg, black_box(&mut small))),
        "transform-64" => {
            let prime = primes(50, 2 * N as u64).next().ok_or("no prime of 50 bits")?;
            let ntt = Ntt::new(N, prime).ok_or("no transform modulo this prime")?.on(kernel);
            words.iter_mut().for_each(|word| *word %= prime);
            Box::new(move || ntt.forward(black_box(&mut words)))
        }
        _ => return Err(format!("no kernel {what}")),
    })
}

fn weights(prg: &mut Prg, outs: usize, terms: usize) -> PackedWeights {
    let most = (1i16 << (WEIGHT_BITS - 1)) - 1;
    let mut next = || (prg.next_u64() % (2 * most as u64 + 1)) as i16 - most;
    let weights: Vec<i16> = (0..outs * terms).map(|_| next()).collect();
    PackedWeights::new(outs, terms, WEIGHT_BITS, &weights)
}

fn matrix(kernel: Kernel, terms: usize, outs: usize, len: usize) -> Box<dyn FnMut() + Send> {
    let mut prg = Prg::new([2; 32]);
    let mut planes = LimbPlanes::new(kernel, BITS, terms, len);
    let mut words = vec![0; len];
    for row in 0..terms {
        prg.fill_words(&mut words, BITS);
        planes.set_row(row, &words);
    }
    let packed = weights(&mut prg, outs, terms);
    let terms: Vec<Term> = (0..terms as u32).map(|row| Term { row, offset: 0 }).collect();
    let mut out = vec![0; outs * len];
    Box::new(move || spa_gemm_part(kernel, &planes, &terms, &packed, 0..outs, len, black_box(&mut out), len))
}

/// A 1×1 layer of 128 channels to 64 in maps of 7×7: the rows' transforms, the products, and the way back.
fn frequencies(kernel: Kernel) -> Result<Box<dyn FnMut() + Send>, String> {
    const LANES: usize = 64;
    let mut prg = Prg::new([3; 32]);
    let (rows, outs) = (4, 64);
    let mut words = vec![vec![0; N]; rows];
    words.iter_mut().for_each(|row| prg.fill_words(row, BITS));
    let term = |row: usize, map: usize| Term { row: row as u32, offset: (map * LANES) as u32 };
    let terms: Vec<Term> = (0..rows).flat_map(|row| (0..N / LANES).map(move |map| term(row, map))).collect();
    let packed = weights(&mut prg, outs, terms.len());
    let wanted = Wanted::first(N);
    let product = SpectralProduct { n: N, bits: BITS, rows, terms: &terms, weight_bits: WEIGHT_BITS, wanted };
    let plan =
        Spectral::with_lanes(kernel, product, LANES).ok_or("a product that six primes do not cover")?;
    let ordered = plan.weights(&packed);
    let mut out = vec![0u32; outs * N];
    Ok(Box::new(move || {
        let transformed = plan.rows(|row, to| to.copy_from_slice(&words[row]));
        plan.multiply(&transformed, &ordered, black_box(&mut out), |_, words, out| {
            out.iter_mut().zip(words).for_each(|(out, &word)| *out = (word >> 16) as u32);
        });
    }))
}
