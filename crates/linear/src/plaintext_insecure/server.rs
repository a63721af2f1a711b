//! The server's half: it holds the weights, and sees the input.

use std::sync::Arc;

use jaguar_graph::reference::linear_exact;
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;

use super::{Layer, PlaintextModel, SEED_BYTES};
use crate::backend::{BackendError, BackendParty, Online, Output};

/// The server's side of a session.
pub(super) struct Server {
    pub(super) model: Arc<PlaintextModel>,
    /// Seeds come from it.
    pub(super) prg: Prg,
}

impl BackendParty for Server {
    /// 1. A seed for the client.
    fn prepare(
        &mut self,
        node: usize,
        _: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let mut seed = [0; SEED_BYTES];
        self.prg.fill(&mut seed);
        channel.send(&seed)?;
        // The client waits for this.
        channel.flush()?;
        let mask = self.model.layers.of(node).mask(seed);
        Ok(Box::new(ServerOnline { model: Arc::clone(&self.model), node, mask, theirs: Vec::new() }))
    }
}

struct ServerOnline {
    model: Arc<PlaintextModel>,
    node: usize,
    /// r: the server's share of the output.
    mask: Vec<u64>,
    /// The client's share of the input.
    theirs: Vec<u64>,
}

impl Online for ServerOnline {
    /// Step 2: the client's share of the input comes.
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.theirs = channel.recv_packed(x.len(), self.model.layers.of(self.node).modulus.bits())?;
        Ok(())
    }

    /// Step 3: the product, less the mask, goes.
    fn finish(self: Box<Self>, _: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { model, node, mask, theirs } = *self;
        let layer = model.layers.of(node).clone();
        let modulus = layer.modulus;
        // (What a peer sends may be no residue.)
        let pairs = x.iter().zip(&theirs);
        let input: Vec<i64> = pairs.map(|(&x, &theirs)| modulus.open(modulus.reduce(theirs), x)).collect();
        let products = linear_exact(model.cpu, &layer.spec, layer.in_shape, &model.weights(node), &input);
        let of = |(&m, &r): (&i64, &u64)| modulus.sub(modulus.from_signed(m), r);
        let shares = products.iter().zip(&mask).map(of).collect();
        Ok(Box::new(Rounded { layer, shares, values: Vec::new() }))
    }
}

/// 4. Rounded channel by channel, no more of them than is asked for.
struct Rounded {
    layer: Layer,
    /// Modulo M.
    shares: Vec<u64>,
    /// The first of them, modulo 2^o.
    values: Vec<u64>,
}

impl Output for Rounded {
    fn values(&self) -> &[u64] {
        &self.values
    }

    fn make(&mut self, count: usize) {
        let plane = self.layer.out_shape[1] * self.layer.out_shape[2];
        let end = count.next_multiple_of(plane.max(1)).min(self.shares.len());
        let Self { layer, shares, values } = self;
        if end > values.len() {
            let from = values.len();
            values.extend(shares[from..end].iter().map(|&share| layer.rounding.server(share)));
        }
    }

    fn into_values(mut self: Box<Self>) -> Vec<u64> {
        self.make(self.shares.len());
        self.values
    }
}
