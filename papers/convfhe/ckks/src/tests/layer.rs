//! Whole layers in a row: convolution, packing, bootstrap with ReLU, next convolution.

use std::f64::consts::TAU;

use super::*;
use crate::circuits::{Bootstrap, Composite, Plan};
use crate::convolution::{Convolution, Geometry, Kernel, Term};
use crate::layout::{Grid, Split};
use crate::packing::{Packer, key_specs};

const VALUES: usize = 512;
const RAISED_SCALE: f64 = (1u64 << 42) as f64;
const VALUE_SCALE: f64 = (1u64 << 40) as f64;

/// Values, polynomial by polynomial.
type Tensor = Vec<Vec<f64>>;

/// A layer of a small network: sums of earlier values, of which number 0 is the input.
struct Layer {
    terms: Vec<(usize, Geometry, Vec<f64>)>,
    bias: Vec<f64>,
}

fn square(inputs: usize, outputs: usize, size: usize, stride: usize, pad: usize) -> Geometry {
    Geometry { outputs, inputs, height: size, width: size, stride, padding: [pad; 4] }
}

fn layer(prg: &mut Prg, terms: &[(usize, Geometry)]) -> Layer {
    let weights = |prg: &mut Prg, g: &Geometry| {
        let count = g.outputs * g.inputs * g.height * g.width;
        // So that sums are about as large as values.
        let size = 1.5 / ((g.inputs * g.height * g.width) as f64).sqrt();
        (0..count).map(|_| size * random(prg)).collect()
    };
    let outputs = terms[0].1.outputs;
    Layer {
        terms: terms.iter().map(|&(from, g)| (from, g, weights(prg, &g))).collect(),
        bias: (0..outputs).map(|_| 0.2 * random(prg)).collect(),
    }
}

/// The network of the test, with its values' bounds: places, weights and biases.
struct Network {
    layers: Vec<Layer>,
    grids: Vec<Grid>,
}

impl Network {
    /// A layer of two ciphertexts; one of a single one, over a stride of 2, with a residual connection; and a fully
    /// connected one, without ReLU.
    fn new(prg: &mut Prg) -> Self {
        let layers = vec![
            layer(prg, &[(0, square(3, 8, 3, 1, 1))]),
            layer(prg, &[(1, square(8, 8, 3, 2, 1)), (0, square(3, 8, 1, 2, 0))]),
            layer(prg, &[(2, square(8, 5, 4, 1, 0))]),
        ];
        Self { layers, grids: vec![Grid::new([3, 8, 8], 1, 4).unwrap()] }
    }

    /// The convolutions for bounds of the input and of the layers. Ciphertexts carry values divided by their bounds.
    fn convolutions(&mut self, bounds: &[f64]) -> Vec<Convolution> {
        self.grids.truncate(1);
        let mut made = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let bound = bounds[index + 1];
            let term = |(from, geometry, weights): &(usize, Geometry, Vec<f64>)| Term {
                kernel: Kernel::new(*geometry, weights.clone()).unwrap(),
                grid: self.grids[*from],
                split: Split::WHOLE,
                factor: bounds[*from] / bound,
            };
            let bias = layer.bias.iter().map(|bias| bias / bound).collect();
            let convolution = Convolution::new(layer.terms.iter().map(term).collect(), bias, VALUES).unwrap();
            self.grids.push(*convolution.output());
            made.push(convolution);
        }
        made
    }

    fn from(&self, layer: usize) -> impl Iterator<Item = usize> {
        self.layers[layer].terms.iter().map(|term| term.0)
    }

    /// All layers in floating point, over all places: the largest sum of each, and the last layer's values.
    fn plain(
        &self,
        convolutions: &[Convolution],
        input: &Tensor,
        relu: impl Fn(f64) -> f64,
    ) -> (Vec<f64>, Vec<Tensor>) {
        let mut values = vec![input.clone()];
        let mut largest = Vec::new();
        for (index, convolution) in convolutions.iter().enumerate() {
            let inputs: Vec<&[Vec<f64>]> = self.from(index).map(|from| &values[from][..]).collect();
            let output = convolution.output();
            let mut sums: Tensor =
                (0..output.polynomials()).map(|part| convolution.plain(&inputs, part).unwrap()).collect();
            largest.push(sums.iter().flatten().fold(0.0, |most: f64, x| most.max(x.abs())));
            if index + 1 < convolutions.len() {
                let masks = output.masks(VALUES).unwrap();
                for (x, keep) in sums.iter_mut().flatten().zip(masks.iter().flatten()) {
                    *x = keep * relu(*x);
                }
            }
            values.push(sums);
        }
        (largest, values)
    }
}

/// Two layers with ReLU and a linear one, on ciphertexts. Beside the same network in floating point with the
/// polynomials for sine and ReLU, values err by less than 2^-22 of their bounds behind each layer; beside one with
/// ReLU itself by less than 2^-9: the polynomial's error is up to 2^-10.1, and layers behind it add up several of
/// them.
#[test]
fn layers_in_a_row_are_those_of_floats() {
    let (context, mut prg) = {
        let params = Parameters::new(&Literal::n16().insecure(10)).unwrap();
        (Context::new(Cpu::detect(), params, 2).unwrap(), prg(80))
    };
    let plan = Plan::new(VALUES, Composite::by_name("7-7-13").unwrap());
    let params = context.params();
    let moduli = (0..=params.top()).map(|level| params.modulus(level)).collect();
    let counts = plan.counts(N / 2, moduli).unwrap();
    let secret = SecretKey::from_prg(&context, &mut Prg::new([11; 32]));
    let mut generator = KeyGenerator::from_prg(&secret, Prg::new([12; 32]));
    let mut keys = |specs: Vec<crate::KeySpec>| {
        let mut keys = EvaluationKeys::new();
        specs.iter().for_each(|spec| keys.insert(generator.key(spec).unwrap()));
        keys
    };
    let evaluator = KeyedEvaluator::new(&context, keys(context.circuit_keys(&counts)));
    let packer = Packer::new(&context, keys(key_specs(&context, 0, 1)), 0).unwrap();
    let bootstrap = Bootstrap::new(&evaluator, plan.clone()).unwrap();

    let mut network = Network::new(&mut prg);
    let tensor: Vec<f64> = (0..3 * 64).map(|_| random(&mut prg)).collect();
    let input = network.grids[0].scatter(&tensor, VALUES).unwrap();
    // Bounds that no place exceeds, also none that means nothing.
    let unbounded = network.convolutions(&[1.0; 4]);
    let (largest, exact) = network.plain(&unbounded, &input, |x| x.max(0.0));
    let bounds: Vec<f64> = std::iter::once(1.0).chain(largest.iter().map(|x| 1.1 * x)).collect();
    let convolutions = network.convolutions(&bounds);
    let period = params.modulus(0) / RAISED_SCALE;
    let relu = |x: f64| plan.relu.value((TAU * x / period).sin() * period / TAU);
    let (_, rectified) = network.plain(&convolutions, &input, relu);

    let encode = |values: &Vec<f64>| context.encode_coefficients(values, 1, VALUE_SCALE).unwrap();
    let mut values: Vec<Vec<Ciphertext>> =
        vec![input.iter().map(|values| secret.encrypt(&encode(values), &mut prg).0).collect()];
    for (index, convolution) in convolutions.iter().enumerate() {
        let inputs: Vec<&[Ciphertext]> = network.from(index).map(|from| &values[from][..]).collect();
        let output = convolution.output();
        let masks = output.masks(VALUES).unwrap();
        let part = |part: usize| {
            let packed = convolution.packed(&packer, &inputs, part, RAISED_SCALE).unwrap();
            if index + 1 == convolutions.len() {
                return packed;
            }
            bootstrap.layer(&packed, &bootstrap.mask(&masks[part]).unwrap()).unwrap()
        };
        let made: Vec<Ciphertext> = (0..output.polynomials()).map(part).collect();
        let expected = if index + 1 == convolutions.len() { (0, RAISED_SCALE) } else { (1, VALUE_SCALE) };
        assert!(made.iter().all(|ct| (ct.level(), ct.scale()) == expected));
        let decrypted: Tensor =
            made.iter().map(|ct| secret.decrypt(ct).iter().step_by(N / VALUES).copied().collect()).collect();
        let places: f64 =
            decrypted.iter().zip(&rectified[index + 1]).map(|(x, y)| distance(x, y)).fold(0.0, f64::max);
        let found = output.gather(&decrypted).unwrap();
        let floats: Vec<f64> =
            output.gather(&exact[index + 1]).unwrap().iter().map(|x| x / bounds[index + 1]).collect();
        let beside_floats = distance(&found, &floats);
        println!(
            "layer {index}, {:?}, {} ciphertexts: log2 of the largest error {:.1}, beside ReLU itself {:.1}",
            output.shape(),
            made.len(),
            places.log2(),
            beside_floats.log2()
        );
        assert!(places < 2f64.powi(-22), "layer {index}: 2^{:.1}", places.log2());
        assert!(beside_floats < 2f64.powi(-9), "layer {index}: 2^{:.1}", beside_floats.log2());
        values.push(made);
    }
    assert_eq!(values.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1, 1]);
}
