//! A server that is ended from another thread: its clients are told, and its port is free again. And clients that it refuses for now.

use std::num::NonZeroU32;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{self, Connected, Limits as ClientLimits, Reveal};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_engine::{EngineError, NoRoom};
use jaguar_graph::float::{Bias, Graph, Input, Linear, Node, Op};
use jaguar_graph::network;
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_net::{Address, Bound, Dialer, Listener, TokenFile};
use jaguar_plan::{Choices, Kit};
use jaguar_ring::cpu::Cpu;
use jaguar_serve::{ClientRules, Control, Event, Limits, Models, Rules, Server};
use jaguar_wire::framed::Options as Connection;
use jaguar_wire::{Channel, WireError};

/// One fully connected layer.
fn service() -> Service {
    let node = |name: &str, op, inputs: &[usize], shape| Node {
        name: name.into(),
        op,
        inputs: inputs.into(),
        shape,
    };
    let spec = network::Linear { kernel: [4, 4], ..network::Linear::same(3, 1, 0) };
    let weights = (0..3 * 16).map(|i| (i % 7) as f32 / 7.0 - 0.5).collect();
    let full = Op::new(Linear { spec, weights, bias: Bias::PerChannel(vec![0.1; 3]) });
    let nodes = vec![node("input", Op::new(Input), &[], [1, 4, 4]), node("full", full, &[0], [3, 1, 1])];
    let graph = Graph { name: "small".into(), nodes, ..Graph::default() };
    let samples: Vec<Vec<f32>> = (0..10).map(|i| (0..16).map(|j| ((i * j) % 5) as f32).collect()).collect();
    let (model, _) = calibrate(Cpu::detect(), &graph, &samples, &Options::default()).unwrap();
    let choices = Choices::among(&model.network, &[Kit::JAGUAR]).unwrap();
    Service::new(Bundle::new(model).unwrap(), choices, Reveal::Logits).unwrap()
}

#[test]
fn a_server_is_ended() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::new(Models::from(service()), listener, Limits::default()).unwrap();
    let (bound, control) = (server.bound().clone(), server.control());
    let Bound::Tcp(address) = &bound else { panic!("a TCP port was asked for") };
    let address: Address = address.to_string().parse().unwrap();
    let (told, heard) = channel();
    let serving = thread::spawn(move || {
        server.run(move |event| {
            if let Event::Ended(_, why) = event {
                let _ = told.send(why.to_string());
            }
        })
    });
    let connection = Dialer::new(address.clone()).connect(Connection::default()).unwrap();
    let connected =
        client::connect(&Kit::standard(), Channel::new(connection), &ClientLimits::default()).unwrap();
    let ready = connected.prepare_client(HintPlace::Memory).unwrap();
    // The client has a session, and asks for nothing.
    control.drain(Duration::ZERO);
    serving.join().unwrap().unwrap();
    println!("{}", heard.recv().unwrap());
    let error = ready.prepare_query(&mut NoProgress).err().expect("the session is over");
    assert!(error.to_string().contains("gave up"), "the client is told: {error}");
    assert_eq!(control.clients(), 0);
    Listener::bind(&address).unwrap();
    // Who ends it twice does no harm.
    control.drain(Duration::ZERO);
}

/// A server that runs, and where it is.
fn running(server: Server<Models>) -> (Address, Control) {
    let (address, control) = (server.bound().to_string().parse().unwrap(), server.control());
    thread::spawn(move || server.run(|_| ()));
    (address, control)
}

fn listener() -> Listener {
    Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()
}

fn connect(dialer: &Dialer) -> Result<Connected, EngineError> {
    client::connect(
        &Kit::standard(),
        Channel::new(dialer.connect(Connection::default())?),
        &ClientLimits::default(),
    )
}

#[track_caller]
fn assert_later<T>(result: Result<T, EngineError>, what: &str) {
    match result.err().expect("refused").root() {
        EngineError::Wire(WireError::PeerBusy(why)) if why.contains(what) => {}
        error => panic!("{error:?} is not: {what}"),
    }
}

/// Who is refused for now can tell it from a refusal for good.
#[test]
fn who_is_refused_for_now_is_told_so() {
    let limits = Limits { clients: 1, ..Limits::default() };
    let one = const { NonZeroU32::new(1).unwrap() };
    let hints = jaguar_engine::server::Limits { hints_at_once: one, hints_per_hour: one };
    let (address, control) =
        running(Server::new(Models::from(service().with_limits(hints)), listener(), limits).unwrap());
    let dialer = Dialer::new(address);
    let first = connect(&dialer).unwrap().prepare_client(HintPlace::Memory).unwrap();
    assert_later(connect(&dialer), "busy with as many clients as it takes (1); try again later");
    first.fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    while control.clients() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let second = connect(&dialer).unwrap().prepare_client(HintPlace::Memory).unwrap();
    assert_later(second.fetch_hint(&mut NoProgress), "as many hints as it may for now: come back in");
    control.drain(Duration::ZERO);
}

/// A server of one service has the same rules as one of several: what is prepared counts, and a ticket is its client's own.
#[test]
fn rules_hold_for_one_service_too() {
    let folder = std::env::temp_dir().join(format!("jaguar-one-service-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tokens = folder.join("tokens");
    let [alice, bob] = ["alice", "bob"].map(|name| TokenFile::add(&tokens, name).unwrap());
    let server = Server::new(Models::from(service()), listener(), Limits::default()).unwrap();
    let (address, control) = running(server.with_tokens(TokenFile::open(&tokens).unwrap()));
    let everybody = ClientRules { queries_per_day: Some(1), ..ClientRules::default() };
    control.set_rules(Rules { everybody, ..Rules::default() }, Some(folder.join("queries").into())).unwrap();
    let [alice, bob] = [alice, bob].map(|token| Dialer::new(address.clone()).with_token(token));

    let ready = connect(&alice).unwrap().prepare_client(HintPlace::Memory).unwrap();
    let (ready, kept) = ready.keep_query(&mut NoProgress).unwrap();
    let kept = kept.expect("the first");
    let (ready, none) = ready.keep_query(&mut NoProgress).unwrap();
    assert_eq!(none.err(), Some(NoRoom::Queries));
    let (ticket, ready) = ready.ticket().unwrap();
    let refused = connect(&bob).unwrap().join(&ticket).err().expect("not his").to_string();
    assert!(refused.contains("given to another client"), "{refused}");
    // Her second connection is let in although her day is spent: it runs what counts already.
    let runner = connect(&alice).unwrap().join(&ticket).unwrap();
    runner.run(kept, &[7; 16], &mut NoProgress).unwrap().2.leave().unwrap();
    assert_later(ready.prepare_query(&mut NoProgress), "has asked the 1 queries that it may ask in a day");
    while control.clients() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_later(connect(&alice), "has asked the 1 queries that it may ask in a day");
    let text = std::fs::read_to_string(folder.join("queries")).unwrap();
    assert!(text.ends_with("\n1 small alice\n"), "{text}");
    control.drain(Duration::ZERO);
    std::fs::remove_dir_all(&folder).unwrap();
}
