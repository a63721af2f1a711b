//! Jaguar as a library: a client learns what a server's network says about its input. The server does not see the input, and the client
//! does not see the weights.
//!
//! | you want to | start with |
//! |---|---|
//! | read a network | [`import::import_file`], or build a [`float::Graph`] |
//! | make it fit for private runs | [`compile::compile`], or [`quantise::calibrate`] and a [`bundle::Bundle`] |
//! | choose operators and backends | [`plan::Kit`] |
//! | choose what computes | [`Cpu`], [`Hardware`] |
//! | see what a query will cost, and choose | [`plan::Choices`], [`plan::planner`], [`plan::predict`] |
//! | answer clients, one connection after the other | [`server::Service`] |
//! | answer many clients, with limits and rules | [`serve::Server`] |
//! | ask | [`client::connect`], and queries prepared ahead: [`kept::keeper::Keeper`] |
//! | connect over TLS, a WebSocket or a Unix socket | [`net`] |
//! | compare a private run with the integers | [`verify::verify`], [`reference::run`] |
//! | show tables and pages | [`reports`] |
//! | know what this machine and a link take | [`machine`] |
//! | add an operator or an encryption of your own | [`ops::operator`], [`linear::backend`]; a kit takes them in |
//!
//! `examples/two_parties.rs` is a whole query in a hundred lines. The other crates of the workspace are the parts of this one. It names
//! what a program may use of them, and is the only one that promises to stay as it is.

pub use jaguar_engine::{
    EngineError, Stock, answer, client, hint, is_model_name, kept, one_round, prepared_bytes, progress,
    report, server, stop, timeline, verify,
};
pub use jaguar_graph::{
    agreement, bundle, float, image_input, import, network, onnx, ops, outputs, quantise, reference, signs,
};
pub use jaguar_linear::product::Hardware;
pub use jaguar_ring::Kernel;
pub use jaguar_ring::cpu::Cpu;
#[doc(inline)]
pub use {
    jaguar_compile as compile, jaguar_net as net, jaguar_plan as plan, jaguar_profile as machine,
    jaguar_report as reports, jaguar_serve as serve,
};

/// Channels between two parties, and what carries them.
pub mod wire {
    pub use jaguar_wire::{
        Channel, Clock, Queued, Stage, SystemClock, Traffic, Transport, WireError, framed, memory_pair, pack,
        tcp,
    };
}

/// What a backend of one's own for linear layers is made of.
pub mod linear {
    pub use jaguar_linear::{backend, constants, product, timing};
    pub use jaguar_ring::Prg;
}

/// What an operator of one's own does with shares, in nonlinear layers that are there, and what these cost.
pub mod nonlinear {
    pub use jaguar_mpc::{
        Elementwise, Formula, Modulus, MpcError, Nonlinear, NonlinearKind, Relu6Params, Selection, cost,
        semantics,
    };
}
