//! Every target on its seeds, on what a fuzzer has found (`fuzz/corpus`), and on inputs that are made up here, the same ones each
//! time: no panic, and no more memory than the bound.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jaguar_fuzz::{Bound, Target, check, files, fix_randomness, fixed, offers, sessions, targets};
use jaguar_ring::prg::{Prg, with_insecure_fixed_randomness};

/// What a fuzzer has found for a target, in the order of the names.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One of `inputs`, changed in a few places.
fn changed(inputs: &[Vec<u8>], prg: &mut Prg, longest: usize) -> Vec<u8> {
    let mut below = |count: usize| (prg.next_u64() % count as u64) as usize;
    let mut input = inputs[below(inputs.len())].clone();
    for _ in 0..=below(4) {
        let at = below(input.len() + 1);
        match below(5) {
            0 => input.truncate(at),
            1 => input.insert(at, below(256) as u8),
            2 => input.splice(at..at, [0xff; 4]).for_each(drop),
            _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
        }
    }
    input.truncate(longest);
    input
}

/// Sessions have many seeds, each of which takes a session: some of them do here.
const MOST_SEEDS: usize = 40;

/// One test at a time: memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn no_reader_panics_or_takes_memory_without_bound() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fix_randomness(|seed, f| with_insecure_fixed_randomness(seed, f));
    for target in targets() {
        let start = std::time::Instant::now();
        let seeds = fixed(1, target.seeds);
        let mut prg = Prg::new(*blake3::hash(target.name.as_bytes()).as_bytes());
        // What is recorded once belongs to no input.
        (0..6).for_each(|how| fixed(7, || (target.run)(&[how])));
        let most = if target.tried < 50 { target.tried } else { MOST_SEEDS.max(seeds.len()) };
        let kept = kept(target.name);
        let some = seeds.iter().step_by(seeds.len().div_ceil(most).max(1));
        let worst = some.chain(&kept).map(|input| check(&target, input)).max().unwrap_or(0);
        let all = [&seeds[..], &kept[..]].concat();
        let tried = (0..target.tried).map(|_| check(&target, &changed(&all, &mut prg, target.longest)));
        let worst = tried.max().unwrap_or(0).max(worst);
        println!("{}: {worst} bytes at most, {} kept, {:.1?}", target.name, kept.len(), start.elapsed());
    }
    // What is changed is something that a peer takes as it is: otherwise no change of it would get far.
    for (i, seed) in fixed(1, offers::network_seeds).iter().enumerate() {
        assert!(fixed(7, || offers::is_taken(seed)), "seed {i} is refused");
    }
    for id in jaguar_fuzz::models::kit().secure() {
        for how in [0, 1, 2, 3, 4, 5] {
            assert!(
                fixed(7, || sessions::goes_through(id.name(), &[how])),
                "{id}: course {how} is not sound"
            );
        }
        assert!(targets().iter().any(|target| target.name == format!("session-{id}")), "{id} is not fuzzed");
    }
    files::clean_up();
}

/// A reader that trusts a length, and one that panics, are found.
#[test]
fn a_reader_that_is_wrong_is_found() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fix_randomness(|seed, f| with_insecure_fixed_randomness(seed, f));
    let target = |run| Target {
        name: "wrong",
        run,
        seeds: Vec::new,
        bound: Bound { fixed: 1 << 20, per_byte: 1000 },
        longest: 4,
        tried: 0,
    };
    let trusting = target(|input| {
        let length = u32::from_le_bytes(input.try_into().unwrap()) as usize;
        std::hint::black_box(Vec::<u8>::with_capacity(length));
    });
    let panicking = target(|input| assert!(input[0] < 3));
    let found =
        |target: &Target, input: &[u8]| catch_unwind(AssertUnwindSafe(|| check(target, input))).is_err();
    assert!(!found(&trusting, &[0, 1, 0, 0]) && found(&trusting, &[0, 0, 0, 16]));
    assert!(!found(&panicking, &[2, 0, 0, 0]) && found(&panicking, &[3, 0, 0, 0]));
}
