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
            "16072d9300acd568e5a6801fe61db08fddf43f623439e62a1dddb426d90e9405",
            "0bf762c212878f0d1db7f88f3305cb5201b03febaf6928ea0de9c7af715842e1",
        ],
    ),
    (
        "cheetah",
        [
            "258b16337f8e9c0612895570c8c29dd9714a0994ae99c3c0649fdf487ad15462",
            "8c6512c0ec490c245b5e3832a0ddfa7e0277d09ccac5266fc72db7e608396a84",
        ],
    ),
    (
        "fregata",
        [
            "4699fd65348ec6900dd2a27317a1efab1e11e3243c5f782e7f961a6b78e9d520",
            "20035505abfafea4653c6e93dc37e3e9c63af5d37de4adafb93ea0ffa5b8b3ea",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "acd1dab28879149b42bb0ee51f1547b25b9d6fee7114284c04c4496ef3d59e27",
            "d7eeb26bebb5221336ccfadb3df376adbc22967e4f5ada3423391c6ada8ddfd2",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "6db20d0e5b12cdb12d6f10f479d74dcf4a8b82581b36bf2ce7fd057f1e99a209",
            "0b18293aa1410d8a2ca703456d4b68e480fb92275758538f3b6c149eb9cdf1f4",
        ],
    ),
    (
        "hyena",
        [
            "d982912b6d0b199d666b4fbefc6d6abe660e4e39db63911d49ad6f4022853bac",
            "74f9301e52cd6115b8f116b9e4f62a37e098a8429a0c6ec0a7e442cf4291195c",
        ],
    ),
    (
        "hyena-padded",
        [
            "759452706e94e686fc15aca6495f68ef38895ea4235d891ed6c5a19d4d5ecde8",
            "6778e04e2ce979ffce782c16fef438cf7d51c5ba15ddc08322d31a295a7c03e7",
        ],
    ),
    (
        "hyena-conventional",
        [
            "1c76251237018a1cc3fa496860af0bb993221f30dfc6f69ce6609aafc2253f8e",
            "77bd585f8c965ad3fcdf3901c49912a7cfa36dc398a1e92b8e1064055203a07e",
        ],
    ),
    (
        "cirencode",
        [
            "3283c86cc14f9b9e3f8d5ffd0af8bbd95080417ca31061c2d45e357160db015b",
            "caa0aa6146be3a018b5021d989b71e1e82ab0f15548bce7e489954f3f486e7f1",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "d77c751cac3f1d510a12b49d8858d7d329adb957105a10f7ca55f41dd337ceb0",
            "72099f6174f6a428f66022118afdec93ec200947a5ce6b06fcbac1e3b33dc5a0",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "cb694fed897b55b5f9c4477c323ed08cd331a7f4e8db448569bf42ad0539ce0e",
            "bdc7f493055d44234f8be7a00d9b3ff4a3ff30c58640ff0604d7923e4eb9a9d4",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "453298ed964737725c3f9723d36f4b036639497b6fe9d488e214a4b4929f0fe6",
            "ae8292e6aa5a5cb5047811c7831c949d6a7d0aca4a545a51f7463fd32f88729a",
        ],
    ),
    (
        "guard bits",
        [
            "27fc1333722bef355fd98939044ceae9609d53793f49ada0780f207fc0b0a47c",
            "dd593738da1ef1bbe794ef007162138e41a36910de6636d858e29c7524416f05",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "3d5536964f44547e1741409f0fdf001f64bb07a6a8d9e30ef1e8c4c26a1b6a41",
            "48db2fadb29c2d5524c0628b3d4ea59293525d8839b453314a6f7470d3c64842",
        ],
    ),
    (
        "other LPN instances",
        [
            "6b48c08112f04cc9bfd2ed94a47c9b1689cc21c7684f6f1a1e57187abf20cd65",
            "b0f5088c16e6b628df0633bd1b83eb7d146086f764c1fc768f492e8081c5510c",
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
