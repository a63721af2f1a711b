//! What a linear backend is: a way to compute linear layers on shares, from the plan to the last byte.
//!
//! A backend is one folder, or one crate of anybody's: a program hands it in as a value ([`BackendId`]), in its kit (`jaguar_plan::Kit`).
//! Nothing but a kit names it. The traits follow its life:
//!
//! | when | value | what it does |
//! |---|---|---|
//! | planning, both roles | [`Backend::plan`] → [`Layers`] | public: where shares live, geometry, bytes, noise |
//! | once per model, server | [`Layers::model`] → [`Model`] | takes the weights; makes what clients fetch once (the *hint*) |
//! | once per client | [`BackendParty::send_keys`], [`BackendParty::take_keys`] → [`ClientKeys`] | keys that the server keeps under the client's name |
//! | once per session | [`Model::party`], [`Layers::client`] → [`BackendParty`] | other keys |
//! | once per query, offline | [`BackendParty::begin_query`], [`BackendParty::exchange`], [`BackendParty::prepare`] → [`Online`] | with the channel at hand |
//! | online | [`Online`] → [`Output`] | is fed the input's share from the first value on, makes its output piece by piece |
//!
//! A session may use several backends: every layer has its own, and shares change their domain between them.

use std::any::Any;
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

use jaguar_graph::network::{Linear, Shape, Weights};
pub use jaguar_mpc::share::{Domain, Modulus};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::{Estimate, ParameterError};
use jaguar_wire::{Channel, WireError};
use zeroize::Zeroizing;

use crate::constants::{Measured, Probe};
use crate::layout::{LayoutError, Packing};
use crate::product::Hardware;

/// One linear layer to be planned.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The layer's node in the network: it separates its randomness from that of other layers.
    pub node: usize,
    /// The name of the backend that is to run it: one of those that are planned together ([`Backend::family`]).
    pub backend: &'static str,
    /// The convolution: its geometry and its shift.
    pub spec: &'a Linear,
    /// `[C_in, H, W]` of an image.
    pub in_shape: Shape,
    /// How many images a query has: a power of two, and 1 where the backend takes no batches ([`Backend::takes_batches`]).
    /// Values of all of them stand in the order `[C, image, H, W]`.
    pub images: usize,
    /// n: the network's values are below 2^(n-1) in absolute value.
    pub activation_bits: u32,
    /// g: how many of these are guard bits. A backend's noise may be felt in them, but no more of what the client knows of it
    /// than a rounding is.
    pub guard_bits: u32,
    /// The weights are below 2^(weight_bits-1) in absolute value, exponents included.
    pub weight_bits: u32,
    /// Whether the layer's result reaches the client without another linear layer in between.
    pub opened: bool,
    /// Bits of shares that can hold every product of the plan: for backends that do not truncate.
    pub product_bits: u32,
    /// How densely inputs are packed, where the backend leaves a choice.
    pub packing: Packing,
    /// The ring that was chosen, where the backend leaves a choice ([`Backend::rings`]).
    pub ring: ChosenRing,
    /// Bytes that the server may keep of all layers' weights as polynomials: those of further layers are made in every
    /// query.
    pub weight_memory: u64,
}

/// A ring as a planner chooses it, one for all layers of a plan. Nobody checked it: a backend that computes in it makes a parameter set
/// of it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenRing {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: u32,
    /// log2 of the ciphertexts' modulus q.
    pub modulus_bits: u32,
}

/// What a plan says of its ring where none of its backends leaves a choice. (Parties compare it: it is in a plan's digest.)
impl Default for ChosenRing {
    fn default() -> Self {
        Self { ring_dim: 2048, modulus_bits: 48 }
    }
}

impl std::fmt::Display for ChosenRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "N = {}, q = 2^{}", self.ring_dim, self.modulus_bits)
    }
}

/// Why a backend cannot run a layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The layer's values do not fit into polynomials.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The parameter set is not one that may be used.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Out of what the backend can do; in its own words.
    #[error("{0}")]
    Refused(String),
}

/// Why a backend failed in a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The connection failed, or the peer left.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent what cannot be.
    #[error("{0}")]
    Peer(String),
}

/// How a layer lies in ciphertexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: usize,
    /// Into how many windows the map is cut.
    pub tiles: usize,
    /// Input channels (or parts of them) that a ciphertext holds.
    pub maps_per_ciphertext: usize,
    /// Ciphertexts that the client sends for a query.
    pub ciphertexts: usize,
    /// Ciphertexts of the answer, wherever their halves come from.
    pub responses: usize,
    /// Coefficients from one map to the next, where [`Packing`] has a say.
    pub packing_distance: Option<usize>,
    /// How many images of a batch share a ciphertext.
    pub interleaved: usize,
}

/// Bytes and rounds of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Once per client, from the server.
    pub hint: usize,
    /// Per query, offline, from the client and from the server. A layer whose client sends has an *exchange*
    /// ([`BackendParty::exchange`]).
    pub offline: (usize, usize),
    /// Per query, online, from the client and from the server.
    pub online: (usize, usize),
    /// How often the client waits for an answer, online.
    pub rounds: u64,
}

/// Seconds of a layer's work on a single core. Zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// The server's, once per model: weights in the backend's form.
    pub model: f64,
    /// The server's, once per client: the hint.
    pub hint: f64,
    /// Per query, offline: client and server, on all threads.
    pub offline: [f64; 2],
    /// Online: client and server, on one thread.
    pub online: [f64; 2],
    /// Online: client and server, on all threads.
    pub online_parallel: [f64; 2],
}

/// What both parties know of one planned layer.
pub trait Layer: Debug + Send + Sync {
    /// The convolution: its geometry and its shift.
    fn spec(&self) -> &Linear;

    /// Where its input's shares must live: modulo any power of two or any odd number, at the network's scale.
    fn input(&self) -> Domain;

    /// Where its output's shares live: modulo a power of two. (A backend with another modulus ends with
    /// [`jaguar_ring::he::sharing`].)
    fn output(&self) -> Domain;

    /// How it lies in ciphertexts.
    fn geometry(&self) -> Geometry;

    /// How many bytes pass, and when.
    fn traffic(&self) -> Traffic;

    /// What it takes on a machine of which this was measured; `None` where that does not cover it.
    fn work(&self, machine: &Measured) -> Option<Work>;

    /// Standard deviation of the noise, in units of the network's last place, at worst-case weights.
    fn noise_ulps(&self) -> f64;

    /// By how much the output may be off besides the noise, in units of the network's last place.
    fn rounding_ulps(&self) -> f64;

    /// Every figure that both parties must have alike, and that a hint was made for.
    fn absorb(&self) -> Vec<u64>;

    /// As blocks of which size it runs its blocks of weights ([`Linear::blocks`]); 1 where it computes a dense layer. It has no default:
    /// whoever chooses block sizes by cost would see none but 1 for a backend that said nothing.
    fn block_size(&self) -> usize;

    /// Whether the client knows its share of the output before the input.
    fn output_known_early(&self) -> bool {
        false
    }

    /// Bytes that the client and the server keep of it between offline and online, at most.
    fn prepared_bytes(&self) -> [u64; 2] {
        // A word for each coefficient of all its ciphertexts.
        let Geometry { ring_dim, ciphertexts, responses, .. } = self.geometry();
        [8 * ring_dim as u64 * (ciphertexts + responses) as u64; 2]
    }

    /// Bytes that the server keeps of the layer's weights, once per model, as the backend wants them: besides those that
    /// the compiled model holds.
    fn model_bytes(&self) -> u64;

    /// Bytes that the client and the server take for it while it runs with so many threads, about: besides what was
    /// prepared, and shares of its input and output.
    fn running_bytes(&self, _threads: usize) -> [u64; 2] {
        [0; 2]
    }

    /// How many parts the hint has, and the bytes of each: parts are made and kept one by one.
    fn hint_parts(&self) -> (usize, usize) {
        (0, 0)
    }
}

/// An instance of RLWE: uniform ternary secrets, centred binomial noise of variance 10.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rlwe {
    /// N: how many coefficients a polynomial has.
    pub ring_dim: usize,
    /// q is at most 2 to this.
    pub modulus_bits: u32,
    /// What the code takes it to be worth.
    pub estimate: Estimate,
}

/// All layers of one plan that one backend runs: public.
pub trait Layers: Debug + Send + Sync {
    /// The backend's name; that of its family, where several are planned together.
    fn backend(&self) -> &'static str;

    /// The name of the backend that runs a node's layer.
    fn backend_of(&self, _node: usize) -> &'static str {
        self.backend()
    }

    /// The layer of a node, if the backend runs it.
    fn layer(&self, node: usize) -> Option<&(dyn Layer + 'static)>;

    /// In words, which rings are used, and their estimated security.
    fn describe(&self) -> String;

    /// The same for programs: every instance of RLWE that its layers rest on. None where nothing is encrypted.
    fn rlwe(&self) -> Vec<Rlwe>;

    /// How its parameters were found, in lines of text: what was weighed, and what each layer has. `name` names a node.
    fn parameters(&self, _name: &dyn Fn(usize) -> String) -> String {
        self.describe()
    }

    /// Whether its online part is a plain integer product, which [`Hardware::device`] computes.
    fn has_online_products(&self) -> bool {
        false
    }

    /// Bytes once per session, from the client and from the server.
    fn session_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Keys that the client sends once, and the server keeps under the client's name; bytes. None by default.
    fn client_keys(&self) -> KeyBytes {
        KeyBytes::default()
    }

    /// Bytes once per query, offline, from the client and from the server.
    fn query_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Takes the weights, by node. The model computes with `hardware`. `public` is the model's public name, from which
    /// public randomness follows. `weight_bits` are the significant bits of a weight.
    ///
    /// # Panics
    /// When the weights are not the plan's (`Model::validate` of the graph excludes it).
    fn model(
        self: Arc<Self>,
        hardware: &Hardware,
        public: [u8; 32],
        weights: &[Option<Weights>],
        weight_bits: u32,
    ) -> Arc<dyn Model>;

    /// The client's side of one session, which computes with the instructions that `cpu` has.
    fn client(self: Arc<Self>, cpu: Cpu, public: [u8; 32]) -> Box<dyn BackendParty>;
}

/// A model's layers at the server, for any number of sessions.
pub trait Model: Send + Sync {
    /// Does what is done once per model for the layer of `node` now, instead of when it is first needed.
    fn prepare(&self, node: usize);

    /// Parts of a layer's hint for the client whose hint key this is. The same call gives the same bytes.
    fn hint(&self, node: usize, parts: Range<usize>, hint_key: &[u8; 32]) -> Vec<u8>;

    /// The server's side of one session with that client.
    fn party(self: Arc<Self>, hint_key: &[u8; 32]) -> Box<dyn BackendParty>;
}

/// Keys of one client, as a server keeps them from one session to the next. What they are is their backend's.
pub type ClientKeys = Arc<dyn Any + Send + Sync>;

/// Bytes of a client's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyBytes {
    /// Bytes that a client sends once.
    pub sent: usize,
    /// Bytes that they take in the server's memory.
    pub kept: u64,
}

/// One role's part in a session, for all layers of its backend.
pub trait BackendParty: Send {
    /// The client's keys, of layers that have such ([`Layers::client_keys`]): first in every session. They follow from
    /// `seed`, which is the client's for as long as its name is. If the server does not have them (`missing`), they are
    /// sent.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn send_keys(
        &mut self,
        _seed: &[u8; 32],
        _missing: bool,
        _channel: &mut Channel,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server's counterpart: takes the keys that it has `kept` of this client, or receives them. Gives them back, to
    /// be kept.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn take_keys(
        &mut self,
        kept: Option<ClientKeys>,
        _channel: &mut Channel,
    ) -> Result<Option<ClientKeys>, BackendError> {
        Ok(kept)
    }

    /// Once per session.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol; the session is spent then. So for all methods.
    fn setup(&mut self, _channel: &mut Channel) -> Result<(), BackendError> {
        Ok(())
    }

    /// Once per query, before its layers: fresh secrets.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn begin_query(&mut self, _channel: &mut Channel) -> Result<(), BackendError> {
        Ok(())
    }

    /// Of a layer whose client sends offline ([`Traffic::offline`]), before any layer is prepared: the client sends,
    /// and the server receives and answers. Both flush. `hint` is all of the layer's hint at the client, and empty at
    /// the server.
    ///
    /// The client does not wait: it sends for the next layers before it takes the answer ([`collect`](Self::collect)).
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn exchange(&mut self, _node: usize, _hint: &[u8], _channel: &mut Channel) -> Result<(), BackendError> {
        Ok(())
    }

    /// The client takes the answer to its part of an exchange: in the order of the exchanges, before any layer is
    /// prepared. Nothing at the server.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn collect(&mut self, _node: usize, _channel: &mut Channel) -> Result<(), BackendError> {
        Ok(())
    }

    /// Prepares one layer for the query, offline; only the server may send. `hint` is all of the layer's hint at the
    /// client, and empty at the server.
    ///
    /// # Errors
    /// As [`setup`](Self::setup).
    fn prepare(
        &mut self,
        node: usize,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError>;
}

/// One role's part of one layer in one query. Used once.
pub trait Online: Send {
    /// This party's share of the output, if it is known already.
    fn early_output(&self) -> Option<&[u64]> {
        None
    }

    /// The client sends what it can send already. Its share of the input begins with `x`, in the input's domain or one
    /// that reduces to it ([`Domain::reduces_to`]).
    ///
    /// # Errors
    /// As [`BackendParty::setup`].
    fn feed(&mut self, _channel: &mut Channel, _x: &[u64]) -> Result<(), BackendError> {
        Ok(())
    }

    /// The server receives what the client sends when it knows the first `count` values of its share ([`feed`](Self::feed)). It need
    /// not know its own yet.
    ///
    /// # Errors
    /// As [`BackendParty::setup`].
    fn receive(&mut self, _channel: &mut Channel, _count: usize) -> Result<(), BackendError> {
        Ok(())
    }

    /// Passes the rest of what depends on the input share `x` alone, all of it there, `[C, H, W]` in the input's
    /// domain.
    ///
    /// # Errors
    /// As [`BackendParty::setup`].
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError>;

    /// Makes this party's share of the output, or begins to; whatever still has to pass, passes.
    ///
    /// # Errors
    /// As [`BackendParty::setup`].
    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError>;
}

/// A party's share of a layer's output, which may be made as it is wanted: then what follows the layer begins before
/// all of it is there. When it is made concerns this party alone; no message depends on it.
pub trait Output: Send {
    /// The first values, as many as are made.
    fn values(&self) -> &[u64];

    /// Makes at least the first `count` values (all, if there are not so many).
    fn make(&mut self, count: usize);

    /// Makes the rest. Who takes them wipes them.
    fn into_values(self: Box<Self>) -> Vec<u64>;
}

/// Made at once.
impl Output for Zeroizing<Vec<u64>> {
    fn values(&self) -> &[u64] {
        self
    }

    fn make(&mut self, _count: usize) {}

    fn into_values(mut self: Box<Self>) -> Vec<u64> {
        std::mem::take(&mut **self)
    }
}

/// A way to compute linear layers: its layers, parameters, costs and parties.
pub trait Backend: Sync {
    /// Its name: of letters, digits and hyphens; in options, plans and reports.
    fn name(&self) -> &'static str;

    /// In a line, what it is.
    fn about(&self) -> &'static str;

    /// Whether each party's secrets are safe from the other one. A plan refuses a backend that is not, unless it is
    /// asked for by name in a function that says so.
    fn is_secure(&self) -> bool {
        true
    }

    /// Whether a query may have several images ([`Request::images`]).
    fn takes_batches(&self) -> bool {
        false
    }

    /// The name of the backends with which it shares rings and keys: the layers of all of them are planned together, by
    /// any one's [`plan`](Self::plan). Its own name, where there are no others.
    fn family(&self) -> &'static str {
        self.name()
    }

    /// Whether its outputs are products that nothing truncated: of [`Domain::excess`] f, in shares of
    /// [`Request::product_bits`].
    fn keeps_products(&self) -> bool;

    /// What its layers need to know of a machine to say what they take ([`Layer::work`]); none of a backend that says nothing. It has no
    /// default: a backend that forgot it would never be weighed.
    fn probes(&self) -> Vec<Probe>;

    /// The rings that a planner weighs for it, the one first that is taken where nothing was measured. None of a backend that does not
    /// read [`Request::ring`].
    fn rings(&self) -> &'static [ChosenRing] {
        &[]
    }

    /// Plans these layers.
    ///
    /// # Errors
    /// Which layer it cannot run, as an index into `requests`, and why.
    fn plan(&self, requests: &[Request<'_>]) -> Result<Arc<dyn Layers>, (usize, LayerError)>;
}

/// A backend as it is handed about. Two are the same if they have one name; a kit has one of each.
#[derive(Clone, Copy)]
pub struct BackendId(&'static dyn Backend);

impl BackendId {
    /// The handle of a backend, by which kits and options know it.
    pub const fn new(backend: &'static dyn Backend) -> Self {
        Self(backend)
    }

    /// The backend that the handle stands for.
    pub fn backend(self) -> &'static dyn Backend {
        self.0
    }

    /// What options and reports call it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

impl PartialEq for BackendId {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for BackendId {}

impl std::fmt::Display for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Debug for BackendId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// As its name. Who reads one back asks a kit.
impl serde::Serialize for BackendId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A layer of a plan, with its backend's others.
#[derive(Clone, Debug)]
pub struct Planned {
    layers: Arc<dyn Layers>,
    node: usize,
}

impl Planned {
    /// The layer of `node`, if `layers` has it.
    pub fn new(layers: Arc<dyn Layers>, node: usize) -> Option<Self> {
        layers.layer(node).is_some().then_some(Self { layers, node })
    }

    /// What options call the layer's backend.
    pub fn backend(&self) -> &'static str {
        self.layers.backend_of(self.node)
    }
}

impl Deref for Planned {
    type Target = dyn Layer;

    fn deref(&self) -> &Self::Target {
        self.layers.layer(self.node).expect("checked when it was made")
    }
}
