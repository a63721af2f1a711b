//! What a server does, in figures, for Prometheus; and whether it lives and is ready, for who decides where clients go.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the figures (OpenMetrics) |
//! | `/live` | 200 while the process answers at all |
//! | `/ready` | 200 when clients are served at once, else 503 and what is waited for |
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

use crate::http::{Answer, answer_all};
use crate::{Control, Event, ServeError};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
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
struct Direction {
    direction: &'static str,
}

/// Seconds of a query's stages: from a tenth to a quarter of an hour.
const SECONDS: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 400.0, 900.0];

/// The figures of one server.
pub struct Metrics {
    control: Control,
    registry: Registry,
    sessions: Counter,
    queries: Counter,
    kept: Counter,
    no_room: Counter,
    seconds: Family<Stage, Histogram>,
    refusals: Family<Reason, Counter>,
    failures: Counter,
    answers: Counter,
    answer_seconds: Histogram,
    no_answers: Counter,
    key_bytes: Counter,
    /// Set when somebody asks.
    now: Now,
}

/// What is looked up when it is asked for.
#[derive(Default)]
struct Now {
    clients: Gauge,
    ready: Gauge,
    kept_queries: Gauge,
    kept_bytes: Gauge,
    moved: Family<Direction, Counter>,
    resident: Gauge,
    peak: Gauge,
}

impl Metrics {
    /// None counted yet.
    pub fn new(control: Control) -> Self {
        let mut registry = Registry::with_prefix("jaguar");
        let seconds =
            Family::<Stage, Histogram>::new_with_constructor(|| Histogram::new(SECONDS.iter().copied()));
        let metrics = Self {
            control,
            registry: Registry::default(),
            sessions: Counter::default(),
            queries: Counter::default(),
            kept: Counter::default(),
            no_room: Counter::default(),
            seconds,
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
        registry.register("failures", "Connections that failed", failures.clone());
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
        registry.register("ready", "Whether clients are served at once", now.ready.clone());
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
        Self { registry, ..metrics }
    }

    /// Counts what happened.
    pub fn hear(&self, event: &Event<'_>) {
        match event {
            Event::Connected(..) => {
                self.sessions.inc();
            }
            Event::Query(_, Notice::Answered(served)) => {
                self.queries.inc();
                let seconds = |stage| self.seconds.get_or_create(&Stage { stage });
                seconds(StageName::offline).observe(served.offline.as_secs_f64());
                seconds(StageName::online).observe(served.online.as_secs_f64());
            }
            Event::Query(_, Notice::Kept { .. }) => {
                self.kept.inc();
            }
            Event::Query(_, Notice::NoRoom(_)) => {
                self.no_room.inc();
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
                self.refusals.get_or_create(&Reason { reason: why.kind() }).inc();
            }
            Event::Ended(..) => {
                self.failures.inc();
            }
            _ => {}
        }
    }

    /// The figures as text.
    pub fn text(&self) -> String {
        let (control, now) = (&self.control, &self.now);
        let gauge = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge(&now.clients, control.clients() as u64);
        gauge(&now.ready, control.ready().is_ok().into());
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
            "/metrics" => Answer {
                status: "200 OK",
                kind: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body: self.text(),
            },
            "/live" => Answer::text("200 OK", "live\n"),
            "/ready" => match self.control.ready() {
                Ok(()) => Answer::text("200 OK", "ready\n"),
                Err(why) => Answer::text("503 Service Unavailable", format!("not ready: {why}\n")),
            },
            _ => Answer::text("404 Not Found", "there are /metrics, /live and /ready\n"),
        }
    }
}

/// Memory of this process, where the system tells (Linux).
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
