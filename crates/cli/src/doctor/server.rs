//! A server, as a client reaches it.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use jaguar::EngineError;
use jaguar::client::{Connected, Limits, Reveal, connect};
use jaguar::hint::HintPlace;
use jaguar::machine::memory::room;
use jaguar::net::tls::Certificate;
use jaguar::net::{Address, Steps};
use jaguar::plan::memory::{Load, Side};
use jaguar::reports::tables::plan::words;
use jaguar::reports::terminal::in_one_line;
use jaguar::reports::terminal::table::bytes;
use jaguar::wire::framed::Options;
use jaguar::wire::{Channel, WireError};

use super::{Args, Cache, Findings, files};
use crate::kit::kit;
use crate::notes::warning_of_memory;

/// Addresses of one name that are tried, at most, and for how long each.
const TRIED: usize = 8;
const PATIENCE: Duration = Duration::from_secs(3);

/// A link below this makes a query wait for bytes, one above for rounds.
const SLOW: f64 = 2e6;
const FAR: f64 = 0.15;

pub(super) fn look(text: &str, args: &Args, cache: &Cache<'_>, findings: &mut Findings) {
    let address: Address = match text.parse() {
        Ok(address) => address,
        Err(e) => {
            let e: jaguar::net::NoAddress = e;
            findings.fail(
                "address",
                e.to_string(),
                "as in server.example:7447 or wss://server.example/jaguar",
            );
            return;
        }
    };
    if !resolves(&address, findings) {
        return;
    }
    let dialer = match args.trust.dialer(text) {
        Ok(dialer) => dialer,
        Err(e) => {
            findings.fail("options", in_one_line(e.as_ref()), "as for jaguar predict");
            return;
        }
    };
    let mut steps = Steps::default();
    let connection = dialer.connect_noting(Options::default(), &mut steps);
    tell_steps(&address, &steps, args, findings);
    match connection {
        Err(error) => fail_at(&address, &steps, &error, findings),
        Ok(connection) => session(Channel::new(connection), cache, findings),
    }
}

/// Whether the name has an address.
fn resolves(address: &Address, findings: &mut Findings) -> bool {
    let Some(host) = address.host_and_port() else { return true };
    let found = match address.resolve() {
        Ok(found) if !found.is_empty() => found,
        other => {
            let why = other.err().map_or_else(|| "no address".to_owned(), |e| e.to_string());
            let advice = "look at the spelling, and at the name server: getent hosts NAME";
            findings.fail("address", format!("{host} does not resolve ({why})"), advice);
            return false;
        }
    };
    let shown: Vec<String> = found.iter().take(TRIED).map(SocketAddr::to_string).collect();
    let shown = shown.join(", ");
    // Where there are several, one that does not answer costs every client its patience.
    let tried: &[SocketAddr] = if found.len() > 1 { &found[..found.len().min(TRIED)] } else { &[] };
    let dead: Vec<String> = tried
        .iter()
        .filter_map(|at| Some(format!("{at} ({})", TcpStream::connect_timeout(at, PATIENCE).err()?)))
        .collect();
    if dead.is_empty() || dead.len() == tried.len() {
        findings.ok("address", format!("{host} is {shown}"));
    } else {
        let advice = "take it out of the name's addresses, or name another address";
        findings.warn("address", format!("{host} is {shown}; nobody answers at {}", dead.join(", ")), advice);
    }
    true
}

/// Tells of the steps to the server that went well.
fn tell_steps(address: &Address, steps: &Steps, args: &Args, findings: &mut Findings) {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    if let Some(time) = steps.connected {
        findings.ok("connection", format!("{address}, after {}", ms(time)));
    }
    if let Some(time) = steps.secured {
        findings.ok("tls", format!("TLS 1.3, the certificate is believed; after {}", ms(time)));
    } else if steps.greeted.is_some() && !address.is_local() {
        let advice = "leave TLS on (--tls auto), or put a tunnel in front";
        findings.warn("tls", "in the clear: who is on the way can read and change what is said", advice);
    }
    if let Some(certificate) = steps.certificate.as_deref().and_then(Certificate::of) {
        // A pinned one is believed whatever its date and names are.
        let Certificate { fingerprint, .. } = certificate;
        if args.trust.pins() {
            findings.ok("server certificate", format!("the pinned one, fingerprint {fingerprint}"));
        } else {
            let whose = "the server's";
            let renew = "tell its operator to renew it";
            files::validity("server certificate", &certificate, whose, renew, findings);
        }
    }
    if let Some(time) = steps.opened {
        findings.ok("websocket", format!("opened after {}", ms(time)));
    }
    if let Some(time) = steps.greeted {
        findings.ok("greeting", format!("a Jaguar of this wire version; after {}", ms(time)));
    }
}

/// Tells of the step that went wrong first, and what to do.
fn fail_at(address: &Address, steps: &Steps, error: &WireError, findings: &mut Findings) {
    let error = in_one_line(error);
    let websocket = address.says_tls().is_some();
    let (check, advice) = if steps.connected.is_none() {
        ("connection", "is the server running there, is this its port, and does a firewall let you through?")
    } else if steps.secured.is_none() && !websocket && steps.greeted.is_none() && error.contains("TLS") {
        (
            "tls",
            "compare --pin with the fingerprint in the server's log, on another way than this connection; with --ca, look at \
             the names and dates of the certificate and at this clock; --tls must be as the server's",
        )
    } else if websocket && steps.opened.is_none() && !error.contains("TLS with") {
        (
            "websocket",
            "does the proxy pass on WebSockets (Upgrade, Connection) on this path, to a Jaguar server?",
        )
    } else if error.contains("TLS") {
        (
            "tls",
            "compare --pin with the server's log; behind a proxy that ends TLS and that you trust: --accept-proxy",
        )
    } else {
        (
            "greeting",
            "use the same release on both sides; is this the port of jaguar serve, and not of its metrics?",
        )
    };
    findings.fail(check, error, advice);
}

/// Versions, the model, and the link, inside a session.
fn session(channel: Channel, cache: &Cache<'_>, findings: &mut Findings) {
    let begun = Instant::now();
    let connected = match connect(
        &kit(),
        channel,
        &Limits::default().with_room(room().map(|room| room.bytes)),
    ) {
        Ok(connected) => connected,
        Err(EngineError::NoCommonProtocol { offered, .. }) => {
            let advice =
                "ask it with the same --protocol; the link is measured with interactive servers only";
            findings.warn("session", format!("the server offers {offered} only"), advice);
            return;
        }
        Err(error) => {
            let advice = match &error {
                EngineError::Version { .. } => "use the same release on both sides",
                EngineError::Wire(WireError::PeerAborted(_)) => {
                    "the server says why; a token is shown with --token-file, a certificate with --cert and --key"
                }
                EngineError::Wire(WireError::PeerBusy(_)) => "the server says when to come back",
                _ => "use the same release on both sides, and look at the server's log",
            };
            findings.fail("session", in_one_line(&error), advice);
            return;
        }
    };
    let reveals = match connected.reveal() {
        Reveal::Logits => "all logits",
        Reveal::Label => "the label only",
    };
    let (name, model) = (&connected.network().name, connected.model());
    let took = begun.elapsed().as_secs_f64() * 1e3;
    findings.ok(
        "session",
        format!("serves {name} (model {model}), reveals {reveals}; agreed after {took:.0} ms"),
    );
    needs(&connected, cache, findings);
    let measured = connected.prepare_client(HintPlace::Memory).and_then(|ready| {
        let (link, ready) = ready.measure_link()?;
        ready.leave().map(|()| link)
    });
    match measured {
        Err(error) => {
            let advice =
                "the server's log says what it made of it; a link that breaks here breaks in a query";
            findings.fail("link", in_one_line(&error), advice);
        }
        Ok(link) if link.bytes_per_second < SLOW => {
            let advice =
                "most of a query's time goes into bytes: see jaguar plan MODEL --link for smaller backends";
            findings.warn("link", words(&link), advice);
        }
        Ok(link) if link.round_trip > FAR => {
            let advice = "most of a query's time goes into rounds: a server nearer by, or predict --keep";
            findings.warn("link", words(&link), advice);
        }
        Ok(link) => findings.ok("link", words(&link)),
    }
}

/// What this client needs for the server's model.
fn needs(connected: &Connected, Cache(cache): &Cache<'_>, findings: &mut Findings) {
    let (network, plan) = (connected.network(), connected.plan());
    let load = Load::single(jaguar::reports::terminal::threads());
    match warning_of_memory(network, plan, load, Side::Client) {
        Some(warning) => {
            findings.warn("query memory", warning, "end other programs, or raise the container's limit")
        }
        None => findings.ok("query memory", "a query of this model fits"),
    }
    let hint = plan.hint_bytes() as u64;
    match cache.and_then(files::free) {
        Some(free) if free < hint => {
            let found = format!("the hint has {}, and {} are free", bytes(hint), bytes(free));
            findings.warn(
                "hint",
                found,
                "make room, or name another folder with --cache; else it is fetched every time",
            );
        }
        _ => findings.ok("hint", format!("{}, once", bytes(hint))),
    }
}
