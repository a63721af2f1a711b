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
            "c18de025a44a24a7414b8e03299b6cd703c904b54b9cf830509b27d33933bfd2",
            "f0968e428a9f93cbb08f60871ff1d29e6d13e4bcbedc6e0c905037d2c8602347",
        ],
    ),
    (
        "cheetah",
        [
            "233479c1869bb4fc21b32372e0e9efed6b235889d77e190ed8804acce883eafa",
            "6d41623af9c0bc57bbfd6eda47fd53602ec0da99f1cb6633a7f6ebf745f1450b",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "03141451dd33f53bc4a0d367207edaa52169f0168775780be9ae9daab6b49dce",
            "de4858be3597a547c76f5b5d16f2595c03d2f0f762a88360465b6e4fb80b0b44",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "f43eda8b9ac0b8801c9ac761e8af91e93a364fcc25f8585ef10574ca48c6d7e2",
            "d2ae01298b56682a8843de02fe99a78357f0148e7040ade875342d2e6625e401",
        ],
    ),
    (
        "fregata-hme",
        [
            "795086b0ce22c04537838cde352ba48ccda7437b6b6d7143c7b4f26ba27a226b",
            "8290de0cba673f13c1228c9639a333369f10186553035ae99febfa0718263c17",
        ],
    ),
    (
        "hyena",
        [
            "031bb2849cf014c731fedae133d35b62d6e7861f453d13543a92a04d1e5a14aa",
            "c6f5d2f8d30a57f4fd8f3bc546a53679c4a623235bd6503970cc3ec91d15e31a",
        ],
    ),
    (
        "hyena-padded",
        [
            "409575e62cdbf8beb2d5eabe959fe12f577a84e4da353b3edc20034c45848efc",
            "bc3cda179cff39bc975d66ba678c326f4d9a07194f56fa1c54711b008d8af144",
        ],
    ),
    (
        "hyena-conventional",
        [
            "6f1a5776aec874d37ffa65edd136a52a40f32c0e325c5cc8d1e87b4b6d013da2",
            "50bdb9e75b7f1f79e57e033a4df1bfea84c53e4f1076a885d5efba8d45e96f07",
        ],
    ),
    (
        "cirencode",
        [
            "ff1557c9e953c21dc6e42201c5665eb9f93f85033095f0ce2de7f116926f9dfe",
            "b27f213c4a0d41d7c617af4d9a0539cc91aa3bcc5378bf16200c822ffff8b207",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "cbdb17d6f54a9b85df4128bc226641916c6d9144710ff87cea2063e3a805cc73",
            "8968e8807009e62d4e882a76cf74d9d349c9fdbd447922abd548733a1d64ba94",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "fe9fda773317b1f865fec0f0dbe5886363fb118685541f769784f82f940d4ef4",
            "6945942ee042fdff403f6e7c3e2e86714289d3dc647e1f842c6b08ae265773e5",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "4156fd8cda48458fb07a87a0e8966187222aea2f5545571d97b2d4be05dba077",
            "85dd95aadb2f123cacc50b7a40fa10fd1dda4e2e09764e42e806afedbe288840",
        ],
    ),
    (
        "guard bits",
        [
            "23ab8a56abe8c9d3f001678ba564ed2d8e4a84213443b3f1ca2d576579f5ae05",
            "d46f9080bb82795631ff5e057d4b842b879c5057f841ef66b5574393787fe8d2",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "7e6d778f70e3c046057d735a7c54e5e8045ef4ba093c17b2d5f2265635fad71b",
            "68668737b558236333f720cc806888469996f85837a7b945e99f625abbe79851",
        ],
    ),
    (
        "other LPN instances",
        [
            "ab0423c23b87dab03eb5053a74858b97ee312733e889d15ef99d90420a7df020",
            "b51276ae0fe04982656326bbe9be3e7d2aac970fdbf90610c00a7c43b965c65a",
        ],
    ),
    (
        "stationary noise",
        [
            "69322cc1a03619dbbd44d5ac5a35dcc7f72f99f96128429b38af3b8fbf290dac",
            "547e9010ce2260cafe28c4c3c36aea44801478872f7fad80e04e4df34b8e8644",
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
