//! The client: it holds an image, and gets a prediction.

use std::sync::Arc;
use std::time::Duration;

use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::{Effort, Network, Node, NodeId, Shape};
#[cfg(test)]
use jaguar_linear::backend::{BackendParty, Layers};
use jaguar_mpc::{Argmax, Party};
use jaguar_ot::{Cots, Role};
use jaguar_plan::machine::Link;
use jaguar_plan::predict::Session;
use jaguar_plan::{Allowed, Plan, Schedule, Step};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::cpu::secret::declassify;
use jaguar_ring::prg::os_random;
use jaguar_wire::{Channel, Stage, Stats};
use zeroize::Zeroizing;

use crate::error::EngineError;
use crate::exec::backends::Backends;
use crate::exec::clock::NodeTimes;
use crate::exec::prepare::{LayerHints, Offline, PreparedPlan, PreparedResult, PreparedStep, prepare};
use crate::exec::run::{Observers, run};
use crate::exec::values::{PlannedNetwork, ShareObserver, by_channel, by_image, image_of};
use crate::family::Family;
use crate::handshake::client as handshake;
use crate::handshake::{SharesParameters, is_model_name};
use crate::hint::{Hint, HintPlace};
use crate::kept::stock::{Stock, prepared_bytes};
use crate::message::{Accept, MAX_MESSAGE, MAX_PROBE, Purpose, Request, ServerCost};
use crate::progress::{NoProgress, Progress};
use crate::report::{REPORT, Report};
use crate::server_times::Log;
use crate::timeline::Timeline;

pub use crate::exec::prepare::Reveal;
pub use crate::kept::query::{Keeping, Kept, Runner, Ticket};
pub use jaguar_plan::Kit;

/// What a server may make a client spend, before the client says no.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the hint, on disk, or in memory where no folder keeps it.
    pub hint_bytes: u64,
    /// Inputs and outputs of all layers together.
    pub values: u64,
    /// Multiplications of all linear layers together, in plaintext, and additions of all pools.
    pub multiply_adds: u64,
    /// Bytes of prepared material that one query holds ([`crate::prepared_bytes`]).
    pub prepared_bytes: u64,
    /// Bytes of ciphertexts, both ways, of one query; and of keys that the client sends once.
    pub ciphertext_bytes: u64,
    /// **Insecure**: whether the server may choose backends that protect nothing. For tests.
    pub allow_insecure_backends: bool,
    /// **Leaks**: whether the server may choose comparisons of the kit that tell a party something, as they say
    /// ([`jaguar_plan::Comparison::caveat`]). For measurements.
    pub accept_leaks: bool,
    /// Whether the server may choose correlations with stationary noise ([`jaguar_plan::Allowed::stationary_noise`]).
    pub accept_stationary_noise: bool,
    /// How long the server may send no data while this client waits for some. (That its process lives is not data.) It must
    /// be longer than the server computes on its slowest layer, with all other clients beside.
    pub stalled: Duration,
}

/// A network's public description is at most this long.
const MAX_NETWORK: usize = 16 << 20;

/// Round trips that are timed to learn how long one takes.
const ROUND_TRIPS: usize = 8;

/// Places of all windows of a max-pool, over one channel, rows and columns apart: its schedule lists them. (224 x 224 in
/// windows of 3 x 3 has 2^18.)
const MAX_POOL_PLACES: u64 = 1 << 23;

impl Default for Limits {
    /// 4 GiB, 2^28 values, 2^37 multiplications, 2 GiB and 2 GiB (ResNet-50 has 0.2 GiB, 2^25, 2^32, 0.3 GiB and 47 MiB;
    /// under Cheetah's protocol no hint, 0.3 GiB and 387 MiB); a quarter of an hour.
    fn default() -> Self {
        Self {
            hint_bytes: 4 << 30,
            values: 1 << 28,
            multiply_adds: 1 << 37,
            prepared_bytes: 2 << 30,
            ciphertext_bytes: 2 << 30,
            allow_insecure_backends: false,
            accept_leaks: false,
            accept_stationary_noise: false,
            stalled: Duration::from_secs(900),
        }
    }
}

impl Limits {
    /// These, where a new program may take so many bytes of memory here: half of that for a query's material, if it is more.
    #[must_use]
    pub fn with_room(self, bytes: Option<u64>) -> Self {
        let half = bytes.map_or(0, |bytes| bytes / 2);
        Self { prepared_bytes: self.prepared_bytes.max(half), ..self }
    }

    /// Those for queries of `images` images, where these are for one.
    #[must_use]
    pub fn of_images(self, images: u32) -> Self {
        let times = |bytes: u64| bytes.saturating_mul(images.into());
        Self {
            prepared_bytes: times(self.prepared_bytes),
            ciphertext_bytes: times(self.ciphertext_bytes),
            ..self
        }
    }
}

/// A connection whose parties agree on a plan. Nothing secret has passed.
pub struct Connected {
    channel: Channel,
    network: Network,
    plan: Plan,
    model: ModelId,
    reveal: Reveal,
    cpu: Cpu,
}

/// Greets the server at the other end of `channel`, gets the network's public part, and plans it with what `kit` has.
///
/// # Errors
/// When the connection fails, the versions differ, the server offers what cannot be right or is beyond `limits`, or it does
/// not go on for longer than they allow, which holds for the whole session.
pub fn connect(kit: &Kit, channel: Channel, limits: &Limits) -> Result<Connected, EngineError> {
    connect_to(kit, channel, None, limits)
}

/// As [`connect`], for the model that the server has under the name `model` (none: the only one that this client may use).
///
/// # Errors
/// As there, or when the server has no such model for this client; it names those that it has.
pub fn connect_to(
    kit: &Kit,
    channel: Channel,
    model: Option<&str>,
    limits: &Limits,
) -> Result<Connected, EngineError> {
    connect_for(kit, channel, model, limits, 1)
}

/// As [`connect_to`], for queries of `images` images: a power of two. `limits` but that of multiplications are for a whole query.
///
/// # Errors
/// As there; also when the server takes no such batches.
pub fn connect_for(
    kit: &Kit,
    mut channel: Channel,
    model: Option<&str>,
    limits: &Limits,
    images: u32,
) -> Result<Connected, EngineError> {
    if let Some(name) = model.filter(|name| !is_model_name(name)) {
        let text = format!("'{name}' is no model's name: 1 to 64 letters, digits, '-', '_' and '.'");
        return Err(EngineError::Input(text));
    }
    channel.set_patience(Some(limits.stalled));
    let result = greet(kit, &mut channel, model, limits, images);
    match result {
        Ok((network, plan, model, reveal)) => {
            Ok(Connected { channel, network, plan, model, reveal, cpu: Cpu::detect() })
        }
        Err(e) => Err(give_up(&mut channel, e)),
    }
}

pub(crate) fn give_up(channel: &mut Channel, error: EngineError) -> EngineError {
    let error = error.during(&channel.step());
    error.tell(channel);
    error
}

fn greet(
    kit: &Kit,
    channel: &mut Channel,
    named: Option<&str>,
    limits: &Limits,
    images: u32,
) -> Result<(Network, Plan, ModelId, Reveal), EngineError> {
    let (model, SharesParameters { choices, reveal }) =
        handshake::ask_for_shares(kit, channel, named, images)?;
    let network: Network =
        channel.recv_message_as("network", MAX_NETWORK, |bytes| kit.operators().decode(bytes))?;
    network.validate().map_err(|e| EngineError::PeerMisbehaved(format!("an unsound network: {e}")))?;
    let names = network.nodes.iter().map(|n| &n.name).chain(&network.output.labels);
    let names = names.chain(network.output.parts.iter().map(|part| &part.name));
    if let Some(name) = names.chain([&network.name]).find(|n| n.chars().any(char::is_control)) {
        return Err(EngineError::PeerMisbehaved(format!("a name with control characters: {name:?}")));
    }
    let within = |what: &str, found: u64, limit: u64| {
        if found <= limit {
            return Ok(());
        }
        Err(EngineError::PeerMisbehaved(format!("a network with {found} {what} (the limit is {limit})")))
    };
    // What planning costs is bounded by these: it looks at every value, every tap and every place of a window.
    let count = |n: &Node| n.shape.iter().product::<usize>() as u64;
    within("values", network.nodes.iter().map(count).sum(), limits.values)?;
    let shapes = |n: &Node| n.inputs.iter().map(|&i| network.nodes[i].shape).collect::<Vec<Shape>>();
    let efforts: Vec<Effort> = network.nodes.iter().map(|n| n.op.effort(&shapes(n), n.shape)).collect();
    let all = efforts.iter().fold(0, |sum: u64, effort| sum.saturating_add(effort.operations));
    within("multiplications and additions", all, limits.multiply_adds)?;
    for effort in &efforts {
        within("places of a max-pool's windows", effort.places, MAX_POOL_PLACES)?;
    }
    let allowed = Allowed {
        insecure_backends: limits.allow_insecure_backends,
        leaks: limits.accept_leaks,
        stationary_noise: limits.accept_stationary_noise,
    };
    let plan = Plan::allowing(&network, choices, allowed)?;
    within("bytes of hint", plan.hint_bytes() as u64, limits.hint_bytes)?;
    let traffic = plan.layers().map(|layer| layer.traffic());
    let passed =
        traffic.map(|t| [t.offline.0, t.offline.1, t.online.0, t.online.1].map(|bytes| bytes as u64));
    // (Nonlinear layers that wait for an answer before the input exchange ciphertexts too: products of matrices.)
    let answered = |step: &&Step| step.nonlinear.as_ref().is_some_and(|layer| layer.answered() > 0);
    let exchanged = plan.steps.iter().filter(answered);
    let exchanged = exchanged.flat_map(|step| [step.cost.prepare_up, step.cost.prepare_down]);
    let passed = passed.flatten().chain(exchanged).fold(0, u64::saturating_add);
    within("bytes of ciphertexts", passed, limits.ciphertext_bytes)?;
    within("bytes of keys", plan.client_keys().sent as u64, limits.ciphertext_bytes)?;
    let prepared = |plan: &Plan| prepared_bytes(plan)[0];
    if images > 1 && prepared(&plan) > limits.prepared_bytes {
        // The client's own wish is too large for its own limit.
        let sizes =
            std::iter::successors(Some(images / 2), |size| Some(size / 2)).take_while(|&size| size > 0);
        let fits = |&size: &u32| {
            let smaller = Plan::allowing(&network, plan.choices.clone().of_images(size), allowed);
            smaller.is_ok_and(|plan| prepared(&plan) <= limits.prepared_bytes)
        };
        let largest = sizes.into_iter().find(fits).map_or("not even one image fits".into(), |size| {
            format!("the largest batch that fits has {size}")
        });
        return Err(EngineError::Input(format!(
            "a batch of {images} images holds {} bytes of prepared material here (the limit is {}): {largest}",
            prepared(&plan),
            limits.prepared_bytes
        )));
    }
    within("bytes of prepared material", prepared(&plan), limits.prepared_bytes)?;
    Ok((network, plan, model, reveal))
}

impl Connected {
    /// Computes linear layers with the instructions that `cpu` has, instead of all that the processor has.
    #[must_use]
    pub fn with_cpu(self, cpu: Cpu) -> Self {
        Self { cpu, ..self }
    }

    /// What every client learns of the network: no weight.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What both parties do, by node.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The model's public name, which tells compiled models apart.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// What the server will reveal.
    pub fn reveal(&self) -> Reveal {
        self.reveal
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// # Errors
    /// When `input` does not fit the network.
    pub(crate) fn check_input(&self, input: &[i64]) -> Result<(), EngineError> {
        check_input(&self.network, self.plan.images(), input)
    }

    /// Opens the hint (a path is a cache folder that must work) and sets up oblivious transfer. What is missing of the
    /// hint comes with the first query, layer by layer, or by [`Ready::fetch_hint`].
    ///
    /// # Errors
    /// When the connection or the disk fails, or the server refuses.
    pub fn prepare_client(self, hint: impl Into<HintPlace>) -> Result<Ready, EngineError> {
        self.prepare_client_at(hint.into(), &mut NoProgress)
    }

    /// As [`prepare_client`](Self::prepare_client); tells `progress` what a person should know.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_client_at(
        mut self,
        place: HintPlace,
        progress: &mut dyn Progress,
    ) -> Result<Ready, EngineError> {
        match self.accept(&place, progress) {
            Ok((backends, hint, party)) => {
                let (family, next_kept, stock) = (Family::new(), 0, Stock::default());
                let connected = self;
                let (timeline, schedule) = (false, Schedule::default());
                Ok(Ready {
                    connected,
                    backends,
                    hint,
                    party,
                    place,
                    timeline,
                    schedule,
                    family,
                    next_kept,
                    stock,
                })
            }
            Err(e) => Err(give_up(&mut self.channel, e)),
        }
    }

    fn accept(
        &mut self,
        place: &HintPlace,
        progress: &mut dyn Progress,
    ) -> Result<(Backends, Hint, Party<Cots>), EngineError> {
        let Self { channel, plan, model, cpu, .. } = self;
        // Where no backend has a hint, or keys that the server keeps, there is nothing to keep here.
        let nowhere = HintPlace::Memory;
        let nothing = plan.hint_bytes() == 0 && plan.client_keys().sent == 0;
        let place = if nothing { &nowhere } else { place };
        let hint = Hint::open(place, *model, plan, os_random(), progress)?;
        handshake::choose_shares(channel)?;
        let purpose = Purpose::Session { nonce: hint.nonce(), have_blocks: hint.have() as u32 };
        channel.send_message(&Accept { plan: plan.digest(), purpose })?;
        let mut backends = Backends::new(plan, |layers| std::sync::Arc::clone(layers).client(*cpu, model.0));
        backends.send_keys(hint.key_seed(), channel)?;
        backends.setup(channel)?;
        channel.enter(Stage::Client, "base OTs");
        let cots = Cots::setup(channel, Role::Client, plan.choices.instances)?;
        Ok((backends, hint, Party::on(self.cpu, Role::Client, cots)))
    }
}

/// A client with everything that serves more than one query.
pub struct Ready {
    pub(crate) connected: Connected,
    backends: Backends,
    hint: Hint,
    party: Party<Cots>,
    /// Where the hint was to be kept.
    place: HintPlace,
    pub(crate) timeline: bool,
    schedule: Schedule,
    pub(crate) family: Family,
    /// The number of the next query that both parties keep.
    pub(crate) next_kept: u64,
    /// What the server said last that it keeps.
    pub(crate) stock: Stock,
}

/// A prepared query: everything that needs no input is done. It serves one input, and the session waits for that.
pub struct Prepared {
    ready: Ready,
    query: Query,
}

/// What the client prepared for one input, and what that cost.
pub(crate) struct Query {
    steps: Vec<PreparedStep>,
    result: PreparedResult,
    times: NodeTimes,
    /// If a timeline was asked for: when the server had told of its mark.
    answered: Option<Duration>,
    session: Session,
    /// What passed offline, and before on this connection.
    stats: Stats,
    /// Of the offline stage, if a timeline was asked for.
    log: Log,
}

impl Query {
    /// Adds what passed for it besides.
    pub fn absorb(&mut self, stats: Stats) {
        for (key, traffic) in stats {
            self.stats.entry(key).or_default().add(&traffic);
        }
    }
}

/// What the client learns of the output, as the server reveals it.
#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    /// The integer logits; divided by the network's output scale they are the model's.
    Logits(Vec<i64>),
    /// The position of the largest.
    Label(usize),
}

impl Ready {
    /// What every client learns of the network: no weight.
    pub fn network(&self) -> &Network {
        &self.connected.network
    }

    /// What both parties do, by node.
    pub fn plan(&self) -> &Plan {
        &self.connected.plan
    }

    /// From here on every query's report tells when both parties did what. It begins with a round trip that finds out where the
    /// server's clock stands.
    #[must_use]
    pub fn with_timeline(mut self) -> Self {
        self.timeline = true;
        self
    }

    /// When this client takes the answers to what it sends before the input.
    #[must_use]
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// How many bytes of the hint are there, and how many there will be: none where no backend has a hint.
    pub fn hint(&self) -> (u64, u64) {
        let hint = &self.hint;
        (hint.bytes(0..hint.have()), hint.bytes(0..hint.blocks().len()))
    }

    /// Where another session of this client finds the hint, once it is complete.
    pub fn hint_place(&self) -> HintPlace {
        self.hint.place(&self.place)
    }

    /// Fetches all that is missing of the hint now, without a query.
    ///
    /// # Errors
    /// When the connection or the disk fails, or a block arrives damaged. The session is over then; what came is kept.
    pub fn fetch_hint(mut self, progress: &mut dyn Progress) -> Result<Self, EngineError> {
        if self.hint.blocks().is_empty() {
            return Ok(self);
        }
        let Self { connected: Connected { channel, .. }, hint, .. } = &mut self;
        let mut fetch = || -> Result<(), EngineError> {
            channel.enter(Stage::Client, "hint");
            channel.send_message(&Request::Hint)?;
            hint.receive(hint.blocks().len(), channel, progress)?;
            Ok(())
        };
        match fetch() {
            Ok(()) => Ok(self),
            Err(e) => Err(give_up(&mut self.connected.channel, e)),
        }
    }

    /// Measures the link to the server: round trips of a byte, then megabytes in either direction.
    ///
    /// # Errors
    /// When the connection fails. The session is over then.
    pub fn measure_link(mut self) -> Result<(Link, Self), EngineError> {
        let channel = &mut self.connected.channel;
        let mut probe = |up: u32, down: u32| -> Result<f64, EngineError> {
            channel.enter(Stage::Model, "probe");
            let bytes = vec![0; up as usize];
            let clock = std::sync::Arc::clone(channel.clock());
            let start = clock.now();
            channel.send_message(&Request::Probe { up, down })?;
            channel.send(&bytes)?;
            channel.recv(down as usize)?;
            Ok(clock.now().saturating_sub(start).as_secs_f64())
        };
        let mut measure = || -> Result<Link, EngineError> {
            let mut round_trip = f64::INFINITY;
            for _ in 0..ROUND_TRIPS {
                round_trip = round_trip.min(probe(1, 1)?);
            }
            // A small one first: on a slow link it says enough.
            let mut bytes_per_second = f64::INFINITY;
            for bytes in [MAX_PROBE / 16, MAX_PROBE] {
                let seconds = probe(bytes, 1)?.max(probe(1, bytes)?);
                bytes_per_second = f64::from(bytes) / (seconds - round_trip).max(1e-9);
                if seconds > 0.5 {
                    break;
                }
            }
            Ok(Link { bytes_per_second, round_trip })
        };
        match measure() {
            Ok(link) => Ok((link, self)),
            Err(e) => Err(give_up(&mut self.connected.channel, e)),
        }
    }

    /// Does all of the next query's work that needs no input, and fetches what is missing of the hint on the way. Secrets,
    /// masks and correlations are fresh. (Some backends' keys are the session's; then the ciphertexts' a halves and noise are
    /// fresh.)
    ///
    /// # Errors
    /// When the connection fails. The session is over then.
    pub fn prepare_query(mut self, progress: &mut dyn Progress) -> Result<Prepared, EngineError> {
        let ask = |ready: &mut Self, progress| -> Result<Query, EngineError> {
            let times = ready.begin();
            let Self { connected: Connected { channel, .. }, timeline, .. } = ready;
            channel.enter(Stage::Offline, "query keys");
            channel.send_message(&Request::Query { timeline: *timeline })?;
            ready.prepare_asked(times, progress)
        };
        match ask(&mut self, progress) {
            Ok(query) => Ok(Prepared { ready: self, query }),
            Err(e) => Err(give_up(&mut self.connected.channel, e)),
        }
    }

    /// The times of a query that begins now, before the server is asked for it.
    pub(crate) fn begin(&self) -> NodeTimes {
        NodeTimes::new(self.connected.channel.clock(), self.network().nodes.len())
    }

    /// Prepares the query that began with `times` and that the server was asked for since.
    pub(crate) fn prepare_asked(
        &mut self,
        mut times: NodeTimes,
        progress: &mut dyn Progress,
    ) -> Result<Query, EngineError> {
        let (sent, received) = self.party.used();
        let label = self.connected.reveal == Reveal::Label;
        let session = Session { used: (received, sent), label };
        let Self { connected, backends, hint, party, timeline, schedule, .. } = self;
        let Connected { channel, network, plan, reveal, .. } = connected;
        channel.enter(Stage::Offline, "query keys");
        let mut answered = None;
        if *timeline {
            Log::begin(channel);
            channel.recv_into(&mut [0])?;
            answered = Some(times.elapsed());
        }
        backends.begin_query(channel)?;
        let schedule = *schedule;
        let offline = Offline {
            channel: &mut *channel,
            party,
            backends,
            hints: hint,
            times: &mut times,
            progress,
            schedule,
        };
        let PreparedPlan { steps, result } = prepare(PlannedNetwork { network, plan }, *reveal, offline)?;
        let mut log = Log::default();
        log.end(channel);
        Ok(Query { steps, result, times, answered, session, stats: channel.take_stats(), log })
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.connected.channel
    }

    /// The same client with other parties for its linear layers: one that deviates from the protocol.
    #[cfg(test)]
    pub(crate) fn deviate(
        mut self,
        wrap: impl FnMut(Box<dyn BackendParty>, &std::sync::Arc<dyn Layers>) -> Box<dyn BackendParty>,
    ) -> Self {
        self.backends.deviate(&self.connected.plan, wrap);
        self
    }

    /// Says good-bye.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn leave(mut self) -> Result<(), EngineError> {
        self.connected.channel.send_message(&Request::Leave)?;
        Ok(self.connected.channel.flush()?)
    }
}

impl LayerHints for Hint {
    fn transfer(
        &mut self,
        node: NodeId,
        channel: &mut Channel,
        progress: &mut dyn Progress,
    ) -> Result<bool, EngineError> {
        let blocks = self.of_node(node);
        self.receive(blocks.end, channel, progress)
    }

    fn read(&mut self, node: NodeId) -> Result<Arc<Vec<u8>>, EngineError> {
        self.layer(node)
    }
}

impl Prepared {
    /// What every client learns of the network: no weight.
    pub fn network(&self) -> &Network {
        self.ready.network()
    }

    /// Where another session of this client finds the hint, which is complete now.
    pub fn hint_place(&self) -> HintPlace {
        self.ready.hint_place()
    }

    /// Runs the query on `input`, integers `[C, H, W]` in the activation range.
    ///
    /// # Errors
    /// When the input does not fit the network, or the session is for batches (nothing was sent then, but the query is spent), or the
    /// connection fails.
    pub fn run(
        self,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Prediction, Report, Ready), EngineError> {
        let (predictions, report, ready) = self.run_batch(input, progress)?;
        Ok((only(predictions)?, report, ready))
    }

    /// As [`run`](Self::run), on as many images as the session's queries have, `[image, C, H, W]`; a prediction for each.
    ///
    /// # Errors
    /// As there.
    pub fn run_batch(
        self,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report, Ready), EngineError> {
        self.run_observed(input, progress, &mut |_, _| ())
    }

    /// As [`run_batch`](Self::run_batch); `shares` hears this party's share of every node's value, all images of it: to
    /// look at what a client that follows the protocol has.
    ///
    /// # Errors
    /// As there.
    pub fn run_observed(
        self,
        input: &[i64],
        progress: &mut dyn Progress,
        shares: &mut dyn FnMut(usize, &[u64]),
    ) -> Result<(Vec<Prediction>, Report, Ready), EngineError> {
        let Self { mut ready, query } = self;
        let connected = &mut ready.connected;
        let result = connected
            .check_input(input)
            .and_then(|()| run_query(connected, query, None, (input, progress, shares)));
        match result {
            Ok((predictions, report)) => Ok((predictions, report, ready)),
            Err(e) => Err(give_up(ready.channel(), e)),
        }
    }
}

/// Inputs of single images, all of one size, as a query of `images` images takes them: `[image, C, H, W]`. Zeros fill it up.
pub fn together<'a>(inputs: impl ExactSizeIterator<Item = &'a [i64]>, images: usize) -> Vec<i64> {
    let given = inputs.len();
    let mut all = inputs.collect::<Vec<_>>().concat();
    all.resize(all.len() / given.max(1) * images, 0);
    all
}

/// The prediction of a query of one image.
pub(crate) fn only(predictions: Vec<Prediction>) -> Result<Prediction, EngineError> {
    let images = predictions.len();
    <[Prediction; 1]>::try_from(predictions).map(|[only]| only).map_err(|_| {
        EngineError::Input(format!("a query of {images} images has {images} predictions, not one"))
    })
}

/// # Errors
/// When `input` does not fit `network` and queries of so many images.
pub(crate) fn check_input(network: &Network, images: usize, input: &[i64]) -> Result<(), EngineError> {
    let each: usize = network.nodes[0].shape.iter().product();
    let bound = 1i64 << (network.activation_bits - 1);
    if input.len() != images * each {
        let batch = if images == 1 { String::new() } else { format!("; a query has {images} images") };
        return Err(EngineError::Input(format!(
            "the input has {} values; the network takes {each} ({:?}){batch}",
            input.len(),
            network.nodes[0].shape
        )));
    }
    if let Some(v) = input.iter().find(|v| !(-bound..bound).contains(*v)) {
        return Err(EngineError::Input(format!("input value {v} is outside {}..{bound}", -bound)));
    }
    Ok(())
}

/// The online stage of a query, on an input that fits: of the one that the server runs now, which is kept query number `kept` or
/// was prepared last.
pub(crate) fn run_query(
    connected: &mut Connected,
    mut query: Query,
    kept: Option<u64>,
    (input, progress, shares): (&[i64], &mut dyn Progress, ShareObserver<'_>),
) -> Result<(Vec<Prediction>, Report), EngineError> {
    let Connected { channel, network, plan, .. } = connected;
    let start = query.times.elapsed();
    if query.answered.is_some() {
        Log::begin(channel);
    }
    let modulus = plan.steps[0].computed.modulus;
    let images = plan.images();
    let input = Zeroizing::new(input.iter().map(|&v| modulus.from_signed(v)).collect::<Vec<u64>>());
    let input = Zeroizing::new(by_channel(&input, network.nodes[0].shape, images));
    let observers = Observers { times: &mut query.times, progress, shares };
    let output = run(PlannedNetwork { network, plan }, Role::Client, channel, query.steps, input, observers)?;
    channel.enter(Stage::Online, "result");
    let modulus = plan.steps.last().expect("a plan has steps").domain.modulus;
    let shape = network.nodes.last().expect("a valid network has nodes").shape;
    let predictions = match query.result {
        PreparedResult::Logits => {
            let theirs = Zeroizing::new(channel.recv_packed(output.len(), modulus.bits())?);
            let open = |(a, b): (&u64, &u64)| modulus.open(*a, modulus.reduce(*b));
            let mut opened = Zeroizing::new(output.iter().zip(theirs.iter()).map(open).collect::<Vec<i64>>());
            // The answer, which is the client's to look at.
            declassify(&mut opened[..]);
            (0..images).map(|image| Prediction::Logits(image_of(&opened, shape, (image, images)))).collect()
        }
        PreparedResult::Label(argmaxes) => {
            let logits = Zeroizing::new(by_image(&output, shape, images));
            Argmax::run_all(argmaxes, channel, &logits)?.into_iter().map(Prediction::Label).collect()
        }
    };
    let online = query.times.elapsed().saturating_sub(start);
    channel.enter(Stage::Online, REPORT);
    let server: ServerCost = channel.recv_message("cost report", MAX_MESSAGE)?;
    let nodes = network.nodes.len();
    if [&server.hint, &server.offline, &server.online].iter().any(|v| v.len() != nodes) {
        return Err(EngineError::PeerMisbehaved("a cost report for another network".into()));
    }
    if server.kept != kept {
        let text = format!("the server has run query {:?}, this side query {kept:?}", server.kept);
        return Err(EngineError::PeerMisbehaved(text));
    }
    let mut stats = query.stats;
    for (key, traffic) in channel.take_stats() {
        stats.entry(key).or_default().add(&traffic);
    }
    query.log.end(channel);
    let mut report = Report::new(network, plan, &stats, &query.times, &server, online, query.session);
    if let (Some(answered), Some(times)) = (query.answered, &server.timeline) {
        times.check(nodes)?;
        report.timeline = Some(Timeline::new(&query.times, &query.log, answered, times));
    }
    Ok((predictions, report))
}
