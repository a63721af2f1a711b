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
            "8fe8750b0dde980f68eab8b7ddba7c6c808e3e76e26fc8ca8d3f5d41d2f579b7",
            "c82c5510f85e0ccf0becd986215902dedead3cac5ac0e48cc2fb24a693603571",
        ],
    ),
    (
        "cheetah",
        [
            "9c615c030eb677987a88b98b597aa060142539321c3af2dde0178e934c4bda76",
            "15c81e8593df1b5afba728892b474f0952496185b62b77568199629e3c3763a3",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "faa24d1c0abbce2db8660d5d779400c34e08fbbf03a5d235039ae042564abfbf",
            "adf0062ff79bc467b191d7f054b2a6faebdc6d8e3cef03e7c57fe5df695b46bb",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "2726b4f21d924c4b7e00bf54eea2e75ff52477c6f8b30953fed9724e11b8d442",
            "9416641637ee0b12cfb8cbf3969af6e6b5a749859037a1d90487d1c27d72e07e",
        ],
    ),
    (
        "fregata-hme",
        [
            "c5f39c1db74c7b1072b18f4f1f67f5f532bf9c34645443bef2c8ed5579c4937d",
            "7708048edeb1a6d2a4d22d119f01564fbc46a1ec00d0f61e684c28d47d9713fd",
        ],
    ),
    (
        "hyena",
        [
            "e695189af980a53f43afbef72650236f33a7dd3625f94df8274da294815bdfef",
            "6a864c0b0a29ad8760b6575bc8780d77f0467e0d2ca970edfd62cb7cdfaa2e3c",
        ],
    ),
    (
        "hyena-padded",
        [
            "94b6135008dadc8e6122e1099bbc79642878517c6f4c8278e8677b9b8e4483e4",
            "3077b434e36d80c5d498daf7ee54900ab04f0c0b442b141432524f3f760b1b25",
        ],
    ),
    (
        "hyena-conventional",
        [
            "49f5b07fb1c245c013ed4f13f96408c199e9946304724cdd2c3b563e83adfb82",
            "27ebe354bf1def19eacd10d190e1f9f8b27daace0069f6eed61199f376ffd7ca",
        ],
    ),
    (
        "cirencode",
        [
            "80060c04d08051cecf9d6d49c2ebe022ce013afefe498873759fc5e426e41429",
            "2608b41db466ebda5e5411a5775ec8d2f3c04623c8e93cf303a0dee423b36094",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "9480ea83a659bf5b5481905c5a8b7f53699e13d558bdedf95e4d46ddcaffcc33",
            "ba4e4d1a4afdcffce27385ebaf820b0e7491c59245fc56ab8af6a3fe76c5381f",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "bb04209a6b84f59d22e2338c06f0c38efe90e748db77177f14bcbb65ab5fa83c",
            "6817fadde7bf74653d7ebda0480b57ea55699c085f34c84dc8b9a2a6d7137545",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "eda1640da77ee856851ca6f88ca2188b669bf9c965aeef6543eead38ff98ec24",
            "1c652e0d8e9431e03b909db1201e9d120bf1eb202fde3febeefca67cac4c21fb",
        ],
    ),
    (
        "guard bits",
        [
            "89838bddc1ff736b1eef2ff641ea82f3837b64de493973bcb99a3d12253c65e8",
            "afacb4174a33e6f07e4490799ccf1266c8f36d98493f9a5decc4458449779341",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "b527d35cebae4581e231d6d6d5a91319e81158ae7f91ad4566f98bcf1f321b93",
            "b51bc2f168f56c6047596830f17a1e65d68612ae1281798cef59721bc2494d2b",
        ],
    ),
    (
        "other LPN instances",
        [
            "ec3631dc97f4bfe83993178e0078fae05d3ec61e2763b0376607ea6db3fb25a3",
            "687238d5a581a2d0fcf594afbd9e978094889039eca6a09aeea09c9dea17ad23",
        ],
    ),
    (
        "stationary noise",
        [
            "672f4969cb8631483d5a8221bd0de19cc389239e40f2459b5ed2b7b03ba413f7",
            "dd87ad52472ac928d6fb913bd784accdfa9b9ead0cf9dc704a174b2f43d12a15",
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
