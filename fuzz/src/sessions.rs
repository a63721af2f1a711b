//! Whole sessions, for every backend: one is recorded, then the input changes what one party hears.
//!
//! Nothing that a party hears depends on what it says, as far as its readers go: lengths follow from the plan, and
//! what comes is masked. So a recording reaches the last reader of a session, with whatever the party draws.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, OnceLock};

use jaguar_engine::client::{Limits, Reveal, connect};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::{self, KeepLimits, Service};
use jaguar_graph::network::Model;
use jaguar_ot::{Bin, Instances};
use jaguar_plan::{Allowed, Choices, Plan};
use jaguar_wire::{Channel, memory_transports};

use crate::doubles::{Recording, Replay};
use crate::script::Script;
use crate::{Bound, Target, fixed, models};

/// How a session goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Course {
    /// The hint alone, then two queries, one with a timeline; logits.
    Queries,
    /// Two queries are kept, and run in turn; a label.
    Kept,
    /// One query by comparisons of the kit that leak, if it has such.
    Leaking,
}

/// The last one is left out where the kit has no comparisons.
fn courses() -> &'static [Course] {
    const ALL: [Course; 3] = [Course::Queries, Course::Kept, Course::Leaking];
    if models::kit().comparisons().is_empty() { &ALL[..2] } else { &ALL }
}

/// A session that was recorded: what each party heard.
struct Recorded {
    service: Service,
    client: Vec<Vec<u8>>,
    server: Vec<Vec<u8>>,
}

pub(crate) fn targets() -> Vec<Target> {
    // What a session takes by itself is most of it: LPN, keys, weights as polynomials.
    let target = |name, run| Target {
        name,
        run,
        seeds,
        bound: Bound { fixed: 256 << 20, per_byte: 1 << 12 },
        longest: 1024,
        tried: 6,
    };
    vec![
        target("session-jaguar", |input| session("jaguar", input)),
        target("session-cheetah", |input| session("cheetah", input)),
        target("session-fregata-hme", |input| session("fregata-hme", input)),
        target("session-fregata-cheetah", |input| session("fregata-cheetah", input)),
        target("session-fregata-jaguar", |input| session("fregata-jaguar", input)),
        target("session-hyena", |input| session("hyena", input)),
        target("session-hyena-padded", |input| session("hyena-padded", input)),
        target("session-hyena-conventional", |input| session("hyena-conventional", input)),
        target("session-cirencode", |input| session("cirencode", input)),
    ]
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for how in 0..6 {
        seeds.push(vec![how]);
        for kind in 0..8u8 {
            // A change of each kind, somewhere.
            let [low, high] = (u16::from(kind) << 13 | u16::from(how) << 10).to_le_bytes();
            seeds.push(vec![how, kind | 0x80, low, high, 0x55, 0xaa, 3, 0xff, 0xff, 0xff, 0xff]);
        }
    }
    seeds
}

fn limits() -> Limits {
    Limits { allow_insecure_backends: true, accept_leaks: true, ..Limits::default() }
}

fn model(backend: &str) -> Model {
    if backend.starts_with("hyena") || backend == "cirencode" || backend.starts_with("fregata") {
        models::short()
    } else {
        models::everything()
    }
}

/// The server, which has served nobody yet.
fn service(backend: &str, course: Course) -> Service {
    let bundle = models::bundle(model(backend));
    let network = &bundle.model.network;
    let id = models::kit().backend(backend).expect("a backend");
    let mut choices = Choices::standard(network, id);
    choices.instances = Instances { bits: Bin::B512, vectors: Bin::B512, ..Instances::default() };
    let reveal = if course == Course::Kept { Reveal::Label } else { Reveal::Logits };
    if course == Course::Leaking {
        choices = choices.comparing_by(network, models::kit().comparisons()[0]).expect("a ring for it");
    }
    let allowed = Allowed { insecure_backends: true, leaks: true, stationary_noise: true };
    let plan = Plan::allowing(network, choices, allowed).expect("a plan");
    let service =
        Service::with_plan(jaguar_ring::cpu::Cpu::detect().into(), bundle, plan, reveal).expect("a server");
    // No session leaves anything to the next one: neither keys nor hints that are counted.
    let limits = server::Limits { hints_at_once: NonZeroU32::MAX, hints_per_hour: NonZeroU32::MAX };
    service.with_keep_limits(KeepLimits { keys: 0, ..KeepLimits::default() }).with_limits(limits)
}

/// The client's part.
fn converse(channel: Channel, course: Course) -> Result<(), jaguar_engine::EngineError> {
    let connected = connect(&models::kit(), channel, &limits())?;
    let input = models::input(connected.network());
    let mut ready = connected.prepare_client(HintPlace::Memory)?;
    match course {
        Course::Leaking => {
            let (_, _, ready) = ready.prepare_query(&mut NoProgress)?.run(&input, &mut NoProgress)?;
            ready.leave()
        }
        Course::Queries => {
            ready = ready.fetch_hint(&mut NoProgress)?;
            (_, _, ready) = ready.prepare_query(&mut NoProgress)?.run(&input, &mut NoProgress)?;
            ready = ready.with_timeline();
            let (_, report, ready) = ready.prepare_query(&mut NoProgress)?.run(&input, &mut NoProgress)?;
            drop(report);
            ready.leave()
        }
        Course::Kept => {
            let (_, with_ticket) = ready.ticket()?;
            let (mut ready, first) = with_ticket.keep_query(&mut NoProgress)?;
            let second;
            (ready, second) = ready.keep_query(&mut NoProgress)?;
            for kept in [first, second].into_iter().flatten() {
                (_, _, ready) = ready.run_kept(kept, &input, &mut NoProgress)?;
            }
            ready.leave()
        }
    }
}

/// The randomness of the server's part, and of the client's.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

fn record(backend: &'static str, course: Course) -> Recorded {
    let service = fixed(1, || service(backend, course));
    let (a, b) = memory_transports();
    let ((a, client), (b, server)) = (Recording::new(a), Recording::new(b));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            fixed(SERVER, || service.serve(Channel::new(b), &mut |_| ())).expect("a sound session")
        });
        // (Not in this thread, whose randomness may be an input's.)
        let asking =
            scope.spawn(|| fixed(CLIENT, || converse(Channel::new(a), course)).expect("a sound session"));
        asking.join().expect("no panic");
        serving.join().expect("no panic");
    });
    Recorded { service, client: client.chunks(), server: server.chunks() }
}

/// The recorded sessions by backend and course, as far as some input asked for them.
type ByCourse = [OnceLock<Arc<Recorded>>; 3];
static RECORDED: LazyLock<Vec<(&str, ByCourse)>> =
    LazyLock::new(|| models::kit().backends().iter().map(|id| (id.name(), Default::default())).collect());

fn session(backend: &'static str, input: &[u8]) {
    goes_through(backend, input);
}

/// A byte that says the course and the role; then changes to what that role hears. Says whether the role came to the end of its
/// session.
pub fn goes_through(backend: &'static str, input: &[u8]) -> bool {
    let mut script = Script::new(input);
    let how = usize::from(script.byte());
    let of_backend = RECORDED.iter().find(|(name, _)| *name == backend).expect("a backend");
    let number = how / 2 % courses().len();
    let course = courses()[number];
    let make = || std::thread::spawn(move || Arc::new(record(backend, course))).join().expect("it goes well");
    let recorded = of_backend.1[number].get_or_init(make).clone();
    let heard = if how.is_multiple_of(2) { &recorded.client } else { &recorded.server };
    let mut chunks = heard.clone();
    script.change(&mut chunks);
    let channel = Replay::channel(chunks);
    // An error, or a wrong answer: both are fine. (With the recorded role's own randomness: the peer's check of oblivious transfers
    // holds for no other.)
    if how.is_multiple_of(2) {
        fixed(CLIENT, || converse(channel, course).is_ok())
    } else {
        fixed(SERVER, || recorded.service.serve(channel, &mut |_| ()).is_ok())
    }
}
