//! A fault at every message of sessions by PMax, as the engine's tests inject them into all others: a sample, and with
//! `--ignored` all. (A program of its own, for what it holds in memory is counted.)

#[path = "../../../../crates/engine/tests/faults/inject.rs"]
mod inject;
#[path = "../../../../crates/engine/tests/faults/memory.rs"]
mod memory;
#[path = "../pmax_leaky/networks.rs"]
mod networks;
#[path = "../../../../crates/engine/tests/faults/session.rs"]
mod session;

use jaguar_engine::client::Reveal;
use jaguar_engine::server::Service;
use jaguar_plan::{Allowed, Kit};
use jaguar_ring::cpu::Cpu;

use inject::{FAULTS, inject};
use networks::{Way, leaky};
use session::Script;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn way() -> Way {
    let mut way = Way::new("pmax-leaky", None, |bundle| {
        let choices = leaky(&bundle, Kit::JAGUAR);
        let allowed = Allowed { leaks: true, ..Allowed::default() };
        Service::allowing(Cpu::detect(), bundle, choices, Reveal::Logits, allowed).expect("a sound plan")
    });
    way.limits.accept_leaks = true;
    way
}

#[test]
fn a_sample_of_faults_ends_in_order() {
    for (which, script) in Script::ALL.into_iter().enumerate() {
        let step = 397 + 12 * which;
        let count = inject(&way(), script, &|fault| fault % step == 7 + which);
        assert!(count.faults > 0 && count.wrong.is_empty(), "{count:#?}");
    }
}

/// With `JAGUAR_FAULTS=10` every tenth.
#[test]
#[ignore = "thousands of sessions"]
fn every_fault_at_every_message_ends_in_order() {
    let step: usize = std::env::var("JAGUAR_FAULTS").map_or(1, |step| step.parse().expect("a number"));
    for script in Script::ALL {
        let count = inject(&way(), script, &|fault| fault % step == 0);
        assert_eq!(count.faults, (count.messages * FAULTS.len()).div_ceil(step));
        println!("{script:?}: {} faults, {} sessions ended in an error", count.faults, count.failed);
        assert!(count.wrong.is_empty(), "{:#?}", count.wrong);
    }
}
