//! The sum of each window: an average whose division is left to the consumer's scale.

pub(crate) mod float;
pub(crate) mod onnx;

use serde::{Deserialize, Serialize};

use crate::ir::error::NodeError;
use crate::ir::limits::{MAX_POOL_GAIN, check};
use crate::ir::shape::Shape;
use crate::ops::operator::{
    Effort, Excess, Known, Local, Numbered, Operands, Operator, Scale, Sign, Source, Value, Work,
};
use crate::ops::window::{Window, pool, spread};

/// The sum of each window, times a small public integer where the window hangs over the border (so that
/// averages that do not count the padding come out right). The division is in the consumer's scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SumPool {
    /// Which places each value is made of.
    pub window: Window,
    /// For averages that do not count the padding: the output at `(oh, ow)` is the sum times
    /// `full / real` where `full` is this number and `real` how many of the window's places lie inside
    /// the image; `real` divides `full` everywhere. `None`: the plain sum.
    pub count_real_places: Option<u32>,
}

impl SumPool {
    /// The mean of each window, the division left out.
    pub(crate) fn averaging(window: &Window, count_padding: bool, known: &Known<'_>) -> Self {
        let whole = (window.kernel[0] * window.kernel[1]) as u64;
        // No multiplier where every window lies inside the image anyway.
        let count = known.input.filter(|_| !count_padding).and_then(|input| {
            let multiple = real_places_multiple(window, input)?;
            let overhangs = window.pads != [0; 4] && hangs_over(window, input);
            (overhangs || multiple != whole).then_some(multiple as u32)
        });
        Self { window: window.clone(), count_real_places: count }
    }

    /// The factor between the sum and the average.
    fn gain(&self) -> u64 {
        let [height, width] = self.window.kernel;
        let whole = (height as u64).saturating_mul(width as u64);
        self.count_real_places.map_or(whole, u64::from)
    }
}

/// The smallest number that all windows' counts of real places divide; 1 window size if none hangs over.
/// `None` if it is larger than a sum may be multiplied by.
pub(crate) fn real_places_multiple(window: &Window, input: Shape) -> Option<u64> {
    let [h, w] = window.output_hw([input[1], input[2]])?;
    let by_axis = |axis: usize, outputs: usize| {
        (0..outputs).try_fold(1u64, |multiple, at| {
            let real = window.real_places(axis, at, input[axis + 1]) as u64;
            let (mut a, mut b) = (multiple, real);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            (multiple / a).checked_mul(real).filter(|&m| m > 0 && m <= MAX_POOL_GAIN)
        })
    };
    // A multiple of both factors of every count: rows' times columns'.
    by_axis(0, h)?.checked_mul(by_axis(1, w)?).filter(|&m| m <= MAX_POOL_GAIN)
}

/// Whether some window has places outside the image.
fn hangs_over(window: &Window, input: Shape) -> bool {
    let outputs = window.output_hw([input[1], input[2]]).unwrap_or([0, 0]);
    (0..2).any(|axis| {
        (0..outputs[axis]).any(|at| window.real_places(axis, at, input[axis + 1]) < window.kernel[axis])
    })
}

impl Numbered for SumPool {
    const NUMBER: u32 = 5;
}

impl Operator for SumPool {
    fn name(&self) -> &'static str {
        "SumPool"
    }

    fn work(&self) -> Work<'_> {
        Work::Local(Local { excess: Excess::Refuses, widens: true, adds: false })
    }

    fn describe(&self) -> String {
        format!("average {}", self.window.describe())
    }

    fn shape(&self, inputs: &[Shape], _: Shape) -> Result<Shape, NodeError> {
        let shape = self.window.shape(inputs[0], self.count_real_places.is_some())?;
        check(self.gain() <= MAX_POOL_GAIN, "sum of a window")?;
        if let Some(full) = self.count_real_places {
            check(full >= 1, "count_real_places")?;
            let by_axis = |axis: usize| {
                let mut counts: Vec<u64> = (0..shape[axis + 1])
                    .map(|at| self.window.real_places(axis, at, inputs[0][axis + 1]) as u64)
                    .collect();
                counts.sort_unstable();
                counts.dedup();
                counts
            };
            let (rows, columns) = (by_axis(0), by_axis(1));
            let divides = |h: &u64, w: &u64| u64::from(full).is_multiple_of(h * w);
            check(rows.iter().all(|h| columns.iter().all(|w| divides(h, w))), "count_real_places")?;
        }
        Ok(shape)
    }

    /// The logarithm of the gain more than its input's.
    fn value_bits(&self, widest: u32, _: u32) -> u32 {
        widest + self.gain().max(1).next_power_of_two().trailing_zeros()
    }

    fn value(&self) -> Value {
        Value { scale: Scale::Gained(self.gain()), sign: Sign::Inherited, source: Source::Several }
    }

    fn check(&self, _: u32) -> Result<(), NodeError> {
        Ok(())
    }

    /// Nothing of it is measured in the values' scale.
    fn rescale(&mut self, _: i32) -> Result<(), &'static str> {
        Ok(())
    }

    fn effort(&self, _: &[Shape], output: Shape) -> Effort {
        Effort { operations: self.window.effort(output), ..Effort::default() }
    }

    fn keeps_channels(&self, _: Shape, _: Shape) -> bool {
        true
    }

    fn apply(&self, of: &Operands<'_>) -> Option<Vec<i64>> {
        let (shape, x) = of.first();
        let full = self.count_real_places.map(i64::from);
        let scaled = |sum, real| sum * full.map_or(1, |full| full / real as i64);
        Some(pool(&self.window, shape, x, 0, |a, b| a + b, scaled))
    }

    fn pull_back(&self, of: &Operands<'_>, by: &[f32]) -> Option<Vec<Vec<f32>>> {
        let (shape, _) = of.first();
        Some(vec![spread(&self.window, shape, by, |_, places, by, slopes| {
            let gain = self.count_real_places.map_or(1, |full| full as usize / places.len());
            places.iter().for_each(|&place| slopes[place] += gain as f32 * by);
        })])
    }
}
