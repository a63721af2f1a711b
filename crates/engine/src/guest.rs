//! What a server brings to a session beside the model: what all its models share, and its own rules for the client.

use std::sync::{Arc, Mutex, PoisonError};

use crate::budget::{HintBudget, Limits};
use crate::error::QueriesSpent;
use crate::kept::keys::KeyShelf;
use crate::kept::shelf::KeepLimits;
use crate::kept::stock::Stock;

/// What all models of a server share: how much clients may take of it together.
#[derive(Clone)]
pub struct Common {
    pub(crate) hints: Arc<HintBudget>,
    pub(crate) keep: KeepLimits,
    pub(crate) kept: Arc<Mutex<Stock>>,
    pub(crate) keys: Arc<KeyShelf>,
}

impl Common {
    /// Nothing taken yet.
    pub fn new(limits: Limits, keep: KeepLimits) -> Self {
        let keys = Arc::new(KeyShelf::new(keep.keys));
        Self { hints: Arc::new(HintBudget::new(limits)), keep, kept: Arc::default(), keys }
    }

    /// Prepared queries that are kept and under way, for all clients and models.
    pub fn kept(&self) -> Stock {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Common {
    fn default() -> Self {
        Self::new(Limits::default(), KeepLimits::default())
    }
}

/// A client, as far as the server's own rules concern a session. The default allows everything.
#[derive(Clone, Copy, Default)]
pub struct Guest<'a> {
    /// The hints that the client's address may have, beside the bound for all clients.
    pub hints: Option<&'a HintBudget>,
    /// Who the client has shown to be, in a text that no other client has; none: nobody in particular. A ticket works for the one that it
    /// was given to.
    pub client: Option<&'a str>,
    /// Asked before a query about so many images is prepared, which counts from then on, whether or not it is run.
    pub query: Option<&'a dyn Fn(u64) -> Result<(), QueriesSpent>>,
}
