//! Faults over whole sessions: one at every message, of every protocol. Links have their own time
//! (`jaguar_wire::double::link`), so nothing here waits for real.
//!
//! `cargo test -p jaguar-engine --test faults` injects a sample. All of them, with their number:
//!
//!     cargo test --release -p jaguar-engine --test faults -- --ignored --nocapture
//!
//! `JAGUAR_FAULTS=10` injects every tenth of them, and `JAGUAR_FAULT_WAYS=hyena,mixed` those of the protocols with these
//! names.

mod killed;
mod memory;
mod networks;
mod session;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jaguar_engine::client::connect;
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::{EngineError, Stock};
use jaguar_wire::double::link::{At, Fault, SILENCE};
use jaguar_wire::{Channel, Clock, Side};

use networks::{CLIENT_STALLED, SERVER_IDLE, Way, kit, ways};
use session::{Injection, Outcome, Script, run};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// One session at a time: what each leaves behind is counted.
pub static ONE: Mutex<()> = Mutex::new(());

/// What goes wrong with a message. Its first bytes are the length of a control message, or belong to a value.
const FAULTS: [Fault; 12] = [
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
fn good(service: &Arc<jaguar_engine::server::Service>, way: &Way, script: Script, what: &str) -> Outcome {
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
fn wrong(way: &Way, outcome: &Outcome, fault: Fault) -> Vec<String> {
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
struct Count {
    messages: usize,
    faults: usize,
    /// Sessions in which some side ended in an error.
    failed: usize,
    by_fault: BTreeMap<String, usize>,
    /// What must not be.
    wrong: Vec<String>,
}

/// Injects those faults of a way's sessions that `wanted` picks by their number.
fn inject(way: &Way, script: Script, wanted: &dyn Fn(usize) -> bool) -> Count {
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

/// A few faults of every protocol: other ones for each, so that all kinds and all stages have their turn.
#[test]
fn a_sample_of_faults_ends_in_order() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut faults, mut failed) = (0, 0);
    for (number, way) in ways().iter().enumerate() {
        for (which, script) in Script::ALL.into_iter().enumerate() {
            // (Steps without a divisor in common with the number of kinds.)
            let (first, step) = (7 * number + which, 397 + 12 * which);
            let count = inject(way, script, &|fault| fault % step == first % step);
            assert!(count.faults > 0 && count.wrong.is_empty(), "{}: {count:#?}", way.name);
            faults += count.faults;
            failed += count.failed;
        }
    }
    assert!(failed <= faults && failed > faults / 3, "{failed} of {faults}");
    println!("{faults} faults, {failed} sessions ended in an error");
}

/// Every kind of fault at every message of every protocol.
#[test]
#[ignore = "tens of thousands of sessions"]
fn every_fault_at_every_message_ends_in_order() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let step: usize = std::env::var("JAGUAR_FAULTS").map_or(1, |step| step.parse().expect("a number"));
    let named = std::env::var("JAGUAR_FAULT_WAYS").unwrap_or_default();
    let (mut all, mut messages, mut failed) = (0, 0, 0);
    let mut wrong = Vec::new();
    let wanted = |way: &&Way| named.is_empty() || named.split(',').any(|name| name == way.name);
    for way in ways().iter().filter(wanted) {
        for script in Script::ALL {
            let count = inject(way, script, &|fault| fault % step == 0);
            assert_eq!(count.faults, (count.messages * FAULTS.len()).div_ceil(step), "{}", way.name);
            println!("{}, {script:?}: {count:?}", way.name);
            wrong.extend(count.wrong);
            all += count.faults;
            messages += count.messages;
            failed += count.failed;
        }
    }
    println!(
        "{all} faults at {messages} messages; {failed} sessions ended in an error, all others in an answer"
    );
    assert!(all > 0 && wrong.is_empty(), "{wrong:#?}");
}

/// One flipped bit in the name of the model, on the second connection: it cannot be joined, and the error says at which step.
#[test]
fn a_second_connection_with_another_model_says_where() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let way = ways().swap_remove(0);
    let service = Arc::new(way.service());
    let fault = Fault::Flip { byte: 5, bit: 1 };
    let injection = Injection { link: 1, at: At { from: Side::Accepting, message: 1, fault } };
    let outcome = run(&service, way.limits, Script::Kept, Some(injection), "another model");
    assert!(wrong(&way, &outcome, fault).is_empty(), "{:?}", wrong(&way, &outcome, fault));
    let error = outcome.client.expect_err("it is not joined");
    assert!(matches!(error.root(), EngineError::Input(_)), "{error}");
    assert_eq!(
        error.to_string(),
        "the server has another model now, or another plan of it, found by this side (model: handshake)"
    );
}

/// A clock that jumps, forwards and back, as a machine's wall clock may.
struct Jumping(std::sync::atomic::AtomicU64);

impl Clock for Jumping {
    fn now(&self) -> Duration {
        let tick = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Duration::from_secs(tick.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34)
    }
}

/// Times are measured on the session's clock, and limits of time are not: whatever the clock says, the answers are the
/// same.
#[test]
fn a_clock_that_jumps_changes_no_answer() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let way = ways().swap_remove(0);
    let service = way.service();
    let (client, server) = jaguar_wire::memory_transports();
    let clock = || Arc::new(Jumping(0.into()));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| service.serve(Channel::with_clock(server, clock()), &mut |_| ()));
        let connected = connect(&kit(), Channel::with_clock(client, clock()), &way.limits).expect("greeted");
        let mut ready = connected.prepare_client(HintPlace::Memory).expect("set up").with_timeline();
        for query in 0..2 {
            let prepared = ready.prepare_query(&mut NoProgress).expect("prepared");
            let (prediction, report, next) =
                prepared.run(&networks::input(query), &mut NoProgress).expect("run");
            assert!(way.is_right(&prediction, query), "{prediction:?}");
            assert!(report.online_seconds >= 0.0 && report.offline_seconds >= 0.0);
            ready = next;
        }
        ready.leave().expect("left");
        serving.join().expect("no panic").expect("served");
    });
}
