//! The server: it holds a model, and answers queries.

use std::iter::{Peekable, Skip};
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use jaguar_graph::network::{Network, NodeId};
use jaguar_linear::backend::{Layers, Model};
use jaguar_mpc::{Party, WIDEST};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{Choices, PROTOCOL_VERSION, Plan};
use jaguar_wire::{Channel, Phase, Traffic};
use zeroize::Zeroizing;

use crate::EngineError;
use crate::bundle::{Bundle, ModelId};
use crate::hint::{Block, blocks};
use crate::message::{Accept, Hello, MAX_MESSAGE, MAX_PROBE, Offer, Request, Reveal, ServerCost};
use crate::program::{Backends, Clock, HintPath, Onlookers, PreparedResult, Program, Watch, work};
use crate::report::{NoProgress, Progress, peak_kib};
use crate::timeline::ServerTimes;

/// A model that is ready to serve any number of clients.
pub struct Service {
    bundle: Bundle,
    plan: Plan,
    /// By backend, in the plan's order.
    models: Vec<Arc<dyn Model>>,
    reveal: Reveal,
}

/// What one query cost the server.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Preparing, waiting included.
    pub preparing: Duration,
    /// From the first byte of the input to the result.
    pub online: Duration,
    /// Bytes and rounds of the query, all phases.
    pub traffic: Traffic,
}

impl Service {
    /// Plans the bundle's network as `choices` say and hands its weights to the backends. (Some transform them, which takes
    /// memory: up to 4 GiB; the weights of what layers do not fit are transformed in every query.)
    ///
    /// # Errors
    /// When the choices are not sound, or the network does not fit them.
    pub fn new(bundle: Bundle, choices: Choices, reveal: Reveal) -> Result<Self, EngineError> {
        let network = &bundle.model.network;
        let plan = Plan::new(network, choices)?;
        let output_bits = plan.steps.last().map_or(0, |s| s.ring);
        if reveal == Reveal::Label && output_bits > WIDEST {
            return Err(EngineError::Input(format!(
                "the label alone cannot be revealed: the output has {output_bits} bits (it ends in an average over many \
                 values), and the comparison takes {WIDEST}"
            )));
        }
        let (public, weights) = (bundle.id().0, &bundle.model.weights);
        let model = |layers: &Arc<dyn Layers>| Arc::clone(layers).model(public, weights, network.weight_bits);
        let models = plan.backends.iter().map(model).collect();
        Ok(Self { bundle, plan, models, reveal })
    }

    /// Does now what is done once per model, also while clients are served; else it is done when the first client needs it.
    pub fn prepare_model(&self, progress: &mut dyn Progress) {
        let total = self.plan.steps.len();
        for node in 0..total {
            progress.step(Phase::Model, node, total, &self.network().nodes[node].name);
            if let Some(model) = self.model_of(node) {
                model.prepare(node);
            }
        }
    }

    /// Whose layer a node is.
    fn model_of(&self, node: NodeId) -> Option<&Arc<dyn Model>> {
        let of = self.plan.backends.iter().position(|layers| layers.layer(node).is_some());
        of.map(|backend| &self.models[backend])
    }

    /// The network's public part.
    pub fn network(&self) -> &Network {
        &self.bundle.model.network
    }

    /// The whole model, for `verify`.
    pub(crate) fn bundle_model(&self) -> &jaguar_graph::network::Model {
        &self.bundle.model
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The model's public name.
    pub fn model(&self) -> ModelId {
        self.bundle.id()
    }

    /// Serves one client until it leaves. `observe` hears of every query that was answered.
    ///
    /// # Errors
    /// When the connection fails or the client breaks the protocol. The client is told; other clients are not concerned.
    pub fn serve(&self, channel: Channel, observe: &mut dyn FnMut(&Served)) -> Result<(), EngineError> {
        self.serve_watched(channel, observe, &mut |_, _| ())
    }

    pub(crate) fn serve_watched(
        &self,
        mut channel: Channel,
        observe: &mut dyn FnMut(&Served),
        watch: Watch<'_>,
    ) -> Result<(), EngineError> {
        let result = self.converse(&mut channel, observe, watch);
        if let Err(e) = &result {
            channel.abort(&e.for_peer());
        }
        result
    }

    fn converse(
        &self,
        channel: &mut Channel,
        observe: &mut dyn FnMut(&Served),
        watch: Watch<'_>,
    ) -> Result<(), EngineError> {
        // 1. Model.
        channel.enter(Phase::Model, "handshake");
        let Hello { version } = channel.recv_message("greeting", MAX_MESSAGE)?;
        channel.send_message(&Hello { version: PROTOCOL_VERSION })?;
        if version != PROTOCOL_VERSION {
            return Err(EngineError::Version { ours: PROTOCOL_VERSION, theirs: version });
        }
        channel.send_message(&Offer {
            model: self.bundle.id(),
            choices: self.plan.choices.clone(),
            reveal: self.reveal,
        })?;
        channel.send_message(self.network())?;
        let accept: Accept = channel.recv_message("acceptance", MAX_MESSAGE)?;
        if accept.plan != self.plan.digest() {
            return Err(EngineError::PeerMisbehaved(
                "the client made another plan of the same network".into(),
            ));
        }

        // 2. Client: the backends' keys; base OTs. The first query sends what the client's copy of the hint lacks.
        let key = self.bundle.hint_key(&accept.nonce, &self.plan.hint_digest());
        let mut models = self.models.iter();
        let mut backends = Backends::new(&self.plan, |_| {
            Arc::clone(models.next().expect("a model for each backend")).party(&key)
        });
        backends.setup(channel)?;
        let missing = blocks(&self.plan).into_iter().skip(accept.have_blocks as usize).peekable();
        let mut hints = HintStream { service: self, key, missing };
        channel.enter(Phase::Client, "base OTs");
        let mut party =
            Party::new(Role::Server, Cots::setup(channel, Role::Server, self.plan.choices.instances)?);

        // 3. Queries.
        loop {
            channel.enter(Phase::Preprocessing, "query keys");
            channel.take_stats();
            match channel.recv_message("request", MAX_MESSAGE)? {
                Request::Leave => return Ok(()),
                Request::Hint => {
                    channel.enter(Phase::Client, "hint");
                    if self.plan.hint_bytes() == 0 {
                        return Err(EngineError::PeerMisbehaved("this plan has no hint".into()));
                    }
                    hints.send_through(usize::MAX, channel)?;
                }
                Request::Probe { up, down } => {
                    channel.enter(Phase::Model, "probe");
                    if up.max(down) > MAX_PROBE {
                        return Err(EngineError::PeerMisbehaved(format!(
                            "a probe of {} bytes (at most {MAX_PROBE})",
                            up.max(down)
                        )));
                    }
                    channel.recv(up as usize)?;
                    channel.send(&vec![0; down as usize])?;
                    channel.flush()?;
                }
                Request::Query { timeline } => {
                    let mut material = (&mut backends, &mut hints);
                    self.query(channel, &mut party, &mut material, timeline, observe, watch)?;
                }
            }
        }
    }

    fn query(
        &self,
        channel: &mut Channel,
        party: &mut Party<Cots>,
        (backends, hints): &mut (&mut Backends, &mut HintStream<'_>),
        timeline: bool,
        observe: &mut dyn FnMut(&Served),
        watch: Watch<'_>,
    ) -> Result<(), EngineError> {
        let network = self.network();
        let program = Program { network, plan: &self.plan };
        let mut clock = Clock::new(network.nodes.len());
        if timeline {
            // The client learns from this when the clock was started.
            channel.log_waits();
            channel.send(&[0])?;
            channel.flush()?;
        }
        let answered = clock.elapsed();
        // The client's input is all its own: the server's share of it is zero.
        let input = vec![0; network.nodes[0].shape.iter().product()];

        // 1. Offline.
        backends.begin_query(channel)?;
        let (steps, result) =
            program.prepare(channel, party, self.reveal, &mut clock, &mut NoProgress, backends, *hints)?;
        let preparing = clock.elapsed();
        // 2. Online.
        let onlookers = Onlookers { clock: &mut clock, progress: &mut NoProgress, watch };
        let output = program.run(channel, steps, input, onlookers)?;
        channel.enter(Phase::Online, "result");
        match result {
            PreparedResult::Logits => {
                channel.send_packed(&output, self.plan.steps.last().expect("a plan has steps").ring)?;
            }
            PreparedResult::Label(argmax) => {
                argmax.run(channel, &output)?;
            }
        }
        let waits = channel.take_waits();
        channel.send_message(&ServerCost {
            hint: work(&clock.hint),
            preparing: work(&clock.preparing),
            online: work(&clock.online),
            peak_kib: peak_kib(),
            timeline: timeline.then(|| ServerTimes::new(&clock, &waits, answered)),
        })?;
        channel.flush()?;
        observe(&Served {
            preparing,
            online: clock.first_input.map_or(Duration::ZERO, |s| s.elapsed()),
            traffic: channel.total(),
        });
        Ok(())
    }
}

/// What one client's copy of the hint lacks, to be sent in order, each block once.
struct HintStream<'a> {
    service: &'a Service,
    key: Zeroizing<[u8; 32]>,
    missing: Peekable<Skip<IntoIter<Block>>>,
}

impl HintStream<'_> {
    /// Computes and sends what is missing of the nodes up to `node`, without waiting for anything. Says whether there was any.
    fn send_through(&mut self, node: NodeId, channel: &mut Channel) -> Result<bool, EngineError> {
        let mut any = false;
        while let Some(block) = self.missing.next_if(|b| b.node <= node) {
            let model = self.service.model_of(block.node).expect("blocks are of linear layers");
            let bytes = model.hint(block.node, block.responses, &self.key);
            let hash = blake3::hash(&bytes);
            channel.send_ahead(&bytes)?;
            channel.send_ahead(hash.as_bytes())?;
            // It travels while the next is computed.
            channel.flush()?;
            any = true;
        }
        Ok(any)
    }
}

impl HintPath for HintStream<'_> {
    fn pass(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        _: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        self.send_through(node, channel)
    }

    fn of(&mut self, _: NodeId) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }
}
