//! What memory holds when it is freed: no share of a value between layers, no seed that a party drew, nothing that was drawn from
//! such a seed first (Δ of the OT extension among them), no secret polynomial.
//!
//! A session runs twice with the same randomness. The first run tells what to look for; in the second an allocator looks at
//! each block before it gives it back. What went over the wire is no secret between the parties, and is not looked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::with_insecure_fixed_randomness;
use jaguar_ring::sample::ternary;
use zeroize::{Zeroize, Zeroizing};

use super::curves::curves;
use super::products::products;
use super::*;

/// What to look for: hashes of windows of 64-bit words.
struct Patterns {
    /// A bit for each hash's last bits: most blocks hold none of them.
    filter: Vec<u64>,
    /// Of two words, and of four; sorted.
    hashes: [Vec<u64>; 2],
}

const FILTER_BITS: u32 = 24;

fn hash(words: &[u64]) -> u64 {
    let mixed = words.iter().fold(words.len() as u64, |h, w| {
        (h.rotate_left(23) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    });
    mixed ^ mixed >> 29
}

impl Patterns {
    fn new(pairs: &[[u64; 2]], fours: &[[u64; 4]]) -> Self {
        let mut hashes =
            [pairs.iter().map(|w| hash(w)).collect(), fours.iter().map(|w| hash(w)).collect::<Vec<u64>>()];
        let places = 1 << (FILTER_BITS - 6);
        let mut filter = vec![0; places];
        for all in &mut hashes {
            all.sort_unstable();
            for h in all.iter() {
                filter[(h >> 6) as usize & (places - 1)] |= 1 << (h & 63);
            }
        }
        Self { filter, hashes }
    }

    fn has(&self, words: &[u64]) -> bool {
        let h = hash(words);
        self.filter[(h >> 6) as usize & (self.filter.len() - 1)] >> (h & 63) & 1 == 1
            && self.hashes[words.len() / 4].binary_search(&h).is_ok()
    }
}

/// None: nobody looks.
static PATTERNS: AtomicPtr<Patterns> = AtomicPtr::new(std::ptr::null_mut());

/// Every block is wiped when it is freed, and was looked at: nothing of what is done meanwhile is found later, in a block that is used
/// again. (What one backend may send, and so need not wipe, is drawn from the same seeds as another one's secrets.)
static WIPING: AtomicBool = AtomicBool::new(false);

/// Blocks that held one.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// One look at a time.
static LOOKS: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread is telling of what it found, or is none of the session's.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// This thread is one of the session that is looked at. Other tests run beside it, and free the same inputs.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

struct Looking;

#[global_allocator]
static LOOKING: Looking = Looking;

/// Looks for patterns in a block that is about to be freed.
///
/// # Safety
/// The block must be allocated, of this length.
unsafe fn look(patterns: &Patterns, block: *const u8, len: usize) {
    // SAFETY: all reads are within the block. They are volatile: some of its bytes may never have been written.
    let word = |i: usize| unsafe { block.cast::<u64>().add(i).read_unaligned() };
    let words = len / 8;
    let mut window = [0; 4];
    for i in 0..words {
        window.rotate_left(1);
        window[3] = std::hint::black_box(word(i));
        if i >= 1 && patterns.has(&window[2..]) || i >= 3 && patterns.has(&window) {
            FOUND.fetch_add(1, Ordering::SeqCst);
            if std::env::var_os("JAGUAR_FREED_TRACE").is_some() {
                let trace = std::backtrace::Backtrace::force_capture();
                eprintln!("a block of {len} bytes holds a pattern at word {i}:\n{trace}");
            }
            return;
        }
    }
}

// SAFETY: every call is the system allocator's own; what is freed is read first, within its length.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    // (Growing is the trait's own: a new block, a copy, and the old one is freed here.)
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let patterns = PATTERNS.load(Ordering::Acquire);
        if !patterns.is_null() && OURS.get() && !BUSY.replace(true) {
            // SAFETY: patterns are never freed; the block is the caller's, of this length.
            unsafe { look(&*patterns, block, layout.size()) };
            BUSY.set(false);
        }
        if WIPING.load(Ordering::Relaxed) {
            // SAFETY: the block is the caller's, of this length.
            unsafe { block.write_bytes(0, layout.size()) };
            // (What is freed next counts as read.)
            std::hint::black_box(block);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How many blocks with a pattern `f` frees, on this thread or on one that [`ours`] has made.
fn found(patterns: &'static Patterns, f: impl FnOnce()) -> usize {
    OURS.set(true);
    FOUND.store(0, Ordering::SeqCst);
    PATTERNS.store(std::ptr::from_ref(patterns).cast_mut(), Ordering::Release);
    f();
    PATTERNS.store(std::ptr::null_mut(), Ordering::Release);
    FOUND.load(Ordering::SeqCst)
}

fn alone() -> MutexGuard<'static, ()> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Words at every eighth byte.
fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
}

/// Shares by role and node.
type Seen = Mutex<BTreeMap<(usize, usize), Zeroizing<Vec<u64>>>>;

const SEEDS: [u8; 2] = [201, 202];

/// Threads that are looked at.
fn ours() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(3).start_handler(|_| OURS.set(true)).build().unwrap()
}

/// A session with two queries. `seen` gets every share, and the bytes that passed are returned.
fn run(service: &Service, reveal: Reveal, seen: Option<&Seen>) -> Vec<Vec<u8>> {
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    let keep = |role: usize, node: usize, share: &[u64]| {
        if let Some(seen) = seen {
            seen.lock().unwrap().insert((role, node), Zeroizing::new(share.to_vec()));
        }
    };
    let [server_threads, client_threads] = [ours(), ours()];
    thread::scope(|scope| {
        let serve = || {
            with_insecure_fixed_randomness([SEEDS[1]; 32], || {
                service.serve_observed(Channel::new(b), &mut |_| (), &mut |node, share| keep(1, node, share))
            })
        };
        let ask = || {
            with_insecure_fixed_randomness([SEEDS[0]; 32], || {
                let mut ready = connect(Channel::new(recorder), &Limits::default())
                    .unwrap()
                    .prepare_client(HintPlace::Memory)
                    .unwrap();
                let x = Zeroizing::new(input(9, 3 * 17 * 15));
                for _ in 0..2 {
                    let prepared = ready.prepare_query(&mut NoProgress).unwrap();
                    let mut observe = |node: usize, share: &[u64]| keep(0, node, share);
                    let (prediction, _, next) =
                        prepared.run_observed(&x, &mut NoProgress, &mut observe).unwrap();
                    assert_eq!(matches!(prediction[..], [Prediction::Label(_)]), reveal == Reveal::Label);
                    ready = next;
                }
                ready.leave().unwrap();
            });
        };
        let server = scope.spawn(|| server_threads.install(serve));
        let client = scope.spawn(|| client_threads.install(ask));
        client.join().unwrap();
        server.join().unwrap().unwrap();
    });
    vec![transcript.sent(), transcript.received()]
}

/// All windows of four words.
fn fours(words: &[u64]) -> impl Iterator<Item = [u64; 4]> {
    words.windows(4).map(|w| w.try_into().expect("four"))
}

/// Those of a share that tell it from other data: small numbers and repetitions are everywhere.
fn of_share(share: &[u64]) -> impl Iterator<Item = [u64; 4]> {
    fours(share).filter(|w| w.iter().all(|&word| word > 1 << 8) && (0..4).all(|i| !w[..i].contains(&w[i])))
}

/// What a party draws from the operating system, up to so many bytes.
const DRAWN: usize = 4096;

/// What is looked for, given all shares, of so many nodes, and what passed.
fn patterns(seen: &Seen, nodes: usize, passed: &[Vec<u8>]) -> Patterns {
    let (mut pairs, mut looked_for) = (Vec::new(), Vec::new());
    for ((_, node), share) in seen.lock().unwrap().iter() {
        // (The last one is opened, and the client's input is the caller's.)
        if *node != nodes - 1 && *node != 0 {
            looked_for.extend(of_share(share));
        }
    }
    assert!(looked_for.len() > 1000, "{} windows of shares", looked_for.len());
    for seed in SEEDS {
        let mut drawn = vec![0; DRAWN];
        Prg::new([seed; 32]).fill(&mut drawn);
        pairs.extend(words(&drawn).windows(2).map(|w| [w[0], w[1]]));
        // Every 32 bytes may be the seed of a generator: what comes first from it, and a secret polynomial.
        for own in drawn.chunks_exact(32) {
            let own: [u8; 32] = own.try_into().unwrap();
            let mut stream = vec![0; 1024];
            Prg::new(own).fill(&mut stream);
            // (Δ is odd, whatever was drawn.)
            pairs.extend(words(&stream).windows(2).flat_map(|w| [[w[0], w[1]], [w[0] | 1, w[1]]]));
            let mut secret = vec![0i8; 2048];
            ternary(Kernel::of(Cpu::detect()), &mut Prg::new(own), &mut secret);
            let secret: Vec<u8> = secret.iter().map(|&c| c as u8).collect();
            looked_for.extend(fours(&words(&secret)));
        }
    }
    // What passed is known to both parties.
    let mut public = HashSet::new();
    let wanted: HashSet<u64> = pairs.iter().map(|w| w[0]).chain(looked_for.iter().map(|w| w[0])).collect();
    for bytes in passed {
        for at in 0..bytes.len().saturating_sub(15) {
            let word = |i: usize| u64::from_le_bytes(bytes[at + 8 * i..][..8].try_into().unwrap());
            if wanted.contains(&word(0)) {
                public.insert([word(0), word(1)]);
            }
        }
    }
    pairs.retain(|w| !public.contains(w));
    looked_for.retain(|w| !public.contains(&w[..2]));
    Patterns::new(&pairs, &looked_for)
}

/// What a session of this network and backend leaves behind.
fn left_behind(bundle: fn() -> Bundle, backend: BackendId, reveal: Reveal) -> usize {
    let service = || {
        with_insecure_fixed_randomness([200; 32], || {
            let bundle = bundle();
            let choices = Choices::standard(&bundle.model.network, backend);
            Service::new(bundle, choices, reveal).unwrap()
        })
    };
    let seen = Seen::default();
    let passed = run(&service(), reveal, Some(&seen));
    let patterns: &'static Patterns =
        Box::leak(Box::new(patterns(&seen, bundle().model.network.nodes.len(), &passed)));
    drop(seen);
    let service = service();
    let again = Mutex::new(Vec::new());
    let found = found(patterns, || *again.lock().unwrap() = run(&service, reveal, None));
    // (But for times in the report, it was the same session: the patterns are its own.)
    let again = again.into_inner().unwrap();
    assert_eq!(again[0], passed[0], "what the client sends follows from its randomness");
    found
}

#[test]
fn freed_memory_holds_no_secret_and_no_share() {
    let _alone = alone();
    // (From one backend to the next, too: what passed in a session is freed at its end.)
    WIPING.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for backend in kit().secure().into_iter() {
        all.push((backend.name(), left_behind(everything, backend, Reveal::Logits)));
    }
    all.push(("label", left_behind(everything, Kit::JAGUAR, Reveal::Label)));
    all.push(("products", left_behind(products, Kit::JAGUAR, Reveal::Logits)));
    all.push(("curves", left_behind(curves, Kit::JAGUAR, Reveal::Logits)));
    WIPING.store(false, Ordering::Relaxed);
    assert!(all.iter().all(|(_, found)| *found == 0), "blocks that were not wiped: {all:?}");
}

/// What is dropped as it is, or grows, is found; what is wiped is not.
#[test]
fn a_planted_leak_is_found() {
    let _alone = alone();
    let share: Vec<u64> =
        (0..64u64).map(|i| (i + 5).wrapping_mul(0x9e37_79b9) >> 8 & 0xffff | 0x200).collect();
    let seed = [0x5a, 0xc3, 7, 9, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53].repeat(2);
    let looked_for: Vec<[u64; 4]> = of_share(&share).collect();
    assert!(looked_for.len() > 50);
    let of_seed = [words(&seed)[..2].try_into().unwrap()];
    let patterns: &'static Patterns = Box::leak(Box::new(Patterns::new(&of_seed, &looked_for)));
    let copies = |find: &dyn Fn()| found(patterns, find);
    assert_eq!(copies(&|| drop(std::hint::black_box(share.clone()))), 1);
    assert_eq!(copies(&|| drop(std::hint::black_box(share[7..20].to_vec()))), 1, "a part of it");
    assert_eq!(
        copies(&|| drop(std::hint::black_box([&[1, 2, 3][..], &share].concat()))),
        1,
        "within other data"
    );
    assert_eq!(copies(&|| drop(std::hint::black_box(Box::new(seed.clone())))), 1);
    let grown = || {
        let mut grown = Zeroizing::new(Vec::with_capacity(32));
        grown.extend_from_slice(&share[..32]);
        grown.extend_from_slice(&share[32..]);
        std::hint::black_box(&grown);
    };
    assert_eq!(copies(&grown), 1, "growing leaves a copy");
    let wiped = || {
        let mut copy = std::hint::black_box(share.clone());
        copy.zeroize();
    };
    assert_eq!(copies(&wiped), 0);
    assert_eq!(copies(&|| drop(std::hint::black_box(vec![7u64; 4096]))), 0);
}
