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
            "091638cd53fd581bf1f69c493cc3d305145265c31e5bc0ce42cbb91d0d4ed46f",
            "d47402887032de1e2cc0731ae104a576cabaeecdbbaf531d3d623005353c03a8",
        ],
    ),
    (
        "cheetah",
        [
            "755f2b8e1550ef8a16b81ad4d60aa0f17ed916ecc33c55f76ab05c9f1b134578",
            "bdc801228b840111c3809222af623091e186cdcdd310b32a88f8f88dcd327bb1",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "11fd80c874b4b4a11b67a2fb3950ff97550d578460e8cd436837c296e6fecf22",
            "152a5190464b72e218b7c23895ba85e8e4c7cdf473afed5a001b8bcdee26f043",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "408c0a3966d00884a9e433feac4b7a52c4240a3b5ef38b036204ad5ce8c60160",
            "280aa3f501cf34033fd8e56ab55d53cbeb4afe76c8a6aee77bd5e70e00ae1cb6",
        ],
    ),
    (
        "fregata-hme",
        [
            "6370b6038a67ea04776bc6dcac5a12a98d324fa3facaf0e5d09b6c7214433270",
            "69ae75f6a3694f4ac1263cc2d9aeb6da7bf4ef360eec4e5ca3ed91eb3615f329",
        ],
    ),
    (
        "hyena",
        [
            "eff2126e14435917cbd86f2eb5da7efd0f60be2669bdb134bd14cb835ed96a6e",
            "61e63c18cfbd31890a62f0e16a17ab743c08f616a9643d87d731fce5145bd31b",
        ],
    ),
    (
        "hyena-padded",
        [
            "f8806d0aa26a9f2dfb7314b9606fa86156679a3ee2431fe7c4214d57fed55f49",
            "1ef12566515ad06368a7ace678275c3542687ebe36765f20f51a2bf3f767403d",
        ],
    ),
    (
        "hyena-conventional",
        [
            "b87051884a8d36cc02f3e927683526ad2f575b53401e7ba7416bdda22bc49d4e",
            "8f5464d89bde881bd7f6981ef28d4344183a8fef8ca3d9f6eefe134aa8c3d8b2",
        ],
    ),
    (
        "cirencode",
        [
            "e67363376a42e3635c101d887c1d85fe4f6a5a5cc0ddfa16a26eb2db6513ca90",
            "82d35396c7771ba32bcb81d6be74f12c7f37e9f1b46d9568b8d1fe180dad525e",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "c1b08354e59ec5ad0cd18a1633661924d94421c3b7f1c0417558e54c379b688a",
            "c0e591e2492b743c75c39e1ab7ecc89b8f2ca116bc39c6d8e4566764c77b6aa7",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "4a3dad5b98cc1b608fbe09b520e059e66983b7f878fa1d0867af57dadaef755a",
            "c0c078316989f99e569cf5680958ab36fe4b1f48d80183866647845e95cb6081",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "89c0ab0b2c5636ed7370174155be6b3d444374634eaa4f0eb2f22f66435c64a4",
            "4d1e50ebfb8c02131c0dd5a428beeabaae91c09d8e873829324896b56475900b",
        ],
    ),
    (
        "guard bits",
        [
            "297d1c68926a69454fe110cba0ef18102697d9fe7aa71ff9848056bddc9fe7a2",
            "b5f3cbf26c49c37d540f87d2f097d7a4fd42145196d15aacea44dda4fa1b5966",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "73de20317be8e3fe0c945bd0d8449f39ed97b651a986600699c0ab1969d5eeb3",
            "c74b96d6b7f8e228084f3ad3ca0123277f5949cc3be8840cbad0c38e29f1e6fa",
        ],
    ),
    (
        "other LPN instances",
        [
            "d035df3349632a8ec5408488e6e5db3fffb6f7fc3f66865ca15cabbed6618721",
            "3b0e9bdb5f7bcb49b5987f447396864d3580d2d663a18fcf8cf7d8f6abcb4532",
        ],
    ),
    (
        "stationary noise",
        [
            "de91c22afdcf6e3cd9684023a2bc0b4f7f6ea6a1c782d721d20bc4e2791891c8",
            "83cb35407dce50a8363859ea65843992f9024864d3e1c9d8196c599b5074274d",
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
