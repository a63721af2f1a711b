//! Plans and costs as tables of text: for the command and for the Python package.

pub mod cost;
pub mod plan;
