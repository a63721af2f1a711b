//! Whole sessions over links of which one is faulty, and how both sides end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_engine::client::{Connected, Limits, Prediction, connect};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_wire::Channel;
use jaguar_wire::double::link::{self, At, End, Watch};

use super::networks::{input, kit};

/// Far longer than a session takes on however busy a machine.
const WATCHDOG: Duration = Duration::from_secs(600);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Two queries, one after the other; the hint comes in the first.
    Queries,
    /// Fetches the hint, prepares two queries ahead, and runs one of them on a second connection.
    Kept,
}

impl Script {
    pub const ALL: [Self; 2] = [Self::Queries, Self::Kept];

    /// How many connections it takes.
    pub fn links(self) -> usize {
        match self {
            Self::Queries => 1,
            Self::Kept => 2,
        }
    }
}

/// A fault on one of a session's connections.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    pub link: usize,
    pub at: At,
}

/// How a session went.
pub struct Outcome {
    /// What the client took for answers, in the order of its queries.
    pub predictions: Vec<Prediction>,
    pub client: Result<(), EngineError>,
    /// By connection.
    pub servers: Vec<Result<(), EngineError>>,
    pub watches: Vec<Watch>,
    /// What parties said in panics. (Their results say that they ended.)
    pub panics: Vec<String>,
}

/// Runs a session. A party that does not end fails the test, which names `what` was run.
pub fn run(
    service: &Arc<Service>,
    limits: Limits,
    script: Script,
    injection: Option<Injection>,
    what: &str,
) -> Outcome {
    let (mut ends, mut watches, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    let (tell, told) = channel();
    for number in 0..script.links() {
        let at = injection.filter(|injection| injection.link == number).map(|injection| injection.at);
        let (client, server, watch) = link::pair(at);
        ends.push((client, watch.clone()));
        watches.push(watch.clone());
        let (service, tell) = (Arc::clone(service), tell.clone());
        servers.push(thread::spawn(move || {
            let channel = Channel::with_clock(server, Arc::new(watch));
            let served = catch_unwind(AssertUnwindSafe(|| service.serve(channel, &mut |_| ())));
            let _ = tell.send(());
            served
        }));
    }
    let predictions = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::clone(&predictions);
    let client = thread::spawn(move || {
        let asked = catch_unwind(AssertUnwindSafe(|| ask(ends, limits, script, &answers)));
        let _ = tell.send(());
        asked
    });
    for _party in 0..=script.links() {
        let ended = told.recv_timeout(WATCHDOG);
        assert!(ended.is_ok(), "{what}: a party is stuck");
    }
    let mut panics = Vec::new();
    let mut sound = |result: thread::Result<thread::Result<Result<(), EngineError>>>, who: &str| {
        result.expect("panics are caught").unwrap_or_else(|panic| {
            panics.push(format!("the {who} panicked: {}", text(&*panic)));
            Ok(())
        })
    };
    let client = sound(client.join(), "client");
    let servers = servers.into_iter().map(|server| sound(server.join(), "server")).collect();
    let predictions = std::mem::take(&mut *predictions.lock().expect("no panic"));
    Outcome { predictions, client, servers, watches, panics }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")
}

fn ask(
    ends: Vec<(End, Watch)>,
    limits: Limits,
    script: Script,
    answers: &Mutex<Vec<Prediction>>,
) -> Result<(), EngineError> {
    let mut ends = ends.into_iter();
    let mut dial = || -> Result<Connected, EngineError> {
        let (end, watch) = ends.next().expect("as many as the script takes");
        connect(&kit(), Channel::with_clock(end, Arc::new(watch)), &limits)
    };
    let answered = |prediction| answers.lock().expect("no panic").push(prediction);
    let progress = &mut NoProgress;
    let mut ready = dial()?.prepare_client(HintPlace::Memory)?;
    match script {
        Script::Queries => {
            ready = ready.with_timeline();
            for query in 0..2 {
                let (prediction, _, next) = ready.prepare_query(progress)?.run(&input(query), progress)?;
                answered(prediction);
                ready = next;
            }
            ready.leave()
        }
        Script::Kept => {
            let (ticket, next) = ready.fetch_hint(progress)?.ticket()?;
            let (next, first) = next.keep_query(progress)?;
            let (next, second) = next.keep_query(progress)?;
            let room = |kept: Result<_, _>| {
                kept.map_err(|_| EngineError::Refused("this side: no room (client: -)".into()))
            };
            let (first, second) = (room(first)?, room(second)?);
            let runner = dial()?.join(&ticket)?;
            let (prediction, _, runner) = runner.run(first, &input(0), progress)?;
            answered(prediction);
            let (prediction, _, next) = next.run_kept(second, &input(1), progress)?;
            answered(prediction);
            runner.leave()?;
            next.leave()
        }
    }
}
