//! What a bootstrap and a ReLU are made of, over any [`Evaluator`].
//!
//! | file | circuit |
//! |---|---|
//! | [`Bootstrap`] | a whole layer behind its convolution, and how the parts below fit together |
//! | [`Layout`] | CtoS and StoC: the Fourier transform in sparse matrices |
//! | [`Chebyshev`] | polynomials with exact scales, at the least depth |
//! | [`Sine`] | x mod 1 |
//! | [`Composite`] | ReLU |
//! | [`Outline`] | an evaluator without values, which counts what a circuit takes |
//! | [`Watched`] | an evaluator that ends its work when it is told to |

mod bootstrap;
mod chebyshev;
mod error;
mod evaluator;
mod fourier;
mod matrix;
mod outline;
mod relu;
mod sine;
mod watched;

pub use bootstrap::{Bootstrap, Matrices, Plan};
pub use chebyshev::Chebyshev;
pub use error::Error;
pub use evaluator::Evaluator;
pub use fourier::{Fourier, Layout, LayoutError, even_layers, slot_order};
pub use matrix::{Giant, Matrix, Step, Term};
pub use outline::{AtLevel, Counts, Outline, OutlineError, Shape};
pub use relu::{COMPOSITES, Composite};
pub use sine::Sine;
pub use watched::{Halt, Watched};

#[cfg(test)]
mod encrypted;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;
