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
            "60039b5563c6b9986937409fa3d08cbb2da4ff8808da73ac3a74ac0ab32ce32a",
            "b7bd62dd1c70225618dec4a3d5a850290904f6c07d9031e51359f0d98bb61ae7",
        ],
    ),
    (
        "cheetah",
        [
            "2fcb2d362d4aa08462f278c2b5a64e8a0a479b0c8cc1da6400e5366bbecad0c4",
            "3f7b830f1d9574b5ff84d13d9c7181d7354d31b7cd14b3c4eee99c3b12101199",
        ],
    ),
    (
        "fregata",
        [
            "702278f7f07bf4d77b75f5919f318247dd97b18e09de23a8595c347652549401",
            "9bae7d75b892f3f60656e71f87f7d042fbfc0e1973a9560393c0d8a57f2ace11",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "720927cd211e5713d545cbd852d308706ff0e8eaea83d9e010f2ede1deae3048",
            "fd667213ab8f8a24f6d79e9da2bf5e5f59a2037997bd39add2de5cffbd4d172a",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "27d4531a48b4c6c09e0ae24ff31628c5c2500395752d8bfce4770c0c075818be",
            "cb190642e52a1481bba5fe28cc0a0c61dc16aef5bb7469015d8b503e0fccc55a",
        ],
    ),
    (
        "hyena",
        [
            "ac2b48bd7cd529dc8676e3ea2c82f6a755b7a72fce90a16bee673f0e40a8d608",
            "7dc36c9ce881a4edfb56eab528e63de4eb36eb003f944583ba3d687c115d0788",
        ],
    ),
    (
        "hyena-padded",
        [
            "21df42c4fe01f9d16099587ef3b9c389cad7329832262ac56551305c6e433e91",
            "b536a1cd03f67cb64d12d7745c09b58b7a3a5a8df4a0f8631b0f3e7842115ad8",
        ],
    ),
    (
        "hyena-conventional",
        [
            "3257e0acf18ca0b344f7dd0f74c72c608d076a4c243edfa00b576b9439d6acd5",
            "6bbb9948b3c3430ce8213e8a00aa04d765d8f08ee18aed11df4c90489e05ca70",
        ],
    ),
    (
        "cirencode",
        [
            "607bb653f23abed9bd210fd60c325af9ecd336a4cc82d6c67dbcad63902cb583",
            "5c85258c1c0ae672bab2cd715c8f94d683e9c5af1788d1bdf18376ed077238f7",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "21cdb762cb82a54ab55f66a0c792687c97d48f9cbf00de1e44a7dd8c75f2d9d8",
            "97e7b120bf8871ece0766f5c4a1f61fe0e101204b1f8c0fd9b5a6b3f8b577e68",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "edf1d8c10e9aa62cd8c04f0c74ad4370693f02e824416a058d577bb585769800",
            "ad938a1ca0b2668fcedb97927c16557f2f20bff27cf559c3b6edf60c02b5eee0",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "0c21b9ff9a1e138eee1adab4bc6b7fe25803779c9f9143e2cd88cef1341801b2",
            "f7e423da00fc11972aebfcc7d6f7070942d61923e79b568574bc1443a1730cfa",
        ],
    ),
    (
        "guard bits",
        [
            "29478b2be80c7134766841d289a43aa50df88c12fcfa078381e012a323f230f8",
            "9e7be6243e0def1e022de0c0c1f68abdf931524a480e54ab2b430cfc9025ec08",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "a7fc3227b9f3cc89138bb5e098ab92393384fdc5e677cfe9e96851a52f1049a3",
            "f740ef34aaf79a716a1396a728b997d0b2f8c95f68be0b11954aecd23e39082e",
        ],
    ),
    (
        "other LPN instances",
        [
            "1ab90b7344d5850a0ee5c9d69c5538d6b3e0991b56445b85a66278673eee1e1a",
            "939e2c7be468d1b55988b7af076e463d36115ea42df889bd4ba2cc2a422edbd6",
        ],
    ),
    (
        "stationary noise",
        [
            "f7348838702e0a40fa2d3b38d4ea3fd986a6274d3c5c48d394b6593b9e24cd17",
            "4399794ff80955be022486971ebd42d9c0c438392a36fdcda3749a8ef46f9c47",
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
