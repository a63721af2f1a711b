//! A client that chooses its images, against what its coins tell then: images of one colour, and images along a line. Tests only.
//!
//! Of an image of one colour all values of a channel are equal, away from the border: they have one fraction, all max-pool's windows are
//! ties, and behind an average pool they share a column of the Jacobian too. So every query brings as many coins for one fraction and
//! one column as there are places ([`Constant`]).
//!
//! Along a line of images each hidden value moves by itself. Where it passes zero the logits bend by its column. That needs no coin:
//! it is what the answers of any protocol tell ([`Line`]).

use jaguar_graph::network::hidden_for;
use jaguar_ring::prg::Prg;

use crate::known_coins::{Asked, Attack, Form, Rounded, Toy, cosine, uniform};

/// Channels of the image of one colour, and places of each that are alike.
pub const CHANNELS: usize = 8;
pub const PLACES: usize = 64;

/// What divides the squares of values that share their weights, in the leverage (`graph/src/leverage.rs`).
const TOGETHER: f64 = 25.0;

/// One image of one colour, asked about again and again: 8 channels, max-pool, ReLU, the mean over 64 places, a second layer.
pub struct Constant<const K: usize> {
    /// What the client finds by its coins.
    pub by_coin: Attack<K>,
    /// By the low bits of its shares.
    pub by_low_bits: Attack<K>,
    /// By coins that are not its own: what answers and chance give.
    pub by_chance: Attack<K>,
}

impl<const K: usize> Constant<K> {
    /// So many queries; `near_zero`: all values are within half a last place above zero. Each of the max-pool's windows has `tied`
    /// values.
    pub fn run(form: Form, guard_bits: u32, queries: u64, near_zero: bool, tied: usize) -> Self {
        let mut toy = Toy::new(form, guard_bits, Prg::derive(&[1; 32], "one colour", &[]));
        let mut others = Prg::derive(&[1; 32], "others' coins", &[]);
        let values: Vec<f64> =
            (0..CHANNELS).map(|_| toy.draw() * if near_zero { 0.5 } else { 3000.0 }).collect();
        let new = || Attack::new(CHANNELS);
        let mut all = Self { by_coin: new(), by_low_bits: new(), by_chance: new() };
        let (mut coins, mut low) = (vec![0.0; CHANNELS * PLACES], vec![0.0; CHANNELS * PLACES]);
        for _ in 0..queries {
            let mut sums = [0; CHANNELS];
            for i in 0..coins.len() {
                let (largest, coin) = pooled(&mut toy, values[i / PLACES], tied);
                (coins[i], low[i]) = (coin, toy.places(largest.share as i64));
                sums[i / PLACES] += toy.relu(largest);
            }
            let logits = all.by_coin.logits(&sums.map(|sum| toy.places(sum)));
            let opened = logits.map(|logit| toy.open(logit));
            all.by_coin.observe(&coins, opened);
            all.by_low_bits.observe(&low, opened);
            coins.fill_with(|| uniform(&mut others));
            all.by_chance.observe(&coins, opened);
        }
        all
    }

    /// For how many queries its values are hidden, by the rule.
    pub fn hidden_for(noise_bits: u32) -> f64 {
        let attack = Attack::<K>::new(CHANNELS);
        let longest = (0..CHANNELS).map(|c| attack.column(c)).fold(0.0, f64::max);
        hidden_for(noise_bits, longest * (PLACES as f64 / TOGETHER).sqrt())
    }
}

/// The largest of so many values that are equal before rounding, as a max-pool finds it, and the coin that tells what it becomes.
fn pooled(toy: &mut Toy, value: f64, tied: usize) -> (Rounded, f64) {
    let mut largest = toy.round(value);
    let mut coin = largest.coin;
    for _ in 1..tied {
        let other = toy.round(value);
        // max(a, b) = b + ReLU(a − b), the client's share of the difference being the difference of its shares.
        let share = largest.share.wrapping_sub(other.share) & toy.share_mask();
        let more = toy.relu(Rounded { value: largest.value - other.value, coin, share });
        // What a client can tell a sign by, where it leaves out bits, is that share.
        largest = Rounded { value: other.value + more, coin, share };
        coin = coin.min(other.coin);
    }
    // The largest is rounded up if any is: the smallest of the coins is like a single one, made uniform again.
    (largest, 1.0 - (1.0 - coin).powi(tied as i32))
}

/// Images along a line, at so many points from one end to the other: 64 hidden units, of which half pass zero on the way.
pub struct Line<const K: usize> {
    /// What the client finds by the coins.
    pub by_coin: Attack<K>,
    /// At each point, the mean of what was opened.
    means: Vec<[f64; K]>,
    /// By unit, the value at the line's middle, and by how much it grows from there to its end.
    values: Vec<[f64; 2]>,
}

impl<const K: usize> Line<K> {
    /// Units of the hidden layer.
    pub const UNITS: usize = 64;

    /// `repeats` queries at each point.
    pub fn run(form: Form, guard_bits: u32, points: usize, repeats: u64) -> Self {
        let mut toy = Toy::new(form, guard_bits, Prg::derive(&[1; 32], "a line", &[]));
        let mut draw = || 6000.0 * (toy.draw() - 0.5);
        let values: Vec<[f64; 2]> = (0..Self::UNITS).map(|_| [draw(), draw()]).collect();
        let (mut by_coin, mut asked) = (Attack::new(Self::UNITS), Asked::default());
        let mut means = vec![[0.0; K]; points];
        for (point, mean) in means.iter_mut().enumerate() {
            let there: Vec<f64> = values.iter().map(|v| v[0] + v[1] * place(point, points)).collect();
            let plain = by_coin.logits(&there.iter().map(|v| v.max(0.0)).collect::<Vec<_>>());
            for _ in 0..repeats {
                let opened = toy.ask(&there, &by_coin, &mut asked);
                mean.iter_mut().zip(opened).for_each(|(mean, opened)| *mean += opened / repeats as f64);
                // The best that a client can do who sorts out what moves with the image: it knows that altogether.
                by_coin.observe(&asked.coins, std::array::from_fn(|k| opened[k] - plain[k]));
            }
        }
        Self { by_coin, means, values }
    }

    /// How many columns the plain answers give, and of how many: of units that pass zero on the way, and of the others, which tell what
    /// chance does. Found is one if at a bend of the logits their change of slope has a cosine above 0.9 with it; as many bends as
    /// there are units are looked at. No coin is used.
    pub fn by_answers(&self, reach: usize) -> ((usize, usize), (usize, usize)) {
        let bends = self.bends(reach);
        let found =
            |&unit: &usize| bends.iter().any(|bend| cosine(bend, &self.by_coin.weights_of(unit)).abs() > 0.9);
        let of = |units: Vec<usize>| (units.iter().filter(|&unit| found(unit)).count(), units.len());
        let passes = |&i: &usize| self.values[i][0].abs() < self.values[i][1].abs();
        let (passing, others) = (0..Self::UNITS).partition(passes);
        (of(passing), of(others))
    }

    /// By how much the logits' slope changes where it does most: the largest changes that are `reach` points apart.
    fn bends(&self, reach: usize) -> Vec<[f64; K]> {
        let slope = |points: &[[f64; K]]| -> [f64; K] {
            let weight = |i: usize| i as f64 - (points.len() - 1) as f64 / 2.0;
            std::array::from_fn(|k| points.iter().enumerate().map(|(i, p)| weight(i) * p[k]).sum())
        };
        let bend = |at: usize| {
            let (before, after) = (slope(&self.means[at - reach..=at]), slope(&self.means[at..=at + reach]));
            std::array::from_fn(|k| after[k] - before[k])
        };
        let length = |bend: &[f64; K]| bend.iter().map(|b| b * b).sum::<f64>();
        let mut all: Vec<(usize, [f64; K])> =
            (reach..self.means.len() - reach).map(|at| (at, bend(at))).collect();
        all.sort_by(|a, b| length(&b.1).total_cmp(&length(&a.1)));
        let mut chosen: Vec<(usize, [f64; K])> = Vec::new();
        for (at, bend) in all {
            if chosen.len() < Self::UNITS && chosen.iter().all(|(other, _)| at.abs_diff(*other) >= reach / 2)
            {
                chosen.push((at, bend));
            }
        }
        chosen.into_iter().map(|(_, bend)| bend).collect()
    }
}

/// Where a point is, in -1..1.
fn place(point: usize, points: usize) -> f64 {
    (2.0 * point as f64 + 1.0) / points as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::{DEFAULT_GUARD_BITS, Hiding};

    use super::*;
    use crate::known_coins::{Found, beyond_chance};

    fn seen<const K: usize>(found: &[Found<K>]) -> usize {
        found.iter().filter(|found| found.statistic > beyond_chance(K)).count()
    }

    fn likeness<const K: usize>(attack: &Attack<K>, found: &[Found<K>]) -> f64 {
        found.iter().enumerate().map(|(i, f)| attack.likeness(i, f).abs()).sum::<f64>() / found.len() as f64
    }

    /// How many of eight channels show themselves by their coins against a fraction, without one, by low bits, and by others' coins;
    /// printed as a row of `docs/attacks.md`.
    fn row<const K: usize>(
        form: Form,
        guard_bits: u32,
        queries: u64,
        near_zero: bool,
        tied: usize,
    ) -> [usize; 4] {
        let asked = Constant::<K>::run(form, guard_bits, queries, near_zero, tied);
        let Constant { by_coin, by_low_bits, by_chance } = &asked;
        let all = [
            (by_coin, by_coin.found()),
            (by_coin, by_coin.slopes()),
            (by_low_bits, by_low_bits.found()),
            (by_chance, by_chance.found()),
        ];
        println!(
            "{K} logits, {form:?}, {guard_bits} guard bits, {tied} tied, near zero: {near_zero}, {queries} queries: seen and likeness by \
             coins {}, without fractions {}, by low bits {}, by others' coins {}",
            text(&all[0]),
            text(&all[1]),
            text(&all[2]),
            text(&all[3])
        );
        all.map(|(_, found)| seen(&found))
    }

    fn text<const K: usize>((attack, found): &(&Attack<K>, Vec<Found<K>>)) -> String {
        format!("{} {:.2}", seen(found), likeness(attack, found))
    }

    /// All that are tried: by themselves and as ties, near zero and not.
    const IMAGES: [(bool, usize); 4] = [(false, 1), (false, 2), (true, 1), (true, 2)];

    /// Without noise, and where comparisons leave the guard bits out, images of one colour show every channel at once.
    #[test]
    fn one_colour_shows_weak_forms() {
        for (near_zero, tied) in IMAGES {
            let [by_coin, ..] = row::<10>(Form::Nowhere, 0, 200, near_zero, tied);
            assert!(by_coin >= 6, "{near_zero} {tied}: {by_coin}");
            let [.., by_low_bits, by_chance] =
                row::<10>(Form::Hidden, DEFAULT_GUARD_BITS, 2000, near_zero, tied);
            assert!(by_low_bits >= 6 || !near_zero && tied == 1, "{near_zero} {tied}: {by_low_bits}");
            assert_eq!(by_chance, 0);
        }
    }

    /// The number of queries that the rule states holds for images of one colour, with every place's coin for one fraction and one column;
    /// and the rule is not far off.
    #[test]
    fn one_colour_shows_nothing_within_the_stated_queries() {
        let check = |row: fn(Form, u32, u64, bool, usize) -> [usize; 4], stated: f64| {
            for (near_zero, tied) in IMAGES {
                let of = |times: f64| row(Form::Opened, 2, (times * stated) as u64, near_zero, tied);
                assert_eq!(of(1.0), [0; 4], "{near_zero} {tied}");
                let beginning = [4.0, 8.0].map(of);
                assert!(beginning[0][0] <= beginning[1][0], "{near_zero} {tied}: {beginning:?}");
                let [by_coin, _, by_low_bits, by_chance] = of(16.0);
                assert!(by_coin >= 4, "{near_zero} {tied}: {by_coin}");
                assert_eq!([by_low_bits, by_chance], [0; 2]);
            }
        };
        let noise_bits = Hiding::by_guard_bits(2).noise_bits;
        check(row::<10>, Constant::<10>::hidden_for(noise_bits));
        check(row::<100>, Constant::<100>::hidden_for(noise_bits));
    }

    /// Along a line the answers show columns that coins do not; without noise coins show them too.
    #[test]
    fn along_a_line_answers_tell_more_than_coins() {
        let of = |form, guard_bits, repeats| {
            let line = Line::<10>::run(form, guard_bits, 1024, repeats);
            let slopes = line.by_coin.slopes();
            let (passing, others) = line.by_answers(16);
            println!(
                "{form:?}, {guard_bits} guard bits, {} queries on a line: columns by answers {} of {}, of units that do not bend {} of {}; \
                 by coins {} of {} units, likeness {:.2}",
                1024 * repeats,
                passing.0,
                passing.1,
                others.0,
                others.1,
                seen(&slopes),
                slopes.len(),
                likeness(&line.by_coin, &slopes)
            );
            assert!(others.0 <= 3, "{}", others.0);
            (passing.0, seen(&slopes))
        };
        let (answers, coins) = of(Form::Nowhere, 0, 1);
        assert!(answers >= 20 && coins >= 16, "{answers} {coins}");
        for (guard_bits, repeats, least) in
            [(2, 1, 5), (2, 16, 20), (DEFAULT_GUARD_BITS, 1, 5), (DEFAULT_GUARD_BITS, 16, 20)]
        {
            let (answers, coins) = of(Form::Opened, guard_bits, repeats);
            assert!(answers >= least && coins == 0, "{guard_bits} {repeats}: {answers} {coins}");
        }
    }
}
