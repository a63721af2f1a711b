//! The server: it holds a model, and answers queries.

use std::iter::{Peekable, Skip};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use jaguar_graph::network::{Network, NodeId};
use jaguar_linear::jaguar::{ServerLayer, ServerPrepared};
use jaguar_mpc::{Party, WIDEST};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{Choices, Layer, PROTOCOL_VERSION, Plan, Protocol};
use jaguar_ring::prg::os_random;
use jaguar_ring::product::WideNtt;
use jaguar_rlwe::{PublicSeed, Ring};
use jaguar_wire::{Channel, Phase, Traffic};
use zeroize::Zeroizing;

use crate::EngineError;
use crate::bundle::{Bundle, ModelId};
use crate::hint::{Block, blocks};
use crate::message::{Accept, Hello, MAX_MESSAGE, Offer, Request, Reveal, ServerCost};
use crate::program::{Clock, Linear, Onlookers, Prepare, PreparedResult, Program, Watch};
use crate::report::{NoProgress, Progress, peak_kib};

/// A model that is ready to serve any number of clients.
pub struct Service {
    bundle: Bundle,
    plan: Plan,
    /// By node.
    layers: Vec<Option<ServerLayer>>,
    ring: Ring,
    public: PublicSeed,
    p1: WideNtt,
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
    /// Plans the bundle's network as `choices` say and packs its weights.
    ///
    /// # Errors
    /// When the choices are not sound, or the network does not fit them.
    pub fn new(bundle: Bundle, choices: Choices, reveal: Reveal) -> Result<Self, EngineError> {
        let network = &bundle.model.network;
        if choices.protocol != Protocol::Jaguar {
            return Err(EngineError::Input(format!("the protocol {} has no session", choices.protocol)));
        }
        let plan = Plan::new(network, choices)?;
        let params = plan.params;
        let output_bits = plan.steps.last().map_or(0, |s| s.ring);
        if reveal == Reveal::Label && output_bits > WIDEST {
            return Err(EngineError::Input(format!(
                "the label alone cannot be revealed: the output has {output_bits} bits (it ends in an average over many \
                 values), and the comparison takes {WIDEST}"
            )));
        }
        let layers = plan
            .steps
            .iter()
            .zip(&bundle.model.weights)
            .map(|(step, weights)| {
                let (layer, weights) = (step.layer.as_ref()?.jaguar()?, weights.as_ref()?);
                Some(ServerLayer::new(layer.clone(), weights, network.weight_bits))
            })
            .collect();
        let ring = Ring::new(params);
        let public = PublicSeed(bundle.id().0);
        let p1 = ring.prepare_wide(&public.p1(&params));
        Ok(Self { bundle, plan, layers, ring, public, p1, reveal })
    }

    /// Computes the a half of every layer now, also while clients are served; else each is computed when the first client
    /// without a hint needs it.
    pub fn prepare_model(&self, progress: &mut dyn Progress) {
        let total = self.layers.len();
        for (i, layer) in self.layers.iter().enumerate() {
            progress.step(Phase::Model, i, total, &self.network().nodes[i].name);
            if let Some(layer) = layer {
                layer.prepare_model(&self.public);
            }
        }
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

        // 2. Client: base OTs.
        channel.enter(Phase::Client, "base OTs");
        let mut party = Party::new(Role::Server, Cots::setup(channel, Role::Server)?);

        // 3. Queries. The first sends what the client's copy of the hint lacks.
        let mut hint = HintStream {
            service: self,
            key: self.bundle.hint_key(&accept.nonce, &self.plan.hint_digest()),
            missing: blocks(&self.plan).into_iter().skip(accept.have_blocks as usize).peekable(),
        };
        loop {
            channel.enter(Phase::Preprocessing, "query keys");
            channel.take_stats();
            match channel.recv_message("request", MAX_MESSAGE)? {
                Request::Leave => return Ok(()),
                Request::Hint => {
                    channel.enter(Phase::Client, "hint");
                    hint.send_through(usize::MAX, channel)?;
                }
                Request::Query => self.query(channel, &mut party, &mut hint, observe, watch)?,
            }
        }
    }

    fn query(
        &self,
        channel: &mut Channel,
        party: &mut Party<Cots>,
        hint: &mut HintStream<'_>,
        observe: &mut dyn FnMut(&Served),
        watch: Watch<'_>,
    ) -> Result<(), EngineError> {
        let start = Instant::now();
        let network = self.network();
        let program = Program { network, plan: &self.plan };
        let mut clock = Clock::new(network.nodes.len());

        // 1. Before the input.
        let p0 = channel.recv_packed(self.ring.params().ring_dim(), self.ring.params().modulus_bits())?;
        let p0 = self.ring.prepare_wide(&p0);
        let mask_seed = os_random();
        channel.send(&mask_seed)?;
        let mut linear = ServerPreparing { hint, p0: &p0, mask_seed: &mask_seed };
        let (steps, result) =
            program.prepare(channel, party, self.reveal, &mut clock, &mut NoProgress, &mut linear)?;
        let preparing = start.elapsed();

        // 2. Online. The client's input is all its own: the server's share of it is zero.
        let input = vec![0; network.nodes[0].shape.iter().product()];
        let mut start = None;
        let output = program.run(
            channel,
            steps,
            input,
            &mut ServerLinear { service: self, first: &mut start },
            Onlookers { clock: &mut clock, progress: &mut NoProgress, watch },
        )?;
        channel.enter(Phase::Online, "result");
        match result {
            PreparedResult::Logits => {
                channel.send_packed(&output, self.plan.steps.last().expect("a plan has steps").ring)?;
            }
            PreparedResult::Label(argmax) => {
                argmax.run(channel, &output)?;
            }
        }
        let (preparing_by_node, online_by_node) = clock.microseconds();
        channel.send_message(&ServerCost {
            preparing: preparing_by_node,
            online: online_by_node,
            peak_kib: peak_kib(),
        })?;
        channel.flush()?;
        observe(&Served {
            preparing,
            online: start.map_or(Duration::ZERO, |s: Instant| s.elapsed()),
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
        let Service { layers, ring, public, p1, .. } = self.service;
        let mut any = false;
        while let Some(block) = self.missing.next_if(|b| b.node <= node) {
            let layer = layers[block.node].as_ref().expect("blocks are of linear layers");
            let bytes = layer.hint(ring, public, p1, &self.key, block.responses);
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

struct ServerPreparing<'a, 'b> {
    hint: &'a mut HintStream<'b>,
    p0: &'a WideNtt,
    mask_seed: &'a [u8; 32],
}

impl Prepare for ServerPreparing<'_, '_> {
    type Prepared = ServerPrepared;

    fn hint(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        _: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        self.hint.send_through(node, channel)
    }

    fn prepare(&mut self, node: NodeId, _: &Layer) -> Result<ServerPrepared, EngineError> {
        let Service { layers, ring, .. } = self.hint.service;
        let server = layers[node].as_ref().expect("the plan's layers have weights");
        Ok(server.prepare(ring, &self.hint.key, self.p0, self.mask_seed))
    }
}

struct ServerLinear<'a> {
    service: &'a Service,
    /// When the first input arrived.
    first: &'a mut Option<Instant>,
}

impl Linear for ServerLinear<'_> {
    type Prepared = ServerPrepared;

    fn run(
        &mut self,
        node: NodeId,
        _: &Layer,
        prepared: ServerPrepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<Vec<u64>, EngineError> {
        let server = self.service.layers[node].as_ref().expect("the plan's layers have weights");
        let b = server.receive(channel)?;
        self.first.get_or_insert_with(Instant::now);
        Ok(server.run(prepared, b, x))
    }
}
