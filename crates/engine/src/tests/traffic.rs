//! Pins all bytes of a session, for every backend, and for what else changes what passes: what is revealed, guard
//! bits, comparisons of a kit, other instances of the OT extension. A change of the wire format must be meant.
//!
//! (Kept queries pass the same kinds of messages in another order: `kept.rs`. The parts of the OT extension are pinned in `ot`. One-round
//! sessions are not pinned.)

use std::time::Duration;

use jaguar_mpc::cost::{Bin, Instances};
use jaguar_plan::{Allowed, Plan};
use jaguar_ring::cpu::{Cpu, Level};
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
            "a7938d5c5c4096f0427766a8f8b4b098e8ac0de4fd2bca655819b3fcfc76a558",
            "fb11e3e039708f3687556e5b2e1352c55328cb85771c5c2aac6f4bfeab54e762",
        ],
    ),
    (
        "cheetah",
        [
            "ef0d405aa63a66b0e120de706d67582120becef862b08838e988b2707e7e601d",
            "f63ae3cb4cd7393a33fe225c74f092a67295a2a90e97bd6765ba6b52706f2fa9",
        ],
    ),
    (
        "fregata",
        [
            "30732cbdbf188a876fa71ad7c71b05c906e3a19c81b56cb7150b9b3863aabb3a",
            "bb7e345504fc1256dedcef7744b5a68d2fb23017e6c82d5081cb8be5bb907f19",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "860b8b8a3ac45a2f7f7c20a0fa96be59b1ec1746aeb59855f1a8089b89441660",
            "94ef022fb7a76ccd640eafa1a5bd06cc2b89334cc145b531e0413913fc466b72",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "1cab5fa8f3a4483bb17b06cd582e26cd5858fe956ea803b0fb30d8b94299f09c",
            "d861eb656d0bb0c3d9b8a65e59bb8179d14441779cd499ff9cf0f35e1a307e0b",
        ],
    ),
    (
        "hyena",
        [
            "35ca4c11b44601265a76b85048614c9822919f8ce61f99d7f8676d2dbdadcafe",
            "47fe146419dffeb561ab5f0dd850c90baa63ef652141a21ff568c4105335b75c",
        ],
    ),
    (
        "hyena-padded",
        [
            "c3a7ac7a507d8a49f8928069529d84acffdf59e55ad929c32b7a7e4af3a32976",
            "7c800615a9042070689737c05a8629396575c6ead8fcb5d4e030f271986580e4",
        ],
    ),
    (
        "hyena-conventional",
        [
            "7e3c5541d6bf2cfcf7bf7e5356d64695bda52a76701c9678b022f0efdd2cd4b8",
            "e7e60f390189271969d9b944273ebaf3e09014360c6ee6db19c40e98b519f518",
        ],
    ),
    (
        "cirencode",
        [
            "36f4a3a2fe149f31198f632197a633fffd018c3c169c6abba2b23e9c652baf39",
            "e08798169267792693f34f65fad255e28474bc840052add71bfe9b47ecb5b1b8",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "899489df94cc2e08b19eb604e74b9990d2cd2672d3b9843450d3a6ba3430b68e",
            "665c7864fb3d5fe100f9bd5df97eaa0937914353ca5ea3427cea7594baad62f0",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "f6f3e7be046d0536dc9c28f496d6185edbf9c81d0e7a7210423373fb707f434d",
            "6d07ebf218caab169e04b3f179ebccb0bb8368a96bc9e076bdb662427e44c049",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "17cdf81c67586ef1de933b9a7dda915ea8c6fe04a17f7bacb0401d5d4c6b91e2",
            "32bf883444864055317485a1e876b27d783ba940bafebc69dc9baa0c1b3bdef7",
        ],
    ),
    (
        "guard bits",
        [
            "7c47253f548cc26ca507c8c90be29fbadd26889c09c8a8c4d6d6b55cb18cb665",
            "4c53581adf66ae4ad7fd9d03cacd4b13d0a21327f2879f094879b3d82e7e54de",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "83e7a92d5971c577e79e276516e2d6ae6a39917c52c7529168b5760fb6831cfd",
            "0ee1bef88edc074f3eee5f9a1a5e2f2ce55a706ddb679c68a319a6f73244e614",
        ],
    ),
    (
        "other LPN instances",
        [
            "772babe3a6277a6e3836e0ea9b0614547d9ba5359f096ae8ed75ce474e7cb014",
            "0acdd8fe99c3484cdbdbfdb098e29936ba399349715267b805a459544fa06b77",
        ],
    ),
];

/// A session.
#[derive(Clone, Copy)]
struct Case {
    backend: BackendId,
    reveal: Reveal,
    guard_bits: u32,
    compared: bool,
    instances: Instances,
}

impl Case {
    fn of(backend: BackendId) -> Self {
        let (reveal, guard_bits, compared) = (Reveal::Label, 0, false);
        Self { backend, reveal, guard_bits, compared, instances: Instances::default() }
    }

    /// Those of [`OTHERS`].
    fn others() -> [Self; 4] {
        let default = Self::of(Kit::JAGUAR);
        let instances = Instances { bits: Bin::B4096, vectors: Bin::B1024 };
        [
            Self { reveal: Reveal::Logits, ..default },
            Self { guard_bits: jaguar_graph::network::DEFAULT_GUARD_BITS, ..default },
            Self { compared: true, ..default },
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
        let bundle = Bundle::with_hiding(everything().model, case.guard_bits).unwrap();
        let network = &bundle.model.network;
        let standard = if case.compared { said_to_leak } else { Choices::standard };
        let choices = Choices { instances: case.instances, ..standard(network, case.backend) };
        let allowed = Allowed { insecure_backends: true, leaks: case.compared };
        let plan = Plan::allowing(network, choices, allowed).unwrap();
        Service::with_plan(cpus[1].into(), bundle, plan, case.reveal).unwrap()
    });
    let x = input(5, 3 * 17 * 15);
    let limits = Limits { allow_insecure_backends: true, accept_leaks: case.compared, ..Limits::default() };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let channel = Channel::with_clock(b, clock());
            with_insecure_fixed_randomness([2; 32], || service.serve(channel, &mut |_| ()))
        });
        with_insecure_fixed_randomness([seed; 32], || {
            let channel = Channel::with_clock(recorder, clock());
            let connected = connect(channel, &limits).unwrap().with_cpu(cpus[0]);
            let ready = connected.prepare_client(HintPlace::Memory).unwrap();
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
        kit().backends().iter().map(|&backend| (backend.name(), hashes(backend))).collect();
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
        [3, 4].map(|seed| traffic(Case::of(Kit::JAGUAR), seed, [Cpu::detect(); 2]));
    for (bytes, other) in [(sent, other_sent), (received, other_received)] {
        assert_eq!(bytes.len(), other.len());
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < bytes.len() / 2, "{equal} of {} bytes are the same", bytes.len());
    }
}
