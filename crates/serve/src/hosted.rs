//! What a server serves: models by the interactive protocol ([`Models`](crate::Models)), or another protocol behind the same port.

use std::net::IpAddr;
use std::time::Duration;

use jaguar_engine::one_round;
use jaguar_engine::server::{HintBudget, Notice, QueriesSpent};
use jaguar_engine::{EngineError, Stock};
use jaguar_net::tls::Fingerprint;
use jaguar_wire::Channel;

use crate::limits::Refusal;
use crate::places::{Memory, Place};
use crate::watched::Session;
use crate::{Event, Hear, Shared};

/// A client, as far as it has shown who it is.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The name that its token is known under, where tokens are needed.
    pub token: Option<String>,
    /// Its certificate, where one is needed.
    pub certificate: Option<Fingerprint>,
    /// Where it comes from; none of one that comes over a Unix socket.
    pub address: Option<IpAddr>,
    /// The common name in that, if it has one.
    pub subject: Option<String>,
}

impl Caller {
    /// What it has shown, in a text that no other client has: the name of its token, else its certificate's fingerprint.
    pub fn identity(&self) -> Option<String> {
        let certificate = || self.certificate.as_ref().map(|it| format!("certificate {it}"));
        self.token.as_ref().map(|name| format!("token {name}")).or_else(certificate)
    }

    /// The name that rules know it under: its token's, the common name in its certificate, or the certificate's fingerprint.
    pub fn name(&self) -> Option<String> {
        let certificate = || self.subject.clone().or_else(|| Some(self.certificate?.to_string()));
        self.token.clone().or_else(certificate)
    }
}

/// A client's visit: who it is, and what the server's rules allow it.
pub struct Visit<'a> {
    pub(crate) caller: Caller,
    pub(crate) name: Option<String>,
    pub(crate) place: &'a Place,
    pub(crate) session: &'a Session,
    pub(crate) shared: &'a Shared,
    pub(crate) hear: &'a Hear,
}

impl Visit<'_> {
    /// What the client has shown of who it is.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The name that rules know it under, if it has shown who it is.
    pub fn client(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether it may use a model.
    pub fn may_use(&self, model: &str) -> bool {
        self.shared.register.rules().may_use(self.client(), model)
    }

    /// The hints that it may have, or its address if it has not shown who it is.
    pub fn hints(&self) -> Option<&HintBudget> {
        self.place.hints.as_deref()
    }

    /// Counts a query to a model about so many images, if the client may have as many more.
    ///
    /// # Errors
    /// What the client is to be told, if its session ends with that.
    pub fn count_query(&self, model: &str, images: u64) -> Result<(), QueriesSpent> {
        let counted = self.shared.register.count_query(self.client(), model, images);
        let written = counted.map_err(|why| self.session.spend(why))?;
        // The query is answered all the same: who runs the server hears that a restart would forget it.
        written.unwrap_or_else(|e| (self.hear)(Event::NotCounted(&e)));
        Ok(())
    }

    /// Takes memory for the session, if there is as much.
    ///
    /// # Errors
    /// What the client is to be told.
    pub fn take_memory(&self, bytes: u64) -> Result<Memory, EngineError> {
        self.place.take_memory(bytes).map_err(|why| match why.is_for_now() {
            true => EngineError::Later(self.refused(why)),
            false => EngineError::Refused(self.refused(why)),
        })
    }

    /// Notes that the session ends with a refusal, and gives what the client is to be told.
    pub(crate) fn refused(&self, why: Refusal) -> String {
        self.session.refuse(why)
    }
}

/// A model that is served, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// The name that clients ask for.
    pub name: String,
    /// No client waits for it to be prepared.
    pub ready: bool,
    /// How many open sessions are about it.
    pub sessions: usize,
}

/// Something that clients have sessions with.
pub trait Hosted: Send + Sync + 'static {
    /// Does once what is done before any session; sessions may begin meanwhile. `done` hears of each model that is prepared.
    fn prepare(&self, _done: &mut dyn FnMut(&str, Duration)) {}

    /// Bytes of memory that the smallest session takes, as it will [take](Visit::take_memory) them: without as much, a client waits for
    /// a place.
    fn least_memory(&self) -> u64 {
        0
    }

    /// Serves one client until it leaves. `tell` hears of what was done; nothing is under way for the client then.
    ///
    /// # Errors
    /// When the connection fails, the client breaks the protocol, or it may not have what it asks for. The client is told.
    fn serve(
        &self,
        channel: Channel,
        visit: &Visit<'_>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), EngineError>;

    /// Prepared queries that are kept for all clients.
    fn kept(&self) -> Stock {
        Stock::default()
    }

    /// The models that it has, if clients choose.
    fn models(&self) -> Vec<ModelState> {
        Vec::new()
    }
}

/// What a session tells its server while it runs.
#[derive(Debug)]
pub enum Told {
    /// The name of the model that it is about.
    Model(String),
    /// What became of a query of the interactive protocol.
    Query(Notice),
    /// What happened in a session of a one-round protocol.
    OneRound(one_round::Notice),
}
