//! The server's half: before the input it multiplies ciphertexts, with it plain integers.

use std::collections::HashMap;
use std::sync::Arc;

use jaguar_wire::Channel;
use zeroize::Zeroizing;

use super::layer::FregataModel;
use jaguar_linear::backend::{BackendError, BackendParty, Online, Output};
use jaguar_linear::product::Running;

/// The server's side of a session.
pub(super) struct Server {
    model: Arc<FregataModel>,
    /// The engine's server.
    engine: Box<dyn BackendParty>,
    /// By node: r, for one run.
    ready: HashMap<usize, Zeroizing<Vec<u64>>>,
}

impl Server {
    pub(super) fn new(model: Arc<FregataModel>, engine: Box<dyn BackendParty>) -> Self {
        Self { model, engine, ready: HashMap::new() }
    }
}

impl BackendParty for Server {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.engine.setup(channel)
    }

    fn begin_query(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.ready.clear();
        self.engine.begin_query(channel)
    }

    /// 2. W·M: the answer to the client, and r.
    fn exchange(&mut self, node: usize, _: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        // M is all the client's.
        let zeros = vec![0; self.model.layers.of(node).inputs()];
        let mut engine = self.engine.prepare(node, &[], channel)?;
        engine.feed_all(channel, &zeros)?;
        let share = engine.finish(channel, &zeros)?.into_values();
        channel.flush()?;
        self.ready.insert(node, Zeroizing::new(share));
        Ok(())
    }

    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let share = self.ready.remove(&node).expect("it was multiplied");
        Ok(Box::new(ServerOnline { model: Arc::clone(&self.model), node, share, v: Zeroizing::default() }))
    }
}

struct ServerOnline {
    model: Arc<FregataModel>,
    node: usize,
    /// r: the server's share of the products, modulo 2^l.
    share: Zeroizing<Vec<u64>>,
    /// V, as far as it is there.
    v: Zeroizing<Vec<u64>>,
}

impl ServerOnline {
    /// 3. As much of V as the client sends when it knows the first `values` of its share, and has not sent before.
    fn receive_ready(&mut self, channel: &mut Channel, values: usize) -> Result<(), jaguar_wire::WireError> {
        let layer = self.model.layers.of(self.node);
        if let Some(count) = layer.ready(values).checked_sub(self.v.len()).filter(|&count| count > 0) {
            // Once, for no copy to be left behind.
            let room = layer.sent() - self.v.len();
            self.v.reserve_exact(room);
            self.v.extend(channel.recv_packed(count, layer.bits())?);
        }
        Ok(())
    }
}

impl Online for ServerOnline {
    fn receive(&mut self, channel: &mut Channel, count: usize) -> Result<(), BackendError> {
        // It follows the client's last message of a block, which was waited for already.
        let mut channel_alongside = |channel: &mut Channel| self.receive_ready(channel, count);
        Ok(channel.alongside(&mut channel_alongside)?)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        Ok(self.receive_ready(channel, x.len())?)
    }

    /// 4. `W·(V + x_s) + r`, begun.
    fn finish(self: Box<Self>, _: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { model, node, share, v } = *self;
        let layer = model.layers.of(node);
        assert_eq!(
            (x.len(), v.len()),
            (layer.inputs(), layer.sent()),
            "the whole of V and of the server's share"
        );
        let mut opened = Zeroizing::new(vec![0; x.len()]);
        layer.places(0..v.len()).zip(&*v).for_each(|(at, &v)| opened[at] = x[at].wrapping_add(v));
        let running = model.product(node).begin(&opened);
        Ok(Box::new(ServerOutput { model, node, running, values: share, channels: 0 }))
    }
}

/// The server's share of a layer's output, channel by channel as it is wanted.
struct ServerOutput {
    model: Arc<FregataModel>,
    node: usize,
    running: Box<dyn Running>,
    /// Of the channels that are made the share, of the others r.
    values: Zeroizing<Vec<u64>>,
    /// How many channels are made.
    channels: usize,
}

impl Output for ServerOutput {
    fn values(&self) -> &[u64] {
        let [_, h, w] = self.model.layers.of(self.node).out_shape;
        &self.values[..self.channels * h * w]
    }

    fn make(&mut self, count: usize) {
        let layer = self.model.layers.of(self.node);
        let [all, h, w] = layer.out_shape;
        let wanted = count.div_ceil(h * w).min(all);
        if wanted <= self.channels {
            return;
        }
        let missing = (wanted - self.channels).next_multiple_of(self.running.together());
        let new = self.channels..(self.channels + missing).min(all);
        let mut products = Zeroizing::new(vec![0; new.len() * h * w]);
        self.running.channels(new.clone(), &mut products);
        for (value, &product) in self.values[new.start * h * w..new.end * h * w].iter_mut().zip(&*products) {
            *value = layer.server_share(value.wrapping_add(product));
        }
        self.channels = new.end;
    }

    fn into_values(mut self: Box<Self>) -> Vec<u64> {
        self.make(self.values.len());
        std::mem::take(&mut *self.values)
    }
}
