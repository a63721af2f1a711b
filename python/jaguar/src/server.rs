//! A server in threads of its own.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use jaguar::bundle::Bundle;
use jaguar::client::Reveal;
use jaguar::is_model_name;
use jaguar::machine::memory::room;
use jaguar::machine::{Between, Imitated, store};
use jaguar::net::{Address, Listener, tls};
use jaguar::plan::Plan;
use jaguar::plan::batch::plans_that_fit;
use jaguar::plan::memory::Load;
use jaguar::reports::tables::{batch, event};
use jaguar::reports::terminal::in_one_line;
use jaguar::serve::{Control, Drained, Limits, Models, Named};
use jaguar::server::{self, Common, KeepLimits, Service};
use pyo3::prelude::*;

use crate::choice::Planning;
use crate::client::size;
use crate::failure::Failure;
use crate::model::Model;
use crate::task::run;

/// Events that nobody has asked for yet; older ones are dropped beyond these.
const EVENTS: usize = 1024;

/// How to serve: a dictionary's items.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    listen: String,
    /// `logits` or `label`.
    reveal: String,
    max_clients: usize,
    /// Images that a query may have.
    max_batch: i64,
    hints_per_hour: Option<NonZeroU32>,
    keep_queries: Option<u32>,
    keep_memory: Option<u64>,
    keep_idle: Option<u64>,
}

/// What happened, until somebody asks.
#[derive(Default)]
struct Events {
    lines: Mutex<(VecDeque<(bool, String)>, bool)>,
    changed: Condvar,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<(bool, String)>, bool)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, fault: bool, line: String) {
        let mut held = self.lock();
        if held.0.len() == EVENTS {
            held.0.pop_front();
        }
        held.0.push_back((fault, line));
        drop(held);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().1 = true;
        self.changed.notify_all();
    }
}

/// Models that are being served.
#[pyclass(frozen, module = "jaguar._native")]
pub struct Server {
    address: jaguar::net::Bound,
    /// Of its certificate, where TLS is spoken.
    fingerprint: Option<String>,
    /// By model, in the order in which they were given: its name, and what runs its linear layers.
    protocols: Vec<(String, String)>,
    /// By model: its name, and how many images a query may have.
    batches: Vec<(String, u32)>,
    control: Control,
    thread: Mutex<Option<JoinHandle<io::Result<Drained>>>>,
    events: Arc<Events>,
}

#[pymethods]
impl Server {
    /// Begins to serve `models`, each under a name that clients ask for.
    #[new]
    #[pyo3(signature = (models, settings, planning, listener = None))]
    fn new(
        py: Python<'_>,
        models: Vec<(String, Bound<'_, Model>)>,
        settings: Settings,
        planning: Planning,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let bundles: Vec<(String, Arc<Bundle>)> =
            models.iter().map(|(name, model)| (name.clone(), Arc::clone(&model.get().bundle))).collect();
        run(py, &Arc::default(), listener.as_ref(), move |task| {
            let reveal = match settings.reveal.as_str() {
                "logits" => Reveal::Logits,
                "label" => Reveal::Label,
                other => {
                    return Err(Failure::option(format!(
                        "reveal={other:?}: \"logits\", \"label\" are possible"
                    )));
                }
            };
            if let Some((name, _)) = bundles.iter().find(|(name, _)| !is_model_name(name)) {
                return Err(Failure::option(format!(
                    "model: {name:?} is no model's name (1 to 64 letters, digits, '-', '_' and '.')"
                )));
            }
            if settings.max_clients == 0 {
                return Err(Failure::option("max_clients: at least 1"));
            }
            let most = size("max_batch", settings.max_batch)?;
            let wrong = |error: &(dyn std::error::Error + 'static)| Failure::option(in_one_line(error));
            let place: Address = settings.listen.parse().map_err(|e| wrong(&e))?;
            let mut port = Listener::bind(&place)?;
            let alone = port.bound()?.is_local();
            let lan = Between::Measured(Imitated::Lan.figures());
            let default = if alone { Between::Loopback } else { lan };
            let mut fingerprint = None;
            if !alone {
                let folder = store::cache(None).ok_or_else(|| {
                    Failure::option(
                        "no folder is known to keep a certificate in: XDG_CACHE_HOME or HOME names one",
                    )
                })?;
                let tls = tls::Server::made(&folder.join("tls"), None).map_err(|e| wrong(&e))?;
                fingerprint = Some(tls.fingerprint().to_string());
                port = port.with_tls(tls);
            }
            let events = Arc::<Events>::default();
            let told = Arc::clone(&events);
            let hardware = crate::kit::hardware(move |why| told.add(true, why));
            let usual = KeepLimits::default();
            let keep = KeepLimits {
                queries: settings.keep_queries.unwrap_or(usual.queries),
                bytes: settings.keep_memory.unwrap_or(usual.bytes),
                idle: settings.keep_idle.map_or(usual.idle, Duration::from_secs),
                ..usual
            };
            let usual = server::Limits::default();
            let hints_per_hour = settings.hints_per_hour.unwrap_or(usual.hints_per_hour);
            let hints_at_once = usual.hints_at_once.min(hints_per_hour);
            let common = Common::new(server::Limits { hints_at_once, hints_per_hour }, keep);
            let (mut named, mut protocols, mut batches) = (Vec::new(), Vec::new(), Vec::new());
            let limits_of_batches =
                (planning.allowed()?, Load::single(jaguar::reports::terminal::threads()), room());
            for (at, (name, bundle)) in bundles.iter().enumerate() {
                task.at("planning", at, bundles.len(), name);
                let choices = planning.choose(bundle, &default, true, task, |choices, _| Ok(choices))?;
                let network = &bundle.model.network;
                let plan = Plan::allowing(network, choices, planning.allowed()?)?;
                let among = planning.among()?;
                let (plans, left_out) = plans_that_fit(network, &plan, &among, most, limits_of_batches)?;
                if let Some(found) = left_out {
                    task.warning(format!("{name}: {}", batch::left_out(&found, "max_batch=")));
                }
                let service = Service::with_plan(hardware.clone(), Bundle::clone(bundle), plan, reveal)?;
                let service = service.with_batch_plans(plans)?;
                batches.push((name.clone(), service.most_images()));
                protocols.push((name.clone(), service.plan().choices.names(service.network())));
                named.push(Named::new(name, service.sharing(&common)));
            }
            let limits = Limits { clients: settings.max_clients, ..Limits::default() };
            let server = jaguar::serve::Server::new(Models::new(common, named), port, limits)?;
            let (address, control) = (server.bound().clone(), server.control());
            let (heard, ended) = (Arc::clone(&events), Arc::clone(&events));
            let thread = Builder::new().name("server".into()).spawn(move || {
                let result = server.run(move |event| {
                    if let Some(line) = event::line(&event) {
                        heard.add(event::is_fault(&event), line);
                    }
                });
                ended.end();
                result
            });
            let thread =
                thread.map_err(|e| Failure::new("JaguarError", format!("starting a thread: {e}")))?;
            let thread = Mutex::new(Some(thread));
            Ok(Self { address, fingerprint, protocols, batches, control, thread, events })
        })
    }

    /// Host and port; of a Unix socket `unix:` and its path, and 0.
    #[getter]
    fn address(&self) -> (String, u16) {
        match &self.address {
            jaguar::net::Bound::Tcp(address) => (address.ip().to_string(), address.port()),
            jaguar::net::Bound::Unix(_) => (self.address.to_string(), 0),
        }
    }

    /// The fingerprint of its certificate, where TLS is spoken: clients know it by that.
    #[getter]
    fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// By model: its name, and what runs its linear layers.
    #[getter]
    fn protocols(&self) -> Vec<(String, String)> {
        self.protocols.clone()
    }

    /// By model: its name, and how many images a query may have.
    #[getter]
    fn batches(&self) -> Vec<(String, u32)> {
        self.batches.clone()
    }

    /// The next thing that happened (whether it is the server's own trouble, and a line), waited for a while; none if nothing did. The
    /// flag says whether more may come.
    fn next_event(&self, py: Python<'_>, seconds: f64) -> (Option<(bool, String)>, bool) {
        py.detach(|| {
            let mut held = self.events.lock();
            if held.0.is_empty() && !held.1 {
                let time = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
                let waited = self.events.changed.wait_timeout(held, time);
                held = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let next = held.0.pop_front();
            let more = next.is_some() || !held.1;
            (next, more)
        })
    }

    /// Ends the server and waits until it has: clients are told.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let thread = py.detach(|| {
            self.control.drain(Duration::ZERO);
            self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
        });
        let Some(thread) = thread else { return Ok(()) };
        while !thread.is_finished() {
            py.check_signals()?;
            py.detach(|| std::thread::sleep(Duration::from_millis(10)));
        }
        // Sessions end at their next message.
        while self.control.clients() > 0 {
            py.check_signals()?;
            py.detach(|| std::thread::sleep(Duration::from_millis(10)));
        }
        match py.detach(|| thread.join()) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(Failure::new("JaguarError", e.to_string()).into()),
            Err(_) => Err(Failure::new("JaguarError", "the server's thread panicked").into()),
        }
    }
}

/// Whether a server may have a model under this name.
#[pyfunction]
#[pyo3(name = "is_model_name")]
pub fn may_be_a_name(name: &str) -> bool {
    is_model_name(name)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.drain(Duration::ZERO);
    }
}
