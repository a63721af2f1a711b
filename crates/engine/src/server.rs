//! The server: it holds a model, and answers queries.

use std::iter::{Peekable, Skip};
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use jaguar_bundle::{Bundle, ModelId};
use jaguar_cpu::Cpu;
use jaguar_graph::network::{Network, NodeId};
use jaguar_linear::backend::{Layers, Model};
use jaguar_linear::guard::Guarded;
use jaguar_mpc::{Party, WIDEST};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{Choices, Plan};
use jaguar_wire::{Channel, Stage, Traffic};
use zeroize::Zeroizing;

use crate::budget::{Booking, HintBudget};
use crate::error::EngineError;
use crate::exec::backends::Backends;
use crate::exec::clock::{NodeTimes, Spent};
use crate::exec::prepare::{LayerHints, Offline, PreparedPlan, PreparedResult, Reveal, prepare};
use crate::exec::run::{Observers, run};
use crate::exec::values::{PlannedNetwork, ShareObserver};
use crate::handshake::{self, SharesParameters};
use crate::hint::{Block, blocks};
use crate::memory::peak_kib;
use crate::message::{Accept, MAX_MESSAGE, MAX_PROBE, Request, ServerCost};
use crate::one_round::server as one_round;
use crate::progress::{NoProgress, Progress};
use crate::server_times::ServerTimes;

pub use crate::budget::Limits;

/// A model that is ready to serve any number of clients.
pub struct Service {
    bundle: Bundle,
    plan: Plan,
    cpu: Cpu,
    /// By backend, in the plan's order.
    models: Vec<Arc<dyn Model>>,
    reveal: Reveal,
    /// What is offered beside the interactive protocol.
    one_round: Option<one_round::Service>,
    hint_budget: HintBudget,
}

/// What one query cost the server.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The offline stage, waiting included.
    pub offline: Duration,
    /// From when the first linear layer has its input to the result.
    pub online: Duration,
    /// Bytes and rounds of the query, all its stages.
    pub traffic: Traffic,
}

impl Service {
    /// Plans the bundle's network as `choices` say and hands its weights to the backends. (Some transform them, which takes
    /// memory: up to 4 GiB; the weights of what layers do not fit are transformed in every query.)
    ///
    /// # Errors
    /// When the choices are not sound, or the network does not fit them.
    pub fn new(bundle: Bundle, choices: Choices, reveal: Reveal) -> Result<Self, EngineError> {
        Self::on(Cpu::detect(), bundle, choices, reveal)
    }

    /// As [`new`](Self::new), with linear layers that are computed with the instructions that `cpu` has.
    ///
    /// # Errors
    /// As `new`.
    pub fn on(cpu: Cpu, bundle: Bundle, choices: Choices, reveal: Reveal) -> Result<Self, EngineError> {
        let plan = Plan::new(&bundle.model.network, choices)?;
        Self::with_plan(cpu, bundle, plan, reveal)
    }

    /// **Insecure**: [`new`](Self::new) that takes backends which protect nothing too. A client that does not ask for that in its
    /// limits refuses it.
    ///
    /// # Errors
    /// As `new`.
    pub fn allowing_insecure_backends(
        bundle: Bundle,
        choices: Choices,
        reveal: Reveal,
    ) -> Result<Self, EngineError> {
        let plan = Plan::allowing_insecure_backends(&bundle.model.network, choices)?;
        Self::with_plan(Cpu::detect(), bundle, plan, reveal)
    }

    pub(crate) fn with_plan(
        cpu: Cpu,
        bundle: Bundle,
        plan: Plan,
        reveal: Reveal,
    ) -> Result<Self, EngineError> {
        let network = &bundle.model.network;
        let output_bits = plan.steps.last().map_or(0, |s| s.domain.modulus.bits());
        if reveal == Reveal::Label && output_bits > WIDEST {
            return Err(EngineError::Input(format!(
                "the label alone cannot be revealed: the output has {output_bits} bits (it ends in an average over many \
                 values), and the comparison takes {WIDEST}"
            )));
        }
        let (public, weights) = (bundle.id().0, &bundle.model.weights);
        let model =
            |layers: &Arc<dyn Layers>| Arc::clone(layers).model(cpu, public, weights, network.weight_bits);
        let models = plan.backends.iter().map(model).collect();
        let hint_budget = HintBudget::new(Limits::default(), plan.hint_bytes() as u64);
        Ok(Self { bundle, plan, cpu, models, reveal, one_round: None, hint_budget })
    }

    /// Bounds what clients may make this server spend, in other than the default way.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.hint_budget = HintBudget::new(limits, self.plan.hint_bytes() as u64);
        self
    }

    /// Offers one-round protocols too.
    #[must_use]
    pub fn with_one_round(mut self, service: one_round::Service) -> Self {
        self.one_round = Some(service);
        self
    }

    /// Does now what is done once per model, also while clients are served; else it is done when the first client needs it.
    pub fn prepare_model(&self, progress: &mut dyn Progress) {
        let total = self.plan.steps.len();
        for node in 0..total {
            progress.step(Stage::Model, node, total, &self.network().nodes[node].name);
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

    /// What its linear layers are computed with.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// The whole model, for `verify`.
    #[cfg(feature = "client")]
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
        self.serve_observed(channel, observe, &mut |_, _| ())
    }

    pub(crate) fn serve_observed(
        &self,
        mut channel: Channel,
        observe: &mut dyn FnMut(&Served),
        shares: ShareObserver<'_>,
    ) -> Result<(), EngineError> {
        let result = self.converse(&mut channel, observe, shares);
        if let Err(e) = &result {
            channel.abort(&e.for_peer());
        }
        result
    }

    fn converse(
        &self,
        channel: &mut Channel,
        observe: &mut dyn FnMut(&Served),
        shares: ShareObserver<'_>,
    ) -> Result<(), EngineError> {
        // 1. Model. The interactive protocol is the first that is offered.
        let parameters = SharesParameters { choices: self.plan.choices.clone(), reveal: self.reveal };
        let mut protocols = vec![parameters.protocol()];
        protocols.extend(self.one_round.iter().flat_map(one_round::Service::protocols));
        let chosen = handshake::server::answer(channel, self.bundle.id(), &protocols, Some(self.network()))?;
        if let (Some(index), Some(service)) = (chosen.checked_sub(1), &self.one_round) {
            return service.serve_chosen(index, channel);
        }
        let accept: Accept = channel.recv_message("acceptance", MAX_MESSAGE)?;
        if accept.plan != self.plan.digest() {
            return Err(EngineError::PeerMisbehaved(
                "the client made another plan of the same network".into(),
            ));
        }

        // 2. Client: the backends' keys; base OTs. The first query sends what the client's copy of the hint lacks.
        let key = self.bundle.hint_key(&accept.nonce, &self.plan.hint_digest());
        let mut models = self.models.iter();
        let mut backends = Backends::new(&self.plan, |layers| {
            let party = Arc::clone(models.next().expect("a model for each backend")).party(&key);
            Guarded::wrap(party, layers, self.network())
        });
        backends.setup(channel)?;
        let missing = blocks(&self.plan).into_iter().skip(accept.have_blocks as usize).peekable();
        let mut hints = HintStream { service: self, key, missing, booking: None };
        channel.enter(Stage::Client, "base OTs");
        let mut party = Party::on(
            self.cpu,
            Role::Server,
            Cots::setup(channel, Role::Server, self.plan.choices.instances)?,
        );

        // 3. Queries.
        loop {
            channel.enter(Stage::Offline, "query keys");
            channel.take_stats();
            match channel.recv_message("request", MAX_MESSAGE)? {
                Request::Leave => return Ok(()),
                Request::Hint => {
                    channel.enter(Stage::Client, "hint");
                    if self.plan.hint_bytes() == 0 {
                        return Err(EngineError::PeerMisbehaved("this plan has no hint".into()));
                    }
                    hints.book(channel)?;
                    hints.send_through(usize::MAX, channel)?;
                }
                Request::Probe { up, down } => {
                    channel.enter(Stage::Model, "probe");
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
                    hints.book(channel)?;
                    let mut material = (&mut backends, &mut hints);
                    self.query(channel, &mut party, &mut material, timeline, observe, shares)?;
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
        shares: ShareObserver<'_>,
    ) -> Result<(), EngineError> {
        let network = self.network();
        let planned = PlannedNetwork { network, plan: &self.plan };
        let mut times = NodeTimes::new(channel.clock(), network.nodes.len());
        if timeline {
            // The client learns from this when the clock was started.
            channel.log_waits();
            channel.send(&[0])?;
            channel.flush()?;
        }
        let answered = times.elapsed();
        // The client's input is all its own: the server's share of it is zero.
        let input = vec![0; network.nodes[0].shape.iter().product()];

        // 1. Offline.
        backends.begin_query(channel)?;
        let context = Offline {
            channel: &mut *channel,
            party,
            backends,
            hints: *hints,
            times: &mut times,
            progress: &mut NoProgress,
        };
        let PreparedPlan { steps, result } = prepare(planned, self.reveal, context)?;
        let offline = times.elapsed();
        // 2. Online.
        let observers = Observers { times: &mut times, progress: &mut NoProgress, shares };
        let output = run(planned, channel, steps, input, observers)?;
        channel.enter(Stage::Online, "result");
        match result {
            PreparedResult::Logits => {
                channel.send_packed(
                    &output,
                    self.plan.steps.last().expect("a plan has steps").domain.modulus.bits(),
                )?;
            }
            PreparedResult::Label(argmax) => {
                argmax.run(channel, &output)?;
            }
        }
        let waits = channel.take_waits();
        channel.send_message(&ServerCost {
            hint: busy_micros(&times.hint),
            offline: busy_micros(&times.offline),
            online: busy_micros(&times.online),
            peak_kib: peak_kib(),
            timeline: timeline.then(|| ServerTimes::new(&times, &waits, answered)),
        })?;
        channel.flush()?;
        observe(&Served { offline, online: since_first_input(&self.plan, &times), traffic: channel.total() });
        Ok(())
    }
}

/// This party's work by node, in microseconds.
fn busy_micros(spent: &[Spent]) -> Vec<u32> {
    spent.iter().map(|s| u32::try_from(s.busy().as_micros()).unwrap_or(u32::MAX)).collect()
}

/// Time since the first linear layer had its input: it waits for nothing else. Zero in a network without linear layers.
fn since_first_input(plan: &Plan, times: &NodeTimes) -> Duration {
    let linear = |(stage, node, _): &&(Stage, NodeId, Spent)| {
        *stage == Stage::Online && plan.steps[*node].layer.is_some()
    };
    let first = times.pieces.iter().find(linear);
    first.map_or(Duration::ZERO, |(_, _, piece)| times.elapsed().saturating_sub(piece.start + piece.waited))
}

/// What one client's copy of the hint lacks, to be sent in order, each block once.
struct HintStream<'a> {
    service: &'a Service,
    key: Zeroizing<[u8; 32]>,
    missing: Peekable<Skip<IntoIter<Block>>>,
    /// Its place in the budget, once something is asked for.
    booking: Option<Booking<'a>>,
}

impl HintStream<'_> {
    /// Books what is missing, before the first of it is computed.
    fn book(&mut self, channel: &Channel) -> Result<(), EngineError> {
        if self.booking.is_none() {
            let bytes = self.missing.clone().map(|block| block.bytes as u64).sum();
            self.booking = Some(self.service.hint_budget.book(bytes, channel.clock().now())?);
        }
        Ok(())
    }

    /// Computes and sends what is missing of the nodes up to `node`, without waiting for anything. Says whether there was any.
    fn send_through(&mut self, node: NodeId, channel: &mut Channel) -> Result<bool, EngineError> {
        let mut any = false;
        while let Some(block) = self.missing.next_if(|b| b.node <= node) {
            let model = self.service.model_of(block.node).expect("blocks are of linear layers");
            let bytes = model.hint(block.node, block.responses, &self.key);
            self.booking.iter_mut().for_each(|booking| booking.used(block.bytes as u64));
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

impl LayerHints for HintStream<'_> {
    fn transfer(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        _: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        self.send_through(node, channel)
    }

    fn read(&mut self, _: NodeId) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }
}
