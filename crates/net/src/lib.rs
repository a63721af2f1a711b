//! How the parties reach each other: addresses, TLS 1.3 around the connection, and who may come.
//!
//! ```text
//! Listener::bind(Address) -> accept() -> Incoming -> greet() -> Greeted     (the server's thread for this client)
//! Dialer::new(Address)    -> connect() -> Framed                            (the client)
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | [`Address`] | `host:port`, `[v6]:port`, `unix:PATH`, or `wss://host/path` (of clients) |
//! | [`tls::Server`], [`tls::Client`] | which certificate is shown, and which is believed |
//! | [`tls::Fingerprint`], [`tls::Certificate`] | the SHA-256 of a certificate, to pin it by; what else it says |
//! | [`Network`] | addresses of balancers, which say where their clients come from |
//! | [`Token`], [`TokenFile`] | what shows who a client is, and the hashes of those that a server knows |
//!
//! A TLS connection is a [`ByteStream`](jaguar_wire::ByteStream) around another, so silence, keep-alives and deadlines work on
//! it as they do on a bare socket. A WebSocket is one more, around either. TLS 1.3 alone is spoken, without resumption and
//! early data: each session has keys of its own.

mod address;
mod advice;
mod dial;
mod listen;
mod outgoing;
mod pages;
mod pem;
mod proxied;
pub mod tls;
mod token;
mod websocket;

pub use address::{Address, NoAddress, WebSocket};
pub use dial::{Dialer, Steps};
pub use listen::{Arrived, Bound, Greeted, Incoming, Line, Listener, Peer};
pub use pages::Page;
pub use pem::{Exposed, FileError};
pub use proxied::{Network, NoNetwork};
pub use token::{NoToken, Token, TokenFile};
