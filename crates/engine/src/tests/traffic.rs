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
            "b41a90b61fe4c50074a3e7ff350c32d4fd7ebfbfb3f1870a669194de79c40a65",
            "5577246bffd14936b492ca58b01ef3d1256ead8d9190466759153797146dcdb9",
        ],
    ),
    (
        "cheetah",
        [
            "274ff156354af0afaf251ca8c925d1e0f1dd7ef7d5f91e2e6b13403460687e6a",
            "1ab139a1affe7271ed96b28c1e4c212588fa2a452f2f25c2d23f4f11d8077da0",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "e6d504411d3a2d282f37f85cf31d21071e4fbd2e9e15f73b36623da6118b5079",
            "cde94278100227451708a5660975c8fd55e68f7dd6bfc3df68a2819ec9073b07",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "ca0964c034e86d0dd6e17c1b71c36f770a5e7f8c54248e44eb347bb3b73dc41c",
            "8e0bb4cb84ff25ec9f3aefd1f56688f884e82ed04d1433b721e13350ab0eadeb",
        ],
    ),
    (
        "fregata-hme",
        [
            "076d83bcff23eb5e6136573661c01ceb0c90bd8dafa4cb704bafa64fd26ed878",
            "04a958c7c96a3ec0afec0f81d63203019db10ebae439c67ddbf8f4e4bf6c89ed",
        ],
    ),
    (
        "hyena",
        [
            "46a4e454bd496be9070805e1f20538f06d41e541d49e6b74b6ad2946a66e6460",
            "3084a9b2a323ad8b6cbc225e82bf473735b4979473588564aa0fcf612fcaa940",
        ],
    ),
    (
        "hyena-padded",
        [
            "1cdc5e6ff733d1fc359adcee392abda5fbb372c3c9e63b12e0cab53575c1ed33",
            "831d3aa27a53015fb75bf52c848ffaec0bba9ae12a2eec8ebd8cd22f4181e364",
        ],
    ),
    (
        "hyena-conventional",
        [
            "8e4a9d19127c87ff6ba36d31f1bbd600b3135996ba68a3b51b9eba05101c709d",
            "fbc9bf394942efb4f3314d2c498277686d0c9d8655595149b21623783efe252e",
        ],
    ),
    (
        "cirencode",
        [
            "c1a265020651badd05d65d713ca165e6693ded15f3b3cb54033ee635fd04d565",
            "71df7d7e6e2daafdbecefb9aa10771629ed46ead4c421511f1559dc2db90fc15",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "bde12c40cdfe4e982ff559e161c3f0bd9ea28efcae4d0f9de61e4594ebf33908",
            "89e97ee08e108189e0f742f984967578f8f1eac41251cb6bbf80a8e50c2b5b5e",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "9c649a1ad944801f7a87fac11c9763dfaf155d280a049198c17230061db7dcd1",
            "59249640f3dad3531e13fa593047e9f6ac8c12b810bdeade1cc29e2f15941d4a",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "58bcd6e6e97dc61ad83b49357ffe97669c0e12d1bbb73e2a0540e6ffc37841bb",
            "62dbb6045caeb410d9e73d106e7dd7c31a14179600ec031aba5bfd16cb940c8a",
        ],
    ),
    (
        "guard bits",
        [
            "5ff110fa5b2ce1159903ea8d3a93296d8ba04db9ceb83453792bcdeb7e6f25c2",
            "5d706bb0b8bf2a1ab7cfc678374f2e45ae8e9c2edcf2ca14a12f63860de38685",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "2d1e72221e80cd9475a9bfca3f16efa509cfad57fcd16cab1c38e2ed05b84c28",
            "065b77cb1d44d0e4a0c25099eedb1ecdbd1a69b12818ff588ea5c237f2f6effe",
        ],
    ),
    (
        "other LPN instances",
        [
            "4c0ba6762cd89646b110ac0a81955252270e95cffb2697bfd6465399ab6e1ef2",
            "6b4a738681815a169e620200f3015719f198e04df0afb18f1d91141a87f3b57b",
        ],
    ),
    (
        "stationary noise",
        [
            "c5f8fc53a0922d2b5fd28b17a52dbe801d0c2920e8562fe9a4ecc7d64f1e0070",
            "da96e4b65c47012bc22612afd85fffe1343e84c470abcd9086f32cb42299c752",
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
