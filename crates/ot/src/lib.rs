//! Correlated oblivious transfer between the two parties, semi-honest, 128 bits of security.
//!
//! A *correlated OT* (COT) gives the sender, who holds a fixed odd Δ, a random block q, and the receiver a
//! random bit r and t = q ⊕ r·Δ. The receiver learns nothing of Δ or of q ⊕ (1⊕r)·Δ, the sender nothing of
//! r. Everything nonlinear is made from COTs, so this crate is the offline phase's hot path.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`block`] | 128-bit strings, GF(2^128) helpers | |
//! | [`hash`] | the correlation-robust hash that turns COTs into pads | Guo, Katz, Wang, Yu, S&P 2020 (ePrint 2019/074) |
//! | [`insecure_test_dealer`] | COTs from a shared seed, for the tests of other crates | |

pub mod block;
pub mod hash;
pub mod insecure_test_dealer;

use jaguar_wire::{Channel, WireError};

pub use block::Block;
pub use hash::Tccr;

/// Which of the two parties this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Holds the image; speaks first.
    Client,
    /// Holds the model.
    Server,
}

impl Role {
    /// The other party's role.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A source of correlated OTs in both directions.
///
/// When one party calls [`send`](Self::send), its peer calls [`receive`](Self::receive) with the same count
/// at the same point of the protocol. Every correlation is handed out once.
pub trait CotSource {
    /// This party's Δ as a sender, the same for the whole session, bit 0 set.
    fn delta(&self) -> Block;

    /// Fills `q` with the sender's halves; bit 0 of each is zero.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol. The source is spent then.
    fn send(&mut self, chan: &mut Channel, q: &mut [Block]) -> Result<(), OtError>;

    /// Fills `r` with random choice bits and `t` with `t_i = q_i ^ r_i·Δ` of the peer's q and Δ, so that bit
    /// 0 of `t_i` is `r_i`.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol. The source is spent then.
    ///
    /// # Panics
    /// When `t` and `r` differ in length.
    fn receive(&mut self, chan: &mut Channel, t: &mut [Block], r: &mut [bool]) -> Result<(), OtError>;
}

/// What can go wrong, sorted by who is to blame. After an error the session is spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtError {
    /// The connection failed, or the peer stopped in the middle.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent something that the protocol does not allow.
    #[error("the peer broke the {protocol} protocol: {what}")]
    PeerMisbehaved {
        /// Which protocol.
        protocol: &'static str,
        /// Which rule.
        what: &'static str,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness: {0}")]
    NoRandomness(String),
}
