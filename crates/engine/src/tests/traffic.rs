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
            "e0abdcba731870237b0688000d47707e27c2c246ffc71aff9ebf105f261e6591",
            "cc5482bca1d850463b9eb6e52d2bd8b09ffa6b1a95c798440f267ed2d09c8c77",
        ],
    ),
    (
        "cheetah",
        [
            "eee17ca5af1e53b0ef031a5d0c9820d4b433fe35e295d79f2a3491a4a8d72065",
            "ff1262edb829dc33c35806cfd784fab5864896b28c16dfaf61ccd52495c95113",
        ],
    ),
    (
        "fregata",
        [
            "1612dab2351bdf7e281c9aa951783139209cdc85dc8960db4a782814e51a9621",
            "db3a00f7bb498fc22d08fd2b787eef3a50dc696af916f6d41ecf7dfca7b5e54d",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "37b0340b81547285cadccfa3fc472d5c694ac7b55b66510899e981c5d379ac8f",
            "3e8427f0466c1d3ad3303bb184103e910d0a66b6f3f7bb751c264c545c07722a",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "db6bea18823061b8036c20c81ca1317c3d4c7716d99426f90e63aec311704b48",
            "a36c5cf29a685935440e72f510f1ba8229847cd65648df121e7844ac4a87449b",
        ],
    ),
    (
        "hyena",
        [
            "a678ef812be7cc94fb334d496232d47e0fc03b4b908bcc194102fa3f60d53863",
            "393688879009ab5db84321f78eec5814e07d4404cb2a227f11c3eb884b46b5f1",
        ],
    ),
    (
        "hyena-padded",
        [
            "1fc6965135fbc7b38e836bcb131c569da7994687084149c625da673e32f7388f",
            "b8abdb158e03d600c1b519f413ab76770998748bcc5174e04c235af007d15c13",
        ],
    ),
    (
        "hyena-conventional",
        [
            "24374c005468a286cf172efab166d74fbe1192da2f789764aeb94ca0f4873046",
            "daa3acddfd9ffbd8bef04b2f4a5077088175b78ac4c155c8438c2726949db1d4",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "523064e6287a86d9d7d55e1d14eda60b2a3a8ad535c32a7cf95f787c86838570",
            "74d04e4b6ee04495827b49a6dc60d01893cc71f5ada95bb3be83586b405a7309",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "6daff59b03deddd5aad7b30ee3e24b6f6635f7a1d0f4d7bbee23579ace53817c",
            "f78b34ede6df147d6ca36fb5863a62857bb666a4590b17adb9a5bafb41bd32d2",
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
