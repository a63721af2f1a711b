//! Pins all bytes of a session, for every backend, and for what else changes what passes: what is revealed, guard
//! bits, comparisons of a kit, other instances of the OT extension. A change of the wire format must be meant.
//!
//! (Kept queries pass the same kinds of messages in another order: `kept.rs`. The parts of the OT extension are pinned in `ot`. One-round
//! sessions are not pinned.)

use std::time::Duration;

use jaguar_mpc::cost::{Bin, Instances, Noise};
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
            "075647582a57012a83865fb9d42f7fef4dbc8964762211f3bbe3ecc67be47a75",
            "2d8f56695a831cb344f12521ce8770c15212982f3ecc8cdcc37cae671074a801",
        ],
    ),
    (
        "cheetah",
        [
            "2d2d04decb0f4d378bbdfbdbab4b6a2dbf52c9cf453217c6d47a6e287476965c",
            "c5047d766902be3bfe231c9b4501b2b028811c25feccc7677c9dcc6f842a0e87",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "d85265586ca4231eeb65bfa98c963fabde34a66f5e911ebef53e3d868b00b25c",
            "aa93838009f8133928444602d927d37829b8111cd685fe813188ffd14e0f2d3a",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "ac1455fbc6da3ab25065762d7536c618f6bc6314a15cf5c45bca9303fab06b0b",
            "5e356da19854ab3ae02eee5c9f0bd67da6f9fbfe5f7f434d64d11bcb46572e16",
        ],
    ),
    (
        "fregata-hme",
        [
            "7eae9d0a16a864507698c2365a66e5cf4e15f257c526fabe44e2005daba0c515",
            "d9f0d5540b3dc27a76b888caeec36087678eee9a44ae9bb0621800a4ab6dc228",
        ],
    ),
    (
        "hyena",
        [
            "3d8ea8dbe8864f0b72e0f558c6ccc96523a500c9b22e5a3cc95b5bf48f626cba",
            "01d8c08367ebf4503157b1d2ab241628eca71b8af6fdbd22fe8cdb7e5849269a",
        ],
    ),
    (
        "hyena-padded",
        [
            "a3d5a9f1379af019b64ab7f6bff77ea72696248ecc7d4267b4895f9573dfea02",
            "a70da9f115c17a15746beb4593880aa84a6e4d28e20b27507a1716036904bcdd",
        ],
    ),
    (
        "hyena-conventional",
        [
            "04163e46c3cdce238d67264088b750c9f97565b8322c48ecb360c3f2e1cc30a6",
            "e97e1eb8ffd2faf7b397c7f053c9ebeba3df74045f122c54881615dfb22ff36c",
        ],
    ),
    (
        "cirencode",
        [
            "2e18264b3b0d7d0848e20223d28d74e7ad6b91337b5b94db6b7d1750c1eaadc9",
            "3a48c0ae576c11f143db2ef98213c007660f4da0158577d6abce99f75aec1aae",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "067774f65145e4747775fe17ef7b9666226a0ac3071baac6c3fe5a0ab75e4eac",
            "2f041b67ec00c148da1176ed9b6032bb494cbed848ec297f3a5ffedfcfcd69be",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "aa5673432d59eb77794b66a3dccff2f860bdf962263d258fb231da7d4d161705",
            "abf36d86f93bff97a9e7cffa879f57a7145c2d37d59de11d9758b9473991dd58",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "05c1c9973a289ba6f44a514192c4228a9ceeec022e0dc7d7433a6ee4e490c37a",
            "a846c17b932ada213804ed0f36801a1e9c250893edb7c4bf87a720d78900866c",
        ],
    ),
    (
        "guard bits",
        [
            "9216c62272f0236a3bfd35b1db9a10ab33db69bcf6f69443440fe71df83dbb6d",
            "29e402f13a91c4b6c6b68ff6c8a548c0b19808d7b5d924ed73761e8c0b3a3eb4",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "135b1880a395fe7d9599e32334317bd74ffbf2eb273f178caf6f91b1804a9c25",
            "62ee3ea14cd520770d468505596429e1e97ca1665dd2885cc80bc5a1ae3a6690",
        ],
    ),
    (
        "other LPN instances",
        [
            "a6114e7accd7f23a3ce9d7bb34ddcb7580bb042cc0962927aced2c77a7128ae0",
            "178d3b00413fb6bb9f8a1d9e0d19408c5d0d3eb0493c3834b853f19917a22a38",
        ],
    ),
    (
        "stationary noise",
        [
            "9a23ea9f95662ae75e92fdd1364c2e599006d78a1858e23a78d1afe4ab1288e8",
            "d615e434c5cbdec56caeb280e33db57298d14792a181a76b74ffbd5ea5c3ad05",
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

    fn stationary(self) -> bool {
        self.instances.noise == Noise::Stationary
    }

    /// Those of [`OTHERS`].
    fn others() -> [Self; 5] {
        let default = Self::of(Kit::JAGUAR);
        let instances = Instances { bits: Bin::B4096, vectors: Bin::B1024, ..Instances::default() };
        [
            Self { reveal: Reveal::Logits, ..default },
            Self { guard_bits: jaguar_graph::network::DEFAULT_GUARD_BITS, ..default },
            Self { compared: true, ..default },
            Self { instances, ..default },
            Self { instances: Instances { noise: Noise::Stationary, ..instances }, ..default },
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
        let allowed =
            Allowed { insecure_backends: true, leaks: case.compared, stationary_noise: case.stationary() };
        let plan = Plan::allowing(network, choices, allowed).unwrap();
        Service::with_plan(cpus[1].into(), bundle, plan, case.reveal).unwrap()
    });
    let x = input(5, 3 * 17 * 15);
    let limits = Limits {
        allow_insecure_backends: true,
        accept_leaks: case.compared,
        accept_stationary_noise: case.stationary(),
        ..Limits::default()
    };
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
