//! The network in floating point, over the same places as the ciphertexts.

use jaguar_ckks::convolution::Convolution;

use super::plan::{NetworkError, Plan};

/// The largest absolute value; what is no number counts as infinite.
pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| if value.is_nan() { f64::INFINITY } else { most.max(value.abs()) })
}

/// ReLU itself.
pub(super) fn exact(x: f64) -> f64 {
    x.max(0.0)
}

/// A network whose layers are ready to be evaluated many times.
pub(super) struct Plain<'a> {
    plan: &'a Plan,
    layers: Vec<Convolution>,
    masks: Vec<Vec<Vec<f64>>>,
    bounded: bool,
}

impl<'a> Plain<'a> {
    /// With `bounded`, values are divided by their bounds, as in ciphertexts.
    pub fn new(plan: &'a Plan, bounded: bool) -> Result<Self, NetworkError> {
        let layers = (0..plan.description.layers.len()).map(|index| plan.convolution(index, bounded));
        let layers = layers.collect::<Result<_, _>>()?;
        let masks = plan.grids[1..].iter().map(|grid| Ok(plan.abreast(grid.masks(plan.values)?)));
        Ok(Self { plan, layers, masks: masks.collect::<Result<_, NetworkError>>()?, bounded })
    }

    /// The logits of an input `[C, H, W]`, which stands at the places of all inputs that a ciphertext has room for. `seen` gets each layer's
    /// largest absolute value before ReLU at any place, those that mean nothing included, for they take part in what is bootstrapped; the
    /// output's last. (In units of the bound, if values are divided by it.)
    pub fn run(
        &self,
        input: &[f64],
        rectify: impl Fn(f64) -> f64,
        mut seen: impl FnMut(usize, f64),
    ) -> Result<Vec<f64>, NetworkError> {
        let plan = self.plan;
        let scale = if self.bounded { plan.description.input_bound } else { 1.0 };
        let input: Vec<f64> = input.iter().map(|x| x / scale).collect();
        let mut values = vec![plan.abreast(plan.grids[0].scatter(&input, plan.values)?)];
        for (index, (layer, masks)) in self.layers.iter().zip(&self.masks).enumerate() {
            let terms = &plan.description.layers[index].terms;
            let inputs: Vec<&[Vec<f64>]> = terms.iter().map(|term| &values[term.from][..]).collect();
            let parts = (0..layer.output().polynomials()).map(|part| layer.plain(&inputs, part));
            let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
            seen(index, parts.iter().map(|part| largest(part)).fold(0.0, f64::max));
            for (value, keep) in parts.iter_mut().flatten().zip(masks.iter().flatten()) {
                *value = if *keep == 0.0 { 0.0 } else { rectify(*value) };
            }
            values.push(parts);
        }
        let logits = self.logits(&values)?;
        seen(self.layers.len(), largest(&logits));
        Ok(logits)
    }

    /// The output by the definition of a convolution: places of no value are zero.
    fn logits(&self, values: &[Vec<Vec<f64>>]) -> Result<Vec<f64>, NetworkError> {
        let plan = self.plan;
        let output = &plan.description.output;
        let own = if self.bounded { output.bound.unwrap_or(1.0) } else { 1.0 };
        let mut logits: Vec<f64> = output.bias.0.iter().map(|&bias| f64::from(bias) / own).collect();
        for term in &output.terms {
            let grid = &plan.grids[term.from];
            let tensor = grid.gather(&values[term.from])?;
            let ([_, height, width], [top, left, _, _]) = (grid.shape(), term.padding);
            let factor = if self.bounded { plan.bound(term.from) / own } else { 1.0 };
            let kernels = term.weights.0.chunks_exact(term.channels * term.height * term.width);
            for (logit, kernel) in logits.iter_mut().zip(kernels) {
                for (at, &weight) in kernel.iter().enumerate() {
                    let (c, i, j) =
                        (at / (term.height * term.width), at / term.width % term.height, at % term.width);
                    // One window, at the corner of the padding.
                    let place = i.checked_sub(top).zip(j.checked_sub(left));
                    if let Some((i, j)) = place.filter(|&(i, j)| i < height && j < width) {
                        *logit += factor * f64::from(weight) * tensor[(c * height + i) * width + j];
                    }
                }
            }
        }
        Ok(logits)
    }
}
