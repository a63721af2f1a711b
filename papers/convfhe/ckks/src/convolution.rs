//! Convolutions of values that stand in coefficients, as products of polynomials (Kim and Guyot, IEEE TIFS 2023,
//! algorithm 1), and their packing: the first half of a layer. The second is a [bootstrap](crate::circuits::Bootstrap).
//!
//! ```text
//! [Σ_t factor_t·conv(x_t, kernel_t) + bias]  <-  Convolution([x_1], [x_2], …),   at a level below theirs
//! ```
//!
//! **Mathematics.** With Y = X^(N/M), and the input I_t(Y) in the places of its [grid](crate::layout),
//!
//! ```text
//! r_o(Y) = Σ_t I_t(Y)·K_(t,o)(Y)
//! K_(t,o)(Y) = Σ_(c,a,b) w[o,c,a,b]·Y^-(c + (b - left)·column_pitch + (a - top)·row_pitch)
//! ```
//!
//! The coefficient of Y^(j·column_pitch' + i·row_pitch') of r_o is output (o, i, j), the pitches being those of the
//! [strided](Grid::strided) grid. One product an output channel and polynomial, whatever the kernel's size is. Other
//! coefficients mean nothing: packing drops most of them, and fills their places with other channels; a mask behind
//! ReLU drops the rest. A layer is a sum of convolutions of several values: so a residual connection, with or without a
//! stride, is one term more.
//!
//! **Error.** Weights are integers at the scale `scale·q/(2^l·input's scale)`, q the level's modulus and l the
//! merges: each errs by half of one (2^-49 for 16 channels at the scales of a layer). Products are rescaled (up to 1/2 in
//! each coefficient, and as much times the secret), then [packed](crate::packing), which adds σ/sqrt(3) of a key
//! switch. In units of the result all of that is multiplied by 2^l.
//!
//! **Who learns what.** The client's values stay encrypted. What the server does depends on sizes alone, not on
//! weights: zeros among them are multiplied as others. Nothing is sent.

use zeroize::Zeroizing;

use crate::circuits::Evaluator;
use crate::layout::{Grid, MOST_SIZE, wrap};
use crate::packing::Packer;
use crate::poly::{Poly, Values};
use crate::{Ciphertext, Error, KeyedEvaluator, Plaintext};

const KERNEL: &str = "a kernel";
const CONVOLUTION: &str = "a convolution";

/// Most weights of a kernel.
const MOST_WEIGHTS: usize = 1 << 26;

/// Sizes of a convolution. A fully connected layer has a kernel of its input's height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Channels of the output.
    pub outputs: usize,
    /// Channels of the input.
    pub inputs: usize,
    /// Rows of the kernel.
    pub height: usize,
    /// Columns of the kernel.
    pub width: usize,
    /// Of rows and columns alike, a power of two.
    pub stride: usize,
    /// Rows and columns of zeros around the input: above, to the left, below, to the right. Fewer than the kernel has.
    pub padding: [usize; 4],
}

/// A convolution's sizes and weights, checked.
#[derive(Clone)]
pub struct Kernel {
    geometry: Geometry,
    weights: Vec<f64>,
}

impl Kernel {
    /// Weights are `[outputs, inputs, height, width]`, row-major.
    ///
    /// # Errors
    /// If a size is out of range, weights are not as many as the sizes say or more than 2^26, or one is no number.
    pub fn new(geometry: Geometry, weights: Vec<f64>) -> Result<Self, Error> {
        let Geometry { outputs, inputs, height, width, stride, padding: [top, left, bottom, right] } =
            geometry;
        let refuse = |why: String| Err(Error::Shape { what: KERNEL, why });
        let sizes = [outputs, inputs, height, width, stride];
        if sizes.iter().any(|size| !(1..=MOST_SIZE).contains(size)) || !stride.is_power_of_two() {
            return refuse(format!(
                "[{outputs}, {inputs}, {height}, {width}], stride {stride}: sizes are 1 to 2^16, strides powers of two"
            ));
        }
        if top.max(bottom) >= height || left.max(right) >= width {
            return refuse(format!("padding {top} {left} {bottom} {right} of {height} × {width} weights"));
        }
        let needed = sizes[..4].iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let needed = needed.filter(|&needed| needed <= MOST_WEIGHTS);
        if needed != Some(weights.len()) {
            let count = weights.len();
            return refuse(format!(
                "{count} weights for [{outputs}, {inputs}, {height}, {width}], at most 2^26"
            ));
        }
        match weights.iter().position(|weight| !weight.is_finite()) {
            Some(at) => refuse(format!("weight {at} is no number")),
            None => Ok(Self { geometry, weights }),
        }
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The largest padding of the four sides.
    pub fn padding(&self) -> usize {
        self.geometry.padding.into_iter().max().unwrap_or(0)
    }

    /// The output's shape for an input `[C, H, W]`.
    ///
    /// # Errors
    /// If the input has other channels, or is smaller than the kernel, padding included.
    pub fn output(&self, [channels, height, width]: [usize; 3]) -> Result<[usize; 3], Error> {
        let g = &self.geometry;
        let [top, left, bottom, right] = g.padding;
        let rows = height.saturating_add(top + bottom).checked_sub(g.height);
        let columns = width.saturating_add(left + right).checked_sub(g.width);
        match (rows, columns) {
            (Some(rows), Some(columns)) if channels == g.inputs => {
                Ok([g.outputs, rows / g.stride + 1, columns / g.stride + 1])
            }
            (_, _) => Err(Error::Shape {
                what: KERNEL,
                why: format!(
                    "[{channels}, {height}, {width}] under a kernel of {} channels of {} × {}",
                    g.inputs, g.height, g.width
                ),
            }),
        }
    }

    /// The weights of one output channel over one polynomial of the input: how far from the output's place the input
    /// stands, and the weight.
    fn taps<'a>(&'a self, grid: &'a Grid, polynomial: usize, out: usize) -> impl Iterator<Item = (i64, f64)> {
        let Geometry { inputs, height, width, padding: [top, left, _, _], .. } = self.geometry;
        grid.channels_of(polynomial).flat_map(move |c| {
            let begin = (out * inputs + c) * height * width;
            let weights = self.weights[begin..begin + height * width].iter().enumerate();
            weights.map(move |(at, &weight)| {
                let (a, b) = ((at / width) as i64, (at % width) as i64);
                (grid.at(c, a - top as i64, b - left as i64), weight)
            })
        })
    }
}

/// One convolution of a sum.
#[derive(Clone)]
pub struct Term {
    /// Its sizes and weights.
    pub kernel: Kernel,
    /// Where its input stands.
    pub grid: Grid,
    /// What the weights are multiplied by, above 0: a bound of the input's values by a bound of the output's.
    pub factor: f64,
}

/// A sum of convolutions of several values, with a bias: all of a layer before its ReLU.
pub struct Convolution {
    terms: Vec<Term>,
    bias: Vec<f64>,
    values: usize,
    output: Grid,
}

impl Convolution {
    /// Checks terms for polynomials of so many values (M, a power of two). There is one number of bias for each output
    /// channel; it is no multiple of a factor.
    ///
    /// # Errors
    /// If there is no term, a kernel does not fit its grid, a grid or its padding does not fit into the values, or
    /// terms leave their outputs at different places; if a factor is not positive, a bias is no number, or the bias
    /// has another length.
    pub fn new(terms: Vec<Term>, bias: Vec<f64>, values: usize) -> Result<Self, Error> {
        let refuse = |why: String| Error::Shape { what: CONVOLUTION, why };
        if !values.is_power_of_two() || values > MOST_SIZE {
            return Err(refuse(format!("{values} values, no power of two up to 2^16")));
        }
        let mut output: Option<Grid> = None;
        for (index, Term { kernel, grid, factor }) in terms.iter().enumerate() {
            if !factor.is_finite() || *factor <= 0.0 {
                return Err(refuse(format!("term {index} has the factor {factor}")));
            }
            grid.fits(kernel.padding(), values)?;
            let made = grid.strided(kernel.output(grid.shape())?, kernel.geometry.stride)?;
            made.fits(0, values)?;
            if made.column_pitch() > values {
                return Err(refuse(format!("a pitch of {} among {values} values", made.column_pitch())));
            }
            let first = *output.get_or_insert(made);
            if first != made {
                return Err(refuse(format!(
                    "term {index} makes {:?} with pitches {} and {}, terms before it {:?} with {} and {}",
                    made.shape(),
                    made.column_pitch(),
                    made.row_pitch(),
                    first.shape(),
                    first.column_pitch(),
                    first.row_pitch(),
                )));
            }
        }
        let output = output.ok_or_else(|| refuse("no term".into()))?;
        let [channels, _, _] = output.shape();
        if bias.len() != channels || bias.iter().any(|bias| !bias.is_finite()) {
            return Err(refuse(format!("{} finite numbers of bias for {channels} channels", bias.len())));
        }
        Ok(Self { terms, bias, values, output })
    }

    /// Where the output stands.
    pub fn output(&self) -> &Grid {
        &self.output
    }

    /// Encodes K(Y) of one term, polynomial of its input and output channel.
    fn kernel(
        &self,
        evaluator: &KeyedEvaluator,
        (term, part, out): (&Term, usize, usize),
        level: usize,
        scale: f64,
    ) -> Result<Plaintext, Error> {
        let mut coefficients = Zeroizing::new(vec![0.0; self.values]);
        // Two may meet at one place where the kernel is as large as the ring.
        for (offset, weight) in term.kernel.taps(&term.grid, part, out) {
            let (place, sign) = wrap(-offset, self.values);
            coefficients[place] += sign * weight;
        }
        evaluator.context().encode_coefficients(&coefficients, level, scale)
    }

    /// K(Y) of every term and every polynomial of its input, in order, for one output channel: what [`sum`](Self::sum)
    /// makes and multiplies, here encoded at this scale, times the terms' factors.
    ///
    /// # Errors
    /// If there is no such channel or level, or weights do not fit 2^62 at the scale.
    pub fn plaintexts(
        &self,
        evaluator: &KeyedEvaluator,
        out: usize,
        level: usize,
        scale: f64,
    ) -> Result<Vec<Plaintext>, Error> {
        self.check_channel(out)?;
        let mut made = Vec::new();
        for term in &self.terms {
            for part in 0..term.grid.polynomials() {
                made.push(self.kernel(evaluator, (term, part, out), level, scale * term.factor)?);
            }
        }
        Ok(made)
    }

    /// r_o(Y) of one output channel, without bias, at this scale and at the inputs' lowest level. Inputs are one
    /// slice a term, of as many ciphertexts as its grid has polynomials.
    ///
    /// # Errors
    /// If there are other numbers of ciphertexts, no such channel, no room for the scale, or weights do not fit 2^62 at
    /// the scale that is left for them.
    pub fn sum(
        &self,
        evaluator: &KeyedEvaluator,
        inputs: &[&[Ciphertext]],
        out: usize,
        scale: f64,
    ) -> Result<Ciphertext, Error> {
        self.check_inputs(inputs.iter().map(|parts| parts.len()))?;
        self.check_channel(out)?;
        let context = evaluator.context();
        let lowest = inputs.iter().flat_map(|parts| parts.iter()).map(Ciphertext::level).min();
        let level = lowest.unwrap_or(0);
        evaluator.check_room(CONVOLUTION, level, scale)?;
        let limbs = context.params().limbs(level);
        let zero = || -> Poly<Values> { context.make(limbs, 0, |_, _, limb| limb.fill(0)) };
        let mut sum = Ciphertext { a: zero(), b: zero(), level, scale };
        for (term, parts) in self.terms.iter().zip(inputs) {
            for (part, ct) in parts.iter().enumerate() {
                // With the factor, what is multiplied has the scale of the sum.
                let own = scale / ct.scale() * term.factor;
                let kernel = self.kernel(evaluator, (term, part, out), level, own)?;
                evaluator.add_product(&mut sum, ct, &kernel);
            }
        }
        Ok(sum)
    }

    /// One polynomial of the output, bias included, a level below the inputs' lowest, at exactly this scale: every
    /// channel's [`sum`](Self::sum), rescaled, packed. Channels are made when their turn comes, so memory is that of
    /// [`Packer::pack`], whose threads' branches have channels of their own.
    ///
    /// The caller sees to it that every place, times the scale, is below half of the modulus that is left: what is larger
    /// wraps around.
    ///
    /// Values stand at the M coefficients of Y^v; those between them hold what is left over, which
    /// [`raise`](crate::circuits::Evaluator::raise) removes. Places of no value hold what [`plain`](Self::plain) says.
    ///
    /// # Errors
    /// As [`sum`](Self::sum) and [`Packer::pack`]; if there is no such polynomial, or the inputs are at level 0.
    pub fn packed(
        &self,
        packer: &Packer,
        inputs: &[&[Ciphertext]],
        part: usize,
        scale: f64,
    ) -> Result<Ciphertext, Error> {
        self.packed_while(packer, inputs, part, scale, || Ok(()))
    }

    /// The same, while `look`, which is called before each channel, does not fail. What it gives is dropped when the
    /// channel is made: a guard can tell how long that took.
    ///
    /// # Errors
    /// As [`packed`](Self::packed), and of `look`.
    pub fn packed_while<G, E: From<Error> + Send>(
        &self,
        packer: &Packer,
        inputs: &[&[Ciphertext]],
        part: usize,
        scale: f64,
        look: impl Fn() -> Result<G, E> + Sync,
    ) -> Result<Ciphertext, E> {
        self.check_part(part)?;
        let evaluator = packer.evaluator();
        let (context, pitch) = (evaluator.context(), self.output.column_pitch());
        let n = context.params().n();
        if self.values > n {
            let (what, expected) = ("values", format!("at most {n}"));
            return Err(Error::Count { operation: CONVOLUTION, what, found: self.values, expected }.into());
        }
        let level = inputs.iter().flat_map(|parts| parts.iter()).map(Ciphertext::level).min().unwrap_or(0);
        if level == 0 {
            let expected = "at least 1".into();
            return Err(Error::Level { operation: CONVOLUTION, found: 0, expected }.into());
        }
        let channels = self.output.channels_of(part);
        let merges = Packer::merges(pitch);
        // Packing multiplies by 2^merges, rescaling divides by the modulus.
        let before = scale * context.params().modulus(level) / f64::from(merges).exp2();
        let packed = packer.pack(pitch, merges + (n / self.values).ilog2(), |c| {
            if c >= channels.len() {
                return Ok(None);
            }
            let _guard = look()?;
            let sum = self.sum(evaluator, inputs, channels.start + c, before)?;
            Ok::<_, E>(Some(evaluator.rescale(&sum)?))
        })?;
        let mut packed = evaluator.with_scale(packed, scale);
        let mut bias = vec![0.0; self.values];
        self.add_bias(part, &mut bias);
        let bias = context.encode_coefficients(&bias, packed.level, scale)?;
        context.add(&mut packed.b, bias.poly());
        Ok(packed)
    }

    /// The values of one polynomial of the output, as [`packed`](Self::packed) computes them, in floating point: all
    /// M places, those of no value included, for they take part in the bound of what is raised. Inputs are one slice
    /// a term, of polynomials of M values.
    ///
    /// # Errors
    /// If there is no such polynomial, or inputs have other sizes.
    pub fn plain(&self, inputs: &[&[Vec<f64>]], part: usize) -> Result<Vec<f64>, Error> {
        self.check_part(part)?;
        self.check_inputs(inputs.iter().map(|parts| parts.len()))?;
        let other = inputs.iter().flat_map(|parts| parts.iter()).find(|values| values.len() != self.values);
        if let Some(other) = other {
            let expected = self.values.to_string();
            return Err(Error::Count {
                operation: CONVOLUTION,
                what: "values",
                found: other.len(),
                expected,
            });
        }
        let pitch = self.output.column_pitch();
        let mut sums = vec![0.0; self.values];
        for (c, out) in self.output.channels_of(part).enumerate() {
            for (term, polynomials) in self.terms.iter().zip(inputs) {
                for (polynomial, values) in polynomials.iter().enumerate() {
                    for (offset, weight) in term.kernel.taps(&term.grid, polynomial, out) {
                        let weight = weight * term.factor;
                        let (place, sign) = wrap(offset, self.values);
                        // Y^M = -1: behind the end the sign changes.
                        let inputs = values[place..].iter().step_by(pitch).map(|x| sign * x);
                        let wrapped = values[place % pitch..place].iter().step_by(pitch).map(|x| -sign * x);
                        for (sum, x) in sums[c..].iter_mut().step_by(pitch).zip(inputs.chain(wrapped)) {
                            *sum += weight * x;
                        }
                    }
                }
            }
        }
        self.add_bias(part, &mut sums);
        Ok(sums)
    }

    fn add_bias(&self, part: usize, values: &mut [f64]) {
        let [_, height, width] = self.output.shape();
        for c in self.output.channels_of(part) {
            for (i, j) in (0..height as i64).flat_map(|i| (0..width as i64).map(move |j| (i, j))) {
                values[self.output.at(c, i, j) as usize] += self.bias[c];
            }
        }
    }

    fn check_channel(&self, out: usize) -> Result<(), Error> {
        let [channels, _, _] = self.output.shape();
        if out < channels {
            return Ok(());
        }
        let (what, expected) = ("as the channel", format!("a number below {channels}"));
        Err(Error::Count { operation: CONVOLUTION, what, found: out, expected })
    }

    fn check_part(&self, part: usize) -> Result<(), Error> {
        let polynomials = self.output.polynomials();
        if part < polynomials {
            return Ok(());
        }
        let (what, expected) = ("as the polynomial", format!("a number below {polynomials}"));
        Err(Error::Count { operation: CONVOLUTION, what, found: part, expected })
    }

    fn check_inputs(&self, counts: impl ExactSizeIterator<Item = usize>) -> Result<(), Error> {
        let count = |what, found: usize, needed: usize| {
            let expected = needed.to_string();
            Err(Error::Count { operation: CONVOLUTION, what, found, expected })
        };
        if counts.len() != self.terms.len() {
            return count("inputs", counts.len(), self.terms.len());
        }
        for (found, term) in counts.zip(&self.terms) {
            if found != term.grid.polynomials() {
                return count("polynomials of an input", found, term.grid.polynomials());
            }
        }
        Ok(())
    }
}
