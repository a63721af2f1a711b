//! A small network, its server, and a gateway in front, in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jaguar::bundle::Bundle;
use jaguar::client::{Limits, Reveal, connect};
use jaguar::float::{Bias, Graph, Input, Linear, Node, Op};
use jaguar::hint::HintPlace;
use jaguar::net::{Address, Dialer, Listener};
use jaguar::network::{self, Model};
use jaguar::plan::{Choices, Kit, Plan};
use jaguar::quantise::{self, calibrate};
use jaguar::serve::{Control, Models, Server};
use jaguar::server::Service;
use jaguar::stop::Stop;
use jaguar::wire::framed::Options as Connection;
use jaguar::wire::{Channel, Transport, WireError};
use jaguar::{Cpu, image_input, reference};
use jaguar_gateway::{Ending, Gateway, Options, listen};

/// What lets bytes to the server pass, or not.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// A connection that sends nothing while its gate is shut.
struct Gated<T> {
    transport: T,
    gate: Gate,
}

impl<T: Transport> Transport for Gated<T> {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        let (shut, changed) = &*self.gate;
        drop(changed.wait_while(shut.lock().unwrap(), |shut| *shut).unwrap());
        self.transport.send(chunk)
    }

    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        self.transport.recv()
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        self.transport.recv_within(time)
    }

    fn abort(&mut self, reason: &str) {
        self.transport.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.transport.put_off(reason);
    }
}

pub struct Site {
    /// Where the gateway is.
    pub address: SocketAddr,
    model: Model,
    /// As it is served: with what hides its hidden units.
    served: Model,
    server: Address,
    control: Control,
    gate: Gate,
    ending: Ending,
    threads: Vec<JoinHandle<()>>,
}

/// One fully connected layer over 4 x 4 grey values.
fn model() -> Model {
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
    let samples: Vec<Vec<f32>> = (0..10).map(|i| (0..16).map(|j| ((i * j) % 256) as f32).collect()).collect();
    calibrate(Cpu::detect(), &graph, &samples, &quantise::Options::default()).unwrap().0
}

/// Serves it at `address`, from now on.
fn serve(model: &Model, address: &Address) -> (Address, Control, JoinHandle<()>) {
    let choices = Choices::among(&model.network, &[Kit::JAGUAR]).unwrap();
    let service = Service::new(Bundle::new(model.clone()).unwrap(), choices, Reveal::Logits).unwrap();
    let listener = Listener::bind(address).unwrap();
    let server = Server::new(Models::from(service), listener, jaguar::serve::Limits::default()).unwrap();
    let (address, control) = (server.bound().to_string().parse().unwrap(), server.control());
    (
        address,
        control,
        thread::spawn(move || {
            server.run(|_| ()).unwrap();
        }),
    )
}

impl Site {
    /// With a gateway that keeps `keep` queries.
    pub fn new(keep: u32) -> Self {
        Self::with(keep, |_| ())
    }

    pub fn with(keep: u32, change: impl FnOnce(&mut Options)) -> Self {
        let model = model();
        let served = Bundle::new(model.clone()).unwrap().model;
        let (server, control, serving) = serve(&model, &"127.0.0.1:0".parse().unwrap());
        let gate = Gate::default();
        let (dialer, shared) = (Dialer::new(server.clone()), gate.clone());
        let dial = move |stop: &Stop, _: bool| {
            let transport = dialer.connect(Connection::default())?;
            let channel = Channel::new(stop.over(Gated { transport, gate: shared.clone() }));
            connect(&Kit::standard(), channel, &Limits::default())
        };
        let mut options = Options::new(keep, HintPlace::Memory);
        change(&mut options);
        let listener = listen("127.0.0.1:0", false).unwrap();
        let gateway = Gateway::start(listener, None, Arc::new(dial), options, Arc::new(|_| ())).unwrap();
        let (address, ending) = (gateway.address().unwrap(), gateway.ending());
        let running = thread::spawn(move || gateway.run().unwrap());
        Self { address, model, served, server, control, gate, ending, threads: vec![serving, running] }
    }

    /// Nothing reaches the server from now on.
    pub fn shut(&self) {
        *self.gate.0.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.gate.0.lock().unwrap() = false;
        self.gate.1.notify_all();
    }

    /// Ends the server at once.
    pub fn kill(&mut self) {
        self.control.drain(Duration::ZERO);
        self.threads.remove(0).join().unwrap();
    }

    /// The same network at the same address, compiled anew: another model.
    pub fn serve_again(&mut self) {
        let (_, control, serving) = serve(&self.model, &self.server);
        self.control = control;
        self.threads.insert(0, serving);
    }

    /// What `predict` makes of a picture.
    pub fn preprocessed(&self, rgb: &[u8], width: usize, height: usize) -> Vec<f32> {
        let network = &self.served.network;
        image_input::tensor(&network.input.image, network.nodes[0].shape, rgb, width, height).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.open();
        self.ending.end();
        self.threads.pop().map(JoinHandle::join);
        self.control.drain(Duration::ZERO);
        self.threads.pop().map(JoinHandle::join);
    }
}

/// An input of the network.
pub fn input(seed: usize) -> Vec<f32> {
    (0..16).map(|i| (i * 31 * seed % 200) as f32).collect()
}

/// Looks whether an answer is the network's: an integer by the output's scale to the last bit, and as far from the reference as a private
/// run may be.
#[track_caller]
pub fn close(site: &Site, answer: &[f32], input: &[f32]) {
    let network = &site.served.network;
    let run =
        reference::run(Cpu::detect(), &site.served, &network.input.quantise(input, network.activation_bits))
            .unwrap();
    let plan = Plan::new(network, Choices::among(network, &[Kit::JAGUAR]).unwrap()).unwrap();
    let bound = 0.5 + plan.steps[1].error_ulps() + f64::from(2u32 << network.noise_bits);
    assert_eq!(answer.len(), 3);
    let scale = network.output.scales[0];
    for (&got, &want) in answer.iter().zip(run.output()) {
        let integer = (f64::from(got) * scale).round();
        assert_eq!(got.to_bits(), ((integer / scale) as f32).to_bits(), "{got} is no integer by {scale}");
        assert!((integer - want as f64).abs() <= bound, "{integer} and {want} differ by more than {bound}");
    }
    // The bound is a small part of what the answers span: a wrong one would not pass.
    let span = run.output().iter().max().unwrap() - run.output().iter().min().unwrap();
    assert!(bound < 0.1 * span as f64, "a bound of {bound} means nothing over {span}");
}

pub fn largest(values: &[f32]) -> usize {
    (0..values.len()).rev().max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap()
}

/// The numbers in these bytes.
pub fn logits_of(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
