//! The operators of the integer network, a folder each.
//!
//! | file | holds |
//! |---|---|
//! | `operator.rs` | what an operator is: the traits that one implements |
//! | `op.rs` | [`Op`], what a node of a network computes: any operator with its parameters |
//! | `list.rs` | [`Operators`], a list of operators as a value: readers of files and messages are handed one |
//! | `standard.rs` | the list of this folder's operators, and nothing else that knows them all |
//! | a folder each | what the operator means, its limits, how shares come in and go out, its protocol |
//! | `window.rs` | the windows of pools |

pub(crate) mod add;
pub(crate) mod concat;
pub(crate) mod curve;
pub(crate) mod input;
pub(crate) mod linear;
pub(crate) mod list;
pub(crate) mod max_pool;
pub(crate) mod op;
pub mod operator;
pub(crate) mod product;
pub(crate) mod rearrange;
pub(crate) mod relu;
pub(crate) mod relu6;
mod standard;
pub(crate) mod sum_pool;
pub(crate) mod window;

pub use self::list::{OperatorKind, Operators};
pub use self::op::{Op, output_shape};
