//! One fault at a time, at every message of a way's sessions, and what must hold of how both sides end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jaguar_engine::server::Service;
use jaguar_engine::{EngineError, Stock};
use jaguar_wire::double::link::{At, Fault, SILENCE};
use jaguar_wire::{Clock, Side};

use super::memory;
use super::networks::{CLIENT_STALLED, SERVER_IDLE, Way};
use super::session::{Injection, Outcome, Script, run};

/// What goes wrong with a message. Its first bytes are the length of a control message, or belong to a value.
pub const FAULTS: [Fault; 12] = [
    Fault::Cut,
    Fault::Truncate,
    Fault::Reset,
    Fault::Stall,
    Fault::StallOneWay,
    Fault::Drop,
    Fault::Duplicate,
    Fault::Reorder,
    Fault::Flip { byte: 0, bit: 0 },
    Fault::Flip { byte: 3, bit: 6 },
    Fault::Flip { byte: 5, bit: 1 },
    Fault::Flip { byte: HALF, bit: 4 },
];

/// A byte in the middle of a message, of which the length is known then.
const HALF: usize = usize::MAX;

/// Both sides have ended by then.
const LIMIT: Duration = SILENCE.saturating_add(if CLIENT_STALLED.as_secs() > SERVER_IDLE.as_secs() {
    CLIENT_STALLED
} else {
    SERVER_IDLE
});

/// Bytes that a process may hold more after all faults than before them: what threads and tables keep for later.
const SLACK: i64 = 1 << 18;

/// Whether a session cannot get to its end under this fault, which does not change what arrives.
fn loses(fault: Fault) -> bool {
    matches!(fault, Fault::Cut | Fault::Truncate | Fault::Reset | Fault::Stall | Fault::StallOneWay)
}

/// An error must say which side, and where in the session: a layer and a stage, or a stage and a step.
fn names_side_and_step(error: &EngineError) -> bool {
    // These two come before any step: they name both sides.
    if matches!(error, EngineError::Version { .. } | EngineError::NoCommonProtocol { .. }) {
        return true;
    }
    let text = error.to_string();
    let side = ["the peer", "this side", "the server", "the client"].iter().any(|side| text.contains(side));
    let stages = ["model", "client", "offline", "online"];
    let step = stages
        .iter()
        .any(|stage| text.contains(&format!("({stage}: ")) || text.contains(&format!("', {stage}: ")));
    side && (step || text.contains("', hint: "))
}

/// What a good session is, and what each message of it has as its length.
fn good(service: &Arc<Service>, way: &Way, script: Script, what: &str) -> Outcome {
    let outcome = run(service, way.limits, script, None, what);
    assert!(outcome.panics.is_empty(), "{what}: {:?}", outcome.panics);
    assert!(outcome.client.is_ok(), "{what}: {:?}", outcome.client.as_ref().map_err(ToString::to_string));
    for served in &outcome.servers {
        assert!(served.is_ok(), "{what}: {:?}", served.as_ref().map_err(ToString::to_string));
    }
    assert_eq!(outcome.predictions.len(), 2, "{what}");
    for (query, prediction) in outcome.predictions.iter().enumerate() {
        assert!(way.is_right(prediction, query), "{what}: query {query}: {prediction:?}");
    }
    assert!(outcome.watches.iter().all(|watch| watch.now().is_zero()), "{what}: somebody lost patience");
    assert_eq!(service.kept(), Stock::default(), "{what}");
    outcome
}

/// What does not hold of a session with a fault in it, and must.
pub fn wrong(way: &Way, outcome: &Outcome, fault: Fault) -> Vec<String> {
    let mut wrong = outcome.panics.clone();
    for watch in &outcome.watches {
        if watch.hung() {
            wrong.push("both sides waited for ever".to_owned());
        }
        if watch.now() > LIMIT {
            wrong.push(format!("it took {:?}", watch.now()));
        }
    }
    let results = outcome.servers.iter().chain([&outcome.client]);
    let errors: Vec<&EngineError> = results.filter_map(|result| result.as_ref().err()).collect();
    for error in errors.iter().filter(|error| !names_side_and_step(error)) {
        wrong.push(format!("an error that does not say where: {error}"));
    }
    if loses(fault) {
        if errors.is_empty() {
            wrong.push("nobody noticed".into());
        }
        // Programs tell their users by the kind of the error what to do: here, to ask again.
        let lost =
            |error: &&&EngineError| !matches!(error.root(), EngineError::Wire(_) | EngineError::Idle { .. });
        for error in errors.iter().filter(lost) {
            wrong.push(format!("a lost connection that is said to be something else: {error}"));
        }
        for (query, prediction) in outcome.predictions.iter().enumerate() {
            if !way.is_right(prediction, query) {
                wrong.push(format!("query {query} was answered with {prediction:?}"));
            }
        }
    }
    if outcome.client.is_ok() && outcome.predictions.len() != 2 {
        wrong.push("the client lacks an answer, and has no error".into());
    }
    wrong
}

/// What was injected.
#[derive(Debug, Default)]
pub struct Count {
    pub messages: usize,
    pub faults: usize,
    /// Sessions in which some side ended in an error.
    pub failed: usize,
    by_fault: BTreeMap<String, usize>,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// Injects those faults of a way's sessions that `wanted` picks by their number.
pub fn inject(way: &Way, script: Script, wanted: &dyn Fn(usize) -> bool) -> Count {
    let mut count = Count::default();
    let service = Arc::new(way.service());
    let name = format!("{}, {script:?}", way.name);
    good(&service, way, script, &name);
    let sound = good(&service, way, script, &name);
    let lengths: Vec<[Vec<usize>; 2]> = sound
        .watches
        .iter()
        .map(|watch| [Side::Connecting, Side::Accepting].map(|side| watch.sent(side)))
        .collect();
    drop(sound);
    let before = memory::live();
    let mut number = 0;
    for (link, sides) in lengths.iter().enumerate() {
        for (from, lengths) in [Side::Connecting, Side::Accepting].into_iter().zip(sides) {
            for (message, &length) in lengths.iter().enumerate() {
                count.messages += 1;
                let mut any = false;
                for fault in FAULTS {
                    number += 1;
                    if !wanted(number - 1) {
                        continue;
                    }
                    let fault = match fault {
                        Fault::Flip { byte: HALF, bit } => Fault::Flip { byte: length / 2, bit },
                        other => other,
                    };
                    let what = format!(
                        "{name}: {fault:?} at message {message} ({length} bytes) of connection {link}, from {from:?}"
                    );
                    let injection = Injection { link, at: At { from, message, fault } };
                    let outcome = run(&service, way.limits, script, Some(injection), &what);
                    assert!(outcome.watches[link].happened(), "{what}: there was no such message");
                    let mut bad = wrong(way, &outcome, fault);
                    if service.kept() != Stock::default() {
                        bad.push("something is kept for who has gone".into());
                    }
                    count.wrong.extend(bad.into_iter().map(|bad| format!("{what}: {bad}")));
                    count.failed +=
                        usize::from(outcome.client.is_err() || outcome.servers.iter().any(Result::is_err));
                    count.faults += 1;
                    *count
                        .by_fault
                        .entry(format!("{fault:?}").split(' ').next().unwrap_or_default().into())
                        .or_default() += 1;
                    any = true;
                }
                // The server goes on.
                if any {
                    good(
                        &service,
                        way,
                        script,
                        &format!("{name}, after faults at message {message} from {from:?}"),
                    );
                }
            }
        }
    }
    let more = memory::live() - before;
    assert!(more < SLACK, "{name}: {more} bytes are held after {} faults", count.faults);
    count
}
