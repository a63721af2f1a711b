//! The second half of a layer (Section IV-C of the paper): values come as coefficients at level 0, and leave as
//! coefficients at the level of the next convolution, rectified.
//!
//! ```text
//! level 0 → ModUp → CtoS → sine → ReLU, Ext → StoC → output level
//! ```
//!
//! CtoS moves coefficients into slots, so that ReLU works on each, and StoC moves them back, at a low level, where it is cheap.
//! Behind ModUp a phase is m + q0·I. It is read as x = (m + q0·I)/q0: the scale is q0, and values are m/q0 around integers.
//! CtoS divides by the sine's bound, and the sine's amplitude takes what is left of x to the values' own scale. So no step is
//! there for scales alone.
//!
//! Between CtoS and ReLU slots hold real and imaginary parts of w apart ([`Layout`]). StoC takes w itself. So the mask, which is
//! multiplied anyway, has a factor of i where imaginary parts are, and a sum of the halves is w.

use std::sync::Arc;

use super::error::{Error, In};
use super::evaluator::Evaluator;
use super::fourier::{Fourier, Layout, even_layers, slot_order};
use super::outline::{Counts, Outline, Shape};
use super::relu::Composite;
use super::sine::Sine;
use crate::Complex;

const MOD_UP: &str = "ModUp";
const TO_SLOTS: &str = "CtoS";
const TO_COEFFICIENTS: &str = "StoC";
const MASK: &str = "a mask";

/// The degree of the sine's polynomial, and how often its angle is doubled.
const SINE_DEGREE: usize = 30;
const DOUBLINGS: u32 = 3;

/// The integer part of a raised phase is at most this, except with probability 2^-138, for an ephemeral secret of
/// weight 32 (ePrint 2022/024).
const LARGEST_INTEGER: f64 = 15.0;

/// How many hoisted rotations a giant step costs: 4 to 6 were measured for the first matrix of CtoS at N = 2^16.
const GIANT_COST: f64 = 4.0;

/// How many hoisted rotations a key of CtoS is worth that need not be made, sent, read and held: with 3 or less keys would have
/// 1.65 GB for N = 2^16. One of StoC has a fifteenth of the bytes; rotations there cost less, too.
const KEY_COST: f64 = 5.0;
const LOW_KEY_COST: f64 = 3.0;

/// What a bootstrap does.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How many values a ciphertext carries: a power of two, at most N. Value v is the coefficient of X^(v·N/values).
    pub values: usize,
    /// How many matrices CtoS has: a level each.
    pub to_slots: usize,
    /// How many matrices StoC has: a level each.
    pub to_coefficients: usize,
    /// The level of the result.
    pub output_level: usize,
    /// log2 of the scale before the modulus is raised: a value in [-1, 1] is an integer up to this, at most q0/2^8.
    pub log_raised_scale: u32,
    /// log2 of the scale of the values in slots and of the result.
    pub log_value_scale: u32,
    /// The polynomials of ReLU.
    pub relu: Composite,
}

impl Plan {
    /// For the chains of [`Literal::n16`](crate::Literal::n16) and [`Literal::n16_relu8`](crate::Literal::n16_relu8), in rings of any degree.
    pub fn new(values: usize, relu: Composite) -> Self {
        Self {
            values,
            to_slots: 4,
            to_coefficients: 3,
            output_level: 1,
            log_raised_scale: 42,
            log_value_scale: 40,
            relu,
        }
    }

    /// At which level StoC begins.
    pub fn coefficients_level(&self) -> usize {
        self.output_level + self.to_coefficients
    }

    /// At which level a mask is multiplied.
    pub fn mask_level(&self) -> usize {
        self.coefficients_level() + 2
    }

    /// At which level ReLU begins.
    pub fn relu_level(&self) -> usize {
        self.coefficients_level() + self.relu.levels()
    }

    /// The highest level, where q0 is this.
    pub fn top(&self, q0: f64) -> usize {
        self.relu_level() + self.sine(q0).depth() + self.to_slots
    }

    fn raised_scale(&self) -> f64 {
        f64::from(self.log_raised_scale).exp2()
    }

    fn value_scale(&self) -> f64 {
        f64::from(self.log_value_scale).exp2()
    }

    /// The sine for a modulus q0.
    fn sine(&self, q0: f64) -> Sine {
        let message = self.raised_scale() / q0;
        // sin(2πv/q0·scale) is nearly 2πv·scale/q0.
        let amplitude = 1.0 / (std::f64::consts::TAU * message);
        Sine::new(SINE_DEGREE, DOUBLINGS, LARGEST_INTEGER + 0.25 + message, amplitude)
    }

    fn layout(&self, slots: usize, layers: Vec<usize>, key_cost: f64) -> Layout {
        Layout { slots, values: self.values, layers, giant_cost: GIANT_COST, key_cost }
    }

    /// What a layer takes in a ring with so many slots, whose levels have these moduli.
    pub fn counts(
        &self,
        slots: usize,
        moduli: Vec<f64>,
    ) -> Result<Counts, Error<<Outline as Evaluator>::Error>> {
        let outline = Outline::new(slots, moduli);
        let bootstrap = Bootstrap::new(&outline, self.clone())?;
        let mask = bootstrap.mask(&vec![1.0; self.values])?;
        bootstrap.layer(&Shape { level: 0, scale: self.raised_scale() }, &mask)?;
        Ok(outline.counts())
    }
}

/// A plan and its matrices, encoded. `P` is the evaluator's [`Prepared`](Evaluator::Prepared). Nothing of them depends on keys,
/// so they serve every client of a parameter set.
pub struct Matrices<P> {
    plan: Plan,
    sine: Sine,
    dense: bool,
    to_slots: Vec<P>,
    to_coefficients: Vec<P>,
}

impl<P> Matrices<P> {
    /// Encodes the matrices.
    ///
    /// # Errors
    /// If there are too few levels, if values are more than a sixteenth of q0 before ModUp, or if a transform cannot be cut so.
    pub fn new<E: Evaluator<Prepared = P>>(evaluator: &E, plan: Plan) -> Result<Self, Error<E::Error>> {
        let (slots, top, q0) = (evaluator.slots(), evaluator.top(), evaluator.modulus(0));
        if plan.raised_scale() > q0 / 16.0 {
            return Err(Error::Message { log_scale: plan.log_raised_scale, q0 });
        }
        let sine = plan.sine(q0);
        let needed = plan.top(q0);
        if top < needed {
            return Err(Error::Level { circuit: "a bootstrap", needed, found: top });
        }
        let layout = plan.layout(slots, even_layers(plan.values, plan.to_slots), KEY_COST);
        let first = layout.to_slots(1.0 / sine.bound())?;
        let turned = even_layers(plan.values, plan.to_coefficients).into_iter().rev().collect();
        let last = plan.layout(slots, turned, LOW_KEY_COST).to_coefficients(1.0)?;
        let encode = |fourier: &Fourier, begin: usize, circuit| {
            let matrices = fourier.matrices.iter().zip((0..=begin).rev());
            let prepared = matrices.map(|(m, level)| evaluator.prepare(m, level, evaluator.modulus(level)));
            prepared.collect::<Result<Vec<_>, _>>().within(circuit)
        };
        let to_slots = encode(&first, top, TO_SLOTS)?;
        let to_coefficients = encode(&last, plan.coefficients_level(), TO_COEFFICIENTS)?;
        Ok(Self { sine, dense: layout.dense(), to_slots, to_coefficients, plan })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// A plan with its matrices, and what evaluates it.
pub struct Bootstrap<'e, E: Evaluator> {
    evaluator: &'e E,
    matrices: Arc<Matrices<E::Prepared>>,
}

impl<'e, E: Evaluator> Bootstrap<'e, E> {
    /// Encodes the matrices.
    ///
    /// # Errors
    /// As [`Matrices::new`].
    pub fn new(evaluator: &'e E, plan: Plan) -> Result<Self, Error<E::Error>> {
        Ok(Self::with(evaluator, Arc::new(Matrices::new(evaluator, plan)?)))
    }

    /// With matrices that are encoded already, for the evaluator's parameter set.
    pub fn with(evaluator: &'e E, matrices: Arc<Matrices<E::Prepared>>) -> Self {
        Self { evaluator, matrices }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.matrices.plan
    }

    /// How many ciphertexts of slots there are between CtoS and StoC: two if every coefficient carries a value.
    pub fn ciphertexts(&self) -> usize {
        if self.matrices.dense { 2 } else { 1 }
    }

    /// Which values a layer keeps, mostly 0 and 1, encoded in the order of slots, times i where imaginary parts are: one
    /// plaintext for each ciphertext of slots.
    pub fn mask(&self, keep: &[f64]) -> Result<Vec<E::Plaintext>, Error<E::Error>> {
        if keep.len() != self.matrices.plan.values {
            return Err(Error::Mask { needed: self.matrices.plan.values, found: keep.len() });
        }
        let level = self.matrices.plan.mask_level();
        let half = keep.len() / 2;
        let units = [Complex::ONE, Complex::I].into_iter().flat_map(|unit| std::iter::repeat_n(unit, half));
        let slots: Vec<_> =
            slot_order(keep, half).into_iter().zip(units).map(|(k, unit)| unit.scaled(k)).collect();
        let parts = slots.chunks(keep.len() / self.ciphertexts());
        parts
            .map(|part| self.evaluator.encode(part, level, self.evaluator.modulus(level)).within(MASK))
            .collect()
    }

    /// ModUp, CtoS and the sine: from coefficients at level 0, at the scale of [`Plan::log_raised_scale`], to slots at
    /// the scale of [`Plan::log_value_scale`]. Two ciphertexts if every coefficient carries a value, one otherwise.
    /// What the ciphertext says of its scale is not looked at.
    pub fn slots(&self, ct: &E::Ciphertext) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        self.reduced(&self.raised(ct)?)
    }

    /// The first part of [`slots`](Self::slots): ModUp and CtoS.
    pub fn raised(&self, ct: &E::Ciphertext) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        let e = self.evaluator;
        if e.level(ct) != 0 {
            return Err(Error::NotAtTheBottom { found: e.level(ct) });
        }
        let raised = e.raise(ct, 1, self.matrices.plan.values).within(MOD_UP)?;
        let both = self.transform(&e.with_scale(raised, e.modulus(0)), &self.matrices.to_slots, TO_SLOTS)?;
        self.real_parts(&both)
    }

    /// The second part of [`slots`](Self::slots): the sine of what [`raised`](Self::raised) gives.
    pub fn reduced(&self, parts: &[E::Ciphertext]) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        self.expect(parts.len())?;
        let matrices = &self.matrices;
        self.each(|part| matrices.sine.evaluate(self.evaluator, &parts[part], matrices.plan.value_scale()))
    }

    /// What `work` makes for each ciphertext of slots, of which there are two at most: at the same time.
    fn each<T: Send>(
        &self,
        work: impl Fn(usize) -> Result<T, Error<E::Error>> + Sync,
    ) -> Result<Vec<T>, Error<E::Error>> {
        if self.ciphertexts() == 1 {
            return Ok(vec![work(0)?]);
        }
        let (real, imaginary) = self.evaluator.join(|| work(0), || work(1));
        Ok(vec![real?, imaginary?])
    }

    /// Real and imaginary parts of halves: in two ciphertexts, or the latter n slots behind the former.
    fn real_parts(&self, both: &E::Ciphertext) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        let e = self.evaluator;
        let conjugate = e.conjugate(both).within(TO_SLOTS)?;
        let real = e.add(both, &conjugate).within(TO_SLOTS)?;
        let difference = e.subtract(both, &conjugate).within(TO_SLOTS)?;
        let imaginary = e.multiply_constant(&difference, -Complex::I, 1.0).within(TO_SLOTS)?;
        if self.matrices.dense {
            return Ok(vec![real, imaginary]);
        }
        let moved = e.rotate(&imaginary, self.matrices.plan.values / 2).within(TO_SLOTS)?;
        Ok(vec![e.add(&real, &moved).within(TO_SLOTS)?])
    }

    /// ReLU, and zero where the mask has it. Imaginary parts come out times i.
    pub fn rectify(
        &self,
        slots: &[E::Ciphertext],
        mask: &[E::Plaintext],
    ) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        self.keep(slots, &self.steps(slots)?, mask)
    }

    /// The first part of [`rectify`](Self::rectify): where slots are positive.
    pub fn steps(&self, slots: &[E::Ciphertext]) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        self.expect(slots.len())?;
        self.each(|part| {
            // A polynomial of fewer levels than there are begins lower, where it costs less.
            let level = self.matrices.plan.relu_level();
            let low = self.evaluator.drop_to(&slots[part], level).within("ReLU")?;
            self.matrices.plan.relu.step(self.evaluator, &low)
        })
    }

    /// The second part of [`rectify`](Self::rectify), with these [`steps`](Self::steps): any number of masks, one
    /// after the other, cut what one bootstrap gives into pieces.
    pub fn keep(
        &self,
        slots: &[E::Ciphertext],
        steps: &[E::Ciphertext],
        mask: &[E::Plaintext],
    ) -> Result<Vec<E::Ciphertext>, Error<E::Error>> {
        for found in [slots.len(), steps.len(), mask.len()] {
            self.expect(found)?;
        }
        self.each(|part| {
            let relu = self.matrices.plan.relu;
            relu.keep(self.evaluator, (&slots[part], &steps[part]), &mask[part])
        })
    }

    /// StoC: from slots, as [`rectify`](Self::rectify) leaves them, to coefficients, at [`Plan::output_level`], with the scale
    /// that slots have.
    pub fn coefficients(&self, slots: &[E::Ciphertext]) -> Result<E::Ciphertext, Error<E::Error>> {
        self.expect(slots.len())?;
        let e = self.evaluator;
        let level = self.matrices.plan.coefficients_level();
        let real = e.drop_to(&slots[0], level).within(TO_COEFFICIENTS)?;
        let imaginary = match slots.get(1) {
            Some(imaginary) => e.drop_to(imaginary, level),
            None => e.rotate(&real, self.matrices.plan.values / 2),
        };
        let values = e.add(&real, &imaginary.within(TO_COEFFICIENTS)?).within(TO_COEFFICIENTS)?;
        self.transform(&values, &self.matrices.to_coefficients, TO_COEFFICIENTS)
    }

    /// All of it.
    pub fn layer(&self, ct: &E::Ciphertext, mask: &[E::Plaintext]) -> Result<E::Ciphertext, Error<E::Error>> {
        let slots = self.slots(ct)?;
        self.coefficients(&self.rectify(&slots, mask)?)
    }

    /// The ciphertext times the matrices. Their scales are the moduli, so that the ciphertext's stays.
    fn transform(
        &self,
        ct: &E::Ciphertext,
        matrices: &[E::Prepared],
        circuit: &'static str,
    ) -> Result<E::Ciphertext, Error<E::Error>> {
        let scale = self.evaluator.scale(ct);
        let product = matrices.iter().try_fold(ct.clone(), |ct, matrix| {
            self.evaluator
                .transform(&ct, matrix)
                .and_then(|product| self.evaluator.rescale(&product))
                .within(circuit)
        })?;
        Ok(self.evaluator.with_scale(product, scale))
    }

    fn expect(&self, found: usize) -> Result<(), Error<E::Error>> {
        let needed = self.ciphertexts();
        if found == needed { Ok(()) } else { Err(Error::Ciphertexts { needed, found }) }
    }
}
