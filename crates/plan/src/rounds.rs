//! How often the client waits for an answer, online, by step: what runs side by side waits once.
//!
//! A query is walked as both parties run it: in waves, each of all nonlinear layers and extensions whose operands are there. A wave
//! waits as often as the one of its conversations that has the most flights; the others go alongside it. Linear layers and
//! truncations come one after the other, and what the client sends of a linear layer counts where that begins, though it may have
//! been sent as it came. And the client waits only if it has sent something since it last did: what the server says right behind its
//! last message arrives with that.

use jaguar_graph::network::{Network, NodeId};
use jaguar_mpc::{Cost, Elementwise, Nonlinear};

use crate::Step;

/// How often the client waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// By node. Of a wave, all are its first longest conversation's.
    pub by_node: Vec<u64>,
    /// Whether the client has sent something since, so that it waits for what comes behind the last step.
    pub sent: bool,
}

/// How a conversation begins; flights alternate.
#[derive(Clone, Copy)]
enum Begins {
    Client,
    /// The client, and what it says first was sent before the input.
    Early,
    /// The server, as extensions and truncations do; the client's answer is the last message.
    Server,
}

/// What a node does in a wave.
struct Job {
    node: NodeId,
    begins: Begins,
    cost: Cost,
    /// Whether it is the extension behind the node's operation, the last of the node.
    is_extension: bool,
}

/// Walks the query that `steps` of `network` are.
pub(crate) fn count(network: &Network, steps: &[Step]) -> Rounds {
    let nodes = &network.nodes;
    let mut client = Client { rounds: Rounds { by_node: vec![0; nodes.len()], sent: false } };
    let mut begun = vec![false; nodes.len()];
    let mut todo: Vec<NodeId> = (0..nodes.len()).collect();
    let mut wave = Vec::new();
    loop {
        // 1. Whatever has all its inputs begins. What is computed at once is an input of those behind it.
        for id in std::mem::take(&mut todo) {
            if nodes[id].inputs.iter().any(|&i| !begun[i]) {
                todo.push(id);
                continue;
            }
            match own_job(id, &steps[id]) {
                Some(job) => wave.push(job),
                None => {
                    client.linear(id, &steps[id]);
                    begun[id] = client.ends(id, &steps[id], &mut wave);
                }
            }
        }
        // 2. The wave.
        let jobs = std::mem::take(&mut wave);
        let Some(lead) = jobs.iter().rev().max_by_key(|job| job.cost.client_rounds) else { break };
        client.talk(lead.node, lead.begins, &lead.cost);
        for job in jobs {
            if job.is_extension {
                begun[job.node] = true;
                continue;
            }
            if steps[job.node].conversion.is_some() {
                client.linear(job.node, &steps[job.node]);
            }
            begun[job.node] = client.ends(job.node, &steps[job.node], &mut wave);
        }
    }
    client.rounds
}

/// The conversation that a step begins with, if it does.
fn own_job(node: NodeId, step: &Step) -> Option<Job> {
    let job = |begins, cost| Some(Job { node, begins, cost, is_extension: false });
    match (&step.conversion, &step.nonlinear) {
        (Some(conversion), _) => job(Begins::Server, conversion.cost()),
        (None, Some(layer)) if step.early && layer.correction_bytes() > 0 => {
            job(Begins::Early, layer.cost_corrected_early())
        }
        (None, Some(layer)) => job(Begins::Client, layer.cost()),
        (None, None) => None,
    }
}

/// The client, as far as it has come.
struct Client {
    rounds: Rounds,
}

impl Client {
    fn sends(&mut self) {
        self.rounds.sent = true;
    }

    fn receives(&mut self, node: NodeId) {
        self.rounds.by_node[node] += u64::from(std::mem::take(&mut self.rounds.sent));
    }

    /// Flights to and fro.
    fn talk(&mut self, node: NodeId, begins: Begins, cost: &Cost) {
        for flight in 0..cost.client_rounds {
            if flight > 0 || matches!(begins, Begins::Client) {
                self.sends();
            }
            self.receives(node);
        }
        let answers = match begins {
            // The server waits for all that the client says.
            Begins::Client | Begins::Early => cost.server_rounds > cost.client_rounds,
            Begins::Server => cost.client_rounds > 0,
        };
        if answers {
            self.sends();
        }
    }

    /// The linear layer of a step, if it has one.
    fn linear(&mut self, node: NodeId, step: &Step) {
        let Some(layer) = &step.layer else { return };
        let traffic = layer.traffic();
        if traffic.online.0 > 0 {
            self.sends();
        }
        for answer in 0..traffic.rounds {
            if answer > 0 {
                self.sends();
            }
            self.receives(node);
        }
    }

    /// What follows a step's operation. Whether its value is there then: an extension joins the next `wave`.
    fn ends(&mut self, node: NodeId, step: &Step, wave: &mut Vec<Job>) -> bool {
        if let Some(params) = step.truncation {
            let truncation = Elementwise { count: step.values, params };
            self.talk(node, Begins::Server, &truncation.cost());
        }
        let Some(params) = step.extension else { return true };
        let extension = Elementwise { count: step.values, params };
        wave.push(Job { node, begins: Begins::Server, cost: extension.cost(), is_extension: true });
        false
    }
}
