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
            "93cdced8bae4adae96059f5b994555fede5808844ce1882cd4aa168bdb69903e",
            "c18b0abe465aae2e8da7125114f914e5a6b0bc187225afd97c390c783041734f",
        ],
    ),
    (
        "cheetah",
        [
            "0c1e432a4c17922e7c9356be6f31d1c915993a35597f7015360586916fd06333",
            "b64943d1586fff1278b1bdb4f519f903b56a4ee16c032b6a714120248aa0bd6d",
        ],
    ),
    (
        "fregata",
        [
            "ab8a7f8d6ad6c92bcae9919422043016f9334bf769153f5a00d472660eff4a4b",
            "a658fb177d3e4f1d0904f46e3dfa4b4556b79e749c5c3d1f2cd04847cebe59b6",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "750799638f3193f6a04f8733ed884beeb0efc557f4c220e179fd9f67a0411192",
            "53bea47833660835e1d3535f781640477c6f865a1d33beadf0f4c5504577b06a",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "0599851fdca326dfa5db3053bd420118c9a6726eb33d5f2cc4cff0bfbdd1f5af",
            "32f9b860db006645329f641f87b30db1703e5fe499d5a7b2d63eced52aa6476b",
        ],
    ),
    (
        "hyena",
        [
            "959e4f47268fa85844df1acfdc4fe5770507c421bdc4c7b26f62abb0727634b1",
            "194bfa4083a4c6676ecfdf26021168a99280251997bca580af0edcb8e7bca2c4",
        ],
    ),
    (
        "hyena-padded",
        [
            "84c984fbce5649e6b649cad2a6f331fb6ff605172004a8dcdb283175ea2b4810",
            "b71b276032d84742405337b5dabc7747844727e15b09799f0ed5e85ef41899a5",
        ],
    ),
    (
        "hyena-conventional",
        [
            "4e643d3a9c04cc0bf4bf1512018bcf6c1c626511e427b601c7f3d1654621a29b",
            "0cb3341498514c615004270d597de5d5d15cb8dc72662c3982610cf5f1e5b2d1",
        ],
    ),
    (
        "cirencode",
        [
            "e966e252cb7c37deeac61de21b765d882a05864ff9b548accac4b3ea8c140c3b",
            "709de8b483483943b5f98a483d3162569ffbe796e6b20c31eda952b755c8a205",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "3243d034d326467e8199c3b42d8095d3885248075214b71f40ed56256007aebf",
            "de1dedbbd16652aad8fdf663757156193c731ccfb3c7e552d68b238dc5182ce8",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "0e041993c49340aa5fb1c4b4845143390c5903bcef07facfcc8ae93d457dc5e7",
            "65959beff826b4bfa49a92af4ce347f3844d8d9e5c7bb1a96c66bfbd90231276",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "f65b1f71f7f89a7f8b45327dd36a50f23ee0191803e1f1b10f2b85ebc7e5b5e5",
            "ac1c5ac2d8ee6c54a4dea519da4628ab56aa96736893c0c69f5eed586d2fc82e",
        ],
    ),
    (
        "guard bits",
        [
            "8bf3e2dae848624f51df9666c6cce5c86b0b1d99f603b2b78629c9a30f326308",
            "99bb96b79fbe53e3168e9cc8466aeff0e517799695f995c754d5c208a1362a6a",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "f288f18ee9044a36a5397190bbace9904b5d8e92dbcf1210e5b682fc71f04aa3",
            "4354e1b4959a4cd1a1df2ccf13f2009983d15b85e3386b8b6b4b33260bdb736c",
        ],
    ),
    (
        "other LPN instances",
        [
            "084c23afa2bb1aef9f9b43ef91623ad4f8b52c2afadce8d45d187aa015a2fb0e",
            "df8b3545f25677b2e2e90adefac48a7a6696f9e005936c22767c3d011a0ecb19",
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
        let bundle = Bundle::with_guard_bits(everything().model, case.guard_bits).unwrap();
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
