//! What the coins of roundings tell a client that only looks: the simulation behind `docs/attacks.md`, *Rounding coins*.
//!
//! `cargo run --release -p jaguar-linear --example known_coins -- --guard-bits 8 --queries 2000000`
//!
//! One image, 64 hidden units behind a linear layer, 10 opened logits, or 100, or 1,000. Every unit is rounded by a coin that the client knows;
//! the client sorts the logits by it. `jaguar/coins.rs` runs the same attack on the real layer.

use clap::Parser;

#[allow(dead_code, reason = "the tests of backends use the rest")]
#[path = "../src/known_coins.rs"]
mod known_coins;

use jaguar_graph::network::{Hiding, hidden_for};
use known_coins::{Form, Simulation, beyond_chance};

#[derive(Parser)]
struct Args {
    /// g.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=12))]
    guard_bits: u32,
    /// How often the client asks.
    #[arg(long, default_value_t = 200_000)]
    queries: u64,
    /// Where the server's noise is: `opened`, as Jaguar has it; `hidden`, as it had; or `nowhere`.
    #[arg(long, default_value = "opened", value_parser = form)]
    form: Form,
    /// How many logits are opened: 10, 100 or 1000.
    #[arg(long, default_value = "10", value_parser = ["10", "100", "1000"])]
    logits: String,
    /// This many units lie within half a unit of zero.
    #[arg(long, default_value_t = 0)]
    near_zero: usize,
}

fn form(name: &str) -> Result<Form, String> {
    match name {
        "opened" => Ok(Form::Opened),
        "hidden" => Ok(Form::Hidden),
        "nowhere" => Ok(Form::Nowhere),
        _ => Err("it is opened, hidden or nowhere".into()),
    }
}

fn main() {
    let args = Args::parse();
    match args.logits.as_str() {
        "100" => run::<100>(&args),
        "1000" => run::<1000>(&args),
        _ => run::<10>(&args),
    }
}

fn run<const K: usize>(args: &Args) {
    let (g, unit) = (args.guard_bits, f64::from(1u32 << args.guard_bits));
    let simulation = Simulation::<K>::run(args.form, g, args.queries, args.near_zero);
    let Simulation { values, by_coin, by_low_bits } = &simulation;
    let active = simulation.active();
    let found = by_coin.found();
    let seen: Vec<usize> =
        active.iter().copied().filter(|&i| found[i].statistic > beyond_chance(K)).collect();
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
        "{} queries, {g} guard bits: by their coins {} of {} active units show themselves; statistic: median {:.0}, largest {:.0} (of one \
         that shows itself: {:.0}); the fraction of a value is found to {places:.3} (by chance 0.25); likeness of what was found to \
         the weights: all {:.2}, of those seen {:.2}",
        args.queries,
        seen.len(),
        active.len(),
        statistics[statistics.len() / 2],
        statistics[statistics.len() - 1],
        beyond_chance(K),
        likeness(&active),
        likeness(&seen)
    );
    let leverage = active.iter().map(|&i| by_coin.column(i)).fold(0.0, f64::max);
    println!(
        "a unit weighs up to {leverage:.2}: by the rule that compile takes they stay hidden for {:.0} queries",
        hidden_for(Hiding::by_guard_bits(g).noise_bits, leverage)
    );
    println!(
        "the covariances of the logits go with those of W D Wᵀ by {:.3} (by chance 0.15)",
        by_coin.gram(&active)
    );
    if g > 0 {
        let found = by_low_bits.found();
        let near = (0..Simulation::<K>::UNITS).filter(|&i| found[i].statistic > beyond_chance(K)).count();
        println!("by the low bits of the client's shares {near} units show themselves");
    }
}
