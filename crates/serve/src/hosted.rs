//! What a server serves: the interactive protocol ([`Service`]), or another one behind the same port.

use std::net::IpAddr;

use jaguar_engine::one_round;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::{Notice, Service};
use jaguar_engine::{EngineError, Stock};
use jaguar_net::tls::Fingerprint;
use jaguar_wire::Channel;

/// A client, as far as it has shown who it is.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The name that its token is known under, where tokens are needed.
    pub token: Option<String>,
    /// Its certificate, where one is needed.
    pub certificate: Option<Fingerprint>,
    /// Where it comes from; none of one that comes over a Unix socket.
    pub address: Option<IpAddr>,
}

/// Something that clients have sessions with.
pub trait Hosted: Send + Sync + 'static {
    /// Does once what is done before any session; sessions may begin meanwhile.
    fn prepare(&self) {}

    /// Serves one client until it leaves. `tell` hears of what was done; nothing is under way for the client then.
    ///
    /// # Errors
    /// When the connection fails or the client breaks the protocol. The client is told.
    fn serve(&self, channel: Channel, caller: &Caller, tell: &mut dyn FnMut(Told))
    -> Result<(), EngineError>;

    /// Prepared queries that are kept for all clients.
    fn kept(&self) -> Stock {
        Stock::default()
    }
}

/// What a session tells.
#[derive(Debug)]
pub enum Told {
    /// Of an interactive query.
    Query(Notice),
    /// Of a one-round session.
    OneRound(one_round::Notice),
}

impl Hosted for Service {
    fn prepare(&self) {
        self.prepare_model(&mut NoProgress);
    }

    fn serve(
        &self,
        channel: Channel,
        _caller: &Caller,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), EngineError> {
        self.serve(channel, &mut |notice| tell(Told::Query(notice)))
    }

    fn kept(&self) -> Stock {
        Service::kept(self)
    }
}
