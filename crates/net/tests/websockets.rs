//! WebSockets: the same connection inside messages, and what neither side takes.

mod site;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use jaguar_net::tls::{Client, Server, Trust};
use jaguar_net::{Dialer, Greeted, Listener};
use jaguar_wire::{Transport, WireError};
use rustls::{ServerConnection, StreamOwned};
use site::{
    Authority, Scratch, both, greet, listen, much_both_ways, options, refused, what_is_queued_arrives,
};

fn dial(address: &str) -> Dialer {
    Dialer::new(address.parse().expect("an address"))
}

/// The request of RFC 6455, section 1.3, and what it says that the answer must be.
const REQUEST: &str = "GET /any/path HTTP/1.1\r\nHost: server.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const OURS: &str = "Sec-WebSocket-Protocol: jaguar\r\n";

/// A frame with these first byte and payload; a client's has a mask.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        n @ 0..=125 => bytes.push(masked | n as u8),
        n @ 126..=0xffff => {
            bytes.push(masked | 126);
            bytes.extend((n as u16).to_be_bytes());
        }
        n => {
            bytes.push(masked | 127);
            bytes.extend((n as u64).to_be_bytes());
        }
    }
    let mask = mask.inspect(|mask| bytes.extend(mask)).unwrap_or_default();
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);

/// A head up to its empty line.
fn head(socket: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && socket.read_exact(&mut byte).is_ok() {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).expect("text")
}

/// A client without anything of this crate: it has opened a WebSocket, and sent nothing in it.
fn opened(address: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("listening");
    socket.write_all(format!("{REQUEST}{OURS}\r\n").as_bytes()).expect("sent");
    let answer = head(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    let lines: Vec<String> = answer.lines().map(str::to_lowercase).collect();
    for line in [format!("Sec-WebSocket-Accept: {ACCEPT}"), OURS.trim().into(), "Upgrade: websocket".into()] {
        assert!(lines.contains(&line.to_lowercase()), "no {line:?} in {answer}");
    }
    socket
}

/// The greeting of a client in the clear.
fn greeting() -> Vec<u8> {
    [&b"JAGUAR/0003 \r\n\r\n"[..], &[0; 36]].concat()
}

#[test]
fn the_same_bytes_pass() {
    let folder = Scratch::new("ws-made");
    let server = Server::made(folder.path(), None).expect("made");
    let client = Client::new(&Trust::Pin(server.fingerprint()), None).expect("sound");
    for (tls, url) in [(None, "ws"), (Some(server), "wss")] {
        let secure = tls.is_some();
        let (listener, address) = listen(tls);
        let dialer = dial(&format!("{url}://{address}/a/path?and=more"));
        let dialer = if secure { dialer.with_tls(client.clone()) } else { dialer };
        let (connected, accepted) = both(&listener, &dialer);
        much_both_ways(connected.expect("connected"), accepted.expect("greeted").connection);
        // The same port takes others as before.
        let dialer = dial(&address);
        let dialer = if secure { dialer.with_tls(client.clone()) } else { dialer };
        let (connected, accepted) = both(&listener, &dialer);
        assert!(connected.is_ok() && accepted.is_ok());
    }
}

#[test]
fn ends_are_orderly_inside_a_websocket() {
    let (listener, address) = listen(None);
    let dialer = dial(&format!("ws://{address}"));
    // What is queued when a side goes still arrives.
    let (client, server) = both(&listener, &dialer);
    what_is_queued_arrives(client.expect("connected"), server.expect("greeted").connection);
    // A peer that computes sends signs of life, and is waited for; an abort says why, either way.
    for aborts in [0, 1] {
        let (client, server) = both(&listener, &dialer);
        let mut ends = [client.expect("connected"), server.expect("greeted").connection];
        assert_eq!(ends[1 - aborts].recv_within(options().silence * 2).expect("alive"), None);
        ends[aborts].abort("no more of this");
        let error = ends[1 - aborts].recv().expect_err("given up");
        assert!(matches!(&error, WireError::PeerAborted(why) if why == "no more of this"), "{error}");
    }
}

#[test]
fn borders_and_fragments_mean_nothing_and_pings_are_answered() {
    let (listener, address) = listen(None);
    let raw = thread::spawn(move || {
        let mut socket = opened(&address);
        let greeting = greeting();
        // The greeting in three messages: one whole, one in fragments with a ping between, and an empty one.
        let (one, rest) = greeting.split_at(20);
        let (two, three) = rest.split_at(7);
        for (first, payload) in
            [(0x82, one), (0x02, two), (0x89, &b"are you there"[..]), (0x00, b""), (0x80, three), (0x82, b"")]
        {
            socket.write_all(&frame(first, payload, MASK)).expect("sent");
        }
        let mut answer = [0; 2 + 52 + 2 + 13];
        socket.read_exact(&mut answer).expect("the answer");
        // The pong waits for no more than what the server says next.
        let pong = frame(0x8a, b"are you there", None);
        let (pong_at, greeting_at) = if answer.starts_with(&pong) { (0, 15) } else { (54, 0) };
        assert_eq!(answer[pong_at..pong_at + 15], pong);
        assert_eq!(
            answer[greeting_at..greeting_at + 18],
            frame(0x82, &[0; 52], None)[..2]
                .iter()
                .chain(b"JAGUAR/0003 \r\n\r\n")
                .copied()
                .collect::<Vec<u8>>()[..]
        );
        // A frame of the connection inside: data, four bytes.
        socket.write_all(&frame(0x82, b"\x01\x04\0\0\0data", MASK)).expect("sent");
        socket
    });
    let Greeted { mut connection, .. } = greet(&listener).expect("greeted");
    assert_eq!(connection.recv().expect("data"), b"data");
    // It closes in the middle of a frame.
    let mut socket = raw.join().expect("no panic");
    socket.write_all(&frame(0x82, b"\x01\x04\0\0\0d", MASK)).expect("sent");
    socket.write_all(&frame(0x88, &1001u16.to_be_bytes(), MASK)).expect("sent");
    let error = connection.recv().expect_err("closed");
    assert!(matches!(error, WireError::Closed { .. }), "{error}");
    drop(connection);
    // The answer to that is a close frame, behind keep-alives.
    let mut said = Vec::new();
    socket.read_to_end(&mut said).expect("an end");
    assert!(said.ends_with(&frame(0x88, &1001u16.to_be_bytes(), None)), "{}", said.escape_ascii());
}

/// What the server says of a client that opens a WebSocket and then sends `words`, and the code that it closes with.
fn after_opening(listener: &Listener, address: &str, words: Vec<u8>) -> (WireError, Option<u16>) {
    let address = address.to_owned();
    let hostile = thread::spawn(move || {
        let mut socket = opened(&address);
        let _ = socket.write_all(&words);
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        said
    });
    let error = greet(listener).err().expect("nobody");
    let said = hostile.join().expect("no panic");
    let close =
        said.windows(4).find(|bytes| bytes[0] == 0x88).map(|bytes| u16::from_be_bytes([bytes[2], bytes[3]]));
    (error, close)
}

#[test]
fn frames_that_no_client_may_send() {
    let (listener, address) = listen(None);
    let claims =
        |first: u8, length: u64| [&[first, 0xff][..], &length.to_be_bytes(), &MASK.unwrap()].concat();
    // Fragments of 64 KiB, of which none is the last.
    let endless: Vec<u8> = (0..40).flat_map(|i| frame(u8::from(i == 0) * 2, &[0; 1 << 16], MASK)).collect();
    for (words, told, code) in [
        (frame(0x81, &greeting(), MASK), "a text message", 1003),
        (frame(0x82, &greeting(), None), "unmasked", 1002),
        (claims(0x82, 1 << 40), "too long", 1009),
        (claims(0x82, u64::MAX), "too long", 1009),
        (claims(0x82, (1 << 20) + 6), "too long", 1009),
        (endless, "too long", 1009),
        (frame(0xc2, &greeting(), MASK), "Reserved bits", 1002),
        (frame(0x83, &greeting(), MASK), "invalid opcode: 3", 1002),
        (frame(0x8b, b"", MASK), "invalid opcode: 11", 1002),
        (frame(0x89, &[0; 126], MASK), "Control frame too big", 1002),
        (frame(0x09, b"", MASK), "ragmented control frame", 1002),
        (frame(0x80, b"", MASK), "Continue frame", 1002),
        ([frame(0x02, b"", MASK), frame(0x82, b"", MASK)].concat(), "fragment", 1002),
    ] {
        let (error, close) = after_opening(&listener, &address, words);
        let error = error.to_string();
        assert!(error.contains("rules of WebSocket") && error.contains(told), "{told}: {error}");
        // (A client that sends on while the server closes may lose what the server said.)
        assert!(close.is_none_or(|close| close == code), "{told}: {close:?}");
        assert!(close.is_some() || told == "too long", "{told}: no close frame");
    }
}

#[test]
fn clients_that_stop_or_drip_end_in_time() {
    let (listener, address) = listen(None);
    let open = format!("{REQUEST}{OURS}");
    let drips = |socket: &mut TcpStream, byte: &[u8]| {
        while socket.write_all(byte).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    };
    // In the head: silence, drops, lines without end, and an end.
    type Say = fn(&mut TcpStream, &str, &dyn Fn(&mut TcpStream, &[u8]));
    let says: [(Say, &str); 6] = [
        (|socket, open, _| socket.write_all(&open.as_bytes()[..1]).expect("sent"), "silent"),
        (|socket, open, _| socket.write_all(open.as_bytes()).expect("sent"), "silent"),
        (
            |socket, open, drip| {
                socket.write_all(open.as_bytes()).expect("sent");
                drip(socket, b"x")
            },
            "too many pieces",
        ),
        (
            |socket, open, _| {
                let _ = socket.write_all(&[open.as_bytes(), &[b'x'; 1 << 20]].concat());
            },
            "too long",
        ),
        (
            |socket, open, _| {
                let _ = socket.write_all(&[open.as_bytes(), &b"X: y\r\n".repeat(1000)].concat());
            },
            "too many lines",
        ),
        (
            |socket, open, _| {
                socket.write_all(open.as_bytes()).expect("sent");
                socket.shutdown(Shutdown::Write).expect("open")
            },
            "closed",
        ),
    ];
    for (say, told) in says {
        let (address, open) = (address.clone(), open.clone());
        let hostile = thread::spawn(move || {
            let mut socket = TcpStream::connect(address).expect("listening");
            say(&mut socket, &open, &drips);
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = greet(&listener).err().expect("nobody").to_string();
        assert!(error.contains(told), "{told}: {error}");
        hostile.join().expect("no panic");
    }
    // Behind it: a message that is never whole, and pings without anything else.
    let whole = frame(0x82, &greeting(), MASK);
    for (first, byte) in [(whole[..30].to_vec(), vec![]), (vec![], frame(0x89, b"ping", MASK))] {
        let address = address.clone();
        let hostile = thread::spawn(move || {
            let mut socket = opened(&address);
            socket.write_all(&first).expect("sent");
            if !byte.is_empty() {
                drips(&mut socket, &byte);
            }
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = greet(&listener).err().expect("nobody");
        assert!(matches!(error, WireError::Silent { .. }), "{error}");
        hostile.join().expect("no panic");
    }
    // The same after the greeting.
    for drip in [vec![], frame(0x89, &[7; 125], MASK)] {
        let address = address.clone();
        let hostile = thread::spawn(move || {
            let mut socket = opened(&address);
            socket.write_all(&frame(0x82, &greeting(), MASK)).expect("sent");
            socket.write_all(&frame(0x82, &[1; 1000], MASK)[..900]).expect("sent");
            if !drip.is_empty() {
                drips(&mut socket, &drip);
            }
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let mut connection = greet(&listener).expect("greeted").connection;
        let error = connection.recv().expect_err("nothing comes");
        // A ping in the middle of a message's bytes is a part of it, so that one is whole then, and no frame.
        let ends = matches!(error, WireError::Silent { .. } | WireError::PeerMisbehaved { .. });
        assert!(ends, "{error}");
        drop(connection);
        hostile.join().expect("no panic");
    }
}

#[test]
fn pages_come_in_by_their_origin_and_clients_by_their_protocol() {
    let (listener, address) = listen(None);
    let ask = |more: &str| {
        let (address, request) = (address.clone(), format!("{REQUEST}{more}\r\n"));
        thread::spawn(move || {
            let mut socket = TcpStream::connect(address).expect("listening");
            socket.write_all(request.as_bytes()).expect("sent");
            let answer = head(&mut socket);
            answer.lines().next().unwrap_or_default().to_owned()
        })
    };
    let told = |more: &str| {
        let asking = ask(more);
        (refused(greet(&listener)), asking.join().expect("no panic"))
    };
    let (error, answer) = told(&format!("{OURS}Origin: https://evil.example\r\n"));
    assert!(error.contains("https://evil.example") && error.contains("--allow-origin"), "{error}");
    assert!(answer.contains(" 403 "), "{answer}");
    for other in ["", "Sec-WebSocket-Protocol: chat, jaguar2\r\n"] {
        let (error, answer) = told(other);
        assert!(error.contains("without the subprotocol 'jaguar'"), "{error}");
        assert!(answer.contains(" 400 "), "{answer}");
    }
    let listener = Listener::bind(&"127.0.0.1:0".parse().expect("an address")).expect("bound");
    let listener = listener.with_origins(&["https://app.example".into()]);
    let at = listener.bound().expect("known").to_string();
    for (origin, status) in
        [("https://app.example", "101"), ("https://app.example.evil", "403"), ("null", "403")]
    {
        let request = format!("{REQUEST}Sec-WebSocket-Protocol: chat, jaguar\r\nOrigin: {origin}\r\n\r\n");
        let at = at.clone();
        let asking = thread::spawn(move || {
            let mut socket = TcpStream::connect(at).expect("listening");
            socket.write_all(request.as_bytes()).expect("sent");
            head(&mut socket)
        });
        assert!(greet(&listener).is_err());
        let answer = asking.join().expect("no panic");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{origin}: {answer}");
    }
}

#[test]
fn servers_that_open_no_websocket() {
    let accepted = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    let cases: [(Vec<u8>, &str); 8] = [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "HTTP 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\n\r\n".to_vec(), "HTTP 302"),
        // The answer to another key.
        (format!("{switching}{accepted}{OURS}\r\n").into_bytes(), "Sec-WebSocket-Accept"),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "HTTP 200"),
        (b"220 mail ESMTP\r\n".to_vec(), "no HTTP"),
        ([switching.as_bytes(), &b"X: y\r\n".repeat(100_000)].concat(), "a head of too many lines"),
        (b"".to_vec(), "closed"),
        (switching.into(), "silent"),
    ];
    for (answer, told) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("ws://{}/", listener.local_addr().expect("bound"));
        let serving = thread::spawn(move || {
            let mut socket = listener.accept().expect("a client").0;
            head(&mut socket);
            let _ = socket.write_all(&answer);
            if answer.is_empty() { None } else { Some(socket) }
        });
        let mut options = options();
        options.greeting = Duration::from_secs(2);
        let error = refused(dial(&address).connect(options));
        assert!(error.contains(told) && error.contains(&address), "{told}: {error}");
        drop(serving.join().expect("no panic"));
    }
    // A server in the clear that is asked for TLS, and the other way round, and nobody.
    let (listener, address) = listen(None);
    let client = Client::new(&Trust::Nobody, None).expect("sound");
    let (connected, accepted) = both(&listener, &dial(&format!("wss://{address}/")).with_tls(client));
    assert!(refused(connected).contains("TLS"));
    assert!(refused(accepted).contains("a TLS handshake"));
    let error = refused(dial(&format!("wss://{address}/")).connect(options()));
    assert!(error.contains("ws:// is a WebSocket in the clear"), "{error}");
    drop(listener);
    let error = refused(dial(&format!("ws://{address}/x")).connect(options()));
    assert!(error.contains(&format!("ws://{address}/x")) && error.contains("refused"), "{error}");
}

/// A proxy in HTTP mode: it ends the client's TLS, and passes on what it reads, in the clear or not.
fn proxy(server: String, shown: std::sync::Arc<rustls::ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("wss://{}/", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let socket = listener.accept().expect("a client").0;
        let mut client = StreamOwned::new(ServerConnection::new(shown).expect("sound"), socket);
        let mut server = TcpStream::connect(server).expect("listening");
        let request = head(&mut client);
        server.write_all(request.as_bytes()).expect("sent");
        let answer = head(&mut server);
        client.write_all(answer.as_bytes()).expect("sent");
        // A greeting each way, in one message, with the client's mask; then some data.
        let mut greeting = [0; 2 + 4 + 52];
        client.read_exact(&mut greeting).expect("the client's");
        server.write_all(&greeting).expect("sent");
        server.read_exact(&mut greeting[..54]).expect("the server's");
        client.write_all(&greeting[..54]).expect("sent");
        let mut more = [0; 2 + 6];
        if server.read_exact(&mut more).is_ok() {
            let _ = client.write_all(&more);
        }
        let _ = client.read(&mut more);
    });
    address
}

#[test]
fn who_ends_tls_in_between_is_found_or_accepted() {
    let folder = Scratch::new("ws-between");
    let authority = Authority::new("company");
    let trusted = folder.write("authority.pem", &authority.pem());
    let client = Client::new(&Trust::Authorities(trusted), None).expect("sound");
    let client = client.expecting("localhost").expect("a name");
    let (clear, address) = listen(None);
    for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
        let mut shown = (*authority.raw_server("localhost")).clone();
        shown.alpn_protocols = protocols;
        let shown = std::sync::Arc::new(shown);
        let between = proxy(address.clone(), shown.clone());
        let (connected, _) = both(&clear, &dial(&between).with_tls(client.clone()));
        let error = refused(connected);
        assert!(error.contains("TLS ends before it") && error.contains(&between), "{error}");

        let between = proxy(address.clone(), shown);
        let (connected, accepted) = both(&clear, &dial(&between).with_tls(client.clone()).through_proxy());
        let mut connected = connected.expect("a proxy is accepted");
        accepted.expect("greeted").connection.send(b"!".to_vec()).expect("sent");
        assert_eq!(connected.recv().expect("through the proxy"), b"!");
    }
}
