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
            "eb94b8756dd5960a613a5bc54567d8785e78126b58f7211e2bdf340197abca7e",
            "e6c7944e07f3ee5a7b20cdd5dfb3902998e4f9731f61a4ee7a687bf625eccaac",
        ],
    ),
    (
        "cheetah",
        [
            "870b42c46f51eabea5223fc61de1c6e44020fd9b3acb51b01d19929236089797",
            "cdee0820d311a6f9c0a5c1bd79874127b8fd125cb8d16fdcd24a5362174a0597",
        ],
    ),
    (
        "fregata",
        [
            "7e7256d9ee2752a96b088a245804cdce725c3638ecf7115599ebfb88be8c6efe",
            "bd8b4e876fafdde4ec84ecea64105ca02aaff8c61d9eab42d47b25b68f89980d",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "3afb1e120546ed183120a3f162b73ce798fb9da7755a4e2bc872b550b80059d9",
            "fe7a8726ec615f954ed74e6957da0912d6e750c579dce63a477748a389f73ce7",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "30745428f30959e6eaa258c3b96e152a12c1412eafadb141be35f220af6b933c",
            "8f51bba2435682d729d8b2d521b9a38e62fedb9f7e14e970cd4d1394fd53a311",
        ],
    ),
    (
        "hyena",
        [
            "85ec0a59132d43f0efada931c475213258d823053d6561bb69aae4519855c33a",
            "13f8a249bf1f9c0794e757831aca71d83796bcb4f52c159d55944fcea290a944",
        ],
    ),
    (
        "hyena-padded",
        [
            "f27896fb3f0df0899ee72820f6ec9a6bf643d78252ac057708cfa09af0ffd8f3",
            "22a8868f2c859b99870994a38d4230df17edfc6e4c2201cf6f5769421c07eb20",
        ],
    ),
    (
        "hyena-conventional",
        [
            "2886634e3b0bee1e764434f0b19b2bc18962b79b72b10142b1f6eb1971774bab",
            "5ebd1d2f3b50bf524d461ed0e7003a79d856ca10c5c781d94cb308720f3fe952",
        ],
    ),
    (
        "cirencode",
        [
            "b0ac0cae4f43c8efa4c95681271785b67431b1cdacb90b5eb35e87edde9ee11a",
            "42e659a84e6547edbdfc3b1a12676e80d77506f55e0bfdd248e12acf4568b146",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "5293e2358633f1356e79eb5900221a1cac45c6f3c4c8f76c45039a86ee0d4b53",
            "fdd65ac849152a13d3483ac4b8486d9fe8d804e01c793b547792eb963478a1b9",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "51b705fff576f1f624746cf31d513b645eb074e9858b093437b9bf9bfc6ddc0c",
            "f0f21dc3ff6e52c0e4a7a15938d52f6f3683a5d23db4d658aab4917f4b29e503",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "76f2a88a9da42a4e6c864a72a3cbb5df8b1771144fbf554b8ed3bcaa92a8f836",
            "86d232de8af226ee7ab47e087b49bc13e60d4bcd91507d3328fc23fac441da19",
        ],
    ),
    (
        "guard bits",
        [
            "ca606f9ad798fbc57d25e3e32abd0a71cb35964f543cf4158adb4dfd77795e59",
            "5d78829148cf98a69c993aa776cbc71c46c4305196f348c6713da3745e716eab",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "83f7204f3487c198136f11b951a40a11987534bcfa48c3efe7d942e1f498ef7d",
            "d7c9e40c5cbeba6e0c5b4150ed2b775af328466c934fc813878cef54288e52b4",
        ],
    ),
    (
        "other LPN instances",
        [
            "7cae0207c540a612320a989f542eed42b22f894f47cd8df606f6246ccc4a255c",
            "6c0846e49e17ff4913c647dd2a7ca0aea445aa316d3ec937bba6f4f50c5d930f",
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
