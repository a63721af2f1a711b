//! In which order the client sends, and takes answers to, what layers exchange before any of them is prepared, and what completes
//! nonlinear layers when all of them are.
//!
//! Some backends' clients send ciphertexts before the input ([`jaguar_linear::backend::BackendParty::exchange`]). The server
//! answers each as it comes. The client does not wait: it encrypts for the next layers while the link and the server
//! are at work, as long as what is under way stays below [`IN_FLIGHT`]. Only the client follows a schedule; the
//! server's messages are the same under all of them.
//!
//! What completes a nonlinear layer ([`jaguar_mpc::Block::complete`]) is answered by some protocols. Both parties take the answers
//! ([`jaguar_mpc::Block::settle`]) at the same places: when answers of more than [`IN_FLIGHT`] are under way, and at the end.

use std::collections::VecDeque;

use jaguar_graph::network::NodeId;

use crate::{Plan, Step};

/// When more bytes than this are under way, the client takes answers: of exchanges, both directions together, until half of it
/// is left. (A transport queues several times as many without waiting for its peer.)
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
        let (mut steps, mut under_way, mut waiting) = (Vec::new(), 0, VecDeque::new());
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

    /// All steps by which nonlinear layers are completed, in the order of both parties: the client sends for a layer, and takes
    /// the answer some layers later, so that the server works while the client does.
    pub fn completions(&self) -> Vec<Exchange> {
        let (mut steps, mut under_way, mut waiting) = (Vec::new(), 0, VecDeque::new());
        for (id, step) in self.steps.iter().enumerate().filter(|(_, step)| step.cost.prepare_up > 0) {
            steps.push(Exchange::Send(id));
            let answered = step.nonlinear.as_ref().map_or(0, |layer| layer.answered());
            if answered > 0 {
                waiting.push_back((id, answered));
                under_way += answered;
            }
            while under_way > IN_FLIGHT as u64
                && let Some((first, bytes)) = waiting.pop_front()
            {
                steps.push(Exchange::Collect(first));
                under_way -= bytes;
            }
        }
        steps.extend(waiting.into_iter().map(|(id, _)| Exchange::Collect(id)));
        steps
    }

    /// How often the client waits for answers in [`exchanges`](Self::exchanges), as they are streamed, and in
    /// [`completions`](Self::completions): when it takes one after it has sent.
    pub(crate) fn exchange_rounds(&self) -> u64 {
        let (mut sent, mut rounds) = (false, 0);
        let mut take = |step: Exchange, answered: &dyn Fn(&Step) -> bool| match step {
            Exchange::Send(_) => sent = true,
            Exchange::Collect(id) => {
                if answered(&self.steps[id]) && std::mem::take(&mut sent) {
                    rounds += 1;
                }
            }
        };
        let exchanged = |step: &Step| step.layer.as_ref().is_some_and(|layer| layer.traffic().offline.1 > 0);
        self.exchanges(Schedule::Streamed).into_iter().for_each(|step| take(step, &exchanged));
        self.completions().into_iter().for_each(|step| take(step, &|_| true));
        rounds
    }
}
