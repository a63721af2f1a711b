//! How far predicted ReLUs are from measured ones: `cargo run --release -p jaguar-profile --example relu_prices`.
//!
//! Measures this machine as `jaguar measure` does, then ReLUs of several widths and digits by turns between two threads, and prints for
//! each what a ReLU takes of both parties' processors: offline and in all, as predicted and as measured, in ns.

use jaguar_mpc::{Elementwise, Modulus, MpcError, Nonlinear, NonlinearKind, Party, ReluParams, run_blocks};
use jaguar_ot::{Cots, Instances, Role};
use jaguar_plan::Kit;
use jaguar_plan::machine::{DIGITS, Machine};
use jaguar_profile::busy::{Start, alone};
use jaguar_profile::measure::measure;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::{Channel, memory_pair};

/// ReLUs of a layer, and how often each layer runs.
const COUNT: usize = 1 << 17;
const ROUNDS: usize = 6;

type Layer = Elementwise<ReluParams>;

/// ReLUs of 12 to 24 bits, with digits of all sizes, whose results stay in their ring or go on into one of 12 bits more.
fn layers() -> Vec<Layer> {
    let widths = [12, 16, 20, 24].into_iter().flat_map(|bits| [(bits, bits), (bits, bits + 12)]);
    let of = |(bits, out)| {
        DIGITS.map(|digit| ReluParams { output: Modulus::power_of_two(out), digit, ..ReluParams::new(bits) })
    };
    widths.flat_map(of).map(|params| Layer { count: COUNT, params }).collect()
}

/// The least seconds of this party's processor, offline and online, of each layer.
fn party(role: Role, chan: &mut Channel, layers: &[Layer]) -> Result<Vec<[f64; 2]>, MpcError> {
    let mut party = Party::new(role, Cots::setup(chan, role, Instances::default())?);
    let mut least = vec![[f64::INFINITY; 2]; layers.len()];
    for _ in 0..ROUNDS {
        for (layer, [offline, online]) in layers.iter().zip(&mut least) {
            if role == Role::Client {
                party.promise(layer.promise());
            }
            let start = Start::now();
            let blocks = layer.prepare(&mut party, chan)?;
            chan.flush()?;
            *offline = offline.min(start.span().busy.as_secs_f64());
            let start = Start::now();
            run_blocks(blocks, chan, &[0; COUNT])?;
            chan.flush()?;
            *online = online.min(start.span().busy.as_secs_f64());
        }
    }
    Ok(least)
}

/// The same of both parties together, each in a pool of one thread.
fn measured(layers: &[Layer]) -> Vec<[f64; 2]> {
    let (mut to_server, mut to_client) = memory_pair();
    let one = |role, chan: &mut Channel| {
        alone(|| party(role, chan, layers)).expect("a thread").expect("a peer that follows the protocol")
    };
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| one(Role::Server, &mut to_client));
        (one(Role::Client, &mut to_server), server.join().expect("the server ends"))
    });
    client.into_iter().zip(server).map(|(c, s)| [c[0] + s[0], c[1] + s[1]]).collect()
}

/// What [`measured`] should find, by the planner's formulas.
fn predicted(machine: &Machine, layer: &Layer) -> [f64; 2] {
    let (cost, digit) = (layer.cost(), layer.params.digit);
    let cot = machine.cot(NonlinearKind::Relu, digit);
    let byte = machine.nonlinear(NonlinearKind::Relu, digit);
    let correlations = (cost.from_server() + cost.from_client()).total() as f64;
    [correlations * (cot.sent + cot.received), (cost.up + cost.down) as f64 * (byte.client + byte.server)]
}

fn main() {
    let machine = measure(Cpu::detect(), &Kit::standard()).expect("a quiet machine");
    let layers = layers();
    println!("bits to bits, digit: offline predicted, measured, off by; in all predicted, measured, off by");
    for (layer, [offline, online]) in layers.iter().zip(measured(&layers)) {
        let [before, with] = predicted(&machine, layer);
        let figures = |predicted: f64, measured: f64| {
            let each = |seconds: f64| seconds * 1e9 / COUNT as f64;
            format!(
                "{:4.0} {:4.0} {:+4.0} %",
                each(predicted),
                each(measured),
                100.0 * (predicted / measured - 1.0)
            )
        };
        let ReluParams { bits, output, digit, .. } = layer.params;
        println!(
            "{bits} to {}, {digit}: {}; {}",
            output.bits(),
            figures(before, offline),
            figures(before + with, offline + online)
        );
    }
}
