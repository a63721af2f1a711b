//! A client that stays connected.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jaguar::Cpu;
use jaguar::client::{Connected, Limits, Reveal, connect_for, together};
use jaguar::compile::samples::Axes;
use jaguar::hint::HintPlace;
use jaguar::kept::keeper::{self, Keeper};
use jaguar::machine::memory::room;
use jaguar::machine::{Between, store};
use jaguar::net::tls::{self, Fingerprint, Trust};
use jaguar::net::{Address, Dialer, Token};
use jaguar::network::Network;
use jaguar::plan::batch::{is_size, too_large};
use jaguar::plan::memory::Load;
use jaguar::plan::predict::Aim;
use jaguar::plan::{Allowed, MOST_IMAGES};
use jaguar::report::{Predicted, caveat};
use jaguar::reports::tables::{batch, cost};
use jaguar::reports::terminal::in_one_line;
use jaguar::stop::Stop;
use jaguar::wire::framed::Options;
use jaguar::wire::{Channel, Queued};
use jaguar::{EngineError, bundle::ModelId, prepared_bytes};
use pyo3::prelude::*;
use serde_json::json;

use crate::answer::Answer;
use crate::choice::allowed;
use crate::failure::Failure;
use crate::input::{Given, Input, each, given};
use crate::kit::kit;
use crate::task::{Heard, Task, run};

/// How long another process that fetches the same hint is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection may take to end in order.
const FAREWELL: Duration = Duration::from_millis(400);

/// A connection to a server, with what serves more than one query.
#[pyclass(frozen, module = "jaguar._native")]
pub struct Client {
    inner: Arc<Inner>,
    task: Mutex<Option<Arc<Task>>>,
}

struct Inner {
    way: Way,
    cache: Option<PathBuf>,
    keep: u32,
    memory: Option<u64>,
    about: About,
    session: Mutex<Option<Session>>,
    /// How many queries are to be asked in a row, if that is known.
    row: Mutex<Option<u64>>,
}

/// What the server told of its model.
struct About {
    network: Network,
    model: ModelId,
    reveal: Reveal,
    protocol: String,
    leaks: Option<String>,
}

/// Connections that are there.
struct Session {
    keeper: Keeper,
    stop: Stop,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to a model: to its server, the name that it has there, and for how long a place is waited for.
#[derive(Clone)]
struct Way {
    dialer: Dialer,
    model: Option<String>,
    wait: Duration,
    /// What the server's plan may have.
    allowed: Allowed,
}

/// Who hears which place a client has in its server's line.
type Hear = Arc<dyn Fn(Queued) + Send + Sync>;

/// Tells it as a note of a task.
fn told_by(task: &Arc<Task>) -> Hear {
    let task = task.clone();
    Arc::new(move |Queued { place, seconds }| {
        task.waits(place, seconds);
    })
}

/// Connects for queries of `images` images. With a time, a place is waited for; `hear` is told which one it is in the server's line.
fn dial(way: &Way, images: u32, stop: &Stop, hear: Option<Hear>) -> Result<Connected, EngineError> {
    let dialer = way.dialer.at_once();
    let dialer = match hear {
        None => dialer,
        Some(hear) => {
            let stop = stop.clone();
            dialer.waiting(way.wait, move |queued| {
                queued.into_iter().for_each(&*hear);
                !stop.is_asked()
            })
        }
    };
    let channel = Channel::new(stop.over(dialer.connect(Options::default())?));
    let limits = Limits { accept_stationary_noise: way.allowed.stationary_noise, ..Limits::default() };
    let limits = limits.of_images(images).with_room(room().map(|room| room.bytes));
    connect_for(&kit(), channel, way.model.as_deref(), &limits, images)
}

/// `images` as a number of images that a query may have; `option` says where it was given.
pub fn size(option: &str, images: i64) -> Result<u32, Failure> {
    u32::try_from(images).ok().filter(|&images| is_size(images)).ok_or_else(|| {
        Failure::option(format!("{option}={images}: a power of two up to {MOST_IMAGES} is possible"))
    })
}

/// Raises an `OptionError` where a query cannot have so many images.
#[pyfunction]
pub fn check_batch(option: &str, images: i64) -> PyResult<()> {
    Ok(size(option, images).map(drop)?)
}

/// What a client asks for, whom it believes, and what it shows: a dictionary's items. Beyond this machine TLS is spoken.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Believed {
    /// The name that the server has the model under; none: the only one that this client may use.
    model: Option<String>,
    /// The fingerprint of the server's certificate.
    pin: Option<String>,
    /// Authorities, one of which signed it.
    ca: Option<PathBuf>,
    /// The file with the client's token.
    token_file: Option<PathBuf>,
    /// Seconds to wait for a place.
    wait: f64,
    /// The noise that correlations may have: `fresh`, or `stationary` too.
    lpn_noise: String,
}

impl Believed {
    /// The way to `server`.
    fn dialer(&self, server: &str) -> Result<Dialer, Failure> {
        let wrong = |what: &str, error: &(dyn std::error::Error + 'static)| {
            Failure::option(in_one_line(error)).of(what)
        };
        let address: Address = server.parse().map_err(|e| wrong("server", &e))?;
        let trust = match (&self.pin, &self.ca) {
            (Some(_), Some(_)) => return Err(Failure::option("pin and ca: one of them")),
            (Some(pin), None) => Trust::Pin(pin.parse::<Fingerprint>().map_err(|e| wrong("pin", &e))?),
            (None, Some(file)) => Trust::Authorities(file.clone()),
            (None, None) => Trust::Nobody,
        };
        let named = self.pin.is_some() || self.ca.is_some();
        let tls = match address.says_tls() {
            None => named || !address.is_local(),
            Some(secure) if secure || !named && address.is_local() => secure,
            Some(_) => return Err(Failure::option("server: ws:// is in the clear; wss:// is inside TLS")),
        };
        let mut dialer = Dialer::new(address);
        if tls {
            dialer = dialer.with_tls(tls::Client::new(&trust, None).map_err(|e| wrong("ca", &e))?);
        }
        if let Some(path) = &self.token_file {
            dialer = dialer.with_token(Token::read(path).map_err(|e| wrong("token_file", &e))?);
        }
        Ok(dialer)
    }

    /// For how long a place is waited for.
    fn wait(&self) -> Duration {
        Duration::try_from_secs_f64(self.wait).unwrap_or_default()
    }
}

impl Inner {
    /// Connects for queries of `images` images, over `connected` if that is there.
    fn open(
        &self,
        connected: Option<Connected>,
        images: u32,
        stop: &Stop,
        task: &Arc<Task>,
    ) -> Result<Session, Failure> {
        let place = match &self.cache {
            None => HintPlace::Memory,
            Some(folder) => HintPlace::FolderOrMemory(folder.clone(), PATIENCE),
        };
        let row = *lock(&self.row);
        let mut options = keeper::Options::new(self.keep, place);
        options.memory = self.memory.unwrap_or(options.memory);
        options.total = row;
        options.overlap = row.is_some();
        let (way, own) = (self.way.clone(), stop.clone());
        let again = Arc::new(move || dial(&way, images, &own, Some(Arc::new(|_| ()))));
        // (A client that waited for a second place would hold the first meanwhile.)
        let (way, own) = (self.way.clone(), stop.clone());
        options.dial_second = Some(Arc::new(move || dial(&way, images, &own, None)));
        let connected = match connected {
            Some(connected) => connected,
            None => self.dial(images, stop, task)?,
        };
        if row.is_some() {
            // Nobody asked for these: as many as there is memory for.
            let [each, _] = prepared_bytes(connected.plan());
            let fit = u32::try_from(options.memory / each.max(1)).unwrap_or(u32::MAX);
            options.keep = options.keep.max(1).min(fit);
        }
        let load =
            Load { clients: 1, kept: options.keep.into(), threads: jaguar::reports::terminal::threads() };
        let found = |room| too_large(connected.network(), connected.plan(), self.way.allowed, load, room);
        if let Some(found) = room().and_then(found) {
            return Err(Failure::option(batch::too_large(&found, "batch=")));
        }
        let mut heard = Heard { task, unwinds: false };
        let mut keeper = Keeper::over(connected, again, options, &mut heard)?;
        if let Some(reason) = keeper.no_runner() {
            task.note(format!(
                "no second connection ({reason}); an input waits for a query that is being prepared"
            ));
        }
        Ok(Session { keeper, stop: stop.clone() })
    }
}

impl Inner {
    /// Connects anew for queries of `images` images, to the model that was there before.
    fn dial(&self, images: u32, stop: &Stop, task: &Arc<Task>) -> Result<Connected, Failure> {
        let connected = dial(&self.way, images, stop, Some(told_by(task)))?;
        if connected.model() != self.about.model {
            return Err(Failure::new("PeerError", "the server has another model now: connect anew"));
        }
        Ok(connected)
    }

    /// Fetches what is missing of the hint for queries of `images` images; how many bytes that was.
    fn fetch(&self, images: u32, task: &Arc<Task>) -> Result<u64, Failure> {
        let Some(folder) = &self.cache else {
            return Err(Failure::option("cache: there is no folder in which a hint could be kept"));
        };
        let mut held = lock(&self.session);
        if let Some(session) = held.take() {
            // One session at a time writes a hint. (What that thread panicked with was reported.)
            let _ = session.close().join();
        }
        let stop = Stop::default();
        task.stops(&stop);
        let mut heard = Heard { task, unwinds: false };
        // To keep it is what this is for: a folder that fails is an error.
        let place = HintPlace::Folder(folder.clone());
        let ready = self.dial(images, &stop, task)?.prepare_client_at(place, &mut heard)?;
        let (there, all) = ready.hint();
        ready.fetch_hint(&mut heard)?.leave()?;
        if self.keep > 0 && !task.is_stopped() {
            *held = Some(self.open(None, 1, &stop, task)?);
        }
        Ok(all - there)
    }

    /// Ends the connections, if there are any.
    fn leave(&self) {
        let session = lock(&self.session).take();
        if let Some(session) = session {
            session.close();
        }
    }
}

impl Session {
    /// How many images its queries have.
    fn images(&self) -> usize {
        self.keeper.plan().images()
    }

    /// Ends the connections: in order if that is quick. Returns the thread that lets go of the hint.
    fn close(self) -> JoinHandle<()> {
        let Self { keeper, stop } = self;
        // (Whether the farewell was heard makes no difference any more.)
        let closing = thread::spawn(move || drop(keeper.close()));
        for _ in 0..FAREWELL.as_millis() / 10 {
            if closing.is_finished() {
                return closing;
            }
            thread::sleep(Duration::from_millis(10));
        }
        stop.now();
        closing
    }
}

#[pymethods]
impl Client {
    /// Connects. `cache`: where the hint is kept between runs; none: in memory.
    #[new]
    #[pyo3(signature = (server, believed, cache, keep, memory, listener = None))]
    fn new(
        py: Python<'_>,
        server: String,
        believed: Believed,
        cache: Option<PathBuf>,
        keep: u32,
        memory: Option<u64>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let task = Arc::<Task>::default();
        let inner = run(py, &task, listener.as_ref(), move |task| {
            let stop = Stop::default();
            task.stops(&stop);
            task.at("connecting", 0, 0, &server);
            let (dialer, wait) = (believed.dialer(&server)?, believed.wait());
            let way = Way { dialer, model: believed.model, wait, allowed: allowed(&believed.lpn_noise)? };
            let connected = dial(&way, 1, &stop, Some(told_by(task)))?;
            let (network, plan) = (connected.network().clone(), connected.plan());
            if let Some(caveat) = caveat(&network) {
                task.note(caveat);
            }
            let about = About {
                protocol: plan.choices.names(&network),
                leaks: plan.choices.comparison.caveat(),
                model: connected.model(),
                reveal: connected.reveal(),
                network,
            };
            let session = Mutex::new(None);
            let inner = Inner { way, cache, keep, memory, about, session, row: Mutex::new(None) };
            let opened = inner.open(Some(connected), 1, &stop, task)?;
            *lock(&inner.session) = Some(opened);
            Ok(inner)
        })?;
        Ok(Self { inner: Arc::new(inner), task: Mutex::new(None) })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.about.network.name
    }

    #[getter]
    fn model(&self) -> String {
        self.inner.about.model.to_string()
    }

    #[getter]
    fn protocol(&self) -> &str {
        &self.inner.about.protocol
    }

    #[getter]
    fn leaks(&self) -> Option<&str> {
        self.inner.about.leaks.as_deref()
    }

    #[getter]
    fn labels(&self) -> Vec<String> {
        self.inner.about.network.output.labels.clone()
    }

    /// `[C, H, W]`.
    #[getter]
    fn input_shape(&self) -> [usize; 3] {
        self.inner.about.network.nodes[0].shape
    }

    /// Whether the server reveals logits, or the label alone.
    #[getter]
    fn reveals(&self) -> &'static str {
        match self.inner.about.reveal {
            Reveal::Label => "label",
            Reveal::Logits => "logits",
        }
    }

    /// How many prepared queries are ready.
    #[getter]
    fn ready(&self) -> usize {
        lock(&self.inner.session).as_ref().map_or(0, |session| session.keeper.ready())
    }

    /// The same inputs, each of them one of the network's: an array of tensors is taken apart.
    fn each(&self, inputs: Vec<Bound<'_, Input>>) -> Vec<Input> {
        let network = &self.inner.about.network;
        let each = each(given(&inputs), network.nodes[0].shape, Axes::of_network(network));
        each.into_iter().map(Input).collect()
    }

    /// Asks about inputs in one query, which has `images` images: zeros fill it up. The answers, and the query's cost as JSON and as text.
    /// `first`: the number of the first input, for messages.
    #[pyo3(signature = (inputs, first, images, listener = None))]
    fn predict(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, Input>>,
        first: usize,
        images: i64,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<Answer>, String, String, String)> {
        let images = size("batch", images)?;
        let (inner, given) = (Arc::clone(&self.inner), given(&inputs));
        if given.is_empty() || given.len() > images as usize {
            let text = format!("{} inputs for a query of {images} images", given.len());
            return Err(Failure::input(text).into());
        }
        let task = Arc::<Task>::default();
        *lock(&self.task) = Some(Arc::clone(&task));
        let result = run(py, &task, listener.as_ref(), move |task| {
            let network = &inner.about.network;
            let read = |(at, one): (usize, &Given)| -> Result<Vec<i64>, Failure> {
                let name = one.name(first + at);
                let source = one.source(first + at)?;
                let input = source.input(network).map_err(|e| one.unfit(e, first + at))?;
                if let Some(warning) = input.warning {
                    task.warning(format!("{name}: {warning}"));
                }
                Ok(input.integers)
            };
            let inputs = given.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
            let input = together(inputs.iter().map(Vec::as_slice), images as usize);
            let mut held = lock(&inner.session);
            let mut session = match held.take() {
                Some(session) if session.images() == images as usize => {
                    task.stops(&session.stop);
                    session
                }
                other => {
                    // What is there is for queries of another size.
                    if let Some(other) = other {
                        other.close();
                    }
                    let stop = Stop::default();
                    task.stops(&stop);
                    inner.open(None, images, &stop, task)?
                }
            };
            let answer = session.keeper.predict_batch(&input, &mut Heard { task, unwinds: false });
            let (mut predictions, report) = match answer {
                Ok(answer) => answer,
                Err(e) => {
                    // Connections that were ended on purpose are of no more use.
                    if !task.is_stopped() {
                        *held = Some(session);
                    }
                    return Err(e.into());
                }
            };
            predictions.truncate(inputs.len());
            let cache = store::cache(inner.cache.as_deref());
            let machine = store::known_machine(Cpu::detect(), &kit(), cache.as_deref());
            let between = {
                let address = inner.way.dialer.address();
                let host = address.host_and_port().map_or_else(|| address.to_string(), str::to_owned);
                Between::to(cache.as_deref(), &host, None)
            };
            let site = machine.as_ref().zip(between.as_ref()).map(|(m, between)| between.site(m, Aim::Query));
            let predicted = Predicted::new(session.keeper.plan(), &report, site.as_ref());
            let mut json = json!({ "cost": report, "predicted": predicted });
            if images > 1 {
                json["batch"] = json!({ "images": images, "inputs": inputs.len() });
            }
            let json = json.to_string();
            let (line, tables) = (cost::line(&report), cost::tables(&report, &predicted));
            if !task.is_stopped() {
                *held = Some(session);
            }
            Ok((predictions, json, line, tables))
        });
        // From here on there is nothing to interrupt.
        let interrupted = {
            let mut current = lock(&self.task);
            current.take_if(|current| Arc::ptr_eq(current, &task));
            task.is_stopped()
        };
        if interrupted {
            // Where that came too late for the answer, it still ended the session. (Work that goes on drops it itself.)
            if let Ok(mut session) = self.inner.session.try_lock() {
                drop(session.take());
            }
        }
        let (predictions, json, line, tables) = result?;
        if interrupted {
            return Err(crate::task::interrupted().into());
        }
        let network = &self.inner.about.network;
        let answers = predictions.iter().map(|prediction| Answer::new(py, network, prediction)).collect();
        Ok((answers, json, line, tables))
    }

    /// Fetches what is missing of the hint for queries of `images` images, into the cache folder. How many bytes that was.
    #[pyo3(signature = (images, listener = None))]
    fn fetch(&self, py: Python<'_>, images: i64, listener: Option<Py<PyAny>>) -> PyResult<u64> {
        let images = size("batch", images)?;
        let (inner, task) = (Arc::clone(&self.inner), Arc::<Task>::default());
        *lock(&self.task) = Some(Arc::clone(&task));
        let fetched = run(py, &task, listener.as_ref(), move |task| inner.fetch(images, task));
        lock(&self.task).take_if(|current| Arc::ptr_eq(current, &task));
        fetched
    }

    /// From here on `total` queries are asked in a row: the next is prepared while one is answered.
    fn begin_many(&self, py: Python<'_>, total: u64) {
        py.detach(|| {
            *lock(&self.inner.row) = Some(total);
            self.inner.leave();
        });
    }

    /// They were.
    fn end_many(&self, py: Python<'_>) {
        py.detach(|| {
            *lock(&self.inner.row) = None;
            self.inner.leave();
        });
    }

    /// Ends a call of another thread.
    fn interrupt(&self) {
        if let Some(task) = &*lock(&self.task) {
            task.stop();
        }
    }

    /// Ends the connection. The next query connects anew.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.leave());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(session) = lock(&self.inner.session).take() {
            session.stop.now();
        }
    }
}
