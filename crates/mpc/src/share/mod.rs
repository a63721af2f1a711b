//! Where additive shares live: modulo what ([`Modulus`]), and at which scale ([`Domain`]).
//!
//! A value x lies as x_c + x_s with client and server, modulo a power of two or modulo an odd number. Linear layers ask for the
//! domain of their input and state that of their output; nonlinear layers make shares in any domain. Both know this crate, and it
//! knows neither.

mod domain;
mod modulus;

pub use domain::Domain;
pub use modulus::Modulus;
