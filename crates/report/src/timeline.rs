//! When both parties did what: a trace of `jaguar predict --trace` as a page.
//!
//! The trace comes in the format of Chrome's viewer (*Trace Event Format*, Google 2016). What a server says of its own times is in
//! it, so nothing here trusts a number.

use std::collections::BTreeSet;

use askama::Template;
use jaguar_graph::network::Part;
use serde::Deserialize;
use serde_json::Value;

use crate::{Frame, NodeKind, ReportError, mib, render};

/// Queries beyond so many have a row in the table, and no drawing.
const DRAWN: usize = 6;

/// A query's table has so many layers, those that took longest.
const LAYERS: usize = 12;

/// Parts of a drawing's width that are too narrow to be seen are left out.
const NARROW: f64 = 0.15;

/// The width of a drawing, in units of its SVG.
const WIDTH: f64 = 1000.0;

/// An event of the trace, as the trace viewers' format has it.
#[derive(Clone, Debug, Deserialize)]
struct Event {
    name: String,
    #[serde(default)]
    cat: String,
    ph: String,
    pid: u32,
    #[serde(default)]
    tid: u64,
    /// When it began, in microseconds.
    #[serde(default)]
    ts: u64,
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "otherData", default)]
    other: Value,
}

#[derive(Template)]
#[template(path = "timeline.html")]
struct Page {
    frame: Frame,
    /// Which model was asked, and at which server.
    about: String,
    queries: Vec<Query>,
    drawn: usize,
    all: usize,
    total: Row,
    kinds: [NodeKind; NodeKind::ALL.len()],
}

/// A query, with its drawing and its table.
struct Query {
    input: String,
    /// How far the server's clock may be off, in milliseconds.
    uncertainty: String,
    stages: Vec<Stage>,
    layers: Vec<LayerRow>,
    /// How many layers are not in the table.
    more: usize,
    row: Row,
}

/// Times and bytes of a query, as text.
struct Row {
    offline: String,
    online: String,
    waited: [String; 2],
    up: String,
    down: String,
}

/// One stage of a query, drawn.
struct Stage {
    name: &'static str,
    takes: String,
    parties: [Track; 2],
    marks: Vec<String>,
}

struct Track {
    party: &'static str,
    /// In words: how long it worked and waited.
    words: String,
    spans: Vec<Span>,
    waits: Vec<(String, String)>,
    /// Below each other, the threads of the party's pool.
    threads: Vec<Vec<(String, String)>>,
}

impl Track {
    /// Of its drawing.
    fn height(&self) -> usize {
        26 + 4 * self.threads.len()
    }

    /// The same on the page.
    fn pixels(&self) -> usize {
        self.height() * 8 / 5
    }

    /// Where the `index`-th thread is drawn.
    fn at(&self, index: &usize) -> usize {
        28 + 4 * index
    }
}

struct Span {
    x: String,
    width: String,
    class: &'static str,
    title: String,
}

struct LayerRow {
    name: String,
    operation: String,
    /// Working milliseconds: client offline, server offline, client online, server online.
    millis: [String; 4],
    up: String,
    down: String,
    rounds: u64,
}

/// The page of a trace, given as JSON; `about` says what was run, and where.
///
/// # Errors
/// When it is no trace, or the system gives no random bytes.
pub fn page(trace: &Value, about: &str) -> Result<String, ReportError> {
    let file = File::deserialize(trace)?;
    let complete: Vec<&Event> = file.events.iter().filter(|e| e.ph == "X").collect();
    complete.iter().filter(|e| is_work(e)).try_for_each(|e| kind(e).map(drop))?;
    let clocks = file.other.get("server_clock").and_then(Value::as_array);
    let mut asked: Vec<&Event> =
        complete.iter().filter(|e| e.cat == "query" && e.pid == CLIENT).copied().collect();
    asked.sort_by_key(|e| e.ts);
    let own: Vec<[Vec<&Event>; 2]> = queries(&complete, asked.len());
    let all = asked.len();
    let mut queries = Vec::with_capacity(all);
    for (number, (query, parties)) in asked.iter().zip(&own).enumerate() {
        let clock = clocks.and_then(|c| c.get(number)).and_then(|c| c.get("uncertainty_ms"));
        let uncertainty = clock.and_then(Value::as_f64).map_or_else(|| "?".into(), |ms| format!("{ms:.2}"));
        let input = short(query.args.get("input").and_then(Value::as_str).unwrap_or("?"));
        let drawn = number < DRAWN;
        let stages = if drawn { stages(parties) } else { Vec::new() };
        let (layers, more) = if drawn { layers(parties) } else { (Vec::new(), 0) };
        queries.push(Query {
            input,
            uncertainty,
            stages,
            layers,
            more,
            row: row(std::slice::from_ref(parties)),
        });
    }
    let page = Page {
        frame: Frame::new()?,
        about: about.to_owned(),
        drawn: all.min(DRAWN),
        all,
        total: row(&own),
        queries,
        kinds: NodeKind::ALL,
    };
    render(&page)
}

/// The parties' process numbers, as `predict --trace` gives them.
const CLIENT: u32 = 1;
const SERVER: u32 = 2;

/// What belongs to each query: at either party, what lies within the query's own event on its lane. Both parties' queries are in the
/// order of their ends, which is the order in which they were added.
fn queries<'a>(complete: &[&'a Event], count: usize) -> Vec<[Vec<&'a Event>; 2]> {
    let mut own = vec![[Vec::new(), Vec::new()]; count];
    for (party, process) in [CLIENT, SERVER].into_iter().enumerate() {
        let mut number = None;
        // A query's event comes before what it holds.
        for &event in complete.iter().filter(|e| e.pid == process) {
            if event.cat == "query" {
                number = Some(number.map_or(0, |n: usize| n + 1));
            }
            if let Some(query) = number.and_then(|n| own.get_mut(n)) {
                query[party].push(event);
            }
        }
    }
    own
}

/// The last two parts of a path.
fn short(path: &str) -> String {
    let from = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    path[from..].to_owned()
}

fn is_work(event: &Event) -> bool {
    matches!(event.cat.as_str(), "offline" | "online" | "hint")
}

/// What kind of operation the work is for.
///
/// # Errors
/// Where the trace does not say it, or says what is not known here.
fn kind(event: &Event) -> Result<NodeKind, ReportError> {
    let part = event.args.get("kind").and_then(|kind| Part::deserialize(kind).ok());
    part.map(NodeKind::of).ok_or_else(|| ReportError::Kind(event.name.clone()))
}

fn seconds(microseconds: u64) -> String {
    format!("{:.2}", microseconds as f64 * 1e-6)
}

fn figure(event: &Event, what: &str) -> f64 {
    event.args.get(what).and_then(Value::as_f64).unwrap_or(0.0)
}

/// From the first to the last of what a party did in a stage.
fn around(events: &[&Event], online: bool) -> Option<(u64, u64)> {
    let own = || events.iter().filter(|e| is_work(e) && (e.cat == "online") == online);
    Some((own().map(|e| e.ts).min()?, own().map(|e| e.ts.saturating_add(e.dur)).max()?))
}

fn row(queries: &[[Vec<&Event>; 2]]) -> Row {
    let length = |online| -> u64 {
        let of =
            |parties: &[Vec<&Event>; 2]| around(&parties[0], online).map_or(0, |(start, end)| end - start);
        queries.iter().map(of).fold(0, u64::saturating_add)
    };
    let sum = |party: usize, what: &str| -> f64 {
        queries.iter().flat_map(|q| &q[party]).filter(|e| is_work(e)).map(|e| figure(e, what)).sum()
    };
    Row {
        offline: seconds(length(false)),
        online: seconds(length(true)),
        waited: [0, 1].map(|party| format!("{:.2}", sum(party, "waiting_ms") * 1e-3)),
        up: mib(sum(0, "bytes_up") as u64),
        down: mib(sum(0, "bytes_down") as u64),
    }
}

fn stages(parties: &[Vec<&Event>; 2]) -> Vec<Stage> {
    let stage = |(name, online): (&'static str, bool)| {
        let ends = parties.iter().filter_map(|events| around(events, online));
        let (start, end) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let length = (end - start).max(1);
        let place = |at: u64| WIDTH * (at.clamp(start, end) - start) as f64 / length as f64;
        let parties =
            [(0, "client"), (1, "server")].map(|(i, party)| track(party, &parties[i], online, &place));
        let marks = marks(length);
        Some(Stage { name, takes: seconds(length), parties, marks })
    };
    [("Offline, before the input", false), ("Online, with the input", true)]
        .into_iter()
        .filter_map(stage)
        .collect()
}

/// Times at five places of an axis that takes `length` microseconds, with their unit.
fn marks(length: u64) -> Vec<String> {
    let (unit, name) = if length < 2_000_000 { (1e3, "ms") } else { (1e6, "s") };
    let at = |i: u32| length as f64 / unit * f64::from(i) / 4.0;
    let places = if at(4) < 10.0 {
        2
    } else if at(4) < 100.0 {
        1
    } else {
        0
    };
    // (A server may claim any time.)
    if at(4) >= 1e5 {
        return vec!["0".into(), format!("{:.1e} {name}", at(4))];
    }
    let mark = |i| match i {
        0 => "0".to_owned(),
        4 => format!("{:.places$} {name}", at(i)),
        _ => format!("{:.places$}", at(i)),
    };
    (0..=4).map(mark).collect()
}

fn track(party: &'static str, events: &[&Event], online: bool, place: &dyn Fn(u64) -> f64) -> Track {
    let bounds = |e: &Event| (place(e.ts), place(e.ts.saturating_add(e.dur)));
    let own: Vec<&&Event> = events.iter().filter(|e| is_work(e) && (e.cat == "online") == online).collect();
    let sum = |what: &str| own.iter().map(|e| figure(e, what)).sum::<f64>() * 1e-3;
    let span = |e: &&&Event| {
        let (from, to) = bounds(e);
        let operation = e.args.get("operation").and_then(Value::as_str).unwrap_or("");
        let kind = kind(e).ok()?;
        let working =
            format!("{:.1} ms working, {:.1} ms waiting", figure(e, "working_ms"), figure(e, "waiting_ms"));
        (to - from >= NARROW).then(|| Span {
            x: format!("{from:.2}"),
            width: format!("{:.2}", to - from),
            class: if e.cat == "hint" { "hint" } else { kind.class() },
            title: format!("{}, {operation}: {working}", e.name),
        })
    };
    let within = around(events, online).unwrap_or_default();
    let wait = |e: &&&Event| {
        let (from, to) = bounds(e);
        let inside = e.ts >= within.0 && e.ts < within.1;
        (inside && to - from >= NARROW).then(|| (format!("{from:.2}"), format!("{:.2}", to - from)))
    };
    let of = |cat: &'static str| events.iter().filter(move |e| e.cat == cat);
    let ids: BTreeSet<u64> = of("thread").map(|e| e.tid).collect();
    let thread = |id: u64| of("thread").filter(|e| e.tid == id).filter_map(|e| wait(&e)).collect();
    let busy = of("thread")
        .filter(|e| e.ts >= within.0 && e.ts < within.1)
        .map(|e| e.dur)
        .fold(0, u64::saturating_add);
    let mut words = format!("{party}: works {:.2} s, waits {:.2} s", sum("working_ms"), sum("waiting_ms"));
    if !ids.is_empty() {
        words += &format!("; its {} other threads work {} s together", ids.len(), seconds(busy));
    }
    Track {
        party,
        words,
        spans: own.iter().filter_map(span).collect(),
        waits: of("waiting").filter_map(|e| wait(&e)).collect(),
        threads: ids.into_iter().map(thread).collect(),
    }
}

/// The layers that both parties worked on for longest, and how many others there are.
fn layers(parties: &[Vec<&Event>; 2]) -> (Vec<LayerRow>, usize) {
    struct Sum<'a> {
        name: &'a str,
        operation: &'a str,
        working: [f64; 4],
        bytes: [f64; 2],
        rounds: f64,
    }
    let mut sums: Vec<Sum<'_>> = Vec::new();
    for (party, events) in parties.iter().enumerate() {
        for event in events.iter().filter(|e| is_work(e)) {
            let name = event.name.strip_prefix("hint of ").unwrap_or(&event.name);
            let operation = event.args.get("operation").and_then(Value::as_str).unwrap_or("");
            // (Networks have layers of one name: a ReLU that the importer moved is called as what it followed.)
            let at = match sums.iter().position(|s| (s.name, s.operation) == (name, operation)) {
                Some(at) => at,
                None => {
                    sums.push(Sum { name, operation, working: [0.0; 4], bytes: [0.0; 2], rounds: 0.0 });
                    sums.len() - 1
                }
            };
            let sum = &mut sums[at];
            sum.working[party + 2 * usize::from(event.cat == "online")] += figure(event, "working_ms");
            if party == 0 {
                sum.bytes[0] += figure(event, "bytes_up");
                sum.bytes[1] += figure(event, "bytes_down");
                sum.rounds += figure(event, "rounds");
            }
        }
    }
    let all = |s: &Sum<'_>| s.working.iter().sum::<f64>();
    sums.sort_by(|a, b| all(b).total_cmp(&all(a)));
    let more = sums.len().saturating_sub(LAYERS);
    let layer = |s: &Sum<'_>| LayerRow {
        name: s.name.to_owned(),
        operation: s.operation.to_owned(),
        millis: s.working.map(|ms| if ms < 0.005 { "–".into() } else { format!("{ms:.2}") }),
        up: mib(s.bytes[0] as u64),
        down: mib(s.bytes[1] as u64),
        rounds: s.rounds as u64,
    };
    (sums.iter().take(LAYERS).map(layer).collect(), more)
}
