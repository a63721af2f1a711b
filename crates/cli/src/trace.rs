//! Timelines of both parties in the format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev): *Trace Event Format*,
//! Google 2016, "complete", "counter" and "metadata" events, times in microseconds.
//!
//! A process for each party, on it a *lane* (a thread, for the viewer) for each query that is under way at the same time,
//! and in that spans that nest: query, stage, layer (or the part of the hint that a layer lacked), waiting. Below them are the
//! threads of the party's pool, with when they worked for a query. The server's times are as the server tells them, moved onto the client's clock by what
//! `jaguar::timeline` estimates; how far they may be off is in `otherData`.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use jaguar::bundle::files;
use jaguar::report::{Cost, Report, Row};
use jaguar::reports::timeline;
use jaguar::timeline::{PartyTimes, Span, Timeline};
use jaguar::wire::{Clock, Stage, SystemClock};
use serde_json::{Value, json};

use crate::page::is_page;

/// The parties' numbers in the trace, where processes have theirs.
const CLIENT: u32 = 1;
const SERVER: u32 = 2;

/// The queries' timelines that were collected so far.
pub struct Trace {
    origin: Duration,
    events: Vec<Value>,
    /// When how many bytes had gone up and down beyond those before.
    bytes: Vec<(u64, [u64; 2])>,
    clocks: Vec<Value>,
    /// By party: when the last query of each lane ends.
    lanes: [Vec<u64>; 2],
    /// By party: when each thread that worked for it had done so.
    threads: [Vec<u64>; 2],
}

/// The first thread of a pool has this number in the trace, behind all lanes.
const POOL: usize = 1000;

/// A stretch of time in microseconds, `start <= end`.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
}

/// One layer's stretch in one stage.
struct Leaf<'a> {
    name: String,
    stage: &'static str,
    row: &'a Row,
    cost: Cost,
    cots: u64,
    waited: f64,
    time: Stretch,
}

impl Trace {
    /// All times will count from now.
    pub fn new() -> Self {
        Self {
            origin: SystemClock.now(),
            events: Vec::new(),
            bytes: Vec::new(),
            clocks: Vec::new(),
            lanes: Default::default(),
            threads: Default::default(),
        }
    }

    /// Adds the query that `input` was asked in, if its times were asked for.
    pub fn add(&mut self, input: &str, report: &Report) {
        let Some(timeline) = &report.timeline else { return };
        let began = timeline.origin.saturating_sub(self.origin).as_secs_f64();
        for (process, times) in [(CLIENT, &timeline.client), (SERVER, &timeline.server)] {
            let leaves = leaves(report, times, began);
            if process == CLIENT {
                let spent = |l: &Leaf<'_>| (l.time.end, [l.cost.bytes_up, l.cost.bytes_down]);
                self.bytes.extend(leaves.iter().map(spent));
            }
            let all = Span { start: 0.0, length: timeline.length, waited: 0.0 };
            let all = (process == CLIENT).then(|| stretch(&all, began, 0));
            self.party(process, input, &leaves, &times.waits, (began, all));
            self.pool(process, &times.threads, began);
        }
        self.clocks.push(clock(input, timeline));
    }

    fn party(
        &mut self,
        process: u32,
        input: &str,
        leaves: &[Leaf<'_>],
        waits: &[Span],
        (began, all): (f64, Option<Stretch>),
    ) {
        let around = |leaves: &mut dyn Iterator<Item = &Leaf<'_>>| {
            let all: Vec<Stretch> = leaves.map(|l| l.time).collect();
            Some(Stretch { start: all.first()?.start, end: all.last()?.end })
        };
        let Some(mut query) = around(&mut leaves.iter()) else { return };
        // Before the first layer the keys are exchanged, and after the last the result is waited for.
        let mut end = 0;
        let waits: Vec<Stretch> = waits
            .iter()
            .map(|wait| {
                let time = stretch(wait, began, end);
                end = time.end;
                time
            })
            .collect();
        let outer = all.into_iter().chain(waits.iter().copied());
        query = outer.fold(query, |q, s| Stretch { start: q.start.min(s.start), end: q.end.max(s.end) });
        let lane = self.lane(process, query);
        let mut edges = Vec::new();
        let mut emit = |name: &str, category: &str, time: Stretch, args: Value| {
            self.events.push(json!({
                "name": name, "cat": category, "ph": "X", "pid": process, "tid": lane + 1,
                "ts": time.start, "dur": time.end - time.start, "args": args,
            }));
        };
        emit("query", "query", query, json!({ "input": input }));
        for (name, online) in [("before the input", false), ("with the input", true)] {
            if let Some(stage) = around(&mut leaves.iter().filter(|l| (l.stage == "online") == online)) {
                emit(name, "stage", stage, json!({}));
                edges.extend([stage.start, stage.end]);
            }
        }
        for leaf in leaves {
            let seconds = (leaf.time.end - leaf.time.start) as f64 * 1e-6;
            let waited = leaf.waited.min(seconds);
            let args = json!({
                "operation": leaf.row.operation,
                "kind": leaf.row.kind,
                "waiting_ms": waited * 1e3,
                "working_ms": (seconds - waited) * 1e3,
                "bytes_up": leaf.cost.bytes_up,
                "bytes_down": leaf.cost.bytes_down,
                "rounds": leaf.cost.rounds,
                "correlated_ots": leaf.cots,
            });
            emit(&leaf.name, leaf.stage, leaf.time, args);
            edges.extend([leaf.time.start, leaf.time.end]);
        }
        // Each wait lies in one leaf, or beside all; where the borders were rounded, a sliver may reach over.
        edges.sort_unstable();
        for Stretch { mut start, end } in waits {
            let first = edges.partition_point(|&e| e <= start);
            for &edge in edges[first..].iter().take_while(|&&e| e < end).chain([&end]) {
                if start < edge {
                    emit("waiting", "waiting", Stretch { start, end: edge }, json!({}));
                    start = edge;
                }
            }
        }
    }

    /// What a party's threads did, behind its query. (As with [`lane`](Self::lane), queries may overlap at the server: what comes
    /// later begins behind what was there.)
    fn pool(&mut self, process: u32, threads: &[Vec<Span>], began: f64) {
        let ends = &mut self.threads[process as usize - 1];
        ends.resize(threads.len().max(ends.len()), 0);
        for (thread, (worked, end)) in threads.iter().zip(ends).enumerate() {
            for span in worked {
                let time = stretch(span, began, *end);
                *end = time.end;
                self.events.push(json!({
                    "name": "working", "cat": "thread", "ph": "X", "pid": process, "tid": POOL + thread,
                    "ts": time.start, "dur": time.end - time.start, "args": {},
                }));
            }
        }
    }

    /// The first lane of a party in which nothing overlaps this query. (Where the server's clock stands is known to within a
    /// round trip; so queries that followed each other may overlap at the server.)
    fn lane(&mut self, process: u32, query: Stretch) -> usize {
        let lanes = &mut self.lanes[process as usize - 1];
        let lane = lanes.iter().position(|&end| end <= query.start).unwrap_or(lanes.len());
        lanes.resize(lanes.len().max(lane + 1), 0);
        lanes[lane] = query.end;
        lane
    }

    /// Writes the file: a page if its name says so, else the viewer's format. `about` says what was run, and where.
    pub fn write(mut self, path: &Path, about: &str) -> Result<()> {
        let mut events = Vec::new();
        for (process, party) in [(CLIENT, "client"), (SERVER, "server")] {
            let named = |what: &str, thread: usize, name: String| json!({ "name": what, "ph": "M", "pid": process, "tid": thread, "args": { "name": name } });
            events.push(named("process_name", 0, party.to_owned()));
            for lane in 1..=self.lanes[process as usize - 1].len() {
                events.push(named("thread_name", lane, format!("queries, lane {lane}")));
            }
            for thread in 0..self.threads[process as usize - 1].len() {
                events.push(named("thread_name", POOL + thread, format!("thread {}", thread + 1)));
            }
        }
        events.append(&mut self.events);
        self.bytes.sort_unstable();
        let mut sum = [0u64; 2];
        for (at, bytes) in &self.bytes {
            sum = [0, 1].map(|i| sum[i].saturating_add(bytes[i]));
            events.push(json!({
                "name": "bytes", "ph": "C", "pid": CLIENT, "tid": 0, "ts": at,
                "args": { "up": sum[0], "down": sum[1] },
            }));
        }
        let trace = json!({
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": { "version": env!("CARGO_PKG_VERSION"), "server_clock": self.clocks },
        });
        if is_page(path) {
            let page = timeline::page(&trace, about)?;
            return Ok(files::save(path, page.as_bytes())?);
        }
        Ok(files::save(path, &serde_json::to_vec(&trace)?)?)
    }
}

/// How the server's times of one query came onto the client's clock.
fn clock(input: &str, timeline: &Timeline) -> Value {
    json!({
        "input": input,
        "method": "the middle of the query's first round trip",
        "round_trip_ms": timeline.round_trip * 1e3,
        "uncertainty_ms": timeline.uncertainty() * 1e3,
    })
}

/// On the trace's clock, not before `earliest`.
fn stretch(span: &Span, began: f64, earliest: u64) -> Stretch {
    // (Casts from floating point saturate.)
    let start = (((began + span.start) * 1e6).round() as u64).max(earliest);
    let end = (((began + span.start + span.length) * 1e6).round() as u64).max(start);
    Stretch { start, end }
}

/// All that one party did, in order and without overlap, whatever it claims.
fn leaves<'a>(report: &'a Report, times: &PartyTimes, began: f64) -> Vec<Leaf<'a>> {
    let mut end = 0;
    let mut leaves = Vec::new();
    let mut counted = HashSet::new();
    let online = |w: &&(Stage, usize, Span)| w.0 == Stage::Online;
    let before = times.work.iter().filter(|w| !online(w));
    for &(stage, node, ref span) in before.chain(times.work.iter().filter(online)) {
        let Some(row) = report.rows.get(node) else { continue };
        let (stage, cost) = match stage {
            Stage::Online => ("online", row.online),
            Stage::Offline => ("offline", row.offline),
            Stage::Client | Stage::Model => ("hint", row.hint),
        };
        // Of a node's pieces the first tells what all of them cost.
        let first = counted.insert((stage, node));
        let cost = if first { cost } else { Cost::default() };
        let cots = if first && stage == "offline" { row.cots } else { 0 };
        let time = stretch(span, began, end);
        end = time.end;
        let name = if stage == "hint" { format!("hint of {}", row.name) } else { row.name.clone() };
        leaves.push(Leaf { name, stage, row, cost, cots, waited: span.waited, time });
    }
    leaves
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A report of three layers, at whose server the times are `spans` for each stage of each layer.
    fn report(origin: Duration, spans: &[Span]) -> Report {
        let row = || Row {
            name: "layer".into(),
            operation: "conv".into(),
            kind: jaguar::network::Part::Linear,
            ciphertexts: 1,
            responses: 1,
            cots: 7,
            hint: Cost::default(),
            offline: Cost::default(),
            online: Cost { bytes_up: 10, ..Cost::default() },
        };
        let times = |spans: &[Span]| {
            let mut waits = spans.to_vec();
            waits.sort_by(|a, b| a.start.total_cmp(&b.start));
            let stages = [Stage::Client, Stage::Offline, Stage::Online].repeat(3);
            let work = stages.into_iter().zip(spans).enumerate();
            let work = work.map(|(i, (stage, span))| (stage, i % 3, *span)).collect();
            PartyTimes { work, waits, threads: vec![spans.to_vec()] }
        };
        let timeline =
            Timeline { origin, length: 9.0, client: times(spans), server: times(spans), round_trip: 0.01 };
        Report {
            kept: None,
            server_keeps: jaguar::Stock::default(),
            session: jaguar::plan::predict::Session::default(),
            protocol: "jaguar".into(),
            leaks: None,
            rows: vec![row(), row(), row()],
            model: Cost::default(),
            client: Cost::default(),
            offline: Cost::default(),
            online: Cost::default(),
            hint_seconds: 0.0,
            offline_seconds: 0.0,
            online_seconds: 0.0,
            client_peak_kib: 0,
            server_peak_kib: 0,
            timeline: Some(timeline),
        }
    }

    /// The server's clock is known to within a round trip: of two queries, a thread's work may seem to overlap.
    #[test]
    fn a_threads_work_for_two_queries_does_not_overlap() {
        let mut trace = Trace::new();
        let span = |start, length| Span { start, length, waited: 0.0 };
        let work = [span(0.0, 0.5), span(0.5, 0.25), span(1.0, 0.5)];
        for _ in 0..2 {
            trace.add("picture", &report(trace.origin + Duration::from_millis(5), &work));
        }
        for process in [CLIENT, SERVER] {
            let of = |e: &&Value| e["pid"] == process && e["cat"] == "thread";
            let mut end = 0;
            for event in trace.events.iter().filter(of) {
                let (start, length) = (event["ts"].as_u64().unwrap(), event["dur"].as_u64().unwrap());
                assert!(start >= end, "{event} before {end}");
                end = start + length;
            }
            assert_eq!(trace.events.iter().filter(of).count(), 6);
        }
    }

    fn nested(spans: &[Span]) -> usize {
        let mut trace = Trace::new();
        let query = report(trace.origin + Duration::from_millis(5), spans);
        trace.add("picture", &query);
        for process in [CLIENT, SERVER] {
            let mut all: Vec<(u64, u64)> = trace
                .events
                .iter()
                .filter(|e| e["pid"] == process && e["cat"] != "thread")
                .map(|e| (e["ts"].as_u64().unwrap(), e["ts"].as_u64().unwrap() + e["dur"].as_u64().unwrap()))
                .collect();
            all.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
            let mut open: Vec<u64> = Vec::new();
            for (start, end) in all {
                open.retain(|&outer| outer > start);
                assert!(open.iter().all(|&outer| outer >= end), "{start} to {end} within {open:?}");
                open.push(end);
            }
        }
        trace.events.len()
    }

    /// The middle layer is prepared in three pieces, the last one runs in three.
    #[test]
    fn a_layers_pieces_count_its_costs_once() {
        let spans: Vec<Span> =
            (0..9).map(|i| Span { start: f64::from(i), length: 0.75, waited: 0.0 }).collect();
        let mut trace = Trace::new();
        let query = report(trace.origin, &spans);
        trace.add("picture", &query);
        for process in [CLIENT, SERVER] {
            let all = |what: &str| -> u64 {
                let of = trace.events.iter().filter(|e| e["pid"] == process);
                of.filter_map(|e| e["args"][what].as_u64()).sum()
            };
            assert_eq!((all("correlated_ots"), all("bytes_up")), (7, 10));
        }
    }

    #[test]
    fn spans_nest_whatever_a_server_claims() {
        let span = |start: f64, length: f64| Span { start, length, waited: length / 2.0 };
        // In order: two parties, each with a query, two stages, nine layers' parts and a wait in each.
        let orderly: Vec<Span> = (0..9).map(|i| span(f64::from(i), 0.75)).collect();
        assert!(nested(&orderly) >= 2 * (1 + 2 + 9 + 9));
        // Backwards, all at once, before the beginning, and beyond every number.
        nested(&orderly.iter().rev().copied().collect::<Vec<_>>());
        nested(&[span(1.0, 5.0); 9]);
        nested(&[span(-3.0, 2.5); 9]);
        nested(&[span(1e300, 1e300), span(0.0, 1.0), span(0.5, 0.1)].repeat(3));
    }
}
