//! Why a network is not fit for use.

use thiserror::Error;

use crate::ir::blocks::{Blocks, Misplaced};
use crate::ir::shape::Shape;

/// Why a network or a model is not fit for use.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A number of the whole network is out of its range.
    #[error("{what} is {found}; allowed is {allowed}")]
    Bound {
        /// Which number of the network it is.
        what: &'static str,
        /// The value that it has.
        found: String,
        /// The values that are allowed, in words.
        allowed: String,
    },
    /// A node contradicts itself or its inputs.
    #[error("node {index} ({op}): {source}")]
    Node {
        /// The node's number in the network.
        index: usize,
        /// What its operation is called.
        op: &'static str,
        /// What is wrong with the node.
        source: NodeError,
    },
}

/// What is wrong with one node.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The wrong number of inputs.
    #[error("takes {expected} inputs, has {found}")]
    Arity {
        /// How many the node has.
        found: usize,
        /// How many there should be.
        expected: &'static str,
    },
    /// An input that does not come earlier.
    #[error("input {0} does not come before it")]
    Order(usize),
    /// Inputs whose shapes do not go together.
    #[error("inputs of shapes {0:?} and {1:?} do not go together")]
    Mismatch(Shape, Shape),
    /// The declared shape is not the one that follows from the inputs.
    #[error("declares shape {found:?}, but {expected:?} follows from its inputs")]
    Shape {
        /// The shape that the node declares.
        found: Shape,
        /// The shape that follows from its inputs.
        expected: Shape,
    },
    /// A size or parameter out of range.
    #[error("{0} out of range")]
    Range(&'static str),
    /// A window that lies in the padding altogether.
    #[error("a window covers nothing but padding")]
    EmptyWindow,
    /// Weights or biases of the wrong number.
    #[error("has {found} {what}, needs {expected}")]
    Length {
        /// What is counted: weights or biases.
        what: &'static str,
        /// How many the node has.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Weights that are not what the layer's blocks say.
    #[error("should have {blocks}; {entry} differs from its block")]
    Block {
        /// The blocks that the layer says it has.
        blocks: Blocks,
        /// The first place that differs.
        entry: Misplaced,
    },
    /// Weights where there should be none, or none where there should be some.
    #[error("weights are there exactly for linear nodes")]
    Weights,
}
