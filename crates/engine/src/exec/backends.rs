//! This party's side of every linear backend of a plan.

use std::sync::Arc;

use jaguar_graph::network::NodeId;
#[cfg(feature = "server")]
use jaguar_linear::backend::ClientKeys;
use jaguar_linear::backend::{BackendParty, KeyBytes, Layers, Online};
use jaguar_plan::Plan;
use jaguar_wire::{Channel, Stage};

use crate::error::EngineError;

/// Under what the bytes of kept keys are counted.
const KEYS: &str = "keys";

/// One role's parties in a session: one for each backend of the plan, in the plan's order.
pub(crate) struct Backends {
    parties: Vec<Box<dyn BackendParty>>,
    /// By party: the keys that a server keeps for a client.
    keys: Vec<KeyBytes>,
    /// By node: the index of the backend that runs it.
    of_node: Vec<Option<usize>>,
}

impl Backends {
    /// Makes a party of each backend.
    pub fn new(plan: &Plan, party: impl FnMut(&Arc<dyn Layers>) -> Box<dyn BackendParty>) -> Self {
        let of_node =
            (0..plan.steps.len()).map(|id| plan.backends.iter().position(|b| b.layer(id).is_some()));
        let keys = plan.backends.iter().map(|layers| layers.client_keys()).collect();
        Self { parties: plan.backends.iter().map(party).collect(), keys, of_node: of_node.collect() }
    }

    /// Puts a party that deviates around each, with its layers: what a client that does not follow the protocol can do.
    #[cfg(test)]
    pub(crate) fn deviate(
        &mut self,
        plan: &Plan,
        mut wrap: impl FnMut(Box<dyn BackendParty>, &Arc<dyn Layers>) -> Box<dyn BackendParty>,
    ) {
        let honest = std::mem::take(&mut self.parties);
        self.parties = honest.into_iter().zip(&plan.backends).map(|(p, layers)| wrap(p, layers)).collect();
    }

    /// The parties with keys that a server keeps.
    fn keepers(&mut self) -> impl Iterator<Item = (usize, &mut Box<dyn BackendParty>, KeyBytes)> {
        let all = self.parties.iter_mut().zip(&self.keys).enumerate();
        all.filter(|(_, (_, keys))| keys.sent > 0).map(|(i, (party, &keys))| (i, party, keys))
    }

    /// The client's keys, which follow from `seed`: a byte from the server says whether it has them; else they are sent.
    #[cfg(feature = "client")]
    pub fn send_keys(&mut self, seed: &[u8; 32], channel: &mut Channel) -> Result<(), EngineError> {
        for (_, party, _) in self.keepers() {
            channel.enter(Stage::Client, KEYS);
            let mut kept = [0];
            channel.recv_into(&mut kept)?;
            party.send_keys(seed, kept != [1], channel)?;
        }
        Ok(())
    }

    /// The server's counterpart. `find` is asked for what is kept of a party's keys, `keep` is told what to keep.
    #[cfg(feature = "server")]
    pub fn take_keys(
        &mut self,
        find: impl Fn(usize) -> Option<ClientKeys>,
        keep: impl Fn(usize, ClientKeys, u64),
        channel: &mut Channel,
    ) -> Result<(), EngineError> {
        for (i, party, bytes) in self.keepers() {
            channel.enter(Stage::Client, KEYS);
            let kept = find(i);
            let missing = kept.is_none();
            channel.send(&[u8::from(!missing)])?;
            channel.flush()?;
            if let Some(keys) = party.take_keys(kept, channel)?.filter(|_| missing) {
                keep(i, keys, bytes.kept);
            }
        }
        Ok(())
    }

    /// Once per session: keys.
    pub fn setup(&mut self, channel: &mut Channel) -> Result<(), EngineError> {
        self.parties.iter_mut().try_for_each(|party| Ok(party.setup(channel)?))
    }

    /// Once per query: fresh secrets.
    pub fn begin_query(&mut self, channel: &mut Channel) -> Result<(), EngineError> {
        self.parties.iter_mut().try_for_each(|party| Ok(party.begin_query(channel)?))
    }

    /// Offline, before any layer is prepared: the client sends for the layer of `node`, the server answers. `hint` as in
    /// [`prepare`](Self::prepare).
    pub fn exchange(&mut self, node: NodeId, hint: &[u8], channel: &mut Channel) -> Result<(), EngineError> {
        Ok(self.of(node).exchange(node, hint, channel)?)
    }

    /// The client takes the answer for the layer of `node`.
    pub fn collect(&mut self, node: NodeId, channel: &mut Channel) -> Result<(), EngineError> {
        Ok(self.of(node).collect(node, channel)?)
    }

    /// Offline: prepares the linear layer of `node`. `hint` is all of its hint at the client, and empty at the server.
    pub fn prepare(
        &mut self,
        node: NodeId,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, EngineError> {
        Ok(self.of(node).prepare(node, hint, channel)?)
    }

    fn of(&mut self, node: NodeId) -> &mut dyn BackendParty {
        let party = self.of_node[node].expect("a linear layer has a backend");
        &mut *self.parties[party]
    }
}
