//! What can go wrong.

/// Why an operation is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter set contradicts itself, or is not allowed.
    #[error("parameter set {name:?}: {why}")]
    Parameters {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A ciphertext or plaintext has not the level that an operation takes.
    #[error("{operation}: level {found}, where {expected} is needed")]
    Level {
        /// What was to be done.
        operation: &'static str,
        /// The level that it has.
        found: usize,
        /// What would have been right.
        expected: String,
    },
    /// Scales that are not equal.
    #[error("{operation}: scales 2^{} and 2^{} differ", first.log2(), second.log2())]
    Scales {
        /// What was to be done.
        operation: &'static str,
        /// The first operand's scale.
        first: f64,
        /// The second operand's scale.
        second: f64,
    },
    /// A scale that is no positive number, or too large.
    #[error("{operation}: {scale} is no scale")]
    Scale {
        /// What was to be done.
        operation: &'static str,
        /// The scale.
        scale: f64,
    },
    /// A number that cannot be encoded.
    #[error("{operation}: {value} at the scale 2^{} does not fit 2^{limit}", scale.log2())]
    Value {
        /// What was to be done.
        operation: &'static str,
        /// The number, or one part of it.
        value: f64,
        /// The scale.
        scale: f64,
        /// log2 of the limit of their product.
        limit: u32,
    },
    /// A number of slots, values or steps that does not fit the ring.
    #[error("{operation}: {found} {what}, where {expected} is needed")]
    Count {
        /// What was to be done.
        operation: &'static str,
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// What would have been right.
        expected: String,
    },
    /// A tensor, kernel or grid whose sizes do not fit.
    #[error("{what}: {why}")]
    Shape {
        /// What was to be made.
        what: &'static str,
        /// What does not fit.
        why: String,
    },
    /// An evaluation key that there is not, or not at so high a level.
    #[error("no key for {what} at level {level}")]
    Key {
        /// What the key is for.
        what: String,
        /// The level at which it is needed.
        level: usize,
    },
    /// A factor by which the raised modulus cannot be multiplied.
    #[error("raise: a factor of {factor} times q0 is larger than the special modulus")]
    Factor {
        /// The factor.
        factor: u64,
    },
    /// Threads could not be started.
    #[error("{count} threads: {source}")]
    Threads {
        /// How many were asked for.
        count: usize,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
    /// Bytes that are not what they should be.
    #[error("{what}: {why}")]
    Bytes {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was read or written.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
