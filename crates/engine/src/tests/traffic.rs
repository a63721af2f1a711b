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
            "8a6d8d24a7d08c10b746c59399a2cb9f7fa76e15634575c3470bff37c647008e",
            "ca162a3cc8949144e5f9938c0727bc9380564704ecc512f31ecff9864a5574f9",
        ],
    ),
    (
        "cheetah",
        [
            "6a9889859ec88c72ee81c85564977ec7e9483dd94ecd93b14e7d8848e10907fd",
            "01b41170ac95cc42e46ad3c30999b63045577ed0ff6abacff81b78e528f1a276",
        ],
    ),
    (
        "fregata",
        [
            "eb8cbb9559d5828c9caea998c234c28ec82804f542418a0638625175411f8e5d",
            "e3814afc41d8b654e02af7355003d084bbccfe50389d44979d7e3378511079cd",
        ],
    ),
    (
        "fregata-cheetah",
        [
            "d15ec4491065025dbad39e597e3631b944812f4df5b9fab2a255d057081ad6bc",
            "92838b480b68d995567295bb925ac1662a2291a9ee11b5a4cbfe3799e5f8cc3e",
        ],
    ),
    (
        "fregata-jaguar",
        [
            "4f98d83786d1207bccfbd54d57812b5ed25882bf55628a468c46e9b9ab0aa901",
            "eb64d9eaf7184a2dfa3508103410f10412f8b7afb3549d8f54d4f2fd1d3159e3",
        ],
    ),
    (
        "hyena",
        [
            "205c83b647cd687cde855529163f72d80150c18f7fff8714f1041d58b6df1a29",
            "4737aef2d04ccc7360df1e66e785300feba3520b61e8c9e48ae2be51ef342cb2",
        ],
    ),
    (
        "hyena-padded",
        [
            "c27913a80b27a4861ce30a6e8cd93c2226412e8a623e3c56a409606928107f7a",
            "b0a8af58003c3b8a274c34a153ad70f12a7ff0fe3f9c8bedd2724ab5d2fc4c20",
        ],
    ),
    (
        "hyena-conventional",
        [
            "50b74bdc42e141bcd1cd66f6da012b8afa27a0465f716a4659371919f06659c9",
            "ff5d41ceaefdf73bbd0348f5f879268737cc324622a14735056fe449cb7f2d36",
        ],
    ),
    (
        "cirencode",
        [
            "cbb2094463a594cdea0a715c4e3f29f8cf56f180008d3472fe9957c9fce42288",
            "6d52bb13f1ab475e1adda98c34834f986a2cbbb317301f4356f1660ea60e3f29",
        ],
    ),
    (
        "plaintext-insecure",
        [
            "e972b7990c355109a25f91ee95e48ecb69f2b3a1360185f7d82a45f1ca89e119",
            "7ac624efe8055b0d25ab71802e056d526752acd275040e989a4e460fde8ee443",
        ],
    ),
    (
        "plaintext-prime-insecure",
        [
            "e1c5809aadc2a538b5027cb4c9e6b80fa08a4097a76d82eb723e6af5b6387830",
            "52337e8c6ce83f358bab57067609aa3f9ff43936ff6cfb26906eed8b980a1f9b",
        ],
    ),
];

/// As [`PINNED`], of sessions under the default backend.
const OTHERS: [(&str, [&str; 2]); 4] = [
    (
        "logits",
        [
            "15ceb9d58b5cc5c3bd52072e6f5c3948e480042eb999e2b5966b92c118318331",
            "ded089541d53652dcb9726788c1746c987dda0473c1bc041822025ddac5501ce",
        ],
    ),
    (
        "guard bits",
        [
            "d8fe693ac58f43ab67a801c9a9aa883846bb01c8b975a7868b0bb87bf009af46",
            "00e7f78a1621086a85331d7a77c2d6124326323643392214de389abad79b2f4f",
        ],
    ),
    (
        "comparisons of a kit",
        [
            "febb6279d8bd73bd82c568fe80f1a26de2e3b7d400a745e25fbcd00481f4434c",
            "1aa65b3099fdae544854afb6e2713295ef93349b4cf82e7ad5e72b7de4b0a387",
        ],
    ),
    (
        "other LPN instances",
        [
            "092fc4ac4faccbb40dcfab849313cf52520d86effd27278490a855ee4a2cfad3",
            "274b491a7ff3b20cae4a307319a58c04c7c5d2cf9ea7c2431d52ef6bb6bec117",
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
