//! Jaguar as a library: a client learns what a server's network says about its input. The server does not see the input, and the client
//! does not see the weights.
//!
//! | you want to | start with |
//! |---|---|
//! | read a network | [`import::import_file`], or build a [`float::Graph`] |
//! | make it fit for private runs | [`compile::compile`], or [`quantise::calibrate`] and a [`bundle::Bundle`] |
//! | choose operators and backends | [`Kit`] |
//! | see what a query will cost, and choose | [`plan::Choices`], [`plan::planner`], [`plan::predict`] |
//! | answer clients, one connection after the other | [`server::Service`] |
//! | answer many clients, with limits and rules | [`serve::Server`] |
//! | ask | [`client::connect`], and queries prepared ahead: [`kept::keeper::Keeper`] |
//! | connect over TLS, a WebSocket or a Unix socket | [`net`] |
//! | compare a private run with the integers | [`verify::verify`], [`reference::run`] |
//! | show tables and pages | [`reports`] |
//! | know what this machine and a link take | [`machine`] |
//! | add an encryption or an operator of your own | [`plan::Kit::with`], [`linear`], [`nonlinear`] |
//!
//! `examples/two_parties.rs` is a whole query in a hundred lines. The other crates of the workspace are its parts: this one names what a
//! program should use of them, and is the only one that promises to stay as it is.

pub use jaguar_engine::{EngineError, Stock, is_model_name, prepared_bytes};
pub use jaguar_plan::Kit;
pub use jaguar_ring::Kernel;
pub use jaguar_ring::cpu::{Cpu, Feature};

pub use jaguar_engine::{answer, client, hint, kept, one_round, progress, report, server, stop, timeline, verify};
pub use jaguar_graph::{agreement, bundle, float, import, network, onnx, outputs, quantise, reference, signs};

pub use jaguar_compile as compile;
pub use jaguar_net as net;
pub use jaguar_plan as plan;
pub use jaguar_profile as machine;
pub use jaguar_report as reports;
pub use jaguar_serve as serve;

/// Channels, and what carries them.
pub mod wire {
    pub use jaguar_wire::{Channel, Clock, Stage, SystemClock, Traffic, WireError, framed, tcp};
}

/// What a linear backend of one's own is made of.
pub mod linear {
    pub use jaguar_linear::{backend, constants, product};
}

/// What a protocol of one's own is made of, and what its correlations cost.
pub mod nonlinear {
    pub use jaguar_mpc::{Elementwise, Formula, Modulus, MpcError, Nonlinear, Selection, cost};
}
