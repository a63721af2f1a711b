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
            "ec334efd6b5bfb4144af77b05ceb33bfbb01489d8f8f9d4aa7b293d6bd0c0217",
            "9dc7b19059319cbb6cd644d56aa7815ab97c89b583f8044ff12fe38e094756d9",
        ],
    ),
    (
        "cheetah",
        [
            "b29bb3cbe6ef7a5aec8f7fc3141ed9bdf204721b9b92fac0889e7f29811487dc",
            "9156073bf6c6f0416c28dcb8ef74d0a66d3f65fa1190e80f68cb1c2e588be8f8",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "ca17ec30b5183429e0143203a5a32149db570827cb2655ab0494f7adeb997585",
            "e5274847f9b07a6b63749eb65b2b57574d0112bca5a79843fbe2212cb4d6472c",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "775b14bcbca22aaf1779b926d04725591c0366cd202a9afdb1e203709f65874d",
            "854bb87fd5091ebc360eb7b9acb3ead1457c6df3f67738c5d45864f1cb7d85a2",
        ],
    ),
    (
        "fregata-hme",
        [
            "f82d4f01b2870c7b167d4acbb1e3247ded723fdf243be0c45c0d384848981a91",
            "c0bc1fbbaa9d9752bef0e632a0c9a8b796c66c32d469051af9d551d39c7e3d61",
        ],
    ),
    (
        "hyena",
        [
            "22ac91a47e17d2078336192911b02e2d2df5c488d21e7403b426c1662aae27b5",
            "fd1097a955880cd9c105bb637df4f26d2a91d4047d8b6da7a4519173bfc369d3",
        ],
    ),
    (
        "hyena-padded",
        [
            "357a5fc17721547ca24baa8d84a41000a9910c4b55b3914f91b5a6f5e2178831",
            "579d51b1a18c8bc6b178cf96f70e784f8228a567f7051ad14f6cc28c1437bb48",
        ],
    ),
    (
        "hyena-conventional",
        [
            "340d5e328405501078c4434a53f1eabe7da02a335bde5ff4f5bfc60edbd2dc3b",
            "8c8528e46a037efae5e32025bad3a373ac4d0aec78bedebc94791a12c16b69ca",
        ],
    ),
    (
        "cirencode",
        [
            "e36306cbb0c891c11d10d25c98fb82712fe65c83033bc16d60c86de001c9c401",
            "97ccd56635e8f5ed1eeb04158dbcfc0dc2f7658f5b596c21208d8c91db6ac541",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "df25212b09a0fb668f616184d3154827d87d28b5c20420eb765b1d338c458ef7",
            "f549b24bc1a3b99612fe97df725570d095d27227df6fde83d9a69a39baf65105",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "e1182ba3811cddf8b9ae89725235f7b2d6c6fbc9a30c0461c5b43b686a27ac82",
            "9eeef13dbd26320b0ea829e54ca599922e16cc7c94a776291c5c42ceb00fbf85",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "18e6c1b6a5e746bc66c3c3a27dd3e626e470b9e687a8e87f923bb56656913f4f",
            "5d7370e592fe94373734a69c225746bcf6c0b2768e2cb17b5eae9e03ebd114fc",
        ],
    ),
    (
        "guard bits",
        [
            "4cdba9ff19cea050f1541e663969e9671923cb2ac74f8b647e735c493510c2e7",
            "34ada56c993f23c290aaef40af924d6823e79c61ede1835c233285467a29a3d7",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "612dba5a59da329ed88d23125d8c2712ef850b5d54f9b7349be8aa7add7eacc1",
            "469c2751b39451651cd996bfc738de514fe494a863efaeb54ee020dd5b2c1850",
        ],
    ),
    (
        "other LPN instances",
        [
            "4534f99bf1429e76bb064cbbf740f33022caa2184983d8fc3fdd488581e8a8b1",
            "262373b50f977d25b1dcf41b01654b89c51acad8411680c182eb9f994615041f",
        ],
    ),
    (
        "stationary noise",
        [
            "612e2231e3d99226121eec18ae7c6332cfd69aff279516e6f517bb5373880364",
            "81c0b7080a84ebc1cbbb3c2dce852e8938bec960364ac7e4cb66eddb7ce3c4c5",
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
