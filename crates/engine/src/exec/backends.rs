//! This party's side of every linear backend of a plan.

use std::sync::Arc;

use jaguar_graph::network::NodeId;
use jaguar_linear::backend::{Layers, Online, Party};
use jaguar_plan::Plan;
use jaguar_wire::Channel;

use crate::error::EngineError;

/// One role's parties in a session: one for each backend of the plan, in the plan's order.
pub(crate) struct Backends {
    parties: Vec<Box<dyn Party>>,
    /// By node: the index of the backend that runs it.
    of_node: Vec<Option<usize>>,
}

impl Backends {
    /// Makes a party of each backend.
    pub fn new(plan: &Plan, party: impl FnMut(&Arc<dyn Layers>) -> Box<dyn Party>) -> Self {
        let of_node =
            (0..plan.steps.len()).map(|id| plan.backends.iter().position(|b| b.layer(id).is_some()));
        Self { parties: plan.backends.iter().map(party).collect(), of_node: of_node.collect() }
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

    fn of(&mut self, node: NodeId) -> &mut dyn Party {
        let party = self.of_node[node].expect("a linear layer has a backend");
        &mut *self.parties[party]
    }
}
