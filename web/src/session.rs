//! A client's session with one server: connected, prepared, asked, as often as wanted.

use std::sync::Arc;
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_engine::answer::class_name;
use jaguar_engine::client::{Connected, Limits, Prediction, Prepared, Ready, Reveal, connect_to};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::Progress;
use jaguar_graph::image_input::{ImageError, tensor};
use jaguar_graph::network::{ImageSpec, Network, Shape};
use jaguar_plan::{Kit, Plan, predict};
use jaguar_wire::framed::Options;
use jaguar_wire::{
    ByteStream, Channel, Clock, Introduction, Queued, Stage, SystemClock, Unthreaded, WireError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::picture::rgb;

/// How much longer than it was told that this side waits, a server may take.
const LENIENCE: Duration = Duration::from_secs(30);

/// How often progress is told, at most.
const OFTEN: Duration = Duration::from_millis(40);

/// Bytes of a hint that take as long as one of correlations.
const HINT_BYTES: f64 = 64.0;

/// Classes that an answer has with names.
const TOP: usize = 5;

/// Who hears of progress: objects with an `event`.
pub type Say<'a> = &'a mut dyn FnMut(&Value);

/// How a server is to be asked.
#[derive(Debug, Deserialize)]
pub struct Wishes {
    /// The server's address, for messages.
    pub url: String,
    /// What shows who asks. Empty: nothing.
    #[serde(default)]
    pub token: String,
    /// The model's name at the server. None: the only one.
    pub model: Option<String>,
    /// Seconds to wait for a place.
    #[serde(default)]
    pub wait: u16,
}

/// What every client learns of a model, as far as people or pages want it.
#[derive(Serialize)]
pub struct Card<'a> {
    /// The model's name.
    name: &'a str,
    /// Its public name, which commits to the weights.
    id: String,
    /// Labels of its classes, as far as it has some.
    labels: &'a [String],
    /// Its classes.
    classes: usize,
    /// Whether the label alone is revealed.
    label_only: bool,
    /// `[C, H, W]`.
    shape: Shape,
    /// How a picture becomes the input.
    image: &'a ImageSpec,
    /// Nodes of the network.
    nodes: usize,
    /// Bytes that come once on this connection.
    hint_bytes: u64,
    /// Bytes of one query before the picture, both ways.
    offline_bytes: u64,
    /// Bytes of one query with it, both ways.
    online_bytes: u64,
}

/// A session, as far as it has come. After an error there is none.
pub struct Session {
    state: State,
    shares: Shares,
}

enum State {
    /// The model is known, and where its hint is to be kept.
    Connected(Box<Connected>, HintPlace),
    /// Between two queries.
    Ready(Box<Ready>),
    /// A query waits for its picture.
    Prepared(Box<Prepared>),
}

/// Why something was not done.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// `connection`, `aborted`, `busy`, `peer`, `input` or `internal`.
    pub kind: &'static str,
    /// In words.
    pub text: String,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let kind = match error.root() {
            EngineError::Wire(wire) => kind_of(wire),
            EngineError::Input(_) => "input",
            EngineError::Version { .. }
            | EngineError::NoCommonProtocol { .. }
            | EngineError::Refused(_)
            | EngineError::PeerMisbehaved(_)
            | EngineError::Plan(_)
            | EngineError::Ot(_)
            | EngineError::Mpc(_) => "peer",
            _ => "internal",
        };
        Self { kind, text: error.to_string() }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self { kind: kind_of(&error), text: error.to_string() }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self { kind: "input", text: error.to_string() }
    }
}

fn kind_of(error: &WireError) -> &'static str {
    match error {
        WireError::PeerBusy(_) => "busy",
        WireError::PeerAborted(_) => "aborted",
        WireError::PeerMisbehaved { .. } | WireError::NotBound { .. } => "peer",
        _ => "connection",
    }
}

/// What comes before each node, and all of it, of the offline and the online stage: by what nodes are expected to take, in no unit.
struct Shares([Vec<f64>; 2]);

impl Shares {
    fn new(plan: &Plan) -> Self {
        let costs = predict::predict(plan, &predict::Session::default(), None).nodes;
        let bytes = |stage: predict::NodeStage| (stage.bytes_up + stage.bytes_down + 1) as f64;
        // (A byte of correlations stands for far more work than one of a hint.)
        let offline = costs.iter().map(|cost| cost.hint_bytes as f64 / HINT_BYTES + bytes(cost.offline));
        let online = costs.iter().map(|cost| bytes(cost.online));
        Self([sums(offline), sums(online)])
    }
}

/// The sum before each number, and that of all.
fn sums(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sums = vec![0.0];
    for number in numbers {
        sums.push(sums[sums.len() - 1] + number);
    }
    sums
}

/// Tells how far a stage is.
struct Told<'a> {
    say: &'a mut dyn FnMut(&Value),
    shares: &'a Shares,
    last: Option<Duration>,
}

impl Progress for Told<'_> {
    fn step(&mut self, stage: Stage, index: usize, total: usize, name: &str) {
        let now = SystemClock.now();
        if self.last.is_some_and(|last| now.saturating_sub(last) < OFTEN) && index + 1 < total {
            return;
        }
        self.last = Some(now);
        let sums = &self.shares.0[usize::from(stage == Stage::Online)];
        let share = sums[index] / sums[sums.len() - 1];
        (self.say)(&json!({
            "event": "progress", "stage": stage.to_string(), "share": share, "step": index, "steps": total, "layer": name,
        }));
    }

    fn hint(&mut self, _: u64, _: u64) {}
}

impl Session {
    /// Greets the server at the other end of `stream`, waits for a place if it must, and learns the model, whose hint will be kept at
    /// `place`. `say` hears of places in the line.
    ///
    /// # Errors
    /// When there is no such server or model, or no place.
    pub fn connect(
        stream: Box<dyn ByteStream>,
        place: HintPlace,
        wishes: &Wishes,
        say: Say<'_>,
    ) -> Result<Self, Failure> {
        let Wishes { url, token, model, wait } = wishes;
        let options = Options::default();
        // (TLS is the browser's, which gives nothing to bind the session to.)
        let introduction = Introduction { token: token.as_bytes(), unbound: true, wait: *wait };
        let mut transport = Unthreaded::connect_as(stream, url, &introduction, options)?;
        if *wait > 0 {
            let patience = Duration::from_secs((*wait).into()) + LENIENCE;
            transport.wait_for_place(patience, &mut |Queued { place, seconds }| {
                say(&json!({ "event": "queued", "place": place, "seconds": seconds }));
                true
            })?;
        }
        let channel = Channel::with_clock(transport, Arc::new(SystemClock));
        let connected = connect_to(&Kit::standard(), channel, model.as_deref(), &Limits::default())?;
        let shares = Shares::new(connected.plan());
        Ok(Self { state: State::Connected(Box::new(connected), place), shares })
    }

    /// What every client learns of the network.
    fn network(&self) -> &Network {
        match &self.state {
            State::Connected(connected, _) => connected.network(),
            State::Ready(ready) => ready.network(),
            State::Prepared(prepared) => prepared.network(),
        }
    }

    /// What a person may want to know of the model; of a session that has done nothing yet.
    pub fn card(&self) -> Value {
        let State::Connected(connected, _) = &self.state else { return Value::Null };
        let (network, plan) = (connected.network(), connected.plan());
        let cost = predict::predict(plan, &predict::Session::default(), None);
        let both = |total: &predict::Total| total.bytes_up + total.bytes_down;
        json!(Card {
            name: &network.name,
            id: connected.model().in_full(),
            labels: &network.output.labels,
            classes: network.nodes.last().map_or(0, |node| node.shape.iter().product()),
            label_only: connected.reveal() == Reveal::Label,
            shape: network.nodes[0].shape,
            image: &network.input.image,
            nodes: network.nodes.len(),
            hint_bytes: cost.hint_bytes,
            offline_bytes: both(&cost.offline),
            online_bytes: both(&cost.online),
        })
    }

    /// Does all of the next query's work that needs no picture.
    ///
    /// # Errors
    /// When the connection fails. The session is over then.
    pub fn prepare(self, say: Say<'_>) -> Result<Self, Failure> {
        let (prepared, shares) = self.prepared(say)?;
        Ok(Self { state: State::Prepared(prepared), shares })
    }

    fn prepared(self, say: Say<'_>) -> Result<(Box<Prepared>, Shares), Failure> {
        let Self { state, shares } = self;
        let ready = match state {
            State::Prepared(prepared) => return Ok((prepared, shares)),
            State::Ready(ready) => *ready,
            State::Connected(connected, place) => {
                say(&json!({ "event": "progress", "stage": "client", "share": 0 }));
                connected.prepare_client(place)?
            }
        };
        let prepared = ready.prepare_query(&mut Told { say, shares: &shares, last: None })?;
        Ok((Box::new(prepared), shares))
    }

    /// What the network says of a picture of `width` times `height` pixels, four bytes each; prepares first, if nothing is. A picture
    /// that cannot be used costs nothing: the session comes back beside the failure.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn predict(
        self,
        rgba: &[u8],
        (width, height): (usize, usize),
        say: Say<'_>,
    ) -> (Option<Self>, Result<Value, Failure>) {
        let network = self.network();
        let (spec, bits) = (&network.input, network.activation_bits);
        let tensor = match tensor(&spec.image, network.nodes[0].shape, &rgb(rgba), width, height) {
            Ok(tensor) => tensor,
            Err(error) => return (Some(self), Err(error.into())),
        };
        let warning = spec.unusual(&tensor, bits).map(|unusual| unusual.to_string());
        let input = spec.quantise(&tensor, bits);
        match self.ask(&input, warning, say) {
            Ok((session, answer)) => (Some(session), Ok(answer)),
            Err(failure) => (None, Err(failure)),
        }
    }

    fn ask(self, input: &[i64], warning: Option<String>, say: Say<'_>) -> Result<(Self, Value), Failure> {
        let (prepared, shares) = self.prepared(say)?;
        let start = SystemClock.now();
        let (prediction, _, ready) = prepared.run(input, &mut Told { say, shares: &shares, last: None })?;
        let seconds = SystemClock.now().saturating_sub(start).as_secs_f64();
        let network = ready.network();
        let logits = match &prediction {
            Prediction::Logits(logits) => network.output.logits(logits),
            Prediction::Label(_) => Vec::new(),
        };
        let answer = json!({
            "label": prediction.label(network),
            "name": class_name(network, prediction.label(network)),
            "top": prediction.top(network, TOP),
            "logits": logits,
            "warning": warning,
            "seconds": seconds,
        });
        Ok((Self { state: State::Ready(Box::new(ready)), shares }, answer))
    }
}
