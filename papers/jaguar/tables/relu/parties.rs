//! Both parties, measured: a thread each, real COTs, every result compared with the plaintext reference.

use std::sync::mpsc;

use anyhow::{Context, Result, anyhow, ensure};
use jaguar_mpc::{Party, Range, TruncateParams, reference, run_blocks};
use jaguar_ot::{Cots, Instances, Role};
use jaguar_profile::busy::{Span, Start, alone};
use jaguar_profile::{Imitated, link};
use jaguar_report::terminal::in_one_line;
use jaguar_wire::{Channel, Stage, Traffic, memory_transports};

use super::cases::{Case, Step};

/// What one party measured in one repeat.
#[derive(Clone, Copy)]
pub struct Measured {
    pub prepare: Span,
    pub online: Span,
    pub prepare_traffic: Traffic,
    pub online_traffic: Traffic,
    pub cots: u64,
}

/// The two parties meet before each timed part, outside of the link. Whoever waits for one that has failed is told.
struct Meeting {
    to: mpsc::Sender<Outputs>,
    from: mpsc::Receiver<Outputs>,
}

/// Shares of a case's results, layer by layer; empty where the parties only meet.
type Outputs = Vec<Vec<u64>>;

impl Meeting {
    fn pair() -> [Self; 2] {
        let ((to_b, from_a), (to_a, from_b)) = (mpsc::channel(), mpsc::channel());
        [Self { to: to_b, from: from_b }, Self { to: to_a, from: from_a }]
    }

    fn exchange(&self, own: Outputs) -> Result<Outputs> {
        self.to.send(own).map_err(|_| anyhow!("the other party stopped"))?;
        self.from.recv().context("the other party stopped")
    }

    fn meet(&self) -> Result<()> {
        self.exchange(Vec::new()).map(drop)
    }
}

/// Words that look random and are the same on every run.
fn word(i: u64) -> u64 {
    let x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The shares of one layer's inputs: values as large as the first step takes.
fn inputs(case: &Case, role: Role, count: usize) -> Vec<u64> {
    let (bits, _) = case.steps[0].bits();
    // By other comparisons, values have fewer bits than their shares.
    let held = bits - case.compared_by.map_or(0, |(_, more)| more);
    let value = |word: u64| match case.steps[0] {
        Step::Truncate(TruncateParams { range: Range::NonNegative, .. }) => {
            reference::residue(word as i64, bits - 1) as i64
        }
        Step::Truncate(TruncateParams { range: Range::Full { .. }, .. }) => reference::signed(word, bits),
        // A max-pool takes differences, and so not quite the smallest value of n − 1 bits.
        _ => reference::signed(word, held - 1).max(1 - (1 << (held - 2))),
    };
    (0..count as u64)
        .map(|i| {
            let value = value(word(2 * i));
            let client = word(2 * i + 1);
            let share = if role == Role::Client { client } else { (value as u64).wrapping_sub(client) };
            reference::residue(share as i64, bits)
        })
        .collect()
}

/// Compares one layer's results with the reference.
fn check(case: &Case, [x_c, x_s]: [&[u64]; 2], [y_c, y_s]: [&[u64]; 2]) -> Result<()> {
    let (bits, _) = case.steps[0].bits();
    let (_, out_bits) = *case.steps.last().map(Step::bits).as_ref().expect("a step");
    let opened = |c: &[u64], s: &[u64], bits| -> Vec<i64> {
        c.iter().zip(s).map(|(&c, &s)| reference::open(c, s, bits)).collect()
    };
    let mut values = opened(x_c, x_s, bits);
    let mut slack = 0;
    for step in &case.steps {
        match step {
            // Only ever the first step, so the ignored bits are those of the inputs' shares.
            Step::Relu(p) => {
                let shares = x_c.iter().zip(x_s);
                values = shares.map(|(&c, &s)| reference::relu_ignoring(c, s, p.bits, p.ignored)).collect();
            }
            Step::Relu6(p) => values.iter_mut().for_each(|x| *x = reference::relu6(*x, p.log2_six)),
            Step::MaxPool { shape, .. } => values = reference::maxpool(&values, shape),
            Step::Truncate(p) => {
                values.iter_mut().for_each(|x| *x >>= p.shift);
                slack = 1;
            }
        }
    }
    let got = opened(y_c, y_s, out_bits);
    ensure!(got.len() == values.len(), "{}: {} results, not {}", case.name, got.len(), values.len());
    for (got, want) in got.into_iter().zip(values) {
        ensure!((want..=want + slack).contains(&got), "{}: {got} where {want} was right", case.name);
    }
    Ok(())
}

/// One party's whole part.
fn party(
    role: Role,
    mut chan: Channel,
    meeting: Meeting,
    cases: &[Case],
    repeats: usize,
) -> Result<Vec<Vec<Measured>>> {
    let source = Cots::setup(&mut chan, role, Instances::default())?;
    let mut party = Party::new(role, source);
    let mut all = Vec::new();
    for case in cases {
        if role == Role::Client {
            eprintln!("{} ...", case.name);
        }
        let x: Vec<Vec<u64>> = case.layers.iter().map(|&count| inputs(case, role, count)).collect();
        let mut measured = Vec::new();
        for _ in 0..repeats {
            let (outputs, figures) = once(role, &mut party, &mut chan, &meeting, case, &x)?;
            measured.push(figures);
            // The client sees to it that the results are right.
            if role == Role::Server {
                meeting.exchange(outputs)?;
                continue;
            }
            let theirs = meeting.exchange(Vec::new())?;
            for (layer, (own, theirs)) in outputs.iter().zip(&theirs).enumerate() {
                let servers = inputs(case, Role::Server, case.layers[layer]);
                check(case, [&x[layer], &servers], [own, theirs])?;
            }
        }
        all.push(measured);
    }
    Ok(all)
}

/// Prepares and runs a case once.
fn once(
    role: Role,
    party: &mut Party<Cots>,
    chan: &mut Channel,
    meeting: &Meeting,
    case: &Case,
    x: &[Vec<u64>],
) -> Result<(Outputs, Measured)> {
    let before = party.used();
    let timed = |chan: &mut Channel, stage: Stage| -> Result<Start> {
        chan.flush()?;
        chan.take_stats();
        chan.enter(stage, "bench");
        meeting.meet()?;
        Ok(Start::now())
    };
    // 1. Preparation.
    let start = timed(chan, Stage::Offline)?;
    if role == Role::Client {
        // Where it sends nothing else in preparation, its COTs may run ahead.
        party.promise(case.promise());
    }
    let mut prepared = Vec::new();
    for &count in &case.layers {
        for step in &case.steps {
            prepared.push(case.layer(step, count).prepare(party, chan)?);
        }
    }
    chan.flush()?;
    let (prepare, prepare_traffic) = (start.span(), chan.total());
    let after = party.used();
    // 2. Online.
    let start = timed(chan, Stage::Online)?;
    let mut prepared = prepared.into_iter();
    let mut outputs = Vec::new();
    for x in x {
        let mut y = None;
        for blocks in prepared.by_ref().take(case.steps.len()) {
            y = Some(run_blocks(blocks, chan, y.as_deref().unwrap_or(x))?);
        }
        outputs.extend(y);
    }
    chan.flush()?;
    let (online, online_traffic) = (start.span(), chan.total());
    let cots = (after.0 + after.1).total() - (before.0 + before.1).total();
    Ok((outputs, Measured { prepare, online, prepare_traffic, online_traffic, cots }))
}

/// Measures all cases: what the client and what the server found, by case and repeat.
///
/// # Errors
/// When a result is wrong or a party fails.
pub fn measure(shape: Option<Imitated>, cases: &[Case], repeats: usize) -> Result<[Vec<Vec<Measured>>; 2]> {
    let (a, b) = memory_transports();
    let [a, b] = [a, b].map(|end| link::channel(end, shape));
    let [at_client, at_server] = Meeting::pair();
    let (client, server) = std::thread::scope(|scope| {
        // Each party owns its ends, so that its failure closes them and the other ends, too. And each has one thread,
        // bins of its COTs included.
        let server = scope.spawn(move || alone(move || party(Role::Server, b, at_server, cases, repeats)));
        let client = alone(move || party(Role::Client, a, at_client, cases, repeats));
        (client, server.join().expect("a party does not panic"))
    });
    let (client, server) = (client?, server?);
    match (client, server) {
        (Ok(client), Ok(server)) => Ok([client, server]),
        (Err(client), Err(server)) => {
            let [client, server] = [&client, &server].map(|error| in_one_line(error.as_ref()));
            Err(anyhow!("client: {client}; server: {server}"))
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::relu;
    use super::*;

    #[test]
    fn wrong_results_are_seen() {
        let case = Case::new("ReLU", 2, &[relu(16, 16, 4, 0)]);
        let (x_c, x_s) = ([5, 7], [0xffff, 0xfff0]);
        check(&case, [&x_c, &x_s], [&[4, 1], &[0, 0xffff]]).unwrap();
        assert!(check(&case, [&x_c, &x_s], [&[4, 1], &[0, 0]]).is_err());
        assert!(check(&case, [&x_c, &x_s], [&[4], &[0]]).is_err());
    }
}
