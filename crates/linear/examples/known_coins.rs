//! What the coins of roundings tell a client that only looks: the simulation behind `docs/attacks.md`, *Rounding coins*.
//!
//! `cargo run --release -p jaguar-linear --example known_coins -- --guard-bits 8 --queries 2000000`
//!
//! One image, 64 hidden units behind a linear layer, 10 opened logits. Every unit is rounded by a coin that the client knows;
//! the client sorts the logits by it. `jaguar/coins.rs` runs the same attack on the real layer.

use clap::{Parser, ValueEnum};
use jaguar_mpc::semantics::{guard_noise, relu_ignoring};
use jaguar_ring::prg::Prg;

#[path = "../src/known_coins.rs"]
mod known_coins;

use known_coins::{Attack, BEYOND_CHANCE, CLASSES, uniform};

/// Hidden units.
const UNITS: usize = 64;

#[derive(Parser)]
struct Args {
    /// g.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=12))]
    guard_bits: u32,
    /// How often the client asks.
    #[arg(long, default_value_t = 200_000)]
    queries: u64,
    /// What becomes of the guard bits.
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    /// This many units lie within half a unit of zero.
    #[arg(long, default_value_t = 0)]
    near_zero: usize,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Form {
    /// Carried along, with noise that the server adds: what Jaguar does.
    #[default]
    Noise,
    /// Carried along without noise.
    Carried,
    /// Dropped exactly by the comparison that follows.
    Dropped,
}

fn main() {
    let args = Args::parse();
    let g = args.guard_bits;
    let unit = f64::from(1u32 << g);
    let mut prg = Prg::derive(&[1; 32], "known coins", &[]);
    // Hidden values before rounding, in units of the last place without guard bits.
    let mut values: Vec<f64> = (0..UNITS).map(|_| 6000.0 * (uniform(&mut prg) - 0.5)).collect();
    values[..args.near_zero].iter_mut().for_each(|v| *v = uniform(&mut prg) - 0.5);

    let (mut by_coin, mut by_low_bits) = (Attack::new(UNITS), Attack::new(UNITS));
    let (mut coins, mut low) = (vec![0.0; UNITS], vec![0.0; UNITS]);
    for _ in 0..args.queries {
        let mut noise = || match args.form {
            Form::Noise => guard_noise(prg.next_u64(), g) as f64,
            Form::Carried | Form::Dropped => 0.0,
        };
        let noises: Vec<f64> = (0..UNITS).map(|_| noise()).collect();
        let last: [f64; CLASSES] = std::array::from_fn(|_| noise() / unit);
        let mut y = vec![0.0; UNITS];
        for i in 0..UNITS {
            coins[i] = uniform(&mut prg);
            let share = prg.next_u64() & ((1 << g) - 1);
            low[i] = share as f64 / unit;
            let exact = values[i] * unit;
            let rounded = exact.floor() + f64::from(u8::from(coins[i] < exact - exact.floor())) + noises[i];
            y[i] = match args.form {
                Form::Dropped => (rounded / unit).floor().max(0.0),
                _ => relu_ignoring(rounded as i64, g, share) as f64 / unit,
            };
        }
        let logits = by_coin.logits(&y);
        let opened = std::array::from_fn(|c| match args.form {
            Form::Noise => logits[c] + last[c],
            // Rounded by a coin that the client knows, and adds.
            Form::Carried | Form::Dropped => {
                let coin = uniform(&mut prg);
                logits[c].floor() + f64::from(u8::from(coin < logits[c] - logits[c].floor())) + coin - 0.5
            }
        });
        by_coin.observe(&coins, opened);
        by_low_bits.observe(&low, opened);
    }
    let active: Vec<usize> = (0..UNITS).filter(|&i| values[i] > 2.0).collect();
    let found = by_coin.found();
    let seen: Vec<usize> = active.iter().copied().filter(|&i| found[i].statistic > BEYOND_CHANCE).collect();
    let likeness = |of: &[usize]| {
        of.iter().map(|&i| by_coin.likeness(i, &found[i]).abs()).sum::<f64>() / of.len().max(1) as f64
    };
    // How far the step's place is from the value's fraction, in units of the coin's range.
    let place = |&i: &usize| {
        let error = (found[i].place - (values[i] * unit).rem_euclid(1.0)).abs();
        error.min(1.0 - error)
    };
    let places = active.iter().map(place).sum::<f64>() / active.len() as f64;
    let mut statistics: Vec<f64> = active.iter().map(|&i| found[i].statistic).collect();
    statistics.sort_by(f64::total_cmp);
    println!(
        "{} queries, {g} guard bits: by their coins {} of {} active units show themselves; statistic: median {:.0} (by chance \
         19), largest {:.0}; the fraction of a value is found to {places:.3} (by chance 0.25); likeness of what was found to \
         the weights: all {:.2} (by chance 0.26), of those seen {:.2}",
        args.queries,
        seen.len(),
        active.len(),
        statistics[statistics.len() / 2],
        statistics[statistics.len() - 1],
        likeness(&active),
        likeness(&seen)
    );
    if g > 0 {
        let found = by_low_bits.found();
        let near = (0..UNITS).filter(|&i| found[i].statistic > BEYOND_CHANCE).count();
        println!("by the bits that signs leave out {near} units show themselves");
    }
}
