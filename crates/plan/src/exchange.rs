//! In which order the client sends, and takes answers to, what layers exchange before any of them is prepared.
//!
//! Some backends' clients send ciphertexts before the input ([`jaguar_linear::backend::BackendParty::exchange`]). The server
//! answers each as it comes. The client does not wait: it encrypts for the next layers while the link and the server
//! are at work, as long as what is under way stays below [`IN_FLIGHT`]. Only the client follows a schedule; the
//! server's messages are the same under all of them.

use jaguar_graph::network::NodeId;

use crate::Plan;

/// When more bytes of exchanges than this are under way, both directions together, the client takes answers until half
/// of it is left. (A transport queues several times as many without waiting for its peer.)
pub const IN_FLIGHT: usize = 32 << 20;

/// When the client takes the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// As late as it may.
    #[default]
    Streamed,
    /// Each before it sends for the next layer: to see what streaming saves.
    LayerByLayer,
}

/// One step of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// It sends for a layer.
    Send(NodeId),
    /// It takes the answer.
    Collect(NodeId),
}

impl Plan {
    /// The layers with an exchange: those whose client sends offline.
    pub fn exchanging(&self) -> impl Iterator<Item = NodeId> + '_ {
        let exchanges =
            |id: &NodeId| self.steps[*id].layer.as_ref().is_some_and(|layer| layer.traffic().offline.0 > 0);
        (0..self.steps.len()).filter(exchanges)
    }

    /// All steps of the client, each layer's answer some time after it was sent for, in the same order.
    pub fn exchanges(&self, schedule: Schedule) -> Vec<Exchange> {
        let bytes = |id: NodeId| {
            let (up, down) = self.steps[id].layer.as_ref().map_or((0, 0), |layer| layer.traffic().offline);
            up + down
        };
        let most = match schedule {
            Schedule::Streamed => IN_FLIGHT,
            Schedule::LayerByLayer => 0,
        };
        let (mut steps, mut under_way, mut waiting) = (Vec::new(), 0, std::collections::VecDeque::new());
        for id in self.exchanging() {
            steps.push(Exchange::Send(id));
            waiting.push_back(id);
            under_way += bytes(id);
            if under_way > most {
                while under_way > most / 2
                    && let Some(first) = waiting.pop_front()
                {
                    steps.push(Exchange::Collect(first));
                    under_way -= bytes(first);
                }
            }
        }
        steps.extend(waiting.into_iter().map(Exchange::Collect));
        steps
    }

    /// How often the client waits for answers in [`exchanges`](Self::exchanges), as they are streamed: when it takes
    /// one after it has sent.
    pub(crate) fn exchange_rounds(&self) -> u64 {
        let (mut sent, mut rounds) = (false, 0);
        for step in self.exchanges(Schedule::Streamed) {
            match step {
                Exchange::Send(_) => sent = true,
                Exchange::Collect(id) => {
                    let answered = self.steps[id].layer.as_ref().is_some_and(|l| l.traffic().offline.1 > 0);
                    if answered && std::mem::take(&mut sent) {
                        rounds += 1;
                    }
                }
            }
        }
        rounds
    }
}
