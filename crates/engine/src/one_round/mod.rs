//! One-round sessions: an encrypted input goes up, an encrypted output comes down.
//!
//! This is the frame for protocols in which the server computes on ciphertexts alone, whatever the scheme. A protocol is a
//! `client::Protocol` at one end and a `server::Protocol` at the other; this module moves its bytes, bounds
//! their lengths, and knows nothing of what is in them. It protects nothing by itself.
//!
//! After the handshake, C is the client and S the server:
//!
//! | from | message | content |
//! |---|---|---|
//! | C | keys | length and BLAKE3 hash of its evaluation keys (public to S, empty if the protocol has none) |
//! | S | have | how many bytes of them S has already, from this session or an earlier one |
//! | C | *chunks* | the rest, in chunks of 256 KiB, each followed by its BLAKE3 hash |
//! | S | have | all of them (left out if S had all before) |
//! | C | input | length, and the encrypted input |
//! | S | ticket | 32 random bytes that name the answer |
//! | S | progress | thousandths that are done, ascending; any number of these |
//! | S | output | length, and the encrypted output |
//! | C | received | S may forget the answer |
//!
//! Then the next input, "collect" with a ticket (of this session or an earlier one; the answer is as to an input, from "progress"
//! on), or "leave".
//!
//! A connection that ends while the keys go up loses no more than a chunk. One that ends behind the ticket loses nothing: S goes on
//! computing and keeps the output for whoever shows the ticket, until it is received or newer outputs need its place.

#[cfg(feature = "client")]
pub mod client;
pub(crate) mod message;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
mod stores;

/// Names an answer that a server computes or keeps. Who has it may collect the (encrypted) answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Ticket(pub [u8; 32]);
