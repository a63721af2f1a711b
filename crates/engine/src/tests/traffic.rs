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
            "507cad630b178bbd2c36ecb38cb649bfcad8d0b67918422fa4b22e56adbdb251",
            "030059d31068c23299cfb47bb0bbd2e704d707c35d80ddabd4fb6f0d795b9431",
        ],
    ),
    (
        "cheetah",
        [
            "e2d3f7f0b452b473d96f3694116732f338bc8dc8a0c1b556f42760fc8311d20d",
            "00fd4d70b867a1f95dbc12c58b1e98c2d40005bbc7d7b69cf314fde59f6f4a82",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "8ec968fb9ce57c9be9562c112086ee6f5689ca3074238b8fb308d32d5f93a66b",
            "32fd649ed60bc078d7c750fa74c7815a72b4f4ab3f02708f48d2ae9c056c7f7c",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "ddc45c6b14bc71d2936d3ae9f0a2834071b6f2afbc4ba08944baf9bd0ba04fee",
            "887dbc9982036d8fa5d611c019fccae5957708869bce667b357f86f9f019b6bb",
        ],
    ),
    (
        "fregata-hme",
        [
            "d81f79fdbe0c1e2bccc4bb4f5e19328f24fb459252a35a984ac84b62a402a2d9",
            "16e0273fb996ff831d6f579bd4b6e205d5304e9e95d4a5777e29f61e5ea07e1e",
        ],
    ),
    (
        "hyena",
        [
            "26e8dd3da218cb1212c48deff970cff24107d275b8a4df7fbf8db6cd8f33b074",
            "b8d534ad0b681b30139f76d59c6d4845fd051eee423d5b55cddaeb764c4f3523",
        ],
    ),
    (
        "hyena-padded",
        [
            "bc7e31d6f3cc22eb089236d63758c78ddd5704834eaec08901eed1769e7585aa",
            "bbd35262ec1aef1fc2c8d1e0472f4ae0f129c2e85e418582321485f70e72d06a",
        ],
    ),
    (
        "hyena-conventional",
        [
            "1efc8580102a3e4d2408350c2aa2c4ddc3b04240ed371db21ee69f3f40eadf8e",
            "f8bca1be7814ee1e00a6e11b6c2d264cfe6bdaa4abec63557fad729f309f0ac3",
        ],
    ),
    (
        "cirencode",
        [
            "da7edc8ca44311b306d15e42b5e21cd8dc304b7fe8b90c2701f5b88fcdedc3f5",
            "81c2c12a4d974d9025e1481bab09ad9a24332d975c4ebdfbc4420bea25fb8370",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "dad5ce901cafaf6ec4e5a45e13b3e26170e93851adb27a498d27ff6a7d08f1ce",
            "c07f8f4ab4d6cf99707e9080705abb2f7c5937a376523b046d2d1170834323b4",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "044d9f65b1a6440e60d606ad88f413af849bca0c4800dd5989e123707105ef42",
            "33919cfb7c2f5a47ddca6c48bd962b41ffe2282269896f01a4585d921e157774",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "24dbb88bffa60c3781c2cd04842f6cf975af9da4810c5baf97ad8a75b29fa74e",
            "afa38e1dcd5e221b306e8e713ca5db03968bf3807a5b09845a3cd08360cf34ec",
        ],
    ),
    (
        "guard bits",
        [
            "9d4d4f8429b25cdbd87b61ea851e50753ca36b719a6deeb41e3592fe97dcf356",
            "edfd1b994978240f6ef22a24734ea5815ff7bf4f8c5ed064df0f62dc47cc5736",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "ae0c9dd3dd6af41430a35a1ecb95c5271929d63112dc6baa8b271fc9950e38c1",
            "ca71d235d488a64c52f44dcd783532f3891f177a4a3e50a660d567b3ab98be34",
        ],
    ),
    (
        "other LPN instances",
        [
            "e8df402dd999cfbc36ff59f7bf749661c4ecf11bd353587feadd1ea45870c27e",
            "a4ef04df1e5c659db43843b2d97a3b21d932433ec128dc096e9c9c43676147f5",
        ],
    ),
    (
        "stationary noise",
        [
            "d1ec1bf47fe8e1ef8626f561ea048b7fb5b7dc893d68a933aee280076c1164db",
            "d35a9a61a89ad31e666894e5b6ed90c41c983accd432033649afb7d4f6245bff",
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
