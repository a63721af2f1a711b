//! Where a network's values stand in ciphertexts.
//!
//! A stride leaves rows and columns without values. Where a layer has several units of channels, they stand there in
//! groups ([`jaguar_ckks::layout`]), so that several share a ciphertext and a bootstrap. What is bootstrapped then
//! leaves in pieces, each with a StoC of its own: of one group, and of the rows that a stride tells apart. Only of
//! such pieces are the sums of the next layer zero at other groups' places ([`Convolution::gathered`]). Of all
//! pitches and margins the one is taken that costs least.

use jaguar_ckks::circuits::{self, Composite};
use jaguar_ckks::convolution::{Convolution, Geometry, Kernel, Term};
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::{Error, Parameters};

use crate::description::{self, Description, Layer, Polynomial};

/// Most layers.
const MOST_LAYERS: usize = 1000;
/// Most rows and columns of an input.
const MOST_SIDE: usize = 1 << 12;

/// Most columns beside the input's rows and their padding, for groups of later layers.
const MOST_MARGIN: usize = 32;

/// What is counted to choose among places, in products of a ciphertext with a kernel, of one core under `n16`
/// (docs/protocols/convfhe.md, by phase): all of a bootstrap and ReLU up to the mask, and what each piece takes, the
/// last product and StoC.
const BOOTSTRAP: usize = 3500;
const PIECE: usize = 350;

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

/// What is behind each convolution.
pub(super) fn circuit_plan(params: &Parameters, relu: Composite) -> circuits::Plan {
    circuits::Plan::new(params.values(), relu)
}

/// Whether the set has the levels for it.
pub(crate) fn fits(params: &Parameters, relu: Composite) -> bool {
    circuit_plan(params, relu).top(params.modulus(0)) <= params.top()
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
    /// In which pieces each of these values is kept.
    pub(super) splits: Vec<Split>,
    /// Of each layer and of the output: in which pieces it takes each of its terms.
    pub(super) taken: Vec<Vec<Split>>,
    outputs: usize,
    pub(super) composite: Composite,
    /// How many values lie from an input to the next one in its ciphertext.
    pub(super) apart: usize,
}

/// Places of one ciphertext that hold no value: zeros.
pub(crate) struct Idle {
    /// Of which term of the output.
    pub term: usize,
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
        if !(1..=values).contains(&description.images) {
            return malformed(format!("{} inputs in a ciphertext", description.images));
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
            Some([outputs, 1, 1]) if outputs <= values / description.images => outputs,
            Some([outputs, 1, 1]) => {
                let images = description.images;
                return malformed(format!(
                    "{outputs} outputs of {images} inputs, a ciphertext has {values} values"
                ));
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
        let most = needed.max().unwrap_or(1).next_power_of_two();
        let sizes = Sizes::new(&description, &shapes, padding);
        // The largest pitch that fits first, and the smallest margin: others must be better.
        let mut best: Option<(usize, usize, Placed)> = None;
        let (mut room, mut refused) = (None, None);
        for pitch in (0..=most.ilog2()).rev().map(|log| 1 << log) {
            for margin in margin..=margin + MOST_MARGIN {
                match sizes.place(margin, pitch, values) {
                    Ok(placed) => {
                        let (cost, apart) = (placed.cost(&description), sizes.apart(&placed, values));
                        let fit = apart.map_or(0, |apart| values / apart);
                        room = room.max(Some(fit));
                        let better = best.as_ref().is_none_or(|(least, ..)| cost < *least);
                        if let Some(apart) = apart.filter(|_| fit >= description.images && better) {
                            best = Some((cost, apart, placed));
                        }
                    }
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
        }
        if let (None, Some(room)) = (&best, room) {
            let images = description.images;
            return malformed(format!("{images} inputs in a ciphertext, which has room for {room}"));
        }
        match (best, refused) {
            (Some((_, apart, Placed { grids, splits, taken })), _) => {
                Ok(Self { description, values, grids, splits, taken, outputs, composite, apart })
            }
            (None, Some(error)) => Err(error),
            (None, None) => malformed("it has no places".into()),
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

    /// In how many pieces values leave their bootstraps, all together.
    pub fn pieces(&self) -> usize {
        let made = self.grids.iter().zip(&self.splits).skip(1);
        made.map(|(grid, split)| grid.pieces(*split).len()).sum()
    }

    /// How many products of a ciphertext with a kernel all layers and the output take, each kernel of one output
    /// channel.
    pub fn products(&self) -> usize {
        products(&self.description, &self.grids, &self.taken)
    }

    /// How many bootstraps an evaluation takes.
    pub fn bootstraps(&self) -> usize {
        self.grids.iter().skip(1).map(Grid::polynomials).sum()
    }

    /// What an evaluation costs by the figures by which places were chosen: in products of a ciphertext with a kernel.
    pub fn cost(&self) -> usize {
        self.bootstraps() * BOOTSTRAP + self.pieces() * PIECE + self.products()
    }

    /// How many values a ciphertext carries.
    pub fn values(&self) -> usize {
        self.values
    }

    /// What stands at the places of the first input, at those of all.
    pub(super) fn abreast(&self, mut polynomials: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        let places = self.apart..self.apart * self.description.images;
        for values in &mut polynomials {
            places.clone().for_each(|place| values[place] = values[place - self.apart]);
        }
        polynomials
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
        let there = params.values();
        let why = if self.values != there {
            format!("{there} values a ciphertext, where the network is placed in {}", self.values)
        } else if !fits(params, self.composite) {
            format!("not the levels for {}, the network's polynomial for ReLU", self.composite.name)
        } else {
            return Ok(());
        };
        Err(NetworkError::Set { set: params.name().to_owned(), why })
    }

    /// The same network, places and bounds, with another polynomial for ReLU.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_polynomial(&self, relu: Polynomial) -> Result<Self, NetworkError> {
        Self::new(Description { relu, ..self.description.clone() }, self.values)
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
        let terms = layer.terms.iter().zip(&self.taken[index]).map(|(term, &split)| {
            let factor = if bounded { self.bound(term.from) / own } else { 1.0 };
            Ok(Term { kernel: kernel(term)?, grid: self.grids[term.from], split, factor })
        });
        let bias = layer.bias.0.iter().map(|&bias| f64::from(bias) / own).collect();
        let terms: Result<_, Error> = terms.collect();
        let convolution = Convolution::new(terms?, bias, self.values)?;
        let convolution = convolution.abreast(self.description.images, self.apart)?;
        match self.grids.get(index + 1).filter(|grid| grid.groups() > 1) {
            Some(grid) => Ok(convolution.gathered(grid.grouping(), grid.apart())?),
            None => Ok(convolution),
        }
    }

    /// Places without a value, of all ciphertexts that a ReLU made and of which the logits are sums.
    pub(crate) fn idle(&self) -> Result<Vec<Idle>, NetworkError> {
        let mut looked = vec![0];
        let mut found = Vec::new();
        for (number, term) in self.description.output.terms.iter().enumerate() {
            if looked.contains(&term.from) {
                continue;
            }
            looked.push(term.from);
            let masks = self.abreast(self.grids[term.from].masks(self.values)?);
            for (part, mask) in masks.iter().enumerate() {
                let places: Vec<usize> =
                    (0..mask.len()).filter(|&place| mask[place] == 0.0).take(MOST_CHECKS).collect();
                if !places.is_empty() {
                    found.push(Idle { term: number, part, places });
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
        let logits = self.outputs * self.description.images;
        let none = self.idle()?.is_empty() || logits + MOST_CHECKS > self.values;
        Ok(if none { 0 } else { MOST_CHECKS })
    }
}

pub(super) fn failed(index: usize, layer: &Layer, why: String) -> NetworkError {
    NetworkError::Layer { index, name: layer.name.clone(), why }
}

fn geometry(term: &description::Term) -> Geometry {
    Geometry {
        outputs: term.out,
        inputs: term.channels,
        height: term.height,
        width: term.width,
        stride: term.stride,
        padding: term.padding,
    }
}

fn kernel(term: &description::Term) -> Result<Kernel, Error> {
    Kernel::new(geometry(term), term.weights.0.iter().map(|&weight| f64::from(weight)).collect())
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

/// What places follow from.
struct Sizes<'a> {
    description: &'a Description,
    /// Of the input and of each layer's output.
    shapes: &'a [[usize; 3]],
    /// By value: with what its takers pad it.
    padding: Vec<usize>,
    /// By layer: how far its sums spill.
    spills: Vec<usize>,
}

/// Places of all values.
struct Placed {
    grids: Vec<Grid>,
    splits: Vec<Split>,
    taken: Vec<Vec<Split>>,
}

impl<'a> Sizes<'a> {
    fn new(description: &'a Description, shapes: &'a [[usize; 3]], padding: Vec<usize>) -> Self {
        let spill = |(layer, made): (&Layer, &[usize; 3])| {
            let terms = layer.terms.iter();
            terms.map(|term| geometry(term).spill(shapes[term.from], *made)).max().unwrap_or(0)
        };
        let spills = description.layers.iter().zip(&shapes[1..]).map(spill).collect();
        Self { description, shapes, padding, spills }
    }

    /// Gives the input `pitch` values a place, and all other values what follows from it.
    fn place(&self, margin: usize, pitch: usize, values: usize) -> Result<Placed, NetworkError> {
        let Self { description, shapes, padding, .. } = self;
        let mut grids = vec![Grid::new(description.input, margin, pitch)?];
        for ((index, layer), shape) in description.layers.iter().enumerate().zip(&shapes[1..]) {
            let mut grid = None;
            for (number, term) in layer.terms.iter().enumerate() {
                let made = grids[term.from].strided(*shape, term.stride);
                let made = made.map_err(|error| failed(index, layer, error.to_string()))?;
                if *grid.get_or_insert(made) != made {
                    let why =
                        format!("term {number} leaves its output at other places than the terms before it");
                    return Err(failed(index, layer, why));
                }
            }
            let grouped = grid.map(|grid| self.grouped(index, grid, &grids, values));
            grids.extend(grouped);
        }
        for (value, (grid, padding)) in grids.iter().zip(padding).enumerate() {
            grid.fits(*padding, values)
                .map_err(|error| NetworkError::Malformed(format!("value {value}: {error}")))?;
        }
        let mut splits = vec![Split::WHOLE; grids.len()];
        let mut taken = Vec::with_capacity(description.layers.len() + 1);
        for (index, layer) in description.all().enumerate() {
            let gathers = grids.get(index + 1).is_some_and(|grid| grid.groups() > 1);
            let split = |term: &description::Term| match gathers {
                true => Split { units: grids[term.from].groups() > 1, phases: term.stride },
                false => Split::WHOLE,
            };
            let own: Vec<Split> = layer.terms.iter().map(split).collect();
            for (term, split) in layer.terms.iter().zip(&own) {
                splits[term.from] = splits[term.from].with(*split);
            }
            taken.push(own);
        }
        Ok(Placed { grids, splits, taken })
    }

    /// How many values lie from an input to the next one: as many as what a layer makes of an input takes, all that means nothing
    /// included. So each is what it would be alone, and no sum is larger. Packing finds all of them, since pitches divide it. One alone has
    /// all values; none where a value has more channels than a place.
    fn apart(&self, placed: &Placed, values: usize) -> Option<usize> {
        if self.description.images == 1 {
            return Some(values);
        }
        if placed.grids.iter().any(|grid| grid.units() > 1) {
            return None;
        }
        let needed =
            placed.grids.iter().zip(&self.padding).filter_map(|(grid, padding)| grid.needed(*padding).ok());
        // (Of the output nothing is taken but the logits.) Channels before the first one of a place are a column.
        let terms = self.description.layers.iter().flat_map(|layer| &layer.terms);
        let spread = terms.map(|term| placed.grids[term.from].spread([term.height - 1, term.width]));
        let pitch = placed.grids.iter().map(Grid::column_pitch).max()?;
        Some(needed.chain(spread).max()?.next_multiple_of(pitch))
    }

    /// A layer's grid with as many groups as save the most bootstraps, if that is worth the pieces of its inputs. The
    /// client's input comes in one piece, so a layer that takes it with a stride has no groups.
    fn grouped(&self, index: usize, grid: Grid, before: &[Grid], values: usize) -> Grid {
        let layer = &self.description.layers[index];
        let (units, [_, _, width]) = (grid.units(), grid.shape());
        if units == 1 || layer.terms.iter().any(|term| term.from == 0 && term.stride > 1) {
            return grid;
        }
        let apart = self.spills[index].max(self.padding[index + 1]);
        let columns = grid.row_pitch() / grid.column_pitch();
        let across = (columns / (width + apart)).min(units);
        let fit = |across: usize, down: usize| {
            grid.grouped([across, down], apart).ok().filter(|grid| grid.fits(apart, values).is_ok())
        };
        let mut down = 0;
        while across > 0 && across * down < units && fit(across, down + 1).is_some() {
            down += 1;
        }
        let most = across * down;
        if most < 2 {
            return grid;
        }
        let ciphertexts = units.div_ceil(most);
        let each = units.div_ceil(ciphertexts);
        let across = across.min(each);
        let cut: usize = layer
            .terms
            .iter()
            .filter(|term| term.stride > 1)
            .map(|term| before[term.from].units() * (term.stride - 1) * (PIECE + term.out))
            .sum();
        let grouped = fit(across, each.div_ceil(across)).unwrap_or(grid);
        if (units - ciphertexts) * BOOTSTRAP > cut { grouped } else { grid }
    }
}

impl Placed {
    /// What an evaluation costs by these places, in products.
    fn cost(&self, description: &Description) -> usize {
        let Self { grids, splits, taken } = self;
        let values = grids.iter().zip(splits).enumerate();
        let made = values.map(|(value, (grid, split))| match value {
            // What is sent.
            0 => grid.polynomials() * PIECE,
            _ => grid.polynomials() * BOOTSTRAP + grid.pieces(*split).len() * PIECE,
        });
        made.fold(products(description, grids, taken), usize::saturating_add)
    }
}

/// Those of all terms, a piece at a time.
fn products(description: &Description, grids: &[Grid], taken: &[Vec<Split>]) -> usize {
    let products = description.all().zip(taken).flat_map(|(layer, splits)| {
        let seen = |(term, split): (&description::Term, &Split)| {
            let pieces = grids[term.from].pieces(*split);
            let seen = pieces.iter().filter(|piece| piece.is_seen(&geometry(term))).count();
            term.out.saturating_mul(seen)
        };
        layer.terms.iter().zip(splits).map(seen)
    });
    products.fold(0, usize::saturating_add)
}
