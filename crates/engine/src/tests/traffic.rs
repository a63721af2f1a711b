//! Pins all bytes of a session, for every backend of the registry, and for what else changes what passes: what is revealed, guard
//! bits, comparisons that leak, other instances of the OT extension. A change of the wire format must be meant.
//!
//! (Kept queries pass the same kinds of messages in another order: `kept.rs`. The parts of the OT extension are pinned in `ot`. One-round
//! sessions are not pinned.)

use std::time::Duration;

use jaguar_cpu::{Cpu, Level};
use jaguar_mpc::cost::{Bin, Instances};
use jaguar_plan::{Allowed, Plan};
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
            "a14e7f3097f87c1cdaa5da56fc5c916b5a2eaef207b448602421846759018f7f",
            "92de9ab8605dc39a70e839ea8d8652f73a8140cc7d502c972d66be6d06ae9d4c",
        ],
    ),
    (
        "cheetah",
        [
            "5655f650ad1ed91579e0a93f90b8eb274bf275a1f695abd8474dee0af0fb7459",
            "67d40456df8fa39b9798cd631a87cecd19060df5023409651dc1e5a332ebb8a8",
        ],
    ),
    (
        "fregata",
        [
            "32d53eb171ccae7bf89189608b63ca990660c8e153f9c21aac1b122ab8e1ba49",
            "569c86badeb98be2d97727e4ca9542601dd5ef8aaa1fff905c812b518d348952",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "1a56d68b9f777a86cc266d053f67b31b4e200f5f65f99bd604ddb892c146136f",
            "50957ea99136aaa2fd414811de2f4ae9a7f7ac6b229cce6a3bceb9fe0e38b3bc",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "6c04ba02a9e21b156de626d61173a148ff89d1ebd4b6b4f98f1b866308f319c2",
            "8e834e5cfbd74f690033b972f68bc38bb02167abc270194e3833c81d6c036917",
        ],
    ),
    (
        "hyena",
        [
            "3d8845ec6c1ddc33df6b5a1e889982ee28433a286c04ef94680deebae3b9b044",
            "09d813bda80cb28524ae9099e93206649f1453aac3216ca8dd43f4672c1c2306",
        ],
    ),
    (
        "hyena-padded",
        [
            "0999a00fbb01a84badf87c81b833ae27eb48afc1d052c06cd57ec6a27e472862",
            "53dc3d06528276625b6a9a7398ea7e49d18366bf43260c8f45379e188d72c48c",
        ],
    ),
    (
        "hyena-conventional",
        [
            "ca15d13f9edd426eafef2de06239ad4f1b84cbe01402b0ee1824808a064cb8f0",
            "771312261adb455763548a09be4bb5ee48513f8f40b9e7758973dca6391ad03f",
        ],
    ),
    (
        "cirencode",
        [
            "1e403d12428c422a977deb45b8d896b5b0c0a91615d3da8867f5ffcda265c163",
            "5a453267e2eb843bd693fcce5941c92e787bced035749ec74f2674d220356af9",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "b1d1a8c937539ccc3698dd7be7a912f4125294b0b25c3159586d8ad590c80fda",
            "137788f597bce974240d4f450e644b2963d3974b0202333fd30d04247783b5d0",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "ebb213fed50f907bb0bf23abbe72b716c6950d328e90149964afc1c52921970e",
            "593d3fa3651bac1b72c10884f8aa0b8d7b27ab878cccdb7fa3d1858b75bd0c6d",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "bebbc4c77628de8bdd1f9b361ac47e999b725f21abcb8a8e7124b983b4dfa3d8",
            "af7d228b247a281eab6604d7e497cd02cc99606de0eb61380d7e409284a91ace",
        ],
    ),
    (
        "guard bits",
        [
            "7a07072dc6822388a140765dc65c75d67af81430a4db3498a7cb1da62fb59d1d",
            "24dc59f6d32101c07a07b2a267c45898f2ea92b1ae4865b38569aefd30f81aaf",
        ],
    ),
    (
        "comparisons that leak",
        [
            "50a247727ff9e1776454bdee9b66538bf147db31f6521c69474544d7c4367947",
            "31b48dd8c60b2e3ea5ca95633ce18d686d8fe3a1c380c62d1a0ba0df7bc7ee7f",
        ],
    ),
    (
        "other LPN instances",
        [
            "0a944afa33afe5f28e384ede479bc172b26b1db575050a0abc5c071f5adfba57",
            "b97b8992d7a968534cbc7229f11de340a07004c812808d66510089002b793f84",
        ],
    ),
];

/// A session.
#[derive(Clone, Copy)]
struct Case {
    backend: BackendId,
    reveal: Reveal,
    guard_bits: u32,
    leaky: bool,
    instances: Instances,
}

impl Case {
    fn of(backend: BackendId) -> Self {
        let (reveal, guard_bits, leaky) = (Reveal::Label, 0, false);
        Self { backend, reveal, guard_bits, leaky, instances: Instances::default() }
    }

    /// Those of [`OTHERS`].
    fn others() -> [Self; 4] {
        let default = Self::of(BackendId::JAGUAR);
        let instances = Instances { bits: Bin::B4096, vectors: Bin::B1024 };
        [
            Self { reveal: Reveal::Logits, ..default },
            Self { guard_bits: jaguar_graph::network::DEFAULT_GUARD_BITS, ..default },
            Self { leaky: true, ..default },
            Self { instances, ..default },
        ]
    }
}

/// All bytes of a session with one query, sent and received by the client. The report is left out: it tells how much
/// memory the server's process took. `cpus` are the client's and the server's.
fn traffic(case: Case, seed: u8, cpus: [Cpu; 2]) -> [Vec<u8>; 2] {
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    let clock = || Arc::new(Stopped);
    let service = with_insecure_fixed_randomness([1; 32], || {
        let bundle = Bundle::with_guard_bits(everything().model, case.guard_bits).unwrap();
        let network = &bundle.model.network;
        let mut choices = Choices::standard(network, case.backend);
        choices.instances = case.instances;
        if case.leaky {
            choices = choices.leaking_signs(network).unwrap();
        }
        let allowed = Allowed { insecure_backends: true, sign_leakage: case.leaky };
        let plan = Plan::allowing(network, choices, allowed).unwrap();
        Service::with_plan(cpus[1].into(), bundle, plan, case.reveal).unwrap()
    });
    let x = input(5, 3 * 17 * 15);
    let limits =
        Limits { allow_insecure_backends: true, accept_sign_leakage: case.leaky, ..Limits::default() };
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

#[test]
fn the_traffic_of_other_sessions_is_pinned() {
    let hash = |case| traffic(case, 3, [Cpu::detect(); 2]).each_ref().map(hex);
    let found = Case::others().map(hash);
    let found: Vec<(&str, [&str; 2])> =
        found.iter().zip(OTHERS).map(|(f, (name, _))| (name, f.each_ref().map(String::as_str))).collect();
    assert_eq!(found, OTHERS, "the bytes of a session have changed");
}

/// Whatever the two parties' linear layers are computed with, and whether it is the same, the same bytes pass.
#[test]
fn the_traffic_does_not_depend_on_the_processor() {
    for level in Level::ALL {
        assert_pinned([Cpu::scalar(), Cpu::detect().limited_to(level)]);
    }
    assert_pinned([Cpu::detect(), Cpu::scalar()]);
}

fn hex(bytes: &Vec<u8>) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn assert_pinned(cpus: [Cpu; 2]) {
    let hashes = |backend| traffic(Case::of(backend), 3, cpus).each_ref().map(hex);
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
        [3, 4].map(|seed| traffic(Case::of(BackendId::JAGUAR), seed, [Cpu::detect(); 2]));
    for (bytes, other) in [(sent, other_sent), (received, other_received)] {
        assert_eq!(bytes.len(), other.len());
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < bytes.len() / 2, "{equal} of {} bytes are the same", bytes.len());
    }
}
