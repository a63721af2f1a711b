//! One private inference with Jaguar as a library: server and client in two threads, over TCP on loopback.
//!
//!     cargo run --release -p jaguar --example two_parties
//!
//! The two threads share nothing but the server's address. In two programs, on two machines, each half stays as it is.
//! Real programs read the network from a file (`Bundle::read`) and pictures with `jaguar::compile::samples`.

use std::error::Error;
use std::net::SocketAddr;
use std::thread;

use jaguar::bundle::Bundle;
use jaguar::client::{self, Limits, Prediction, Reveal};
use jaguar::float::{Bias, Graph, Input, Linear, Node, Op, Relu};
use jaguar::hint::HintPlace;
use jaguar::plan::{Choices, Kit};
use jaguar::progress::NoProgress;
use jaguar::quantise::{Options, calibrate};
use jaguar::server::{Notice, Service};
use jaguar::wire::Channel;
use jaguar::wire::tcp::{self, Listener, Tcp};
use jaguar::{Cpu, network};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The server's network: a 3x3 convolution, a ReLU, and a fully connected layer. Values are `[C, H, W]`.
fn network() -> Graph {
    let node = |name: &str, op, inputs: &[usize], shape| Node {
        name: name.into(),
        op,
        inputs: inputs.into(),
        shape,
    };
    // Secret weights; here any numbers do.
    let weights = |count: usize| (0..count).map(|i| ((i * 37 % 19) as f32 - 9.0) / 20.0).collect();
    let conv = network::Linear::same(4, 3, 0);
    let full = network::Linear { kernel: [8, 8], ..network::Linear::same(3, 1, 0) };
    let bias = |count| Bias::PerChannel(vec![0.1; count]);
    let conv = Op::new(Linear { spec: conv, weights: weights(4 * 9), bias: bias(4) });
    let full = Op::new(Linear { spec: full, weights: weights(3 * 4 * 8 * 8), bias: bias(3) });
    let nodes = vec![
        node("input", Op::new(Input), &[], [1, 8, 8]),
        node("conv", conv, &[0], [4, 8, 8]),
        node("relu", Op::new(Relu), &[1], [4, 8, 8]),
        node("full", full, &[2], [3, 1, 1]),
    ];
    Graph { name: "tiny".into(), nodes, ..Graph::default() }
}

/// A picture of 8 x 8 grey values in 0..1.
fn picture(seed: usize) -> Vec<f32> {
    (0..64).map(|i| ((i * i + seed * i) % 17) as f32 / 16.0).collect()
}

/// The server: quantises its network, and serves one client until that leaves.
fn serve(kit: &Kit, listener: &Listener) -> Result<()> {
    let samples: Vec<Vec<f32>> = (0..10).map(picture).collect();
    let (model, _) = calibrate(Cpu::detect(), &network(), &samples, &Options::default())?;
    let choices = Choices::among(&model.network, kit.backends())?;
    let service = Service::new(Bundle::new(model)?, choices, Reveal::Logits)?;
    let tcp = listener.accept()?.greet(tcp::Options::default())?;
    service.serve(Channel::new(tcp), &mut |notice| {
        if let Notice::Answered(served) = notice {
            println!("server: answered in {} rounds", served.traffic.rounds)
        }
    })?;
    Ok(())
}

/// The client: gets the public part of the network, works offline, then asks about one picture.
fn ask(kit: &Kit, server: SocketAddr, picture: &[f32]) -> Result<Vec<f64>> {
    let channel = Channel::new(Tcp::connect(server, tcp::Options::default())?);
    let connected = client::connect(kit, channel, &Limits::default())?;
    // Base OTs. The hint stays in memory; `HintPlace::Folder` would keep it for the next run.
    let ready = connected.prepare_client(HintPlace::Memory)?;
    let prepared = ready.prepare_query(&mut NoProgress)?; // offline: no input yet
    let network = prepared.network();
    let (input, output) = (network.input.quantise(picture, network.activation_bits), network.output.clone());
    let (prediction, report, ready) = prepared.run(&input, &mut NoProgress)?; // online
    println!("client: {} bytes up, {} down online", report.online.bytes_up, report.online.bytes_down);
    ready.leave()?; // or ready.prepare_query(...) again, for the next picture
    match prediction {
        Prediction::Logits(logits) => Ok(output.logits(&logits)),
        Prediction::Label(label) => Err(format!("only the label came: {label}").into()),
    }
}

fn main() -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?;
    let server = thread::spawn(move || serve(&Kit::standard(), &listener));
    let asked = picture(42);
    let logits = ask(&Kit::standard(), address, &asked)?;
    server.join().expect("the server's thread ends")?;
    let float = network().run(Cpu::detect(), &asked).ok_or("the picture has another size")?;
    println!("private logits {logits:.2?}\nin the clear   {:.2?}", float[3]);
    Ok(())
}
