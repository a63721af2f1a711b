//! What a bootstrap and a ReLU are made of, over any [`Evaluator`].

mod evaluator;
mod matrix;

pub use evaluator::Evaluator;
pub use matrix::{Giant, Matrix, Term};
