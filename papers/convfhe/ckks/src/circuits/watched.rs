//! An evaluator that ends its work when it is told to.

use std::error::Error as StdError;

use super::error::Error;
use super::evaluator::Evaluator;
use super::matrix::Matrix;
use crate::Complex;

/// Why an operation of [`Watched`] was not done.
#[derive(Debug, thiserror::Error)]
pub enum Halt<E: StdError + 'static> {
    /// Somebody asked for it.
    #[error("stopped")]
    Stopped,
    /// The operation failed.
    #[error(transparent)]
    Failed(#[from] E),
}

impl<E: StdError + 'static> Error<Halt<E>> {
    /// The error, or nothing if somebody asked for the end.
    pub fn failed(self) -> Option<Error<E>> {
        Some(match self {
            Self::Evaluator { source: Halt::Stopped, .. } => return None,
            Self::Evaluator { circuit, source: Halt::Failed(source) } => Error::Evaluator { circuit, source },
            Self::Level { circuit, needed, found } => Error::Level { circuit, needed, found },
            Self::NotAtTheBottom { found } => Error::NotAtTheBottom { found },
            Self::Message { log_scale, q0 } => Error::Message { log_scale, q0 },
            Self::Layout(error) => Error::Layout(error),
            Self::Mask { needed, found } => Error::Mask { needed, found },
            Self::Ciphertexts { needed, found } => Error::Ciphertexts { needed, found },
            Self::Constant => Error::Constant,
        })
    }
}

/// The same evaluator, which asks before each operation whether it is to stop: so a circuit ends within one of them, the
/// longest of which is a product with a matrix.
pub struct Watched<'a, E> {
    inner: &'a E,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a, E: Evaluator> Watched<'a, E> {
    /// Operations fail with [`Halt::Stopped`] once `stop` says true.
    pub fn new(inner: &'a E, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { inner, stop }
    }

    fn look(&self) -> Result<&'a E, Halt<E::Error>> {
        if (self.stop)() { Err(Halt::Stopped) } else { Ok(self.inner) }
    }
}

impl<E: Evaluator> Evaluator for Watched<'_, E> {
    type Ciphertext = E::Ciphertext;
    type Plaintext = E::Plaintext;
    type Prepared = E::Prepared;
    type Error = Halt<E::Error>;

    fn slots(&self) -> usize {
        self.inner.slots()
    }

    fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        self.inner.join(first, second)
    }

    fn top(&self) -> usize {
        self.inner.top()
    }

    fn modulus(&self, level: usize) -> f64 {
        self.inner.modulus(level)
    }

    fn level(&self, ct: &E::Ciphertext) -> usize {
        self.inner.level(ct)
    }

    fn scale(&self, ct: &E::Ciphertext) -> f64 {
        self.inner.scale(ct)
    }

    fn with_scale(&self, ct: E::Ciphertext, scale: f64) -> E::Ciphertext {
        self.inner.with_scale(ct, scale)
    }

    fn drop_to(&self, ct: &E::Ciphertext, level: usize) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.drop_to(ct, level)?)
    }

    fn rescale(&self, ct: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.rescale(ct)?)
    }

    fn add(&self, a: &E::Ciphertext, b: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.add(a, b)?)
    }

    fn subtract(&self, a: &E::Ciphertext, b: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.subtract(a, b)?)
    }

    fn add_constant(&self, ct: &E::Ciphertext, constant: Complex) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.add_constant(ct, constant)?)
    }

    fn multiply_constant(
        &self,
        ct: &E::Ciphertext,
        constant: Complex,
        scale: f64,
    ) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.multiply_constant(ct, constant, scale)?)
    }

    fn multiply(&self, a: &E::Ciphertext, b: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.multiply(a, b)?)
    }

    fn square(&self, ct: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.square(ct)?)
    }

    fn rotate(&self, ct: &E::Ciphertext, steps: usize) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.rotate(ct, steps)?)
    }

    fn conjugate(&self, ct: &E::Ciphertext) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.conjugate(ct)?)
    }

    fn encode(&self, slots: &[Complex], level: usize, scale: f64) -> Result<E::Plaintext, Self::Error> {
        Ok(self.look()?.encode(slots, level, scale)?)
    }

    fn multiply_plain(
        &self,
        ct: &E::Ciphertext,
        plaintext: &E::Plaintext,
    ) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.multiply_plain(ct, plaintext)?)
    }

    fn prepare(&self, matrix: &Matrix, level: usize, scale: f64) -> Result<E::Prepared, Self::Error> {
        Ok(self.look()?.prepare(matrix, level, scale)?)
    }

    fn transform(&self, ct: &E::Ciphertext, matrix: &E::Prepared) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.transform(ct, matrix)?)
    }

    fn raise(&self, ct: &E::Ciphertext, factor: u64, values: usize) -> Result<E::Ciphertext, Self::Error> {
        Ok(self.look()?.raise(ct, factor, values)?)
    }
}
