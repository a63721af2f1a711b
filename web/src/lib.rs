//! The client as a WebAssembly module: the same crates as in the native client, with JavaScript beneath.
//!
//! | file | what it is |
//! |---|---|
//! | `host.rs` | what the module asks of JavaScript: bytes of the connection, time, randomness; and who hears what happens |
//! | `session.rs` | a client's session: connect, prepare, predict |
//! | `threads.rs` | workers of the page as threads |
//! | `picture.rs` | pixels as the network sees them |
//! | `exports.rs` | what JavaScript calls |
//!
//! The interface is written by hand, without a generator of bindings: a dozen functions that pass numbers, and JSON for all
//! that has a structure. `client/` has the JavaScript, `page/` the page of `jaguar serve --web`.
//!
//! Calls block: the module runs in a worker, whose reads wait for bytes in shared memory that another worker fills.

#[cfg(target_arch = "wasm32")]
mod exports;
#[cfg(target_arch = "wasm32")]
mod host;
pub mod picture;
pub mod session;
#[cfg(target_arch = "wasm32")]
mod threads;
