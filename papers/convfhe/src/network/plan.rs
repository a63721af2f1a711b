//! Where a network's values stand in ciphertexts.

use jaguar_ckks::circuits::{self, Composite};
use jaguar_ckks::convolution::{Convolution, Geometry, Kernel, Term};
use jaguar_ckks::layout::Grid;
use jaguar_ckks::{Error, Parameters};

use crate::description::{self, Description, Layer};

/// Most layers.
const MOST_LAYERS: usize = 1000;
/// Most rows and columns of an input.
const MOST_SIDE: usize = 1 << 12;

/// How many numbers go with the logits of which a client can see that they are zero. Each is random if a value left the interval of ReLU's
/// polynomial by enough to fill the modulus, and then lies among the noise with a chance of 2^-11.
pub(crate) const MOST_CHECKS: usize = 4;

/// What is wrong with a network, or with what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The network as a whole.
    #[error("the network: {0}")]
    Malformed(String),
    /// One of its layers.
    #[error("layer {index} ({name}): {why}")]
    Layer {
        /// Which one, from 0 on; the output is the last.
        index: usize,
        /// What it is called.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A layer has no bound.
    #[error("layer {index} ({name}) has no bound: calibrate the network with samples first")]
    Uncalibrated {
        /// Which one.
        index: usize,
        /// What it is called.
        name: String,
    },
    /// The parameter set is another one, or has too little for the network.
    #[error("parameter set {set:?}: {why}")]
    Set {
        /// Its name.
        set: String,
        /// What does not fit.
        why: String,
    },
    /// An input of another size, or with what is no number.
    #[error("{what} {index}: {why}")]
    Input {
        /// What kind of input.
        what: &'static str,
        /// Which one.
        index: usize,
        /// What is wrong.
        why: String,
    },
    /// What a calibration was given.
    #[error("calibration: {0}")]
    Calibration(String),
    /// What a client was told of a network.
    #[error("what the server says of the network: {0}")]
    Public(String),
    /// Arithmetic on ciphertexts.
    #[error(transparent)]
    Ckks(#[from] Error),
    /// A bootstrap.
    #[error(transparent)]
    Circuit(#[from] circuits::Error<Error>),
    /// Keys that a client gave do not serve.
    #[error("the client's keys: {0}")]
    Keys(Error),
    /// What came from the other party is not what it should be.
    #[error("{what}: {why}")]
    Message {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An answer that these keys do not open.
    #[error("the answer is spoilt, or was made with the keys of another client")]
    Spoilt,
    /// An answer that means nothing. What it holds is not told: who sees numbers of a wrong answer may learn of the secret.
    #[error(
        "the answer means nothing, and is not shown: a value inside the network left the range in which its polynomial stands for \
         ReLU. The input is unlike those that the model was calibrated with. Another input may work; the model's operator can calibrate \
         with inputs like this one, or with a larger --margin"
    )]
    Left,
    /// Somebody asked to stop.
    #[error("stopped")]
    Stopped,
}

/// How many values a ciphertext of a parameter set carries: one in every second coefficient.
pub fn values(params: &Parameters) -> usize {
    params.n() / 2
}

/// What is behind each convolution.
pub(super) fn circuit_plan(params: &Parameters, relu: Composite) -> circuits::Plan {
    circuits::Plan::new(values(params), relu)
}

/// By level.
pub(super) fn moduli(params: &Parameters) -> Vec<f64> {
    (0..=params.top()).map(|level| params.modulus(level)).collect()
}

/// A bootstrap that the set has no room for.
pub(super) fn unfit(params: &Parameters, error: impl std::fmt::Display) -> NetworkError {
    NetworkError::Set { set: params.name().to_owned(), why: error.to_string() }
}

/// The scale of values between layers: that of an input.
pub(super) fn value_scale(params: &Parameters) -> f64 {
    f64::from(circuit_plan(params, circuits::COMPOSITES[0]).log_value_scale).exp2()
}

/// A network whose values have their places in ciphertexts.
#[derive(Clone)]
pub struct Plan {
    pub(super) description: Description,
    pub(super) values: usize,
    /// Of the input and of each layer's output.
    pub(super) grids: Vec<Grid>,
    outputs: usize,
    pub(super) composite: Composite,
}

/// Places of one ciphertext that hold no value: zeros.
pub(crate) struct Idle {
    pub value: usize,
    pub part: usize,
    pub places: Vec<usize>,
}

impl Plan {
    /// Checks a network, but for its bounds, and places all values in ciphertexts of `values` values, a power of two. As many channels
    /// share a ciphertext as fit.
    ///
    /// # Errors
    /// If a size, number or shape is not what it must be, if rows and columns of one channel do not fit into a ciphertext, or if terms
    /// of one sum would leave their outputs at different places: says where.
    pub fn new(description: Description, values: usize) -> Result<Self, NetworkError> {
        let malformed = |why: String| Err(NetworkError::Malformed(why));
        let layers = description.layers.len();
        if layers > MOST_LAYERS {
            return malformed(format!("{layers} layers, at most {MOST_LAYERS}"));
        }
        let [channels, height, width] = description.input;
        if [channels, height, width].contains(&0) || height.max(width) > MOST_SIDE {
            return malformed(format!("an input [{channels}, {height}, {width}]"));
        }
        let bound = description.input_bound;
        if !(bound.is_finite() && bound > 0.0) {
            return malformed(format!("a bound {bound} of the input"));
        }
        let name = description.relu.name();
        let Some(composite) = Composite::by_name(name) else {
            return malformed(format!("no polynomial for ReLU is called {name:?}"));
        };

        let mut shapes = vec![description.input];
        // By value: with what its takers pad it, and by how much strides have spread it.
        let (mut padding, mut spread) = (vec![0; layers + 2], vec![1; layers + 2]);
        for (index, layer) in description.all().enumerate() {
            let fail = |why| Err(failed(index, layer, why));
            let shape = match shape_of(layer, &shapes) {
                Ok(shape) => shape,
                Err(why) => return fail(why),
            };
            for term in &layer.terms {
                let most = term.padding.into_iter().max().unwrap_or(0);
                padding[term.from] = most.max(padding[term.from]);
                spread[index + 1] = spread[term.from] * term.stride;
                if spread[index + 1] > values {
                    return fail(format!("strides of {} in all", spread[index + 1]));
                }
            }
            shapes.push(shape);
        }
        let outputs = match shapes.pop() {
            Some([outputs, 1, 1]) if outputs <= values => outputs,
            Some([outputs, 1, 1]) => {
                return malformed(format!("{outputs} outputs, a ciphertext has {values} values"));
            }
            other => {
                return malformed(format!(
                    "the output is {:?}, not one number a channel",
                    other.unwrap_or_default()
                ));
            }
        };

        let beside =
            shapes.iter().zip(&padding).map(|(shape, padding)| (shape[2] + padding).saturating_sub(width));
        let margin = beside.max().unwrap_or(0);
        let needed = shapes.iter().zip(&spread).map(|(shape, spread)| shape[0].div_ceil(*spread));
        let mut pitch = needed.max().unwrap_or(1).next_power_of_two();
        loop {
            match place(&description, &shapes, (&padding, margin), pitch, values) {
                Ok(grids) => return Ok(Self { description, values, grids, outputs, composite }),
                Err(error) if pitch == 1 => return Err(error),
                Err(_) => pitch /= 2,
            }
        }
    }

    /// The network, with the bounds that it has.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// How many logits there are.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Where the input stands, and what each layer makes: `[0]` is the input's.
    pub fn grids(&self) -> &[Grid] {
        &self.grids
    }

    /// How many values a ciphertext carries.
    pub fn values(&self) -> usize {
        self.values
    }

    /// What stands for ReLU.
    pub fn composite(&self) -> Composite {
        self.composite
    }

    /// Fails if the plan was not made for ciphertexts of this set.
    ///
    /// # Errors
    /// [`NetworkError::Set`].
    pub fn check(&self, params: &Parameters) -> Result<(), NetworkError> {
        let there = values(params);
        if self.values == there {
            return Ok(());
        }
        let why = format!("{there} values a ciphertext, where the network is placed in {}", self.values);
        Err(NetworkError::Set { set: params.name().to_owned(), why })
    }

    /// Fails if a layer has no bound.
    ///
    /// # Errors
    /// [`NetworkError::Uncalibrated`].
    pub fn calibrated(&self) -> Result<(), NetworkError> {
        match self.description.all().enumerate().find(|(_, layer)| layer.bound.is_none()) {
            None => Ok(()),
            Some((index, layer)) => Err(NetworkError::Uncalibrated { index, name: layer.name.clone() }),
        }
    }

    /// The bound of a value: 1 where there is none.
    pub(super) fn bound(&self, value: usize) -> f64 {
        match value.checked_sub(1) {
            None => self.description.input_bound,
            Some(layer) => self.description.layers[layer].bound.unwrap_or(1.0),
        }
    }

    /// All of a layer before its ReLU (the output for number [`Description::layers`]), of values as they stand in ciphertexts: divided by
    /// their bounds. Without `bounded`, of values as they are.
    pub(crate) fn convolution(&self, index: usize, bounded: bool) -> Result<Convolution, NetworkError> {
        let Description { layers, output, .. } = &self.description;
        let layer = layers.get(index).unwrap_or(output);
        let own = if bounded { layer.bound.unwrap_or(1.0) } else { 1.0 };
        let terms = layer.terms.iter().map(|term| {
            let factor = if bounded { self.bound(term.from) / own } else { 1.0 };
            Ok(Term { kernel: kernel(term)?, grid: self.grids[term.from], factor })
        });
        let bias = layer.bias.0.iter().map(|&bias| f64::from(bias) / own).collect();
        let terms: Result<_, Error> = terms.collect();
        Ok(Convolution::new(terms?, bias, self.values)?)
    }

    /// Places without a value, of all ciphertexts that a ReLU made and of which the logits are sums.
    pub(crate) fn idle(&self) -> Result<Vec<Idle>, NetworkError> {
        let mut looked = vec![0];
        let mut found = Vec::new();
        for term in &self.description.output.terms {
            if looked.contains(&term.from) {
                continue;
            }
            looked.push(term.from);
            for (part, mask) in self.grids[term.from].masks(self.values)?.iter().enumerate() {
                let places: Vec<usize> =
                    (0..mask.len()).filter(|&place| mask[place] == 0.0).take(MOST_CHECKS).collect();
                if !places.is_empty() {
                    found.push(Idle { value: term.from, part, places });
                }
            }
        }
        Ok(found)
    }

    /// How many numbers that are zero in a right answer go with the logits: sums of places of the last values that no value stands at, which
    /// the mask has set to zero. Slots do not mix as long as all numbers fit the modulus. A value beyond the interval makes ReLU's polynomial
    /// so large that they do not, and then every place of its ciphertext is random, also those that should be zero. There are no checks
    /// where every place holds a value.
    ///
    /// # Errors
    /// None that a plan could have.
    pub fn checks(&self) -> Result<usize, NetworkError> {
        let none = self.idle()?.is_empty() || self.outputs + MOST_CHECKS > self.values;
        Ok(if none { 0 } else { MOST_CHECKS })
    }
}

pub(super) fn failed(index: usize, layer: &Layer, why: String) -> NetworkError {
    NetworkError::Layer { index, name: layer.name.clone(), why }
}

fn kernel(term: &description::Term) -> Result<Kernel, Error> {
    let geometry = Geometry {
        outputs: term.out,
        inputs: term.channels,
        height: term.height,
        width: term.width,
        stride: term.stride,
        padding: term.padding,
    };
    Kernel::new(geometry, term.weights.0.iter().map(|&weight| f64::from(weight)).collect())
}

/// The shape of a layer's output, from those of the values before it.
pub(super) fn shape_of(layer: &Layer, before: &[[usize; 3]]) -> Result<[usize; 3], String> {
    let mut shape = None;
    for (index, term) in layer.terms.iter().enumerate() {
        let Some(&from) = before.get(term.from) else {
            return Err(format!("term {index} takes value {} of {}", term.from, before.len()));
        };
        let made = kernel(term).and_then(|kernel| kernel.output(from));
        let made = made.map_err(|error| format!("term {index}: {error}"))?;
        let first = *shape.get_or_insert(made);
        if first != made {
            return Err(format!("term {index} makes {made:?}, the terms before it {first:?}"));
        }
    }
    let shape = shape.ok_or("no terms")?;
    if layer.bias.0.len() != shape[0] {
        return Err(format!("{} numbers of bias for {} channels", layer.bias.0.len(), shape[0]));
    }
    match layer.bound {
        Some(bound) if !(bound.is_finite() && bound > 0.0) => Err(format!("a bound of {bound}")),
        Some(_) | None => Ok(shape),
    }
}

/// Gives the input `pitch` values a place, and all other values what follows from it.
fn place(
    description: &Description,
    shapes: &[[usize; 3]],
    (padding, margin): (&[usize], usize),
    pitch: usize,
    values: usize,
) -> Result<Vec<Grid>, NetworkError> {
    let mut grids = vec![Grid::new(description.input, margin, pitch)?];
    for ((index, layer), shape) in description.layers.iter().enumerate().zip(&shapes[1..]) {
        let mut grid = None;
        for (number, term) in layer.terms.iter().enumerate() {
            let made = grids[term.from].strided(*shape, term.stride);
            let made = made.map_err(|error| failed(index, layer, error.to_string()))?;
            if *grid.get_or_insert(made) != made {
                let why = format!("term {number} leaves its output at other places than the terms before it");
                return Err(failed(index, layer, why));
            }
        }
        grids.extend(grid);
    }
    for (value, (grid, padding)) in grids.iter().zip(padding).enumerate() {
        grid.fits(*padding, values)
            .map_err(|error| NetworkError::Malformed(format!("value {value}: {error}")))?;
    }
    Ok(grids)
}
