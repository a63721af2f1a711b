//! The opening of a WebSocket: the client's request, and the server's answer.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jaguar_wire::{ByteStream, WireError, see_out, turn_away};
use tungstenite::Error;
use tungstenite::client::IntoClientRequest;
use tungstenite::error::{CapacityError, ProtocolError, SubProtocolError};
use tungstenite::handshake::client::ClientHandshake;
use tungstenite::handshake::server::{ErrorResponse, Request, Response, ServerHandshake};
use tungstenite::handshake::{HandshakeError, HandshakeRole};
use tungstenite::http::{HeaderValue, StatusCode, header};

use super::stream::Pipe;
use super::{SUBPROTOCOL, WebSocketStream, config};

/// Opens a WebSocket over `socket`, which is connected to the server of `url` (`ws://` or `wss://`).
///
/// # Errors
/// When the server does not answer within `patience`, or with anything else than an opened WebSocket of Jaguar's.
pub(crate) fn connect(
    socket: Box<dyn ByteStream>,
    url: &str,
    patience: Duration,
) -> Result<WebSocketStream, WireError> {
    let socket: Arc<dyn ByteStream> = socket.into();
    let pipe = Pipe::direct(Arc::clone(&socket), Vec::new(), Instant::now() + patience);
    let opened = url.into_client_request().and_then(|mut request| {
        let ours = HeaderValue::from_static(SUBPROTOCOL);
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, ours);
        ClientHandshake::start(pipe, request, Some(config()))
    });
    let opened = opened.and_then(|started| started.handshake().map_err(failed));
    match opened {
        Ok((websocket, _)) => Ok(WebSocketStream::new(socket, websocket)),
        Err(failure) => {
            see_out(&*socket);
            Err(error(failure, url, patience, "an opened WebSocket of a Jaguar server"))
        }
    }
}

/// Waits for the rest of the request of `peer`, of which `first` came already, and answers it. A page of a web site, which says
/// so by its origin, must be of one of `origins`: else any page that a user of a browser looks at could ask in that user's place.
///
/// # Errors
/// When the client asks for something else (it is told), or says nothing within `patience`.
pub(crate) fn accept(
    socket: Box<dyn ByteStream>,
    first: Vec<u8>,
    (peer, origins): (&str, &[String]),
    patience: Duration,
) -> Result<WebSocketStream, WireError> {
    let socket: Arc<dyn ByteStream> = socket.into();
    let pipe = Pipe::direct(Arc::clone(&socket), first, Instant::now() + patience);
    let mut refused = None;
    // (The library's callback gives its page by value.)
    #[allow(clippy::result_large_err)]
    let answer = |request: &Request, response: Response| match refusal(request, origins) {
        None => Ok(agreed(response)),
        Some((status, why)) => {
            let page = page(status, &why);
            refused = Some(why);
            Err(page)
        }
    };
    match ServerHandshake::start(pipe, answer, Some(config())).handshake() {
        Ok(websocket) => Ok(WebSocketStream::new(socket, websocket)),
        Err(failure) => {
            let failure = failed(failure);
            let known = matches!(failure, Error::Http(_) | Error::Io(_));
            if known {
                see_out(&*socket);
            } else {
                turn_away(&*socket, b"GET ", "");
            }
            let expected = "a Jaguar client";
            Err(match refused {
                Some(found) => WireError::misbehaved(WHAT, found, format!("{expected} at {peer}")),
                None => error(failure, peer, patience, expected),
            })
        }
    }
}

/// What is opened, for messages.
const WHAT: &str = "the opening of a WebSocket";

fn agreed(mut response: Response) -> Response {
    let ours = HeaderValue::from_static(SUBPROTOCOL);
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, ours);
    response
}

/// Why a request is not granted.
fn refusal(request: &Request, origins: &[String]) -> Option<(StatusCode, String)> {
    let headers = request.headers();
    let allowed = |origin: &HeaderValue| origins.iter().any(|known| origin.as_bytes() == known.as_bytes());
    if let Some(origin) = headers.get_all(header::ORIGIN).iter().find(|origin| !allowed(origin)) {
        let shown = origin.as_bytes().escape_ascii();
        return Some((
            StatusCode::FORBIDDEN,
            format!("pages of \"{shown}\", which --allow-origin does not name"),
        ));
    }
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let found = offered.map(str::trim).any(|protocol| protocol == SUBPROTOCOL);
    (!found)
        .then(|| (StatusCode::BAD_REQUEST, format!("a WebSocket without the subprotocol '{SUBPROTOCOL}'")))
}

fn page(status: StatusCode, why: &str) -> ErrorResponse {
    let mut page = ErrorResponse::new(Some(format!(
        "This is a Jaguar private-inference server. It does not serve {why}.\r\n"
    )));
    *page.status_mut() = status;
    for (name, value) in [(header::CONNECTION, "close"), (header::CONTENT_TYPE, "text/plain")] {
        page.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    page
}

/// Why there is no WebSocket.
fn failed<R: HandshakeRole>(failure: HandshakeError<R>) -> Error {
    match failure {
        HandshakeError::Failure(error) => error,
        // (Memory that would block: there is none while the network itself is read.)
        HandshakeError::Interrupted(_) => Error::ConnectionClosed,
    }
}

/// What went wrong with `peer`, which had `patience`.
fn error(failure: Error, peer: &str, patience: Duration, expected: &str) -> WireError {
    let waiting_for = || format!("waiting for {WHAT} with {peer}");
    let found = match failure {
        Error::Io(e) if e.kind() == ErrorKind::TimedOut => {
            return WireError::Silent { silence: patience, waiting_for: waiting_for() };
        }
        Error::Io(source) if !is_gone(&source) => return WireError::Io { what: waiting_for(), source },
        Error::Io(_) | Error::ConnectionClosed | Error::Protocol(ProtocolError::HandshakeIncomplete) => {
            return WireError::Closed { waiting_for: waiting_for() };
        }
        Error::Http(answer) => format!("HTTP {}", answer.status()),
        Error::AttackAttempt => "a head that is too long, or comes in too many pieces".into(),
        Error::Capacity(CapacityError::TooManyHeaders) => "a head of too many lines".into(),
        Error::Protocol(ProtocolError::HttparseError(_)) => "no HTTP".into(),
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol | SubProtocolError::InvalidSubProtocol,
        )) => format!("a WebSocket without the subprotocol '{SUBPROTOCOL}'"),
        Error::Protocol(other) => format!("HTTP ({other})"),
        other => format!("HTTP ({other})"),
    };
    WireError::misbehaved(WHAT, found, format!("{expected} at {peer}"))
}

fn is_gone(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected)
}
