//! The operators of the integer network, a folder and a line each.
//!
//! | file | holds |
//! |---|---|
//! | this one | the list of this project's operators: nothing else knows them all |
//! | `operator.rs` | what an operator is: the traits that one implements |
//! | `op.rs` | [`Op`], what a node of a network computes: any operator with its parameters |
//! | `list.rs` | [`Operators`], a list of operators as a value: readers of files and messages are handed one |
//! | `narrow.rs`, `narrowed.rs` | a layer or a product whose values have fewer bits than others |
//! | `standard.rs` | this project's list as such a value |
//! | a folder each | what the operator means, its limits, how shares come in and go out, its protocol |
//! | `window.rs` | the windows of pools |

pub(crate) mod list;
pub(crate) mod narrow;
pub(crate) mod narrowed;
pub(crate) mod op;
pub mod operator;
mod standard;
pub(crate) mod window;

pub use self::list::{OperatorKind, Operators};
pub use self::op::{Op, output_shape};

/// Makes the list of operators of lines `folder: Type`. A folder has three files by these names: `mod.rs` with the integer operator's
/// `Type`, `float.rs` with its forms in floating point, and `onnx.rs` with the table `ONNX` of what becomes one.
macro_rules! operators {
    ($($folder:ident: $operator:ident,)*) => {
        $(pub(crate) mod $folder;)*

        /// The integer operators, for [`crate::network`].
        pub(crate) mod integer {
            $(pub use super::$folder::$operator;)*
        }

        /// What they are in floating point, for [`crate::float`] (where those of the linear layer are, which others take apart).
        #[allow(unused_imports)]
        pub(crate) mod float {
            $(pub use super::$folder::float::*;)*
        }

        /// A kind for each line.
        fn kinds() -> Vec<OperatorKind> {
            vec![$(OperatorKind::of::<$folder::$operator>().from_onnx($folder::onnx::ONNX)),*]
        }
    };
}

operators! {
    input: Input,
    linear: Linear,
    relu: Relu,
    relu6: Relu6,
    max_pool: MaxPool,
    sum_pool: SumPool,
    add: Add,
    difference: Difference,
    product: Product,
    matrix_product: MatrixProduct,
    curve: Curve,
    concat: Concat,
    rearrange: Rearrange,
}
