//! One-round sessions, under a stand-in for a protocol that protects nothing.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use jaguar_bundle::ModelId;
use jaguar_wire::Transport;
use jaguar_wire::framed::Options;
use jaguar_wire::tcp::{self, Tcp};

use super::*;
use crate::handshake;
use crate::one_round::message::{Have, Reply, Request};
use crate::one_round::{Ticket, client, server};

const MODEL: ModelId = ModelId([7; 32]);

/// More than three chunks.
const KEYS: usize = 900_000;

/// Adds pads to the input's bytes, which the same client takes off the sum that the server makes of them. The pads are short and public:
/// this protects nothing.
struct PadsProtectNothing {
    keys: Vec<u8>,
    pad: u8,
    /// Sum of the pads of the input that was encrypted last.
    pads: i64,
    version: u32,
    max_output: u64,
}

impl PadsProtectNothing {
    fn new() -> Self {
        let keys = (0..KEYS).map(|i| ((i * i) >> 7) as u8).collect();
        Self { keys, pad: 5, pads: 0, version: 1, max_output: 8 }
    }

    /// What the server makes of the keys and of `input`.
    fn expected(&self, input: &[i64]) -> Vec<i64> {
        vec![input.iter().sum::<i64>() + sum(&self.keys)]
    }
}

fn sum(bytes: &[u8]) -> i64 {
    bytes.iter().map(|&b| i64::from(b)).sum()
}

impl client::Protocol for PadsProtectNothing {
    fn name(&self) -> &str {
        "pads-protect-nothing"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn open(&mut self, parameters: &[u8]) -> Result<(), String> {
        let [pad] = parameters else { return Err(format!("{} bytes of parameters", parameters.len())) };
        self.pad = *pad;
        Ok(())
    }

    fn max_output_bytes(&self) -> u64 {
        self.max_output
    }

    fn keys(&mut self) -> Result<Vec<u8>, String> {
        Ok(self.keys.clone())
    }

    fn encrypt(&mut self, input: &[i64]) -> Result<Vec<u8>, String> {
        self.pads = input.len() as i64 * i64::from(self.pad);
        let padded = input.iter().map(|&v| u8::try_from(v + i64::from(self.pad)));
        padded.collect::<Result<_, _>>().map_err(|_| "a value is no byte".into())
    }

    fn decrypt(&mut self, output: &[u8]) -> Result<Vec<i64>, String> {
        let sum: [u8; 8] = output.try_into().map_err(|_| "an output of another length".to_owned())?;
        Ok(vec![i64::from_le_bytes(sum) - self.pads])
    }
}

/// The server's side: sums up keys and input. While it computes it may wait for a signal.
#[derive(Default)]
struct Sums {
    parameters: Vec<u8>,
    /// Output bytes beyond the sum.
    excess: usize,
    gate: Option<Arc<Gate>>,
}

/// Tells that an answer is half done, and waits for leave to go on.
struct Gate {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

fn sums() -> Sums {
    Sums { parameters: vec![9], ..Sums::default() }
}

impl server::Protocol for Sums {
    fn name(&self) -> &str {
        "pads-protect-nothing"
    }

    fn version(&self) -> u32 {
        1
    }

    fn parameters(&self) -> Vec<u8> {
        self.parameters.clone()
    }

    fn sizes(&self) -> server::Sizes {
        server::Sizes { keys: KEYS as u64, input: 1000, output: 8 }
    }

    fn open(&self, keys: Arc<[u8]>) -> Result<Box<dyn server::Evaluator>, String> {
        if keys.first() == Some(&0xff) {
            return Err("they begin with 255".into());
        }
        Ok(Box::new(Sum { keys: sum(&keys), excess: self.excess, gate: self.gate.clone() }))
    }
}

struct Sum {
    keys: i64,
    excess: usize,
    gate: Option<Arc<Gate>>,
}

impl server::Evaluator for Sum {
    fn answer(&mut self, input: &[u8], progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<u8>, String> {
        let mut total = self.keys;
        for (i, byte) in input.iter().enumerate() {
            if *byte == 255 {
                return Err("a byte is 255".into());
            }
            total += i64::from(*byte);
            progress(i as u64 + 1, input.len() as u64);
            if let Some(gate) = self.gate.as_ref().filter(|_| 2 * (i + 1) == input.len()) {
                gate.reached.lock().unwrap().send(()).unwrap();
                gate.go_on.lock().unwrap().recv().unwrap();
                // Nobody may listen any more.
                progress(i as u64 + 1, input.len() as u64);
            }
        }
        Ok([&total.to_le_bytes()[..], &vec![0; self.excess]].concat())
    }
}

fn offering(protocol: Sums) -> server::Service {
    server::Service::new(MODEL, server::Limits::default()).with(Box::new(protocol)).unwrap()
}

/// Runs a server in a thread and `client` in this one, over `transport`s.
fn over<T>(
    service: &server::Service,
    (a, b): (impl Transport + 'static, impl Transport + 'static),
    client: impl FnOnce(Channel) -> T,
) -> (T, Result<(), EngineError>) {
    thread::scope(|scope| {
        let server = scope.spawn(|| service.serve(Channel::new(b)));
        let result = client(Channel::new(a));
        (result, server.join().expect("the server does not panic"))
    })
}

fn in_memory<T>(
    service: &server::Service,
    client: impl FnOnce(Channel) -> T,
) -> (T, Result<(), EngineError>) {
    over(service, memory_transports(), client)
}

/// A whole session: keys, inputs, answers.
fn ask(
    channel: Channel,
    pads: &mut PadsProtectNothing,
    inputs: &[Vec<i64>],
) -> Result<Vec<Vec<i64>>, EngineError> {
    let mut ready = client::connect(channel, pads)?.send_keys(&mut |_, _| ())?;
    let mut answers = Vec::new();
    for input in inputs {
        let (answer, next) = ready.send(input)?.answer(&mut |_| ())?;
        answers.push(answer);
        ready = next;
    }
    ready.leave()?;
    Ok(answers)
}

fn inputs() -> Vec<Vec<i64>> {
    vec![(0..100).collect(), vec![3; 17], vec![]]
}

fn check(answers: &[Vec<i64>], pads: &PadsProtectNothing) {
    let expected: Vec<Vec<i64>> = inputs().iter().map(|input| pads.expected(input)).collect();
    assert_eq!(answers, expected);
}

#[test]
fn inputs_are_answered_in_memory() {
    let service = offering(sums());
    let mut pads = PadsProtectNothing::new();
    let (answers, served) = in_memory(&service, |channel| ask(channel, &mut pads, &inputs()));
    check(&answers.unwrap(), &pads);
    assert_eq!(pads.pad, 9, "the server's parameters");
    served.unwrap();
}

#[test]
fn inputs_are_answered_over_tcp() {
    let service = offering(sums());
    let listener = tcp::Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap();
    let mut pads = PadsProtectNothing::new();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let stream = listener.accept().unwrap().greet(Options::default()).unwrap();
            service.serve(Channel::new(stream))
        });
        let channel = Channel::new(Tcp::connect(address, Options::default()).unwrap());
        let answers = ask(channel, &mut pads, &inputs()).unwrap();
        check(&answers, &pads);
        server.join().unwrap().unwrap();
    });
}

/// One server offers both kinds of session for its model. Who asks for one round is not sent the network.
#[test]
fn both_kinds_are_offered_side_by_side() {
    let service = super::service(everything());
    let one_round = server::Service::new(service.model(), server::Limits::default());
    let service = service.with_one_round(one_round.with(Box::new(sums())).unwrap());
    let mut pads = PadsProtectNothing::new();
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::hashing(a);
    thread::scope(|scope| {
        let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
        let connected = client::connect(Channel::new(recorder), &mut pads).unwrap();
        assert_eq!(connected.model(), service.model());
        assert!(transcript.lengths().1 < 300, "the offer alone");
        let ready = connected.send_keys(&mut |_, _| ()).unwrap();
        ready.leave().unwrap();
        server.join().unwrap().unwrap();
    });
    let (result, served) = session(&service, |channel| {
        connect(channel, &Limits::default()).unwrap().prepare_client(Place::Memory).unwrap().leave()
    });
    result.and(served).unwrap();
}

/// Progress comes in ascending thousandths, and keys that are there do not travel again.
#[test]
fn keys_travel_once_and_progress_ascends() {
    let service = offering(sums());
    let mut pads = PadsProtectNothing::new();
    for first in [true, false] {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(a);
        let (_, served) = over(&service, (recorder, b), |channel| {
            let mut heard = Vec::new();
            let connected = client::connect(channel, &mut pads).unwrap();
            let ready = connected.send_keys(&mut |done, total| heard.push((done, total))).unwrap();
            assert_eq!(heard.len(), if first { 5 } else { 1 }, "{heard:?}");
            assert!(heard.is_sorted() && heard.last() == Some(&(KEYS as u64, KEYS as u64)));
            assert_eq!(transcript.lengths().0 > KEYS as u64, first);
            let mut steps = Vec::new();
            let asked = ready.send(&inputs()[0]).unwrap();
            asked.answer(&mut |thousandths| steps.push(thousandths)).unwrap().1.leave().unwrap();
            assert!(steps.is_sorted() && steps.len() == 100 && steps.last() == Some(&1000), "{steps:?}");
        });
        served.unwrap();
    }
}

/// A session that is cut, wherever that is: both sides see an error, the next session gets the right answers, and keys that had arrived
/// do not travel again.
#[test]
fn a_session_that_is_cut_can_be_done_again() {
    let mut pads = PadsProtectNothing::new();
    let whole = {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(a);
        let (answers, _) =
            over(&offering(sums()), (recorder, b), |channel| ask(channel, &mut pads, &inputs()));
        check(&answers.unwrap(), &pads);
        transcript.lengths()
    };
    let chunk = 1 << 18;
    // Every byte of the small messages in front of the keys, within each chunk, and every byte behind them.
    let sent = (1..120).chain((0..3).map(|i| 200 + i * chunk)).chain(whole.0 - 400..whole.0 - 1);
    let received = 1..whole.1;
    let faults = sent.map(Fault::CutSent).chain(received.map(Fault::CutReceived));
    for fault in faults {
        let service = offering(sums());
        let (a, b) = memory_transports();
        let (answers, served) =
            over(&service, (Faulty::new(a, fault), b), |channel| ask(channel, &mut pads, &inputs()));
        assert!(answers.is_err() || served.is_err(), "{fault:?}");
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(a);
        let (answers, served) = over(&service, (recorder, b), |channel| ask(channel, &mut pads, &inputs()));
        check(&answers.unwrap(), &pads);
        served.unwrap();
        if let Fault::CutSent(byte) = fault {
            // At most what had not arrived, and a chunk.
            let saved = (byte.saturating_sub(200) / chunk * chunk).min(KEYS as u64);
            assert!(
                transcript.lengths().0 <= whole.0 - saved,
                "{fault:?}: {} bytes again",
                transcript.lengths().0
            );
        }
    }
}

/// A connection that ends while the server computes: the ticket gets the answer in another session, once.
#[test]
fn an_answer_outlives_its_connection() {
    let (reached, is_reached) = channel();
    let (go_on, may_go_on) = channel();
    let gate = Gate { reached: Mutex::new(reached), go_on: Mutex::new(may_go_on) };
    let service = offering(Sums { gate: Some(Arc::new(gate)), ..sums() });
    let mut pads = PadsProtectNothing::new();
    let input: Vec<i64> = (0..10).collect();
    thread::scope(|scope| {
        let (a, b) = memory_transports();
        let first = scope.spawn(|| service.serve(Channel::new(b)));
        let ready = client::connect(Channel::new(a), &mut pads).unwrap().send_keys(&mut |_, _| ()).unwrap();
        let asked = ready.send(&input).unwrap();
        let ticket = asked.ticket();
        is_reached.recv().unwrap();
        drop(asked);
        // The second session waits while the first one's server computes.
        let (a, b) = memory_transports();
        let second = scope.spawn(|| service.serve(Channel::new(b)));
        let ready = client::connect(Channel::new(a), &mut pads).unwrap().send_keys(&mut |_, _| ()).unwrap();
        let asked = ready.collect(ticket).unwrap();
        let mut go_on = Some(go_on);
        let (answer, ready) = asked
            .answer(&mut |thousandths| {
                if let Some(go_on) = go_on.take() {
                    assert_eq!(thousandths, 500);
                    go_on.send(()).unwrap();
                }
            })
            .unwrap();
        // It was received: nobody gets it again.
        let error = ready.collect(ticket).unwrap().answer(&mut |_| ()).map(|_| ()).unwrap_err();
        assert!(matches!(error, EngineError::NoAnswer), "{error}");
        assert_eq!(answer, pads.expected(&input));
        assert!(first.join().unwrap().is_err(), "its client had gone");
        assert!(second.join().unwrap().is_err(), "its client gave up");
    });
}

/// Who cannot do a kind of session, or a protocol, says which.
#[test]
fn unknown_kinds_and_protocols_are_named_on_both_sides() {
    let one_round = offering(sums());
    let interactive = super::service(everything());
    // An interactive client at a server that has one-round protocols only, and the other way round.
    let (result, served) = in_memory(&one_round, |channel| connect(channel, &Limits::default()).map(|_| ()));
    for told in [result.unwrap_err().to_string(), served.unwrap_err().to_string()] {
        assert!(
            told.contains("interactive") && told.contains("one-round 'pads-protect-nothing' version 1"),
            "{told}"
        );
    }
    let mut pads = PadsProtectNothing::new();
    let (result, served) = session(&interactive, |channel| client::connect(channel, &mut pads).map(|_| ()));
    for told in [result.unwrap_err().to_string(), served.unwrap_err().to_string()] {
        assert!(
            told.contains("one-round") && told.contains("interactive 'secret-shares' version 1"),
            "{told}"
        );
    }
    // Another version of the protocol.
    pads.version = 2;
    let (result, served) = in_memory(&one_round, |channel| client::connect(channel, &mut pads).map(|_| ()));
    let told = result.unwrap_err().to_string();
    assert!(told.contains("version 2") && told.contains("version 1"), "{told}");
    assert!(served.is_err());
    // A kind that nobody has heard of, asked for and offered; a protocol that was not offered.
    let (_, served) = in_memory(&one_round, |channel| say(channel, &["teleportation"], None));
    assert!(served.unwrap_err().to_string().contains("teleportation"));
    let choice = handshake::Choice { kind: "one-round".into(), name: "other".into(), version: 1 };
    let (_, served) = in_memory(&one_round, |channel| say(channel, &["one-round"], Some(choice)));
    assert!(served.unwrap_err().to_string().contains("'other'"));
    let offered = handshake::Protocol {
        kind: "teleportation".into(),
        name: "beam".into(),
        version: 4,
        parameters: Vec::new(),
    };
    let told = offer(vec![offered]).unwrap_err().to_string();
    assert!(told.contains("one-round") && told.contains("teleportation 'beam' version 4"), "{told}");
}

/// The client's first words, by hand.
fn say(mut channel: Channel, kinds: &[&str], choice: Option<handshake::Choice>) {
    let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    channel.send_message(&handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
    channel.send_message(&handshake::Ask { kinds }).unwrap();
    if let Some(choice) = choice {
        channel.send_message(&choice).unwrap();
    }
    until_it_ends(&mut channel);
}

/// Hears the server out.
fn until_it_ends(channel: &mut Channel) {
    while channel.recv(1).is_ok() {}
}

/// What a client says to this offer.
fn offer(protocols: Vec<handshake::Protocol>) -> Result<(), EngineError> {
    let (client_end, mut server_end) = memory_pair();
    server_end.send_message(&handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
    server_end.send_message(&handshake::Offer { model: MODEL, protocols }).unwrap();
    server_end.flush().unwrap();
    client::connect(client_end, &mut PadsProtectNothing::new()).map(|_| ())
}

/// Offers beyond the limits, or with names that a terminal would obey, and parameters that the protocol refuses.
#[test]
fn unsound_offers_are_refused() {
    let sound = |parameters| handshake::Protocol {
        kind: "one-round".into(),
        name: "pads-protect-nothing".into(),
        version: 1,
        parameters,
    };
    offer(vec![sound(vec![1])]).unwrap();
    let renamed = handshake::Protocol { name: "\u{1b}[2J".into(), ..sound(vec![1]) };
    let long = handshake::Protocol { kind: "k".repeat(65), ..sound(vec![1]) };
    for (protocols, named) in [
        (vec![sound(vec![1]); 17], "17 protocols"),
        (vec![renamed], "no name"),
        (vec![long], "no name"),
        (vec![sound(vec![0; (1 << 19) + 1])], "bytes of parameters"),
        (vec![sound(vec![1, 2])], "2 bytes of parameters"),
    ] {
        let error = offer(protocols).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    let many: Vec<String> = (0..9).map(|i| format!("kind-{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (kinds, named) in [(&many[..], "9 kinds"), (&["K\n"], "no name")] {
        let (_, served) = in_memory(&offering(sums()), |channel| say(channel, kinds, None));
        assert!(served.unwrap_err().to_string().contains(named));
    }
    let unfit = Sums { parameters: vec![0; (1 << 19) + 1], ..sums() };
    assert!(server::Service::new(MODEL, server::Limits::default()).with(Box::new(unfit)).is_err());
}

/// What is longer than may be is refused before it is received, at the server and at the client.
#[test]
fn lengths_that_lie_are_refused() {
    let service = offering(sums());
    let attempt = |pads: &mut PadsProtectNothing, input: &[i64]| {
        let (result, served) = in_memory(&service, |channel| ask(channel, pads, &[input.to_vec()]));
        (result.unwrap_err().to_string(), served.unwrap_err().to_string())
    };
    let mut pads = PadsProtectNothing::new();
    let (told, served) = attempt(&mut pads, &[0; 1001]);
    assert!(told.contains("1001 bytes") && served.contains("1001 bytes"), "{told}; {served}");
    let mut large = PadsProtectNothing { keys: vec![0; KEYS + 1], ..PadsProtectNothing::new() };
    let (told, served) = attempt(&mut large, &[1]);
    assert!(told.contains("bytes of keys") && served.contains("bytes of keys"), "{told}; {served}");
    let mut small = PadsProtectNothing { max_output: 7, ..PadsProtectNothing::new() };
    let (told, _) = attempt(&mut small, &[1]);
    assert!(told.contains("an output of 8 bytes (at most 7)"), "{told}");
    // A server whose own output is longer than it said.
    let lying = offering(Sums { excess: 1, ..sums() });
    let (result, _) = in_memory(&lying, |channel| ask(channel, &mut pads, &inputs()));
    assert!(result.unwrap_err().to_string().contains("9 bytes"));
}

/// The protocol's own complaints reach the client; the client's own do not reach the server.
#[test]
fn a_protocols_complaints_go_where_they_belong() {
    let service = offering(sums());
    let mut pads = PadsProtectNothing::new();
    let (result, _) = in_memory(&service, |channel| ask(channel, &mut pads, &[vec![246]]));
    assert!(result.unwrap_err().to_string().contains("the server: a byte is 255"));
    let (result, served) = in_memory(&service, |channel| ask(channel, &mut pads, &[vec![4711]]));
    assert!(result.unwrap_err().to_string().contains("a value is no byte"));
    assert!(!served.unwrap_err().to_string().contains("byte"));
    let mut bad = PadsProtectNothing { keys: vec![0xff], ..PadsProtectNothing::new() };
    let (result, served) = in_memory(&service, |channel| ask(channel, &mut bad, &[vec![1]]));
    assert!(result.unwrap_err().to_string().contains("begin with 255"));
    assert!(served.is_err());
}

/// Messages out of their order, chunks and hashes that do not agree, receipts that lie, and noise.
#[test]
fn a_peer_that_breaks_the_protocol_is_told() {
    let service = offering(sums());
    let begin = |mut channel: Channel| {
        let choice =
            handshake::Choice { kind: "one-round".into(), name: "pads-protect-nothing".into(), version: 1 };
        let kinds = vec!["one-round".to_owned()];
        channel.send_message(&handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
        channel.send_message(&handshake::Ask { kinds }).unwrap();
        channel.send_message(&choice).unwrap();
        channel
    };
    let hash = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
    let keys = |bytes: u64, hash: [u8; 32]| jaguar_wire::encode(&Request::Keys { bytes, hash });
    let framed = |message: Vec<u8>| [&(message.len() as u32).to_le_bytes()[..], &message].concat();
    let cases: [(Vec<u8>, &str); 6] = [
        (framed(jaguar_wire::encode(&Request::Input { bytes: 3 })), "before the keys"),
        ([framed(keys(2, [1; 32])), vec![1, 2], hash(&[1, 2]).to_vec()].concat(), "do not match their hash"),
        (
            [framed(keys(2, hash(&[1, 2]))), vec![1, 3], hash(&[1, 2]).to_vec()].concat(),
            "damaged behind 0 bytes",
        ),
        (framed(keys(0, [1; 32])), "do not match their hash"),
        (framed(vec![77]), "well-formed"),
        (u32::MAX.to_le_bytes().to_vec(), "4294967295 bytes"),
    ];
    for (bytes, named) in cases {
        let (_, served) = in_memory(&service, |channel| {
            let mut channel = begin(channel);
            channel.send(&bytes).unwrap();
            until_it_ends(&mut channel);
        });
        let error = served.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let mut prg = Prg::new([9; 32]);
    for _ in 0..50 {
        let mut noise = vec![0; 200];
        prg.fill(&mut noise);
        let (_, served) = in_memory(&service, |channel| {
            let mut channel = begin(channel);
            // It may be gone already.
            let _ = channel.send(&noise).and_then(|()| channel.flush());
        });
        assert!(served.is_err());
    }
    // A server that says what cannot be, behind its offer.
    let answer = |have: u64, replies: &[Reply]| {
        let (client_end, mut server_end) = memory_pair();
        let offered = service.protocols();
        server_end.send_message(&handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
        server_end.send_message(&handshake::Offer { model: MODEL, protocols: offered }).unwrap();
        server_end.send_message(&Have { bytes: have }).unwrap();
        server_end.send_message(&Ticket([1; 32])).unwrap();
        replies.iter().for_each(|reply| server_end.send_message(reply).unwrap());
        server_end.flush().unwrap();
        ask(client_end, &mut PadsProtectNothing::new(), &[vec![1]]).unwrap_err().to_string()
    };
    let all = KEYS as u64;
    for (have, replies, named) in [
        (all + 1, vec![], "whole chunks"),
        (1, vec![], "whole chunks"),
        (
            all,
            vec![Reply::Progress { thousandths: 7 }, Reply::Progress { thousandths: 7 }],
            "7 thousandths after 7",
        ),
        (all, vec![Reply::Progress { thousandths: 1001 }], "1001 thousandths"),
        (all, vec![Reply::Output { bytes: 1 << 60 }], "1152921504606846976 bytes (at most 8)"),
    ] {
        let told = answer(have, &replies);
        assert!(told.contains(named), "{told}");
    }
}

/// As many answers as may be are being computed: the next input is refused.
#[test]
fn too_many_answers_are_refused() {
    let (reached, is_reached) = channel();
    let (go_on, may_go_on) = channel();
    let gate = Gate { reached: Mutex::new(reached), go_on: Mutex::new(may_go_on) };
    let limits = server::Limits { answers: 1, ..server::Limits::default() };
    let slow = Sums { gate: Some(Arc::new(gate)), ..sums() };
    let service = server::Service::new(MODEL, limits).with(Box::new(slow)).unwrap();
    let (mut pads, mut others) = (PadsProtectNothing::new(), PadsProtectNothing::new());
    thread::scope(|scope| {
        let (a, b) = memory_transports();
        let first = scope.spawn(|| service.serve(Channel::new(b)));
        let ready = client::connect(Channel::new(a), &mut pads).unwrap().send_keys(&mut |_, _| ()).unwrap();
        let asked = ready.send(&[1, 2]).unwrap();
        is_reached.recv().unwrap();
        let (result, served) = in_memory(&service, |channel| ask(channel, &mut others, &inputs()));
        assert!(result.unwrap_err().to_string().contains("as many answers as it may"));
        assert!(served.is_err());
        go_on.send(()).unwrap();
        let (answer, ready) = asked.answer(&mut |_| ()).unwrap();
        ready.leave().unwrap();
        first.join().unwrap().unwrap();
        assert_eq!(answer, others.expected(&[1, 2]));
    });
}
