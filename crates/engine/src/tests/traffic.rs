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
            "c1d287fa456dfe9e63853e9fb2b14b51fda6df33b2221aab48734b9aeac7e8fb",
            "ed2fa7b649ebc397cb9a0a62c470cf53c2c32340c6a0cd364410f397160c9db4",
        ],
    ),
    (
        "cheetah",
        [
            "344b580ad0aea230bbef3c3c7ee6adbd6d02e5afcc648bcc7a5db53e570b1055",
            "587bacc7a79716b3e0c36263b3348776e3125c88ab9b6f591efa32d5e6196684",
        ],
    ),
    (
        "fregata",
        [
            "e137ed10c9d63ac649dea7d0d274ea03f13c6939b68d466447da2bc9d2b7624a",
            "6aaaa15749b1761a4924dcf2a905426b9f5b8674fb0c5707f6f2207ac757853f",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "bcd1f494c14f2590921fed616881c28034cf7f80db3b656ba49e18437338ac15",
            "456867c9ee7b92497283f2aee448d5af5058c37f7ccab22efbb6fbcd116cf751",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "0fad63116c3cca1462559d24c640b4dac56d1bc39da79738968de831536c0245",
            "604206bc40c60102c13c481aa804f230f42cba2f64d93423d3f0cffa9f431e7a",
        ],
    ),
    (
        "hyena",
        [
            "5d72e4df9e75245b880b5ffc9bc682193df25e8070f4d8bf690efa54cbffc165",
            "edc681afc080873cce59338e3ebb7ebf911a88d17cd51834bfccc51eb45d2a15",
        ],
    ),
    (
        "hyena-padded",
        [
            "6e050669849c3cdb556d9e10717007534b2d977a929a79ee6d08c3d6af8ee304",
            "46e6389047aec42108aa60bd89bd9b794ff49327f5b803d4161af3aa7defcf8c",
        ],
    ),
    (
        "hyena-conventional",
        [
            "48c1176733ba5880dbf0eb9dbe7483a35cb4bb2b9ab157cbf4a4133d27e57eab",
            "22bb3ceae97936ba1dbdbc54e222b465ddb3c6117e95cf501c588f70d55a8ab8",
        ],
    ),
    (
        "cirencode",
        [
            "8418b580920035114b93e4d2ce4f36434c1f1b4dc6db7c0acdeb92358b75061b",
            "608dc5e42dbb566703f2efd78034680e2aaf6a7bcded36a5997b7573b17065ff",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "9d2e5e7d31d61c2ce72e599c17d505a4b2b72988fb6de2e5439cec34e2035948",
            "c54702b444bfb3950046479b6456cf5bcf11bb1ebd133449c3d3d0468a1cb31d",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "601c8f6e4a9d700dc52c6e06073a3486813ca45d281279952bc5880f8b0f9359",
            "828f9f6be03bf02c4b715db044d7969cea0a8ef2f77705f595a43c7be43278d5",
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
