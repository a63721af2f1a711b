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
            "44aa0ae889fe5e6465e5316b3593e74d33a86ec23d9485cca137c5952f8b8de7",
            "09f58d99b93387b40e295da7f0890662ca33a007dc59a4813c7d4d3ecf1cd340",
        ],
    ),
    (
        "cheetah",
        [
            "b74807f9603808b6c98a6076804f0a6be08b733222dbd69d5e13353891afedf9",
            "e83ea5a65529af355b0e6446ca8627cfda3082678d4312a88b29c30571906826",
        ],
    ),
    (
        "fregata",
        [
            "35ccb6359c7a36133dd959d515c0f48318fdc6f1c125525a3b4b39955f5622c9",
            "afc3e7e60a84797f1148c765bdc35a23768832410078c7b974169abfaf4792ce",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "1ebd01f2708e743bb385f01d7fc783abe05314872b61ed0182227d5294d3c78a",
            "77355bdf5f16a41070e6371e19f7c351a5243f4db9fd10ef96819fa4d8548b97",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "8b020ed89cbe97108138dacaa58fbfffc7dd9b9c1363b2588c8795257f55a64f",
            "54b6244cf9bcba49bf41630153d029ab6ae2d21de4d6e290c848c6ef15ea033c",
        ],
    ),
    (
        "hyena",
        [
            "29fc74da91456325eb9af2da847157bd7b126a07f0f6416abd3f1ff870182057",
            "df101d60d0792d88f92f7bb41b701f30e284340c7c2effcad4af23cdc12e459e",
        ],
    ),
    (
        "hyena-padded",
        [
            "05e7dc94cc8d4ffc56432a320f32f6c4bf900c82228f591285069358a1ac2a38",
            "fe659bf195d3a56ca91438742d4f80f851071260a8c6bfb73c352718a36b8fcd",
        ],
    ),
    (
        "hyena-conventional",
        [
            "70756fd7d993da2ffdf23ecb0327ade5b70430fc758f73feba1f3f60b55a6cf5",
            "8ad602bd28f09ee2f3f02f9e23dcf4c2e750ff49ac4b55642798af092d72d0e7",
        ],
    ),
    (
        "cirencode",
        [
            "0deaf4b09bad8844da04dc61c579a009d806f7f88ac1e348720df9a606361202",
            "50e82ef729d56dca9c487aaf912e81f3bccaffa0c876df2d4eda848bd614dd38",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "dd2ef1e27cb4ef70f3f9a2b92ce9f5eebccb17ef9ca7aa2ca56e17c4e75f7c1d",
            "97570698c62f63169e667410dff816d754a84f979b05365385afc522805c1398",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "320106ff527385a8cee37875fcc3bb05bb2345d5d4ca2dabc02cde00c538545c",
            "586ba5584c58469df6f755ed1e39d2bf23e0edf78f22cb64dea390eaceb4a387",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 5] = [
    (
        "logits",
        [
            "439bbf3e6a34d3ddf33ae6f3847e274be592fe78f5ca063c0530b99c013229f8",
            "42c53ab77f3d9849ba74bc412f314f30d01e90f0b084ab20d2ca140f321e4285",
        ],
    ),
    (
        "guard bits",
        [
            "1fd40155f7d9dfac3793fc5c0b2bf5b737dc2b9f50ee4c11b96cda8d153c3a1e",
            "ef68d029ed569fc97e15d17cff543e838cedf0c14588a437b634f401175fe0dd",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "99aeb6880b84aac32308711bbc35da3b67386cb6b4062434eb7db65ae54a8bfe",
            "3a4904664dbc5c2bcc31db4c33981688e80db864b324ebf7121ab02172df8544",
        ],
    ),
    (
        "other LPN instances",
        [
            "fe67cde422f9eb9fa5b9bdcbf5328eaa1bb1141329f17b7c8cd956b5aea6c907",
            "5b7d74fa76f0b304583335c6cb39335c86cdf418cc5130f73cc905ade84dad77",
        ],
    ),
    (
        "stationary noise",
        [
            "fe379d3836954a3a097a4ef3eae31867552843b1d248bcd93ab0b498e3ac1f52",
            "0519926f717d33cd3c05fc7cef839824ecaf4176b0b5fba6dbd3315c56568d17",
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
