//! Who is let in, and who is told to come back later.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jaguar_engine::server::HintBudget;

/// How much a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients that have greeted. A client that keeps prepared queries counts twice: it has two connections.
    pub clients: usize,
    /// Connections that have not greeted, of which one address may have a quarter, and one range of addresses half. They have a few
    /// seconds for it; beyond it, who comes has the place of one that is silent, which is dropped without a word.
    pub ungreeted: usize,
    /// Clients that have greeted, found no place and wait for one, of which one client may have a quarter.
    pub waiting: usize,
    /// Of `clients`, those that come from one address.
    pub clients_per_address: usize,
    /// Sessions that one address may begin in an hour, in the long run; after a quiet time, so many at once. (Of IPv6, an
    /// address is the first half of one: the rest is a customer's own.)
    pub sessions_per_address_and_hour: NonZeroU32,
    /// Hints an hour that are computed for one client, or for one address where clients do not show who they are, in the long run, beside the bound for all clients; after a quiet time some
    /// more at once.
    pub hints_per_address_and_hour: NonZeroU32,
    /// Bytes of a session, both ways together.
    pub session_bytes: u64,
    /// Bytes of memory that sessions may take together, as they are estimated.
    pub memory: u64,
    /// How long a client may ask for nothing.
    pub idle: Duration,
    /// The same, while others wait for a place.
    pub idle_when_full: Duration,
    /// How long no data may come from a client in the middle of what it asked for. (That its process lives is not data.)
    pub stalled: Duration,
}

impl Default for Limits {
    /// 8 clients, all of one address if need be; 64 that wait, and 64 connections that have not greeted; 3600 sessions and 120 hints an hour and address;
    /// any number of bytes, any memory; an hour between requests, half a minute if others wait, five minutes in the middle of one.
    fn default() -> Self {
        Self {
            clients: 8,
            ungreeted: 64,
            waiting: 64,
            clients_per_address: 8,
            sessions_per_address_and_hour: const { NonZeroU32::new(3600).expect("more than none") },
            hints_per_address_and_hour: const { NonZeroU32::new(120).expect("more than none") },
            session_bytes: u64::MAX,
            memory: u64::MAX,
            idle: Duration::from_secs(3600),
            idle_when_full: Duration::from_secs(30),
            stalled: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// A budget for one client or address: a quarter of an hour's hints may come at once.
    pub(crate) fn hints_of_address(&self) -> Arc<HintBudget> {
        let hints_per_hour = self.hints_per_address_and_hour;
        let hints_at_once = NonZeroU32::new(hints_per_hour.get().div_ceil(4)).unwrap_or(NonZeroU32::MIN);
        Arc::new(HintBudget::new(jaguar_engine::server::Limits { hints_at_once, hints_per_hour }))
    }
}

/// Why a client is not served. What it displays is what the client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many clients as the limit allows are there.
    #[error(
        "the server is busy with as many clients as it takes ({limit}); try again later, in {again} seconds or more"
    )]
    Busy {
        /// How many clients the server takes.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// As many as the limit allows are there from its address.
    #[error(
        "{limit} clients from this address are being served, and no more are at once; try again later, in {again} seconds or more"
    )]
    AddressBusy {
        /// How many clients it takes from one address.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// Its address has begun as many sessions as the limit allows.
    #[error(
        "this address has begun as many sessions as the server takes from one ({an_hour} an hour); come back in {again} seconds"
    )]
    TooOften {
        /// How many sessions an address may begin in an hour.
        an_hour: u32,
        /// After how many seconds it may begin another.
        again: u64,
    },
    /// As many sessions as the limit allows are open for it.
    #[error(
        "{limit} sessions of this client are open, and no more are at once; try again later, in {again} seconds or more"
    )]
    ClientBusy {
        /// How many sessions a client may have at once.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// It has asked as much as it may today.
    #[error(
        "this client has asked the {limit} queries that it may ask in a day (UTC); come back in {again} seconds"
    )]
    QueriesSpent {
        /// How many queries a client may ask in a day.
        limit: u64,
        /// Seconds until the next day begins.
        again: u64,
    },
    /// It has asked a model as much as it may today.
    #[error(
        "this client has asked the {limit} queries that it may ask model '{model}' in a day (UTC); come back in {again} seconds"
    )]
    ModelQueriesSpent {
        /// The name of that model.
        model: String,
        /// How many queries a client may ask the model in a day.
        limit: u64,
        /// Seconds until the next day begins.
        again: u64,
    },
    /// The memory for sessions is taken.
    #[error(
        "the server's memory for sessions is taken ({limit} bytes, of which this one needs {need}); try again later, in {again} seconds \
         or more"
    )]
    Memory {
        /// Bytes of memory that this session would take.
        need: u64,
        /// Bytes of memory that all sessions may take.
        limit: u64,
        /// After how many seconds to try again.
        again: u64,
    },
    /// The session takes more than all sessions may.
    #[error(
        "a session of this model takes {need} bytes of memory, and this server gives {limit} to all sessions together: it cannot be \
         served here; ask the server's operator"
    )]
    MemoryNever {
        /// Bytes of memory that this session would take.
        need: u64,
        /// Bytes of memory that all sessions may take.
        limit: u64,
    },
    /// As many hints have been computed as the limit allows for now.
    #[error("{told}")]
    Hints {
        /// For this client, or its address; else for all.
        of_address: bool,
        /// The reason, as the client was told it.
        told: String,
    },
    /// It names no model, and may use several.
    #[error("this server has several models: name one of {names} (--model)")]
    WhichModel {
        /// Those that it may use, with commas between.
        names: String,
    },
    /// It names no model, and may use none.
    #[error("this server has no model for this client; its operator says who may use which")]
    NoModel,
    /// The model that it names is not there, or not for this client.
    #[error("this server has no model '{name}' for this client, which may use {names}")]
    NoSuchModel {
        /// The model that it asked for.
        name: String,
        /// Those that it may use, with commas between.
        names: String,
    },
    /// It shows no token, where one is needed.
    #[error("this server lets nobody in without a token; its operator gives them out")]
    NoToken,
    /// Its token is not known, or not any more.
    #[error("this server does not know the token; ask its operator for another")]
    UnknownToken,
    /// The tokens cannot be looked at.
    #[error("the server cannot tell at present who is let in; try again later, in {again} seconds or more")]
    TokensUnreadable {
        /// After how many seconds to try again.
        again: u64,
    },
    /// The server is ending.
    #[error("the server is shutting down; come back in {again} seconds or more, or ask another one")]
    ShuttingDown {
        /// After how many seconds another may have taken its place.
        again: u64,
    },
    /// The client asked for nothing for too long.
    #[error("nothing was asked for within {limit:?}; connect again when there is something to ask")]
    Idle {
        /// How long a client may ask for nothing.
        limit: Duration,
    },
    /// The client asked for nothing, and others waited for a place.
    #[error(
        "nothing was asked for within {limit:?}, and others wait for a place; connect again when there is something to ask"
    )]
    GaveWay {
        /// How long a client may ask for nothing while others wait.
        limit: Duration,
    },
    /// The client stopped in the middle.
    #[error("{told}")]
    Stalled {
        /// The reason, as the client was told it. How the session ended says at which step, too.
        told: String,
    },
    /// The client keeps prepared queries here, and asked for nothing for too long.
    #[error("{told}")]
    KeptIdle {
        /// The reason, as the client was told it.
        told: String,
    },
    /// It asked for what this server does not do, or cannot do now.
    #[error("{told}")]
    NotDone {
        /// The reason, as the client was told it.
        told: String,
    },
    /// The session has moved too much.
    #[error("the session has moved the {limit} bytes that one may move; connect again for more")]
    Bytes {
        /// How many bytes a session may move.
        limit: u64,
    },
}

/// When a client that found all places taken may try again. Places become free whenever a client leaves.
pub(crate) const SOON: u64 = 10;

/// When another server may have taken the place of one that is shutting down.
pub(crate) const AFTER_RESTART: u64 = 30;

/// The word for connections that are dropped since too many have not greeted.
pub(crate) const NOT_GREETED: &str = "not-greeted";

impl Refusal {
    /// All that [`kind`](Self::kind) can be, and the word for connections that were dropped before they greeted.
    pub(crate) const KINDS: [&str; 23] = [
        "busy",
        "address-busy",
        "too-often",
        "client-busy",
        "queries-spent",
        "model-queries-spent",
        "memory",
        "which-model",
        "hints",
        "address-hints",
        "no-model",
        "no-such-model",
        "no-token",
        "unknown-token",
        "tokens-unreadable",
        "shutting-down",
        "idle",
        "gave-way",
        "kept-idle",
        "stalled",
        "bytes",
        "not-done",
        NOT_GREETED,
    ];

    /// Whether the client should come back later: the server would do the same for it then. (One that is shutting down would not.)
    pub fn is_for_now(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::AddressBusy { .. }
            | Self::TooOften { .. }
            | Self::ClientBusy { .. }
            | Self::QueriesSpent { .. }
            | Self::ModelQueriesSpent { .. }
            | Self::Memory { .. }
            | Self::Hints { .. }
            | Self::TokensUnreadable { .. } => true,
            Self::MemoryNever { .. }
            | Self::WhichModel { .. }
            | Self::NoModel
            | Self::NoSuchModel { .. }
            | Self::NoToken
            | Self::UnknownToken
            | Self::ShuttingDown { .. }
            | Self::Idle { .. }
            | Self::GaveWay { .. }
            | Self::KeptIdle { .. }
            | Self::NotDone { .. }
            | Self::Stalled { .. }
            | Self::Bytes { .. } => false,
        }
    }

    /// A word for it, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::AddressBusy { .. } => "address-busy",
            Self::TooOften { .. } => "too-often",
            Self::ClientBusy { .. } => "client-busy",
            Self::QueriesSpent { .. } => "queries-spent",
            Self::ModelQueriesSpent { .. } => "model-queries-spent",
            Self::Memory { .. } | Self::MemoryNever { .. } => "memory",
            Self::WhichModel { .. } => "which-model",
            Self::Hints { of_address: false, .. } => "hints",
            Self::Hints { of_address: true, .. } => "address-hints",
            Self::NoModel => "no-model",
            Self::NoSuchModel { .. } => "no-such-model",
            Self::NoToken => "no-token",
            Self::UnknownToken => "unknown-token",
            Self::TokensUnreadable { .. } => "tokens-unreadable",
            Self::ShuttingDown { .. } => "shutting-down",
            Self::Idle { .. } => "idle",
            Self::GaveWay { .. } => "gave-way",
            Self::KeptIdle { .. } => "kept-idle",
            Self::NotDone { .. } => "not-done",
            Self::Stalled { .. } => "stalled",
            Self::Bytes { .. } => "bytes",
        }
    }
}
