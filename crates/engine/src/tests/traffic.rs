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
const PINNED: [(&str, [&str; 2]); 11] = [
    (
        "jaguar",
        [
            "3d51076262eb7c41dd61ce7301e88935fd7f9ca44ebacb0047d4f1af2476af2c",
            "13b16dd19e139391e5255cb484c2ddcae55c0ccc7604a105afa413a521d1f6d7",
        ],
    ),
    (
        "cheetah",
        [
            "086bed48cf2ee5f5a4ed15286b3580352273db05fcccc7cd620e2a3480bf0357",
            "8fc2db426e3c2ce0436761ec026654c009e4f08e733c7730d5ea452fea8e2c2c",
        ],
    ),
    (
        "fregata",
        [
            "a59b5077343a9e3ecfa8ddf8af5b634ac1b3f81d44e6478e2712f4157fdfee9d",
            "7b65b4c1d14ae0e4baebf9a8c9a7d7f555f334812950791095654cbf07cc4537",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "83637b9136306d8cb7afe36d6d8c07b2110ae6f2c58f185ec8cc7957f6696057",
            "7b0ec7221a7131089f650202816da3114a6e79dd6e91b43ab96c807839cc4b44",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "151bfe0a567b0e5853b16f331f88954f4b1cd9a228410708819b6a3871dcee82",
            "48223a5c370d506c6d1ca8c265203937412ee1baac49a72c710a9eebbd49ff26",
        ],
    ),
    (
        "hyena",
        [
            "b1a7180a4704b08eb017066d1de497f87c478ab8c9981379153b9b4558d4b899",
            "0d0fd3d03109b21079255ad25272ed0860c68e61d804a7401458a2bd17ff1465",
        ],
    ),
    (
        "hyena-padded",
        [
            "53f6b1c246d991fc2df6520bd29081fd769ccb1a4d8a082d6faa902754db6c8c",
            "a6c1fc98f7f88a965ea5075ff5efd3184f9c403e0ab1985aba0afed5e07dc341",
        ],
    ),
    (
        "hyena-conventional",
        [
            "66f0d3f7af65b4b7bef4811822de3c0d9200c1f51b1cd8a4e6bdb37b65609423",
            "296bc20648ed0dcddf6397b95b87a343862d4e9e6e11809d077f7752cd29995d",
        ],
    ),
    (
        "cirencode",
        [
            "77d891fef0349ffbd05314394fbf938cdf826e9802a042fc42f25965a0b6b0ed",
            "ab11476cf97571b1a7989f117b3af2e8031479501dae25cfc907405b3adf3104",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "a3869da53044e21674b2b4a2a2d2ad83e164693c1ee172555fd1156f112d40b5",
            "0fbe5fbb2058e7c94b2d74f5916d5b014ffcd209d8ba9a314d065b6aae8e9a1e",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "d9e7dd17061a8c6a926cf762307bf221b27ad45ef6b52263ed054d67dac7d2f8",
            "1f3ed3dc4d93c1be8949a9949b4fb8fb7b12eb9ac7c33fc2599d02eeab08cb21",
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
