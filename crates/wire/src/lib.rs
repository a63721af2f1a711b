//! How the two parties talk: a byte stream in each direction, with every byte and round counted.
//!
//! A [`Transport`] moves chunks of bytes and never blocks a sender on its peer's reads; a [`Channel`]
//! over it buffers what is sent, flushes before it reads, bounds every length and counts bytes and rounds
//! under a label. Protocol code knows channels only, never sockets.
//!
//! A connection is a [`Framed`] over a [`ByteStream`]: a TCP or Unix socket ([`tcp`] has the former ready made), or what
//! runs over one, such as TLS.
//!
//! Test doubles: [`memory_pair`], and the wrappers of [`double`].

use std::time::Duration;

mod channel;
mod clock;
pub mod double;
mod error;
mod frame;
pub mod framed;
mod greeting;
mod memory;
pub mod pack;
mod socket;
mod stream;
pub mod tcp;
mod time;
pub mod unthreaded;

pub use channel::{Channel, Stage, Stats, Traffic, Wait, decode, encode};
pub use clock::{Clock, SystemClock};
pub use error::WireError;
pub use frame::Queued;
pub use framed::Framed;
pub use greeting::{Introduction, MAX_TOKEN, see_out, turn_away};
pub use memory::{Memory, memory_pair, memory_transports};
pub use stream::{ByteStream, Side};
pub use unthreaded::Unthreaded;

/// The version of everything that two parties must do alike: message order, packing, derivations.
pub const PROTOCOL_VERSION: u32 = 36;

/// Moves chunks of bytes between two parties, in order and without loss.
///
/// `send` must not wait for the peer to read (it queues), so that both parties may send at the same time.
pub trait Transport: Send {
    /// Queues one chunk for the peer.
    ///
    /// # Errors
    /// When the connection is known to be gone.
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError>;

    /// Waits for the next chunk. Its borders mean nothing: a peer's chunks may arrive joined or split.
    ///
    /// # Errors
    /// When the peer has gone, has been silent for too long, or breaks the framing.
    fn recv(&mut self) -> Result<Vec<u8>, WireError>;

    /// As [`recv`](Self::recv), for at most `time`: none if no chunk came. The connection is as good as before then.
    ///
    /// # Errors
    /// As `recv`.
    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError>;

    /// Tells the peer why this side gives up, as well as the connection still can.
    fn abort(&mut self, _reason: &str) {}

    /// As [`abort`](Self::abort), of a side that does not do it for now: the peer may come back later. (Without a default: a transport
    /// around another must pass it on, or the peer would take it for good.)
    fn put_off(&mut self, reason: &str);
}
