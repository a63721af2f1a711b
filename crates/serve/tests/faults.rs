//! Faults on the way between a client and a server that serves for real: in the clear and inside TLS, over sockets.
//! What passes is cut where frames are (in the clear) or records (TLS), and one of them has a fault.
//! (`crates/engine/tests/faults` has all protocols, and every message.)
//!
//! `cargo test -p jaguar-serve --test faults` injects a sample of those that nobody has to wait for; `JAGUAR_FAULTS=1`
//! each fault at each message, `=3` every third.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{self, Limits as ClientLimits, Prediction, Reveal};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_engine::{EngineError, Stock};
use jaguar_graph::float::{Bias, Graph, Input, Linear, Node, Op, Relu};
use jaguar_graph::network;
use jaguar_graph::quantise::{self, calibrate};
use jaguar_net::tls::{self, Trust};
use jaguar_net::{Bound, Dialer, Listener};
use jaguar_plan::{Choices, Kit};
use jaguar_ring::cpu::Cpu;
use jaguar_serve::{Control, Event, Limits, Models, Server};
use jaguar_wire::Channel;
use jaguar_wire::framed::Options;

/// Far longer than anything takes on however busy a machine.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Which faults are injected: every so many-th, if the environment says so.
fn asked_for() -> Option<usize> {
    std::env::var("JAGUAR_FAULTS").ok().map(|step| step.parse().expect("a number"))
}

/// How long a side is silent, or stays where it is, before the other gives it up. Short where many such faults are
/// asked for; else longer than a thread that is ready to run ever waits for a processor.
fn patience() -> Duration {
    Duration::from_secs(if asked_for().is_some() { 4 } else { 60 })
}

/// What goes wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Cut,
    Truncate,
    Stall,
    Drop,
    Duplicate,
    Reorder,
    FlipHead,
    FlipBody,
}

const FAULTS: [Fault; 8] = [
    Fault::Cut,
    Fault::Truncate,
    Fault::Drop,
    Fault::Duplicate,
    Fault::Reorder,
    Fault::FlipHead,
    Fault::FlipBody,
    Fault::Stall,
];

/// A fault at a message of a side: 0 is the client.
type Injection = (usize, usize, Fault);

/// What a relay has seen.
#[derive(Default)]
struct Seen {
    messages: [usize; 2],
    happened: bool,
    /// Messages of the same side behind the one that was changed.
    after: usize,
}

/// One fully connected layer behind an activation behind another.
fn service() -> Service {
    let node = |name: &str, op, inputs: &[usize], shape| Node {
        name: name.into(),
        op,
        inputs: inputs.into(),
        shape,
    };
    let weights = |count: usize| (0..count).map(|i| (i % 7) as f32 / 7.0 - 0.5).collect();
    let spec = network::Linear { kernel: [4, 4], ..network::Linear::same(6, 1, 0) };
    let first = Op::new(Linear { spec, weights: weights(6 * 16), bias: Bias::PerChannel(vec![0.1; 6]) });
    let spec = network::Linear::same(3, 1, 0);
    let last = Op::new(Linear { spec, weights: weights(3 * 6), bias: Bias::PerChannel(vec![0.1; 3]) });
    let nodes = vec![
        node("input", Op::new(Input), &[], [1, 4, 4]),
        node("first", first, &[0], [6, 1, 1]),
        node("relu", Op::new(Relu), &[1], [6, 1, 1]),
        node("last", last, &[2], [3, 1, 1]),
    ];
    let graph = Graph { name: "small".into(), nodes, ..Graph::default() };
    let samples: Vec<Vec<f32>> = (0..10).map(|i| (0..16).map(|j| ((i * j) % 5) as f32).collect()).collect();
    let (model, _) =
        calibrate(Cpu::detect(), &graph, &samples, &quantise::Options::default()).expect("calibrated");
    let choices = Choices::among(&model.network, &[Kit::JAGUAR]).expect("a plan");
    Service::new(Bundle::new(model).expect("sound"), choices, Reveal::Logits).expect("sound")
}

fn options() -> Options {
    let mut options = Options::default();
    (options.silence, options.keep_alive) = (patience(), patience() / 8);
    options
}

/// A server that runs, and how clients find it.
struct Site {
    control: Control,
    address: String,
    tls: Option<tls::Client>,
    /// Why connections ended; none for who took its leave.
    ended: Arc<Mutex<Vec<Option<String>>>>,
    right: Vec<i64>,
}

impl Site {
    fn start(with_tls: bool) -> Self {
        let mut listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).expect("a port");
        let mut client = None;
        if with_tls {
            let folder = std::env::temp_dir().join(format!("jaguar-faults-{}", std::process::id()));
            let server = tls::Server::made(&folder, None).expect("made");
            client = Some(tls::Client::new(&Trust::Pin(server.fingerprint()), None).expect("sound"));
            listener = listener.with_tls(server);
            std::fs::remove_dir_all(&folder).expect("there");
        }
        let limits = Limits {
            sessions_per_address_and_hour: std::num::NonZeroU32::MAX,
            hints_per_address_and_hour: std::num::NonZeroU32::MAX,
            idle: WATCHDOG,
            stalled: patience(),
            ..Limits::default()
        };
        let many = std::num::NonZeroU32::MAX;
        let hints = jaguar_engine::server::Limits { hints_at_once: many, hints_per_hour: many };
        let server = Server::new(Models::from(service().with_limits(hints)), listener, limits)
            .expect("bound")
            .with_options(options());
        let (Bound::Tcp(address), control) = (server.bound().clone(), server.control()) else {
            panic!("a TCP port was asked for")
        };
        let ended = Arc::<Mutex<Vec<Option<String>>>>::default();
        let told = ended.clone();
        thread::spawn(move || {
            server.run(move |event| {
                let why = match event {
                    Event::Ended(_, why) => Some(why.to_string()),
                    Event::Left(_) => None,
                    _ => return,
                };
                told.lock().unwrap_or_else(PoisonError::into_inner).push(why);
            })
        });
        let mut site = Self { control, address: address.to_string(), tls: client, ended, right: Vec::new() };
        let (predictions, result) = site.ask(&site.address);
        result.expect("a good session");
        assert_eq!(site.end(), None);
        let Prediction::Logits(logits) = &predictions[0] else { panic!("logits were asked for") };
        site.right.clone_from(logits);
        site
    }

    /// Two queries over a connection to `address`.
    fn ask(&self, address: &str) -> (Vec<Prediction>, Result<(), EngineError>) {
        let dialer = Dialer::new(address.parse().expect("an address"));
        let dialer = match &self.tls {
            Some(tls) => dialer.with_tls(tls.clone()),
            None => dialer,
        };
        let (tell, told) = channel();
        let asking = thread::spawn(move || {
            let mut predictions = Vec::new();
            let mut ask = || -> Result<(), EngineError> {
                let limits = ClientLimits { stalled: patience(), ..ClientLimits::default() };
                let connected =
                    client::connect(&Kit::standard(), Channel::new(dialer.connect(options())?), &limits)?;
                let mut ready = connected.prepare_client(HintPlace::Memory)?;
                for _ in 0..2 {
                    let prepared = ready.prepare_query(&mut NoProgress)?;
                    let (prediction, _, next) = prepared.run(&[7; 16], &mut NoProgress)?;
                    predictions.push(prediction);
                    ready = next;
                }
                ready.leave()
            };
            let result = ask();
            let _ = tell.send(());
            (predictions, result)
        });
        assert!(told.recv_timeout(WATCHDOG).is_ok(), "a client is stuck, or panicked");
        asking.join().expect("no panic")
    }

    /// Within 64 units of the last place of the first answer. (Values have 8 guard bits behind it, with the server's noise in
    /// them; the logits are some hundred units apart.)
    fn is_right(&self, prediction: &Prediction) -> bool {
        let Prediction::Logits(logits) = prediction else { return false };
        logits.iter().zip(&self.right).all(|(a, b)| (a - b).abs() <= 64 << 8)
    }

    /// Waits until the one connection that there was has ended at the server. It has nobody then, and keeps nothing. Tells why
    /// the connection ended; nothing if the client took its leave.
    fn end(&self) -> Option<String> {
        let start = Instant::now();
        loop {
            let ended = self.ended.lock().expect("no panic").pop();
            if let Some(why) = ended {
                assert_eq!(self.control.clients(), 0);
                assert_eq!(self.control.kept(), Stock::default());
                return why;
            }
            assert!(start.elapsed() < WATCHDOG, "a client's place is not given back");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Passes one connection on to `server`, with a fault. Returns where the client connects to.
fn relay(server: &str, with_tls: bool, injection: Option<Injection>) -> (String, Arc<Mutex<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let seen = Arc::<Mutex<Seen>>::default();
    let (server, told) = (server.to_owned(), Arc::clone(&seen));
    thread::spawn(move || {
        let Ok((client, _)) = listener.accept() else { return };
        let Ok(server) = TcpStream::connect(server) else { return };
        for (side, from, to) in [(0, &client, &server), (1, &server, &client)] {
            from.set_nodelay(true).expect("a socket");
            let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            let told = Arc::clone(&told);
            let mine =
                injection.filter(|injection| injection.0 == side).map(|(_, message, fault)| (message, fault));
            thread::spawn(move || {
                let _ = pass(&from, &to, with_tls, side, mine, &told);
                // The stalled one keeps both open, until either side closes.
                for socket in [&from, &to] {
                    let _ = socket.shutdown(Shutdown::Both);
                }
            });
        }
    });
    (address, seen)
}

fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    with_tls: bool,
    side: usize,
    injection: Option<(usize, Fault)>,
    told: &Mutex<Seen>,
) -> io::Result<()> {
    let mut held: Option<Vec<u8>> = None;
    let mut first = !with_tls;
    loop {
        // In the clear a greeting comes first: sixteen letters, a binding, a wait, and the client's empty token.
        let (mut message, mut counts) = (vec![0; if first { 52 } else { 5 }], true);
        from.read_exact(&mut message)?;
        let head = message.len();
        if !std::mem::take(&mut first) {
            let length = match with_tls {
                true => usize::from(u16::from_be_bytes([message[3], message[4]])),
                false => u32::from_le_bytes(message[1..].try_into().expect("4 bytes")) as usize,
            };
            // Signs of life come when they come; TLS 1.3's change of cipher (type 20) is sent for others on the way, and ignored.
            counts = if with_tls { message[0] != 20 } else { message[0] != 2 };
            message.resize(head + length, 0);
            from.read_exact(&mut message[head..])?;
        }
        let mut hit = None;
        if counts {
            let mut seen = told.lock().unwrap_or_else(PoisonError::into_inner);
            hit = injection.filter(|(at, _)| *at == seen.messages[side]).map(|(_, fault)| fault);
            seen.after += usize::from(injection.is_some_and(|(at, _)| at < seen.messages[side]));
            seen.messages[side] += 1;
            seen.happened |= hit.is_some();
        }
        let middle = head + (message.len() - head) / 2;
        match hit {
            None => {}
            Some(Fault::Cut) => return Ok(()),
            Some(Fault::Truncate) => return to.write_all(&message[..message.len() / 2]),
            Some(Fault::Stall) => {
                io::copy(&mut from, &mut io::sink())?;
                return Ok(());
            }
            Some(Fault::Drop) => continue,
            Some(Fault::Duplicate) => to.write_all(&message)?,
            Some(Fault::Reorder) => {
                held = Some(message);
                continue;
            }
            Some(Fault::FlipHead) => message[0] ^= 2,
            Some(Fault::FlipBody) => {
                let at = middle.min(message.len() - 1);
                message[at] ^= 16;
            }
        }
        to.write_all(&message)?;
        if let Some(held) = held.take() {
            to.write_all(&held)?;
        }
    }
}

/// Whether a text says which side, and what was under way.
fn names_side_and_step(text: &str) -> bool {
    let side = ["peer", "this side", "127.0.0.1", "TLS", "the server", "the client"];
    // (What both sides can do is compared before any step; such an error names both.)
    let first = ["protocol version", "the client can do"];
    let step = ["model: ", "client: ", "offline: ", "online: ", "layer '", "greeting", "TLS", "handshake"];
    side.iter().any(|part| text.contains(part)) && step.iter().chain(&first).any(|part| text.contains(part))
}

fn inject(with_tls: bool) {
    let step = asked_for().unwrap_or(41);
    // Without an end of the connection, or broken TLS, only patience ends a session.
    let waits = |fault: Fault| {
        fault == Fault::Stall || !with_tls && matches!(fault, Fault::Drop | Fault::Reorder | Fault::FlipBody)
    };
    let site = Site::start(with_tls);
    let (address, seen) = relay(&site.address, with_tls, None);
    site.ask(&address).1.expect("a good session");
    assert_eq!(site.end(), None);
    let messages = seen.lock().expect("no panic").messages;
    assert!(messages.iter().all(|&count| count > 20), "{messages:?}");
    let (mut injected, mut all, mut failed) = (BTreeMap::<Fault, usize>::new(), 0, 0);
    let mut number = 0;
    for (side, messages) in messages.into_iter().enumerate() {
        for message in 0..messages {
            for fault in FAULTS {
                number += 1;
                if number % step != 0 || asked_for().is_none() && waits(fault) {
                    continue;
                }
                all += 1;
                let what = format!("TLS {with_tls}: {fault:?} at message {message} of side {side}");
                let (address, seen) = relay(&site.address, with_tls, Some((side, message, fault)));
                let (predictions, result) = site.ask(&address);
                let told = site.end();
                let Seen { happened, after, .. } = *seen.lock().expect("no panic");
                let texts: Vec<String> =
                    told.into_iter().chain(result.as_ref().err().map(ToString::to_string)).collect();
                for text in &texts {
                    assert!(names_side_and_step(text), "{what}: an error that does not say where: {text}");
                }
                if with_tls || matches!(fault, Fault::Cut | Fault::Truncate | Fault::Stall) {
                    assert!(predictions.iter().all(|p| site.is_right(p)), "{what}: {predictions:?}");
                    // (The last of all, a farewell of TLS, is nobody's loss. Which one that is depends on the signs of life.)
                    let ended = after <= 1;
                    // (The type that a record of TLS 1.3 shows outside says nothing: the real one is encrypted. rustls does not look.)
                    let shown = with_tls && fault == Fault::FlipHead;
                    assert!(!texts.is_empty() || ended || shown || !happened, "{what}: nobody noticed");
                }
                assert!(
                    result.is_err() || predictions.len() == 2,
                    "{what}: an answer is missing, and no error"
                );
                failed += usize::from(!texts.is_empty());
                if happened {
                    *injected.entry(fault).or_default() += 1;
                }
                // The server goes on.
                let (predictions, result) = site.ask(&site.address);
                result.unwrap_or_else(|e| panic!("{what}: the next client: {e}"));
                assert!(
                    predictions.iter().all(|p| site.is_right(p)),
                    "{what}: the next client: {predictions:?}"
                );
                let told = site.end();
                assert!(told.is_none(), "{what}: the next client: {told:?}");
            }
        }
    }
    let happened: usize = injected.values().sum();
    println!(
        "TLS {with_tls}: {happened} faults at {messages:?} messages, {failed} sessions ended in an error: {injected:?}"
    );
    assert!(all > 0 && (asked_for().is_none() || all == number / step), "{all} of {number}");
    assert!(happened * 10 >= all * 9, "{happened} of {all}");
    site.control.drain(Duration::ZERO);
}

#[test]
fn faults_in_the_clear_end_in_order() {
    inject(false);
}

#[test]
fn faults_under_tls_are_errors() {
    inject(true);
}

/// A client that lives and does not go on in the handshake has its place for as long as in any other request, not as
/// one that is idle.
#[test]
fn a_handshake_that_stalls_is_no_idle_client() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).expect("a port");
    let limits = Limits { idle: WATCHDOG * 10, stalled: Duration::from_millis(300), ..Limits::default() };
    let server = Server::new(Models::from(service()), listener, limits).expect("bound");
    let (address, control) = (server.bound().to_string(), server.control());
    let (tell, told) = channel();
    thread::spawn(move || {
        server.run(move |event| {
            if let Event::Ended(_, why) = event {
                let _ = tell.send(why.to_string());
            }
        })
    });
    let dialer = Dialer::new(address.parse().expect("an address"));
    let _silent = dialer.connect(Options::default()).expect("greeted");
    let why = told.recv_timeout(WATCHDOG).expect("it is given up");
    assert!(why.contains("no data came for 300ms") && names_side_and_step(&why), "{why}");
    control.drain(Duration::ZERO);
}
