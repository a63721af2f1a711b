//! Another way to compare: what a kit may put in place of this crate's layers, in all layers of a plan.

use std::fmt::Debug;
use std::sync::Arc;

use crate::nonlinear::Nonlinear;

/// A way to compare and select, for as many kinds of layers as it knows. All others stay as they are: sealed.
///
/// What has no default must be said, so that nobody forgets to say what it gives away.
pub trait Comparisons: Debug + Send + Sync {
    /// What it is called in options, files and messages: lower case, digits and hyphens. Both parties must mean the
    /// same by it.
    fn name(&self) -> &'static str;

    /// How many bits more than a value the shares may have in which it compares: from 1 to this. (Every such layer of a
    /// plan has as many.)
    fn most_extra_bits(&self) -> u32;

    /// What a person must know of a plan that compares so, with so many bits more: what who learns. `None` if neither
    /// party learns a thing; whoever says something is refused unless both parties accept it.
    fn caveat(&self, extra_bits: u32) -> Option<String>;

    /// What does the same as `layer`, exactly: takes shares mod 2^n of values of n − `extra_bits` bits, and makes
    /// shares in the ring of the layer's results. `None` where it knows no other way. (A layer's type says what it is:
    /// [`std::any::Any`].)
    fn instead(&self, layer: &dyn Nonlinear, extra_bits: u32) -> Option<Arc<dyn Nonlinear>>;
}
