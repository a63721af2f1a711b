//! A client that only looks: what the coins of its roundings tell about a hidden layer, over many queries. Tests only.
//!
//! The client asks about one image again and again. Of every hidden unit it knows the coin by which the unit was rounded in
//! each query. It sorts the opened logits by one unit's coin and looks for a step: the step's place is the unit's fraction,
//! its height the next layer's weights of the unit. (`docs/attacks.md`; the first layer runs on the backend under test, what
//! follows is in the clear.)

use jaguar_ring::prg::Prg;

/// Logits that are opened.
pub const CLASSES: usize = 10;

/// Coins are told apart by so many parts of their range.
const BINS: usize = 64;

/// f of the second layer.
const SHIFT: i32 = 12;

/// The largest statistic of 64 units without any effect stays below this, but for an event of probability 10^-7: the largest
/// of 63 correlated chi-squares of [`CLASSES`] degrees of freedom has its median at 19 and its 99.9th percentile at 40.
pub const BEYOND_CHANCE: f64 = 65.0;

/// What the client finds about one unit.
pub struct Found {
    /// How well the best step explains the logits: against [`BEYOND_CHANCE`].
    pub statistic: f64,
    /// Where it is, in 0..1 of the coin's range.
    pub place: f64,
    /// How high it is, by class.
    pub step: [f64; CLASSES],
}

/// A second linear layer `[CLASSES][units]`, and what the client has seen of it.
pub struct Attack {
    weights: Vec<f64>,
    units: usize,
    /// By unit and bin: sums of the logits that fell into it, and how many.
    sums: Vec<([f64; CLASSES], f64)>,
    total: [f64; CLASSES],
    squares: [f64; CLASSES],
    queries: f64,
    /// The first query's logits, about which all sums are taken.
    origin: Option<[f64; CLASSES]>,
}

impl Attack {
    /// With a made-up second layer over so many units.
    pub fn new(units: usize) -> Self {
        let mut prg = Prg::derive(&[8; 32], "second layer", &[]);
        let mut weight = || (0..12).map(|_| uniform(&mut prg)).sum::<f64>() - 6.0;
        Self {
            weights: (0..CLASSES * units).map(|_| (700.0 * weight()).round()).collect(),
            units,
            sums: vec![([0.0; CLASSES], 0.0); units * BINS],
            total: [0.0; CLASSES],
            squares: [0.0; CLASSES],
            queries: 0.0,
            origin: None,
        }
    }

    /// The logits before their own rounding, in units of the last place without guard bits.
    pub fn logits(&self, y: &[f64]) -> [f64; CLASSES] {
        let rows = self.weights.chunks(self.units);
        let mut logits = [0.0; CLASSES];
        for (logit, row) in logits.iter_mut().zip(rows) {
            *logit = row.iter().zip(y).map(|(w, y)| w * y).sum::<f64>() / 2f64.powi(SHIFT);
        }
        logits
    }

    /// One query: the coin of every unit, in 0..1, and what was opened.
    pub fn observe(&mut self, coins: &[f64], opened: [f64; CLASSES]) {
        let origin = *self.origin.get_or_insert(opened);
        let seen: [f64; CLASSES] = std::array::from_fn(|k| opened[k] - origin[k]);
        self.total.iter_mut().zip(seen).for_each(|(total, seen)| *total += seen);
        self.squares.iter_mut().zip(seen).for_each(|(square, seen)| *square += seen * seen);
        self.queries += 1.0;
        for (unit, &coin) in coins.iter().enumerate() {
            let (sums, count) = &mut self.sums[unit * BINS + (coin * BINS as f64) as usize];
            sums.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
            *count += 1.0;
        }
    }

    /// The best step of every unit.
    pub fn found(&self) -> Vec<Found> {
        let mean = self.total.map(|total| total / self.queries);
        let variance: [f64; CLASSES] =
            std::array::from_fn(|k| self.squares[k] / self.queries - mean[k] * mean[k]);
        let best = |bins: &[([f64; CLASSES], f64)]| {
            let mut found = Found { statistic: 0.0, place: 0.0, step: [0.0; CLASSES] };
            let (mut run, mut below) = ([0.0; CLASSES], 0.0);
            for (bin, (sums, count)) in bins[..BINS - 1].iter().enumerate() {
                below += count;
                for k in 0..CLASSES {
                    run[k] += sums[k] - count * mean[k];
                }
                let above = self.queries - below;
                if below == 0.0 || above == 0.0 {
                    continue;
                }
                let statistic = (0..CLASSES).map(|k| run[k] * run[k] / variance[k]).sum::<f64>()
                    * self.queries
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
    pub fn likeness(&self, unit: usize, found: &Found) -> f64 {
        let truth: Vec<f64> = (0..CLASSES).map(|k| self.weights[k * self.units + unit]).collect();
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let product: f64 = truth.iter().zip(found.step).map(|(a, b)| a * b).sum();
        product / (norm(&truth) * norm(&found.step))
    }
}

/// In 0..1.
pub fn uniform(prg: &mut Prg) -> f64 {
    (prg.next_u64() >> 11) as f64 / 2f64.powi(53)
}
