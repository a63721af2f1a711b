//! A client that only looks: what the coins of its roundings tell about a hidden layer, over many queries. Tests only.
//!
//! The client asks about one image again and again. Of every hidden unit it knows the coin by which the unit was rounded in
//! each query. It sorts the opened logits by one unit's coin and looks for a step: the step's place is the unit's fraction,
//! its height the next layer's weights of the unit. (`docs/attacks.md`; the first layer runs on the backend under test, what
//! follows is in the clear.)

use jaguar_graph::network::Hiding;
use jaguar_mpc::semantics::{opened_noise, relu_ignoring};
use jaguar_ring::prg::Prg;

/// Coins are told apart by so many parts of their range.
const BINS: usize = 64;

/// f of the second layer.
const SHIFT: i32 = 12;

/// The largest statistic of 64 units without any effect stays below this, but for an event of probability 10^-5: it is the largest
/// of 63 correlated chi-squares of so many degrees of freedom as logits, each beyond this with a probability of 10^-9 (Wilson and
/// Hilferty's approximation). For ten logits it is 65; the largest has its median at 19 and its 99.9th percentile at 40.
pub fn beyond_chance(logits: usize) -> f64 {
    let part = 2.0 / (9.0 * logits as f64);
    logits as f64 * (1.0 - part + 6.0 * part.sqrt()).powi(3)
}

/// What the client finds about one unit.
pub struct Found<const K: usize> {
    /// How well the best step explains the logits: against [`beyond_chance`].
    pub statistic: f64,
    /// Where it is, in 0..1 of the coin's range.
    pub place: f64,
    /// How high it is, by class.
    pub step: [f64; K],
}

/// Where the server's noise is, and what comparisons leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In what is opened alone; comparisons take the guard bits along: what Jaguar does.
    Opened,
    /// In the guard bits of every value, hidden ones too, with a standard deviation of 0.29 last places; comparisons leave them out:
    /// what Jaguar did before, and what the covariances of the logits give away.
    Hidden,
    /// Nowhere: the client knows the last rounding's coin too.
    Nowhere,
}

/// One image that is asked about again and again: 64 hidden units behind a linear layer, rounded by coins, then a ReLU and a second
/// layer. In plain numbers; the tests of the backends take their own roundings.
pub struct Simulation<const K: usize> {
    /// Hidden values before rounding, in units of the last place above the guard bits.
    pub values: Vec<f64>,
    /// What the client finds by the coins.
    pub by_coin: Attack<K>,
    /// What it finds by the low bits of its shares, which comparisons may leave out.
    pub by_low_bits: Attack<K>,
}

impl<const K: usize> Simulation<K> {
    /// Units of the hidden layer.
    pub const UNITS: usize = 64;

    /// So many queries, with so many guard bits; `near_zero` units lie within half a unit of zero.
    pub fn run(form: Form, guard_bits: u32, queries: u64, near_zero: usize) -> Self {
        let unit = f64::from(1u32 << guard_bits);
        let mut prg = Prg::derive(&[1; 32], "known coins", &[]);
        let mut values: Vec<f64> = (0..Self::UNITS).map(|_| 6000.0 * (uniform(&mut prg) - 0.5)).collect();
        values[..near_zero].iter_mut().for_each(|v| *v = uniform(&mut prg) - 0.5);
        let (mut by_coin, mut by_low_bits) = (Attack::new(Self::UNITS), Attack::new(Self::UNITS));
        let (mut coins, mut low) = (vec![0.0; Self::UNITS], vec![0.0; Self::UNITS]);
        let (hidden_bits, opened_bits, left_out) = match form {
            Form::Opened => (0, Hiding::by_guard_bits(guard_bits).noise_bits, 0),
            Form::Hidden => (guard_bits.saturating_sub(1), guard_bits.saturating_sub(1), guard_bits),
            Form::Nowhere => (0, 0, guard_bits),
        };
        for _ in 0..queries {
            let mut y = vec![0.0; Self::UNITS];
            for i in 0..Self::UNITS {
                coins[i] = uniform(&mut prg);
                let share = prg.next_u64() & ((1 << guard_bits) - 1);
                low[i] = share as f64 / unit;
                let exact = values[i] * unit;
                let rounded = exact.floor() as i64 + i64::from(coins[i] < exact - exact.floor());
                let noise = opened_noise(random(&mut prg), hidden_bits);
                y[i] = relu_ignoring(rounded + noise, left_out, share) as f64 / unit;
            }
            let logits = by_coin.logits(&y);
            let opened = logits.map(|logit| {
                // Rounded by a coin; where there is no noise the client adds it again.
                let (exact, coin) = (logit * unit, uniform(&mut prg));
                let rounded = exact.floor() + f64::from(u8::from(coin < exact - exact.floor()));
                let own = if form == Form::Nowhere { coin - 0.5 } else { 0.0 };
                (rounded + own + opened_noise(random(&mut prg), opened_bits) as f64) / unit
            });
            by_coin.observe(&coins, opened);
            by_low_bits.observe(&low, opened);
        }
        Self { values, by_coin, by_low_bits }
    }

    /// The units that are active, and not near zero.
    pub fn active(&self) -> Vec<usize> {
        (0..Self::UNITS).filter(|&i| self.values[i] > 2.0).collect()
    }
}

/// What noise is drawn from.
pub fn random(prg: &mut Prg) -> [u64; 2] {
    [prg.next_u64(), prg.next_u64()]
}

/// A second linear layer `[K][units]`, and what the client has seen of it.
pub struct Attack<const K: usize> {
    weights: Vec<f64>,
    units: usize,
    /// By unit and bin: sums of the logits that fell into it, and how many.
    sums: Vec<([f64; K], f64)>,
    total: [f64; K],
    products: Vec<[f64; K]>,
    queries: f64,
    /// The first query's logits, about which all sums are taken.
    origin: Option<[f64; K]>,
}

impl<const K: usize> Attack<K> {
    /// With a made-up second layer over so many units.
    pub fn new(units: usize) -> Self {
        let mut prg = Prg::derive(&[8; 32], "second layer", &[]);
        let mut weight = || (0..12).map(|_| uniform(&mut prg)).sum::<f64>() - 6.0;
        Self {
            weights: (0..K * units).map(|_| (700.0 * weight()).round()).collect(),
            units,
            sums: vec![([0.0; K], 0.0); units * BINS],
            total: [0.0; K],
            products: vec![[0.0; K]; K],
            queries: 0.0,
            origin: None,
        }
    }

    /// The logits before their own rounding, in units of the last place without guard bits.
    pub fn logits(&self, y: &[f64]) -> [f64; K] {
        let rows = self.weights.chunks(self.units);
        let mut logits = [0.0; K];
        for (logit, row) in logits.iter_mut().zip(rows) {
            *logit = row.iter().zip(y).map(|(w, y)| w * y).sum::<f64>() / 2f64.powi(SHIFT);
        }
        logits
    }

    /// One query: the coin of every unit, in 0..1, and what was opened.
    pub fn observe(&mut self, coins: &[f64], opened: [f64; K]) {
        let origin = *self.origin.get_or_insert(opened);
        let seen: [f64; K] = std::array::from_fn(|k| opened[k] - origin[k]);
        self.total.iter_mut().zip(seen).for_each(|(total, seen)| *total += seen);
        for (row, a) in self.products.iter_mut().zip(seen) {
            row.iter_mut().zip(seen).for_each(|(product, b)| *product += a * b);
        }
        self.queries += 1.0;
        for (unit, &coin) in coins.iter().enumerate() {
            let (sums, count) = &mut self.sums[unit * BINS + (coin * BINS as f64) as usize];
            sums.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
            *count += 1.0;
        }
    }

    fn covariance(&self, a: usize, b: usize) -> f64 {
        self.products[a][b] / self.queries - self.total[a] / self.queries * self.total[b] / self.queries
    }

    /// By how many units the logits move, as a Euclidean length, where this unit moves by one: the column of the Jacobian.
    pub fn column(&self, unit: usize) -> f64 {
        let squares = (0..K).map(|k| self.weights[k * self.units + unit].powi(2));
        squares.sum::<f64>().sqrt() / 2f64.powi(SHIFT)
    }

    /// How the covariances of different logits go with those of `W·D·Wᵀ`, D having ones at the `active` units: their correlation. Noise
    /// in hidden values makes it 1, and no coin is used.
    pub fn gram(&self, active: &[usize]) -> f64 {
        let row = |k: usize| &self.weights[k * self.units..][..self.units];
        let pairs = (0..K).flat_map(|a| (0..a).map(move |b| (a, b)));
        let (seen, truth): (Vec<f64>, Vec<f64>) = pairs
            .map(|(a, b)| {
                let truth = active.iter().map(|&i| row(a)[i] * row(b)[i]).sum::<f64>();
                (self.covariance(a, b), truth)
            })
            .unzip();
        let centred = |v: &[f64]| {
            let mean = v.iter().sum::<f64>() / v.len() as f64;
            v.iter().map(|v| v - mean).collect::<Vec<_>>()
        };
        let (seen, truth) = (centred(&seen), centred(&truth));
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        product(&seen, &truth) / (product(&seen, &seen) * product(&truth, &truth)).sqrt()
    }

    /// The best step of every unit.
    pub fn found(&self) -> Vec<Found<K>> {
        let mean = self.total.map(|total| total / self.queries);
        let variance: [f64; K] = std::array::from_fn(|k| self.covariance(k, k));
        let best = |bins: &[([f64; K], f64)]| {
            let mut found = Found { statistic: 0.0, place: 0.0, step: [0.0; K] };
            let (mut run, mut below) = ([0.0; K], 0.0);
            for (bin, (sums, count)) in bins[..BINS - 1].iter().enumerate() {
                below += count;
                for k in 0..K {
                    run[k] += sums[k] - count * mean[k];
                }
                let above = self.queries - below;
                if below == 0.0 || above == 0.0 {
                    continue;
                }
                let statistic = (0..K).map(|k| run[k] * run[k] / variance[k]).sum::<f64>() * self.queries
                    / (below * above);
                if statistic > found.statistic {
                    let step = run.map(|run| run * self.queries / (below * above));
                    found = Found { statistic, place: (bin + 1) as f64 / BINS as f64, step };
                }
            }
            found
        };
        self.sums.chunks(BINS).map(best).collect()
    }

    /// How well what was found of a unit points the way of its true weights: the cosine between them.
    pub fn likeness(&self, unit: usize, found: &Found<K>) -> f64 {
        let truth: Vec<f64> = (0..K).map(|k| self.weights[k * self.units + unit]).collect();
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let product: f64 = truth.iter().zip(found.step).map(|(a, b)| a * b).sum();
        product / (norm(&truth) * norm(&found.step))
    }
}

/// In 0..1.
pub fn uniform(prg: &mut Prg) -> f64 {
    (prg.next_u64() >> 11) as f64 / 2f64.powi(53)
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::{DEFAULT_GUARD_BITS, hidden_for};

    use super::*;

    fn seen<const K: usize>(attack: &Attack<K>, of: &[usize]) -> usize {
        let found = attack.found();
        of.iter().filter(|&&i| found[i].statistic > beyond_chance(K)).count()
    }

    /// Noise in hidden values is a probe: the logits' covariances show what is behind it, whatever the guard bits are.
    #[test]
    fn covariances_tell_of_hidden_noise_and_of_opened_noise_nothing() {
        for guard_bits in [4, DEFAULT_GUARD_BITS] {
            let of = |form| {
                let simulation = Simulation::<10>::run(form, guard_bits, 20_000, 0);
                simulation.by_coin.gram(&simulation.active())
            };
            let (hidden, opened) = (of(Form::Hidden), of(Form::Opened));
            assert!(hidden > 0.9, "{guard_bits}: {hidden}");
            // 45 covariances: by chance within 0.15 of zero mostly, and within 0.5 but for an event of probability 10^-3.
            assert!(opened.abs() < 0.5, "{guard_bits}: {opened}");
        }
    }

    /// Signs that leave the guard bits out show values near zero by the client's own low bits; whole ones do not.
    #[test]
    fn values_near_zero_show_themselves_to_partial_signs_alone() {
        let near: Vec<usize> = (0..8).collect();
        let of = |form| {
            seen(&Simulation::<10>::run(form, DEFAULT_GUARD_BITS, 50_000, near.len()).by_low_bits, &near)
        };
        assert!(of(Form::Hidden) >= 4);
        assert_eq!(of(Form::Opened), 0);
    }

    #[test]
    fn coins_show_themselves_where_there_is_no_noise() {
        let of = |form, guard_bits| {
            let simulation = Simulation::<10>::run(form, guard_bits, 5_000, 0);
            (seen(&simulation.by_coin, &simulation.active()), simulation.active().len())
        };
        let (found, all) = of(Form::Nowhere, 0);
        assert!(10 * found >= 9 * all, "{found} of {all}");
        assert_eq!(of(Form::Opened, DEFAULT_GUARD_BITS).0, 0);
    }

    /// The number of queries that [`hidden_for`] states: nothing shows itself within twice as many, in 10 logits and in 1,000, and
    /// it does after some hundred times as many. (The more logits there are, the more of the noise is in directions that tell nothing.)
    #[test]
    fn the_stated_number_of_queries_holds() {
        fn check<const K: usize>(many: f64) {
            let of = |times: f64| {
                let hiding = Hiding::by_guard_bits(2);
                let none = Simulation::<K>::run(Form::Opened, hiding.guard_bits, 0, 0);
                let active = none.active();
                let leverage = active.iter().map(|&i| none.by_coin.column(i)).fold(0.0, f64::max);
                let queries = times * hidden_for(hiding.noise_bits, leverage);
                let simulation = Simulation::<K>::run(Form::Opened, hiding.guard_bits, queries as u64, 0);
                (seen(&simulation.by_coin, &active), active.len(), queries)
            };
            let (found, all, queries) = of(2.0);
            assert_eq!(found, 0, "{K} logits, {queries} queries: of {all}");
            let (found, all, queries) = of(many);
            assert!(2 * found > all, "{K} logits, {queries} queries: {found} of {all}");
        }
        check::<10>(400.0);
        check::<100>(400.0);
        check::<1000>(1500.0);
    }
}
