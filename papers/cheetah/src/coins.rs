//! The client that only looks ([`jaguar_linear::known_coins`]), against the truncation of products that this backend keeps whole.
//!
//! The layer itself gives exact products (`tests.rs`); the coin falls where they are truncated, behind the ReLU. The client's
//! share there is fresh and its own. [`shift_by_share`] is what `mpc`'s tests hold that protocol to.

use jaguar_graph::network::{DEFAULT_GUARD_BITS, Hiding};
use jaguar_mpc::semantics::{opened_noise, relu, shift_by_share};
use jaguar_ring::prg::Prg;

use jaguar_linear::known_coins::{Attack, beyond_chance, random, uniform};

const UNITS: usize = 64;
const SHIFT: u32 = 12;

/// Asks about one image so many times: how many units are active, and how many show themselves.
fn ask(queries: usize, guard_bits: u32) -> (usize, usize) {
    let mut prg = Prg::derive(&[11; 32], "products", &[]);
    let unit = f64::from(1 << guard_bits);
    let products: Vec<i64> =
        (0..UNITS).map(|_| ((uniform(&mut prg) - 0.5) * 6000.0 * unit * 4096.0) as i64).collect();
    let mut attack = Attack::<10>::new(UNITS);
    for _ in 0..queries {
        let (mut y, mut coins) = ([0.0; UNITS], [0.0; UNITS]);
        for i in 0..UNITS {
            // The layer's products, ReLU, and the truncation of its fresh shares.
            let share = prg.next_u64();
            y[i] = shift_by_share(relu(products[i]), SHIFT, share) as f64 / unit;
            coins[i] = (share & 0xfff) as f64 / 4096.0;
        }
        let mut noise =
            || opened_noise(random(&mut prg), Hiding::by_guard_bits(guard_bits).noise_bits) as f64 / unit;
        attack.observe(&coins, attack.logits(&y).map(|logit| logit + noise()));
    }
    let found = attack.found();
    let active: Vec<usize> = (0..UNITS).filter(|&i| products[i] > (2 * 4096) << guard_bits).collect();
    let seen = active.iter().filter(|&&i| found[i].statistic > beyond_chance(10)).count();
    (active.len(), seen)
}

#[test]
fn truncated_products_show_themselves_without_guard_bits_only() {
    let (active, seen) = ask(2_000, 0);
    assert!(active > 20 && 10 * seen >= 9 * active, "{seen} of {active} units");
    let (active, seen) = ask(20_000, DEFAULT_GUARD_BITS);
    assert!(active > 20 && seen == 0, "{seen} of {active} units");
}
