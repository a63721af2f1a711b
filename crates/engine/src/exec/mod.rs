//! Execution of a plan, the same code for both roles.
//!
//! | file | content |
//! |---|---|
//! | `prepare.rs` | the offline stage: all that a query needs and that does not depend on its input |
//! | `run.rs` | the online stage: the walk over the network, in waves |
//! | `values.rs` | this party's shares of the nodes' values, which may still be incomplete |
//! | `backends.rs` | this party's side of every linear backend of the plan |
//! | `clock.rs` | time and traffic by node |

mod backends;
mod clock;
mod prepare;
mod run;
mod values;

pub(crate) use backends::Backends;
pub(crate) use clock::{NodeTimes, Spent, busy_micros, label};
pub use prepare::Reveal;
pub(crate) use prepare::{LayerHints, Offline, PreparedPlan, PreparedResult, PreparedStep, prepare};
pub(crate) use run::{Observers, run};
pub(crate) use values::{PlannedNetwork, ShareObserver};
