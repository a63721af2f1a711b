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
const PINNED: [(&str, [&str; 2]); 4] = [
    (
        "jaguar",
        [
            "5fbcab2d7c316c0f21d306caf2fb1bc4314264d1ebb283d9fffa5fe104f5f61c",
            "ee8a89c3e8cf50f6d73426ddd6e08513e7a7b23f2ceb779730629d70e021af50",
        ],
    ),
    (
        "cheetah",
        [
            "452b0db9f0d4ec1eb1847ea3c08e57fe28112c90a9d73bdd382d2035e9cf5257",
            "fe9b4fad7a02a3576aba39d9d0694bc97c273515bdccfa2d971126a00970a314",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "d4f7ae10a637943d6925a10f7d3bc45b86406df2c3f28758a6e80c98fd2f4d5e",
            "2a40b1b2c6c76c88392775383456c4b4aab592078169c2aa5170e6d338211a1f",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "de3afe1059d6e718c8bb88edba55d4334d0d5fc1f48aa811d9f1b5a325c74a1b",
            "225979dec30d566a65cdf55a82fb08ad8d189ad8767e23a868442630f368dc08",
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
        Service::with_plan(cpus[1], bundle, plan, Reveal::Label).unwrap()
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
/// timeline. In front of it its length, in four bytes.
fn report_len(received: &[u8], nodes: usize) -> usize {
    assert!(nodes < 128, "a list's length takes a byte");
    let lengths = (1..=10).map(|peak| 3 * (1 + nodes) + peak + 1);
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
