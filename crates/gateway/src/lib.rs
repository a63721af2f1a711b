//! A client for other programs of its machine: they ask in the Open Inference Protocol (KServe V2), over HTTP or gRPC, and the picture goes
//! no further than this process.
//!
//! ```text
//! programs ── JSON, binary tensors, gRPC ──> front ── integers ──> asker (kept queries) ── the private protocol ──> server
//! ```
//!
//! Requests and answers are wiped where this crate holds them. What the libraries of HTTP and gRPC keep in their buffers is not; nor does
//! reading a request take the same time for all pictures, which who asks could see, and nobody else.

mod asker;
mod front;
mod grpc;
mod input;
mod metrics;
mod model;
mod output;
mod refusal;
mod rest;
mod wiped;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jaguar::EngineError;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::asker::Asker;
use crate::front::Front;
use crate::metrics::Metrics;

pub use crate::asker::{Dial, Event, Hear, Options};
pub use crate::front::LONGEST;

/// Connections at once. Who comes beyond it waits.
const CONNECTIONS: usize = 256;

/// How long a connection may be silent between requests, and until it says what it speaks.
const SILENCE: [Duration; 2] = [Duration::from_secs(75), Duration::from_secs(10)];

/// Bytes of a request's head.
const HEAD: usize = 16 << 10;

/// How a connection of HTTP/2 begins.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";

/// How long requests that are being answered have when the gateway is told to end.
const GRACE: Duration = Duration::from_secs(10);

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// Nobody can come to this address.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's word.
        source: io::Error,
    },
    /// This is none.
    #[error("listening on {0}: that is no address and port (HOST:PORT)")]
    Address(String),
    /// The address can be reached from other machines.
    #[error(
        "{0} can be reached from other machines, and what is asked there is in the clear: pictures would go over the network, and whoever \
         reaches it could ask"
    )]
    Remote(SocketAddr),
    /// The server cannot be asked.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system gave no threads or no timers.
    #[error("starting: {0}")]
    Start(#[from] io::Error),
}

/// Listens at `HOST:PORT`: of this machine alone, unless `remote` says that others may come.
///
/// # Errors
/// When the address is none, not free, or not of this machine alone.
pub fn listen(address: &str, remote: bool) -> Result<TcpListener, GatewayError> {
    let at = |source| GatewayError::Listen { address: address.to_owned(), source };
    let found: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            return Err(GatewayError::Address(address.to_owned()));
        }
        Err(e) => return Err(at(e)),
    };
    if let Some(&other) = found.iter().find(|found| !found.ip().is_loopback())
        && !remote
    {
        return Err(GatewayError::Remote(other));
    }
    let listener = TcpListener::bind(&found[..]).map_err(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A gateway with a session to its server.
pub struct Gateway {
    front: Arc<Front>,
    listener: TcpListener,
    ended: Arc<Notify>,
}

/// Ends a gateway from another thread.
pub struct Ending(Arc<Notify>);

impl Ending {
    /// Requests that are being answered still are, for some seconds.
    pub fn end(&self) {
        self.0.notify_one();
    }
}

impl Gateway {
    /// Connects to the server by `dial`. `name` is the model's name for who asks here; none: its own. `hear` is told what happens.
    ///
    /// # Errors
    /// When the server cannot be reached, or the queries to keep take too much memory.
    pub fn start(
        listener: TcpListener,
        name: Option<String>,
        dial: Arc<Dial>,
        options: Options,
        hear: Arc<Hear>,
    ) -> Result<Self, GatewayError> {
        let metrics = Arc::<Metrics>::default();
        let local = listener.local_addr()?.ip().is_loopback();
        let asker = Asker::start(dial, options, hear, metrics.clone())?;
        let front = Arc::new(Front::new(asker, metrics, name, local));
        Ok(Self { front, listener, ended: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What ends it.
    pub fn ending(&self) -> Ending {
        Ending(self.ended.clone())
    }

    /// Answers requests until it is told to end.
    ///
    /// # Errors
    /// When the system gives no threads or no timers.
    pub fn run(self) -> Result<(), GatewayError> {
        let Self { front, listener, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let accepting = tokio::spawn(accept(front.clone(), listener));
            ended.notified().await;
            accepting.abort();
            let until = Instant::now() + GRACE;
            while front.is_active() && Instant::now() < until {
                sleep(Duration::from_millis(10)).await;
            }
            Ok::<(), GatewayError>(())
        })?;
        runtime.shutdown_background();
        front.asker.end(GRACE);
        Ok(())
    }
}

async fn accept(front: Arc<Front>, listener: tokio::net::TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // (It is closed by nobody.)
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let front = front.clone();
        tokio::spawn(async move {
            converse(front, stream).await;
            drop(place);
        });
    }
}

/// Answers what comes over one connection. What fails in it, its other end sees.
async fn converse(front: Arc<Front>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(Some(http2)) = timeout(SILENCE[1], begins_http2(&stream)).await else { return };
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { Ok::<_, std::convert::Infallible>(front.answer(request).await) }
    });
    let stream = TokioIo::new(stream);
    if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let builder = builder
            .timer(TokioTimer::new())
            .keep_alive_interval(SILENCE[0])
            .keep_alive_timeout(SILENCE[1])
            .max_concurrent_streams(64)
            .max_header_list_size(HEAD as u32);
        let _ = builder.serve_connection(stream, service).await;
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        let builder = builder.timer(TokioTimer::new()).header_read_timeout(SILENCE[0]).max_buf_size(4 * HEAD);
        let _ = builder.serve_connection(stream, service).await;
    }
}

/// Whether HTTP/2 is spoken. None where nothing more comes.
async fn begins_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0; HTTP2.len()];
    loop {
        let read = stream.peek(&mut first).await.ok().filter(|&read| read > 0)?;
        if first[..read] != HTTP2[..read] {
            return Some(false);
        }
        if read == HTTP2.len() {
            return Some(true);
        }
        sleep(Duration::from_millis(5)).await;
    }
}
