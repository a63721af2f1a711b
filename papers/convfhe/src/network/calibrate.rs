//! The bounds of all layers, from samples; and what an input does to a calibrated network.

use rayon::prelude::*;

use super::plain::{Plain, exact, largest};
use super::plan::{NetworkError, Plan, failed};
use crate::model::{Calibration, Inputs, Simulated};

/// So many samples that differ from each other are enough: with fewer, bounds say little.
pub const ENOUGH_SAMPLES: usize = 10;
/// Two samples are alike that differ by less than this part of the input's range, as a root of the mean square over all places. (Any two of
/// forty pictures of CIFAR differ by 0.14; a wall of bricks and a lawn by 0.05.)
const ALIKE: f64 = 0.04;
/// What [`Simulated::reach`] says of all that is farther.
const FARTHEST: f64 = 1e9;

impl Plan {
    /// Sets every layer's bound: the largest absolute value that samples give anywhere, times their margin, or made-up inputs times
    /// theirs, whichever is more. A value beyond the bound spoils an answer, and only that: so a larger margin costs precision, a smaller one
    /// safety.
    ///
    /// # Errors
    /// Without samples, with a margin below 1, with an input of another size or beyond the input's bound, and if a layer is 0 for all
    /// samples.
    pub fn calibrate(&mut self, given: Inputs<'_>) -> Result<Calibration, NetworkError> {
        let Inputs { samples, margin, stress, stress_margin } = given;
        if samples.is_empty() || !(margin >= 1.0 && stress_margin >= 1.0) {
            let why = format!("{} samples and the margins {margin} and {stress_margin}", samples.len());
            return Err(NetworkError::Calibration(why));
        }
        let by_sample = self.reaches("sample", samples)?;
        let by_stress = self.reaches("made-up input", stress)?;
        let layers = self.description.layers.len() + 1;
        let most =
            |reaches: &[Vec<f64>], layer: usize| reaches.iter().map(|own| own[layer]).fold(0.0, f64::max);

        let mut found = Calibration {
            samples: samples.len(),
            stress: stress.len(),
            distinct: self.distinct(samples),
            left_out: 0.0,
            stressed: 0,
            stretch: 1.0,
            warnings: Vec::new(),
        };
        let mut bounds = Vec::with_capacity(layers);
        for (index, layer) in self.description.all().enumerate() {
            let own = margin * most(&by_sample, index);
            if own == 0.0 {
                return Err(failed(index, layer, "it is 0 for all samples".into()));
            }
            let bound = own.max(stress_margin * most(&by_stress, index));
            if !bound.is_finite() {
                return Err(failed(index, layer, "its values are beyond all numbers".into()));
            }
            if bound > own {
                found.stressed += 1;
                found.stretch = found.stretch.max(bound / own);
            }
            bounds.push(bound);
        }
        self.tell(&mut found, &by_sample, margin, |layer| stress_margin * most(&by_stress, layer));
        let (logits, inner) = (bounds.pop(), bounds);
        for (layer, bound) in self.description.layers.iter_mut().zip(inner) {
            layer.bound = Some(bound);
        }
        self.description.output.bound = logits;
        Ok(found)
    }

    /// By input and layer: the largest absolute value before ReLU.
    fn reaches(&self, what: &'static str, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f64>>, NetworkError> {
        let plain = Plain::new(self, false)?;
        let reach = |(index, input): (usize, &Vec<f32>)| {
            let input = self.wide(what, index, input)?;
            let (most, bound) = (largest(&input), self.description.input_bound);
            if most > bound {
                let why = format!("it has the value {most}, the input's bound is {bound}");
                return Err(NetworkError::Input { what, index, why });
            }
            let mut own = Vec::new();
            plain.run(&input, exact, |_, reach| own.push(reach))?;
            Ok(own)
        };
        inputs.par_iter().enumerate().map(reach).collect()
    }

    /// An input's numbers, if it has the right size.
    fn wide(&self, what: &'static str, index: usize, input: &[f32]) -> Result<Vec<f64>, NetworkError> {
        let refuse = |why| Err(NetworkError::Input { what, index, why });
        let needed: usize = self.description.input.iter().product();
        if input.len() != needed {
            return refuse(format!("{} values, where {needed} are needed", input.len()));
        }
        match input.iter().position(|x| x.is_nan()) {
            Some(at) => refuse(format!("value {at} is no number")),
            None => Ok(input.iter().map(|&x| f64::from(x)).collect()),
        }
    }

    /// Counts samples that are not [`ALIKE`] to one that was counted before.
    fn distinct(&self, samples: &[Vec<f32>]) -> usize {
        let near = ALIKE * 2.0 * self.description.input_bound;
        let mut counted: Vec<&[f32]> = Vec::new();
        for sample in samples {
            let distance = |other: &&[f32]| {
                let squares = sample.iter().zip(*other).map(|(x, y)| f64::from(x - y).powi(2));
                (squares.sum::<f64>() / sample.len() as f64).sqrt()
            };
            if counted.iter().all(|other| distance(other) >= near) {
                counted.push(sample);
            }
        }
        counted.len()
    }

    /// Warnings, and how far a sample reaches beyond the bounds that all others give.
    fn tell(
        &self,
        found: &mut Calibration,
        by_sample: &[Vec<f64>],
        margin: f64,
        by_stress: impl Fn(usize) -> f64,
    ) {
        let Calibration { samples, distinct, .. } = *found;
        if distinct < samples {
            found.warnings.push(format!(
                "the samples are too alike: of {samples} only {distinct} differ from those before them by {} % of the input's range or \
                 more; the others add nothing",
                100.0 * ALIKE
            ));
        }
        if found.few() {
            found.warnings.push(format!(
                "{distinct} different samples are few to find bounds with: give {ENOUGH_SAMPLES} or more, like those that will come"
            ));
        }
        if samples < 2 {
            return;
        }
        let mut worst = (0, String::new());
        for (layer, described) in self.description.all().enumerate() {
            // The two largest: the bound without a sample is the second, where that sample has the first.
            let mut order: Vec<usize> = (0..samples).collect();
            order.sort_unstable_by(|&a, &b| by_sample[b][layer].total_cmp(&by_sample[a][layer]));
            let (first, second) = (order[0], order[1]);
            let bound = by_stress(layer).max(margin * by_sample[second][layer]);
            let times = by_sample[first][layer] / bound;
            // Where all others are 0, no factor says how unlike it is.
            if bound > 0.0 && times > found.left_out {
                (found.left_out, worst) = (times, (first, described.name.clone()));
            }
        }
        if found.left_out > 1.0 {
            found.warnings.push(format!(
                "sample {} would leave the bounds that the others give ({:.2} times, at {}): inputs like it are missing. Give more samples, \
                 or a larger --margin",
                worst.0, found.left_out, worst.1
            ));
        }
    }

    /// Evaluates inputs (behind the affine map) on a calibrated network in floating point, with ReLU and with its polynomial: as ciphertexts
    /// would, without their noise.
    ///
    /// # Errors
    /// If a layer has no bound, or an input has another size or what is no number.
    pub fn simulate(&self, inputs: &[Vec<f32>]) -> Result<Vec<Simulated>, NetworkError> {
        self.calibrated()?;
        let plain = Plain::new(self, true)?;
        let simulated = |(index, input): (usize, &Vec<f32>)| self.simulate_one(&plain, index, input);
        inputs.par_iter().enumerate().map(simulated).collect()
    }

    fn simulate_one(
        &self,
        plain: &Plain<'_>,
        index: usize,
        input: &[f32],
    ) -> Result<Simulated, NetworkError> {
        let input = self.wide("input", index, input)?;
        let mut far = Far { reach: 0.0, layer: None };
        // A client does not encrypt what is beyond.
        let most = largest(&input) / self.description.input_bound;
        if most > 1.0 {
            far.look(None, most);
        }
        let exact = plain.run(&input, exact, |layer, times| far.look(Some(layer), times))?;
        let mut logits = None;
        if far.reach <= 1.0 {
            let composite = self.composite;
            let made =
                plain.run(&input, |x| composite.value(x), |layer, times| far.look(Some(layer), times))?;
            logits = (far.reach <= 1.0).then_some(made);
        }
        let bound = self.description.output.bound.unwrap_or(1.0);
        let shown = |logits: Vec<f64>| logits.into_iter().map(|logit| logit * bound).collect();
        let layer = match far.layer {
            None => "the input".into(),
            Some(layer) => {
                self.description.all().nth(layer).map_or_else(String::new, |layer| layer.name.clone())
            }
        };
        Ok(Simulated { reach: far.reach, layer, logits: logits.map(shown), exact: shown(exact) })
    }
}

impl Calibration {
    /// Whether samples that differ are fewer than [`ENOUGH_SAMPLES`].
    pub fn few(&self) -> bool {
        self.distinct < ENOUGH_SAMPLES
    }
}

/// How far a value goes beyond its bound, and where: none is the input.
struct Far {
    reach: f64,
    layer: Option<usize>,
}

impl Far {
    fn look(&mut self, layer: Option<usize>, times: f64) {
        // (The polynomial gives infinities, which JSON does not know.)
        let times = times.min(FARTHEST);
        if times > self.reach {
            *self = Self { reach: times, layer };
        }
    }
}
