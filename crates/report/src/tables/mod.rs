//! Plans, costs and what happens to a server as text: for the command and for the Python package.

pub mod batch;
pub mod cost;
pub mod event;
pub mod memory;
pub mod plan;
