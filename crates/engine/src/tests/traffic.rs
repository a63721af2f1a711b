//! Pins all bytes of a session, for every backend of the registry, and for what else changes what passes: what is revealed, guard
//! bits, comparisons that leak, other instances of the OT extension. A change of the wire format must be meant.
//!
//! (Kept queries pass the same kinds of messages in another order: `kept.rs`. The parts of the OT extension are pinned in `ot`. One-round
//! sessions are not pinned.)

use std::time::Duration;

use jaguar_cpu::{Cpu, Level};
use jaguar_mpc::cost::{Bin, Instances};
use jaguar_plan::{Allowed, Plan};
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
            "726c312540456f5fc88c4b34289f903bf163880e46615c0fdd2c09f0983bc4cd",
            "7c8f4a42be1835eb167fa13ae1c08316c48012a5a9085b1f0f49180e03c48a6e",
        ],
    ),
    (
        "cheetah",
        [
            "d46c36faf01604112dc1b554660610c6c0b39f3b1923fdfd4b578457f74240a5",
            "dee846c3b25f0f07c8ac223f3fea3449b747a2730d4e87e5ecf13c61e475953c",
        ],
    ),
    (
        "fregata",
        [
            "22cba85bed30709434cc71f875d4b03017bcfb3283c870a9e93dcbdd52e1b970",
            "78f632555490219345e9006362adb04e0722d593220847950e5d376a8d3dffdd",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "50c33d64a19729ccf61523e6c0045b4788e356bffc35c3e52af160bbf745baa1",
            "7ce9a55efd9828d8f94921876c50f2ccb96b4acd81ea147ee42fca0fd61147f5",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "93cb5180db5aab8df71e1122586291e445edf7e4961886d365adf63cb52db723",
            "7e4bf18922c819adf23f51f6f11580b41b44c21c78aabb841f6306eac222da4a",
        ],
    ),
    (
        "hyena",
        [
            "0d297d11c9b3d4ab50937d746e5e8b7b94c8ed006638051fe0a9dbb5a0f66d51",
            "3465505877c715aca0d19116f4e43d210017debf217975bbdb64d0589543ccd3",
        ],
    ),
    (
        "hyena-padded",
        [
            "aa54df682c46d28e2e81dfe812f16dbc7d88fefe4e016a2ad6b4e993e1a69b42",
            "50ec5af102ab821a326f3108a27a3b4ee8516548c4d677665bab1593a22e8038",
        ],
    ),
    (
        "hyena-conventional",
        [
            "381872601c7d0134bd3b74730524c2753c4a518dd07a953740ef56074d9276e4",
            "672114234459c12281cfe2f158d7416850707c03876b72f5b5b2455d75ab8e89",
        ],
    ),
    (
        "cirencode",
        [
            "3e7d6f948b4221f9a73b1d39103cf0f3a80f47f65c0044e1273ed10e053761ec",
            "aef33b2529e78e27e1abdf4919953d7c94861f4b9f0078625f6a6119c56ed80e",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "597deed537725df919e8ae8af9955972aafb31e1a5a9f26737725030f8a23a3d",
            "86f72158b74f0f35f7520510480fc75fc3b9a764238fa34564c55d9c2fd88028",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "80ef2130051198016f74828b8a91887f681deef2e8e79b70466f3087518003a3",
            "e43b29d25556df77e76970d515633fc7c4c4550a43ebf51ce40790ae456619b1",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "e992b53fee07da4a6ef1f55ffcbbcfbeb2bfa0f185a687b96e8afa648201a863",
            "5234a4427b8e98a512ed92f6b4a9f9319b23456eb2996ac12669a3f655226352",
        ],
    ),
    (
        "guard bits",
        [
            "492b5b090db4ae5cac4deed03a20118e5401f2dce89f3c6a72855cb312e3169c",
            "8e0d8b1f3148dfa74731759f131d279e5d983485cb4788baa4986d2a71062f2e",
        ],
    ),
    (
        "comparisons that leak",
        [
            "4079432a43cf8dc69f0120ec2b2dd7381e2df638a7e3812a21879f731ff94de7",
            "ae6ef80f68f2f7f987c4d3e1a0ae03a434fcaaee71193a105ae6444f65953601",
        ],
    ),
    (
        "other LPN instances",
        [
            "ade7eeb467d285595133181e27bcfca5e35726c4f47ecbda9214018eb6a0fa75",
            "7390a1e084a9d29f3c081af85a480690d42a12bfdf9fb49f665775b3e7c16f34",
        ],
    ),
];

/// A session.
#[derive(Clone, Copy)]
struct Case {
    backend: BackendId,
    reveal: Reveal,
    guard_bits: u32,
    leaky: bool,
    instances: Instances,
}

impl Case {
    fn of(backend: BackendId) -> Self {
        let (reveal, guard_bits, leaky) = (Reveal::Label, 0, false);
        Self { backend, reveal, guard_bits, leaky, instances: Instances::default() }
    }

    /// Those of [`OTHERS`].
    fn others() -> [Self; 4] {
        let default = Self::of(BackendId::JAGUAR);
        let instances = Instances { bits: Bin::B4096, vectors: Bin::B1024 };
        [
            Self { reveal: Reveal::Logits, ..default },
            Self { guard_bits: jaguar_graph::network::DEFAULT_GUARD_BITS, ..default },
            Self { leaky: true, ..default },
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
        let mut choices = Choices::standard(network, case.backend);
        choices.instances = case.instances;
        if case.leaky {
            choices = choices.leaking_signs(network).unwrap();
        }
        let allowed = Allowed { insecure_backends: true, sign_leakage: case.leaky };
        let plan = Plan::allowing(network, choices, allowed).unwrap();
        Service::with_plan(cpus[1].into(), bundle, plan, case.reveal).unwrap()
    });
    let x = input(5, 3 * 17 * 15);
    let limits =
        Limits { allow_insecure_backends: true, accept_sign_leakage: case.leaky, ..Limits::default() };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let channel = Channel::with_clock(b, clock());
            with_insecure_fixed_randomness([2; 32], || service.serve(channel, &mut |_| ()))
        });
        with_insecure_fixed_randomness([seed; 32], || {
            let channel = Channel::with_clock(recorder, clock());
            let connected = connect(channel, &limits).unwrap().with_cpu(cpus[0]);
            let ready = connected.prepare_client(Place::Memory).unwrap();
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
        BackendId::all().map(|backend| (backend.name(), hashes(backend))).collect();
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
        [3, 4].map(|seed| traffic(Case::of(BackendId::JAGUAR), seed, [Cpu::detect(); 2]));
    for (bytes, other) in [(sent, other_sent), (received, other_received)] {
        assert_eq!(bytes.len(), other.len());
        let equal = bytes.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < bytes.len() / 2, "{equal} of {} bytes are the same", bytes.len());
    }
}
