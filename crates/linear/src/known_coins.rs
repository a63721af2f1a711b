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

/// The toy: hidden units that are rounded by coins, a ReLU, a second layer, and the server's noise. In plain numbers; the tests of
/// the backends take their own roundings.
pub struct Toy {
    form: Form,
    guard_bits: u32,
    hidden_noise: u32,
    opened_noise: u32,
    left_out: u32,
    prg: Prg,
}

/// A hidden value behind its rounding.
#[derive(Clone, Copy)]
pub struct Rounded {
    /// In units of the guard bits, the server's noise included where hidden values have it.
    pub value: i64,
    /// In 0..1; the client knows it.
    pub coin: f64,
    /// The low bits of the client's share, as many as there are guard bits.
    pub share: u64,
}

/// What a client sees of one query.
#[derive(Default)]
pub struct Asked {
    /// The coin of every unit, in 0..1.
    pub coins: Vec<f64>,
    /// The low bits of the client's share of every unit, in 0..1; all zero without guard bits.
    pub low: Vec<f64>,
    /// What the ReLU makes of every unit, in units of the last place above the guard bits. (The client does not see it.)
    units: Vec<f64>,
}

impl Toy {
    /// With noise as `form` says, for so many guard bits.
    pub fn new(form: Form, guard_bits: u32, prg: Prg) -> Self {
        let (hidden_noise, opened_noise, left_out) = match form {
            Form::Opened => (0, Hiding::by_guard_bits(guard_bits).noise_bits, 0),
            Form::Hidden => (guard_bits.saturating_sub(1), guard_bits.saturating_sub(1), guard_bits),
            Form::Nowhere => (0, 0, guard_bits),
        };
        Self { form, guard_bits, hidden_noise, opened_noise, left_out, prg }
    }

    /// One of the numbers that the toy is made of, in 0..1.
    pub fn draw(&mut self) -> f64 {
        uniform(&mut self.prg)
    }

    /// One query about hidden values, in units of the last place above the guard bits, before rounding: what is opened. `asked` is
    /// written anew.
    pub fn ask<const K: usize>(&mut self, values: &[f64], second: &Attack<K>, asked: &mut Asked) -> [f64; K] {
        let Asked { coins, low, units } = asked;
        [&mut *coins, &mut *low, &mut *units].into_iter().for_each(|of| of.resize(values.len(), 0.0));
        for (i, &value) in values.iter().enumerate() {
            let rounded = self.round(value);
            (coins[i], low[i]) = (rounded.coin, self.places(rounded.share as i64));
            units[i] = self.places(self.relu(rounded));
        }
        second.logits(units).map(|logit| self.open(logit))
    }

    /// A hidden value, in units of the last place above the guard bits, as its shares have it.
    pub fn round(&mut self, value: f64) -> Rounded {
        let coin = self.draw();
        let share = self.prg.next_u64() & self.share_mask();
        let exact = value * f64::from(1u32 << self.guard_bits);
        let rounded = exact.floor() as i64 + i64::from(coin < exact - exact.floor());
        let noise = opened_noise(random(&mut self.prg), self.hidden_noise);
        Rounded { value: rounded + noise, coin, share }
    }

    /// The ReLU of a value, in units of the guard bits.
    pub fn relu(&self, of: Rounded) -> i64 {
        relu_ignoring(of.value, self.left_out, of.share)
    }

    /// Which bits of a share [`Rounded::share`] has.
    pub fn share_mask(&self) -> u64 {
        (1 << self.guard_bits) - 1
    }

    /// Units of the guard bits in units of the last place above them.
    pub fn places(&self, units: i64) -> f64 {
        units as f64 / f64::from(1u32 << self.guard_bits)
    }

    /// A logit as it is opened: rounded by a coin, with the server's noise. Where there is none the client adds the coin again.
    pub fn open(&mut self, logit: f64) -> f64 {
        let unit = f64::from(1u32 << self.guard_bits);
        let (exact, coin) = (logit * unit, self.draw());
        let rounded = exact.floor() + f64::from(u8::from(coin < exact - exact.floor()));
        let own = if self.form == Form::Nowhere { coin - 0.5 } else { 0.0 };
        (rounded + own + opened_noise(random(&mut self.prg), self.opened_noise) as f64) / unit
    }
}

/// One image that is asked about again and again: 64 hidden units behind a linear layer.
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

    /// The toy and the values of its units, of which `near_zero` lie within half a unit of zero.
    pub fn toy(form: Form, guard_bits: u32, near_zero: usize) -> (Toy, Vec<f64>) {
        let mut toy = Toy::new(form, guard_bits, Prg::derive(&[1; 32], "known coins", &[]));
        let mut values: Vec<f64> = (0..Self::UNITS).map(|_| 6000.0 * (toy.draw() - 0.5)).collect();
        values[..near_zero].iter_mut().for_each(|v| *v = toy.draw() - 0.5);
        (toy, values)
    }

    /// So many queries, with so many guard bits; `near_zero` units lie within half a unit of zero.
    pub fn run(form: Form, guard_bits: u32, queries: u64, near_zero: usize) -> Self {
        let (mut toy, values) = Self::toy(form, guard_bits, near_zero);
        let (mut by_coin, mut by_low_bits) = (Attack::new(Self::UNITS), Attack::new(Self::UNITS));
        let mut asked = Asked::default();
        for _ in 0..queries {
            let opened = toy.ask(&values, &by_coin, &mut asked);
            by_coin.observe(&asked.coins, opened);
            by_low_bits.observe(&asked.low, opened);
        }
        Self { values, by_coin, by_low_bits }
    }

    /// The units that are active, and not near zero.
    pub fn active(&self) -> Vec<usize> {
        active(&self.values)
    }
}

/// The units whose values are positive, and not near zero.
pub fn active(values: &[f64]) -> Vec<usize> {
    (0..values.len()).filter(|&i| values[i] > 2.0).collect()
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
    /// Of two logits, of which the second is no later than the first.
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

    /// One query: the coin of every unit, in 0..1, and what was opened. Units that are alike may have several coins each, as many as the
    /// others: they stand side by side.
    pub fn observe(&mut self, coins: &[f64], opened: [f64; K]) {
        let origin = *self.origin.get_or_insert(opened);
        let seen: [f64; K] = std::array::from_fn(|k| opened[k] - origin[k]);
        self.total.iter_mut().zip(seen).for_each(|(total, seen)| *total += seen);
        for (k, row) in self.products.iter_mut().enumerate() {
            row.iter_mut().zip(&seen[..=k]).for_each(|(product, b)| *product += seen[k] * b);
        }
        self.queries += 1.0;
        let alike = coins.len() / self.units;
        for (i, &coin) in coins.iter().enumerate() {
            let (sums, count) = &mut self.sums[i / alike * BINS + (coin * BINS as f64) as usize];
            sums.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
            *count += 1.0;
        }
    }

    /// For `b <= a`.
    fn covariance(&self, a: usize, b: usize) -> f64 {
        self.products[a][b] / self.queries - self.total[a] / self.queries * self.total[b] / self.queries
    }

    /// The weights of a unit, by class.
    pub fn weights_of(&self, unit: usize) -> [f64; K] {
        std::array::from_fn(|k| self.weights[k * self.units + unit])
    }

    /// By how many units the logits move, as a Euclidean length, where this unit moves by one: the column of the Jacobian.
    pub fn column(&self, unit: usize) -> f64 {
        self.weights_of(unit).iter().map(|weight| weight.powi(2)).sum::<f64>().sqrt() / 2f64.powi(SHIFT)
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
            let coins: f64 = bins.iter().map(|(_, count)| count).sum();
            for (bin, (sums, count)) in bins[..BINS - 1].iter().enumerate() {
                below += count;
                for k in 0..K {
                    run[k] += sums[k] - count * mean[k];
                }
                let above = coins - below;
                if below == 0.0 || above == 0.0 {
                    continue;
                }
                let statistic =
                    (0..K).map(|k| run[k] * run[k] / variance[k]).sum::<f64>() * coins / (below * above);
                if statistic > found.statistic {
                    let step = run.map(|run| run * coins / (below * above));
                    found = Found { statistic, place: (bin + 1) as f64 / BINS as f64, step };
                }
            }
            found
        };
        self.sums.chunks(BINS).map(best).collect()
    }

    /// How the logits go with every unit's coin, whatever its fraction is, which may be another in each query: half as much as with the
    /// coin against the fraction.
    pub fn slopes(&self) -> Vec<Found<K>> {
        let mean = self.total.map(|total| total / self.queries);
        let slope = |bins: &[([f64; K], f64)]| {
            let (mut run, mut squares) = ([0.0; K], 0.0);
            for (bin, (sums, count)) in bins.iter().enumerate() {
                let coin = (bin as f64 + 0.5) / BINS as f64 - 0.5;
                squares += count * coin * coin;
                (0..K).for_each(|k| run[k] += coin * (sums[k] - count * mean[k]));
            }
            let statistic = (0..K).map(|k| run[k] * run[k] / self.covariance(k, k)).sum::<f64>() / squares;
            Found { statistic, place: 0.5, step: run.map(|run| run / squares) }
        };
        self.sums.chunks(BINS).map(slope).collect()
    }

    /// How well what was found of a unit points the way of its true weights: the cosine between them.
    pub fn likeness(&self, unit: usize, found: &Found<K>) -> f64 {
        cosine(&self.weights_of(unit), &found.step)
    }
}

/// The cosine of the angle between two vectors.
pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
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
