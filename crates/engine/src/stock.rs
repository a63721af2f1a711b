//! Prepared queries that two parties keep: how many, what they hold, and why there are no more.

use jaguar_graph::network::Network;
use jaguar_plan::Plan;
use serde::{Deserialize, Serialize};

/// Kept queries, and the memory that they hold at the party that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stock {
    /// How many.
    pub queries: u32,
    /// Bytes, by [`prepared_bytes`].
    pub bytes: u64,
}

/// Why a server does not keep another query. The session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoom {
    /// For this client.
    #[error("the server keeps {most} prepared queries for a client and no more")]
    Client {
        /// The server's limit.
        most: u32,
    },
    /// For anybody.
    #[error(
        "the server keeps {most} bytes of prepared queries for all its clients together, and has no room now"
    )]
    All {
        /// The server's limit.
        most: u64,
    },
}

/// Bytes that one prepared query holds between offline and online, at most: at the client and at the server. Noise of
/// guard bits, masks and correlations are in it; what a query takes while it runs is not.
pub fn prepared_bytes(network: &Network, plan: &Plan) -> [u64; 2] {
    let nonlinear = plan.nonlinear_cost();
    let mut bytes = [nonlinear.client_memory, nonlinear.server_memory];
    for step in &plan.steps {
        if let Some(layer) = &step.layer {
            let guard = if network.guard_bits > 0 { size_of::<i16>() * step.values } else { 0 };
            let [client, server] = layer.prepared_bytes();
            bytes = [bytes[0] + client, bytes[1] + server + guard as u64];
        }
    }
    bytes
}
