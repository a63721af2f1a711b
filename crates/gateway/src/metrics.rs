//! What a gateway does, in figures, for Prometheus. None of them depends on an input.

use std::time::Duration;

use jaguar::Stock;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// By which protocol a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "as it is shown")]
pub enum Protocol {
    http,
    grpc,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    protocol: Protocol,
    status: u16,
}

/// Seconds: from five milliseconds to five minutes.
const SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0, 300.0];

/// The figures of a gateway.
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    inputs: Counter,
    queries: Counter,
    from_kept: Counter,
    breaks: Counter,
    request: Histogram,
    query: Histogram,
    kept: Gauge,
    kept_bytes: Gauge,
    waiting: Gauge,
    ready: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(SECONDS);
        let mut metrics = Self {
            registry: Registry::with_prefix("jaguar_gateway"),
            requests: Family::default(),
            inputs: Counter::default(),
            queries: Counter::default(),
            from_kept: Counter::default(),
            breaks: Counter::default(),
            request: seconds(),
            query: seconds(),
            kept: Gauge::default(),
            kept_bytes: Gauge::default(),
            waiting: Gauge::default(),
            ready: Gauge::default(),
        };
        let Self { registry, requests, inputs, queries, from_kept, breaks, .. } = &mut metrics;
        registry.register(
            "requests",
            "Requests answered, by protocol and status (of gRPC its own)",
            requests.clone(),
        );
        registry.register("inputs", "Inputs answered", inputs.clone());
        registry.register("queries", "Queries that the server answered", queries.clone());
        registry.register("queries_kept", "Those of them that were prepared before", from_kept.clone());
        registry.register("breaks", "Connections to the server that broke", breaks.clone());
        let Self { registry, request, query, kept, kept_bytes, waiting, ready, .. } = &mut metrics;
        let time = "Time of answered requests to infer, waiting included";
        registry.register_with_unit("request", time, Unit::Seconds, request.clone());
        registry.register_with_unit("query", "Time of answered queries", Unit::Seconds, query.clone());
        registry.register("kept_queries", "Prepared queries that are there now", kept.clone());
        registry.register_with_unit("kept", "Memory that they hold here", Unit::Bytes, kept_bytes.clone());
        registry.register("waiting_inputs", "Inputs that wait for their answers", waiting.clone());
        registry.register("ready", "1 where the server is there and queries are prepared", ready.clone());
        metrics
    }
}

impl Metrics {
    pub fn kept(&self, stock: Stock) {
        self.kept.set(stock.queries.into());
        self.kept_bytes.set(stock.bytes as i64);
    }

    pub fn asked(&self, inputs: usize, time: Duration, kept: bool) {
        self.inputs.inc_by(inputs as u64);
        self.queries.inc();
        self.from_kept.inc_by(kept.into());
        self.query.observe(time.as_secs_f64());
    }

    pub fn broke(&self) {
        self.breaks.inc();
    }

    pub fn answered(&self, protocol: Protocol, status: u16) {
        self.requests.get_or_create(&Request { protocol, status }).inc();
    }

    pub fn inferred(&self, time: Duration) {
        self.request.observe(time.as_secs_f64());
    }

    /// All of them, as OpenMetrics has them.
    pub fn text(&self, ready: bool, waiting: usize) -> String {
        self.ready.set(ready.into());
        self.waiting.set(waiting as i64);
        let mut text = String::new();
        // (A string takes all that is written.)
        let _ = encode(&mut text, &self.registry);
        text
    }
}
