//! Pins all bytes of a session, for every backend of the registry: a change of the wire format must be meant.

use std::time::Duration;

use jaguar_cpu::{Cpu, Level};
use jaguar_plan::Plan;
use jaguar_ring::prg::with_insecure_fixed_randomness;
use jaguar_wire::Clock;

use super::*;

/// It stands still, so that no message holds a time.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// BLAKE3 of what the client sends and of what it receives, both in hexadecimal. Whoever changes the protocol replaces them, and raises
/// `PROTOCOL_VERSION`.
const PINNED: [(&str, [&str; 2]); 10] = [
    (
        "jaguar",
        [
            "0dcce72371da302bb22e22718f7097f0236bfa28dd601753e00650ac3496b67d",
            "badebabf50957e37ca57ad0fba9cb7452af9206521528a7cba1881c8e25a08d9",
        ],
    ),
    (
        "cheetah",
        [
            "83654296a1ecd0798be6ecdc38559cd9020bbe23c79d7e3aef713643da0ed58a",
            "a6a27391c1d74cfcd918fe11305cf6f64b6ff68240aeb0014d2422069c7e90f2",
        ],
    ),
    (
        "fregata",
        [
            "79c3fe520dfe17244aacb4f0c7ae78e430cc12cbd358221fa41765dc0c88429a",
            "a4da6e02fad48e988f054ffcadc69fd668be92e2e1999ffdbeb60b13820e0fce",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "713f05df047b6875fa1d07f186db3087bd9643911914a4a13789fba28ce21fd6",
            "cc7c57b5809161b79538dcdc0890619c3d88d5a5baba1ab23af1d85f4884caa1",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "b918d2000573d9ced425705cd8e2285befb016217b9930e3c5b5e6c99704e2c6",
            "7310ec64aed42db58b3dd03ffcd21e901462d5b15d82969b0ef58a1f5c12cbfa",
        ],
    ),
    (
        "hyena",
        [
            "b2d65a5454c1874976d1ad50c22a6c9d9b79041aa22e449e95bdc4d4146eab69",
            "04e3e2d2424fdecda4d0f5bf7200d8603468f832a90f2e1695aed8cc41c542ac",
        ],
    ),
    (
        "hyena-padded",
        [
            "6140c6d51796f3b0e4abccc3cb1c6ec30be6fcabe4f4acd684cb4793ac5cd9ec",
            "0e7a350162cd2d41f304ddf452de35808a7f5d5a450c1ec83907ab2e8a2064a2",
        ],
    ),
    (
        "hyena-conventional",
        [
            "13c34fcb6bf6fcca24aa63ca00789dc8bbea25ab5bd0c861adf6b7dad8a05579",
            "8d4e935fd80a80d20cddb3fb3a46b921e62fe8ff2125a98c246ea2f262f5a7c4",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "6665eab9bad09e814e657267fc3eb82b3322f3c3e949d2e997e80f5b1050dbdb",
            "94bc3cdfa821becce4e092acb8d433e6c7c9515ffe8f025cd57c30bb53973c65",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "f62ae3b1eea98bed507ddc12278fec85dca143a909160e9a8cde9761c3f5e68e",
            "ab79c93a3f24d1423854a469e0b6158ad8029cae445bd8785c72557d441967e9",
        ],
    ),
];

/// All bytes of a session with one query, sent and received by the client. The report is left out: it tells how much
/// memory the server's process took. `cpus` are the client's and the server's.
fn traffic(backend: BackendId, seed: u8, cpus: [Cpu; 2]) -> [Vec<u8>; 2] {
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    let clock = || Arc::new(Stopped);
    let service = with_insecure_fixed_randomness([1; 32], || {
        let bundle = everything();
        let choices = Choices::standard(&bundle.model.network, backend);
        let plan = Plan::allowing_insecure_backends(&bundle.model.network, choices).unwrap();
        Service::with_plan(cpus[1].into(), bundle, plan, Reveal::Label).unwrap()
    });
    let x = input(5, 3 * 17 * 15);
    let limits = Limits { allow_insecure_backends: true, ..Limits::default() };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let channel = Channel::with_clock(b, clock());
            with_insecure_fixed_randomness([2; 32], || service.serve(channel, &mut |_| ()))
        });
        with_insecure_fixed_randomness([seed; 32], || {
            let channel = Channel::with_clock(recorder, clock());
            let connected = connect(channel, &limits).unwrap().with_cpu(cpus[0]);
            let ready = connected.prepare_client(Place::Memory).unwrap();
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let (_, report, ready) = prepared.run(&x, &mut NoProgress).unwrap();
            // No time was taken from another clock.
            let seconds = [report.online_seconds, report.offline_seconds, report.hint_seconds];
            assert_eq!(seconds, [0.0; 3]);
            assert!(report.rows.iter().all(|row| row.online.wall_seconds == 0.0));
            ready.leave().unwrap();
        });
        server.join().unwrap().unwrap();
    });
    let mut received = transcript.received();
    let nodes = service.network().nodes.len();
    received.truncate(received.len() - report_len(&received, nodes));
    [transcript.sent(), received]
}

/// The length of the report at the end of `received`: three lists with a zero for each node, the peak memory in one to ten bytes, no
/// kept query, none in stock and no bytes, no timeline. In front of it its length, in four bytes.
fn report_len(received: &[u8], nodes: usize) -> usize {
    assert!(nodes < 128, "a list's length takes a byte");
    let lengths = (1..=10).map(|peak| 3 * (1 + nodes) + peak + 4);
    let announced = |len: usize| {
        let at = received.len() - len - 4;
        received[at..at + 4] == (len as u32).to_le_bytes()
    };
    let len = lengths.into_iter().find(|&len| announced(len)).expect("the session ends in a report");
    let list = &received[received.len() - len..][..1 + nodes];
    assert!(usize::from(list[0]) == nodes && list[1..].iter().all(|&b| b == 0), "{list:?}");
    len + 4
}

#[test]
fn the_traffic_of_a_session_is_pinned_for_every_backend() {
    assert_pinned([Cpu::detect(); 2]);
}

/// Whatever the two parties' linear layers are computed with, and whether it is the same, the same bytes pass.
#[test]
fn the_traffic_does_not_depend_on_the_processor() {
    for level in Level::ALL {
        assert_pinned([Cpu::scalar(), Cpu::detect().limited_to(level)]);
    }
    assert_pinned([Cpu::detect(), Cpu::scalar()]);
}

fn assert_pinned(cpus: [Cpu; 2]) {
    let hex = |bytes: &Vec<u8>| blake3::hash(bytes).to_hex().to_string();
    let hashes = |backend| traffic(backend, 3, cpus).each_ref().map(hex);
    let found: Vec<(&str, [String; 2])> =
        BackendId::all().map(|backend| (backend.name(), hashes(backend))).collect();
    let found: Vec<(&str, [&str; 2])> =
        found.iter().map(|(name, hashes)| (*name, hashes.each_ref().map(String::as_str))).collect();
    assert_eq!(
        found, PINNED,
        "the bytes of a session have changed, or a backend is not pinned yet ({cpus:?})"
    );
}

/// What is pinned is all that passes: with other secrets at the client nearly every byte is another.
#[test]
fn other_randomness_makes_other_traffic() {
    let [[sent, received], [other_sent, other_received]] =
        [3, 4].map(|seed| traffic(BackendId::JAGUAR, seed, [Cpu::detect(); 2]));
    for (bytes, other) in [(sent, other_sent), (received, other_received)] {
        assert_eq!(bytes.len(), other.len());
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < bytes.len() / 2, "{equal} of {} bytes are the same", bytes.len());
    }
}
