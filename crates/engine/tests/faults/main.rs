//! Faults over whole sessions: one at every message, of every protocol. Links have their own time
//! (`jaguar_wire::double::link`), so nothing here waits for real.
//!
//! `cargo test -p jaguar-engine --test faults` injects a sample. All of them, with their number:
//!
//!     cargo test --release -p jaguar-engine --test faults -- --ignored --nocapture
//!
//! `JAGUAR_FAULTS=10` injects every tenth of them, and `JAGUAR_FAULT_WAYS=hyena,mixed` those of the protocols with these
//! names.

mod inject;
mod killed;
mod memory;
mod networks;
mod session;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_engine::client::connect;
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_wire::double::link::{At, Fault};
use jaguar_wire::{Channel, Clock, Side};

use inject::{FAULTS, inject, wrong};
use networks::{Way, kit, ways};
use session::{Injection, Script, run};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// One session at a time: what each leaves behind is counted.
pub static ONE: Mutex<()> = Mutex::new(());

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
