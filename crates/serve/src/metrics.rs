//! What a server does, in figures, for Prometheus; and whether it lives and is ready, for who decides where clients go.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the figures (OpenMetrics) |
//! | `/live` | 200 while the process answers at all |
//! | `/accepting` | 200 when clients are taken, else 503 and what is waited for: a model to be prepared |
//! | `/ready` | 200 when who comes now is served at once; 503 also while all places are taken |
//! | `/ready/NAME` | the same for the model of that name; 404 if there is none |
//!
//! Figures are of the server and of all clients together: none is of one client, and none depends on an input.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use jaguar_engine::one_round::Notice as OneRound;
use jaguar_engine::peak_kib;
use jaguar_engine::server::Notice;
use jaguar_wire::WireError;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::http::{Answer, FIGURES, answer_all};
use crate::limits::NOT_GREETED;
use crate::{Control, Event, Refusal, ServeError};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    model: String,
    stage: StageName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "as it is shown")]
enum StageName {
    offline,
    online,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

/// Seconds of a query's stages: from a tenth to a quarter of an hour.
const SECONDS: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 400.0, 900.0];

/// The figures of one server, as Prometheus asks for them.
pub struct Metrics {
    control: Control,
    registry: Registry,
    sessions: Counter,
    queries: Family<Model, Counter>,
    kept: Family<Model, Counter>,
    no_room: Family<Model, Counter>,
    seconds: Family<Stage, Histogram>,
    not_counted: Counter,
    reloads: Family<Outcome, Counter>,
    /// 1 if the last reload was a success, or there was none.
    reloaded: Gauge,
    refusals: Family<Reason, Counter>,
    failures: Counter,
    answers: Counter,
    answer_seconds: Histogram,
    no_answers: Counter,
    key_bytes: Counter,
    /// Figures that are looked up when somebody asks.
    now: Now,
}

/// What is looked up when it is asked for.
#[derive(Default)]
struct Now {
    clients: Gauge,
    places: Gauge,
    free_places: Gauge,
    waiting: Gauge,
    ahead: Gauge,
    accepting: Gauge,
    ready: Gauge,
    certificate: Gauge,
    model_ready: Family<Model, Gauge>,
    model_sessions: Family<Model, Gauge>,
    session_memory: Gauge,
    kept_queries: Gauge,
    kept_bytes: Gauge,
    moved: Family<Direction, Counter>,
    resident: Gauge,
    peak: Gauge,
    files: Gauge,
}

impl Metrics {
    /// All counters at zero; `control` tells what is so at the moment.
    pub fn new(control: Control) -> Self {
        let mut registry = Registry::with_prefix("jaguar");
        let seconds =
            Family::<Stage, Histogram>::new_with_constructor(|| Histogram::new(SECONDS.iter().copied()));
        let metrics = Self {
            control,
            registry: Registry::default(),
            sessions: Counter::default(),
            queries: Family::default(),
            kept: Family::default(),
            no_room: Family::default(),
            seconds,
            not_counted: Counter::default(),
            reloads: Family::default(),
            reloaded: Gauge::default(),
            refusals: Family::default(),
            failures: Counter::default(),
            answers: Counter::default(),
            answer_seconds: Histogram::new(SECONDS.iter().copied()),
            no_answers: Counter::default(),
            key_bytes: Counter::default(),
            now: Now::default(),
        };
        let Self { sessions, queries, kept, no_room, seconds, refusals, failures, now, .. } = &metrics;
        registry.register("sessions", "Sessions begun", sessions.clone());
        registry.register("queries", "Queries answered", queries.clone());
        registry.register("queries_prepared", "Queries prepared ahead and kept", kept.clone());
        registry.register(
            "queries_not_kept",
            "Queries for which there was no room to be kept",
            no_room.clone(),
        );
        registry.register_with_unit(
            "query",
            "Time of answered queries by stage, waiting for the client included",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register("refusals", "Clients turned away, by reason", refusals.clone());
        // A figure that comes into being with its first event hides that event from who looks at its growth.
        for reason in Refusal::KINDS {
            drop(refusals.get_or_create(&Reason { reason }));
        }
        registry.register("failures", "Connections that failed", failures.clone());
        metrics.reloaded.set(1);
        for result in ["ok", "failed"] {
            drop(metrics.reloads.get_or_create(&Outcome { result }));
        }
        registry.register("reloads", "Times that models and rules were read again", metrics.reloads.clone());
        registry.register(
            "last_reload_successful",
            "Whether all that was read again is served (0: what was there before is, where it could not be read)",
            metrics.reloaded.clone(),
        );
        registry.register(
            "queries_not_counted",
            "Queries that could not be written to the file that counts them",
            metrics.not_counted.clone(),
        );
        registry.register(
            "model_ready",
            "Whether no client waits for the model to be prepared",
            metrics.now.model_ready.clone(),
        );
        registry.register("model_sessions", "Sessions of a model now", metrics.now.model_sessions.clone());
        registry.register_with_unit(
            "session_memory",
            "Memory that the sessions may come to take, as estimated",
            Unit::Bytes,
            metrics.now.session_memory.clone(),
        );
        let Self { answers, answer_seconds, no_answers, key_bytes, .. } = &metrics;
        registry.register("one_round_answers", "Answers sent in one-round sessions", answers.clone());
        registry.register(
            "one_round_no_answers",
            "Evaluations that failed, and tickets without an answer",
            no_answers.clone(),
        );
        registry.register_with_unit(
            "one_round_evaluation",
            "Time of evaluations whose answers were sent, without the queue",
            Unit::Seconds,
            answer_seconds.clone(),
        );
        registry.register_with_unit(
            "one_round_keys",
            "Evaluation keys received from clients",
            Unit::Bytes,
            key_bytes.clone(),
        );
        registry.register("clients", "Clients that are being served", now.clients.clone());
        registry.register("places", "Places for clients", now.places.clone());
        registry.register("places_free", "Places that a client could have now", now.free_places.clone());
        registry.register("waiting", "Clients that wait for a place", now.waiting.clone());
        registry.register_with_unit(
            "place_in",
            "After how long a client that comes now may have a place, as estimated",
            Unit::Seconds,
            now.ahead.clone(),
        );
        registry.register(
            "accepting",
            "Whether clients are taken: models are prepared, and the server does not end",
            now.accepting.clone(),
        );
        registry.register(
            "ready",
            "Whether a client that comes now is served at once: clients are taken, and a place is free",
            now.ready.clone(),
        );
        if metrics.control.tls().is_some() {
            registry.register_with_unit(
                "certificate_expires",
                "Until when the server's certificate is valid (Unix time), if it speaks TLS",
                Unit::Seconds,
                now.certificate.clone(),
            );
        }
        registry.register("kept_queries", "Prepared queries that are kept", now.kept_queries.clone());
        registry.register_with_unit(
            "kept",
            "Memory of prepared queries that are kept",
            Unit::Bytes,
            now.kept_bytes.clone(),
        );
        registry.register_with_unit("moved", "Bytes that sessions moved", Unit::Bytes, now.moved.clone());
        registry.register_with_unit(
            "memory_resident",
            "Memory of this process",
            Unit::Bytes,
            now.resident.clone(),
        );
        registry.register_with_unit(
            "memory_peak",
            "The most memory that this process had",
            Unit::Bytes,
            now.peak.clone(),
        );
        registry.register("open_files", "Files and sockets that this process has open", now.files.clone());
        Self { registry, ..metrics }
    }

    /// Counts an event of the server.
    pub fn hear(&self, event: &Event<'_>) {
        match event {
            Event::Connected(..) => {
                self.sessions.inc();
            }
            // From here on its figures are there, at zero. (Those of models that clients choose are there from the start.)
            Event::Uses(_, model) => self.begin(model),
            Event::NotCounted(_) => {
                self.not_counted.inc();
            }
            Event::Query(_, model, Notice::Answered(served)) => {
                self.queries.get_or_create(&of(model)).inc();
                let seconds =
                    |stage| self.seconds.get_or_create(&Stage { model: (*model).to_owned(), stage });
                seconds(StageName::offline).observe(served.offline.as_secs_f64());
                seconds(StageName::online).observe(served.online.as_secs_f64());
            }
            Event::Query(_, model, Notice::Kept { .. }) => {
                self.kept.get_or_create(&of(model)).inc();
            }
            Event::Query(_, model, Notice::NoRoom(_)) => {
                self.no_room.get_or_create(&of(model)).inc();
            }
            Event::OneRound(_, OneRound::Keys { received, .. }) => {
                self.key_bytes.inc_by(*received);
            }
            Event::OneRound(_, OneRound::Answered { took, .. }) => {
                self.answers.inc();
                self.answer_seconds.observe(took.as_secs_f64());
            }
            Event::OneRound(_, OneRound::NoAnswer) => {
                self.no_answers.inc();
            }
            Event::Ended(_, ServeError::Refused(why)) => {
                debug_assert!(Refusal::KINDS.contains(&why.kind()), "{}", why.kind());
                self.refused(why.kind());
            }
            Event::TooManyUngreeted(_) => self.refused(NOT_GREETED),
            Event::Ended(..) => {
                self.failures.inc();
            }
            _ => {}
        }
    }

    fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Has all figures of a model that are counted by its name.
    fn begin(&self, model: &str) {
        for family in [&self.queries, &self.kept, &self.no_room] {
            drop(family.get_or_create(&of(model)));
        }
        for stage in [StageName::offline, StageName::online] {
            drop(self.seconds.get_or_create(&Stage { model: model.to_owned(), stage }));
        }
    }

    /// Counts that models and rules were read again; `ok` says whether all of it could be.
    pub fn reloaded(&self, ok: bool) {
        self.reloads.get_or_create(&Outcome { result: if ok { "ok" } else { "failed" } }).inc();
        self.reloaded.set(ok.into());
    }

    /// All figures in Prometheus' text format.
    pub fn text(&self) -> String {
        let (control, now) = (&self.control, &self.now);
        let gauge = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge(&now.clients, control.clients() as u64);
        let places = control.places();
        gauge(&now.places, places.all as u64);
        gauge(&now.free_places, places.free as u64);
        gauge(&now.waiting, places.waiting as u64);
        gauge(&now.ahead, places.seconds);
        gauge(&now.accepting, control.accepts().is_ok().into());
        gauge(&now.ready, control.ready().is_ok().into());
        if let Some(until) = control.tls().and_then(jaguar_net::tls::Server::valid_until) {
            now.certificate.set(until);
        }
        gauge(&now.session_memory, control.session_memory());
        // What is not served any more has no figure.
        now.model_ready.clear();
        now.model_sessions.clear();
        for model in control.models() {
            self.begin(&model.name);
            gauge(&now.model_ready.get_or_create(&of(&model.name)), model.ready.into());
            gauge(&now.model_sessions.get_or_create(&of(&model.name)), model.sessions as u64);
        }
        let kept = control.kept();
        gauge(&now.kept_queries, kept.queries.into());
        gauge(&now.kept_bytes, kept.bytes);
        for (direction, bytes) in ["received", "sent"].into_iter().zip(control.moved()) {
            // Somebody else may ask at the same time, and have counted more.
            let counter = now.moved.get_or_create(&Direction { direction });
            counter.inner().fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        gauge(&now.resident, resident_kib().unwrap_or(0) * 1024);
        gauge(&now.peak, peak_kib() * 1024);
        gauge(&now.files, open_files().unwrap_or(0));
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            let _ = writeln!(text, "# EOF");
        }
        text
    }

    /// Answers at `address` (`host:port`), from a thread of its own, until the process ends. Returns where it really is.
    ///
    /// # Errors
    /// When the address does not resolve or cannot be bound; the error names it.
    pub fn answer_at(self: Arc<Self>, address: &str) -> Result<SocketAddr, WireError> {
        let failed = |source| WireError::Io { what: format!("listening on {address} for metrics"), source };
        let bind = |address: &str| {
            // (As a list: what a name resolves to is tried in order.)
            let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
            let listener = TcpListener::bind(&addresses[..])?;
            let bound = listener.local_addr()?;
            answer_all(listener, move |path| self.answer(path))?;
            Ok(bound)
        };
        bind(address).map_err(failed)
    }

    fn answer(&self, path: &str) -> Answer {
        match path {
            FIGURES => Answer {
                status: "200 OK",
                kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body: self.text(),
            },
            "/live" => Answer::text("200 OK", "live\n"),
            "/accepting" => probe("accepting", self.control.accepts()),
            "/ready" => probe("ready", self.control.ready()),
            _ => match path.strip_prefix("/ready/").map(|name| self.model(name)) {
                Some(Some(ready)) => probe("ready", ready),
                Some(None) => Answer::text("404 Not Found", "there is no model of this name\n"),
                None => Answer::text(
                    "404 Not Found",
                    "there are /metrics, /live, /accepting, /ready and /ready/MODEL\n",
                ),
            },
        }
    }

    /// Whether the model of that name is served at once, if it is there.
    fn model(&self, name: &str) -> Option<Result<(), &'static str>> {
        let ending = self.control.accepts() == Err(crate::ENDING);
        let model = self.control.models().into_iter().find(|model| model.name == name)?;
        Some(match model.ready && !ending {
            true => self.control.free_place(),
            false => Err("the model is being prepared, or the server ends"),
        })
    }
}

/// What a probe is told.
fn probe(what: &str, is_so: Result<(), &'static str>) -> Answer {
    match is_so {
        Ok(()) => Answer::text("200 OK", format!("{what}\n")),
        Err(why) => Answer::text("503 Service Unavailable", format!("not {what}: {why}\n")),
    }
}

fn of(model: &str) -> Model {
    Model { model: model.to_owned() }
}

/// Memory of this process, where the system tells (Linux).
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// How many files this process has open, where the system tells (Linux).
fn open_files() -> Option<u64> {
    // (The folder itself is open meanwhile.)
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}
