//! Measures a batch of ReLUs, clips or curves between two threads: `cargo run --release -p jaguar-mpc --example relu -- --help`.
//!
//! Prints, for each party, seconds per stage without the time spent waiting for the other, bytes and COTs per
//! element. COTs come from a stand-in without security that costs next to nothing, or with `--real` from the
//! real source, whose own time is shown apart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use jaguar_mpc::semantics::{Beyond, Pieces};
use jaguar_mpc::{
    Curve, CurveParams, Elementwise, Modulus, MpcError, Nonlinear, Party, Relu, Relu6, Relu6Params,
    ReluParams, reference,
};
use jaguar_ot::{Bin, Block, CotSource, Cots, Drawn, Instances, OtError, Role, Width, combinations};
use jaguar_wire::{Channel, Stage, memory_pair};

/// Fast correlations that anyone can predict.
struct StandIn {
    role: Role,
    sent: [u64; 2],
    received: [u64; 2],
    deltas: [Vec<Block>; 2],
    /// Of the peer's.
    sums: [[Block; 16]; 2],
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn half(sender: Role, width: Width, i: u64) -> Block {
    let x = mix(i << 2 | (width as u64) << 1 | u64::from(sender == Role::Client));
    Block(u128::from(x) << 64 | u128::from(x.rotate_left(32) & !(width.choice_mask() as u64)))
}

fn deltas(sender: Role, width: Width) -> Vec<Block> {
    let delta = |j: u64| Block(u128::from(mix(!(j << 1 | u64::from(sender == Role::Client)))) << 63 | 1 << j);
    (0..width.choice_mask().count_ones().into()).map(delta).collect()
}

impl StandIn {
    fn new(role: Role) -> Self {
        let sums = Width::ALL.map(|width| {
            let mut theirs = deltas(role.peer(), width);
            theirs.resize(4, Block::ZERO);
            combinations(theirs[..].try_into().expect("four"))
        });
        Self { role, sent: [0; 2], received: [0; 2], deltas: Width::ALL.map(|w| deltas(role, w)), sums }
    }
}

impl CotSource for StandIn {
    fn nonce(&self) -> Block {
        Block(0)
    }

    fn deltas(&self, width: Width) -> &[Block] {
        &self.deltas[width as usize]
    }

    fn send(&mut self, _: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
        let next = &mut self.sent[width as usize];
        for q in q {
            *q = half(self.role, width, *next);
            *next += 1;
        }
        Ok(())
    }

    fn receive(&mut self, _: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
        let next = &mut self.received[width as usize];
        for t in t {
            let choice = next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 & width.choice_mask() as u64;
            *t = half(self.role.peer(), width, *next) ^ self.sums[width as usize][choice as usize];
            *next += 1;
        }
        Ok(())
    }
}

/// A source and the time spent in it.
struct Timed<S> {
    source: S,
    time: Duration,
}

impl<S: CotSource> CotSource for Timed<S> {
    fn nonce(&self) -> Block {
        self.source.nonce()
    }

    fn deltas(&self, width: Width) -> &[Block] {
        self.source.deltas(width)
    }

    fn send(&mut self, chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
        let start = Instant::now();
        let result = self.source.send(chan, width, q);
        self.time += start.elapsed();
        result
    }

    fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
        let start = Instant::now();
        let result = self.source.receive(chan, width, t);
        self.time += start.elapsed();
        result
    }
}

/// What a batch of ReLUs, clips or curves costs between two threads.
#[derive(Clone, Copy, Parser)]
struct Options {
    /// How many.
    #[arg(long, default_value_t = 1 << 20)]
    count: usize,
    /// Shares come modulo 2^BITS.
    #[arg(long, default_value_t = 16)]
    bits: u32,
    /// And leave modulo 2^OUT (at least BITS).
    #[arg(long, default_value_t = 16)]
    out: u32,
    /// Bits a digit.
    #[arg(long, default_value_t = 4)]
    digit: u32,
    /// Low bits that the sign ignores.
    #[arg(long, default_value_t = 0)]
    ignored: u32,
    /// ReLU6, with 6 at 2^SIX.
    #[arg(long)]
    six: Option<u32>,
    /// SiLU in so many pieces, a power of two.
    #[arg(long, conflicts_with_all = ["six", "ignored"])]
    curve: Option<u32>,
    /// Correlations from the real source.
    #[arg(long)]
    real: bool,
    /// Samples in a bin of the real source: 512, 1024, 2048 or 4096; for bits.
    #[arg(long, default_value_t = 1024)]
    bin: usize,
    /// The same for vectors.
    #[arg(long, default_value_t = 512)]
    vector_bin: usize,
    /// Threads of both parties together.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

impl Options {
    fn relu(&self) -> ReluParams {
        ReluParams {
            bits: self.bits,
            output: Modulus::power_of_two(self.out),
            digit: self.digit,
            ignored: self.ignored,
        }
    }

    fn relu6(&self, log2_six: u32) -> Relu6Params {
        let exact = Relu6Params::new(self.bits, log2_six);
        Relu6Params {
            output: Modulus::power_of_two(self.out),
            digit: self.digit,
            ignored: self.ignored,
            ..exact
        }
    }

    /// SiLU of -8 to 8 over all values but for the highest bit, as calibration leaves room: nine bits of slope and 16 of offset.
    fn curve(&self, pieces: u32) -> CurveParams {
        let low = self.bits - 1 - pieces.ilog2();
        let (shift, offset_shift) = (8, self.bits - 10);
        let unit = 8.0 / f64::from(self.bits - 2).exp2();
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let end = |piece: u32| (f64::from(piece) - f64::from(pieces) / 2.0) * f64::from(low).exp2() * unit;
        let offset =
            |piece| silu(end(piece)) / unit * f64::from(shift).exp2() / f64::from(offset_shift).exp2();
        let slope = |piece| {
            let rise = silu(end(piece + 1)) - silu(end(piece));
            rise / (end(piece + 1) - end(piece)) * f64::from(shift).exp2()
        };
        let offsets = (0..pieces).map(|piece| offset(piece).round() as i64).collect();
        let slopes = (0..pieces).map(|piece| slope(piece).round() as i64).collect();
        let pieces = Arc::new(Pieces { low, offset_shift, shift, offsets, slopes, beyond: Beyond::Repeated });
        CurveParams { bits: self.bits, out_bits: self.out, digit: self.digit, pieces }
    }

    fn name(&self) -> &'static str {
        match (self.curve, self.six) {
            (Some(_), _) => "curve",
            (None, Some(_)) => "relu6",
            (None, None) => "relu",
        }
    }

    fn layer(&self) -> Box<dyn Nonlinear> {
        let count = self.count;
        match (self.curve, self.six) {
            (Some(pieces), _) => Box::new(Elementwise { count, params: self.curve(pieces) }),
            (None, Some(six)) => Box::new(Elementwise { count, params: self.relu6(six) }),
            (None, None) => Box::new(Elementwise { count, params: self.relu() }),
        }
    }
}

/// What one party measured.
struct Figures {
    result: Vec<u64>,
    setup: Duration,
    cots: Duration,
    prepare: Duration,
    online: Duration,
    wall: Duration,
    sent: u64,
    rounds: u64,
    used: (Drawn, Drawn),
}

enum Prepared {
    Relu(Relu),
    Relu6(Relu6),
    Curve(Curve),
}

fn party<S: CotSource>(
    role: Role,
    mut chan: Channel,
    source: impl FnOnce(&mut Channel) -> S,
    x: &[u64],
    o: Options,
) -> Result<Figures, MpcError> {
    let start = Instant::now();
    let source = source(&mut chan);
    let setup = start.elapsed();
    chan.take_stats();

    let mut party = Party::new(role, Timed { source, time: Duration::ZERO });
    chan.enter(Stage::Offline, "relu");
    if role == Role::Client {
        party.promise(o.layer().cost().bits_from_client);
    }
    let start = Instant::now();
    let prepared = match (o.curve, o.six) {
        (Some(pieces), _) => {
            Prepared::Curve(Curve::prepare(&mut party, &mut chan, o.count, &o.curve(pieces))?)
        }
        (None, Some(six)) => Prepared::Relu6(Relu6::prepare(&mut party, &mut chan, o.count, o.relu6(six))?),
        (None, None) => Prepared::Relu(Relu::prepare(&mut party, &mut chan, o.count, o.relu())?),
    };
    chan.flush()?;
    let cots = party.source().time;
    let prepare = start.elapsed() - cots;
    chan.take_stats();

    chan.enter(Stage::Online, "relu");
    let start = Instant::now();
    let result = match prepared {
        Prepared::Relu(relu) => relu.run(&mut chan, x)?,
        Prepared::Relu6(relu6) => relu6.run(&mut chan, x)?,
        Prepared::Curve(curve) => curve.run(&mut chan, x)?,
    };
    chan.flush()?;
    let wall = start.elapsed();
    let total = chan.total();
    Ok(Figures {
        result,
        setup,
        cots,
        prepare,
        online: wall - total.waited,
        wall,
        sent: total.sent,
        rounds: total.rounds,
        used: party.used(),
    })
}

fn main() {
    let o = Options::parse();
    let o = Options { out: o.out.max(o.bits), ..o };
    let mask = u64::MAX >> (64 - o.bits);
    let shares = [1, 2].map(|s| (0..o.count as u64).map(|i| mix(i * 2 + s) & mask).collect::<Vec<_>>());
    let bin = |samples| Bin::ALL.into_iter().find(|bin| bin.samples() == samples).expect("a size of bins");
    let instances = Instances { bits: bin(o.bin), vectors: bin(o.vector_bin), ..Instances::default() };
    rayon::ThreadPoolBuilder::new().num_threads(o.threads).build_global().expect("the first pool");
    let (a, b) = memory_pair();
    let one = |role: Role, chan: Channel, x: &[u64]| {
        if o.real {
            party(role, chan, |chan| Cots::setup(chan, role, instances).expect("setting up COTs"), x, o)
        } else {
            party(role, chan, |_| StandIn::new(role), x, o)
        }
        .expect("a peer that follows the protocol")
    };
    let (client, server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| one(Role::Client, a, &shares[0]));
        let server = scope.spawn(|| one(Role::Server, b, &shares[1]));
        (client.join().expect("the client ends"), server.join().expect("the server ends"))
    });

    let pieces = o.curve.map(|pieces| o.curve(pieces).pieces);
    let results = client.result.iter().zip(&server.result);
    for ((&x_c, &x_s), (&y_c, &y_s)) in shares[0].iter().zip(&shares[1]).zip(results) {
        let (x, y) = (reference::open(x_c, x_s, o.bits), reference::open(y_c, y_s, o.out));
        let want = match (&pieces, o.six) {
            (Some(pieces), _) => pieces.nearest(x),
            (None, Some(j)) => reference::relu6(x, j),
            (None, None) => reference::relu(x),
        };
        // Where low bits are ignored, values next to the borders may err; a curve is rounded by chance.
        let rounded = pieces.is_some() && (y - want).abs() <= 1;
        assert!(y == want || rounded || o.ignored > 0 && (y - want).abs() < 1 << o.ignored, "{x} gave {y}");
    }

    let per = |t: Duration| t.as_secs_f64() * 1e9 / o.count as f64;
    if o.json {
        let side = |f: &Figures| {
            serde_json::json!({
                "setup_s": f.setup.as_secs_f64(), "cot_ns": per(f.cots), "prepare_ns": per(f.prepare),
                "online_busy_ns": per(f.online), "online_wall_ns": per(f.wall),
                "bytes_sent": f.sent as f64 / o.count as f64, "rounds": f.rounds,
                "bits_as_sender": f.used.0.bits as f64 / o.count as f64,
                "bits_as_receiver": f.used.1.bits as f64 / o.count as f64,
                "vectors": (f.used.0 + f.used.1).vectors as f64 / o.count as f64,
            })
        };
        let all = serde_json::json!({
            "protocol": o.name(), "pieces": o.curve, "count": o.count, "bits": o.bits,
            "out_bits": o.out, "digit": o.digit, "ignored": o.ignored, "log2_six": o.six, "link": "memory", "threads": o.threads,
            "cot_source": if o.real { "real" } else { "stand-in" },
            "client": side(&client), "server": side(&server),
        });
        println!("{all:#}");
        return;
    }
    println!(
        "{} x {} from {} to {} bits, digits of {}, in-memory link; ns per element",
        o.count,
        o.name(),
        o.bits,
        o.out,
        o.digit
    );
    for (name, f) in [("client", &client), ("server", &server)] {
        println!(
            "{name}: COTs {:7.1}   prepare {:6.1}   online {:6.1} (wall {:6.1})   sent {:.3} bytes, {} rounds   \
             bits {:.2} + {:.2}, vectors {:.2}   setup {:.2} s",
            per(f.cots),
            per(f.prepare),
            per(f.online),
            per(f.wall),
            f.sent as f64 / o.count as f64,
            f.rounds,
            f.used.0.bits as f64 / o.count as f64,
            f.used.1.bits as f64 / o.count as f64,
            (f.used.0 + f.used.1).vectors as f64 / o.count as f64,
            f.setup.as_secs_f64()
        );
    }
}
