//! The transport over TCP.
