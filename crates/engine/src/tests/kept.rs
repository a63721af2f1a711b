//! Queries that both parties keep: online bytes only, each used once, within bounds, and gone with the connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use jaguar_graph::reference;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::tcp::{self, Listener, Tcp};
use jaguar_wire::{Stage, Transport, encode};

use super::hints::Plain;
use super::*;
use crate::client::{Kept, Runner};
use crate::kept::keeper::{self, Keeper};
use crate::kept::stock::{NoRoom, Stock, prepared_bytes};
use crate::message::{Accept, Purpose, Secret};
use crate::server::{KeepLimits, Notice};

/// Longer than anything takes here, so that who waits for it in vain has found a bug.
const WATCHDOG: Duration = Duration::from_secs(120);

type Served = JoinHandle<Result<(), EngineError>>;

/// What one connection carried, from which byte on it is a secret's, and how the server fared.
struct Wire {
    transcript: Transcript,
    start: (u64, u64),
    served: Option<Served>,
}

/// A server to which connections are opened one by one, each recorded; faults come from a list.
#[derive(Clone)]
struct Site {
    service: Arc<Service>,
    wires: Arc<Mutex<Vec<Wire>>>,
    faults: Arc<Mutex<VecDeque<Fault>>>,
}

/// Nothing goes wrong.
const SOUND: Fault = Fault::Silence(u64::MAX);

impl Site {
    fn new(limits: KeepLimits) -> Self {
        Self::of(Arc::new(service(everything()).with_keep_limits(limits)))
    }

    fn of(service: Arc<Service>) -> Self {
        Self { service, wires: Arc::default(), faults: Arc::default() }
    }

    fn connect(&self) -> Result<Connected, EngineError> {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::new(a);
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(SOUND);
        let service = Arc::clone(&self.service);
        // (What its reports say of times is zeros: only randomness may not come again.)
        let channel = Channel::with_clock(b, Arc::new(Frozen::default()));
        let served = Some(thread::spawn(move || service.serve(channel, &mut |_| ())));
        let at = {
            let mut wires = self.wires.lock().unwrap();
            wires.push(Wire { transcript: transcript.clone(), start: (0, 0), served });
            wires.len() - 1
        };
        let connected = connect(Channel::new(Faulty::new(recorder, fault)), &Limits::default())?;
        self.wires.lock().unwrap()[at].start = transcript.lengths();
        Ok(connected)
    }

    fn ready(&self, cache: &Scratch) -> Ready {
        self.connect().unwrap().prepare_client(&cache.0).unwrap()
    }

    fn dial(&self) -> Arc<keeper::Dial> {
        let site = self.clone();
        Arc::new(move || site.connect())
    }

    /// How connection number `wire` ended at the server.
    fn ended(&self, wire: usize) -> Result<(), EngineError> {
        let served = self.wires.lock().unwrap()[wire].served.take().expect("asked once");
        served.join().expect("the server does not panic")
    }

    /// Waits until all connections have ended at the server; it holds nothing then.
    fn all_ended(&self) -> Vec<Result<(), EngineError>> {
        let wires = self.wires.lock().unwrap().len();
        let left: Vec<usize> =
            (0..wires).filter(|&w| self.wires.lock().unwrap()[w].served.is_some()).collect();
        let results = left.into_iter().map(|wire| self.ended(wire)).collect();
        assert_eq!(self.service.kept(), Stock::default());
        results
    }

    fn bytes(&self) -> [u64; 2] {
        prepared_bytes(self.service.plan())
    }
}

fn x() -> Vec<i64> {
    input(5, 3 * 17 * 15)
}

fn logits(prediction: Prediction) -> Vec<i64> {
    let Prediction::Logits(logits) = prediction else { panic!("logits were asked for") };
    logits
}

/// Near the plaintext reference's: a linear layer rounds either way.
fn assert_right(prediction: Prediction, x: &[i64]) {
    let bundle = everything();
    let run = reference::run(Cpu::detect(), &bundle.model, x).unwrap();
    let (got, want) = (logits(prediction), run.output().to_vec());
    assert_eq!(got.len(), want.len());
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).max().unwrap();
    assert!(worst < 64, "{got:?} and {want:?}");
    // Another input's would be farther off.
    let other = reference::run(Cpu::detect(), &bundle.model, &input(6, x.len())).unwrap();
    assert!(want.iter().zip(other.output()).any(|(a, b)| (a - b).abs() > 64));
}

/// Warnings.
#[derive(Default)]
struct Warned(Vec<String>);

impl crate::progress::Progress for Warned {
    fn step(&mut self, _: Stage, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, _: u64, _: u64) {}

    fn warning(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// The background fetches the hint, which its file does not take: the next caller hears that, once.
#[test]
fn what_the_background_has_to_say_is_told_with_the_next_answer() {
    let site = Site::new(KeepLimits::default());
    let full = Plain::of(site.service.plan().hint_bytes() / 2);
    let options = keeper::Options::new(1, full.opened());
    let mut keeper = Keeper::open(site.dial(), options, &mut NoProgress).unwrap();
    assert_eq!(keeper.wait_until_ready(1), 1);
    let mut warned = Warned::default();
    for _ in 0..2 {
        let (prediction, _) = keeper.predict(&x(), &mut warned).unwrap();
        assert_right(prediction, &x());
    }
    assert_eq!(warned.0.len(), 1, "{:?}", warned.0);
    assert!(warned.0[0].starts_with("the hint cannot be kept"), "{:?}", warned.0);
    keeper.close().unwrap();
    site.all_ended();
}

/// Three queries are kept and run in another order, on the connection that prepared them and on one that joined: each is the
/// plaintext network's, and takes what the online stage of any query takes, and a request.
#[test]
fn a_kept_query_takes_the_online_stage_only() {
    let cache = Scratch::new("kept");
    let site = Site::new(KeepLimits::default());
    let plain = &queries(&site.service, &cache, &x(), 1)[0];
    let mut ready = site.ready(&cache);
    let mut all = VecDeque::new();
    for id in 0..3 {
        let (next, kept) = ready.keep_query(&mut NoProgress).unwrap();
        ready = next;
        let kept = kept.unwrap();
        assert_eq!(kept.id(), id);
        let queries = id as u32 + 1;
        assert_eq!(ready.server_keeps(), Stock { queries, bytes: u64::from(queries) * site.bytes()[1] });
        all.push_back(kept);
    }
    assert_eq!(site.service.kept(), ready.server_keeps());
    let (ticket, mut ready) = ready.ticket().unwrap();
    let mut runner = site.connect().unwrap().join(&ticket).unwrap();
    assert_eq!(runner.server_keeps().queries, 3);

    let transcripts: Vec<Transcript> =
        site.wires.lock().unwrap().iter().map(|wire| wire.transcript.clone()).collect();
    for (round, (index, on)) in [(1, 1), (0, 0), (0, 1)].into_iter().enumerate() {
        let kept = all.remove(index).unwrap();
        let id = kept.id();
        let before = transcripts[on].lengths();
        let report = if on == 0 {
            let (prediction, report, next) = ready.run_kept(kept, &x(), &mut NoProgress).unwrap();
            assert_right(prediction, &x());
            ready = next;
            report
        } else {
            let (prediction, report, next) = runner.run(kept, &x(), &mut NoProgress).unwrap();
            assert_right(prediction, &x());
            runner = next;
            report
        };
        let after = transcripts[on].lengths();
        let request = encode(&Request::Run { id }).len() as u64 + 4;
        let online = (report.online.bytes_up, report.online.bytes_down, report.online.rounds);
        let want = (plain.online.bytes_up + request, plain.online.bytes_down, plain.online.rounds);
        assert_eq!(online, want);
        // Nothing else passed but the server's report.
        assert_eq!(after.0 - before.0, online.0);
        let told = after.1 - before.1 - online.1;
        assert!(told > 0 && told < 4096, "{told}");
        assert_eq!((report.kept, report.server_keeps.queries), (Some(id), 2 - round as u32));
    }
    // A query that is not kept still goes, on the connection that can prepare.
    let (prediction, report, ready) =
        ready.prepare_query(&mut NoProgress).unwrap().run(&x(), &mut NoProgress).unwrap();
    assert_right(prediction, &x());
    assert_eq!((report.kept, report.server_keeps), (None, Stock::default()));
    runner.leave().unwrap();
    ready.leave().unwrap();
    site.all_ended().into_iter().for_each(|ended| ended.unwrap());
}

/// Of kept queries with one input, on two connections and after a new start, nothing comes twice.
#[test]
fn nothing_of_a_kept_query_comes_again() {
    let cache = Scratch::new("kept-repeat");
    let site = Site::new(KeepLimits::default());
    let hint = site.ready(&cache).fetch_hint(&mut NoProgress).unwrap();
    hint.leave().unwrap();
    site.wires.lock().unwrap().clear();
    for overlap in [false, true] {
        let mut options = keeper::Options::new(2, &*cache.0);
        options.overlap = overlap;
        let mut keeper = Keeper::open(site.dial(), options, &mut NoProgress).unwrap();
        for _ in 0..3 {
            assert_right(keeper.predict(&x(), &mut NoProgress).unwrap().0, &x());
        }
        // What is left over is dropped, never used.
        keeper.wait_until_ready(1);
        keeper.close().unwrap();
    }
    site.all_ended().into_iter().for_each(|ended| ended.unwrap());
    let mut repeats = Repeats::new();
    for wire in &*site.wires.lock().unwrap() {
        nothing_in_common(&mut repeats, &wire.transcript, wire.start);
    }
}

/// Over TCP: a client that stays connected tops up in the background, says how much is there, and asks with the online stage.
#[test]
fn a_keeper_tops_up_over_tcp() {
    let service = Arc::new(service(everything()));
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    let serving = Arc::clone(&service);
    thread::spawn(move || {
        while let Ok(incoming) = listener.accept() {
            let (service, tell) = (Arc::clone(&serving), tell.clone());
            thread::spawn(move || {
                let tcp = incoming.greet(tcp::Options::default()).unwrap();
                let mut notices = Vec::new();
                let result = service.serve(Channel::new(tcp), &mut |notice| notices.push(notice));
                tell.send((result, notices)).unwrap();
            });
        }
    });
    let dial = move || {
        let tcp = Tcp::connect(address.as_str(), tcp::Options::default())?;
        connect(Channel::new(tcp), &Limits::default())
    };
    let mut keeper =
        Keeper::open(Arc::new(dial), keeper::Options::new(3, HintPlace::Memory), &mut NoProgress).unwrap();
    assert!(keeper.no_runner().is_none());
    for round in 0..2 {
        assert_eq!(keeper.wait_until_ready(3), 3);
        let [here, there] = prepared_bytes(service.plan());
        assert_eq!(keeper.stock(), Stock { queries: 3, bytes: 3 * here });
        assert_eq!(keeper.server_keeps(), Stock { queries: 3, bytes: 3 * there });
        let (prediction, report) = keeper.predict(&x(), &mut NoProgress).unwrap();
        assert_right(prediction, &x());
        assert_eq!(report.kept, Some(round));
        // Nothing was prepared while the input waited.
        let predicted = jaguar_plan::predict::predict(service.plan(), &report.session, None);
        let request = encode(&Request::Run { id: round }).len() as u64 + 4;
        assert_eq!(report.online.bytes_up, predicted.online.bytes_up + request);
        assert_eq!(report.online.bytes_down, predicted.online.bytes_down);
    }
    keeper.close().unwrap();
    let mut kept = 0;
    for _connection in 0..2 {
        let (result, notices) = told.recv_timeout(WATCHDOG).unwrap();
        result.unwrap();
        kept += notices.iter().filter(|n| matches!(n, Notice::Kept { .. })).count();
    }
    assert!((4..=5).contains(&kept), "{kept}");
    assert_eq!(service.kept(), Stock::default());
}

/// More inputs than queries, none kept at all, and a network of one connection: every answer is right.
#[test]
fn a_keeper_prepares_when_nothing_is_there() {
    let cache = Scratch::new("kept-none");
    let each = Site::new(KeepLimits::default()).bytes()[1];
    for (limits, keep, why) in [
        (KeepLimits::default(), 0, None),
        (KeepLimits { queries: 0, ..KeepLimits::default() }, 2, Some(NoRoom::Client { most: 0 })),
        (KeepLimits { queries: 1, ..KeepLimits::default() }, 2, Some(NoRoom::Client { most: 1 })),
        (KeepLimits { bytes: each - 1, ..KeepLimits::default() }, 1, Some(NoRoom::All { most: each - 1 })),
    ] {
        let site = Site::new(limits);
        let mut keeper =
            Keeper::open(site.dial(), keeper::Options::new(keep, &*cache.0), &mut NoProgress).unwrap();
        for _ in 0..4 {
            assert_right(keeper.predict(&x(), &mut NoProgress).unwrap().0, &x());
        }
        keeper.wait_until_ready(2);
        assert_eq!(keeper.no_room(), why);
        assert!(keeper.ready() <= limits.queries as usize);
        keeper.close().unwrap();
        site.all_ended().into_iter().for_each(|ended| ended.unwrap());
    }
    // No second connection.
    let site = Site::new(KeepLimits::default());
    site.faults.lock().unwrap().extend([SOUND, Fault::CutReceived(0)]);
    let mut keeper = Keeper::open(site.dial(), keeper::Options::new(2, &*cache.0), &mut NoProgress).unwrap();
    assert!(keeper.no_runner().is_some() && keeper.no_runner().is_none());
    assert_eq!(keeper.wait_until_ready(2), 2);
    for id in [0, 1] {
        let (prediction, report) = keeper.predict(&x(), &mut NoProgress).unwrap();
        assert_right(prediction, &x());
        assert_eq!(report.kept, Some(id));
    }
    keeper.close().unwrap();
    assert_eq!(site.all_ended().iter().filter(|ended| ended.is_err()).count(), 1, "the one that was cut");
}

/// What does not fit the client's own bound is refused before anything secret passes, and no more is prepared than is announced.
#[test]
fn the_clients_bounds_hold() {
    let cache = Scratch::new("kept-bounds");
    let site = Site::new(KeepLimits::default());
    let mut options = keeper::Options::new(3, &*cache.0);
    options.memory = 3 * site.bytes()[0] - 1;
    let refused =
        Keeper::open(site.dial(), options.clone(), &mut NoProgress).err().expect("refused").to_string();
    assert!(refused.contains("3 prepared queries hold"), "{refused}");
    assert!(site.all_ended().remove(0).is_err());

    options.memory += 1;
    options.total = Some(2);
    let mut keeper = Keeper::open(site.dial(), options, &mut NoProgress).unwrap();
    assert_eq!(keeper.wait_until_ready(3), 2);
    for left in [1, 0] {
        keeper.predict(&x(), &mut NoProgress).unwrap();
        assert_eq!(keeper.wait_until_ready(3), left);
    }
    // An input that does not fit costs nothing.
    let error = keeper.predict(&[0; 3], &mut NoProgress).expect_err("refused").to_string();
    assert!(error.contains("3 values"), "{error}");
    assert_right(keeper.predict(&x(), &mut NoProgress).unwrap().0, &x());
    keeper.close().unwrap();
    site.all_ended().into_iter().for_each(|ended| ended.unwrap());
}

/// Five clients and room for three queries: three are kept, the others are told, go on, and find room when one is used.
#[test]
fn the_servers_bounds_hold_for_many_clients() {
    let cache = Scratch::new("kept-many");
    let each = Site::new(KeepLimits::default()).bytes()[1];
    let site = Site::new(KeepLimits { queries: 1, bytes: 3 * each + 1, ..KeepLimits::default() });
    let first = site.ready(&cache).fetch_hint(&mut NoProgress).unwrap();
    let mut clients = vec![first];
    clients.extend((1..5).map(|_| site.ready(&cache)));
    let outcomes: Vec<(Ready, Result<Kept, NoRoom>)> = thread::scope(|scope| {
        let keeping: Vec<_> = clients
            .into_iter()
            .map(|ready| scope.spawn(move || ready.keep_query(&mut NoProgress).unwrap()))
            .collect();
        keeping.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(site.service.kept(), Stock { queries: 3, bytes: 3 * each });
    let (with, without): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, kept)| kept.is_ok());
    assert_eq!((with.len(), without.len()), (3, 2));
    let mut with = with.into_iter().map(|(ready, kept)| (ready, kept.ok().unwrap()));
    let mut without = without.into_iter().map(|(ready, kept)| {
        assert_eq!(kept.err().unwrap(), NoRoom::All { most: 3 * each + 1 });
        ready
    });
    // Who has one cannot have another.
    let (ready, kept) = with.next().unwrap();
    let (ready, no_more) = ready.keep_query(&mut NoProgress).unwrap();
    assert_eq!(no_more.err().unwrap(), NoRoom::Client { most: 1 });
    // Who has none asks all the same.
    let refused = without.next().unwrap();
    let (prediction, _, refused) =
        refused.prepare_query(&mut NoProgress).unwrap().run(&x(), &mut NoProgress).unwrap();
    assert_right(prediction, &x());
    // A used query makes room, and so does a client that goes.
    let (_, _, ready) = ready.run_kept(kept, &x(), &mut NoProgress).unwrap();
    let (refused, kept) = refused.keep_query(&mut NoProgress).unwrap();
    kept.unwrap();
    let (other, no_room) = without.next().unwrap().keep_query(&mut NoProgress).unwrap();
    assert!(matches!(no_room, Err(NoRoom::All { .. })));
    assert_eq!(site.service.kept().queries, 3);
    refused.leave().unwrap();
    let wires = site.wires.lock().unwrap().len();
    while site.service.kept().queries == 3 {
        thread::sleep(Duration::from_millis(1));
    }
    let (other, kept) = other.keep_query(&mut NoProgress).unwrap();
    kept.unwrap();
    assert_eq!((wires, site.service.kept().queries), (5, 3));
    drop((ready, other, with.collect::<Vec<_>>()));
    site.all_ended();
}

/// What a client must not ask for: a number twice, one that was never prepared, one out of turn, another session's, a ticket
/// that is none. Its session ends with an error that says so, and what it kept is gone.
#[test]
fn numbers_are_used_once_at_the_server() {
    let cache = Scratch::new("kept-hostile");
    let site = Site::new(KeepLimits::default());
    site.ready(&cache).fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    site.all_ended();
    site.wires.lock().unwrap().clear();
    let misbehaved = |result: Result<(), EngineError>, what: &str| match result {
        Err(EngineError::PeerMisbehaved(text)) if text.contains(what) => {}
        other => panic!("{what}: {other:?}"),
    };
    let requests = [
        (Request::Run { id: 0 }, "used before"),
        (Request::Run { id: 2 }, "never prepared"),
        (Request::Run { id: u64::MAX }, "never prepared"),
        (Request::Prepare { id: 0, timeline: false }, "the next one is 2"),
        (Request::Prepare { id: 3, timeline: false }, "the next one is 2"),
    ];
    for (request, what) in requests {
        let wire = site.wires.lock().unwrap().len();
        let mut ready = site.ready(&cache);
        let (next, first) = ready.keep_query(&mut NoProgress).unwrap();
        let (next, _second) = next.keep_query(&mut NoProgress).unwrap();
        ready = next.run_kept(first.unwrap(), &x(), &mut NoProgress).unwrap().2;
        let channel = ready.channel();
        channel.send_message(&request).and_then(|()| channel.flush()).unwrap();
        // The client hears why.
        let heard = channel.recv(1).unwrap_err();
        assert!(matches!(&heard, WireError::PeerAborted(why) if why.contains(what)), "{heard}");
        misbehaved(site.ended(wire), what);
        assert_eq!(site.service.kept(), Stock::default());
    }

    // On the connection that joined: a used number, and anything else.
    let joined = || -> (usize, Ready, Runner, Kept) {
        let wire = site.wires.lock().unwrap().len() + 1;
        let (ready, kept) = site.ready(&cache).keep_query(&mut NoProgress).unwrap();
        let (ticket, ready) = ready.ticket().unwrap();
        (wire, ready, site.connect().unwrap().join(&ticket).unwrap(), kept.unwrap())
    };
    let hostile: [(Request, &str); 3] = [
        (Request::Run { id: 0 }, "used before"),
        (Request::Hint, "to run kept queries"),
        (Request::Prepare { id: 1, timeline: false }, "to run kept queries"),
    ];
    for (request, what) in hostile {
        let (wire, ready, mut runner, kept) = joined();
        runner = runner.run(kept, &x(), &mut NoProgress).unwrap().2;
        let channel = runner.channel();
        channel.send_message(&request).and_then(|()| channel.flush()).unwrap();
        misbehaved(site.ended(wire), what);
        // The other connection is not concerned.
        ready.leave().unwrap();
        site.ended(wire - 1).unwrap();
    }
    // Both connections at once: only one of them gets the query.
    let (wire, mut ready, runner, kept) = joined();
    runner.run(kept, &x(), &mut NoProgress).unwrap();
    let channel = ready.channel();
    channel.send_message(&Request::Run { id: 0 }).and_then(|()| channel.flush()).unwrap();
    misbehaved(site.ended(wire - 1), "used before");

    // A ticket that nobody has, and one whose session has ended.
    let mut stranger = site.connect().unwrap();
    let plan = stranger.plan().digest();
    let wire = site.wires.lock().unwrap().len() - 1;
    let channel = stranger.channel();
    crate::handshake::client::choose_shares(channel).unwrap();
    channel.send_message(&Accept { plan, purpose: Purpose::Join(Secret([7; 16])) }).unwrap();
    channel.flush().unwrap();
    misbehaved(site.ended(wire), "no session");
    let wire = site.wires.lock().unwrap().len();
    let (ticket, ready) = site.ready(&cache).ticket().unwrap();
    ready.leave().unwrap();
    site.ended(wire).unwrap();
    let refused = site.connect().unwrap().join(&ticket).err().expect("refused").to_string();
    assert!(refused.contains("no session"), "{refused}");
}

/// Changes what the server sends.
struct Tampered<T, F>(T, F);

impl<T: Transport, F: FnMut(&mut Vec<u8>) + Send> Transport for Tampered<T, F> {
    fn send(&mut self, mut chunk: Vec<u8>) -> Result<(), WireError> {
        (self.1)(&mut chunk);
        self.0.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.0.recv()
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.0.recv_within(time)
    }

    fn abort(&mut self, reason: &str) {
        self.0.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.0.put_off(reason);
    }
}

/// A server that says it keeps, or has run, another query than was asked for is found out; so is a caller that mixes up sessions.
#[test]
fn numbers_are_used_once_at_the_client() {
    let cache = Scratch::new("kept-server");
    let service = with_insecure_fixed_randomness([30; 32], || service(everything()));
    let [_, bytes] = prepared_bytes(service.plan());
    let kept = |id: u64| encode(&crate::message::Kept { id, stock: Stock { queries: 1, bytes } });
    // The end of a report, with the number of the query in it, an empty stock and no timeline.
    let ran = |id: u64| encode(&(Some(id), Stock::default(), None::<u8>));
    for (from, to, what) in [
        (kept(0), kept(1), "the server has prepared query 1, this side query 0"),
        (ran(0), ran(1), "has run query Some(1), this side query Some(0)"),
    ] {
        let (a, b) = memory_transports();
        let changed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&changed);
        let tampered = Tampered(b, move |chunk: &mut Vec<u8>| {
            // (An answer of as many bytes, to whether there is room, is left alone.)
            if chunk.len() > 5 && chunk.ends_with(&from) {
                let at = chunk.len() - from.len();
                chunk[at..].copy_from_slice(&to);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let error = thread::scope(|scope| {
            // (The same randomness at each run: else some shares end like these, by chance.)
            let served = scope.spawn(|| {
                with_insecure_fixed_randomness([33; 32], || {
                    service.serve(Channel::new(tampered), &mut |_| ())
                })
            });
            let ask = || -> Result<(), EngineError> {
                let ready = connect(Channel::new(a), &Limits::default())?.prepare_client(&cache.0)?;
                let (ready, kept) = ready.keep_query(&mut NoProgress)?;
                ready.run_kept(kept.unwrap(), &x(), &mut NoProgress).map(drop)
            };
            let error = with_insecure_fixed_randomness([34; 32], ask).unwrap_err();
            assert!(served.join().unwrap().is_err());
            error.to_string()
        });
        assert!(error.contains(what), "{error}");
        assert_eq!(changed.load(Ordering::SeqCst), 1);
    }

    let site = Site::new(KeepLimits::default());
    let (first, kept) = site.ready(&cache).keep_query(&mut NoProgress).unwrap();
    let (second, others) = site.ready(&cache).keep_query(&mut NoProgress).unwrap();
    let error = second.run_kept(kept.unwrap(), &x(), &mut NoProgress).err().expect("refused").to_string();
    assert!(error.contains("another session"), "{error}");
    let error = first.run_kept(others.unwrap().renumbered(0), &x(), &mut NoProgress).err();
    assert!(error.is_some_and(|e| e.to_string().contains("another session")));
    site.all_ended();
}

/// Cuts of either connection while queries are prepared and while one is run: the next call says so, both sides end in an error, the
/// call behind it starts afresh, and nothing that was prepared before is used then.
#[test]
fn a_cut_connection_takes_its_queries_with_it() {
    let cache = Scratch::new("kept-cuts");
    let service = Arc::new(service(everything()));
    let attempt = |faults: [Fault; 2]| {
        let site = Site::of(Arc::clone(&service));
        site.faults.lock().unwrap().extend(faults);
        let opened = Keeper::open(site.dial(), keeper::Options::new(2, &*cache.0), &mut NoProgress);
        let mut lengths = Vec::new();
        let lengths_now = |lengths: &mut Vec<_>| {
            lengths
                .push(site.wires.lock().unwrap().iter().map(|w| w.transcript.lengths()).collect::<Vec<_>>());
        };
        lengths_now(&mut lengths);
        let mut failed = usize::from(opened.is_err());
        if let Ok(mut keeper) = opened {
            keeper.wait_until_ready(2);
            lengths_now(&mut lengths);
            let mut answers = 0;
            while answers < 2 {
                match keeper.predict(&x(), &mut NoProgress) {
                    Ok((prediction, _)) => {
                        assert_right(prediction, &x());
                        answers += 1;
                    }
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        assert_eq!((keeper.ready(), keeper.stock()), (0, Stock::default()));
                        failed += 1;
                        assert!(failed < 3, "{error}");
                    }
                }
            }
            lengths_now(&mut lengths);
            let _ = keeper.close();
        }
        let ended = site.all_ended();
        let mut repeats = Repeats::new();
        for wire in &*site.wires.lock().unwrap() {
            if wire.start != (0, 0) {
                nothing_in_common(&mut repeats, &wire.transcript, wire.start);
            }
        }
        (failed, ended.iter().filter(|e| e.is_err()).count(), lengths)
    };
    // A hint is the same whenever it comes: it comes first.
    let first = Site::of(Arc::clone(&service));
    first.ready(&cache).fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    first.all_ended();
    let (failed, ended, lengths) = attempt([SOUND, SOUND]);
    assert_eq!((failed, ended), (0, 0));
    let [opened, topped_up, answered] = &lengths[..] else { panic!("three times") };
    let between = |from: u64, to: u64, i: u64| from + (to - from) * (2 * i + 1) / 8;
    for i in 0..4 {
        // The first connection, in the middle of its two queries.
        let (from, to) = (opened[0], topped_up[0]);
        for fault in [Fault::CutSent(between(from.0, to.0, i)), Fault::CutReceived(between(from.1, to.1, i))]
        {
            let (failed, ended, _) = attempt([fault, SOUND]);
            assert!((1..=2).contains(&failed) && ended >= 1, "{fault:?}: {failed}, {ended}");
        }
        // The second, in the middle of the first answer.
        let (from, to) = (opened[1], answered[1]);
        let half = |from: u64, to: u64| between(from, from + (to - from) / 2, i);
        for fault in [Fault::CutSent(half(from.0, to.0)), Fault::CutReceived(half(from.1, to.1 - 4096))] {
            let (failed, ended, _) = attempt([SOUND, fault]);
            assert!((1..=2).contains(&failed) && ended >= 1, "{fault:?}: {failed}, {ended}");
        }
    }
    // Between queries: a client that is gone leaves nothing at the server.
    let site = Site::new(KeepLimits::default());
    let keeper = Keeper::open(site.dial(), keeper::Options::new(2, &*cache.0), &mut NoProgress).unwrap();
    keeper.wait_until_ready(2);
    assert_eq!(site.service.kept().queries, 2);
    drop(keeper);
    assert!(
        site.all_ended()
            .iter()
            .all(|ended| matches!(ended, Err(EngineError::Wire(WireError::Closed { .. }))))
    );
}

/// A client that keeps something and asks for nothing loses it, and so does one that stops in the middle of a query; one that keeps
/// nothing may wait.
#[test]
fn nothing_is_kept_for_ever() {
    let idle = Duration::from_secs(5);
    let cache = Scratch::new("kept-idle");
    let site = Site::new(KeepLimits { idle, ..KeepLimits::default() });
    let fetched = site.ready(&cache).fetch_hint(&mut NoProgress).unwrap();
    // Wire 0: holds nothing from here on. Wires 1 and 2: a client that keeps two.
    let mut keeper = Keeper::open(site.dial(), keeper::Options::new(2, &*cache.0), &mut NoProgress).unwrap();
    assert_eq!(keeper.wait_until_ready(2), 2);
    // Wires 3 and 4 stop in the middle of a query, kept or not.
    for request in [Request::Prepare { id: 0, timeline: false }, Request::Query { timeline: false }] {
        let mut ready = site.ready(&cache);
        let channel = ready.channel();
        channel.send_message(&request).and_then(|()| channel.flush()).unwrap();
        std::mem::forget(ready); // the connection stays
    }
    assert!(matches!(site.ended(1), Err(EngineError::Idle { limit }) if limit == idle));
    for stopped in [3, 4] {
        let ended = site.ended(stopped).unwrap_err();
        assert!(matches!(root(&ended), EngineError::Wire(WireError::Idle { .. })), "{ended}");
    }
    assert_eq!(site.service.kept(), Stock::default());
    let error = keeper.predict(&x(), &mut NoProgress).expect_err("the queries are gone").to_string();
    assert!(error.contains("nothing was asked for") || error.contains("not there"), "{error}");
    assert_right(keeper.predict(&x(), &mut NoProgress).unwrap().0, &x());
    keeper.close().unwrap();
    fetched.leave().unwrap();
    site.ended(0).unwrap();
}
