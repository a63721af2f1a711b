//! The server: it holds a model, and answers queries.

use std::iter::{Peekable, Skip};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::vec::IntoIter;

use jaguar_graph::bundle::{Bundle, ModelId};
use jaguar_graph::network::{Network, NodeId};
use jaguar_linear::backend::{Layers, Model};
use jaguar_linear::product::Hardware;
use jaguar_mpc::semantics::opened_noise;
use jaguar_mpc::share::Domain;
use jaguar_mpc::{Argmax, Party, WIDEST};
use jaguar_ot::threads::AtWork;
use jaguar_ot::{Cots, Role};
use jaguar_plan::memory::{Load, PartyMemory, memory};
use jaguar_plan::{Allowed, Choices, Plan, Schedule};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, Stage, Traffic};
use zeroize::Zeroizing;

use crate::budget::Booking;
use crate::error::EngineError;
use crate::exec::backends::Backends;
use crate::exec::clock::{NodeTimes, Spent};
use crate::exec::prepare::{LayerHints, Offline, PreparedPlan, PreparedResult, Reveal, prepare};
use crate::exec::run::{Observers, run};
use crate::exec::values::{PlannedNetwork, ShareObserver, by_image};
use crate::handshake::{self, SharesParameters};
use crate::hint::{Block, blocks};
use crate::kept::keys::KeyPart;
use crate::kept::shelf::{Own, Shelf, Shelves};
use crate::kept::stock::{NoRoom, Stock, prepared_bytes};
use crate::memory::peak_kib;
use crate::message::{Accept, Kept, MAX_MESSAGE, MAX_PROBE, Purpose, Request, Secret, ServerCost};
use crate::progress::{NoProgress, Progress};
use crate::server_times::{Log, ServerTimes};
use crate::stop::Stop;

pub use crate::budget::{HintBudget, Limits};
pub use crate::error::QueriesSpent;
pub use crate::guest::{Common, Guest};
pub use crate::handshake::server::Asked;
pub use crate::kept::shelf::KeepLimits;

/// A model that is ready to serve any number of clients.
pub struct Service {
    bundle: Bundle,
    /// For queries of 1, 2, 4, ... images.
    planned: Vec<PlannedModel>,
    hardware: Hardware,
    reveal: Reveal,
    common: Common,
    shelves: Shelves<Query>,
    keys: KeyPart,
}

/// A model as a plan has it: for queries of so many images.
struct PlannedModel {
    plan: Plan,
    /// By backend, in the plan's order; made when first needed.
    models: OnceLock<Vec<Arc<dyn Model>>>,
}

/// What a server does for a client.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// A query was answered, which took so much.
    Answered(Served),
    /// A query was prepared, and is kept until the client asks for it.
    Kept {
        /// The query's number in its session.
        query: u64,
        /// The offline stage, waiting included.
        offline: Duration,
        /// Bytes and rounds of it.
        traffic: Traffic,
        /// What is kept for this client.
        client: Stock,
        /// What is kept and being prepared for all.
        all: Stock,
    },
    /// A query was not prepared ahead. The client may still ask for one that it runs at once.
    NoRoom(NoRoom),
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
    /// How many images it had.
    pub images: usize,
    /// The query's number, if it was kept.
    pub kept: Option<u64>,
    /// What is still kept for this client.
    pub client: Stock,
    /// What is kept and being prepared for all.
    pub all: Stock,
}

/// A prepared query. It is run once.
struct Query {
    plan: PreparedPlan,
    times: NodeTimes,
    offline: Duration,
    /// Bytes and rounds of the offline stage.
    traffic: Traffic,
    timeline: Option<Mark>,
    /// The plan that it was prepared for.
    digest: [u8; 32],
}

/// What the server notes for a timeline.
struct Mark {
    /// When the client's question was answered.
    answered: Duration,
    /// Of the offline stage.
    log: Log,
}

/// Who hears of what a session does.
struct Ears<'a> {
    observe: &'a mut dyn FnMut(Notice),
    shares: ShareObserver<'a>,
    guest: &'a Guest<'a>,
}

impl Ears<'_> {
    /// Counts a query that is about to be prepared, one for each image, if the client may have it. From here on the client sees its
    /// masks, so it counts whether or not it is run.
    fn count_query(&self, plan: &Plan) -> Result<(), QueriesSpent> {
        let images = plan.images() as u64;
        self.guest.query.map_or(Ok(()), |query| query(images))
    }
}

/// The server's first words to a client that connects: what it asks for. [`Service::serve_guest`] is next, of the service that it is
/// to have.
///
/// # Errors
/// When the connection fails, the versions differ, or what the client asks for cannot be right. The client is told.
pub fn greet(channel: &mut Channel) -> Result<Asked, EngineError> {
    handshake::server::greet(channel).map_err(|e| give_up(channel, e))
}

/// Tells the client why the session ends, and says at which step that was.
fn give_up(channel: &mut Channel, error: EngineError) -> EngineError {
    let error = error.during(&channel.step());
    error.tell(channel);
    error
}

/// What a session makes queries of.
struct Maker<'a> {
    planned: &'a PlannedModel,
    backends: Backends,
    hints: HintStream<'a>,
    party: Party<Cots>,
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

    /// As [`new`](Self::new), with linear layers that are computed with `hardware`: a `Cpu` for its instructions, or a device too.
    ///
    /// # Errors
    /// As `new`.
    pub fn on(
        hardware: impl Into<Hardware>,
        bundle: Bundle,
        choices: Choices,
        reveal: Reveal,
    ) -> Result<Self, EngineError> {
        Self::allowing(hardware, bundle, choices, reveal, Allowed::default())
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
        let allowed = Allowed { insecure_backends: true, ..Allowed::default() };
        Self::allowing(Cpu::detect(), bundle, choices, reveal, allowed)
    }

    /// [`on`](Self::on) that takes the weaknesses that are `allowed`. A client that does not accept the plan's in its limits
    /// refuses it.
    ///
    /// # Errors
    /// As `new`.
    pub fn allowing(
        hardware: impl Into<Hardware>,
        bundle: Bundle,
        choices: Choices,
        reveal: Reveal,
        allowed: Allowed,
    ) -> Result<Self, EngineError> {
        let plan = Plan::allowing(&bundle.model.network, choices, allowed)?;
        Self::with_plan(hardware.into(), bundle, plan, reveal)
    }

    /// With a plan of the bundle's network that was made before: for who looks at it first.
    ///
    /// # Errors
    /// When the label alone is to be revealed, and the plan's result is too wide for it or its parts have scales of their own.
    pub fn with_plan(
        hardware: Hardware,
        bundle: Bundle,
        plan: Plan,
        reveal: Reveal,
    ) -> Result<Self, EngineError> {
        let output_bits = plan.steps.last().map_or(0, |s| s.domain.modulus.bits());
        if reveal == Reveal::Label && output_bits > WIDEST {
            return Err(EngineError::Input(format!(
                "the label alone cannot be revealed: the output has {output_bits} bits (it ends in an average over many \
                 values), and the comparison takes {WIDEST}"
            )));
        }
        if reveal == Reveal::Label && !bundle.model.network.output.is_even() {
            return Err(EngineError::Input(
                "the label alone cannot be revealed: the model has several outputs, each with a scale of its own, and their values \
                 cannot be compared (compile one by --output-name)"
                    .into(),
            ));
        }
        if plan.images() != 1 {
            return Err(EngineError::Input("a service begins with the plan for single images".into()));
        }
        let common = Common::default();
        let (shelves, keys) = (Shelves::new(common.keep, Arc::clone(&common.kept)), common.keys.part());
        let planned = vec![PlannedModel { plan, models: OnceLock::new() }];
        let service = Self { bundle, planned, hardware, reveal, common, shelves, keys };
        service.models(service.single());
        Ok(service)
    }

    /// Answers queries of up to `most` images too, a power of two, planned as those of one image are.
    ///
    /// # Errors
    /// When there is no such plan.
    pub fn with_batches(self, most: u32) -> Result<Self, EngineError> {
        let sizes = (1..32).map(|log| 1 << log).take_while(|&images| images <= most);
        let plan = |images| {
            let choices = self.plan().choices.clone().of_images(images);
            Plan::accepting_leaks(self.network(), choices)
        };
        let plans = sizes.map(plan).collect::<Result<_, _>>()?;
        self.with_batch_plans(plans)
    }

    /// Answers queries of several images too: of 2, 4, ... images, a plan of the bundle's network for each. What is made of the
    /// weights for a plan is made when a client first asks for such queries, and kept.
    ///
    /// # Errors
    /// When a plan is for another number of images.
    pub fn with_batch_plans(mut self, plans: Vec<Plan>) -> Result<Self, EngineError> {
        self.planned.truncate(1);
        for plan in plans {
            let (images, next) = (plan.images(), 1 << self.planned.len());
            if images != next {
                return Err(EngineError::Input(format!("a plan for {images} images in place of {next}")));
            }
            self.planned.push(PlannedModel { plan, models: OnceLock::new() });
        }
        Ok(self)
    }

    /// How many images a query may have.
    pub fn most_images(&self) -> u32 {
        1 << (self.planned.len() - 1)
    }

    /// The plans of all queries that it answers: of 1, 2, 4, ... images.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.planned.iter().map(|planned| &planned.plan)
    }

    fn single(&self) -> &PlannedModel {
        &self.planned[0]
    }

    /// What queries of `images` images are answered by.
    fn planned_for(&self, images: u32) -> Result<&PlannedModel, EngineError> {
        let size = images.is_power_of_two().then_some(images.trailing_zeros() as usize);
        size.and_then(|size| self.planned.get(size)).ok_or_else(|| {
            EngineError::Refused(match self.most_images() {
                1 => "the server answers one image a query (`jaguar serve --max-batch` allows more)".into(),
                most => format!("a batch of {images} images: the server takes powers of two up to {most}"),
            })
        })
    }

    /// The backends' models for a plan.
    fn models<'a>(&self, planned: &'a PlannedModel) -> &'a [Arc<dyn Model>] {
        planned.models.get_or_init(|| {
            let (public, weights) = (self.bundle.id().0, &self.bundle.model.weights);
            let weight_bits = self.network().weight_bits;
            let model = |layers: &Arc<dyn Layers>| {
                Arc::clone(layers).model(&self.hardware, public, weights, weight_bits)
            };
            planned.plan.backends.iter().map(model).collect()
        })
    }

    /// Bounds what clients may make this server keep, in other than the default way.
    #[must_use]
    pub fn with_keep_limits(self, limits: KeepLimits) -> Self {
        let hints = Arc::clone(&self.common.hints);
        self.sharing(&Common { hints, ..Common::new(Limits::default(), limits) })
    }

    /// Bounds what clients may make this server spend and keep together with all other services that share `common`.
    #[must_use]
    pub fn sharing(mut self, common: &Common) -> Self {
        self.shelves = Shelves::new(common.keep, Arc::clone(&common.kept));
        self.keys = common.keys.part();
        self.common = common.clone();
        self
    }

    /// What it shares with other services, or could.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Prepared queries that are kept and under way for all clients.
    pub fn kept(&self) -> Stock {
        self.shelves.all()
    }

    /// How many clients' keys are kept, and their bytes.
    pub fn client_keys(&self) -> (usize, u64) {
        self.keys.stock()
    }

    /// Bounds what clients may make this server spend, in other than the default way.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.common.hints = Arc::new(HintBudget::new(limits));
        self
    }

    /// Memory that one client's session takes while its largest query runs, at its fullest, in bytes (an estimate): its keys, correlations,
    /// and the query. What it has kept beside that query is not in it.
    pub fn session_bytes(&self) -> u64 {
        let load = Load::single(rayon::current_num_threads());
        let of = |plan: &Plan| {
            let PartyMemory { keys, correlations, prepared, running, .. } =
                memory(self.network(), plan, load).server;
            [keys, correlations, prepared, running].into_iter().fold(0, u64::saturating_add)
        };
        self.plans().map(of).max().unwrap_or(0)
    }

    /// Does now what is done once per model, also while clients are served; else it is done when the first client needs it.
    pub fn prepare_model(&self, progress: &mut dyn Progress) {
        self.prepare_model_unless(&Stop::default(), progress);
    }

    /// As [`prepare_model`](Self::prepare_model), until that is asked to stop: then the rest is left for who needs it. Tells whether
    /// all is prepared.
    pub fn prepare_model_unless(&self, stop: &Stop, progress: &mut dyn Progress) -> bool {
        let total = self.plan().steps.len();
        for node in 0..total {
            if stop.is_asked() {
                return false;
            }
            progress.step(Stage::Model, node, total, &self.network().nodes[node].name);
            if let Some(model) = self.model_of(self.single(), node) {
                model.prepare(node);
            }
        }
        true
    }

    /// Whose layer a node is.
    fn model_of<'a>(&self, planned: &'a PlannedModel, node: NodeId) -> Option<&'a Arc<dyn Model>> {
        let of = planned.plan.backends.iter().position(|layers| layers.layer(node).is_some());
        of.map(|backend| &self.models(planned)[backend])
    }

    /// What every client learns of the network: no weight.
    pub fn network(&self) -> &Network {
        &self.bundle.model.network
    }

    /// What its linear layers are computed with.
    pub fn cpu(&self) -> Cpu {
        self.hardware.cpu
    }

    /// Whether any backend of the plan has its online products computed by a device.
    pub fn has_online_products(&self) -> bool {
        self.plan().backends.iter().any(|layers| layers.has_online_products())
    }

    /// Where online products are computed, for backends that have them.
    pub fn device(&self) -> String {
        self.hardware.device.describe()
    }

    /// The whole model, for `verify`.
    #[cfg(feature = "client")]
    pub(crate) fn bundle_model(&self) -> &jaguar_graph::network::Model {
        &self.bundle.model
    }

    /// The plan of queries of one image.
    pub fn plan(&self) -> &Plan {
        &self.single().plan
    }

    /// The model's public name, which tells compiled models apart.
    pub fn model(&self) -> ModelId {
        self.bundle.id()
    }

    /// Serves one client until it leaves. `observe` hears of every query that was answered or kept.
    ///
    /// # Errors
    /// When the connection fails, the client breaks the protocol, or it asks for a model of another name than the network's. The client
    /// is told; other clients are not concerned.
    pub fn serve(&self, channel: Channel, observe: &mut dyn FnMut(Notice)) -> Result<(), EngineError> {
        self.serve_observed(channel, observe, &mut |_, _| ())
    }

    /// Serves one client that [`greet`] has heard, under the server's own rules for it.
    ///
    /// # Errors
    /// When the connection fails, the client breaks the protocol, or it may not have what it asks for. The client is told; other
    /// clients are not concerned.
    pub fn serve_guest(
        &self,
        mut channel: Channel,
        asked: Asked,
        guest: &Guest<'_>,
        observe: &mut dyn FnMut(Notice),
    ) -> Result<(), EngineError> {
        let ears = Ears { observe, shares: &mut |_, _| (), guest };
        self.converse(&mut channel, asked, ears).map_err(|e| give_up(&mut channel, e))
    }

    /// As [`serve`](Self::serve); `shares` hears this party's share of every node's value: to look at what a server
    /// that follows the protocol has.
    ///
    /// # Errors
    /// As there.
    pub fn serve_observed(
        &self,
        mut channel: Channel,
        observe: &mut dyn FnMut(Notice),
        shares: &mut dyn FnMut(usize, &[u64]),
    ) -> Result<(), EngineError> {
        let asked = greet(&mut channel)?;
        let ears = Ears { observe, shares, guest: &Guest::default() };
        let name = &self.network().name;
        let served = match asked.model().is_none_or(|asked| asked == name) {
            true => self.converse(&mut channel, asked, ears),
            false => Err(EngineError::Refused(format!("this server has one model, '{name}'"))),
        };
        served.map_err(|e| give_up(&mut channel, e))
    }

    fn converse(&self, channel: &mut Channel, asked: Asked, mut ears: Ears<'_>) -> Result<(), EngineError> {
        // 1. Model. In the middle of what belongs together nobody is waited for without end.
        channel.set_patience(Some(self.shelves.limits.idle));
        let planned = self.planned_for(asked.images())?;
        let plan = &planned.plan;
        let parameters = SharesParameters { choices: plan.choices.clone(), reveal: self.reveal };
        let protocols = [parameters.protocol()];
        handshake::server::answer(channel, asked, self.bundle.id(), &protocols, Some(self.network()))?;
        let accept: Accept = channel.recv_message("acceptance", MAX_MESSAGE)?;
        if accept.plan != plan.digest() {
            return Err(EngineError::PeerMisbehaved(
                "the client made another plan of the same network".into(),
            ));
        }
        let (nonce, have_blocks) = match accept.purpose {
            Purpose::Session { nonce, have_blocks } => (nonce, have_blocks as usize),
            Purpose::Join(ticket) => return self.run_kept_queries(channel, plan, &ticket, &mut ears),
        };

        // 2. Client: the backends' keys; base OTs. The first query sends what the client's copy of the hint lacks.
        let key = self.bundle.hint_key(&nonce, &plan.hint_digest());
        let mut models = self.models(planned).iter();
        let mut backends =
            Backends::new(plan, |_| Arc::clone(models.next().expect("a model for each backend")).party(&key));
        let name = |backend| (nonce, backend);
        backends.take_keys(
            |backend| self.keys.find(&name(backend)),
            |backend, keys, bytes| self.keys.keep(name(backend), keys, bytes),
            channel,
        )?;
        backends.setup(channel)?;
        let missing = blocks(plan).into_iter().skip(have_blocks).peekable();
        let of_address = ears.guest.hints;
        let hints = HintStream { service: self, of_address, planned, key, missing, bookings: Vec::new() };
        channel.enter(Stage::Client, "base OTs");
        let cots = Cots::setup(channel, Role::Server, plan.choices.instances)?;
        let party = Party::on(self.hardware.cpu, Role::Server, cots);
        let mut maker = Maker { planned, backends, hints, party };

        // 3. Queries.
        let own = self.shelves.open(ears.guest.client);
        loop {
            match self.next_request(channel, own.shelf())? {
                Request::Leave => return Ok(()),
                Request::Hint => {
                    channel.enter(Stage::Client, "hint");
                    if plan.hint_bytes() == 0 {
                        return Err(EngineError::PeerMisbehaved("this plan has no hint".into()));
                    }
                    maker.hints.book(channel)?;
                    maker.hints.send_through(usize::MAX, channel)?;
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
                    // A query that is refused for its hint does not count.
                    maker.hints.book(channel)?;
                    ears.count_query(plan)?;
                    let query = self.prepare(channel, &mut maker, timeline)?;
                    self.run(channel, plan, query, (own.shelf(), None), &mut ears)?;
                }
                Request::Ticket => {
                    channel.send_message(own.ticket())?;
                    channel.flush()?;
                }
                Request::Prepare { id, timeline } => {
                    self.keep(channel, &mut maker, (&own, id), timeline, &mut ears)?
                }
                Request::Run { id } => self.run_kept(channel, plan, (own.shelf(), id), &mut ears)?,
            }
            own.shelf().touch();
        }
    }

    /// Waits for what the client wants next: as long as it takes if it holds nothing here, else within the limit. In the middle of
    /// a request it has the same limit.
    fn next_request(&self, channel: &mut Channel, shelf: &Shelf<Query>) -> Result<Request, EngineError> {
        let limit = self.shelves.limits.idle;
        channel.enter(Stage::Offline, "query keys");
        channel.take_stats();
        channel.set_patience(None);
        // Only this session adds to the shelf; its client's other connection may empty it meanwhile.
        while shelf.stock().queries > 0 {
            let left = limit.saturating_sub(shelf.idle());
            if left.is_zero() {
                return Err(EngineError::Idle { limit });
            }
            if channel.wait_for_input(left)? {
                break;
            }
        }
        let request = channel.recv_message("request", MAX_MESSAGE)?;
        shelf.touch();
        channel.set_patience(Some(limit));
        Ok(request)
    }

    /// A connection that runs what another session of the same client has prepared.
    fn run_kept_queries(
        &self,
        channel: &mut Channel,
        plan: &Plan,
        ticket: &Secret,
        ears: &mut Ears<'_>,
    ) -> Result<(), EngineError> {
        let shelf = self.shelves.find(ticket, ears.guest.client)?;
        channel.send_message(&shelf.stock())?;
        channel.flush()?;
        loop {
            channel.enter(Stage::Online, "request");
            channel.take_stats();
            channel.set_patience(None);
            let request = channel.recv_message("request", MAX_MESSAGE)?;
            channel.set_patience(Some(self.shelves.limits.idle));
            match request {
                Request::Leave => return Ok(()),
                Request::Run { id } => self.run_kept(channel, plan, (&shelf, id), ears)?,
                _ => {
                    return Err(EngineError::PeerMisbehaved(
                        "this connection was opened to run kept queries, and nothing else".into(),
                    ));
                }
            }
        }
    }

    /// Prepares a query that the client will ask for later, if there is room for it.
    fn keep(
        &self,
        channel: &mut Channel,
        maker: &mut Maker<'_>,
        (own, id): (&Own<'_, Query>, u64),
        timeline: bool,
        ears: &mut Ears<'_>,
    ) -> Result<(), EngineError> {
        let [_, bytes] = prepared_bytes(&maker.planned.plan);
        maker.hints.book(channel)?;
        let room = own.book(id, bytes)?.and_then(|place| match ears.count_query(&maker.planned.plan) {
            Ok(()) => Ok(place),
            // The session goes on: what it has prepared is paid for.
            Err(QueriesSpent(_)) => {
                own.unbook(place);
                Err(NoRoom::Queries)
            }
        });
        let answer: Result<(), NoRoom> = room.as_ref().map(|_| ()).map_err(|why| *why);
        channel.send_message(&answer)?;
        let place = match room {
            Ok(place) => place,
            Err(why) => {
                channel.flush()?;
                (ears.observe)(Notice::NoRoom(why));
                return Ok(());
            }
        };
        let query = self.prepare(channel, maker, timeline)?;
        let (offline, traffic) = (query.offline, query.traffic);
        own.keep(id, query, place);
        let client = own.shelf().stock();
        channel.enter(Stage::Offline, "kept");
        channel.send_message(&Kept { id, stock: client })?;
        channel.flush()?;
        (ears.observe)(Notice::Kept { query: id, offline, traffic, client, all: self.kept() });
        Ok(())
    }

    /// Runs kept query number `id`, which counted when it was prepared. It is off the shelf before anything of it is sent.
    fn run_kept(
        &self,
        channel: &mut Channel,
        plan: &Plan,
        (shelf, id): (&Shelf<Query>, u64),
        ears: &mut Ears<'_>,
    ) -> Result<(), EngineError> {
        shelf.touch();
        let query = shelf.take(id)?;
        if query.digest != plan.digest() {
            return Err(EngineError::PeerMisbehaved(format!("query {id} was prepared for another plan")));
        }
        self.run(channel, plan, query, (shelf, Some(id)), ears)?;
        shelf.touch();
        Ok(())
    }

    /// The offline stage of a query. What it needs of the hint is booked.
    fn prepare(
        &self,
        channel: &mut Channel,
        maker: &mut Maker<'_>,
        timeline: bool,
    ) -> Result<Query, EngineError> {
        let _at_work = AtWork::begin();
        let network = self.network();
        let Maker { planned, backends, hints, party } = maker;
        let plan = &planned.plan;
        let digest = plan.digest();
        let mut times = NodeTimes::new(channel.clock(), network.nodes.len());
        channel.enter(Stage::Offline, "query keys");
        let answered = times.elapsed();
        if timeline {
            // The client learns from this when the clock was started.
            Log::begin(channel);
            channel.send(&[0])?;
            channel.flush()?;
        }
        backends.begin_query(channel)?;
        let context = Offline {
            channel: &mut *channel,
            party,
            backends,
            hints,
            times: &mut times,
            progress: &mut NoProgress,
            schedule: Schedule::default(),
        };
        let plan = prepare(PlannedNetwork { network, plan }, self.reveal, context)?;
        let mut log = Log::default();
        log.end(channel);
        let timeline = timeline.then_some(Mark { answered, log });
        let offline = times.elapsed();
        let traffic = channel.total();
        channel.take_stats();
        Ok(Query { plan, times, offline, traffic, timeline, digest })
    }

    /// The online stage of a query, kept under a number or not.
    fn run(
        &self,
        channel: &mut Channel,
        plan: &Plan,
        query: Query,
        (shelf, kept): (&Shelf<Query>, Option<u64>),
        ears: &mut Ears<'_>,
    ) -> Result<(), EngineError> {
        let _at_work = AtWork::begin();
        let Query { plan: PreparedPlan { steps, result }, mut times, offline, mut traffic, timeline, .. } =
            query;
        let network = self.network();
        let planned = PlannedNetwork { network, plan };
        if timeline.is_some() {
            Log::begin(channel);
        }
        // The client's input is all its own: the server's share of it is zero.
        let input = Zeroizing::new(vec![0; plan.images() * network.nodes[0].shape.iter().product::<usize>()]);
        let observers = Observers { times: &mut times, progress: &mut NoProgress, shares: &mut *ears.shares };
        let mut output = run(planned, Role::Server, channel, steps, input, observers)?;
        let domain = plan.steps.last().expect("a plan has steps").domain;
        add_noise(&mut Prg::from_os(), network.noise_bits, domain, &mut output);
        channel.enter(Stage::Online, "result");
        match result {
            PreparedResult::Logits => channel.send_packed(&output, domain.modulus.bits())?,
            PreparedResult::Label(argmaxes) => {
                let (shape, images) =
                    (network.nodes.last().expect("a valid network has nodes").shape, plan.images());
                Argmax::run_all(argmaxes, channel, &Zeroizing::new(by_image(&output, shape, images)))?;
            }
        }
        let timeline = timeline.map(|mut mark| {
            mark.log.end(channel);
            ServerTimes::new(&times, &mark.log, mark.answered)
        });
        channel.send_message(&ServerCost {
            hint: busy_micros(&times.hint),
            offline: busy_micros(&times.offline),
            online: busy_micros(&times.online),
            peak_kib: peak_kib(),
            kept,
            stock: shelf.stock(),
            timeline,
        })?;
        channel.flush()?;
        traffic.add(&channel.total());
        (ears.observe)(Notice::Answered(Served {
            offline,
            online: since_first_input(plan, &times),
            traffic,
            images: plan.images(),
            kept,
            client: shelf.stock(),
            all: self.kept(),
        }));
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
    /// What the client's address may have.
    of_address: Option<&'a HintBudget>,
    planned: &'a PlannedModel,
    key: Zeroizing<[u8; 32]>,
    missing: Peekable<Skip<IntoIter<Block>>>,
    /// Its places in the budgets, once something is asked for.
    bookings: Vec<Booking<'a>>,
}

impl HintStream<'_> {
    /// Books what is missing, before the first of it is computed.
    fn book(&mut self, channel: &Channel) -> Result<(), EngineError> {
        if self.bookings.is_empty() {
            let missing = self.missing.clone().map(|block| block.bytes as u64).sum();
            let (bytes, now) = ((missing, self.planned.plan.hint_bytes() as u64), channel.clock().now());
            if let Some(budget) = self.of_address {
                let booked = budget.book(bytes, now);
                self.bookings.push(booked.map_err(|wait| EngineError::AddressHintsSpent { wait })?);
            }
            let booked = self.service.common.hints.book(bytes, now);
            // (What the address has booked is given back with this session, which ends here.)
            self.bookings.push(booked.map_err(|wait| EngineError::HintsSpent { wait })?);
        }
        Ok(())
    }

    /// Computes and sends what is missing of the nodes up to `node`, without waiting for anything. Says whether there was any.
    fn send_through(&mut self, node: NodeId, channel: &mut Channel) -> Result<bool, EngineError> {
        let mut any = false;
        while let Some(block) = self.missing.next_if(|b| b.node <= node) {
            let model = self.service.model_of(self.planned, block.node).expect("blocks are of linear layers");
            let bytes = model.hint(block.node, block.responses, &self.key);
            self.bookings.iter_mut().for_each(|booking| booking.used(block.bytes as u64));
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

    fn read(&mut self, _: NodeId) -> Result<Arc<Vec<u8>>, EngineError> {
        Ok(Arc::default())
    }
}

/// Adds noise of so many bits ([`opened_noise`]) to the server's shares of what is opened, fresh for each value: in units of the
/// network's own last place, the finest that the client sees.
fn add_noise(prg: &mut Prg, bits: u32, domain: Domain, shares: &mut [u64]) {
    assert_eq!(domain.excess, 0, "what is opened has the network's scale");
    if bits == 0 {
        return;
    }
    let mut words = Zeroizing::new([[0; 2]; 64]);
    for shares in shares.chunks_mut(words.len()) {
        prg.fill_u64(words.as_flattened_mut());
        for (share, &word) in shares.iter_mut().zip(&*words) {
            let noise = opened_noise(word, bits);
            *share = domain.modulus.add(*share, domain.modulus.from_signed(noise));
        }
    }
}
