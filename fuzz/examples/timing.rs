//! Whether kernels on secret data take a time that depends on the data.
//!
//!     make test-timing
//!
//! Two ways of looking, on the same cases.
//!
//! - *Time* (after Reparaz, Balasch and Verbauwhede, *Dude, is my code constant time?*, DATE 2017, ePrint 2016/1123): each case
//!   runs many times, in random order on a fixed secret and on random ones. Welch's t compares the two classes' times, all of them
//!   and without the slowest ones, which other work on the machine makes. |t| beyond 4.5 is a reason to look again, beyond 10 a leak.
//! - *Secrets as undefined memory* (after Langley's ctgrind), `--secrets` under valgrind's memcheck: secrets are marked as undefined, and memcheck
//!   reports each branch and each address that depends on them. It needs no statistics; it sees the code as compiled, on the instructions that
//!   valgrind knows (AVX2, not AVX-512).
//!
//! The last two cases leak on purpose: a comparison that ends at the first difference, and a table lookup. Without a name, all
//! cases run.

use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_fuzz::doubles::{Recording, Replay};
use jaguar_mpc::{Block, Elementwise, Nonlinear, Party, ProductParams, ReluParams, run_blocks};
use jaguar_net::TokenFile;
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{CotSource, Hash, Role, Width, combinations};
use jaguar_ring::prg::Prg;
use jaguar_ring::sample::{noise, ternary};
use jaguar_ring::{Kernel, LimbPlanes, Multiplier, PackedWeights, Term, spa_gemm};
use jaguar_wire::{Channel, memory_transports};

/// Where secrets lie in memory, and how many bytes.
type Place = (*const u8, usize);

fn place<T>(secrets: &[T]) -> Place {
    (secrets.as_ptr().cast(), size_of_val(secrets))
}

/// Which secrets: fixed ones or random ones. A mask, not a branch.
#[derive(Clone, Copy)]
struct Class(u64);

impl Class {
    const RANDOM: Self = Self(!0);

    fn new(fixed: bool) -> Self {
        Self(black_box(u64::from(fixed).wrapping_sub(1)))
    }

    /// One of two words.
    fn of(self, fixed: u64, random: u64) -> u64 {
        fixed ^ ((fixed ^ random) & black_box(self.0))
    }
}

/// Something with secrets in it.
trait Case {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether it leaks on purpose.
    fn is_planted(&self) -> bool {
        false
    }

    /// Puts other secrets in place: the fixed ones, or random ones. By the same steps in the same memory: what is measured begins
    /// with what they leave in caches and in the processor's predictions.
    fn set(&mut self, class: Class, prg: &mut Prg);

    /// The secrets, as they lie in memory.
    fn secrets(&mut self) -> Place;

    /// What is measured.
    fn run(&mut self);

    /// What is looked at while the secrets count as undefined: with what [`set`](Self::set) does with them, if it does something.
    fn run_on_secrets(&mut self) {
        self.run();
    }
}

// ---- Kernels ----

const N: usize = 2048;

fn kernel() -> Kernel {
    Kernel::of(Cpu::detect())
}

/// Noise from a generator's bytes.
struct Noise([u8; 32], Vec<i8>);

impl Case for Noise {
    fn name(&self) -> &'static str {
        "noise of a polynomial"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.0);
        self.0.iter_mut().for_each(|byte| *byte = class.of(7, u64::from(*byte)) as u8);
    }

    fn secrets(&mut self) -> Place {
        place(&self.0)
    }

    fn run(&mut self) {
        noise(kernel(), &mut Prg::new(self.0), &mut self.1);
    }
}

/// A ternary secret. Bytes from 243 on are refused, and time depends on how many those are, not on the others. So both classes
/// draw anew each time, and differ in nothing but the values that they wrote before.
struct Ternary([u8; 32], Vec<i8>);

impl Case for Ternary {
    fn name(&self) -> &'static str {
        "ternary secret"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        // (Where too many bytes are refused at first, it draws again, and how many is what is told. Not here.)
        while {
            prg.fill(&mut self.0);
            let mut first = [0; N.div_ceil(5) * 17 / 16 + 2];
            Prg::new(self.0).fill(&mut first);
            first.iter().filter(|&&byte| byte < 243).count() < N.div_ceil(5)
        } {}
        self.1.fill(class.of(0, 1) as i8);
    }

    fn secrets(&mut self) -> Place {
        place(&self.0)
    }

    fn run(&mut self) {
        ternary(kernel(), &mut Prg::new(self.0), &mut self.1);
    }
}

/// A product in the ring of 2^48 with a ternary secret, its transform included.
struct Product {
    multiplier: Multiplier,
    words: Vec<u64>,
    secret: Vec<i8>,
    out: Vec<u64>,
}

impl Product {
    fn new() -> Self {
        let words = (0..N as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16).collect();
        Self { multiplier: Multiplier::new(kernel(), N), words, secret: vec![0; N], out: vec![0; N] }
    }
}

impl Case for Product {
    fn name(&self) -> &'static str {
        "ring product with a secret"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        ternary(kernel(), prg, &mut self.secret);
        self.secret.iter_mut().for_each(|value| *value = class.of(0, *value as u64) as i8);
    }

    fn secrets(&mut self) -> Place {
        place(&self.secret)
    }

    fn run(&mut self) {
        let secret = self.multiplier.prepare_small(&self.secret);
        self.multiplier.multiply_into(&self.words, 48, &secret, &mut self.out);
    }
}

/// The server's product of secret weights with what the client sent.
struct Weights {
    planes: LimbPlanes,
    terms: Vec<Term>,
    weights: Vec<i16>,
    packed: Option<PackedWeights>,
    out: Vec<u64>,
}

const OUTS: usize = 16;
const LEN: usize = 256;
const WEIGHT_BITS: u32 = 12;

impl Weights {
    fn new() -> Self {
        let mut planes = LimbPlanes::new(kernel(), 48, 4, LEN + 8);
        let terms: Vec<Term> = (0..36).map(|i| Term { row: i / 9, offset: i % 8 }).collect();
        for row in 0..4 {
            let words: Vec<u64> =
                (0..LEN as u64 + 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16).collect();
            planes.set_row(row, &words);
        }
        let weights = vec![0; OUTS * terms.len()];
        Self { planes, terms, weights, packed: None, out: vec![0; OUTS * LEN] }
    }

    fn pack(&mut self) {
        // (Where the former ones were.)
        self.packed = None;
        self.packed = Some(PackedWeights::new(OUTS, self.terms.len(), WEIGHT_BITS, &self.weights));
    }
}

impl Case for Weights {
    fn name(&self) -> &'static str {
        "product with secret weights"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        let most = (1 << (WEIGHT_BITS - 1)) - 1;
        for weight in &mut self.weights {
            *weight = class.of(0, prg.next_u64() % (2 * most + 1)) as i16;
            *weight -= class.of(0, most) as i16;
        }
        self.pack();
    }

    fn secrets(&mut self) -> Place {
        place(&self.weights)
    }

    fn run(&mut self) {
        let packed = self.packed.as_ref().expect("they were set");
        spa_gemm(&self.planes, &self.terms, packed, LEN, &mut self.out, LEN);
    }

    fn run_on_secrets(&mut self) {
        self.pack();
        self.run();
    }
}

/// Zeros, or random blocks.
fn draw(blocks: &mut [jaguar_ot::Block], class: Class, prg: &mut Prg) {
    for block in blocks {
        let [low, high] = [prg.next_u64(), prg.next_u64()].map(|word| u128::from(class.of(0, word)));
        block.0 = high << 64 | low;
    }
}

/// The pads of correlated OTs.
struct Pads {
    hash: Hash,
    halves: Vec<jaguar_ot::Block>,
    out: Vec<jaguar_ot::Block>,
}

impl Case for Pads {
    fn name(&self) -> &'static str {
        "pads of oblivious transfers"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        draw(&mut self.halves, class, prg);
    }

    fn secrets(&mut self) -> Place {
        place(&self.halves)
    }

    fn run(&mut self) {
        self.hash.pads(5, &[jaguar_ot::Block::ZERO], &self.halves, &mut self.out);
    }
}

/// All sums of four secret deltas.
struct Sums([jaguar_ot::Block; 4]);

impl Case for Sums {
    fn name(&self) -> &'static str {
        "sums of the deltas"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        draw(&mut self.0, class, prg);
    }

    fn secrets(&mut self) -> Place {
        place(&self.0)
    }

    fn run(&mut self) {
        for _ in 0..64 {
            black_box(combinations(black_box(&self.0)));
        }
    }
}

/// The online part of a nonlinear layer, at one party. Of a ReLU: comparison, selection, masking. Of a product: openings, and what
/// follows from them.
struct Online {
    name: &'static str,
    layer: Box<dyn Nonlinear>,
    role: Role,
    bits: u32,
    heard: Vec<Vec<u8>>,
    shares: Vec<u64>,
    prepared: Option<(Vec<Block>, Channel)>,
}

const VALUES: usize = 512;

impl Online {
    fn prepare(layer: &dyn Nonlinear, role: Role, channel: &mut Channel) -> Vec<Block> {
        let mut party = Party::new(role, InsecureTestDealer::new(5, role));
        let party: &mut Party<dyn CotSource> = &mut party;
        layer.prepare(party, channel).expect("a sound preparation")
    }

    fn new(name: &'static str, layer: Box<dyn Nonlinear>, role: Role, bits: u32) -> Self {
        let (a, b) = memory_transports();
        let ((a, client), (b, server)) = (Recording::new(a), Recording::new(b));
        let run = |role, mut channel: Channel| {
            let blocks = Self::prepare(&*layer, role, &mut channel);
            let inputs = blocks.last().expect("it is not empty").inputs().end;
            run_blocks(blocks, &mut channel, &vec![1; inputs]).expect("a sound run");
            channel.flush().expect("a sound run");
            inputs
        };
        let inputs = std::thread::scope(|scope| {
            let client = scope.spawn(|| run(Role::Client, Channel::new(a)));
            scope.spawn(|| run(Role::Server, Channel::new(b)));
            client.join().expect("a sound run")
        });
        let heard = if role == Role::Client { client } else { server };
        Self { name, layer, role, bits, heard: heard.chunks(), shares: vec![0; inputs], prepared: None }
    }

    fn relu(name: &'static str, role: Role) -> Self {
        Self::new(name, Box::new(Elementwise { count: VALUES, params: ReluParams::new(16) }), role, 16)
    }

    fn product(name: &'static str, role: Role) -> Self {
        // (Each takes as much as ten others to prepare.)
        let params = ProductParams { out_bits: 24, shift: 20, guard_bits: 8, offsets: [-3, 5] };
        Self::new(name, Box::new(Elementwise { count: VALUES / 8, params }), role, params.ring_bits())
    }
}

impl Case for Online {
    fn name(&self) -> &'static str {
        self.name
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill_words(&mut self.shares, self.bits);
        self.shares.iter_mut().for_each(|share| *share = class.of(0, *share));
        let mut channel = Replay::channel(self.heard.clone());
        self.prepared = Some((Self::prepare(&*self.layer, self.role, &mut channel), channel));
    }

    fn secrets(&mut self) -> Place {
        place(&self.shares)
    }

    fn run(&mut self) {
        let (blocks, mut channel) = self.prepared.take().expect("it was set");
        black_box(run_blocks(blocks, &mut channel, &self.shares).expect("a recorded run"));
    }
}

/// Whose token it is: the right one, or others.
struct Tokens {
    file: TokenFile,
    known: Vec<u8>,
    token: Vec<u8>,
}

impl Tokens {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-timing-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let known = TokenFile::add(&path, "somebody").expect("a new file");
        for i in 0..20 {
            TokenFile::add(&path, &format!("other-{i}")).expect("a new name");
        }
        // The bytes behind the prefix: what a client shows.
        let text = known.secret_text();
        let digits = &text[text.len() - 64..];
        let known: Vec<u8> =
            (0..32).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("digits")).collect();
        let file = TokenFile::open(&path).expect("it was written");
        assert!(file.find(&known).is_ok_and(|name| name.as_deref() == Some("somebody")));
        Self { file, token: known.clone(), known }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let path = std::env::temp_dir().join(format!("jaguar-timing-{}", std::process::id()));
        let _ = fs::remove_file(path);
    }
}

impl Case for Tokens {
    fn name(&self) -> &'static str {
        "token"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.token);
        // Right but for its last bit: who compares from the beginning takes longest.
        for (i, (byte, &known)) in self.token.iter_mut().zip(&self.known).enumerate() {
            *byte = class.of(u64::from(known ^ u8::from(i == 31)), u64::from(*byte)) as u8;
        }
    }

    fn secrets(&mut self) -> Place {
        place(&self.token)
    }

    fn run(&mut self) {
        black_box(self.file.find(&self.token).expect("the file is there"));
    }
}

// ---- Leaks on purpose ----

/// Ends at the first difference.
struct EarlyExit {
    known: Vec<u8>,
    given: Vec<u8>,
}

impl Case for EarlyExit {
    fn name(&self) -> &'static str {
        "PLANTED comparison that ends early"
    }

    fn is_planted(&self) -> bool {
        true
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.given);
        for (byte, &known) in self.given.iter_mut().zip(&self.known) {
            *byte = class.of(u64::from(known), u64::from(*byte)) as u8;
        }
    }

    fn secrets(&mut self) -> Place {
        place(&self.given)
    }

    fn run(&mut self) {
        black_box(self.known.iter().zip(&self.given).position(|(a, b)| black_box(a) != b));
    }
}

/// Reads a table at secret places: all the same, or all over it.
struct Lookup {
    table: Vec<u64>,
    places: Vec<u32>,
}

impl Case for Lookup {
    fn name(&self) -> &'static str {
        "PLANTED table lookup"
    }

    fn is_planted(&self) -> bool {
        true
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        let all = self.table.len() as u64;
        self.places.iter_mut().for_each(|place| *place = class.of(0, prg.next_u64() % all) as u32);
    }

    fn secrets(&mut self) -> Place {
        place(&self.places)
    }

    fn run(&mut self) {
        let sum = self.places.iter().fold(0u64, |sum, &place| {
            // (The next place waits for this value.)
            sum.wrapping_add(black_box(self.table[place as usize]))
        });
        black_box(sum);
    }
}

// ---- Time ----

/// Samples of one class.
#[derive(Default, Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, x: f64) {
        self.count += 1.0;
        let off = x - self.mean;
        self.mean += off / self.count;
        self.squares += off * (x - self.mean);
    }

    fn variance(self) -> f64 {
        self.squares / (self.count - 1.0).max(1.0)
    }
}

/// Welch's t: the difference of the means in units of its standard error.
fn welch([a, b]: [Moments; 2]) -> f64 {
    let error = (a.variance() / a.count + b.variance() / b.count).sqrt();
    if error == 0.0 { 0.0 } else { (a.mean - b.mean) / error }
}

/// The t furthest from zero: of all samples, and of those below three percentiles.
fn worst_t(samples: &[(bool, f64)]) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    [1.0, 0.99, 0.9, 0.5].map(at).into_iter().fold(0.0, |worst: f64, limit| {
        let mut classes = [Moments::default(); 2];
        samples.iter().filter(|s| s.1 <= limit).for_each(|s| classes[usize::from(s.0)].add(s.1));
        let t = welch(classes);
        if classes.iter().all(|class| class.count > 10.0) && t.abs() > worst.abs() { t } else { worst }
    })
}

/// Times a case so many times, each class about as often, in an order that says nothing.
fn sample(case: &mut dyn Case, samples: usize) -> Vec<(bool, f64)> {
    let (mut order, mut prg) = (Prg::new([1; 32]), Prg::new([2; 32]));
    let warm = samples / 20;
    let mut found = Vec::with_capacity(samples);
    for i in 0..samples + warm {
        let fixed = order.next_u64() & 1 == 1;
        case.set(Class::new(fixed), &mut prg);
        let start = Instant::now();
        case.run();
        let time = start.elapsed().as_nanos() as f64;
        if i >= warm {
            found.push((fixed, time));
        }
    }
    found
}

/// Beyond this there is a leak.
const LEAK: f64 = 10.0;

/// What other work on the machine made goes away when it is measured again: a leak does not.
const TRIES: usize = 3;

fn time(cases: &mut [Box<dyn Case>], samples: usize) -> bool {
    println!("{:36} {:>9} {:>12} {:>9}", "case", "samples", "median, ns", "t");
    let mut sound = true;
    for case in cases {
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let found = sample(&mut **case, samples);
            let mut times: Vec<f64> = found.iter().map(|s| s.1).collect();
            times.sort_by(f64::total_cmp);
            let t = worst_t(&found);
            println!("{:36} {samples:9} {:12.0} {t:9.2}", case.name(), times[times.len() / 2]);
            if t.abs() < least.abs() {
                least = t;
            }
            if least.abs() < LEAK {
                break;
            }
        }
        sound &= (least.abs() >= LEAK) == case.is_planted();
    }
    sound
}

// ---- Secrets as undefined memory ----

/// Tells memcheck that these bytes are undefined, or defined. Without valgrind it does nothing.
#[cfg(target_arch = "x86_64")]
fn mark((block, len): Place, undefined: bool) {
    // From memcheck.h: `MC` in the two highest bytes, and 1 or 2.
    let request: [usize; 6] = [0x4d43_0000 + if undefined { 1 } else { 2 }, block as usize, len, 0, 0, 0];
    // SAFETY: valgrind's request sequence. The rotations add up to 128 bits, so rdi is as before; rbx is exchanged with itself. What
    // memory holds is not changed.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") request.as_ptr(), inout("rdx") 0usize => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn mark(_: Place, _: bool) {}

/// Runs each case once on undefined secrets. Memcheck says what it found.
fn secrets(cases: &mut [Box<dyn Case>]) {
    let mut prg = Prg::new([3; 32]);
    for case in cases {
        case.set(Class::RANDOM, &mut prg);
        let place = case.secrets();
        println!("{}: {} secret bytes", case.name(), place.1);
        mark(place, true);
        case.run_on_secrets();
        mark(place, false);
    }
}

fn cases() -> Vec<Box<dyn Case>> {
    let blocks = || vec![jaguar_ot::Block::ZERO; 256];
    let hash = Hash::new(jaguar_ot::Block(77), Role::Client, Width::Bit);
    vec![
        Box::new(Noise([0; 32], vec![0; N])),
        Box::new(Ternary([0; 32], vec![0; N])),
        Box::new(Product::new()),
        Box::new(Weights::new()),
        Box::new(Pads { hash, halves: blocks(), out: blocks() }),
        Box::new(Sums([jaguar_ot::Block::ZERO; 4])),
        Box::new(Online::relu("ReLU online, client", Role::Client)),
        Box::new(Online::relu("ReLU online, server", Role::Server)),
        Box::new(Online::product("product of values online, client", Role::Client)),
        Box::new(Online::product("product of values online, server", Role::Server)),
        Box::new(Tokens::new()),
        Box::new(EarlyExit { known: (0..4096).map(|i| i as u8).collect(), given: vec![0; 4096] }),
        Box::new(Lookup { table: (0..1 << 20).collect(), places: vec![0; 2048] }),
    ]
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let by_memory = arguments.iter().position(|a| a == "--secrets").map(|at| arguments.remove(at)).is_some();
    let samples = arguments.iter().position(|a| a == "--samples").map(|at| {
        arguments.remove(at);
        arguments.remove(at).parse().expect("a number of samples")
    });
    let mut cases = cases();
    cases.retain(|case| arguments.is_empty() || arguments.iter().any(|a| case.name().contains(a.as_str())));
    if by_memory {
        secrets(&mut cases);
        return ExitCode::SUCCESS;
    }
    if time(&mut cases, samples.unwrap_or(20_000)) {
        return ExitCode::SUCCESS;
    }
    eprintln!("a kernel's time depends on its secrets, or a planted leak was not found");
    ExitCode::FAILURE
}
