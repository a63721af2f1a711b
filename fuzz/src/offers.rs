//! What a server offers: the protocols, the public network, its plan; and what a client then does with them.

use jaguar_compile::samples::Source;
use jaguar_engine::bundle::ModelId;
use jaguar_engine::client::{Limits, Prediction, Reveal, connect};
use jaguar_graph::network::Network;
use jaguar_plan::{Choices, Kit, PROTOCOL_VERSION};
use jaguar_wire::encode;
use serde::Serialize;

use crate::doubles::Replay;
use crate::script::Script;
use crate::{Bound, Target, models};

// The engine's messages, field by field: what is written here is read there. (If they change there, seeds are refused, and
// the tests here say so.)

/// A protocol in an offer.
#[derive(Serialize)]
struct Protocol<'a> {
    kind: &'a str,
    name: &'a str,
    version: u32,
    parameters: &'a [u8],
}

pub(crate) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "offer",
            run: offer,
            seeds: offer_seeds,
            bound: Bound { fixed: 4 << 20, per_byte: 256 },
            longest: 4096,
            tried: 2000,
        },
        // Planning lists tiles, taps and runs of values: at most 128 MiB for all of them.
        Target {
            name: "network",
            run: network,
            seeds: network_seeds,
            bound: Bound { fixed: 1 << 30, per_byte: 1 << 10 },
            longest: 4096,
            tried: 300,
        },
    ]
}

/// A message with its length in front.
fn message(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// What a server says up to the network's length.
fn offered(parameters: &[u8]) -> Vec<u8> {
    let shares = Protocol { kind: "interactive", name: "secret-shares", version: 1, parameters };
    let hello = encode(&PROTOCOL_VERSION);
    [message(&hello), message(&encode(&(ModelId([9; 32]), vec![shares])))].concat()
}

fn parameters(choices: &Choices) -> Vec<u8> {
    encode(&(choices, Reveal::Logits))
}

/// All that a server says, as it comes: a byte for what the client wants, then the bytes.
fn offer(input: &[u8]) {
    let mut script = Script::new(input);
    let how = script.byte();
    let channel = Replay::channel(vec![script.rest().to_vec()]);
    if how & 1 == 0 {
        let _ = connect(&models::kit(), channel, &Limits::default());
    } else {
        let _ = jaguar_convfhe::session::client::Session::open(channel);
    }
}

fn offer_seeds() -> Vec<Vec<u8>> {
    let network = models::short().network;
    let choices = parameters(&Choices::standard(&network, Kit::JAGUAR));
    let whole = [offered(&choices), message(&encode(&network))].concat();
    let none =
        [message(&encode(&PROTOCOL_VERSION)), message(&encode(&(ModelId([0; 32]), Vec::<Protocol>::new())))];
    let one_round =
        Protocol { kind: "one-round", name: "convfhe", version: 1, parameters: &crate::one_round::terms() };
    let other = [message(&encode(&PROTOCOL_VERSION)), message(&encode(&(ModelId([0; 32]), vec![one_round])))]
        .concat();
    [whole, none.concat(), other]
        .iter()
        .flat_map(|seed| [0, 1].map(|how| [&[how], &seed[..]].concat()))
        .collect()
}

/// Two bytes that say how long the choices are, the choices, the network: lengths and names around them are right, so that an
/// input is about what they say.
fn network(input: &[u8]) {
    is_taken(input);
}

/// Whether a client goes on with what an input of the target `network` offers.
pub fn is_taken(input: &[u8]) -> bool {
    let mut script = Script::new(input);
    let length = script.word();
    let (parameters, described) = (script.bytes(length), script.rest());
    let said = [offered(parameters), message(described)].concat();
    let limits = Limits { allow_insecure_backends: true, accept_leaks: true, ..Limits::default() };
    let Ok(connected) = connect(&models::kit(), Replay::channel(vec![said]), &limits) else { return false };
    // What a client makes of it before and behind a query.
    let network = connected.network();
    let rgb = (0..3 * 8 * 9).collect();
    let _ = Source::Pixels { rgb, width: 9, height: 8 }.input(network);
    let [c, h, w] = network.nodes[0].shape;
    let _ = Source::Tensor { shape: vec![c as u64, h as u64, w as u64], values: vec![0.5; c * h * w] }
        .input(network);
    let outputs: usize = network.nodes.last().map_or(0, |node| node.shape.iter().product());
    let prediction = Prediction::Logits((0..outputs as i64).map(|i| i * 77 % 1000 - 500).collect());
    let _ = (prediction.top(network, 5), prediction.outputs(network), prediction.label(network));
    let _ = Prediction::Label(outputs).top(network, 5);
    true
}

/// What honest servers offer, for every backend.
pub fn network_seeds() -> Vec<Vec<u8>> {
    let seed = |choices: &Choices, network: &Network| {
        let parameters = parameters(choices);
        [&(parameters.len() as u16).to_le_bytes(), &parameters[..], &encode(network)].concat()
    };
    let mut seeds = Vec::new();
    for network in [models::everything().network, models::short().network] {
        seeds.extend(
            models::kit().backends().iter().map(|&id| seed(&Choices::standard(&network, id), &network)),
        );
        let by = |&by| Choices::standard(&network, Kit::JAGUAR).comparing_by(&network, by).ok();
        seeds.extend(
            models::kit().comparisons().iter().filter_map(by).map(|choices| seed(&choices, &network)),
        );
    }
    seeds
}
