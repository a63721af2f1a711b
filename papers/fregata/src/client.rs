//! The client's half: it draws M, and knows its output before its input.

use std::collections::HashMap;
use std::sync::Arc;

use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::Mask;
use super::layer::FregataLayers;
use jaguar_linear::backend::{BackendError, BackendParty, Online, Output};

/// The client's side of a session.
pub(super) struct Client {
    layers: Arc<FregataLayers>,
    /// The engine's client.
    engine: Box<dyn BackendParty>,
    /// Where the masks of the layers come from.
    prg: Prg,
    /// By node: sent, and the answer not taken yet.
    sent: HashMap<usize, Sent>,
    /// By node: ready for one run.
    ready: HashMap<usize, ClientOnline>,
}

/// M, and the engine's layer that multiplies it.
struct Sent {
    mask: Mask,
    engine: Box<dyn Online>,
}

impl Client {
    pub(super) fn new(layers: Arc<FregataLayers>, engine: Box<dyn BackendParty>, prg: Prg) -> Self {
        Self { layers, engine, prg, sent: HashMap::new(), ready: HashMap::new() }
    }
}

impl BackendParty for Client {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.engine.setup(channel)
    }

    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        // Nothing of an earlier query is left to be used in this one.
        self.sent.clear();
        self.ready.clear();
        self.engine.begin_query(channel)
    }

    /// 1. M, and 2. its ciphertexts.
    fn exchange(&mut self, node: usize, hint: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        let layer = self.layers.of(node);
        let mask = Mask::fresh(&mut self.prg, layer.inputs(), layer.bits());
        let mut engine = self.engine.prepare(node, hint, channel)?;
        engine.feed_all(channel, mask.values())?;
        channel.flush()?;
        self.sent.insert(node, Sent { mask, engine });
        Ok(())
    }

    /// 2. The share c, truncated.
    fn collect(&mut self, node: usize, channel: &mut Channel) -> Result<(), BackendError> {
        let Sent { mask, engine } = self.sent.remove(&node).expect("it was sent");
        let layer = self.layers.of(node);
        let mut output = Zeroizing::new(engine.finish(channel, mask.values())?.into_values());
        output.iter_mut().for_each(|share| *share = layer.client_share(*share));
        let online = ClientOnline { layers: Arc::clone(&self.layers), node, mask, output, sent: 0 };
        self.ready.insert(node, online);
        Ok(())
    }

    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        Ok(Box::new(self.ready.remove(&node).expect("its answer was taken")))
    }
}

struct ClientOnline {
    layers: Arc<FregataLayers>,
    node: usize,
    mask: Mask,
    /// The client's share of the output, modulo 2^n.
    output: Zeroizing<Vec<u64>>,
    /// How many values of V have left.
    sent: usize,
}

impl Online for ClientOnline {
    fn early_output(&self) -> Option<&[u64]> {
        Some(&self.output)
    }

    /// 3. V of the channels that are known.
    fn feed(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let layer = self.layers.of(self.node);
        let ready = layer.ready(x.len());
        if ready <= self.sent {
            return Ok(());
        }
        // All of the input up to the last value that leaves: what no output reads stays here, and its mask is used up.
        let first = self.mask.used();
        let last = layer.places(ready - 1..ready).next().expect("a value of V");
        let hidden = self.mask.hide_next(&x[first..=last]);
        let v: Vec<u64> = layer.places(self.sent..ready).map(|at| hidden[at - first]).collect();
        self.sent = ready;
        Ok(channel.send(&pack::pack(&v, layer.bits()))?)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.feed(channel, x)
    }

    fn finish(
        mut self: Box<Self>,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<Box<dyn Output>, BackendError> {
        self.feed(channel, x)?;
        Ok(Box::new(std::mem::take(&mut self.output)))
    }
}
