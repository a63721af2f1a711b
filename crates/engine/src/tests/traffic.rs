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
            "24983807dacc3a42eff697841aea816a4aeb568eac475a777165e7705be29092",
            "2a85ac8b08915742f5c0d5445263ab23ff602807628da654f00218963ef6da62",
        ],
    ),
    (
        "cheetah",
        [
            "87b5aa991c8fab31621b29bb6cd091ce898ace25c2ba5b97e47238d2459786ac",
            "d3eaa2d6e689b2baa4c3cdcf1d33e61673442df604d7b9638c6571028942e5a8",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "65a35977f91eb8a2cd61dfeeba1811a1211a479d06ca6f34d1a224d6bcc494b3",
            "68d1f51d293ed6b01c523633ced34c1505b8161a67ea4df593e20c6057b9662f",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "8ea69fe967bc3b31056c9a7fff2000403f991bd66baa2fd66d53956a42bb54f2",
            "e807839698567dbd6114ca1b2a929e030a72ba849a25d98225ea662a79458fef",
        ],
    ),
    (
        "fregata-hme",
        [
            "0ef294668d8d1d7dc1932e57f2ab71ef5aa73fdd9c27635a18628e4a2d64b81a",
            "1d3a662145fd33bf80cd191dd1b31ceb2ab3f75cd40b1cb1a7b6738cab044de9",
        ],
    ),
    (
        "hyena",
        [
            "38021be1c54dbde87222c461409af7b54789817b1adab8266a7702432729d223",
            "cd9f006bd0de209706c7da97c5901425a2cead086a08802f91e5ac63d6d6311d",
        ],
    ),
    (
        "hyena-padded",
        [
            "0b34aef5cbaf6f5752b8c05766f527f0e1c80857c7d839c68fdb8d9cf065a771",
            "3cefa80b9a407047fcceed356bbf3c873eecf11d7b1307236af62b38fc566157",
        ],
    ),
    (
        "hyena-conventional",
        [
            "49b40dde1ef8e2536fddbcd92a232a1d9905ce9ff424fec567b727fde9d3103a",
            "123579bebf133e96d1743548d11c212ea058931d1aef69636d3a711c9d65cba5",
        ],
    ),
    (
        "cirencode",
        [
            "084d3b8fe852c1862dd0d26fde82d8beb186da2d9c697fc37a4f097e3affa328",
            "3c26e2caaaff0cf93414b166f6a861ae7c37772312a26d0ab13a42fe4ae9712b",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "3dc334ae5cf6e39555e1eabbe9ee480fea79a475780300e6b8ec55a0c95d32d4",
            "3052ca9d2a7abf46b1f740b6dd3c493229e4af2d36db294df493be5b606b577a",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "bc16bd0adedb6216a0b613589137204a16d670de606c89ea81d3b57e4fda5c24",
            "e7371370fbf148ba32bb69689ad5f3ad741dffbe6dd9c5f9b920b04e8243b542",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "bac9f630abc6083a5d80b849cdfac5191f28f44e6156c7aaa79c54817b569ecc",
            "41454b968b025a79094415b3054d911bc779d6699bfe135c93d5c29d8754e810",
        ],
    ),
    (
        "guard bits",
        [
            "e28b23c8b70c6e9d99cb4b119f2bf851f546db9e0a6290b33be8f5acefcd7b2c",
            "cc3b41f9313946742a9e273076205574532dcebd41c5185f2ef9c622d896fc2a",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "552ffc1c4862d8ad6708c2b7874e50e36c133750691403477652ddda943ed180",
            "bc485b35c9310622c3e0ede0b2eeec066b50c2cd933ce48af8b4a607ddb4790e",
        ],
    ),
    (
        "other LPN instances",
        [
            "1fae46c0cb7dcaf23feefda1a0fbedd620e3b1eebfb37275fa1dd25a394d6b57",
            "3dc67f6dfa3033de75cb49d4e1448354f744fdc3bbc9784993b4865e8595d106",
        ],
    ),
    (
        "stationary noise",
        [
            "fc8eaf64842a64d1d3947a305084f782f6b52b2728f9a9949810f62ca77fbb8a",
            "0fe8bbdea2d0de44171f017af22fd896ee818c9318b6f4033fcc07f58e489338",
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
