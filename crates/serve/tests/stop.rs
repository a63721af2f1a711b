//! A server that is ended from another thread: its clients are told, and its port is free again.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use jaguar_cpu::Cpu;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{self, Limits as ClientLimits, Reveal};
use jaguar_engine::hint::Place;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_graph::float::{Bias, Graph, Linear, Node, Op};
use jaguar_graph::network;
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_net::{Address, Bound, Dialer, Listener};
use jaguar_plan::{BackendId, Choices};
use jaguar_serve::{Event, Limits, Server};
use jaguar_wire::Channel;
use jaguar_wire::framed::Options as Connection;

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
    let full = Op::Linear(Linear { spec, weights, bias: Bias::PerChannel(vec![0.1; 3]) });
    let nodes = vec![node("input", Op::Input, &[], [1, 4, 4]), node("full", full, &[0], [3, 1, 1])];
    let (affine, layout_dims, outputs) = (vec![], vec![], vec![]);
    let graph = Graph {
        name: "small".into(),
        nodes,
        affine,
        affine_name: String::new(),
        channels_last: false,
        layout_dims,
        outputs,
    };
    let samples: Vec<Vec<f32>> = (0..10).map(|i| (0..16).map(|j| ((i * j) % 5) as f32).collect()).collect();
    let (model, _) = calibrate(Cpu::detect(), &graph, &samples, &Options::default()).unwrap();
    let choices = Choices::among(&model.network, &[BackendId::default()]).unwrap();
    Service::new(Bundle::new(model).unwrap(), choices, Reveal::Logits).unwrap()
}

#[test]
fn a_server_is_ended() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::new(service(), listener, Limits::default()).unwrap();
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
    let connected = client::connect(Channel::new(connection), &ClientLimits::default()).unwrap();
    let ready = connected.prepare_client(Place::Memory).unwrap();
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
