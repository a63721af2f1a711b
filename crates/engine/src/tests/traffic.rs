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
            "95715b4f00aa5df52de9e8389782441f2bb343d1c55236acfa9bdaf52ee8d193",
            "18d098017c5e1c0d7064d4455148538d896b211e9be66000591b86f9b7e763fd",
        ],
    ),
    (
        "cheetah",
        [
            "14c8fa82290e15df56d32a34092718689add996aa20d33fef5e4ba7585e37cfc",
            "5817121e99245ba16f10342fb19d85e5609d3ae213ef6aea2e2cf9d912785bd3",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "411745990cf4d417074e8e386b431a549117f5fb377f352bb7f4c13d4b94d7f7",
            "7177cfe9ff25982edd2f10db21ed3ecfc4e93da0f8a51f26ebf958457a40762d",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "1a7d403415faa55743c671efd5ab8de9938c90e721c725babcea9c67c59bebbf",
            "a19c029f7ecbc316f0d3f41643d59df39becddd29c3278839c1e4e501eaaef7f",
        ],
    ),
    (
        "fregata-hme",
        [
            "17ce69f7a6d7d35369640e72dfb801454250065f0e88e9be99d346aad492a3e6",
            "4e2b4fcd9a39584575b6ce3bdc3c70df7fccf53cb8021085ec5a9455e7433133",
        ],
    ),
    (
        "hyena",
        [
            "d33be615cd8aecd2f7192c01f023e1ceb50526c6415430ae2f5df563678febf9",
            "601999a8e790d40e1d522c19bb27bc3235964daf0961926aa042513982a42f5d",
        ],
    ),
    (
        "hyena-padded",
        [
            "8e9b3d20230f66a3b23c89c4dfc946fd720077edb7a33499847f9f736353bca4",
            "15431e46c6fccb5d87ce11a0bde74c403dfed9afa7d30afa65d8aa2ba5496c32",
        ],
    ),
    (
        "hyena-conventional",
        [
            "4e95796ce0119ab783cd518f8d84f17a4eea3376257b8bd1e035ec658be09b79",
            "75957c72b4ba063e8e3cb4839265a13fe3e1f974be6e6abc7af72bd34c6c2d03",
        ],
    ),
    (
        "cirencode",
        [
            "e65b59e8caa06c5979932fe12736bd16f265821fafc472456ceeb272ba969050",
            "7e9fe4b4dc64241a5061661e21f5a3175bac4c9574011e60db663a9207acf5b3",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "0d8e5fa36f48847bba05c1bd447c5e2bb0bf32ad6ff179cb39030371663800ab",
            "e9f1d828473dfe99093133dfb5fb818241fc2708bec10ff184aaf1ebcf3eeb4c",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "2de89e4bbae761c3664a49909928dec071a6423c794d6c5fec8d8e83b8f09f00",
            "f2ee808200fc46e1cfa67fbe6942e0ff8de7fdebce2f0cf47543b79c985e931e",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "8b1d8b09851820e722509d01b348d13c3aae8a323b8286d2ad841fdbb22ea72e",
            "68a5ddf34f572301bf0408ae6331e69f8673bcc82fe2110e185c41a2b719a4ee",
        ],
    ),
    (
        "guard bits",
        [
            "119945b7d60327e5e8768331ab6b70076a53284a54016227c275c76d6f400ccf",
            "04ede16283903fc125f848f1e3f16aec27f28bd06ea78228be41fe829ad4494a",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "5c7fa8dc1bf46853749b40e5c79e9abb3677160c742eefa0d61dd52a6ad79b28",
            "9b2c9538932c33581d7636791a7ec11abd1116ea6595a5789b5ee284a2c3d81d",
        ],
    ),
    (
        "other LPN instances",
        [
            "766f49a92307d59225de87c14e84d1f768d071f35843161e9bf67b529921a4b2",
            "690b1a86ba9c25acb685e7299d23d269b715423a212f811fc2cf9deb0a148836",
        ],
    ),
    (
        "stationary noise",
        [
            "a49bdd522852223663d37d73b0d14e6c21f70d43a389381cd91381edc4cdb18a",
            "f8b31587722258b0e099bf9a111d301090a6569cafe46aa8e1830809ab2f3770",
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
