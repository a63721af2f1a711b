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
use std::sync::Arc;
use std::time::Instant;

use jaguar_fuzz::doubles::{Recording, Replay};
use jaguar_mpc::semantics::{Beyond, Pieces};
use jaguar_mpc::{
    ArgmaxParams, Block, CurveParams, Elementwise, ExtendParams, Modulus, Nonlinear, Party, PoolParams,
    PoolShape, Pooling, ProductParams, Range, Relu6Params, ReluParams, SquareParams, TruncateParams,
    run_blocks,
};
use jaguar_net::TokenFile;
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{CotSource, Hash, Role, Width, combinations, steps};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::cpu::secret::{classify, declassify};
use jaguar_ring::prg::Prg;
use jaguar_ring::sample::{noise, ternary};
use jaguar_ring::{Kernel, LimbPlanes, Multiplier, PackedWeights, Term, spa_gemm};
use jaguar_wire::{Channel, memory_transports};

/// What memcheck is told of memory.
#[derive(Clone, Copy)]
enum Mark {
    Secret,
    Public,
}

impl Mark {
    /// Tells it of these values, and gives back how many bytes they have.
    fn on<T: Copy>(self, values: &mut [T]) -> usize {
        match self {
            Self::Secret => classify(values),
            Self::Public => declassify(values),
        }
        size_of_val(values)
    }
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
    fn name(&self) -> &str;

    /// Whether it leaks on purpose.
    fn is_planted(&self) -> bool {
        false
    }

    /// Puts other secrets in place: the fixed ones, or random ones. By the same steps in the same memory: what is measured begins
    /// with what they leave in caches and in the processor's predictions.
    fn set(&mut self, class: Class, prg: &mut Prg);

    /// Marks the secrets, as they lie in memory, and gives back how many bytes that are.
    fn mark(&mut self, mark: Mark) -> usize;

    /// What is measured.
    fn run(&mut self);

    /// Of how many samples one is taken: where each takes long.
    fn share(&self) -> usize {
        1
    }

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
    fn name(&self) -> &str {
        "noise of a polynomial"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.0);
        self.0.iter_mut().for_each(|byte| *byte = class.of(7, u64::from(*byte)) as u8);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.0)
    }

    fn run(&mut self) {
        noise(kernel(), &mut Prg::new(self.0), &mut self.1);
    }
}

/// A ternary secret. Bytes from 243 on are refused, and time depends on how many those are, not on the others. So both classes
/// draw anew each time, and differ in nothing but the values that they wrote before.
struct Ternary([u8; 32], Vec<i8>);

impl Case for Ternary {
    fn name(&self) -> &str {
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

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.0)
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
    fn name(&self) -> &str {
        "ring product with a secret"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        ternary(kernel(), prg, &mut self.secret);
        self.secret.iter_mut().for_each(|value| *value = class.of(0, *value as u64) as i8);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.secret)
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
    fn name(&self) -> &str {
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

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.weights)
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
    fn name(&self) -> &str {
        "pads of oblivious transfers"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        draw(&mut self.halves, class, prg);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.halves)
    }

    fn run(&mut self) {
        self.hash.pads(5, &[jaguar_ot::Block::ZERO], &self.halves, &mut self.out);
    }
}

/// All sums of four secret deltas.
struct Sums([jaguar_ot::Block; 4]);

impl Case for Sums {
    fn name(&self) -> &str {
        "sums of the deltas"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        draw(&mut self.0, class, prg);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.0)
    }

    fn run(&mut self) {
        for _ in 0..64 {
            black_box(combinations(black_box(&self.0)));
        }
    }
}

/// A step of oblivious transfer, with a peer that was recorded, or says what it likes.
struct Transfer {
    name: &'static str,
    /// What the step takes its secrets from: all bytes.
    secrets: Vec<u8>,
    /// Which bits of a byte are drawn.
    drawn: u8,
    heard: Vec<Vec<u8>>,
    step: fn(&[u8], Channel),
    /// A step takes milliseconds: this part of the samples will do.
    share: usize,
}

/// Base OTs, and correlations of an extension, in a step that is measured.
const BASE_OTS: usize = 4;
const EXTENDED: usize = 128;
/// Levels of a tree, and how many leaves a row has at most.
const LEVELS: usize = 8;
const LANES_MOST: usize = 4;

/// What the peer says in a step: its secrets are of no matter.
fn heard(step: impl FnOnce(&mut Channel) + Send, other: impl FnOnce(&mut Channel) + Send) -> Vec<Vec<u8>> {
    let (a, b) = memory_transports();
    let (a, heard) = Recording::new(a);
    std::thread::scope(|scope| {
        scope.spawn(|| other(&mut Channel::new(b)));
        step(&mut Channel::new(a));
    });
    heard.chunks()
}

/// The blocks that these bytes are.
fn blocks(bytes: &[u8]) -> Vec<jaguar_ot::Block> {
    let (whole, _) = bytes.as_chunks();
    whole.iter().map(|bytes| jaguar_ot::Block::from_bytes(*bytes)).collect()
}

fn choose(choices: &[u8], mut channel: Channel) {
    let choices: Vec<bool> = choices.iter().map(|choice| choice & 1 == 1).collect();
    steps::choose(&mut channel, &mut Prg::new([2; 32]), &choices).expect("a sound point");
    channel.flush().expect("nobody is there to be gone");
}

fn offer(seed: &[u8], mut channel: Channel) {
    let seed = seed.try_into().expect("32 bytes");
    steps::offer(&mut channel, &mut Prg::new(seed), BASE_OTS).expect("sound points");
}

/// The check at the end finds that what was recorded belongs to another Δ, in both classes: whether it does is public, and takes a
/// time of its own. So bit 1 is set in each Δ here, and not in the one of the recording.
fn extension_sender(delta: &[u8], mut channel: Channel) {
    let delta = jaguar_ot::Block(blocks(delta)[0].0 | RECORDED_DELTA.0 | 2);
    assert!(black_box(steps::extension_sender(&mut channel, delta, EXTENDED)).is_err(), "it is another one");
}

/// Δ of the recording.
const RECORDED_DELTA: jaguar_ot::Block = jaguar_ot::Block(1);

fn extension_receiver(seed: &[u8], mut channel: Channel) {
    let seed = seed.try_into().expect("32 bytes");
    let rows = steps::extension_receiver(&mut channel, &mut Prg::new(seed), EXTENDED);
    black_box(rows.expect("it only sends"));
}

/// Rows of so many leaves; none: single leaves, whose error is Δ.
fn tree_sender<const LANES: usize>(secrets: &[u8], _: Channel) {
    let secrets = blocks(secrets);
    let mut leaves = vec![jaguar_ot::Block::ZERO; LANES.max(1) << LEVELS];
    let message = &mut [jaguar_ot::Block::ZERO; LEVELS + LANES_MOST][..LEVELS + LANES];
    let halves = &secrets[2..][..LEVELS + LANES];
    steps::tree_sender(secrets[0], secrets[1], halves, LANES, &mut leaves, message);
    black_box((leaves, message));
}

fn tree_receiver<const LANES: usize>(secrets: &[u8], _: Channel) {
    let message = [jaguar_ot::Block(12345); LEVELS + LANES_MOST];
    let mut leaves = vec![jaguar_ot::Block::ZERO; LANES.max(1) << LEVELS];
    steps::tree_receiver(&blocks(secrets)[..LEVELS + LANES], LANES, &message[..LEVELS + LANES], &mut leaves);
    black_box(leaves);
}

impl Transfer {
    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        let prg = || Prg::new([9; 32]);
        let point = heard(
            |channel| steps::choose(channel, &mut prg(), &[]).expect("a sound point"),
            |channel| {
                steps::offer(channel, &mut prg(), 0)
                    .and_then(|()| Ok(channel.flush()?))
                    .expect("a sound step")
            },
        );
        let points = heard(
            |channel| steps::offer(channel, &mut prg(), BASE_OTS).expect("sound points"),
            |channel| {
                steps::choose(channel, &mut prg(), &[false; BASE_OTS]).expect("a sound point");
                channel.flush().expect("the sender listens");
            },
        );
        let columns = heard(
            |channel| drop(steps::extension_sender(channel, RECORDED_DELTA, EXTENDED)),
            |channel| {
                let rows = steps::extension_receiver(channel, &mut prg(), EXTENDED);
                rows.map(drop).and_then(|()| Ok(channel.flush()?)).expect("a sound step");
            },
        );
        let trees = 16 * (2 + LEVELS + LANES_MOST);
        let transfer = |name, bytes, heard, step, share| Self {
            name,
            secrets: vec![0; bytes],
            drawn: 0xff,
            heard,
            step,
            share,
        };
        [
            Self {
                drawn: 1,
                ..transfer("base OTs, receiver", BASE_OTS, point, choose as fn(&[u8], Channel), 10)
            },
            transfer("base OTs, sender", 32, points, offer, 10),
            transfer("OT extension, sender", 16, columns, extension_sender, 10),
            transfer("OT extension, receiver", 32, vec![], extension_receiver, 10),
            transfer("tree of bits, sender", trees, vec![], tree_sender::<0>, 1),
            transfer("tree of bits, receiver", trees, vec![], tree_receiver::<0>, 1),
            transfer("tree of vectors, sender", trees, vec![], tree_sender::<1>, 1),
            transfer("tree of vectors, receiver", trees, vec![], tree_receiver::<1>, 1),
            transfer("tree of lines, sender", trees, vec![], tree_sender::<4>, 1),
            transfer("tree of lines, receiver", trees, vec![], tree_receiver::<4>, 1),
        ]
        .into_iter()
    }
}

impl Case for Transfer {
    fn name(&self) -> &str {
        self.name
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.secrets);
        self.secrets.iter_mut().for_each(|byte| *byte = class.of(0, u64::from(*byte & self.drawn)) as u8);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.secrets)
    }

    fn run(&mut self) {
        (self.step)(&self.secrets, Replay::channel(self.heard.clone()));
    }

    fn share(&self) -> usize {
        self.share
    }
}

/// The online part of a nonlinear layer, at one party. Of a ReLU: comparison, selection, masking. Of a product: openings, and what
/// follows from them.
struct Online {
    name: String,
    layer: Arc<dyn Nonlinear>,
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
        let mut blocks = layer.prepare(party, channel).expect("a sound preparation");
        blocks.iter_mut().try_for_each(|block| block.complete(channel)).expect("a sound preparation");
        channel.flush().expect("a sound preparation");
        blocks
    }

    fn new(name: &str, layer: Arc<dyn Nonlinear>, role: Role, bits: u32) -> Self {
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
        let (heard, party) = if role == Role::Client { (client, "client") } else { (server, "server") };
        let name = format!("{name} online, {party}");
        Self { name, layer, role, bits, heard: heard.chunks(), shares: vec![0; inputs], prepared: None }
    }

    /// Every kind of layer, at this party.
    fn all(role: Role) -> impl Iterator<Item = Self> {
        fn each<P>(count: usize, params: P) -> Arc<Elementwise<P>> {
            Arc::new(Elementwise { count, params })
        }
        let shape = PoolShape { channels: 2, size: [16; 2], kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
        // (Each takes as much as ten others to prepare.)
        let product = ProductParams { out_bits: 24, shift: 20, offsets: [-3, 5] };
        // |x| in 256 pieces.
        let offsets = (0..256).map(|piece: i64| (piece - 128).abs() * 8).collect();
        let slopes = (0..256).map(|piece| if piece < 128 { -4 } else { 4 }).collect();
        let pieces =
            Arc::new(Pieces { low: 8, offset_shift: 7, shift: 2, offsets, slopes, beyond: Beyond::Repeated });
        let curve = CurveParams { bits: 16, out_bits: 16, digit: 4, pieces };
        let (odd, wide) = (Modulus::odd(65537).expect("odd"), Modulus::power_of_two(28));
        let full = Range::Full { digit: 4 };
        let signed = Range::Signed;
        let cut = TruncateParams { bits: 16, out_bits: 16, shift: 4, range: signed };
        let layers: [(&str, Arc<dyn Nonlinear>, u32); 12] = [
            ("ReLU", each(VALUES, ReluParams::new(16)), 16),
            ("ReLU to an odd modulus", each(VALUES, ReluParams { output: odd, ..ReluParams::new(16) }), 16),
            ("clip", each(VALUES, Relu6Params::new(16, 11)), 16),
            ("max-pool", Arc::new(Pooling { shape, params: PoolParams::new(16) }), 16),
            // (Of 16 places: with other shares than the recorded ones, any place may come out.)
            ("argmax", Arc::new(ArgmaxParams { count: 16, bits: 16, digit: 4 }), 16),
            ("product of values", each(VALUES / 8, product), product.ring_bits()),
            ("square of values", each(VALUES / 8, SquareParams(product)), product.ring_bits()),
            ("curve", each(VALUES / 8, curve), 16),
            ("truncation", each(VALUES, cut), 16),
            ("extension", each(VALUES, ExtendParams { bits: 16, output: wide, range: signed }), 16),
            (
                "extension of any value",
                each(VALUES, ExtendParams { bits: 16, output: wide, range: full }),
                16,
            ),
            (
                "extension to an odd modulus",
                each(VALUES, ExtendParams { bits: 16, output: odd, range: signed }),
                16,
            ),
        ];
        // By other comparisons, with 5 bits more.
        let compared: [(&str, Arc<dyn Nonlinear>); 2] =
            [("ReLU", each(VALUES, ReluParams::new(23))), ("clip", each(VALUES, Relu6Params::new(23, 11)))];
        let by = jaguar_fregata::COMPARISONS.iter().flat_map(move |by| {
            let instead = |(name, layer): &(&str, Arc<dyn Nonlinear>)| {
                Some((format!("{name} by {}", by.name()), by.instead(&**layer, 5)?, 23))
            };
            compared.iter().filter_map(instead).collect::<Vec<_>>()
        });
        let own = layers.into_iter().map(|(name, layer, bits)| (name.to_owned(), layer, bits));
        own.chain(by).map(move |(name, layer, bits)| Self::new(&name, layer, role, bits))
    }
}

impl Case for Online {
    fn name(&self) -> &str {
        &self.name
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill_words(&mut self.shares, self.bits);
        self.shares.iter_mut().for_each(|share| *share = class.of(0, *share));
        let mut channel = Replay::channel(self.heard.clone());
        self.prepared = Some((Self::prepare(&*self.layer, self.role, &mut channel), channel));
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.shares)
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
    fn name(&self) -> &str {
        "token"
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        prg.fill(&mut self.token);
        // Right but for its last bit: who compares from the beginning takes longest.
        for (i, (byte, &known)) in self.token.iter_mut().zip(&self.known).enumerate() {
            *byte = class.of(u64::from(known ^ u8::from(i == 31)), u64::from(*byte)) as u8;
        }
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.token)
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
    fn name(&self) -> &str {
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

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.given)
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
    fn name(&self) -> &str {
        "PLANTED table lookup"
    }

    fn is_planted(&self) -> bool {
        true
    }

    fn set(&mut self, class: Class, prg: &mut Prg) {
        let all = self.table.len() as u64;
        self.places.iter_mut().for_each(|place| *place = class.of(0, prg.next_u64() % all) as u32);
    }

    fn mark(&mut self, mark: Mark) -> usize {
        mark.on(&mut self.places)
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
            let samples = samples / case.share();
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

/// Runs each case once on undefined secrets. Memcheck says what it found.
fn secrets(cases: &mut [Box<dyn Case>]) {
    let mut prg = Prg::new([3; 32]);
    for case in cases {
        case.set(Class::RANDOM, &mut prg);
        let bytes = case.mark(Mark::Secret);
        println!("{}: {bytes} secret bytes", case.name());
        case.run_on_secrets();
        case.mark(Mark::Public);
    }
}

fn cases() -> Vec<Box<dyn Case>> {
    let blocks = || vec![jaguar_ot::Block::ZERO; 256];
    let boxed = |case: Online| Box::new(case) as Box<dyn Case>;
    let hash = Hash::new(jaguar_ot::Block(77), Role::Client, Width::Bit);
    let kernels: Vec<Box<dyn Case>> = vec![
        Box::new(Noise([0; 32], vec![0; N])),
        Box::new(Ternary([0; 32], vec![0; N])),
        Box::new(Product::new()),
        Box::new(Weights::new()),
        Box::new(Pads { hash, halves: blocks(), out: blocks() }),
        Box::new(Sums([jaguar_ot::Block::ZERO; 4])),
    ];
    let transfers = Transfer::all().map(|case| Box::new(case) as Box<dyn Case>);
    let others: Vec<Box<dyn Case>> = vec![
        Box::new(Tokens::new()),
        Box::new(EarlyExit { known: (0..4096).map(|i| i as u8).collect(), given: vec![0; 4096] }),
        Box::new(Lookup { table: (0..1 << 20).collect(), places: vec![0; 2048] }),
    ];
    let online = [Role::Client, Role::Server].into_iter().flat_map(Online::all).map(boxed);
    kernels.into_iter().chain(transfers).chain(online).chain(others).collect()
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut flag =
        |name: &str| arguments.iter().position(|a| a == name).map(|at| arguments.remove(at)).is_some();
    let (by_memory, list, exactly) = (flag("--secrets"), flag("--list"), flag("--exactly"));
    let samples = arguments.iter().position(|a| a == "--samples").map(|at| {
        arguments.remove(at);
        arguments.remove(at).parse().expect("a number of samples")
    });
    let mut cases = cases();
    if list {
        cases.iter().for_each(|case| println!("{}", case.name()));
        return ExitCode::SUCCESS;
    }
    let named = |name: &str, a: &String| if exactly { name == a } else { name.contains(a.as_str()) };
    cases.retain(|case| arguments.is_empty() || arguments.iter().any(|a| named(case.name(), a)));
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
