//! Fregata's split of a linear layer: homomorphic encryption before the input, plain integers with it.
//!
//! `[y] mod 2^n  <-  Linear([x] mod 2^(n+f), w, bias)` with `y = (Σ w·x + bias + ε) / 2^f` rounded to one of its two
//! neighbours. Fregata (Yang et al., protocol PMatMul, section IV-A). l = n + f; n includes the guard bits.
//!
//! 1. Client, offline: draws M, uniform modulo 2^l, one value for each value of x. ([`Mask`])
//! 2. Both, offline: the *engine* makes shares c and r of W·M + bias modulo 2^l. The client's output share is ⌊c /
//!    2^f⌋: known before the input.
//! 3. Client, online: V = x_c − M, of l bits a value, channel by channel as its share of the input becomes known.
//!    Nothing else.
//! 4. Server, online: W·(V + x_s) + r in plain integers modulo 2^l ([`jaguar_linear::product`]). Its output share is
//!    ⌈that / 2^f⌉ modulo 2^n.
//!
//! **Engines.** Any backend of this crate that works modulo a power of two can multiply M by W, M in the place of x,
//! with zero as the server's share. It is asked for products that nothing truncated, so that a single truncation
//! remains.
//!
//! | backend | engine |
//! |---|---|
//! | `fregata` | [`Hme`], the paper's homomorphic matrix product, with a response that is a share of the phase |
//! | `fregata-cheetah` | Cheetah's encoding of convolutions |
//! | `fregata-jaguar` | Jaguar's parted halves: a hint once per client, no response |
//!
//! **Error.** c + r is one of the two integers next to W·M + bias + ε, ε being the engine's noise: so y is off by less
//! than `1 + 2^-f + |ε|·2^-f` units. An engine accepts no layer where ε is not far below 2^f (a standard deviation of
//! 2^-10 of the last place above the guard bits for RNS rings, a sixteenth of it at worst-case weights for Jaguar's).
//!
//! **Who learns what.** The server sees the engine's ciphertexts of M, and V. M is uniform, is used once, and hides
//! x_c as a one-time pad: V is uniform and independent of x_c, whatever the server's coins. The client sees what the
//! engine shows it: shares of W·M that the server's fresh masks make uniform. Nothing depends on x. Its own coin is
//! the part of c that it truncates; guard bits and the noise of what is opened hide what that does to a result, as for other
//! backends ([`jaguar_graph::network::Network::noise_bits`]).
//!
//! M and r are used once. If a client hid two inputs under one M, V1 − V2 would be x1 − x2; if a server masked two
//! products by one R, the difference of the client's shares would be W·(M1 − M2), and W with enough of them. So both
//! are values that are used up: [`Mask`] gives out each V once, and is neither copied nor read; r leaves
//! `ServerOnline` with the layer's only run. (`tests.rs` has the algebra of both attacks.)
//!
//! **Bytes and rounds.** Online ⌈l·(values that an output reads)/8⌉ up, nothing down, no round of its own. Offline
//! what the engine passes: for all layers one after the other, without waiting for the answers between them.

mod backend;
mod client;
mod engine;
pub mod gpu;
mod layer;
mod mask;
pub mod matrix;
mod places;
#[cfg(feature = "pmax-leaky")]
pub mod pmax_leaky;
mod server;
#[cfg(test)]
mod tests;

pub use backend::{ALL, Fregata};
pub use engine::Hme;
pub use mask::Mask;

/// The paper's ways to compare. PMax, which **leaks**, with the feature `pmax-leaky`; none without it.
pub const COMPARISONS: &[&dyn jaguar_mpc::Comparisons] = &[
    #[cfg(feature = "pmax-leaky")]
    &pmax_leaky::PmaxLeaky,
];

/// The names of those that this crate is built without. Each is its feature's name, too.
pub const LEFT_OUT: &[&str] = &[
    #[cfg(not(feature = "pmax-leaky"))]
    "pmax-leaky",
];
