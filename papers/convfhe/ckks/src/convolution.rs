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
//! **Groups.** Several units of the output's channels share a polynomial ([`Convolution::gathered`]): each unit's packed
//! polynomial is multiplied by a monomial, which moves it to its [group](crate::layout), and they are added. That takes
//! polynomials that are zero at the other groups' places. They are where the input comes in pieces of one group and of
//! the rows i ≡ φ (mod s) for a stride s: K then has the kernel's rows a - top ≡ φ (mod s) only, and at a row that is
//! none of the output's these meet rows of other phases, which are zero. Columns between are dropped by packing.
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
use crate::layout::{Grid, MOST_SIZE, Piece, Split, wrap};
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

impl Geometry {
    /// How many rows or columns beyond the output, of these shapes `[C, H, W]`, a product has numbers that are not
    /// zero, at most: for an input that is zero at all other places.
    pub fn spill(&self, input: [usize; 3], output: [usize; 3]) -> usize {
        let Self { height, width, stride, padding: [top, left, _, _], .. } = *self;
        // Before the first place, and behind the last one.
        let side = |kernel: usize, before: usize, size: usize, made: usize| {
            let last = (size + before).saturating_sub(1) / stride;
            ((kernel - 1).saturating_sub(before) / stride).max((last + 1).saturating_sub(made))
        };
        side(height, top, input[1], output[1]).max(side(width, left, input[2], output[2]))
    }
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

    /// The weights of one output channel over one piece of the input: how far from the output's place the input
    /// stands, and the weight. None where the piece has no row that the kernel sees.
    fn taps<'a>(&'a self, grid: &'a Grid, piece: &'a Piece, out: usize) -> impl Iterator<Item = (i64, f64)> {
        let Geometry { inputs, height, width, padding: [top, left, _, _], .. } = self.geometry;
        piece.channels.clone().flat_map(move |c| {
            let begin = (out * inputs + c) * height * width;
            let weights = self.weights[begin..begin + height * width].iter().enumerate();
            weights.filter_map(move |(at, &weight)| {
                let (a, b) = ((at / width) as i64 - top as i64, (at % width) as i64 - left as i64);
                piece.has_row(a).then(|| (grid.at(c, a, b), weight))
            })
        })
    }
}

impl Piece {
    /// Whether a kernel of these sizes sees any of its rows.
    pub fn is_seen(&self, geometry: &Geometry) -> bool {
        let [top, ..] = geometry.padding;
        (0..geometry.height).any(|a| self.has_row(a as i64 - top as i64))
    }
}

/// One convolution of a sum.
#[derive(Clone)]
pub struct Term {
    /// Its sizes and weights.
    pub kernel: Kernel,
    /// Where its input stands.
    pub grid: Grid,
    /// In which pieces it comes: with phases, as many as the stride.
    pub split: Split,
    /// What the weights are multiplied by, above 0: a bound of the input's values by a bound of the output's.
    pub factor: f64,
}

/// A sum of convolutions of several values, with a bias: all of a layer before its ReLU.
pub struct Convolution {
    terms: Vec<Term>,
    /// Of each term.
    pieces: Vec<Vec<Piece>>,
    bias: Vec<f64>,
    values: usize,
    output: Grid,
    /// How many inputs there are, and how many values lie from one to the next.
    abreast: [usize; 2],
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
        for (index, Term { kernel, grid, split, factor }) in terms.iter().enumerate() {
            if split.phases != 1 && split.phases != kernel.geometry.stride {
                let (phases, stride) = (split.phases, kernel.geometry.stride);
                return Err(refuse(format!("term {index} has {phases} phases, a stride of {stride}")));
            }
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
        let pieces = terms.iter().map(|term| term.grid.pieces(term.split)).collect();
        Ok(Self { terms, pieces, bias, values, output, abreast: [1, values] })
    }

    /// The same for so many inputs in the same polynomials, each so many values behind the one before it: each gets the bias. Products need
    /// no more than that inputs are as far apart as products [spread](Grid::spread).
    ///
    /// # Errors
    /// If there are none, or there is no room for the outputs.
    pub fn abreast(self, inputs: usize, apart: usize) -> Result<Self, Error> {
        let all = inputs.checked_mul(apart).filter(|all| (1..=self.values).contains(all));
        if all.is_none() {
            let why = format!("{inputs} inputs, {apart} apart, among {} values", self.values);
            return Err(Error::Shape { what: CONVOLUTION, why });
        }
        self.output.fits(0, apart)?;
        Ok(Self { abreast: [inputs, apart], ..self })
    }

    /// The same with an output in groups: several polynomials of it are moved and added, so that they share one
    /// bootstrap. Where an input's pieces hold one group and the rows of one phase, a product is zero but at the
    /// output's places and [beside them](Geometry::spill); there is `apart` room for that, and what stands there
    /// means nothing.
    ///
    /// # Errors
    /// If a term does not come in such pieces, `apart` is too small, or groups do not fit.
    pub fn gathered(self, groups: [usize; 2], apart: usize) -> Result<Self, Error> {
        let refuse = |why: String| Error::Shape { what: CONVOLUTION, why };
        let output = self.output.grouped(groups, apart)?;
        output.fits(apart, self.values)?;
        for (index, Term { kernel, grid, split, .. }) in self.terms.iter().enumerate() {
            let Geometry { stride, .. } = kernel.geometry;
            if (grid.groups() > 1 && !split.units) || split.phases != stride {
                return Err(refuse(format!(
                    "term {index} fills other places of the output: {} groups, {} phases, a stride of {stride}",
                    grid.groups(),
                    split.phases
                )));
            }
            let spill = kernel.geometry.spill(grid.shape(), output.shape());
            if spill > apart {
                return Err(refuse(format!("term {index} spills {spill} places, groups are {apart} apart")));
            }
        }
        Ok(Self { output, ..self })
    }

    /// Where the output stands.
    pub fn output(&self) -> &Grid {
        &self.output
    }

    /// Encodes K(Y) of one term, piece of its input and output channel.
    fn kernel(
        &self,
        evaluator: &KeyedEvaluator,
        (term, piece, out): (&Term, &Piece, usize),
        level: usize,
        scale: f64,
    ) -> Result<Plaintext, Error> {
        let mut coefficients = Zeroizing::new(vec![0.0; self.values]);
        // Two may meet at one place where the kernel is as large as the ring.
        for (offset, weight) in term.kernel.taps(&term.grid, piece, out) {
            let (place, sign) = wrap(-offset, self.values);
            coefficients[place] += sign * weight;
        }
        evaluator.context().encode_coefficients(&coefficients, level, scale)
    }

    /// K(Y) of every term and every piece of its input that the kernel sees, in order, for one output channel: what
    /// [`sum`](Self::sum)
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
        for (term, pieces) in self.terms.iter().zip(&self.pieces) {
            for piece in pieces.iter().filter(|piece| piece.is_seen(&term.kernel.geometry)) {
                made.push(self.kernel(evaluator, (term, piece, out), level, scale * term.factor)?);
            }
        }
        Ok(made)
    }

    /// r_o(Y) of one output channel, without bias, at this scale and at the inputs' lowest level. Inputs are one
    /// slice a term, of as many ciphertexts as its input has pieces.
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
        self.check_inputs(
            "pieces of an input",
            inputs.iter().zip(&self.pieces).map(|(a, b)| (a.len(), b.len())),
            inputs.len(),
        )?;
        self.check_channel(out)?;
        let context = evaluator.context();
        let lowest = inputs.iter().flat_map(|parts| parts.iter()).map(Ciphertext::level).min();
        let level = lowest.unwrap_or(0);
        evaluator.check_room(CONVOLUTION, level, scale)?;
        let limbs = context.params().limbs(level);
        let zero = || -> Poly<Values> { context.make(limbs, 0, |_, _, limb| limb.fill(0)) };
        let mut sum = Ciphertext { a: zero(), b: zero(), level, scale };
        for ((term, pieces), parts) in self.terms.iter().zip(&self.pieces).zip(inputs) {
            for (piece, ct) in
                pieces.iter().zip(*parts).filter(|(piece, _)| piece.is_seen(&term.kernel.geometry))
            {
                // With the factor, what is multiplied has the scale of the sum.
                let own = scale / ct.scale() * term.factor;
                let kernel = self.kernel(evaluator, (term, piece, out), level, own)?;
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
        let merges = Packer::merges(pitch);
        // Packing multiplies by 2^merges, rescaling divides by the modulus.
        let before = scale * context.params().modulus(level) / f64::from(merges).exp2();
        let unit = |unit: usize| {
            let channels = self.output.channels_of_unit(unit);
            let packed = packer.pack(pitch, merges + (n / self.values).ilog2(), |c| {
                if c >= channels.len() {
                    return Ok(None);
                }
                let _guard = look()?;
                let sum = self.sum(evaluator, inputs, channels.start + c, before)?;
                Ok::<_, E>(Some(evaluator.rescale(&sum)?))
            })?;
            match n / self.values * self.output.moved(unit) {
                0 => Ok::<_, E>(packed),
                moved => Ok(evaluator.multiply_monomial(&packed, moved)?),
            }
        };
        let mut units = self.output.units_of(part);
        let first = unit(units.start)?;
        units.next();
        let packed = units.try_fold(first, |sum, next| Ok::<_, E>(evaluator.add(&sum, &unit(next)?)?))?;
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
        let polynomials = self.terms.iter().map(|term| term.grid.polynomials());
        let counts = inputs.iter().zip(polynomials).map(|(parts, needed)| (parts.len(), needed));
        self.check_inputs("polynomials of an input", counts, inputs.len())?;
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
        for ((term, pieces), polynomials) in self.terms.iter().zip(&self.pieces).zip(inputs) {
            // All that stands in a polynomial, unless it is cut.
            let kept = match term.split {
                Split::WHOLE => None,
                split => Some(term.grid.kept(split, self.values)?),
            };
            for (at, piece) in pieces.iter().enumerate() {
                let whole = &polynomials[piece.polynomial];
                let cut: Option<Vec<f64>> =
                    kept.as_ref().map(|kept| whole.iter().zip(&kept[at]).map(|(x, keep)| x * keep).collect());
                let values = cut.as_ref().unwrap_or(whole);
                for unit in self.output.units_of(part) {
                    let moved = self.output.moved(unit) as i64;
                    for (c, out) in self.output.channels_of_unit(unit).enumerate() {
                        for (offset, weight) in term.kernel.taps(&term.grid, piece, out) {
                            let weight = weight * term.factor;
                            let (place, sign) = wrap(offset - moved, self.values);
                            // Y^M = -1: behind the end the sign changes.
                            let inputs = values[place..].iter().step_by(pitch).map(|x| sign * x);
                            let wrapped =
                                values[place % pitch..place].iter().step_by(pitch).map(|x| -sign * x);
                            for (sum, x) in sums[c..].iter_mut().step_by(pitch).zip(inputs.chain(wrapped)) {
                                *sum += weight * x;
                            }
                        }
                    }
                }
            }
        }
        self.add_bias(part, &mut sums);
        Ok(sums)
    }

    fn add_bias(&self, part: usize, values: &mut [f64]) {
        let ([_, height, width], [inputs, apart]) = (self.output.shape(), self.abreast);
        for own in values.chunks_exact_mut(apart).take(inputs) {
            for c in self.output.channels_of(part) {
                for (i, j) in (0..height as i64).flat_map(|i| (0..width as i64).map(move |j| (i, j))) {
                    own[self.output.at(c, i, j) as usize] += self.bias[c];
                }
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

    /// `counts`: of each input how many there are, and how many are needed; `inputs`: how many inputs.
    fn check_inputs(
        &self,
        what: &'static str,
        mut counts: impl Iterator<Item = (usize, usize)>,
        inputs: usize,
    ) -> Result<(), Error> {
        let count = |what, found: usize, needed: usize| {
            let expected = needed.to_string();
            Err(Error::Count { operation: CONVOLUTION, what, found, expected })
        };
        if inputs != self.terms.len() {
            return count("inputs", inputs, self.terms.len());
        }
        match counts.find(|(found, needed)| found != needed) {
            Some((found, needed)) => count(what, found, needed),
            None => Ok(()),
        }
    }
}
