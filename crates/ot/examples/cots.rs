//! How fast this machine makes correlated OTs and pads.
//!
//!     cargo run --release -p jaguar-ot --example cots -- [--count N] [--bin B] [--vectors] [--threads T] [--json]
//!
//! Two threads, one per party, over an in-memory channel: first one direction (each party does one half of the
//! work, on its own core if there are two), then both directions in turn, in chunks of 65536 as a protocol would ask
//! for them. Times are the least of R runs; beside them, what both parties together had of all cores. The hash is measured
//! alone.

use std::time::Instant;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use jaguar_ot::{Bin, Block, CotSource, Cots, Hash, Instances, Noise, Role, Width};
use jaguar_wire::{Channel, memory_pair};

/// How fast this machine makes correlated OTs.
#[derive(Parser)]
struct Options {
    /// COTs of a run.
    #[arg(long, default_value_t = 1 << 24, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    count: usize,
    /// Runs.
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeat: usize,
    /// Correlations of a bin: 512, 1024, 2048 or 4096.
    #[arg(long, default_value_t = Instances::default().bits.samples())]
    bin: usize,
    /// The errors of several iterations in the same rows.
    #[arg(long)]
    stationary: bool,
    /// Vector correlations, each of which counts as one.
    #[arg(long)]
    vectors: bool,
    /// Threads of both parties together.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// What one party measured.
struct Figures {
    setup_seconds: f64,
    setup_bytes: u64,
    setup_rounds: u64,
    /// Client sends, server receives.
    one_way: Seconds,
    /// Bytes sent and received in the one-way runs, all of them.
    one_way_bytes: u64,
    /// Half the correlations in each direction.
    both_ways: Seconds,
}

/// How long a run took.
#[derive(Clone, Copy)]
struct Seconds {
    elapsed: f64,
    /// On cores, both parties together.
    busy: f64,
}

/// What a protocol asks for at once.
const CHUNK: usize = 1 << 16;

fn main() {
    let options = Options::parse();
    rayon::ThreadPoolBuilder::new().num_threads(options.threads).build_global().expect("the first pool");
    let (a, b) = memory_pair();
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| party(b, Role::Server, &options));
        (party(a, Role::Client, &options), server.join().expect("the server's thread"))
    });
    let hash = hash_nanoseconds(options.repeat);
    let rate = |seconds: f64| options.count as f64 / seconds / 1e6;
    let bytes = client.one_way_bytes as f64 / (options.count * options.repeat) as f64;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = Hash::new(Block::ZERO, Role::Client, Width::Bit).kernel();
    if options.json {
        let figures = serde_json::json!({
            "count": options.count,
            "repeat": options.repeat,
            "cores": cores,
            "kernel": kernel,
            "setup": {
                "seconds": client.setup_seconds.max(server.setup_seconds),
                "bytes_each_way": client.setup_bytes,
                "rounds": client.setup_rounds,
            },
            "sender_million_per_second": rate(client.one_way.elapsed),
            "receiver_million_per_second": rate(server.one_way.elapsed),
            "one_way_million_per_cpu_second": rate(client.one_way.busy),
            "both_ways_million_per_second": rate(client.both_ways.elapsed.max(server.both_ways.elapsed)),
            "both_ways_million_per_cpu_second": rate(client.both_ways.busy),
            "bytes_per_cot": bytes,
            "hash_nanoseconds": hash,
        });
        println!("{figures:#}");
        return;
    }
    println!("{} COTs, least of {} runs, {cores} cores, kernel {kernel}", options.count, options.repeat);
    println!(
        "setup           {:8.1} ms   {} bytes each way, {} rounds",
        1e3 * client.setup_seconds.max(server.setup_seconds),
        client.setup_bytes,
        client.setup_rounds,
    );
    println!("sender          {:8.1} M/s", rate(client.one_way.elapsed));
    println!("receiver        {:8.1} M/s", rate(server.one_way.elapsed));
    println!("                {:8.1} M a CPU second of both parties", rate(client.one_way.busy));
    println!(
        "both directions {:8.1} M/s   (half of the COTs each way)",
        rate(client.both_ways.elapsed.max(server.both_ways.elapsed))
    );
    println!("                {:8.1} M a CPU second of both parties", rate(client.both_ways.busy));
    println!("wire            {bytes:8.4} bytes a COT");
    println!("hash            {hash:8.3} ns      {:.1} GB/s of pads", 16.0 / hash);
}

fn party(mut chan: Channel, role: Role, options: &Options) -> Figures {
    let client = role == Role::Client;
    let start = Instant::now();
    let noise = if options.stationary { Noise::Stationary } else { Noise::Fresh };
    let bin = Bin::ALL.into_iter().find(|bin| bin.samples() == options.bin).expect("a size of bins");
    let instances = Instances { bits: bin, vectors: bin, noise };
    let mut cots = Cots::setup(&mut chan, role, instances).expect("setup");
    let width = if options.vectors { Width::Vector } else { Width::Bit };
    let setup_seconds = start.elapsed().as_secs_f64();
    let setup = chan.total();
    let mut blocks = vec![Block::ZERO; CHUNK];
    // What only the first ones send.
    for sends in [client, !client] {
        if sends {
            cots.send(&mut chan, width, &mut blocks).expect("send");
        } else {
            cots.receive(&mut chan, width, &mut blocks).expect("receive");
        }
    }
    let mut run = |chan: &mut Channel, client_sends: fn(usize) -> bool| {
        let mut best = Seconds { elapsed: f64::MAX, busy: f64::MAX };
        for _ in 0..options.repeat {
            meet(chan, client);
            let (start, busy) = (Instant::now(), busy());
            for (i, n) in chunks(options.count).enumerate() {
                if client == client_sends(i) {
                    cots.send(chan, width, &mut blocks[..n]).expect("send");
                } else {
                    cots.receive(chan, width, &mut blocks[..n]).expect("receive");
                }
            }
            best.elapsed = best.elapsed.min(start.elapsed().as_secs_f64());
            meet(chan, client);
            best.busy = best.busy.min(self::busy() - busy);
        }
        best
    };
    chan.take_stats();
    let one_way = run(&mut chan, |_| true);
    let total = chan.total();
    let both_ways = run(&mut chan, |i| i % 2 == 0);
    Figures {
        setup_seconds,
        setup_bytes: setup.sent,
        setup_rounds: setup.rounds,
        one_way,
        one_way_bytes: total.sent + total.received,
        both_ways,
    }
}

/// Seconds that this process has had of cores.
fn busy() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + 1e-9 * spent.tv_nsec as f64
}

/// Requests that add up to `count`.
fn chunks(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(CHUNK)).map(move |i| CHUNK.min(count - i * CHUNK))
}

/// Both parties wait for each other, so that a run starts on both sides at once.
fn meet(chan: &mut Channel, first: bool) {
    let mut byte = [0];
    if first {
        chan.send(&byte).expect("the peer is there");
        chan.recv_into(&mut byte).expect("the peer is there");
    } else {
        chan.recv_into(&mut byte).expect("the peer is there");
        chan.send(&byte).expect("the peer is there");
        chan.flush().expect("the peer is there");
    }
}

/// Nanoseconds for one pad of a bit, in batches that stay in the cache.
fn hash_nanoseconds(repeat: usize) -> f64 {
    const BATCH: usize = 512;
    const BATCHES: usize = 10_000;
    let hash = Hash::new(Block(7), Role::Client, Width::Bit);
    let (x, mut pads) = (vec![Block(1); BATCH], vec![Block::ZERO; 2 * BATCH]);
    let mut best = f64::MAX;
    for _ in 0..repeat {
        let start = Instant::now();
        for i in 0..BATCHES {
            hash.pads((i * BATCH) as u64, &[Block::ZERO, Block(3)], &x, &mut pads);
        }
        std::hint::black_box(&pads);
        best = best.min(start.elapsed().as_secs_f64());
    }
    best / (2 * BATCH * BATCHES) as f64 * 1e9
}
