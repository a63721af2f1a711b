//! The client's half: it sends its share of the input.

use std::sync::Arc;

use jaguar_wire::Channel;

use super::{PlaintextLayers, SEED_BYTES};
use crate::backend::{BackendError, BackendParty, Online, Output};

/// The client's side of a session.
pub(super) struct Client {
    pub(super) layers: Arc<PlaintextLayers>,
}

impl BackendParty for Client {
    /// 1. The server's seed, and of it the output share.
    fn prepare(
        &mut self,
        node: usize,
        _: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let layer = self.layers.of(node);
        let mut seed = [0; SEED_BYTES];
        channel.recv_into(&mut seed)?;
        let output = layer.mask(seed).into_iter().map(|r| layer.rounding.client(r)).collect();
        Ok(Box::new(ClientOnline { layers: Arc::clone(&self.layers), node, output }))
    }
}

struct ClientOnline {
    layers: Arc<PlaintextLayers>,
    node: usize,
    output: Vec<u64>,
}

impl Online for ClientOnline {
    fn early_output(&self) -> Option<&[u64]> {
        Some(&self.output)
    }

    /// 2. The share as it is.
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        Ok(channel.send_packed(x, self.layers.of(self.node).modulus.bits())?)
    }

    /// Step 4: the share that came is the client's.
    fn finish(self: Box<Self>, _: &mut Channel, _: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        Ok(Box::new(zeroize::Zeroizing::new(self.output)))
    }
}
