//! Homomorphic encryption over rings `Z_q[X]/(X^N + 1)`, as backends of linear layers use it.
//!
//! | module | what it is |
//! |---|---|
//! | [`params`] | parameter sets, each with the estimate of its security |
//! | [`power_of_two`] | `q = 2^k`: the two halves of a ciphertext apart, and phase sharing |
//! | [`sharing`] | from shares of a phase modulo any q to shares modulo 2^n |
//! | [`rns`] | q a product of primes: encryption of integers modulo t, rotations, batching, modulus switching |
//!
//! In both kinds of ring a ciphertext (a, b) under s has the *phase* `b + a·s = q·m/t + e`. Secrets are uniform ternary,
//! noise is centred binomial of variance 10.5. All randomness comes from a CSPRNG; secrets are zeroised on drop, and have
//! neither `Debug` nor `Clone`.

pub mod params;
pub mod power_of_two;
pub mod rns;
pub mod sharing;
