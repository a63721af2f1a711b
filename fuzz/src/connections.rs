//! What is around a connection: WebSockets, TLS, and the plain HTTP of who asks for figures.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use jaguar_net::tls::{Client, Server, Trust};
use jaguar_net::{Address, Dialer, Incoming, Peer, Steps};
use jaguar_serve::foreign::scrape;
use jaguar_wire::framed::Options;
use jaguar_wire::{Framed, Transport};
use tungstenite::handshake::derive_accept_key;

use crate::doubles::{Fed, Written, lock};
use crate::files::scratch;
use crate::greetings::GREETING;
use crate::script::Script;
use crate::{Bound, Target};

pub(crate) fn targets() -> Vec<Target> {
    // A message of a WebSocket may have 1 MiB, and what came of it is copied when it is whole.
    let bound = Bound { fixed: 8 << 20, per_byte: 128 };
    let small = Bound { fixed: 256 << 10, per_byte: 64 };
    vec![
        Target {
            name: "websocket",
            run: websocket,
            seeds: websocket_seeds,
            bound,
            longest: 4096,
            tried: 400,
        },
        Target { name: "tls", run: tls, seeds: tls_seeds, bound, longest: 4096, tried: 200 },
        Target {
            name: "metrics",
            run: metrics,
            seeds: metrics_seeds,
            bound: small,
            longest: 9216,
            tried: 2000,
        },
    ]
}

/// Who came to a server.
fn peer() -> Peer {
    Peer::Tcp((Ipv4Addr::LOCALHOST, 7).into())
}

/// Reads what comes inside until it ends.
fn hear(mut connection: Framed) {
    while connection.recv().is_ok() {}
}

/// What stands for the right answer to a client's key in what a server says.
const ACCEPT: &[u8] = b"{accept}";

/// A server of WebSockets that has said these bytes, once it knows the client's key.
fn answering(says: Vec<u8>, step: usize) -> Fed {
    let with_key = move |heard: &[u8]| {
        let mut says = says.clone();
        if let Some(at) = says.windows(ACCEPT.len()).position(|window| window == ACCEPT) {
            let heard = String::from_utf8_lossy(heard);
            let key = heard.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
            let key = derive_accept_key(key.unwrap_or_default().as_bytes());
            says.splice(at..at + ACCEPT.len(), key.into_bytes());
        }
        says
    };
    Fed::answering(with_key, step)
}

/// A client's request, as far as it is always the same.
const REQUEST: &[u8] = b"GET /jaguar HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// What its end must be.
const REQUEST_END: &[u8] = b"Sec-WebSocket-Protocol: jaguar\r\n\r\n";

/// A server's answer.
const RESPONSE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: {accept}\r\n";

/// A byte: which side this is, whether the opening is a sound one in front of the input, and how many bytes a read gives.
fn websocket(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, rest) = (script.byte(), script.rest());
    let step = usize::from(how >> 2) * 3 + 1;
    let opening = |head: &[u8]| {
        let parts: &[&[u8]] = if how & 2 == 0 { &[rest] } else { &[head, REQUEST_END, rest] };
        parts.concat()
    };
    let connection = if how & 1 == 0 {
        let stream = Box::new(Fed::new(opening(REQUEST), step));
        let origins = ["https://a.example".to_owned()];
        let greeted = Incoming::over(stream, peer(), None, &origins).greet(Options::default());
        greeted.map(|greeted| greeted.connection)
    } else {
        let stream = Box::new(answering(opening(RESPONSE), step));
        let address: Address = "ws://localhost:7800/jaguar".parse().expect("an address");
        Dialer::new(address).connect_over(stream, Options::default(), &mut Steps::default())
    };
    if let Ok(connection) = connection {
        hear(connection);
    }
}

/// A frame of a WebSocket. A client's is masked, with a mask of zeros.
fn frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..=125 => frame.push(mask | short as u8),
        long => {
            frame.push(mask | 126);
            frame.extend_from_slice(&(long as u16).to_be_bytes());
        }
    }
    if masked {
        frame.extend_from_slice(&[0; 4]);
    }
    frame.extend_from_slice(payload);
    frame
}

fn websocket_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (side, head, masked) in [(0u8, REQUEST, true), (1, RESPONSE, false)] {
        // What is inside: a greeting, data, a keep-alive, an abort.
        let greeting = [GREETING, &[0; 36]].concat();
        let inside: [&[u8]; 3] =
            [&[1, 3, 0, 0, 0, 97, 98, 99], &[2, 0, 0, 0, 0], &[3, 3, 0, 0, 0, 98, 121, 101]];
        let long = [&[1u8, 200, 0, 0, 0][..], &[7; 200][..]].concat();
        let frames = [
            vec![frame(0x82, &greeting, masked), frame(0x82, &inside.concat(), masked)],
            // In fragments, with a ping between them.
            vec![
                frame(2, &greeting[..9], masked),
                frame(0x89, b"a ping", masked),
                frame(0x80, &greeting[9..], masked),
                frame(0x82, &long, masked),
                frame(0x88, &[3, 232], masked),
            ],
            vec![frame(0x81, b"a text", masked)],
            vec![frame(0x82, &greeting, !masked)],
            // A length of 2^63 - 1, and the longest that is allowed, which does not come.
            vec![vec![0x82, if masked { 0xff } else { 0x7f }, 0x7f, 255, 255, 255, 255, 255, 255, 255]],
            vec![vec![0x82, if masked { 0xff } else { 0x7f }, 0, 0, 0, 0, 0, 0x10, 0, 5, 0, 0, 0, 0]],
        ];
        for frames in frames {
            seeds.push([&[side | 0xfe][..], &frames.concat()[..]].concat());
        }
        let first = frame(0x82, &greeting, masked);
        seeds.push([&[side | 0xfc][..], head, REQUEST_END, &first[..]].concat());
        seeds.push([&[side][..], head, b"Origin: https://a.example\r\n", REQUEST_END, &first[..]].concat());
        seeds.push([&[side | 0xfc][..], head, b"Origin: https://b.example\r\n", REQUEST_END].concat());
        seeds.push([&[side | 0xfc][..], head, b"\r\n"].concat());
    }
    seeds.push(b"\xfdHTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n".to_vec());
    seeds
}

/// A server's part of TLS, made once.
fn server() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(|| {
        let folder = scratch().join("tls-server");
        std::fs::create_dir_all(&folder).expect("a folder");
        Server::made(&folder, None).expect("a certificate")
    });
    &SERVER
}

fn secure_dialer(address: &str) -> Dialer {
    static CLIENT: LazyLock<Client> =
        LazyLock::new(|| Client::new(&Trust::Pin(server().fingerprint()), None).expect("no file"));
    Dialer::new(address.parse().expect("an address")).with_tls(CLIENT.clone())
}

/// A byte that says which side this is and how many bytes a read gives; then what the peer sends. (Its keys are new each time,
/// so no change to a recording gets behind the handshake; what is inside TLS is the other targets' matter.)
fn tls(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, bytes) = (script.byte(), script.rest().to_vec());
    let stream = Box::new(Fed::new(bytes, usize::from(how >> 2) * 8 + 1));
    let connection = match how & 3 {
        0 | 1 => {
            let greeted =
                Incoming::over(stream, peer(), Some(server().clone()), &[]).greet(Options::default());
            greeted.map(|greeted| greeted.connection)
        }
        2 => {
            let dialer = secure_dialer("localhost:7800");
            dialer.connect_over(stream, Options::default(), &mut Steps::default())
        }
        _ => {
            let dialer = secure_dialer("wss://localhost/jaguar");
            dialer.connect_over(stream, Options::default(), &mut Steps::default())
        }
    };
    if let Ok(connection) = connection {
        hear(connection);
    }
}

/// What a client says first, over TLS, and as a client of WebSockets.
fn hellos() -> [Vec<u8>; 2] {
    ["localhost:7800", "wss://localhost/jaguar"].map(|address| {
        let heard = Written::default();
        let stream = Box::new(Fed::new(Vec::new(), 1).keeping(heard.clone()));
        let connected =
            secure_dialer(address).connect_over(stream, Options::default(), &mut Steps::default());
        assert!(connected.is_err(), "nobody answers");
        std::mem::take(&mut *lock(&heard))
    })
}

fn tls_seeds() -> Vec<Vec<u8>> {
    let [hello, hello_http] = hellos();
    // What a server answers: its first flight, and an alert behind it (the same hello does not come twice).
    let heard = Written::default();
    let stream = Box::new(Fed::new(hello.repeat(2), hello.len()).keeping(heard.clone()));
    let _ = Incoming::over(stream, peer(), Some(server().clone()), &[]).greet(Options::default());
    let flight = std::mem::take(&mut *lock(&heard));
    let alert = vec![0x15, 3, 3, 0, 2, 2, 40];
    let clear = [GREETING, &[0; 36]].concat();
    let mut seeds = Vec::new();
    for (side, heard) in [(0xfcu8, &hello), (0xfc, &hello_http), (0xfe, &flight), (0xff, &flight)] {
        seeds.extend([heard, &alert, &clear].map(|bytes| [&[side][..], &bytes[..]].concat()));
    }
    seeds
}

/// A byte that says how much comes at once; then what who asks for figures says.
fn metrics(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, bytes) = (script.byte(), script.rest());
    let step = usize::from(how) * 4 + 1;
    let mut rest = bytes;
    let reply = scrape(&mut |buf| {
        let (now, later) = rest.split_at(rest.len().min(step).min(buf.len()));
        buf[..now.len()].copy_from_slice(now);
        rest = later;
        Ok(now.len())
    });
    assert!(reply.starts_with("HTTP/1.1 ") && reply.contains("\r\n\r\n"), "{reply}");
}

fn metrics_seeds() -> Vec<Vec<u8>> {
    let requests = [
        "GET /metrics HTTP/1.1\r\nHost: localhost:9100\r\nUser-Agent: Prometheus/2.42.0\r\n\r\n",
        "HEAD /ready?x=y HTTP/1.0\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET /metrics\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\n\r\n",
    ];
    let mut seeds: Vec<Vec<u8>> =
        requests.iter().flat_map(|text| [0, 255].map(|how| [&[how], text.as_bytes()].concat())).collect();
    seeds.push([&b"\xffGET /"[..], &[b'a'; 9000]].concat());
    seeds
}
