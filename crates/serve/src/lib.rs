//! A server on a TCP port: it accepts connections, limits how many it takes, and serves each client in a thread of its
//! own.
//!
//! Nothing here prints. What happens is told as an [`Event`], from whichever thread it happens in.
//!
//! | limit | what is beyond it |
//! |---|---|
//! | [`Limits::clients`] | is told that the server is busy, and turned away |
//! | [`Limits::ungreeted`] | connections that have not greeted yet: dropped without a word |

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use jaguar_engine::EngineError;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::{Notice, Service};
use jaguar_engine::stop::{Stop, Stoppable};
use jaguar_wire::tcp::{Incoming, Listener, Options, Tcp};
use jaguar_wire::{Channel, WireError};

/// How many a server takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients that have greeted. A client that keeps prepared queries counts twice: it has two connections.
    pub clients: usize,
    /// Connections that have not greeted. They have a few seconds for it ([`Options::greeting`]).
    pub ungreeted: usize,
}

impl Default for Limits {
    /// 8 clients, 64 connections that have not greeted.
    fn default() -> Self {
        Self { clients: 8, ungreeted: 64 }
    }
}

/// What happens to a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The model is prepared: no client waits for that any more.
    ModelPrepared(Duration),
    /// A client has greeted and is served.
    Connected(SocketAddr),
    /// What the session says of a client's query.
    Query(SocketAddr, &'a Notice),
    /// A client took its leave.
    Left(SocketAddr),
    /// A connection ended otherwise.
    Ended(SocketAddr, &'a ServeError),
    /// The system refused a connection; the server goes on.
    NotAccepted(&'a WireError),
    /// The system refused a thread; the connection is dropped.
    NoThread(&'a io::Error),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The peer is no client, or gone before it greeted.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] EngineError),
    /// As many clients as the limit allows were there.
    #[error("turned away: too many clients")]
    Busy,
}

/// A model, and the port that it is served on.
pub struct Server {
    service: Arc<Service>,
    listener: Listener,
    limits: Limits,
    channel: Arc<Make>,
    stop: Stop,
}

/// Makes channels of connections.
type Make = dyn Fn(Stoppable<Tcp>) -> Channel + Send + Sync;

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Stop,
    address: SocketAddr,
}

impl Stopper {
    /// Ends the server: it takes no more connections, and those that it has end at their next message.
    /// [`Server::run`] returns when they have.
    pub fn stop(&self) {
        self.stop.now();
        // Whoever waits for connections gets one.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}

impl Server {
    /// Serves `service` to who connects to `listener`.
    pub fn new(service: Service, listener: Listener, limits: Limits) -> Self {
        Self {
            service: Arc::new(service),
            listener,
            limits,
            channel: Arc::new(Channel::new),
            stop: Stop::default(),
        }
    }

    /// Makes channels of connections in another way: with a link imitated, say.
    #[must_use]
    pub fn with_channel(
        mut self,
        channel: impl Fn(Stoppable<Tcp>) -> Channel + Send + Sync + 'static,
    ) -> Self {
        self.channel = Arc::new(channel);
        self
    }

    /// What is served.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The address that clients connect to.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> Result<SocketAddr, WireError> {
        self.listener.address()
    }

    /// What ends it.
    ///
    /// # Errors
    /// When the system does not tell the server's address.
    pub fn stopper(&self) -> Result<Stopper, WireError> {
        Ok(Stopper { stop: self.stop.clone(), address: self.address()? })
    }

    /// Serves until a [`Stopper`] ends it, and prepares the model meanwhile. `hear` is called from every client's thread.
    ///
    /// # Errors
    /// When no thread can be started for the model. Later failures are a client's own, and told as events.
    pub fn run(self, hear: impl Fn(Event<'_>) + Send + Sync + 'static) -> io::Result<()> {
        let hear: Arc<Hear> = Arc::new(hear);
        // Clients may come at once: one without a hint gets it layer by layer, and waits no longer than for the layer
        // at hand.
        let (service, told, stop) = (self.service.clone(), hear.clone(), self.stop.clone());
        let preparing = Builder::new().name("model".into()).spawn(move || {
            let start = Instant::now();
            if service.prepare_model_unless(&stop, &mut NoProgress) {
                told(Event::ModelPrepared(start.elapsed()));
            }
        })?;
        let (clients, ungreeted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        loop {
            let accepted = self.listener.accept();
            if self.stop.is_asked() {
                break;
            }
            let incoming = match accepted {
                Ok(incoming) => incoming,
                Err(e) => {
                    hear(Event::NotAccepted(&e));
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            // Those that connect and say nothing are few at a time, and gone within seconds.
            let Some(place) = Place::take(&ungreeted, self.limits.ungreeted) else { continue };
            let one = Connection {
                service: self.service.clone(),
                channel: self.channel.clone(),
                stop: self.stop.clone(),
                clients: clients.clone(),
                limit: self.limits.clients,
                hear: hear.clone(),
            };
            let started = Builder::new().name("client".into()).spawn(move || one.serve(incoming, place));
            if let Err(e) = started {
                hear(Event::NoThread(&e));
            }
        }
        // What the model's thread panicked with was reported.
        let _ = preparing.join();
        while clients.load(Ordering::SeqCst) > 0 {
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// How long a server waits when the system refuses connections.
const PAUSE: Duration = Duration::from_millis(100);

/// How often a server that ends looks whether its clients have gone.
const LOOK: Duration = Duration::from_millis(10);

type Hear = dyn Fn(Event<'_>) + Send + Sync;

/// One of a limited number of places, free again when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        // Counted before it is compared: of two that come at once, one is turned away.
        let before = taken.fetch_add(1, Ordering::SeqCst);
        let place = Self(taken.clone());
        (before < limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What one connection's thread needs.
struct Connection {
    service: Arc<Service>,
    channel: Arc<Make>,
    stop: Stop,
    clients: Arc<AtomicUsize>,
    limit: usize,
    hear: Arc<Hear>,
}

impl Connection {
    fn serve(&self, incoming: Incoming, ungreeted: Place) {
        let peer = incoming.peer();
        match self.converse(incoming, ungreeted) {
            Ok(()) => (self.hear)(Event::Left(peer)),
            Err(e) => (self.hear)(Event::Ended(peer, &e)),
        }
    }

    fn converse(&self, incoming: Incoming, ungreeted: Place) -> Result<(), ServeError> {
        let peer = incoming.peer();
        let mut channel = (self.channel)(self.stop.over(incoming.greet(Options::default())?));
        drop(ungreeted);
        // Only who has greeted counts: one that says nothing must not keep a client out.
        let Some(_place) = Place::take(&self.clients, self.limit) else {
            channel.abort("the server is busy with as many clients as it takes; try again later");
            return Err(ServeError::Busy);
        };
        (self.hear)(Event::Connected(peer));
        Ok(self.service.serve(channel, &mut |notice| (self.hear)(Event::Query(peer, &notice)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_given_back() {
        let taken = Arc::new(AtomicUsize::new(0));
        let first = Place::take(&taken, 2).expect("free");
        let second = Place::take(&taken, 2).expect("free");
        assert!(Place::take(&taken, 2).is_none());
        assert_eq!(taken.load(Ordering::SeqCst), 2, "who is turned away takes no place");
        drop(first);
        let third = Place::take(&taken, 2).expect("free again");
        drop((second, third));
        assert_eq!(taken.load(Ordering::SeqCst), 0);
    }
}
