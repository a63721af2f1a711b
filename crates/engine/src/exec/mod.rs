//! Execution of a plan, the same code for both roles.
//!
//! | file | content |
//! |---|---|
//! | `prepare.rs` | the offline stage: all that a query needs and that does not depend on its input |
//! | `run.rs` | the online stage: the walk over the network, in waves |
//! | `values.rs` | this party's shares of the nodes' values, which may still be incomplete |
//! | `backends.rs` | this party's side of every linear backend of the plan |
//! | `clock.rs` | time and traffic by node |

pub(crate) mod backends;
pub(crate) mod clock;
pub(crate) mod prepare;
pub(crate) mod run;
pub(crate) mod values;
