//! Sessions under a stand-in for the evaluation, which protects nothing: it sums up bytes.

mod lies;
mod restart;
mod storage;

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_engine::client::{Kit, Limits, connect};
use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::{ImageSpec, Resize};
use jaguar_wire::{Channel, memory_pair};

use super::client::{Keys, Progress, Session};
use super::message::CHUNK;
use super::server::{Service, Sizes};
use super::*;
use jaguar_engine::one_round::Notice;

/// Three chunks, the last one short.
const KEYS: usize = 2 * CHUNK + 7;
const CIPHERTEXT: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-convfhe-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Names in the store, without the lock and the queue.
    fn kept(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.store()).unwrap();
        let mut names: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|n| n != "lock" && n != "queue")
            .collect();
        names.sort();
        names
    }

    /// A client's keys, in a file.
    fn keys(&self, seed: u8) -> Own {
        let bytes: Vec<u8> = (0..KEYS).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 11) as u8 ^ seed).collect();
        let path = self.0.join(format!("keys-{seed}"));
        std::fs::write(&path, &bytes).unwrap();
        Own { path, hash: *blake3::hash(&bytes).as_bytes(), client: [seed; 32], bytes }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client.
struct Own {
    path: PathBuf,
    hash: [u8; 32],
    client: [u8; 32],
    bytes: Vec<u8>,
}

impl Own {
    fn offered(&self) -> Keys<'_> {
        Keys { path: &self.path, bytes: KEYS as u64, hash: self.hash }
    }

    fn expected(&self, input: &[u8; CIPHERTEXT]) -> Vec<u8> {
        (sum(&self.bytes) + sum(input)).to_le_bytes().to_vec()
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&b| u64::from(b)).sum()
}

/// Tells that an evaluation is half done, and waits for leave to go on.
struct Gate {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

#[derive(Clone, Default)]
struct Sums {
    opened: Arc<AtomicUsize>,
    gate: Option<Arc<Gate>>,
    /// How many run at the same time; none: one.
    at_once: Option<usize>,
}

struct Sum {
    keys: u64,
    gate: Option<Arc<Gate>>,
}

fn failure(told: &str, spoilt_keys: bool) -> Failure {
    Failure { told: told.into(), detail: format!("in the log: {told}"), spoilt_keys }
}

impl Evaluation for Sums {
    fn open(&self, keys: OfClient<'_>, _stop: &AtomicBool) -> Result<Box<dyn Evaluator>, Failure> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let bytes = std::fs::read(keys.path).map_err(|e| failure(&e.to_string(), false))?;
        assert_ne!(bytes[0], 0xdd, "planted in opening");
        if bytes[0] == 0xee || blake3::hash(&bytes) != *keys.hash {
            return Err(failure("these are no keys", true));
        }
        Ok(Box::new(Sum { keys: sum(&bytes), gate: self.gate.clone() }))
    }

    fn answer_bytes(&self) -> usize {
        CIPHERTEXT
    }

    fn at_once(&self) -> usize {
        self.at_once.unwrap_or(1)
    }
}

impl Evaluator for Sum {
    fn answer(
        &mut self,
        (_, input): (Ticket, &[u8]),
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, Failure> {
        progress(1, 2);
        if let Some(gate) = &self.gate {
            gate.reached.lock().unwrap().send(()).unwrap();
            // (A test that is through lets everything pass.)
            let go_on = gate.go_on.lock().unwrap();
            while !stop.load(Ordering::Relaxed)
                && go_on.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout)
            {
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(failure("stopped", false));
        }
        assert_ne!(input[0], 253, "planted in evaluating");
        if input[0] == 255 {
            return Err(failure("the first byte is 255", false));
        }
        progress(2, 2);
        let mut answer = (self.keys + sum(input)).to_le_bytes().to_vec();
        answer.truncate(if input[0] == 254 { 3 } else { CIPHERTEXT });
        Ok(answer)
    }
}

fn terms() -> Terms {
    let facing = Facing {
        name: "sums".into(),
        shape: [1, 2, 4],
        layout_dims: vec![],
        channels_last: false,
        image: ImageSpec {
            resize: Resize::Exact,
            filter: jaguar_graph::network::Filter::Bilinear,
            bgr: false,
            mean: vec![0.0],
            factor: vec![1.0],
        },
        affine: vec![],
        parts: vec![],
        labels: vec![],
        first: None,
    };
    Terms {
        set: "insecure-sums".into(),
        public: "{}".into(),
        outputs: 1,
        facing,
        keep_answers: 60,
        memory: 0,
    }
}

/// A server, with what it logged.
struct Site {
    service: Service,
    /// Where its clients come from.
    address: Option<IpAddr>,
    logged: Arc<Mutex<Vec<String>>>,
    /// Inputs that were counted.
    counted: AtomicUsize,
}

impl Site {
    fn new(scratch: &Scratch, sums: Sums, quota: u64, limits: DeskLimits) -> Self {
        Self::of_model([7; 32], scratch, sums, quota, limits)
    }

    fn of_model(model: [u8; 32], scratch: &Scratch, sums: Sums, quota: u64, limits: DeskLimits) -> Self {
        let store = KeyStore::open(&scratch.store(), KEYS as u64, quota).unwrap();
        let logged = Arc::<Mutex<Vec<String>>>::default();
        let log = logged.clone();
        let sizes = Sizes { keys: KEYS as u64, input: CIPHERTEXT, answer: CIPHERTEXT };
        let log = Box::new(move |text: &str| log.lock().unwrap().push(text.to_owned()));
        let about = (ModelId(model), terms(), sizes);
        let service = Service::new(about, store, Box::new(sums), limits, log).unwrap();
        Self { service, address: None, logged, counted: AtomicUsize::new(0) }
    }

    fn plain(scratch: &Scratch) -> Self {
        Self::new(scratch, Sums::default(), 10 * KEYS as u64, DeskLimits::default())
    }

    /// A session of `client`, and how it ended at the server.
    fn over<T>(
        &self,
        known: Option<Owner>,
        client: impl FnOnce(Channel) -> T,
    ) -> (T, Result<(), EngineError>) {
        let (ours, theirs) = memory_pair();
        let count = || {
            self.counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        thread::scope(|scope| {
            let server =
                scope.spawn(|| self.service.serve(theirs, (known, self.address), &count, &mut |_| ()));
            let result = client(ours);
            (result, server.join().expect("the server does not panic"))
        })
    }

    /// One whole session.
    fn ask(
        &self,
        own: &Own,
        inputs: &[[u8; CIPHERTEXT]],
    ) -> Result<(client::Given, Vec<Vec<u8>>), EngineError> {
        self.over(None, |channel| {
            let mut session = begin(channel, own)?;
            let given = session.give_keys(&own.offered(), &mut |_, _| ())?;
            let mut answers = Vec::new();
            for input in inputs {
                session.send(input, true)?;
                answers.push(session.answer(&mut |_| ())?);
            }
            session.leave()?;
            Ok((given, answers))
        })
        .0
    }
}

fn begin(channel: Channel, own: &Own) -> Result<Session, EngineError> {
    let mut session = Session::open(channel)?;
    session.introduce(&own.client, CIPHERTEXT)?;
    Ok(session)
}

/// A gate, and this side of it.
fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
    let ((reached, here), (go_on, there)) = (channel(), channel());
    (Arc::new(Gate { reached: Mutex::new(reached), go_on: Mutex::new(there) }), here, go_on)
}

#[track_caller]
fn says<T>(result: Result<T, EngineError>, part: &str) {
    let text = result.err().expect("a failure").to_string();
    assert!(text.contains(part), "{text:?} does not say {part:?}");
}

#[test]
fn keys_go_up_once_and_stay_after_a_restart() {
    let scratch = Scratch::new("once");
    let own = scratch.keys(1);
    let inputs = [[1; CIPHERTEXT], [2; CIPHERTEXT]];
    let want: Vec<Vec<u8>> = inputs.iter().map(|input| own.expected(input)).collect();
    for sent in [KEYS as u64, 0, 0] {
        // A server of its own each time.
        let site = Site::plain(&scratch);
        let (given, answers) = site.ask(&own, &inputs).unwrap();
        assert_eq!((given.sent, given.had), (sent, KEYS as u64 - sent));
        assert_eq!(answers, want);
    }
    let kept = scratch.kept();
    let [name] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(name.ends_with(".keys"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.store().join(name)), 0o600);
    assert_eq!(mode(&scratch.store()), 0o700);
    assert!(!name.contains("0101010101"), "what the client sent is no file's name");
}

/// What is loaded stays for the session: the second input does not wait for keys again.
#[test]
fn keys_are_read_once_a_session() {
    let scratch = Scratch::new("loaded");
    let sums = Sums::default();
    let opened = sums.opened.clone();
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    site.ask(&own, &[[1; CIPHERTEXT], [2; CIPHERTEXT], [3; CIPHERTEXT]]).unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    site.ask(&other, &[[1; CIPHERTEXT]]).unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

/// A panic is told, as what no client can help; the session, the server and its other clients go on.
#[test]
fn an_evaluation_that_panics_ends_nothing_else() {
    let scratch = Scratch::new("panics");
    let sums = Sums::default();
    let opened = sums.opened.clone();
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let own = scratch.keys(1);
    let told = "the evaluation broke off on the server, which goes on";
    let (answer, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.give_keys(&own.offered(), &mut |_, _| ())?;
        session.send(&[253; CIPHERTEXT], true)?;
        says(session.answer(&mut |_| ()), told);
        session.send(&[1; CIPHERTEXT], true)?;
        let answer = session.answer(&mut |_| ())?;
        session.leave().map(|()| answer)
    });
    served.unwrap();
    assert_eq!(answer.unwrap(), own.expected(&[1; CIPHERTEXT]));
    assert_eq!(opened.load(Ordering::SeqCst), 2, "what broke off is loaded anew");
    // So in opening.
    let other = scratch.keys(0xdd);
    says(site.ask(&other, &[[1; CIPHERTEXT]]), told);
    assert_eq!(site.ask(&own, &[[2; CIPHERTEXT]]).unwrap().1, [own.expected(&[2; CIPHERTEXT])]);
    let logged = site.logged.lock().unwrap().join("\n");
    for planted in ["planted in evaluating", "planted in opening"] {
        assert!(logged.contains(planted), "{logged}");
    }
}

#[test]
fn an_upload_goes_on_where_it_was_cut() {
    let scratch = Scratch::new("cut");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    // The client's disk fails behind a chunk and a half: it gives up, and tells.
    let short = scratch.0.join("short");
    std::fs::write(&short, &own.bytes[..CHUNK + CHUNK / 2]).unwrap();
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.give_keys(&Keys { path: &short, ..own.offered() }, &mut |_, _| ())
    });
    says(result, "reading");
    served.unwrap_err();
    assert!(matches!(scratch.kept().as_slice(), [part] if part.ends_with(".part")), "{:?}", scratch.kept());
    // Another server goes on; the connection just ends.
    drop(site);
    let site = Site::plain(&scratch);
    let mut told = Vec::new();
    let (given, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |done, all| told.push((done, all))).unwrap()
    });
    assert_eq!((given.had, given.sent), (CHUNK as u64, (KEYS - CHUNK) as u64));
    assert_eq!(told, [CHUNK, 2 * CHUNK, KEYS].map(|done| (done as u64, KEYS as u64)));
    says(served, "clos");
    assert!(matches!(scratch.kept().as_slice(), [keys] if keys.ends_with(".keys")));
    assert_eq!(site.ask(&own, &[[9; CIPHERTEXT]]).unwrap().1, [own.expected(&[9; CIPHERTEXT])]);
}

/// What is there of the keys may be damaged: they begin anew.
#[test]
fn a_damaged_part_is_sent_anew() {
    let scratch = Scratch::new("damaged");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    let short = scratch.0.join("short");
    std::fs::write(&short, &own.bytes[..CHUNK]).unwrap();
    let (result, _) = site.over(None, |channel| {
        begin(channel, &own)?.give_keys(&Keys { path: &short, ..own.offered() }, &mut |_, _| ())
    });
    result.unwrap_err();
    let part = scratch.store().join(&scratch.kept()[0]);
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let (given, answers) = site.ask(&own, &[[4; CIPHERTEXT]]).unwrap();
    assert_eq!((given.had, given.sent), (0, KEYS as u64));
    assert_eq!(answers, [own.expected(&[4; CIPHERTEXT])]);
}

#[test]
fn an_answer_is_fetched_later_once_and_by_its_owner() {
    let scratch = Scratch::new("later");
    let site = Site::plain(&scratch);
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let input = [5; CIPHERTEXT];
    let (ticket, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        let ticket = session.send(&input, false).unwrap();
        session.leave().unwrap();
        ticket
    });
    served.unwrap();
    let fetch = |own: &Own, known| {
        site.over(known, |channel| {
            let mut session = begin(channel, own)?;
            session.collect(ticket)?;
            let answer = session.answer(&mut |_| ())?;
            session.leave()?;
            Ok(answer)
        })
        .0
    };
    // Neither another client, nor one that shows a token and says the same.
    says(fetch(&other, None), "no answer under this ticket");
    says(fetch(&own, Some(Owner::known("token", "own"))), "no answer under this ticket");
    // A connection that ended before all was there costs nothing.
    site.over(None, |channel| begin(channel, &own).unwrap().collect(ticket).unwrap()).1.unwrap_err();
    assert_eq!(fetch(&own, None).unwrap(), own.expected(&input));
    says(fetch(&own, None), "no answer under this ticket");
}

#[test]
fn who_shows_a_token_is_known_by_it_alone() {
    let scratch = Scratch::new("token");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    let moved = Own { client: [99; 32], ..scratch.keys(1) };
    let give = |own: &Own, name| {
        let (given, served) = site.over(Some(Owner::known("token", name)), |channel| {
            let mut session = begin(channel, own).unwrap();
            let given = session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
            session.leave().unwrap();
            given
        });
        served.unwrap();
        given.sent > 0
    };
    assert!(give(&own, "alice"));
    assert!(!give(&moved, "alice"), "whatever it draws");
    assert!(give(&own, "bob"), "even the same keys");
    assert!(Owner::known("token", "x") != Owner::known("certificate", "x"));
}

#[test]
fn answers_are_dropped_after_their_time() {
    let scratch = Scratch::new("old");
    let limits = DeskLimits { keep: Duration::ZERO, ..DeskLimits::default() };
    let site = Site::new(&scratch, Sums::default(), 10 * KEYS as u64, limits);
    says(site.ask(&scratch.keys(1), &[[1; CIPHERTEXT]]), "no answer under this ticket");
}

#[test]
fn inputs_wait_in_their_order_and_within_limits() {
    let scratch = Scratch::new("queue");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let limits = DeskLimits { waiting: 3, waiting_of_one: 2, ..DeskLimits::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, limits);
    let (own, other, third) = (scratch.keys(1), scratch.keys(2), scratch.keys(3));
    let later = |own: &Own, inputs: &[u8]| {
        let (result, _) = site.over(None, |channel| {
            let mut session = begin(channel, own)?;
            session.give_keys(&own.offered(), &mut |_, _| ())?;
            inputs.iter().map(|&i| session.send(&[i; CIPHERTEXT], false)).collect::<Result<Vec<_>, _>>()
        });
        result
    };
    later(&own, &[1]).unwrap();
    reached.recv_timeout(PATIENCE).unwrap();
    says(later(&own, &[2, 3]), "2 inputs of this client wait already");
    assert_eq!(site.counted.load(Ordering::SeqCst), 2, "what is not taken does not count");
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &other)?;
        session.give_keys(&other.offered(), &mut |_, _| ())?;
        session.send(&[7; CIPHERTEXT], true)?;
        says(later(&third, &[1]), "3 inputs wait already");
        for _ in 0..3 {
            go_on.send(()).unwrap();
        }
        let mut told = Vec::new();
        let answer = session.answer(&mut |progress| told.push(progress))?;
        session.leave()?;
        Ok::<_, EngineError>((answer, told))
    });
    served.unwrap();
    let (answer, told) = result.unwrap();
    assert_eq!(answer, other.expected(&[7; CIPHERTEXT]));
    // Two were before it; how much of what follows is seen depends on who is faster.
    assert_eq!(told[0], Progress::Queued(2));
    assert!(told.is_sorted_by_key(|p| match p {
        Progress::Queued(ahead) => (0, 9 - ahead),
        Progress::Layers(done, _) => (1, *done),
    }));
}

/// Where others evaluate, one client's inputs wait neither for its own nor for another's.
#[test]
fn evaluations_run_at_the_same_time_where_they_may() {
    let scratch = Scratch::new("at-once");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), at_once: Some(3), ..Sums::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let ask = |own: &Own, inputs: &[u8]| {
        let (result, _) = site.over(None, |channel| {
            let mut session = begin(channel, own)?;
            session.give_keys(&own.offered(), &mut |_, _| ())?;
            inputs.iter().map(|&i| session.send(&[i; CIPHERTEXT], false)).collect::<Result<Vec<_>, _>>()
        });
        result.unwrap()
    };
    let tickets = [(&own, 1, ask(&own, &[1, 2])), (&other, 3, ask(&other, &[3]))];
    // All three have begun before the first goes on.
    for _ in 0..3 {
        reached.recv_timeout(PATIENCE).unwrap();
    }
    for _ in 0..3 {
        go_on.send(()).unwrap();
    }
    for (own, first, tickets) in tickets {
        for (ticket, input) in tickets.into_iter().zip(first..) {
            let (answer, _) = site.over(None, |channel| {
                let mut session = begin(channel, own)?;
                session.collect(ticket)?;
                session.answer(&mut |_| ())
            });
            assert_eq!(answer.unwrap(), own.expected(&[input; CIPHERTEXT]));
        }
    }
}

/// The connection ends while the answer is computed: it is there for the next session.
#[test]
fn a_cut_during_the_run_loses_nothing() {
    let scratch = Scratch::new("run-cut");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let own = scratch.keys(1);
    let (ticket, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        let ticket = session.send(&[6; CIPHERTEXT], true).unwrap();
        reached.recv_timeout(PATIENCE).unwrap();
        ticket
    });
    // The session has ended, and the evaluation goes on.
    served.unwrap_err();
    go_on.send(()).unwrap();
    let (answer, _) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.collect(ticket)?;
        session.answer(&mut |_| ())
    });
    assert_eq!(answer.unwrap(), own.expected(&[6; CIPHERTEXT]));
}

#[test]
fn failures_of_the_evaluation_are_told_and_logged() {
    let scratch = Scratch::new("failures");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    says(site.ask(&own, &[[255; CIPHERTEXT]]), "the first byte is 255");
    says(site.ask(&own, &[[254; CIPHERTEXT]]), "an answer of 3 bytes");
    assert_eq!(site.ask(&own, &[[1; CIPHERTEXT]]).unwrap().0.sent, 0, "its keys were good");
    // Keys that are none do not stay.
    let mut bad = scratch.keys(2);
    bad.bytes[0] = 0xee;
    std::fs::write(&bad.path, &bad.bytes).unwrap();
    bad.hash = *blake3::hash(&bad.bytes).as_bytes();
    for _ in 0..2 {
        says(site.ask(&bad, &[[1; CIPHERTEXT]]), "these are no keys");
        assert_eq!(scratch.kept().iter().filter(|name| name.ends_with(".keys")).count(), 1);
    }
    assert_eq!(site.logged.lock().unwrap().len(), 4);
}

#[test]
fn who_waits_is_told_when_the_server_ends() {
    let scratch = Scratch::new("end");
    let (gate, reached, _go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let own = scratch.keys(1);
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.give_keys(&own.offered(), &mut |_, _| ())?;
        session.send(&[1; CIPHERTEXT], true)?;
        reached.recv_timeout(PATIENCE).unwrap();
        site.service.end();
        session.answer(&mut |_| ()).map(|_| ())
    });
    says(result, "shutting down");
    served.unwrap_err();
    says(site.ask(&own, &[[1; CIPHERTEXT]]), "shutting down");
}

#[test]
fn clients_of_the_other_protocol_are_told() {
    let scratch = Scratch::new("other");
    let site = Site::plain(&scratch);
    let (result, served) =
        site.over(None, |channel| connect(&Kit::standard(), channel, &Limits::default()).map(|_| ()));
    for result in [result, served] {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("interactive") && text.contains("one-round 'convfhe' version 5"), "{text}");
    }
}

#[test]
fn what_was_done_is_told() {
    let scratch = Scratch::new("notices");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    let (ours, theirs) = memory_pair();
    let notices = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut heard = Vec::new();
            site.service.serve(theirs, (None, None), &|| Ok(()), &mut |notice| heard.push(notice)).unwrap();
            heard
        });
        let mut session = begin(ours, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        session.send(&[1; CIPHERTEXT], true).unwrap();
        session.answer(&mut |_| ()).unwrap();
        session.collect(Ticket([0; 32])).unwrap();
        session.answer(&mut |_| ()).unwrap_err();
        session.leave().unwrap();
        server.join().unwrap()
    });
    let all = KEYS as u64;
    assert!(
        matches!(
            notices[..],
            [
                Notice::Keys { bytes, received },
                Notice::Asked { ahead: 0, stays: true },
                Notice::Answered { bytes: 8, .. },
                Notice::NoAnswer,
            ] if bytes == all && received == all
        ),
        "{notices:?}"
    );
}
