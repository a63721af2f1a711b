//! Several models behind one port, each under a name. They can be replaced while clients are served: a session has the model that it
//! began with until it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::{Common, Guest, Service, greet};
use jaguar_engine::{EngineError, Stock, one_round};
use jaguar_wire::Channel;

use crate::hosted::{Hosted, ModelState, Told, Visit};
use crate::limits::Refusal;

/// A model that clients ask for by a name.
pub struct Named {
    name: String,
    service: Service,
    ready: AtomicBool,
    sessions: AtomicUsize,
}

impl Named {
    /// `service` under `name`, for which [`jaguar_engine::is_model_name`] holds: no client can ask for another.
    pub fn new(name: impl Into<String>, service: Service) -> Arc<Self> {
        let (ready, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Self { name: name.into(), service, ready, sessions })
    }

    /// The name that clients ask for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The service that answers its queries.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Does what is done once per model, and says how long that took.
    pub fn prepare(&self) -> Duration {
        let start = Instant::now();
        self.service.prepare_model(&mut NoProgress);
        self.ready.store(true, Ordering::SeqCst);
        start.elapsed()
    }
}

/// A session of a model, until dropped.
struct Using<'a>(&'a Named);

impl<'a> Using<'a> {
    fn new(model: &'a Named) -> Self {
        model.sessions.fetch_add(1, Ordering::SeqCst);
        Self(model)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

type ByName = BTreeMap<String, Arc<Named>>;

/// The models of a server. Their services share a [`Common`].
pub struct Models {
    common: Common,
    named: RwLock<Arc<ByName>>,
}

impl Models {
    /// These ones. Of two with one name the last counts.
    pub fn new(common: Common, models: impl IntoIterator<Item = Arc<Named>>) -> Self {
        let it = Self { common, named: RwLock::default() };
        it.replace(models);
        it
    }

    /// What all models share: bounds for hints and for what is kept.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Those that new sessions may have from now on.
    pub fn replace(&self, models: impl IntoIterator<Item = Arc<Named>>) {
        let models: ByName = models.into_iter().map(|model| (model.name.clone(), model)).collect();
        *self.named.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(models);
    }

    /// Those that are there now, by name.
    pub fn now(&self) -> Vec<Arc<Named>> {
        self.by_name().values().cloned().collect()
    }

    /// The one of a name, if it is there now.
    pub fn find(&self, name: &str) -> Option<Arc<Named>> {
        self.by_name().get(name).cloned()
    }

    fn by_name(&self) -> Arc<ByName> {
        Arc::clone(&self.named.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The model that a client gets which asks for `asked`: without a name the only one that it may use.
    fn choose(&self, asked: Option<&str>, may_use: impl Fn(&str) -> bool) -> Result<Arc<Named>, Refusal> {
        let named = self.by_name();
        let its: Vec<&Arc<Named>> = named.values().filter(|model| may_use(&model.name)).collect();
        let found = match asked {
            Some(name) => its.iter().find(|model| model.name == name),
            None => its.first().filter(|_| its.len() == 1),
        };
        if let Some(found) = found {
            return Ok(Arc::clone(found));
        }
        let names: Vec<&str> = its.iter().map(|model| model.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        Err(match asked {
            // (Nobody learns here which models there are for others.)
            None if its.is_empty() => Refusal::NoModel,
            None => Refusal::WhichModel { names },
            Some(name) => Refusal::NoSuchModel { name: name.to_owned(), names },
        })
    }
}

impl From<Service> for Models {
    /// A server with this model alone, under its network's name.
    fn from(service: Service) -> Self {
        let common = service.common().clone();
        let name = service.network().name.clone();
        Self::new(common, [Named::new(name, service)])
    }
}

impl Hosted for Models {
    fn prepare(&self, done: &mut dyn FnMut(&str, Duration)) {
        for model in self.now() {
            done(&model.name, model.prepare());
        }
    }

    fn least_memory(&self) -> u64 {
        self.by_name().values().map(|model| model.service.session_bytes()).min().unwrap_or(0)
    }

    fn serve(
        &self,
        mut channel: Channel,
        visit: &Visit<'_>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), EngineError> {
        let asked = greet(&mut channel)?;
        let chosen = self.choose(asked.model(), |name| visit.may_use(name));
        let admitted = chosen.map_err(|why| EngineError::Refused(visit.refused(why))).and_then(|model| {
            let memory = visit.take_memory(model.service.session_bytes())?;
            Ok((model, memory))
        });
        let (model, _memory) = admitted.inspect_err(|e| one_round::tell(&mut channel, e))?;
        let _using = Using::new(&model);
        tell(Told::Model(model.name.clone()));
        let query = |images| visit.count_query(&model.name, images);
        let client = visit.caller().identity();
        let guest = Guest { hints: visit.hints(), client: client.as_deref(), query: Some(&query) };
        model.service.serve_guest(channel, asked, &guest, &mut |notice| tell(Told::Query(notice)))
    }

    fn kept(&self) -> Stock {
        self.common.kept()
    }

    fn models(&self) -> Vec<ModelState> {
        let state = |model: &Arc<Named>| ModelState {
            name: model.name.clone(),
            ready: model.ready.load(Ordering::SeqCst),
            sessions: model.sessions.load(Ordering::SeqCst),
        };
        self.now().iter().map(state).collect()
    }
}
