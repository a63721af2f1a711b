//! Measures the constants of the cost model, with the code that sessions run.
//!
//! Nothing is timed that a session would not do: single linear layers of a few shapes, both roles one after the other,
//! on one thread; nonlinear layers between two threads over TCP on loopback, with real correlated OTs. From the times
//! of whole steps the constants follow by small systems of equations (each probe is dominated by the one that it is
//! for). Every probe runs several times and the least time counts: what disturbs a machine only ever adds. Where that
//! was not enough, a fit may find what no machine can have: then all is measured again, and in the end refused.

use std::slice::{from_mut, from_ref};
use std::sync::Arc;
use std::time::Instant;

use jaguar_cpu::Cpu;
use jaguar_graph::network::{Bias, Linear, Shape, Weights};
use jaguar_he::power_of_two::{Parameters, PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_linear::jaguar::{Layer, LayerError, ServerLayer, prepare};
use jaguar_linear::layout::Layout;
use jaguar_mpc::{
    Block, Elementwise, ExtendParams, Modulus, Nonlinear, Party, PmaxLeakyParams, PoolParams, PoolShape,
    Pooling, ProductParams, Range, Relu6Params, ReluParams, run_blocks,
};
use jaguar_ot::{Bin, CotSource, Cots, Instances, Role, Width};
use jaguar_plan::PlanError;
use jaguar_plan::machine::{DIGITS, Kind, Link, Machine, PerByte, PerCot, PerProduct, RingCosts};
use jaguar_plan::planner::{RINGS, RNS_RINGS, SLOT_RINGS};
use jaguar_ring::Kernel;
use jaguar_ring::prg::Prg;
use jaguar_wire::tcp::{Listener, Options, Tcp};
use jaguar_wire::{Channel, memory_pair};
use rayon::ThreadPoolBuilder;

use crate::ProfileError;

mod rns;
mod slots;
mod timing;

use timing::{LEAST_REPEATS, PATIENCE, REPEATS, WEIGHT_BITS, positive, refused, solve, timed};

/// How often all nonlinear layers run, and the probe of threads.
const ROUNDS: usize = 3;

/// Values of a nonlinear probe. COTs are made half a million at a time, and what is prepared of a real layer leaves the
/// caches: a probe is large enough for both to count as they do there.
const VALUES: usize = 1 << 18;

/// How often all of it is measured before a machine is taken for too busy.
const ATTEMPTS: usize = 3;

/// Measures this machine, linear layers being computed with the instructions that `cpu` has, and with as many threads
/// as the current pool has. Takes a few seconds, a few times as many where other work disturbs it.
///
/// # Errors
/// When sockets or threads cannot be had, or when what is found cannot be ([`Machine::impossible`]), as often as it is
/// tried.
pub fn measure(cpu: Cpu) -> Result<Machine, ProfileError> {
    possible(|| once(cpu))
}

/// The first of [`ATTEMPTS`] measurements that a machine can have.
fn possible(mut measure: impl FnMut() -> Result<Machine, ProfileError>) -> Result<Machine, ProfileError> {
    let mut attempts = 1;
    loop {
        let machine = measure()?;
        match machine.impossible() {
            None => return Ok(machine),
            Some(why) if attempts == ATTEMPTS => return Err(ProfileError::Disturbed(why, attempts)),
            Some(_) => attempts += 1,
        }
    }
}

/// The same, once.
fn once(cpu: Cpu) -> Result<Machine, ProfileError> {
    let threads = rayon::current_num_threads();
    let single = ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut rings = Vec::new();
    for (ring_dim, modulus_bits) in RINGS {
        let params = Parameters::new(ring_dim as usize, modulus_bits).map_err(PlanError::from)?;
        rings.push(single.install(|| ring_costs(cpu, params))?);
    }
    let rns =
        RNS_RINGS.iter().map(|&ring| single.install(|| rns::costs(cpu, ring))).collect::<Result<_, _>>()?;
    let slots = SLOT_RINGS
        .iter()
        .map(|&ring| single.install(|| slots::costs(cpu, ring)))
        .collect::<Result<_, _>>()?;
    let speedup = if threads > 1 { speedup(cpu, threads, &single)? } else { 1.0 };
    let (cots, nonlinear) = nonlinear()?;
    let making = making()?;
    let loopback = loopback()?;
    Ok(Machine {
        cpu: processor(),
        kernel: Kernel::of(cpu).name().into(),
        threads,
        speedup,
        rings,
        rns,
        slots,
        making,
        cots,
        nonlinear,
        loopback,
    })
}

/// The processor's name.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| format!("unknown {} processor", std::env::consts::ARCH), |(_, name)| name.into())
}

// ---- Linear layers ----

/// One layer of no importance, and what runs it.
struct Probe {
    cpu: Cpu,
    layer: Layer,
    weights: Weights,
    ring: Ring,
}

/// Seconds of the steps of one layer.
#[derive(Clone, Copy)]
struct Times {
    a_half: f64,
    hint: f64,
    client_prepare: f64,
    server_prepare: f64,
    client_run: f64,
    server_run: f64,
}

impl Times {
    /// No time at all is longer.
    const LONGEST: Self = Self {
        a_half: f64::INFINITY,
        hint: f64::INFINITY,
        client_prepare: f64::INFINITY,
        server_prepare: f64::INFINITY,
        client_run: f64::INFINITY,
        server_run: f64::INFINITY,
    };

    fn least(self, other: Self) -> Self {
        Self {
            a_half: self.a_half.min(other.a_half),
            hint: self.hint.min(other.hint),
            client_prepare: self.client_prepare.min(other.client_prepare),
            server_prepare: self.server_prepare.min(other.server_prepare),
            client_run: self.client_run.min(other.client_run),
            server_run: self.server_run.min(other.server_run),
        }
    }
}

impl Probe {
    /// A convolution of `kernel` x `kernel` with "same" padding.
    fn new(
        cpu: Cpu,
        params: Parameters,
        in_shape: Shape,
        out_channels: usize,
        kernel: usize,
        groups: usize,
    ) -> Result<Self, ProfileError> {
        // Two limbs leave little room above the noise; the time does not depend on these widths.
        let (activation_bits, shift) = if params.modulus_bits() < 40 { (6, 8) } else { (16, 12) };
        let spec = Linear { groups, ..Linear::same(out_channels, kernel, shift) };
        let layer = Layout::new(params.ring_dim(), &spec, in_shape)
            .map_err(LayerError::from)
            .and_then(|layout| Layer::new(params, layout, 0, activation_bits, WEIGHT_BITS, false))
            .map_err(|e| refused(e.to_string()))?;
        let count = out_channels * layer.layout().terms_per_output();
        let mut words = vec![0; count];
        Prg::new([1; 32]).fill_words(&mut words, WEIGHT_BITS - 1);
        let middle = 1i64 << (WEIGHT_BITS - 2);
        let weights = Weights {
            weights: words.into_iter().map(|w| (w as i64 - middle) as i16).collect(),
            exponents: Vec::new(),
            bias: Bias::PerChannel(vec![1; out_channels]),
        };
        Ok(Self { cpu, layer, weights, ring: Ring::new(cpu, params) })
    }

    /// The least times of several runs.
    fn measure(&self) -> Result<Times, ProfileError> {
        let (start, mut least) = (Instant::now(), Times::LONGEST);
        for run in 0..REPEATS {
            if run >= LEAST_REPEATS && start.elapsed() > PATIENCE {
                break;
            }
            least = least.least(self.once()?);
        }
        Ok(least)
    }

    fn once(&self) -> Result<Times, ProfileError> {
        let Self { cpu, layer, weights, ring } = self;
        let public = PublicSeed([2; 32]);
        let (hint_key, mask_seed) = ([3; 32], [4; 32]);
        let server = ServerLayer::new(*cpu, layer.clone(), weights, WEIGHT_BITS);
        let (a_half, ()) = timed(|| server.prepare_model(&public));
        let p1 = public.p1(ring.params());
        let wide = ring.prepare_wide(&p1);
        let responses = 0..layer.layout().responses();
        let (hint_seconds, hint) = timed(|| server.hint(ring, &public, &wide, &hint_key, responses));
        let mut secret = QuerySecret::fresh(ring);
        let p0 = ZeroKey::new(ring, &secret.zero_key(ring, &p1), &mut Prg::from_os());
        let (client_prepare, client) =
            timed(|| prepare(layer, ring, &public, &hint, from_mut(&mut secret), &mask_seed));
        let (server_prepare, prepared) = timed(|| server.prepare(ring, &hint_key, from_ref(&p0), &mask_seed));
        let (mut up, mut down) = memory_pair();
        let x = vec![1; layer.layout().in_shape().iter().product()];
        let (client_run, sent) = timed(|| client.run(layer, &mut up, &x).and_then(|_| up.flush()));
        sent?;
        let (server_run, answered) = timed(|| server.receive(&mut down).map(|b| server.run(prepared, b, &x)));
        answered?;
        Ok(Times { a_half, hint: hint_seconds, client_prepare, server_prepare, client_run, server_run })
    }

    fn responses(&self) -> f64 {
        self.layer.layout().responses() as f64
    }

    fn ciphertexts(&self) -> f64 {
        self.layer.layout().ciphertexts() as f64
    }

    fn words(&self) -> f64 {
        self.layer.upload().0 as f64
    }

    fn outputs(&self) -> f64 {
        self.layer.layout().outputs() as f64
    }

    /// Multiply-adds: online over the exported stretches, of the a half over whole responses.
    fn products(&self) -> (f64, f64) {
        let layout = self.layer.layout();
        let terms = layout.spec().out_channels as f64 * layout.terms_per_output() as f64;
        let positions: usize =
            layout.tiles().iter().map(|t| jaguar_linear::backend::positions(layout.export_len(t))).sum();
        (terms * positions as f64, terms * (layout.tiles().len() * layout.ring_dim()) as f64)
    }
}

/// Maps of so many values are exported, to see what a response takes: up to the largest that fit N = 2048.
const EXPORTS: [usize; 6] = [1, 4, 7, 14, 28, 45];

fn ring_costs(cpu: Cpu, params: Parameters) -> Result<RingCosts, ProfileError> {
    let new = |shape, out, kernel, groups| Probe::new(cpu, params, shape, out, kernel, groups);
    // Many ciphertexts and few responses, few ciphertexts and many responses.
    let inputs = new([96, 28, 28], 8, 1, 1)?;
    let outputs = new([8, 28, 28], 64, 1, 1)?;
    let (many_in, many_out) = (inputs.measure()?, outputs.measure()?);

    // 1. Before the input: two equations for a ciphertext and a response, then responses by what they export.
    let [ciphertext, _] = solve(
        [inputs.ciphertexts(), inputs.responses(), many_in.client_prepare],
        [outputs.ciphertexts(), outputs.responses(), many_out.client_prepare],
    );
    let (mut client_response, mut server_response) = (Vec::new(), Vec::new());
    for side in EXPORTS {
        let probe = new([1, side, side], 32, 1, 1)?;
        let times = probe.measure()?;
        let client = times.client_prepare - probe.ciphertexts() * ciphertext;
        client_response.push((side * side, positive(client / probe.responses())));
        server_response.push((side * side, positive(times.server_prepare / probe.responses())));
    }

    // 2. Online: words and outputs from the same two layers, products from layers that have many. Each round corrects for
    // what the others leave in it.
    let wide = new([32, 56, 56], 32, 3, 1)?;
    let narrow = new([128, 7, 7], 64, 3, 1)?;
    let grouped = new([48, 28, 28], 48, 3, 48)?;
    let (t_wide, t_narrow, t_grouped) = (wide.measure()?, narrow.measure()?, grouped.measure()?);
    let mut online = PerProduct::default();
    let (mut server_word, mut server_output) = (0.0, 0.0);
    for _ in 0..8 {
        // Products are no small part of these layers, whatever a disturbed run of another makes of the rest.
        let rest = |p: &Probe, t: &Times| {
            let rest = t.server_run - p.words() * server_word - p.outputs() * server_output;
            rest.max(t.server_run / 4.0) / p.products().0
        };
        online = PerProduct {
            wide: rest(&wide, &t_wide),
            narrow: rest(&narrow, &t_narrow),
            grouped: rest(&grouped, &t_grouped),
        };
        let [word, output] = solve(
            [inputs.words(), inputs.outputs(), many_in.server_run - inputs.products().0 * online.wide],
            [outputs.words(), outputs.outputs(), many_out.server_run - outputs.products().0 * online.wide],
        );
        (server_word, server_output) = (word, output);
    }

    // 3. Once per model and client.
    let packed = new([32, 14, 14], 64, 3, 1)?;
    let t_packed = packed.measure()?;
    let a_half = PerProduct {
        wide: t_wide.a_half / wide.products().1,
        narrow: t_packed.a_half / packed.products().1,
        grouped: t_grouped.a_half / grouped.products().1,
    };
    Ok(RingCosts {
        ring_dim: params.ring_dim(),
        modulus_bits: params.modulus_bits(),
        ciphertext,
        client_response,
        server_response,
        hint_response: many_out.hint / outputs.responses(),
        client_word: many_in.client_run / inputs.words(),
        server_word,
        server_output,
        online,
        a_half,
    })
}

/// How much faster a layer's preparation is with all threads than with one.
fn speedup(cpu: Cpu, threads: usize, single: &rayon::ThreadPool) -> Result<f64, ProfileError> {
    let probe = Probe::new(cpu, Parameters::DEFAULT, [64, 28, 28], 256, 1, 1)?;
    // By turns and more often than others: threads that wake up late spoil many runs.
    let (mut one, mut all) = (Times::LONGEST, Times::LONGEST);
    for _ in 0..ROUNDS {
        one = one.least(single.install(|| probe.measure())?);
        all = all.least(probe.measure()?);
    }
    let ratio = (one.client_prepare + one.server_prepare) / (all.client_prepare + all.server_prepare);
    Ok(ratio.clamp(1.0, threads as f64))
}

// ---- Nonlinear layers ----

/// As many comparisons as the other probes have values, nearly: 128 channels of 3x3 windows, stride 2.
const POOL: PoolShape =
    PoolShape { channels: 128, size: [32, 32], kernel: [3, 3], stride: [2, 2], pads: [1, 1, 0, 0] };

/// The nonlinear layer that is measured: of a network with 16 bits, whose results go into a layer that gains 12.
fn probe(kind: Kind, digit: u32) -> Arc<dyn Nonlinear> {
    let (count, ignored) = (VALUES, 1);
    match kind {
        Kind::Relu => {
            let params =
                ReluParams { output: Modulus::power_of_two(28), digit, ignored, ..ReluParams::new(16) };
            Arc::new(Elementwise { count, params })
        }
        Kind::Relu6 => {
            let params =
                Relu6Params { output: Modulus::power_of_two(28), digit, ignored, ..Relu6Params::new(16, 13) };
            Arc::new(Elementwise { count, params })
        }
        Kind::MaxPool => {
            let params = PoolParams { digit, ..PoolParams::new(16) };
            Arc::new(Pooling { shape: POOL, params })
        }
        Kind::Extension => {
            let params = ExtendParams { bits: 16, output: Modulus::power_of_two(28), range: Range::Signed };
            Arc::new(Elementwise { count, params })
        }
        Kind::PmaxLeaky => {
            let params = PmaxLeakyParams { output: Modulus::power_of_two(36), ..PmaxLeakyParams::new(24, 8) };
            Arc::new(Elementwise { count, params })
        }
        Kind::Product => {
            // Each takes as many correlations as ten others.
            let params = ProductParams { out_bits: 16, shift: 12, guard_bits: 0, offsets: [0; 2] };
            Arc::new(Elementwise { count: VALUES / 16, params })
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
            let mut cots = Cots::setup(chan, role, Instances { bits: bin, vectors: bin })?;
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

type PerKind = [[PerByte; DIGITS.len()]; Kind::ALL.len()];

fn nonlinear() -> Result<([PerCot; Kind::ALL.len()], PerKind), ProfileError> {
    let steps: Vec<(Kind, u32, Arc<dyn Nonlinear>)> = Kind::ALL
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
                    party.promise(step.cost().promise());
                }
                meet(role, chan)?;
                let (seconds, prepared) = working(chan, |chan| Ok(step.prepare(&mut party, chan)?))?;
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

    // Every COT costs what it costs on the side that sends or receives it: two equations, from both parties' times.
    let cots = Kind::ALL.map(|kind| {
        let i = steps.iter().rposition(|(k, ..)| *k == kind).expect("every kind was measured");
        let cost = steps[i].2.cost();
        let (a, b) = (cost.from_server().total() as f64, cost.from_client().total() as f64);
        let [received, sent] = solve([a, b, client[i].preparing], [b, a, server[i].preparing]);
        PerCot { sent, received }
    });

    let mut table = PerKind::default();
    for (i, (kind, digit, step)) in steps.iter().enumerate() {
        let cost = step.cost();
        let bytes = (cost.up + cost.down) as f64;
        table[*kind as usize][(digit - DIGITS[0]) as usize] = PerByte {
            client: client[i].running / bytes,
            server: server[i].running / bytes,
            both: client[i].both / bytes,
        };
    }
    Ok((cots, table))
}

/// Seconds in which this party worked.
fn working<T>(
    chan: &mut Channel,
    f: impl FnOnce(&mut Channel) -> Result<T, ProfileError>,
) -> Result<(f64, T), ProfileError> {
    let (start, waited) = (Instant::now(), chan.waited());
    let value = f(chan)?;
    chan.flush()?;
    Ok((start.elapsed().saturating_sub(chan.waited() - waited).as_secs_f64(), value))
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

/// Both roles of `f`, over TCP on loopback.
fn between<T: Send>(
    f: impl Fn(Role, &mut Channel) -> Result<T, ProfileError> + Sync,
) -> Result<(T, T), ProfileError> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| -> Result<T, ProfileError> {
            let tcp = listener.accept()?.greet(Options::default())?;
            f(Role::Server, &mut Channel::new(tcp))
        });
        let client = (|| -> Result<T, ProfileError> {
            let tcp = Tcp::connect(address, Options::default())?;
            f(Role::Client, &mut Channel::new(tcp))
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
            speedup: 1.0,
            rings: vec![RingCosts {
                ring_dim: 2048,
                modulus_bits: 48,
                ciphertext: 1e-5,
                client_response: vec![(1, 1e-6)],
                server_response: vec![(1, 1e-6)],
                hint_response: 1e-5,
                client_word: 1e-9,
                server_word: 1e-9,
                server_output: 1e-9,
                online: PerProduct::default(),
                a_half: PerProduct::default(),
            }],
            rns: Vec::new(),
            slots: Vec::new(),
            making: [[1e-8; 4]; 2],
            cots: [PerCot { sent: 83e-9, received }; Kind::ALL.len()],
            nonlinear: PerKind::default(),
            loopback: Link { bytes_per_second: 1e9, round_trip: 1e-5 },
        }
    }

    #[test]
    fn what_cannot_be_is_measured_again_and_then_refused() {
        let mut found = [1e-13, 20e-9, 30e-9].into_iter();
        let machine = possible(|| Ok(with(found.next().unwrap()))).unwrap();
        assert_eq!((machine.cots[0].received, found.next()), (20e-9, Some(30e-9)));
        let mut tried = 0;
        let refused = possible(|| {
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
        assert!(with(received * 1e-9).impossible().is_some());
    }
}
