//! Measures the constants of the cost model, with the code that sessions run.
//!
//! Nothing is timed that a session would not do: what linear layers take is their backends' to measure, on one thread
//! ([`jaguar_linear::constants`]); nonlinear layers run between two threads over TCP on loopback, with real correlated OTs.
//! From the times of whole steps the constants follow by small systems of equations (each probe is dominated by the one that it is
//! for). Every probe runs several times and the least time counts: what disturbs a machine only ever adds. Where that
//! was not enough, a fit may find what no machine can have: then all is measured again, and in the end refused.

use std::sync::Arc;
use std::time::Instant;

use jaguar_linear::constants::{Measured, Probe};
use jaguar_linear::timing::{REPEATS, solve, timed};
use jaguar_mpc::semantics::{Beyond, Pieces};
use jaguar_mpc::{
    Block, CurveParams, Elementwise, ExtendParams, Modulus, Nonlinear, Party, PoolParams, PoolShape, Pooling,
    ProductParams, Range, Relu6Params, ReluParams, run_blocks,
};
pub use jaguar_ot::aes_kernel;
use jaguar_ot::{Bin, CotSource, Cots, Instances, Role, Width};
use jaguar_plan::Kit;
use jaguar_plan::machine::{DIGITS, Link, Machine, NonlinearKind, PerByte, PerCot, Speedups};
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::Channel;
use jaguar_wire::tcp::{Listener, Options, Tcp};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::ProfileError;
use crate::busy::Start;

/// How often all nonlinear layers run, and the probe of threads.
const ROUNDS: usize = 3;

/// Values of a nonlinear probe. COTs are made half a million at a time, and what is prepared of a real layer leaves the
/// caches: a probe is large enough for both to count as they do there.
const VALUES: usize = 1 << 18;

/// How often all of it is measured before a machine is taken for too busy.
const ATTEMPTS: usize = 3;

/// Measures this machine, and what the backends of `kit` need to know of it, linear layers being computed with the instructions that
/// `cpu` has, and with as many threads as the current pool has. Takes a few seconds, a few times as many where other work disturbs it.
///
/// # Errors
/// When sockets or threads cannot be had, when a backend's probe fails, or when what is found cannot be ([`Machine::impossible`]), as often
/// as it is tried.
pub fn measure(cpu: Cpu, kit: &Kit) -> Result<Machine, ProfileError> {
    possible(kit, || once(cpu, kit))
}

/// A machine that was measured for others, with what the backends of `kit` need besides: that alone is measured.
///
/// # Errors
/// As [`measure`].
pub fn complete(machine: &Machine, cpu: Cpu, kit: &Kit) -> Result<Machine, ProfileError> {
    let single = pool(1)?;
    possible(kit, || {
        let mut machine = machine.clone();
        for probe in machine.lacks(kit) {
            linear(probe, cpu, &single, &mut machine.linear)?;
        }
        Ok(machine)
    })
}

/// The first of [`ATTEMPTS`] measurements that a machine can have.
fn possible(
    kit: &Kit,
    mut measure: impl FnMut() -> Result<Machine, ProfileError>,
) -> Result<Machine, ProfileError> {
    let mut attempts = 1;
    loop {
        let machine = measure()?;
        match machine.impossible(kit) {
            None => return Ok(machine),
            Some(why) if attempts == ATTEMPTS => return Err(ProfileError::Disturbed(why, attempts)),
            Some(_) => attempts += 1,
        }
    }
}

/// The same, once.
fn once(cpu: Cpu, kit: &Kit) -> Result<Machine, ProfileError> {
    let (single, mut measured) = (pool(1)?, Measured::default());
    for probe in kit.probes() {
        linear(probe, cpu, &single, &mut measured)?;
    }
    let linear = speedup(cpu, kit, &single)?;
    let speedups = nonlinear_speedups(linear)?;
    let (cots, nonlinear) = nonlinear()?;
    let making = making()?;
    let loopback = loopback()?;
    Ok(Machine {
        cpu: processor(),
        kernel: Kernel::of(cpu).name().into(),
        threads: rayon::current_num_threads(),
        speedups,
        linear: measured,
        making,
        cots,
        nonlinear,
        loopback,
    })
}

fn pool(threads: usize) -> Result<ThreadPool, ProfileError> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

/// The processor's name.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| format!("unknown {} processor", std::env::consts::ARCH), |(_, name)| name.into())
}

// ---- Linear layers ----

/// What some backends need to know, on a single thread.
fn linear(probe: Probe, cpu: Cpu, single: &ThreadPool, into: &mut Measured) -> Result<(), ProfileError> {
    single.install(|| probe.measure(cpu, into)).map_err(|e| ProfileError::Probe(probe.name(), e))
}

/// How much faster work is with all threads than with one that they share as they share linear layers: that of the first backend of the kit
/// that has such.
fn speedup(cpu: Cpu, kit: &Kit, single: &ThreadPool) -> Result<f64, ProfileError> {
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return Ok(1.0);
    }
    // By turns and more often than others: threads that wake up late spoil many runs.
    let (mut one, mut all) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let shared = |probe: &Probe| {
            let on_one = single.install(|| probe.shared_work(cpu))?;
            let on_all = probe.shared_work(cpu)?;
            let both = on_one.and_then(|one| Ok((one, on_all?)));
            Some(both.map_err(|e| ProfileError::Probe(probe.name(), e)))
        };
        let Some(both) = kit.probes().iter().find_map(shared) else { return Ok(1.0) };
        let both = both?;
        (one, all) = (one.min(both.0), all.min(both.1));
    }
    Ok((one / all).clamp(1.0, threads as f64))
}

// ---- Nonlinear layers ----

/// As many comparisons as the other probes have values, nearly: 128 channels of 3x3 windows, stride 2.
const POOL: PoolShape =
    PoolShape { channels: 128, size: [32, 32], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 0, 0] };

/// The nonlinear layer that is measured: of a network with 16 bits, whose results go into a layer that gains 12.
fn probe(kind: NonlinearKind, digit: u32) -> Arc<dyn Nonlinear> {
    let count = VALUES;
    match kind {
        NonlinearKind::Relu => {
            let params = ReluParams { output: Modulus::power_of_two(28), digit, ..ReluParams::new(16) };
            Arc::new(Elementwise { count, params })
        }
        NonlinearKind::Relu6 => {
            let params = Relu6Params { output: Modulus::power_of_two(28), digit, ..Relu6Params::new(16, 13) };
            Arc::new(Elementwise { count, params })
        }
        NonlinearKind::MaxPool => {
            let params = PoolParams { digit, ..PoolParams::new(16) };
            Arc::new(Pooling { shape: POOL, params })
        }
        NonlinearKind::Extension => {
            let params = ExtendParams { bits: 16, output: Modulus::power_of_two(28), range: Range::Signed };
            Arc::new(Elementwise { count, params })
        }
        NonlinearKind::Product => {
            // Each takes as many correlations as ten others.
            let params = ProductParams { out_bits: 16, shift: 12, offsets: [0; 2] };
            Arc::new(Elementwise { count: VALUES / 16, params })
        }
        NonlinearKind::Curve => {
            // 256 lines, of values of 16 bits and eight guard bits.
            let (offsets, slopes) = ((-128..128).map(|j| j << 9).collect(), (0..256).collect());
            let pieces =
                Pieces { low: 15, offset_shift: 14, shift: 8, offsets, slopes, beyond: Beyond::Repeated };
            let params = CurveParams { bits: 24, out_bits: 24, digit, pieces: Arc::new(pieces) };
            Arc::new(Elementwise { count: VALUES / 8, params })
        }
    }
}

/// Runs a prepared layer on zeros.
fn run_on_zeros(blocks: Vec<Block>, chan: &mut Channel) -> Result<(), ProfileError> {
    let inputs = blocks.last().map_or(0, |block| block.inputs().end);
    run_blocks(blocks, chan, &vec![0; inputs])?;
    Ok(())
}

/// What one party measured of one step.
#[derive(Clone, Copy)]
struct Spent {
    /// At work before the input.
    preparing: f64,
    /// At work online.
    running: f64,
    /// Online, from beginning to end.
    both: f64,
}

/// Correlations that are drawn at once, and how often each way, where making them is measured.
const DRAWN: usize = 1 << 16;
const DRAWS: usize = 3;

/// Seconds a correlation, sent or received: by width and bins.
fn making() -> Result<[[f64; Bin::ALL.len()]; Width::ALL.len()], ProfileError> {
    let one = |role: Role, chan: &mut Channel| -> Result<Vec<f64>, ProfileError> {
        let mut all = Vec::new();
        for (width, bin) in Width::ALL.into_iter().flat_map(|width| Bin::ALL.map(|bin| (width, bin))) {
            let mut cots =
                Cots::setup(chan, role, Instances { bits: bin, vectors: bin, ..Instances::default() })?;
            let mut halves = vec![jaguar_ot::Block::ZERO; DRAWN];
            let mut draw = |chan: &mut Channel| -> Result<(), ProfileError> {
                for sender in [Role::Server, Role::Client] {
                    if sender == role {
                        cots.send(chan, width, &mut halves)?;
                    } else {
                        cots.receive(chan, width, &mut halves)?;
                    }
                }
                Ok(())
            };
            // What comes with the first ones only.
            draw(chan)?;
            meet(role, chan)?;
            let (seconds, ()) = working(chan, |chan| (0..DRAWS).try_for_each(|_| draw(chan)))?;
            meet(role, chan)?;
            all.push(seconds / (2 * DRAWS * DRAWN) as f64);
        }
        Ok(all)
    };
    let (client, server) = between(one)?;
    let mean = |i: usize| (client[i] + server[i]) / 2.0;
    Ok(std::array::from_fn(|width| std::array::from_fn(|bin| mean(width * Bin::ALL.len() + bin))))
}

/// By kind and digit.
type PerKind<T> = [[T; DIGITS.len()]; NonlinearKind::ALL.len()];

fn nonlinear() -> Result<(PerKind<PerCot>, PerKind<PerByte>), ProfileError> {
    let steps: Vec<(NonlinearKind, u32, Arc<dyn Nonlinear>)> = NonlinearKind::ALL
        .into_iter()
        .flat_map(|kind| DIGITS.map(|digit| (kind, digit, probe(kind, digit))))
        .collect();
    let one = |role: Role, chan: &mut Channel| -> Result<Vec<Spent>, ProfileError> {
        let mut party = Party::new(role, Cots::setup(chan, role, Instances::default())?);
        let mut least = vec![
            Spent { preparing: f64::INFINITY, running: f64::INFINITY, both: f64::INFINITY };
            steps.len()
        ];
        // A kind is prepared in all digits before any of it runs: as in a session, what was prepared is no longer in
        // the caches.
        let kinds = || (0..steps.len()).step_by(DIGITS.len()).map(|at| at..at + DIGITS.len());
        for kind in (0..ROUNDS).flat_map(|_| kinds()) {
            let (steps, least) = (&steps[kind.clone()], &mut least[kind]);
            let mut ready = Vec::new();
            for ((.., step), least) in steps.iter().zip(&mut *least) {
                if role == Role::Client {
                    party.promise(step.promise());
                }
                meet(role, chan)?;
                let (seconds, prepared) = working(chan, |chan| {
                    let mut blocks = step.prepare(&mut party, chan)?;
                    blocks.iter_mut().try_for_each(|block| block.complete(chan))?;
                    Ok(blocks)
                })?;
                least.preparing = least.preparing.min(seconds);
                ready.push(prepared);
            }
            for (ready, least) in ready.into_iter().zip(least) {
                meet(role, chan)?;
                let start = Instant::now();
                let (seconds, ()) = working(chan, |chan| run_on_zeros(ready, chan))?;
                meet(role, chan)?;
                least.running = least.running.min(seconds);
                least.both = least.both.min(start.elapsed().as_secs_f64());
            }
        }
        Ok(least)
    };
    let (client, server) = between(one)?;

    let (mut cots, mut bytes) = (PerKind::<PerCot>::default(), PerKind::<PerByte>::default());
    for (i, (kind, digit, step)) in steps.iter().enumerate() {
        let (cost, digit) = (step.cost(), (digit - DIGITS[0]) as usize);
        // Every COT costs what it costs on the side that sends or receives it: two equations, from both parties' times.
        let (a, b) = (cost.from_server().total() as f64, cost.from_client().total() as f64);
        let [received, sent] = solve([a, b, client[i].preparing], [b, a, server[i].preparing]);
        cots[*kind as usize][digit] = PerCot { sent, received };
        let passed = (cost.up + cost.down) as f64;
        bytes[*kind as usize][digit] = PerByte {
            client: client[i].running / passed,
            server: server[i].running / passed,
            both: client[i].both / passed,
        };
    }
    Ok((cots, bytes))
}

/// ReLUs of the probe of threads: their correlations are several batches' worth.
const SHARED_VALUES: usize = 1 << 19;

/// What threads gain: nonlinear layers of both parties at once, each on one thread and each on all, by turns.
fn nonlinear_speedups(linear: f64) -> Result<Speedups, ProfileError> {
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return Ok(Speedups::NONE);
    }
    let params = ReluParams { output: Modulus::power_of_two(28), ..ReluParams::new(16) };
    let step = Elementwise { count: SHARED_VALUES, params };
    let one = |role: Role, chan: &mut Channel| -> Result<[f64; 2], ProfileError> {
        let mut party = Party::new(role, Cots::setup(chan, role, Instances::default())?);
        let mut least = [f64::INFINITY; 2];
        for _ in 0..ROUNDS {
            if role == Role::Client {
                party.promise(step.promise());
            }
            meet(role, chan)?;
            let start = Instant::now();
            let mut blocks = step.prepare(&mut party, chan)?;
            blocks.iter_mut().try_for_each(|block| block.complete(chan))?;
            meet(role, chan)?;
            least[0] = least[0].min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            run_on_zeros(blocks, chan)?;
            meet(role, chan)?;
            least[1] = least[1].min(start.elapsed().as_secs_f64());
        }
        Ok(least)
    };
    let (on_one, _) = between(one)?;
    let (on_all, _) = between_pools(threads, one)?;
    Ok(Speedups::of_nonlinear(linear, threads, [on_one, on_all]))
}

/// Seconds in which this party worked, on its thread of [`between`].
fn working<T>(
    chan: &mut Channel,
    f: impl FnOnce(&mut Channel) -> Result<T, ProfileError>,
) -> Result<(f64, T), ProfileError> {
    let (start, waited) = (Start::now(), chan.waited());
    let value = f(chan)?;
    chan.flush()?;
    Ok((start.span().at_work(chan.waited() - waited).as_secs_f64(), value))
}

/// Waits until both parties are here.
fn meet(role: Role, chan: &mut Channel) -> Result<(), ProfileError> {
    let mut byte = [0];
    if role == Role::Client {
        chan.send(&byte)?;
        chan.recv_into(&mut byte)?;
    } else {
        chan.recv_into(&mut byte)?;
        chan.send(&byte)?;
        chan.flush()?;
    }
    Ok(())
}

/// Both roles of `f`, over TCP on loopback, each in a pool of one thread.
fn between<T: Send>(
    f: impl Fn(Role, &mut Channel) -> Result<T, ProfileError> + Sync,
) -> Result<(T, T), ProfileError> {
    between_pools(1, f)
}

/// The same, each in a pool of so many threads.
fn between_pools<T: Send>(
    threads: usize,
    f: impl Fn(Role, &mut Channel) -> Result<T, ProfileError> + Sync,
) -> Result<(T, T), ProfileError> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| -> Result<T, ProfileError> {
            let tcp = listener.accept()?.greet(Options::default())?;
            pool(threads)?.install(|| f(Role::Server, &mut Channel::new(tcp)))
        });
        let client = (|| -> Result<T, ProfileError> {
            let tcp = Tcp::connect(address, Options::default())?;
            pool(threads)?.install(|| f(Role::Client, &mut Channel::new(tcp)))
        })();
        let server = server.join().expect("the measuring thread does not panic");
        Ok((client?, server?))
    })
}

/// Bytes that are sent to see how fast they go.
const BULK: usize = 16 << 20;

fn loopback() -> Result<Link, ProfileError> {
    let (link, _) = between(|role, chan| {
        let mut round_trip = f64::INFINITY;
        for _ in 0..50 {
            let (seconds, met) = timed(|| meet(role, chan));
            met?;
            round_trip = round_trip.min(seconds);
        }
        let mut seconds = f64::INFINITY;
        let bulk = vec![1; BULK];
        let mut received = vec![0; BULK];
        for _ in 0..REPEATS {
            meet(role, chan)?;
            let start = Instant::now();
            match role {
                Role::Client => chan.send(&bulk)?,
                Role::Server => chan.recv_into(&mut received)?,
            }
            meet(role, chan)?;
            seconds = seconds.min(start.elapsed().as_secs_f64());
        }
        Ok(Link { bytes_per_second: BULK as f64 / seconds, round_trip })
    })?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use jaguar_plan::machine::LEAST_COT;

    use super::*;

    /// A machine of which one figure is as given.
    fn with(received: f64) -> Machine {
        Machine {
            cpu: "some".into(),
            kernel: "none".into(),
            threads: 1,
            speedups: Speedups::NONE,
            linear: Measured::default(),
            making: [[1e-8; 4]; 2],
            cots: [[PerCot { sent: 83e-9, received }; 3]; NonlinearKind::ALL.len()],
            nonlinear: Default::default(),
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    #[test]
    fn what_cannot_be_is_measured_again_and_then_refused() {
        let mut found = [1e-13, 20e-9, 30e-9].into_iter();
        let machine = possible(&Kit::standard(), || Ok(with(found.next().unwrap()))).unwrap();
        assert_eq!((machine.cots[0][0].received, found.next()), (20e-9, Some(30e-9)));
        let mut tried = 0;
        let refused = possible(&Kit::standard(), || {
            tried += 1;
            Ok(with(1e-13))
        });
        let why = refused.unwrap_err();
        assert!(matches!(&why, ProfileError::Disturbed(_, ATTEMPTS)) && tried == ATTEMPTS, "{why}");
    }

    /// Two equations of which disturbed measurements left nothing for one of the two.
    #[test]
    fn a_fit_of_disturbed_measurements_finds_no_time() {
        let [received, sent] = solve([2.0, 1.0, 50.0], [1.0, 2.0, 130.0]);
        assert!(received < LEAST_COT && sent > 0.0);
        assert!(with(received * 1e-9).impossible(&Kit::standard()).is_some());
    }
}
