//! Time and traffic by node.

use std::sync::Arc;
use std::time::Duration;

use jaguar_graph::network::{Network, NodeId};
use jaguar_wire::{Channel, Clock, Stage};

use crate::error::EngineError;

/// What a query took at this party, by node: wall time, and the part of it in which the party waited for its peer.
pub(crate) struct NodeTimes {
    clock: Arc<dyn Clock>,
    /// When the query began, on `clock`. All starts count from here.
    origin: Duration,
    /// Fetching or sending what the client's hint lacked.
    pub hint: Vec<Spent>,
    pub offline: Vec<Spent>,
    pub online: Vec<Spent>,
    /// All pieces of work, in the order in which they ended.
    pub pieces: Vec<(Stage, NodeId, Spent)>,
    /// Correlated OTs by node, both directions together.
    pub cots: Vec<u64>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Since the query's origin.
    pub start: Duration,
    pub wall: Duration,
    pub waited: Duration,
}

impl Spent {
    /// Time in which this party worked.
    pub fn busy(&self) -> Duration {
        self.wall.saturating_sub(self.waited)
    }
}

/// Where a piece of work began.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    at: Duration,
    /// What the channel had waited by then.
    waited: Duration,
}

impl NodeTimes {
    /// No time spent yet on any of `nodes` nodes; the query begins now.
    pub fn new(clock: &Arc<dyn Clock>, nodes: usize) -> Self {
        Self {
            clock: Arc::clone(clock),
            origin: clock.now(),
            hint: vec![Spent::default(); nodes],
            offline: vec![Spent::default(); nodes],
            online: vec![Spent::default(); nodes],
            pieces: Vec::new(),
            cots: vec![0; nodes],
        }
    }

    /// A piece of work begins now.
    pub fn begin(&self, channel: &Channel) -> Began {
        Began { at: self.clock.now(), waited: channel.waited() }
    }

    /// Adds what began at `began` and ends now to a node's time. A node's work may come in pieces, with other nodes' in
    /// between.
    pub fn add(&mut self, stage: Stage, node: NodeId, began: Began, channel: &Channel) {
        let piece = Spent {
            start: began.at.saturating_sub(self.origin),
            wall: self.clock.now().saturating_sub(began.at),
            waited: channel.waited() - began.waited,
        };
        let spent = match stage {
            Stage::Model | Stage::Client => &mut self.hint,
            Stage::Offline => &mut self.offline,
            Stage::Online => &mut self.online,
        };
        let spent = &mut spent[node];
        if spent.wall.is_zero() {
            spent.start = piece.start;
        }
        spent.wall += piece.wall;
        spent.waited += piece.waited;
        self.pieces.push((stage, node, piece));
    }

    /// When the query began, on the session's clock.
    pub fn origin(&self) -> Duration {
        self.origin
    }

    /// Since the query began.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().saturating_sub(self.origin)
    }
}

/// The label under which a node's traffic is counted.
pub(crate) fn label(node: usize, name: &str) -> String {
    format!("{node:04} {name}")
}

/// A channel on which every piece of online work is counted for a node.
pub(super) struct Account<'a> {
    pub network: &'a Network,
    pub channel: &'a mut Channel,
    pub times: &'a mut NodeTimes,
}

impl Account<'_> {
    /// Does `work` for `node`: its time and traffic are that node's, and an error names it.
    pub fn timed<T>(
        &mut self,
        node: NodeId,
        work: impl FnOnce(&mut Channel) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let name = &self.network.nodes[node].name;
        self.channel.enter(Stage::Online, &label(node, name));
        let began = self.times.begin(self.channel);
        let result = work(self.channel).map_err(|e| e.in_layer(name, "online"))?;
        self.times.add(Stage::Online, node, began, self.channel);
        Ok(result)
    }
}
