//! What the steps of a layer take, each on its own, and what a layer takes then.

use std::time::Duration;

use anyhow::{Result, ensure};
use jaguar_graph::network::{Bias, Linear, Weights};
use jaguar_hyena::steps::{Bench, Counts, Planned, ROTATED_TOGETHER, Rotated, Upload};
use jaguar_profile::busy::Start;
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

use crate::statistics::medians;

/// Which of the paper's means are in use.
#[derive(Clone, Copy)]
pub struct Means {
    pub hoisted: bool,
    pub lazy: bool,
}

impl Means {
    pub const ALL: Self = Self { hoisted: true, lazy: true };
}

/// Seconds of one step, on one thread.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Units {
    /// Client: a ciphertext encrypted and packed.
    pub encrypt: f64,
    /// Server: a ciphertext unpacked, and rotated by all taps.
    pub rotate: f64,
    /// Server: the sum of one diagonal of one output block.
    pub sum: f64,
    /// Server: it, turned.
    pub turn: f64,
    /// Server: a response.
    pub respond: f64,
    /// Client: a response decrypted.
    pub decrypt: f64,
}

/// Seconds of a whole layer on one thread.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Seconds {
    pub rotations: f64,
    pub sums: f64,
    pub turns: f64,
    pub responses: f64,
    pub client: f64,
}

impl Seconds {
    pub fn new(units: &Units, counts: Counts) -> Self {
        let times = |count: usize, unit: f64| count as f64 * unit;
        Self {
            rotations: times(counts.ciphertexts, units.rotate),
            sums: times(counts.sums, units.sum),
            turns: times(counts.turns, units.turn),
            responses: times(counts.responses, units.respond),
            client: times(counts.ciphertexts, units.encrypt) + times(counts.responses, units.decrypt),
        }
    }

    /// The convolution alone, as in Figure 4: what the server does between a ciphertext that came and one that leaves.
    pub fn convolution(&self) -> f64 {
        self.rotations + self.sums + self.turns
    }

    /// Both parties.
    pub fn all(&self) -> f64 {
        self.convolution() + self.responses + self.client
    }
}

/// How much of a layer is run.
#[derive(Clone, Copy)]
pub struct Sampling {
    /// Ciphertexts of the input.
    pub inputs: usize,
    /// Groups of diagonals.
    pub groups: usize,
    /// How often all of it.
    pub repeats: u32,
}

/// A layer in one way.
pub struct Case {
    bench: Bench,
    means: Means,
    counts: Counts,
    /// Whether it has responses: without enough security there are none.
    responds: bool,
    runs: Vec<Units>,
}

/// A step is run until it took this long.
const LEAST: Duration = Duration::from_millis(40);

/// Seconds on a core of one call, and what it gave last.
fn timed<T>(mut f: impl FnMut() -> T) -> (T, f64) {
    let start = Start::now();
    let mut calls = 0;
    loop {
        let value = f();
        calls += 1;
        let spent = start.span().busy;
        if spent >= LEAST {
            return (value, spent.as_secs_f64() / f64::from(calls));
        }
    }
}

impl Case {
    pub fn new(
        cpu: Cpu,
        planned: &Planned,
        index: usize,
        weights: &Weights,
        means: Means,
        sampling: Sampling,
    ) -> Self {
        let bench = planned.bench(cpu, index, weights, sampling.inputs, sampling.groups);
        let responds = planned.ring().params.is_secure();
        Self { bench, means, counts: planned.counts(index), responds, runs: Vec::new() }
    }

    /// All steps once. With `check` every sum is compared with the plain one, outside the clock.
    fn run(&mut self, check: bool) -> Result<()> {
        let Self { bench, means, .. } = self;
        let mut units = Units::default();
        let blocks = bench.inputs();
        let mut uploads: Vec<Upload> = Vec::with_capacity(blocks);
        for block in 0..blocks {
            let (upload, encrypt) = timed(|| bench.encrypt(block));
            // (Each of an upload's pieces is a ciphertext.)
            units.encrypt += encrypt / (blocks * upload.len()) as f64;
            uploads.push(upload);
        }
        // As many at once as in a session.
        let mut inputs: Vec<Rotated> = Vec::with_capacity(blocks);
        for uploads in uploads.chunks(ROTATED_TOGETHER) {
            let (rotated, rotate) = timed(|| bench.rotate(uploads, means.hoisted));
            units.rotate += rotate / (blocks * uploads[0].len()) as f64;
            inputs.extend(rotated);
        }
        let samples = bench.samples();
        let (mut sums_made, mut turns_made) = (0, 0);
        for sample in 0..samples {
            let (sums, seconds) = timed(|| bench.sums(sample, &inputs, means.lazy));
            units.sum += seconds;
            sums_made += sums.len();
            let turned = bench.are_turned(sample);
            // (All turns take the same: one of a group is timed.)
            if let Some(i) = turned.iter().position(|&turned| turned) {
                units.turn += timed(|| bench.turn(sample, i, &sums[i])).1;
                turns_made += 1;
            }
            if check {
                let mut all = sums.iter().enumerate();
                let right = all.all(|(i, sum)| bench.is_right(sample, i, &bench.turn(sample, i, sum)));
                ensure!(right, "a sum is wrong");
            }
            if sample + 1 == samples && self.responds {
                let (response, seconds) = timed(|| bench.respond(&sums[0]));
                let each = bench.together() as f64;
                units.respond = seconds / each;
                units.decrypt = timed(|| bench.decrypt(&response)).1 / each;
            }
        }
        units.sum /= sums_made.max(1) as f64;
        units.turn /= turns_made.max(1) as f64;
        if !check {
            self.runs.push(units);
        }
        Ok(())
    }

    fn seconds(&self) -> (Units, Seconds) {
        let [encrypt, rotate, sum, turn, respond, decrypt] = medians(
            &self.runs,
            [|u| u.encrypt, |u| u.rotate, |u| u.sum, |u| u.turn, |u| u.respond, |u| u.decrypt],
        );
        let units = Units { encrypt, rotate, sum, turn, respond, decrypt };
        (units, Seconds::new(&units, self.counts))
    }
}

/// Runs all cases by turns: once to check them, then to time them.
///
/// # Errors
/// When a result is wrong.
pub fn measure(cases: &mut [Case], sampling: Sampling) -> Result<Vec<(Units, Seconds)>> {
    for round in 0..=sampling.repeats {
        cases.iter_mut().try_for_each(|case| case.run(round == 0))?;
    }
    Ok(cases.iter().map(Case::seconds).collect())
}

/// Weights of no meaning, of `bits` bits.
pub fn weights(spec: &Linear, channels: usize, bits: u32) -> Weights {
    let bound = 1i64 << (bits - 1);
    let count = spec.weights_len(channels).expect("a layer of this network") as i64;
    Weights {
        weights: (0..count).map(|i| (i * 7919 % (2 * bound - 1) - bound + 1) as i16).collect(),
        exponents: Vec::new(),
        bias: Bias::PerChannel(vec![0; spec.out_channels]),
    }
}
