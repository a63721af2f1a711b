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
            "ef75c148637e433b9ea959f12edbe200e35a54527b1188d3ea5a5f56d0848ab6",
            "7cef82253a2bca4a123962d200ca1212b5df89296fb6f41742765d58d14b17aa",
        ],
    ),
    (
        "cheetah",
        [
            "fdfb32ff31d6eaaee069a06a477c61327b5e8359c660cc5070fa764891dddfd9",
            "3d2424d50299c46178f7804fbf48017b1a63b0e8e51275a53e915f286614df7a",
        ],
    ),
    (
        "fregata",
        [
            "729f55d9ae8e6f94be6fd506bca54367d9b9c86a82df35294b5d4c595f8f425e",
            "fa603be5d3b0ea37df8e5a7c5bae39215bbc9e6d4c0b96119473e2445156b9b2",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "7a12078e021f3a2401f9a728b171fcb13cef71dfda7689fb0bdfb7d42ab52eaa",
            "4ad1aa4a79fb486168a49a03287e4bf8775a741248af5377e3b9e87666dd6878",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "d3c9265c47afad195c58d672adad6b976b0eb033bf95a1910afd880c04f05a9a",
            "477a57d791e98699c7a3aa875f55dd81771e64c9ba706ff02df378ee59ceeebb",
        ],
    ),
    (
        "hyena",
        [
            "7a189eac37e581b4014d47228006e04e61b3db26c354a6ec463b751938158ec9",
            "7d62392c09a94b113916c3304d32766225fac8b1cde7a48f7c0575a25404d9cf",
        ],
    ),
    (
        "hyena-padded",
        [
            "dc54699b5d55efdfe5c6eaf0d96927ca65c5c9ffab1f8b7dfb327314e548066f",
            "c2e164c612d86452cef21e89206f16a13d1480be5061eadaf929c8471ecffd71",
        ],
    ),
    (
        "hyena-conventional",
        [
            "5d73209eaeca15a4f1088b48cc2d3803b0dc63df1a9175a5dd964d3a9863c3a6",
            "3b34012847d3147b40285e8f4019e68a779459096429ac582ac90b14aa4294a6",
        ],
    ),
    (
        "cirencode",
        [
            "84059b1ee8026e39c87bb3406faa84c988d46fa9d388d4b62ed807e637fb4a31",
            "3d2bedd06049488956f0404f6c0642184097159f094d385a00b9b51f0c5ce995",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "d29ea56f910dfb77d2b66d7b02ecef1a1cebeeaf495931d9a31a612eca503df2",
            "b4b8a3511f465b28dcc56632b85fc253dde458ff32a8f20a9da51e1a7d80b4e9",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "f49914d0a4f7b5049f103ed0484d646c75afbfa6bb7e84b13555d4a697176653",
            "9ec225b03df1c47cb13e17485fbaf2e8afe164fed5c96f1e11f16a4344350ec9",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "d0f90aebc3e1e098fd3d54a72367e80329acec9f94a98568f6524abcfb2ec9b9",
            "b20a19611c9227d18aeb752296ae0d24d1a200a1991f28201fe12b9844ffe1a6",
        ],
    ),
    (
        "guard bits",
        [
            "e4f5c946a9c840590b66e1054cc4448ff2aa576b59829bcca603e99eee15b959",
            "c8cf07e3800189286f3eb5958a40902ec31c4d535ac99225e58af315e42c2d39",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "c47e6caeb759ba04887192cb0aff80d8fd4093151f39e7526dd1b0cda85958b5",
            "5ece080bf13ac5e3ebf8918425952f46e4d891fbaa1105e1c611967b84a502c9",
        ],
    ),
    (
        "other LPN instances",
        [
            "f94b66f9df705c9f09eac3713d463cfbf8e8327f851ff6d5a1cb72cf6144226c",
            "83d435d9ddeb3823d0ce21377c1807d5b0b7eedb2bd7b8f12352b501769de979",
        ],
    ),
    (
        "stationary noise",
        [
            "873394f505296e646cfb4e66b57b8425b9e01d51f171a4674f5a09a6ce48e182",
            "2120418b73ed653050e76e28ee28a94dbafb7d971d048f2715c7bc1cc7837636",
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
