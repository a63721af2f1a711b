//! The coverage-guided fuzzer: libFuzzer, on one target. `tools/fuzz.py` builds and runs it.
//!
//! | variable | meaning |
//! |---|---|
//! | `JAGUAR_FUZZ_TARGET` | which target; without it, the names of all are printed |
//! | `JAGUAR_FUZZ_SEEDS` | a folder: the target's seeds are written there, and nothing is run |

#![no_main]

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use jaguar_fuzz::{Target, check, fix_randomness, targets};
use jaguar_ring::prg::with_insecure_fixed_randomness;
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

/// The most that an input took, beyond what it may take whatever its length.
static WORST: AtomicUsize = AtomicUsize::new(0);

fn choose() {
    fix_randomness(|seed, f| with_insecure_fixed_randomness(seed, f));
    let name = std::env::var("JAGUAR_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = targets().into_iter().find(|target| target.name == name) else {
        targets().iter().for_each(|target| println!("{} {}", target.name, target.longest));
        std::process::exit(i32::from(!name.is_empty()));
    };
    if let Some(folder) = std::env::var_os("JAGUAR_FUZZ_SEEDS") {
        let seeds = jaguar_fuzz::fixed(1, target.seeds);
        for (i, seed) in seeds.iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("seed-{i:03}")), seed)
                .expect("the folder takes files");
        }
        std::process::exit(0);
    }
    // What is recorded once belongs to no input.
    (0..32).for_each(|how| jaguar_fuzz::fixed(7, || (target.run)(&[how])));
    TARGET.get_or_init(|| target);
}

fuzz_target!(init: choose(), |input: &[u8]| {
    let target = TARGET.get().expect("chosen before the first input");
    let peak = check(target, input);
    if WORST.fetch_max(peak, Ordering::Relaxed) < peak {
        eprintln!("worst: {peak} bytes for {} bytes of input", input.len());
    }
});
