//! One-round sessions: evaluation keys go up once, an encrypted image goes up, an encrypted answer comes down.
//!
//! The handshake is the engine's ([`jaguar_engine::one_round`]); the server's [`Terms`] travel in it. Then, C being the client and S
//! the server:
//!
//! | from | message | content |
//! |---|---|---|
//! | C | client | 32 bytes that only this client knows |
//! | C | keys | length and BLAKE3 hash of its evaluation keys |
//! | S | have | how many bytes of them are on its disk, and the hash of those |
//! | C | from | where it goes on: there if its own file has that hash, else at 0 |
//! | C | *chunks* | of 1 MiB, each with the hash of everything up to its end |
//! | S | have | all |
//! | C | input | the encrypted image, and whether this client waits |
//! | S | ticket | 32 random bytes that name the answer |
//! | S | reply | its place in the queue; layers that are done; then the answer, or why there is none |
//! | C | received | S forgets the answer. It is sent as soon as the answer is there, before it is decrypted |
//!
//! "From", chunks and the second "have" are left out if S has all. A client may leave behind the ticket, and "collect" in a later
//! session. "Leave" ends a session.
//!
//! **Who owns keys and answers.** The name of a client's token, else its certificate, else the 32 bytes that it sends: they are drawn at
//! random and never shown, so that nobody can take another client's place ([`Owner`]).
//!
//! **A server that is started anew** finds inputs and answers on its disk (`records.rs`), and goes on. So a client that hears of the end
//! collects its answer later.
//!
//! Every length is known before a byte of it is read: those of keys, image and answer follow from the parameter set.

pub mod client;
mod desk;
mod limits;
mod message;
mod records;
pub mod server;
mod store;
#[cfg(test)]
mod tests;
pub(crate) use store::{hex, private_folder, unhex};

use std::net::IpAddr;

use jaguar_graph::float::Graph;
use jaguar_graph::import::{ImportError, Options, import_bytes};
use jaguar_graph::network::{ImageSpec, Operators, OutputPart, Shape};
use serde::{Deserialize, Serialize};

pub use desk::{Evaluation, Evaluator, Failure, OfClient};
pub use limits::DeskLimits;
pub use store::{KeyStore, StoreError};

/// The protocol's name in the handshake.
pub const NAME: &str = "convfhe";

/// Its version: both sides must have the same.
pub const VERSION: u32 = 5;

/// Names an answer that a server computes or keeps: 32 random bytes. Only the owner of the input gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket(pub [u8; 32]);

/// Who keys and answers belong to: a hash of what tells clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner([u8; 32]);

impl Owner {
    /// A client that has shown a token (by its name) or a certificate (by its fingerprint). `kind` keeps the two apart.
    pub fn known(kind: &str, name: &str) -> Self {
        Self::of(&[kind.as_bytes(), &[0], name.as_bytes()].concat())
    }

    /// A client of whom nothing is known but 32 bytes that it drew.
    pub fn unknown(client: &[u8; 32]) -> Self {
        Self::of(&[&b"drawn\0"[..], client].concat())
    }

    fn of(what: &[u8]) -> Self {
        Self(blake3::derive_key("jaguar convfhe 2026 owner of keys and answers", what))
    }
}

/// Who shares what a server has for keys. Anybody can draw names, and nobody addresses: so a client that has shown nothing shares with
/// all others of its address (IPv6: of its /64). One that has shown a token or a certificate shares with nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share([u8; 8]);

impl Share {
    /// A client that has shown who it is.
    pub fn known(owner: Owner) -> Self {
        Self::of(&[&b"owner\0"[..], &owner.0].concat())
    }

    /// One that has not, at this address; none: over a Unix socket.
    pub fn unknown(address: Option<IpAddr>) -> Self {
        let bytes = match address.map(|ip| ip.to_canonical()) {
            None => Vec::new(),
            Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets()[..8].to_vec(),
        };
        Self::of(&[&b"address\0"[..], &bytes].concat())
    }

    fn of(what: &[u8]) -> Self {
        let hash = blake3::derive_key("jaguar convfhe 2026 share of the storage for keys", what);
        Self(*hash.first_chunk().expect("32 bytes"))
    }
}

/// What a client must know of the model, for people and for its pictures. No weights, no layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facing {
    /// What the model is called, for people.
    pub name: String,
    /// `[C, H, W]` of the input.
    pub shape: Shape,
    /// The ONNX input's own dimensions without the batch.
    pub layout_dims: Vec<usize>,
    /// Whether the ONNX model takes `[H, W, C]`.
    pub channels_last: bool,
    /// How pictures become tensors.
    pub image: ImageSpec,
    /// An affine map behind that, by channel: `t·mul + add`. Empty: none.
    pub affine: Vec<(f32, f32)>,
    /// Outputs by name, and what the client applies to them. Empty: one without a name, as it is.
    pub parts: Vec<OutputPart>,
    /// Names of the classes; empty if there are none.
    pub labels: Vec<String>,
    /// What the client computes in the clear before it encrypts, if the server has only the last layers.
    pub first: Option<FirstLayers>,
}

/// The first layers of a network, which a client computes in the clear: it has them, weights included, as an ONNX file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstLayers {
    /// `[C, H, W]` of what they make: that is encrypted.
    pub shape: Shape,
    /// The BLAKE3 hash of the model's file.
    pub hash: [u8; 32],
}

/// Why first layers cannot be computed from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstError {
    /// The file is another one.
    #[error(
        "these are not the first layers of this model: the file's BLAKE3 is {found}, the server's model goes with {wanted}"
    )]
    Other {
        /// Of the file, in hexadecimal digits.
        found: String,
        /// Of the one that belongs to the model.
        wanted: String,
    },
    /// It cannot be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// It takes or makes something else.
    #[error("the first layers take {found:?}, not {wanted:?} as [inputs, outputs]")]
    Shape {
        /// Shapes of the file's input and output.
        found: [Shape; 2],
        /// The shapes of input and output that the model has.
        wanted: [Shape; 2],
    },
}

impl FirstLayers {
    /// Those in a file, whose last value has this shape.
    pub fn new(shape: Shape, file: &[u8]) -> Self {
        Self { shape, hash: *blake3::hash(file).as_bytes() }
    }

    /// Reads the layers from the bytes of a file; the network's input has the shape `input`.
    ///
    /// # Errors
    /// [`FirstError`].
    pub fn read(&self, bytes: &[u8], input: Shape) -> Result<Graph, FirstError> {
        let found = blake3::hash(bytes);
        let wanted = blake3::Hash::from_bytes(self.hash);
        if found != wanted {
            let [found, wanted] = [found, wanted].map(|hash| hash.to_hex().to_string());
            return Err(FirstError::Other { found, wanted });
        }
        let graph = import_bytes(bytes, "first layers", &Options::new(&Operators::standard()))?;
        let found = [graph.input_shape(), graph.nodes.last().expect("imported graphs have nodes").shape];
        let wanted = [input, self.shape];
        if found != wanted {
            return Err(FirstError::Shape { found, wanted });
        }
        Ok(graph)
    }
}

/// What a server offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The parameter set, by name.
    pub set: String,
    /// JSON of [`network::Public`](crate::network::Public): where the input stands, how logits are scaled.
    pub public: String,
    /// How many logits there are.
    pub outputs: usize,
    /// What clients see of the model.
    pub facing: Facing,
    /// Seconds for which an answer is kept until it is fetched.
    pub keep_answers: u64,
    /// Memory of an evaluation in bytes, as the server estimates it.
    pub memory: u64,
}

impl Terms {
    /// Checks what came from a server before any of it is shown or computed with.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn check(&self) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !self.set.chars().all(is_name) || !(1..=64).contains(&self.set.len()) {
            return Err(format!(
                "a parameter set called {:?}",
                self.set.chars().take(64).collect::<String>()
            ));
        }
        self.facing.check(self.outputs)
    }
}

/// Values of an input, at most.
const MAX_INPUT: usize = 1 << 24;

impl Facing {
    /// Checks what came from a server before anything is computed with it.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn check(&self, outputs: usize) -> Result<(), String> {
        let texts =
            [&self.name].into_iter().chain(&self.labels).chain(self.parts.iter().map(|part| &part.name));
        if texts.into_iter().any(|text| text.chars().any(char::is_control)) {
            return Err("names and labels that are no plain text".into());
        }
        let channels = self.shape[0];
        for shape in [&self.shape].into_iter().chain(self.first.as_ref().map(|first| &first.shape)) {
            let values = shape.iter().try_fold(1usize, |n, &side| n.checked_mul(side));
            if !values.is_some_and(|n| (1..=MAX_INPUT).contains(&n)) {
                return Err(format!("an input of the shape {shape:?}"));
            }
        }
        if !self.affine.is_empty() && self.affine.len() != channels {
            return Err(format!("{} affine maps for {channels} channels", self.affine.len()));
        }
        if [&self.image.mean, &self.image.factor].iter().any(|list| list.len() != channels) {
            return Err(format!("the preprocessing of pictures is not for {channels} channels"));
        }
        if self.labels.len() > outputs {
            return Err(format!("{} labels for {outputs} outputs", self.labels.len()));
        }
        let counted = self.parts.iter().try_fold(0usize, |all, part| all.checked_add(part.count()?));
        if !self.parts.is_empty() && counted != Some(outputs) {
            return Err(format!("parts of {counted:?} values for {outputs} outputs"));
        }
        Ok(())
    }

    /// Applies the affine map to a tensor `[C, H, W]`.
    pub fn mapped(&self, mut tensor: Vec<f32>) -> Vec<f32> {
        let plane = (tensor.len() / self.shape[0].max(1)).max(1);
        for (values, (mul, add)) in tensor.chunks_exact_mut(plane).zip(&self.affine) {
            values.iter_mut().for_each(|v| *v = *v * mul + add);
        }
        tensor
    }
}
