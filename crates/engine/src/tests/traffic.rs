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
            "5f087ebd3974854d654844e0908f4ee9cbd10fc362d902f68ade4e0888faf0d9",
            "12a419b9a7e35ff3d7d6bd206f6f89b18bceb4377c8e8b47086f7ff60a3f1653",
        ],
    ),
    (
        "cheetah",
        [
            "514f367b15cb4ad166e4bc76dfb7df56a5a5db29372bbfda639b0ca431c1b719",
            "f6f956ec40fcd676b2419d0dc213c252130f6d4e16bedff3016c0ab11aeb9b46",
        ],
    ),
    (
        "fregata",
        [
            "2a54759831f85ab48381c368de2c51c5577197a1ac9d81d370a1370a24cba2a8",
            "8e553e262f4472122bb0ed879d2cbdf8bde2cbe76fe99780ee9f187da87f2be2",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "a48b99fe724452cb7cc31171fe19277c006b8d7644d06fab643aa2626433a507",
            "496bd33e61bc3f489882ca4e79ac6ca38595cddf310a2c2a9191281953849471",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "aa808db11a49c24ca803654b2411b0ed4d1470d7f99ca1a9fca1956d01a59f2c",
            "f9b78820a4a08f5a93bbfba4be57f9a2f9be59f65e5a5991e38c132e5384cf50",
        ],
    ),
    (
        "hyena",
        [
            "09ca1f3c078d4b175b9b591f1be029f7e910172ea3e35cf86b5e522d50632603",
            "3ec0290f3be65a7bc047a1da84d37e10c91cd8b0f51677f1ca7217172b1c4cbb",
        ],
    ),
    (
        "hyena-padded",
        [
            "affd080b4a7f0e456e6a549e29a55332857360246b4dd0009efec6580f619d1b",
            "2b28df6ecd2a2f0d3da2927e2fc85e25fb4c77f5aae3b83cbd6cc6761f7bbcb5",
        ],
    ),
    (
        "hyena-conventional",
        [
            "0eeaa5250ba39309c33180df4c7701dd93977257aa595e7d360fbc689181e725",
            "044fcf0df20dbcb3204bd58feda0d9df4fc6a227754d1e3c1b0e125781b19bc5",
        ],
    ),
    (
        "cirencode",
        [
            "5c987b56976edd033d865d8692e6df2fe4934f75005fdae56ebac2781f02f29b",
            "8d4e5e86a03fb47df7f3cbe2815b278edfa5aa0027af177092eb65eaaf0c0f28",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "512379665b98130fabea08076a3e1a116542d7e51901c915cf298e3d1232b91e",
            "4f7abce9bef0151328b29535bbd34ed4b237fee0fce3d1a3fee285789849ddcc",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "3197a1b80e172d5d867eabe655c3401ae94fe3c610389bedcecce5a573e220b7",
            "c05fe58bf047ce8a716aa7866db22a477b67eea8b22f54c1d662626cb8e47d5c",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "e61b555d9c2f2731000c2c94cb64d0984011fc75fd1246119bf80cf963aac993",
            "af7d228b247a281eab6604d7e497cd02cc99606de0eb61380d7e409284a91ace",
        ],
    ),
    (
        "guard bits",
        [
            "65c0741e6e85b6e667d5cf2cfb306fb74786679244297540a243ab3f095be08b",
            "24dc59f6d32101c07a07b2a267c45898f2ea92b1ae4865b38569aefd30f81aaf",
        ],
    ),
    (
        "comparisons that leak",
        [
            "a42c9d8c823125ead98499f3b6a8360f86c90ebc3a25d2ffb85e33ada2ea1d5e",
            "31b48dd8c60b2e3ea5ca95633ce18d686d8fe3a1c380c62d1a0ba0df7bc7ee7f",
        ],
    ),
    (
        "other LPN instances",
        [
            "1c1b979994054b0bb8046146d153be5a368d47ce54a6147fab4d02c6a4a08267",
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
    let hash = |case| traffic(case, 3, [Cpu::detect(); 2]).each_ref().map(|bytes| hex(bytes));
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

fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn assert_pinned(cpus: [Cpu; 2]) {
    let hashes = |backend| traffic(Case::of(backend), 3, cpus).each_ref().map(|bytes| hex(bytes));
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
