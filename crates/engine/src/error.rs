//! What ends a session, sorted by who is to blame.

use std::path::Path;

use std::time::Duration;

use jaguar_graph::bundle::{BundleError, FileError};
use jaguar_linear::backend::BackendError;
use jaguar_mpc::MpcError;
use jaguar_ot::OtError;
use jaguar_plan::PlanError;
use jaguar_wire::WireError;

/// A client has had as many queries as it may have today: what it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueriesSpent(pub String);

/// What ends a session. The other party is told, as well as the connection still can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The connection, or what came over it, whatever protocol ran then.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// What failed in oblivious transfer.
    #[error("oblivious transfer: {0}")]
    Ot(OtError),
    /// What failed in a nonlinear layer.
    #[error("nonlinear layer: {0}")]
    Mpc(MpcError),
    /// The network cannot be run with these parameters.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What happened in the middle of a layer.
    #[error("layer '{layer}', {stage}: {source}")]
    InLayer {
        /// What the network calls the node.
        layer: String,
        /// The stage, in words: hint, offline or online.
        stage: &'static str,
        /// What happened there.
        source: Box<EngineError>,
    },
    /// What happened between layers.
    #[error("{source}, found by this side ({step})")]
    AtStep {
        /// Stage and label: `client: base OTs`.
        step: String,
        /// What happened there.
        source: Box<EngineError>,
    },
    /// The peer speaks another version, or is no Jaguar.
    #[error("this is protocol version {ours}, the peer's is {theirs}: use the same release on both sides")]
    Version {
        /// The version that this program speaks.
        ours: u32,
        /// The version that the peer speaks.
        theirs: u32,
    },
    /// The parties have no protocol in common.
    #[error("the client can do {wanted}; the server offers {offered}")]
    NoCommonProtocol {
        /// What the client can do.
        wanted: String,
        /// The protocols that the server offers.
        offered: String,
    },
    /// What a one-round protocol says of its own side.
    #[error("protocol '{name}': {reason}")]
    Protocol {
        /// The protocol's name, as both parties say it.
        name: String,
        /// What it says, in its own words.
        reason: String,
    },
    /// This side cannot do, or does not do, what it is asked for. The peer is told so in the same words.
    #[error("{0}")]
    Refused(String),
    /// This side does not do for now what it is asked for. The peer is told so in the same words, and may come back later.
    #[error("{0}")]
    Later(String),
    /// The client has had as many queries as it may have today. It is told so in the same words.
    #[cfg(feature = "server")]
    #[error(transparent)]
    QueriesSpent(#[from] QueriesSpent),
    /// The server has computed as much of hints as it may for now.
    #[error("the server has made as many hints as it may for now: come back in {} s", whole_seconds(*wait))]
    HintsSpent {
        /// When it may make this one.
        wait: Duration,
    },
    /// The server has computed as much of hints for the client (or its address, where clients show nothing else) as it may for now.
    #[error(
        "the server has made as many hints for this client as it may for now: come back in {} s",
        whole_seconds(*wait)
    )]
    AddressHintsSpent {
        /// When it may make this one.
        wait: Duration,
    },
    /// A client that holds prepared queries at the server has asked for nothing for too long.
    #[error("nothing was asked for within {} s: what was prepared is dropped", whole_seconds(*limit))]
    Idle {
        /// How long the server waits for a client that asks for nothing.
        limit: Duration,
    },
    /// The peer sent something that cannot be right.
    #[error("the peer broke the protocol: {0}")]
    PeerMisbehaved(String),
    /// A compiled model that cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A hint that cannot be used.
    #[error("hint: {0}")]
    Hint(String),
    /// Something the caller gave is not what the network takes.
    #[error("{0}")]
    Input(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Seconds of a time, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

// A connection that fails is said to be one, not what ran over it: by this the user's program knows that it may ask again.
// What the peer sent wrongly stays what a protocol found: the peer is not told which value that was (`for_peer`).

impl From<OtError> for EngineError {
    fn from(error: OtError) -> Self {
        match error {
            OtError::Wire(error) if !matches!(error, WireError::PeerMisbehaved { .. }) => Self::Wire(error),
            other => Self::Ot(other),
        }
    }
}

impl From<MpcError> for EngineError {
    fn from(error: MpcError) -> Self {
        match error {
            MpcError::Wire(error) if !matches!(error, WireError::PeerMisbehaved { .. }) => Self::Wire(error),
            MpcError::Ot(error) => error.into(),
            other => Self::Mpc(other),
        }
    }
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Wire(error) => Self::Wire(error),
            other => Self::PeerMisbehaved(other.to_string()),
        }
    }
}

impl EngineError {
    pub(crate) fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        FileError::new(what, path, source).into()
    }

    /// Tells the peer, as well as the connection still can, why the session ends here, and whether it may come back later.
    pub(crate) fn tell(&self, channel: &mut jaguar_wire::Channel) {
        let text = self.for_peer();
        match self.is_for_now() {
            true => channel.put_off(&text),
            false => channel.abort(&text),
        }
    }

    /// Whether what ended the session holds for now only.
    fn is_for_now(&self) -> bool {
        match self.root() {
            Self::Later(_) | Self::HintsSpent { .. } | Self::AddressHintsSpent { .. } => true,
            #[cfg(feature = "server")]
            Self::QueriesSpent(_) => true,
            Self::Wire(_)
            | Self::Ot(_)
            | Self::Mpc(_)
            | Self::Plan(_)
            | Self::InLayer { .. }
            | Self::AtStep { .. }
            | Self::Version { .. }
            | Self::NoCommonProtocol { .. }
            | Self::Protocol { .. }
            | Self::Refused(_)
            | Self::Idle { .. }
            | Self::PeerMisbehaved(_)
            | Self::Bundle(_)
            | Self::Hint(_)
            | Self::Input(_)
            | Self::File(_) => false,
        }
    }

    /// What the peer is told: never a value, a path, or anything else of this side's.
    pub(crate) fn for_peer(&self) -> String {
        match self {
            Self::PeerMisbehaved(_)
            | Self::Version { .. }
            | Self::NoCommonProtocol { .. }
            | Self::Refused(_)
            | Self::Later(_)
            | Self::HintsSpent { .. }
            | Self::AddressHintsSpent { .. }
            | Self::Idle { .. } => self.to_string(),
            #[cfg(feature = "server")]
            Self::QueriesSpent(_) => self.to_string(),
            Self::Wire(e @ (WireError::PeerMisbehaved { .. } | WireError::Idle { .. })) => e.to_string(),
            Self::Ot(OtError::PeerMisbehaved { .. }) => "you broke the protocol: oblivious transfer".into(),
            Self::Wire(_) | Self::Ot(_) | Self::Mpc(_) => "the connection failed on the other side".into(),
            Self::Plan(PlanError::Leaks(_)) => {
                "the plan's comparisons leak, and the client does not accept that".into()
            }
            Self::Plan(_) => "the network cannot be planned".into(),
            Self::InLayer { source, .. } | Self::AtStep { source, .. } => source.for_peer(),
            Self::Bundle(_) | Self::Hint(_) | Self::Input(_) | Self::File(_) | Self::Protocol { .. } => {
                "the other side gave up for reasons of its own".into()
            }
        }
    }

    /// The same error, saying at which step of the session it was found, where it does not say so itself: what a channel
    /// tells has its step, and what happens in a layer its layer and stage.
    pub(crate) fn during(self, step: &str) -> Self {
        match self {
            Self::PeerMisbehaved(what) => Self::PeerMisbehaved(format!("{what} ({step})")),
            Self::Ot(_) | Self::Mpc(_) | Self::Plan(_) | Self::Hint(_) => {
                Self::AtStep { step: step.to_owned(), source: Box::new(self) }
            }
            other => other,
        }
    }

    /// What happened, without the layer and the step that it happened in.
    pub fn root(&self) -> &Self {
        match self {
            Self::InLayer { source, .. } | Self::AtStep { source, .. } => source.root(),
            other => other,
        }
    }

    pub(crate) fn in_layer(self, layer: &str, stage: &'static str) -> Self {
        Self::InLayer { layer: layer.to_owned(), stage, source: Box::new(self) }
    }
}
