//! The server: it holds a model, and answers queries.

use std::iter::{Peekable, Skip};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use jaguar_graph::network::{Network, NodeId};
use jaguar_linear::jaguar::{ServerLayer, ServerOutput, ServerPrepared, Upload};
use jaguar_mpc::{Party, WIDEST};
use jaguar_ot::{Cots, Role};
use jaguar_plan::{Choices, Layer, PROTOCOL_VERSION, Plan, Protocol, Step};
use jaguar_ring::prg::{Prg, os_random};
use jaguar_ring::product::WideNtt;
use jaguar_rlwe::{PublicSeed, Ring, ZeroKey};
use jaguar_wire::{Channel, Phase, Traffic};
use zeroize::Zeroizing;

use crate::EngineError;
use crate::bundle::{Bundle, ModelId};
use crate::cheetah;
use crate::hint::{Block, blocks};
use crate::message::{Accept, Hello, MAX_MESSAGE, MAX_PROBE, Offer, Request, Reveal, ServerCost};
use crate::program::{Clock, Linear, Onlookers, Output, Prepare, PreparedResult, Program, Watch, work};
use crate::report::{NoProgress, Progress, peak_kib};
use crate::timeline::ServerTimes;

/// A model that is ready to serve any number of clients.
pub struct Service {
    bundle: Bundle,
    plan: Plan,
    weights: Weights,
    reveal: Reveal,
}

/// The weights, as the protocol wants them.
enum Weights {
    Jaguar(Box<Jaguar>),
    /// By node.
    Cheetah(Vec<Option<jaguar_linear::cheetah::ServerLayer>>),
}

struct Jaguar {
    /// By node.
    layers: Vec<Option<ServerLayer>>,
    ring: Ring,
    public: PublicSeed,
    p1: WideNtt,
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
    /// Plans the bundle's network as `choices` say and packs its weights. (Under Cheetah's protocol they are transformed,
    /// which takes memory: up to 4 GiB; the weights of what layers do not fit are transformed in every query.)
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
        let weights = match plan.choices.protocol {
            Protocol::Jaguar => {
                let layers = plan.steps.iter().zip(&bundle.model.weights);
                let pack = |(step, weights): (&Step, &Option<_>)| {
                    let (layer, weights) = (step.layer.as_ref()?.jaguar()?, weights.as_ref()?);
                    Some(ServerLayer::new(layer.clone(), weights, network.weight_bits))
                };
                let layers = layers.map(pack).collect();
                let ring = Ring::new(plan.params);
                let public = PublicSeed(bundle.id().0);
                let p1 = ring.prepare_wide(&public.p1(&plan.params));
                Weights::Jaguar(Box::new(Jaguar { layers, ring, public, p1 }))
            }
            Protocol::Cheetah => {
                Weights::Cheetah(cheetah::transform(&plan, &bundle.model, cheetah::WEIGHT_MEMORY))
            }
        };
        Ok(Self { bundle, plan, weights, reveal })
    }

    /// Computes the a half of every layer now, also while clients are served; else each is computed when the first client
    /// without a hint needs it. (Under Cheetah's protocol there is nothing to do.)
    pub fn prepare_model(&self, progress: &mut dyn Progress) {
        let Weights::Jaguar(jaguar) = &self.weights else { return };
        let total = jaguar.layers.len();
        for (i, layer) in jaguar.layers.iter().enumerate() {
            progress.step(Phase::Model, i, total, &self.network().nodes[i].name);
            if let Some(layer) = layer {
                layer.prepare_model(&jaguar.public);
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

        // 2. Client: Cheetah's key; base OTs. The first query sends what the client's copy of Jaguar's hint lacks.
        let mut backend = match &self.weights {
            Weights::Jaguar(jaguar) => Backend::Jaguar(HintStream {
                jaguar,
                key: self.bundle.hint_key(&accept.nonce, &self.plan.hint_digest()),
                missing: blocks(&self.plan).into_iter().skip(accept.have_blocks as usize).peekable(),
            }),
            Weights::Cheetah(layers) => {
                Backend::Cheetah(Box::new(cheetah::Server::new(layers, &self.plan, channel)?))
            }
        };
        channel.enter(Phase::Client, "base OTs");
        let mut party = Party::new(Role::Server, Cots::setup(channel, Role::Server)?);

        // 3. Queries.
        loop {
            channel.enter(Phase::Preprocessing, "query keys");
            channel.take_stats();
            match channel.recv_message("request", MAX_MESSAGE)? {
                Request::Leave => return Ok(()),
                Request::Hint => {
                    channel.enter(Phase::Client, "hint");
                    let Backend::Jaguar(hint) = &mut backend else {
                        return Err(EngineError::PeerMisbehaved("Cheetah's protocol has no hint".into()));
                    };
                    hint.send_through(usize::MAX, channel)?;
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
                    self.query(channel, &mut party, &mut backend, timeline, observe, watch)?;
                }
            }
        }
    }

    fn query(
        &self,
        channel: &mut Channel,
        party: &mut Party<Cots>,
        backend: &mut Backend<'_>,
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

        // 1. Before the input. 2. Online.
        let (preparing, start, output, result) = match backend {
            Backend::Jaguar(hint) => {
                let (layers, ring) = (&hint.jaguar.layers, &hint.jaguar.ring);
                let p0 = channel.recv_packed(ring.params().ring_dim(), ring.params().modulus_bits())?;
                let p0 = ZeroKey::new(ring, &p0, &mut Prg::from_os());
                let mask_seed = os_random();
                channel.send(&mask_seed)?;
                let mut linear = ServerPreparing { hint, p0: &p0, mask_seed: &mask_seed };
                let (steps, result) =
                    program.prepare(channel, party, self.reveal, &mut clock, &mut NoProgress, &mut linear)?;
                let preparing = clock.elapsed();
                let mut linear = ServerLinear { layers, first: None };
                let onlookers = Onlookers { clock: &mut clock, progress: &mut NoProgress, watch };
                let output = program.run(channel, steps, input, &mut linear, onlookers)?;
                (preparing, linear.first, output, result)
            }
            Backend::Cheetah(linear) => {
                let linear = &mut **linear;
                linear.first = None;
                let (steps, result) =
                    program.prepare(channel, party, self.reveal, &mut clock, &mut NoProgress, linear)?;
                let preparing = clock.elapsed();
                let onlookers = Onlookers { clock: &mut clock, progress: &mut NoProgress, watch };
                let output = program.run(channel, steps, input, linear, onlookers)?;
                (preparing, linear.first, output, result)
            }
        };
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
            online: start.map_or(Duration::ZERO, |s| s.elapsed()),
            traffic: channel.total(),
        });
        Ok(())
    }
}

/// What serves one session's linear layers.
enum Backend<'a> {
    Jaguar(HintStream<'a>),
    Cheetah(Box<cheetah::Server<'a>>),
}

/// What one client's copy of the hint lacks, to be sent in order, each block once.
struct HintStream<'a> {
    jaguar: &'a Jaguar,
    key: Zeroizing<[u8; 32]>,
    missing: Peekable<Skip<IntoIter<Block>>>,
}

impl HintStream<'_> {
    /// Computes and sends what is missing of the nodes up to `node`, without waiting for anything. Says whether there was any.
    fn send_through(&mut self, node: NodeId, channel: &mut Channel) -> Result<bool, EngineError> {
        let Jaguar { layers, ring, public, p1 } = self.jaguar;
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
    p0: &'a ZeroKey,
    mask_seed: &'a [u8; 32],
}

impl Prepare for ServerPreparing<'_, '_> {
    type Prepared = (ServerPrepared, Upload);

    fn hint(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        _: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        self.hint.send_through(node, channel)
    }

    fn prepare(&mut self, node: NodeId, _: &Layer) -> Result<Self::Prepared, EngineError> {
        let Jaguar { layers, ring, .. } = self.hint.jaguar;
        let server = layers[node].as_ref().expect("the plan's layers have weights");
        Ok((server.prepare(ring, &self.hint.key, self.p0, self.mask_seed), Upload::default()))
    }
}

struct ServerLinear<'a> {
    /// By node.
    layers: &'a [Option<ServerLayer>],
    /// When the first input arrived.
    first: Option<Instant>,
}

impl Output for ServerOutput<'_> {
    fn made(&self) -> &[u64] {
        self.made()
    }

    fn make(&mut self, values: usize) {
        self.make(values);
    }

    fn finish(self) -> Vec<u64> {
        self.finish()
    }
}

impl<'a> Linear for ServerLinear<'a> {
    type Prepared = (ServerPrepared, Upload);
    type Output = ServerOutput<'a>;

    fn pass(
        &mut self,
        node: NodeId,
        _: &Layer,
        (_, upload): &mut Self::Prepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<(), EngineError> {
        let server = self.layers[node].as_ref().expect("the plan's layers have weights");
        // It follows the client's last message of a block, which was waited for already.
        Ok(channel.alongside(|channel| server.receive_ready(upload, channel, x.len()))?)
    }

    fn run(
        &mut self,
        node: NodeId,
        _: &Layer,
        (prepared, mut upload): Self::Prepared,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<ServerOutput<'a>, EngineError> {
        let server = self.layers[node].as_ref().expect("the plan's layers have weights");
        server.receive_ready(&mut upload, channel, x.len())?;
        self.first.get_or_insert_with(Instant::now);
        Ok(server.begin(prepared, upload, x))
    }
}
