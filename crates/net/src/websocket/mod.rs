//! WebSocket (RFC 6455) as a byte stream around another: for browsers, and for proxies that pass on HTTP only.
//!
//! | step | what |
//! |---|---|
//! | opening | HTTP/1.1 `GET` with `Upgrade: websocket` and the subprotocol `jaguar` ([`open`]) |
//! | then | the same bytes as over TCP, greeting included, in binary messages ([`stream`]) |
//! | end | a close frame each way |
//!
//! Messages have no meaning of their own: their borders may lie anywhere, and one may come in fragments. This side sends
//! messages of at most 64 KiB, so that a slow link shows progress, and takes messages of at most 1 MiB and 5 bytes, which is
//! the longest frame of the connection inside. A text message ends the connection. Pings are answered; they are no signs of
//! life, since the other side's own keep-alives are.

mod open;
mod stream;

use tungstenite::protocol::WebSocketConfig;

pub(crate) use open::{accept, connect};
pub(crate) use stream::WebSocketStream;

/// What both sides say that they speak inside.
const SUBPROTOCOL: &str = "jaguar";

/// Bytes of a message that this side sends, at most.
const SENT: usize = 1 << 16;

/// Bytes of a message that this side takes, at most: the longest frame of the connection inside.
const TAKEN: usize = (1 << 20) + 5;

/// Bytes that answers to pings may wait with, while this side writes nothing.
const ANSWERS: usize = 1 << 12;

/// One read of the library's from memory.
const READ: usize = 1 << 14;

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ)
        .write_buffer_size(0)
        .max_write_buffer_size(SENT + ANSWERS)
        .max_message_size(Some(TAKEN))
        .max_frame_size(Some(TAKEN))
}
