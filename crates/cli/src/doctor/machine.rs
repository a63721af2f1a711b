//! The program, the processor, the clock, memory and handles.

use std::fs;
use std::time::SystemTime;

use jaguar::machine::measure::{aes_kernel, processor};
use jaguar::machine::memory::room;
use jaguar::machine::store;
use jaguar::plan::PROTOCOL_VERSION;
use jaguar::reports::terminal::table::bytes;
use jaguar::wire::tcp::WIRE_VERSION;
use jaguar::{Cpu, Kernel};

use super::date::{DAY, day, seconds};
use super::{Cache, Findings};
use crate::kit::kit;

/// Below so much, few networks run.
const LITTLE_MEMORY: u64 = 512 << 20;

/// Handles that a server with 8 clients may have open at once, those who have not greeted included; and twice the default number
/// of clients, metrics and all.
const HANDLES: [u64; 2] = [128, 512];

pub(super) fn look(cache: &Cache<'_>, findings: &mut Findings) {
    findings.ok(
        "program",
        format!(
            "jaguar {}, protocol {PROTOCOL_VERSION}, wire version {WIRE_VERSION}",
            env!("CARGO_PKG_VERSION")
        ),
    );
    processor_and_kernels(cache, findings);
    clock(findings);
    memory(findings);
    handles(findings);
}

fn processor_and_kernels(Cache(cache): &Cache<'_>, findings: &mut Findings) {
    let cpu = Cpu::detect();
    let kernel = Kernel::of(cpu);
    let (aes, hardware) = aes_kernel();
    let threads = jaguar::reports::terminal::threads();
    let found =
        format!("{}, {threads} threads; linear layers by {}, AES by {aes}", processor(), kernel.name());
    if kernel == Kernel::SCALAR || !hardware {
        let advice = "a processor with AVX2 (on Arm: Neon) and AES instructions is several times faster; in a virtual \
                      machine, let it see the host's (QEMU: -cpu host)";
        findings.warn("processor", found, advice);
    } else {
        findings.ok("processor", found);
    }
    match store::known_machine(cpu, &kit(), *cache) {
        Some(_) => findings.ok("measured", "this machine's figures are kept: plans are made by them"),
        None => findings
            .ok("measured", "no figures of this machine: the first `jaguar serve` takes seconds for them"),
    }
}

/// The clock against the date of this program's file. (What it may be off by there is a day, for time zones of makers.)
fn clock(findings: &mut Findings) {
    let now = seconds(SystemTime::now());
    let made = std::env::current_exe().and_then(fs::metadata).and_then(|file| file.modified()).map(seconds);
    match made {
        Ok(made) if now + DAY < made => findings.fail(
            "clock",
            format!("it says {}, and this program's file is of {}", day(now), day(made)),
            "set the clock (NTP, chrony, systemd-timesyncd): certificates are not valid yet, or not any more, by a wrong one",
        ),
        _ => findings.ok("clock", format!("{} (UTC)", day(now))),
    }
}

fn memory(findings: &mut Findings) {
    match room() {
        None => findings.warn("memory", "this system does not tell how much is free", "look at it yourself"),
        Some(room) => {
            let found = format!("{} are {}", bytes(room.bytes), room.bound.words());
            if room.bytes < LITTLE_MEMORY {
                findings.warn("memory", found, "end other programs, or raise the container's limit");
            } else {
                findings.ok("memory", found);
            }
        }
    }
}

/// The limit of open files, as Linux tells it.
fn handles(findings: &mut Findings) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(limit) = limits.lines().find_map(|line| line.strip_prefix("Max open files")) else {
        return;
    };
    let most = limit.split_whitespace().next().and_then(|soft| soft.parse::<u64>().ok());
    let [needed, comfortable] = HANDLES;
    let advice = "raise it: ulimit -n 4096, or LimitNOFILE=4096 in the systemd unit";
    match most {
        Some(most) if most < needed => {
            findings.fail("handles", format!("{most} files and connections at once"), advice);
        }
        Some(most) if most < comfortable => {
            findings.warn("handles", format!("{most} files and connections at once"), advice);
        }
        Some(most) => findings.ok("handles", format!("{most} files and connections at once")),
        None => findings.ok("handles", "any number of files and connections at once"),
    }
}
