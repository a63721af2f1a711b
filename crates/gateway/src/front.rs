//! What answers requests: HTTP/1.1 and HTTP/2 on one port, JSON and gRPC.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::asker::{Asker, Now};
use crate::metrics::{Metrics, Protocol};
use crate::model::{About, PLATFORM};
use crate::output::outputs;
use crate::refusal::Refusal;
use crate::wiped::Wiped;
use crate::{grpc, rest};

/// Bytes that a request may have.
pub const LONGEST: usize = 64 << 20;

/// Bytes that all requests may have that are being read or answered.
const ALL: usize = 2 * LONGEST;

/// What they are counted in.
const UNIT: usize = 1 << 10;

/// How long a request's body may take to come.
const BODY: Duration = Duration::from_secs(60);

/// How long what is too long is read all the same, so that its sender sees the answer.
const DRAIN: Duration = Duration::from_secs(5);

/// The description of the paths.
const OPENAPI: &str = include_str!("openapi.json");

/// The extensions that are known here.
const EXTENSIONS: [&str; 1] = ["binary_tensor_data"];

/// An answer's bytes, and what gRPC has behind them.
pub struct Content {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

/// One that is answered at the moment.
struct Active<'a>(&'a AtomicUsize);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What all connections share.
pub struct Front {
    pub asker: Asker,
    pub metrics: Arc<Metrics>,
    /// The model's name here, where it is not the model's own.
    name: Option<String>,
    /// Whether only who is on this machine may ask.
    local: bool,
    bodies: Arc<Semaphore>,
    active: AtomicUsize,
}

impl Front {
    pub fn new(asker: Asker, metrics: Arc<Metrics>, name: Option<String>, local: bool) -> Self {
        let bodies = Arc::new(Semaphore::new(ALL / UNIT));
        Self { asker, metrics, name, local, bodies, active: AtomicUsize::new(0) }
    }

    /// Whether a request is being answered.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst) > 0
    }

    pub async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Content> {
        self.active.fetch_add(1, Ordering::SeqCst);
        let _active = Active(&self.active);
        let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
        let grpc = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
        if grpc {
            let answer = self.grpc(request).await;
            let (code, frame) = match &answer {
                Ok(frame) => (0, Some(frame.clone())),
                Err(refusal) => (refusal.code(), None),
            };
            self.metrics.answered(Protocol::grpc, code.into());
            return grpc_response(code, answer.err(), frame);
        }
        let response = self.http(request).await.unwrap_or_else(|refusal| refused(&refusal));
        self.metrics.answered(Protocol::http, response.status().as_u16());
        response
    }

    /// Web pages, and who came by another name than this machine's, are not answered.
    fn check_sender(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        if request.headers().contains_key(ORIGIN) {
            return Err(Refusal::Forbidden("web pages are not answered here".into()));
        }
        let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(|authority| authority.as_str()).or(named);
        match host {
            Some(host) if self.local && !is_local(host) => Err(Refusal::Forbidden(format!(
                "{host:?} is no name of this machine for itself: localhost and 127.0.0.1 are"
            ))),
            _ => Ok(()),
        }
    }

    /// The model's name, and what is so now.
    fn model(&self) -> (String, Now) {
        let now = self.asker.now();
        (self.name.clone().unwrap_or_else(|| now.about.name().to_owned()), now)
    }

    /// The model of this name and version, if it is the one that is here.
    fn find(&self, name: &str, version: &str) -> Result<(String, Now), Refusal> {
        let (own, now) = self.model();
        if name != own {
            return Err(Refusal::Unknown(format!("there is no model '{name}' here: it is '{own}'")));
        }
        let there = now.about.version();
        if !version.is_empty() && version != there {
            let text = format!("there is no version '{version}' of model '{own}' here: it is '{there}'");
            return Err(Refusal::Unknown(text));
        }
        Ok((own, now))
    }

    // ---- HTTP ----

    async fn http(&self, request: Request<Incoming>) -> Result<Response<Content>, Refusal> {
        self.check_sender(&request)?;
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (model, action) = match parts[..] {
            ["v2", "models", name] => (Some((name, "")), None),
            ["v2", "models", name, "versions", version] => (Some((name, version)), None),
            ["v2", "models", name, action] => (Some((name, "")), Some(action)),
            ["v2", "models", name, "versions", version, action] => (Some((name, version)), Some(action)),
            _ => (None, None),
        };
        let get = || match *request.method() {
            Method::GET => Ok(()),
            _ => Err(Refusal::Method("GET")),
        };
        match (parts.as_slice(), model, action) {
            (_, Some((name, version)), Some("infer")) => {
                if request.method() != Method::POST {
                    return Err(Refusal::Method("POST"));
                }
                let (own, now) = self.find(name, version)?;
                self.infer(request, own, now).await
            }
            (_, Some((name, version)), None) => {
                get()?;
                let (own, now) = self.find(name, version)?;
                let about = &now.about;
                Ok(told(&json!({
                    "name": own,
                    "versions": [about.version()],
                    "platform": PLATFORM,
                    "inputs": about.inputs(),
                    "outputs": about.outputs(),
                    "properties": about.properties(),
                })))
            }
            (_, Some((name, version)), Some("ready")) => {
                get()?;
                self.find(name, version)?;
                ready(&self.asker.now()).map(|()| told(&json!({ "name": name, "ready": true })))
            }
            (["v2"], ..) => {
                get()?;
                Ok(told(&json!({ "name": PLATFORM, "version": VERSION, "extensions": EXTENSIONS })))
            }
            (["v2", "health", "live"], ..) => get().map(|()| told(&json!({ "live": true }))),
            (["v2", "health", "ready"], ..) => {
                get()?;
                ready(&self.asker.now()).map(|()| told(&json!({ "ready": true })))
            }
            (["openapi.json"], ..) => {
                get()?;
                Ok(response(StatusCode::OK, "application/json", Bytes::from_static(OPENAPI.as_bytes())))
            }
            (["metrics"], ..) => {
                get()?;
                let text = self.metrics.text(ready(&self.asker.now()).is_ok(), self.asker.waiting());
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                Ok(response(StatusCode::OK, kind, text.into()))
            }
            _ => Err(Refusal::Unknown(format!("there is no {path} here; /openapi.json says what there is"))),
        }
    }

    async fn infer(
        &self,
        request: Request<Incoming>,
        name: String,
        now: Now,
    ) -> Result<Response<Content>, Refusal> {
        let begun = Instant::now();
        let headers = request.headers();
        if headers.get(CONTENT_ENCODING).is_some_and(|how| how != "identity") {
            return Err(Refusal::Unsupported("compressed requests are not read".into()));
        }
        let json_length = match headers.get(rest::JSON_LENGTH) {
            None => None,
            Some(text) => {
                let length = text.to_str().ok().and_then(|text| text.parse::<usize>().ok());
                let wrong = || Refusal::Invalid(format!("{} is no number: {text:?}", rest::JSON_LENGTH));
                Some(length.ok_or_else(wrong)?)
            }
        };
        let (body, room) = self.body(request).await?;
        let (about, most) = (now.about, self.asker.most());
        let of = about.clone();
        let asked = blocking(move || {
            let asked = rest::read(&of, &body, json_length, most);
            drop((body, room));
            asked
        });
        let rest::Asked { inputs, wanted, form } = asked.await?;
        let predictions = self.asker.ask(&about, inputs.integers).await?;
        let tensors = outputs(&about, predictions, &wanted)?;
        let (body, json_length) = rest::write((&name, &about), form, inputs.warning, &tensors);
        let kind = if json_length.is_some() { "application/octet-stream" } else { "application/json" };
        let mut response = response(StatusCode::OK, kind, Bytes::from_owner(body));
        if let Some(length) = json_length {
            response.headers_mut().insert(HeaderName::from_static(rest::JSON_LENGTH), length.into());
        }
        self.metrics.inferred(begun.elapsed());
        Ok(response)
    }

    /// A request's body, and its place among those that are read.
    async fn body(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Wiped<u8>, Vec<OwnedSemaphorePermit>), Refusal> {
        let announced = request.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|text| text.to_str().ok()?.parse::<usize>().ok()).unwrap_or(0);
        let mut incoming = request.into_body();
        let read = async {
            let (mut body, mut room) = (Wiped::default(), Vec::new());
            let take = |bytes: usize, room: &mut Vec<OwnedSemaphorePermit>| {
                let units = bytes.div_ceil(UNIT) as u32;
                let taken = self.bodies.clone().try_acquire_many_owned(units);
                room.push(taken.map_err(|_| Refusal::later("too many large requests come at once", 1))?);
                Ok(())
            };
            if announced > LONGEST {
                return Err(Refusal::TooLarge(LONGEST));
            }
            if announced > 0 {
                take(announced, &mut room)?;
                body = Wiped::with_room(announced);
            }
            while let Some(data) = next(&mut incoming).await? {
                if body.len() + data.len() > LONGEST {
                    return Err(Refusal::TooLarge(LONGEST));
                }
                if body.len() + data.len() > announced {
                    take(data.len(), &mut room)?;
                }
                body.extend(&data);
            }
            Ok((body, room))
        };
        let read = timeout(BODY, read).await.unwrap_or(Err(Refusal::Slow(BODY.as_secs())));
        if matches!(read, Err(Refusal::TooLarge(_) | Refusal::Later { .. })) {
            let _ = timeout(DRAIN, async { while let Ok(Some(_)) = next(&mut incoming).await {} }).await;
        }
        read
    }

    // ---- gRPC ----

    async fn grpc(&self, request: Request<Incoming>) -> Result<Bytes, Refusal> {
        self.check_sender(&request)?;
        let path = request.uri().path().to_owned();
        let Some(method) = path.strip_prefix(grpc::SERVICE) else {
            return Err(Refusal::Unsupported(format!("there is no {path} here")));
        };
        match method {
            "ServerLive" => Ok(grpc::framed(&grpc::Flag { is: true })),
            "ServerReady" => Ok(grpc::framed(&grpc::Flag { is: ready(&self.asker.now()).is_ok() })),
            "ServerMetadata" => Ok(grpc::framed(&grpc::ServerMetadata {
                name: PLATFORM.to_owned(),
                version: VERSION.to_owned(),
                extensions: EXTENSIONS.map(str::to_owned).to_vec(),
            })),
            "ModelReady" | "ModelMetadata" => {
                let (body, _room) = self.body(request).await?;
                let which: grpc::Which = grpc::unframed(Bytes::from_owner(body))?;
                let (name, now) = self.find(&which.name, &which.version)?;
                match method {
                    "ModelReady" => Ok(grpc::framed(&grpc::Flag { is: ready(&now).is_ok() })),
                    _ => Ok(grpc::framed(&grpc::metadata(&name, &now.about))),
                }
            }
            "ModelInfer" => self.grpc_infer(request).await,
            other => Err(Refusal::Unsupported(format!("{other} is no method here"))),
        }
    }

    async fn grpc_infer(&self, request: Request<Incoming>) -> Result<Bytes, Refusal> {
        let begun = Instant::now();
        let (body, room) = self.body(request).await?;
        let (own, now) = self.model();
        let most = self.asker.most();
        let of = now.about.clone();
        let asked = blocking(move || {
            let request: grpc::Request = grpc::unframed(Bytes::from_owner(body))?;
            let which = (request.model.clone(), request.version.clone());
            let asked = grpc::read(&of, request, most);
            drop(room);
            Ok((which, asked))
        });
        let ((name, version), asked) = asked.await?;
        self.find(&name, &version)?;
        let grpc::Asked { inputs, wanted, form } = asked?;
        let about: &About = &now.about;
        let predictions = self.asker.ask(about, inputs.integers).await?;
        let tensors = outputs(about, predictions, &wanted)?;
        let frame = grpc::write((&own, about), form, inputs.warning, &tensors);
        self.metrics.inferred(begun.elapsed());
        Ok(frame)
    }
}

/// The release of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs what computes beside the threads that hear requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // (A panic was reported; it is this program's mistake, but the request's that found it.)
    spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Refusal::Invalid("reading the request broke off".into())))
}

/// The next bytes of a body.
async fn next(incoming: &mut Incoming) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(Refusal::Invalid(format!("the request broke off: {e}"))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Whether inputs are answered now, and why not.
fn ready(now: &Now) -> Result<(), Refusal> {
    match &now.away {
        Some(why) => Err(Refusal::later(format!("the server is away: {why}"), 1)),
        None if !now.prepared => Err(Refusal::later("no query is prepared yet", 1)),
        None => Ok(()),
    }
}

/// Whether `host`, with a port or without, is a name of this machine for itself.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let address: Result<IpAddr, _> = bare.parse();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Content> {
    let mut response = Response::new(Content { data: Some(body), trailers: None });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn told(value: &serde_json::Value) -> Response<Content> {
    response(StatusCode::OK, "application/json", value.to_string().into())
}

fn refused(refusal: &Refusal) -> Response<Content> {
    let body = json!({ "error": refusal.to_string() }).to_string();
    let mut response = response(refusal.status(), "application/json", body.into());
    match refusal {
        Refusal::Later { seconds, .. } => {
            response.headers_mut().insert(RETRY_AFTER, (*seconds).into());
        }
        Refusal::Method(method) => {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
        }
        Refusal::Invalid(_)
        | Refusal::Forbidden(_)
        | Refusal::Unknown(_)
        | Refusal::TooLarge(_)
        | Refusal::Slow(_)
        | Refusal::Unsupported(_) => {}
    }
    response
}

/// gRPC's status is behind its message; where there is none, among the headers.
fn grpc_response(code: u8, refusal: Option<Refusal>, frame: Option<Bytes>) -> Response<Content> {
    let mut status = HeaderMap::new();
    status.insert("grpc-status", u16::from(code).into());
    if let Some(text) = refusal.and_then(|refusal| percent(&refusal.to_string())) {
        status.insert("grpc-message", text);
    }
    let (headers, trailers) = if frame.is_some() { (None, Some(status)) } else { (Some(status), None) };
    let mut response = Response::new(Content { data: frame, trailers });
    response.headers_mut().extend(headers.unwrap_or_default());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A message of gRPC's, in which bytes that are no letters of ASCII are escaped.
fn percent(text: &str) -> Option<HeaderValue> {
    let escape = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    HeaderValue::from_str(&text.bytes().map(escape).collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_told_from_others() {
        for host in ["127.0.0.1:8000", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["attacker.example:8000", "10.0.0.7", "localhost.attacker.example", "", "[::2]:8000"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn messages_are_escaped() {
        let text = percent("100 % of\nthe ünits").map(|text| text.as_bytes().to_vec());
        assert_eq!(text.as_deref(), Some(&b"100 %25 of%0Athe %C3%BCnits"[..]));
    }
}
