//! WebSockets, as users name them: the same predictions, through a proxy in HTTP mode too, and hostile clients.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::connections::{Authority, fingerprint};
use crate::predictions::{Deployment, answers, logits, number, photo};
use crate::process::{Process, Server, repository};
use crate::{WATCHDOG, assert_fails, tiny};

/// The answer about the photograph at `address`, with these options.
fn ask(it: &Deployment, address: &str, options: &[&str]) -> Value {
    let photo = photo();
    answers(it.client(address, "cache", &[&[&*photo, "--keep", "0"][..], options].concat()), 1).remove(0)
}

/// The same class, by logits of which each may be off by what two private runs may; and the same bytes in every stage. (The
/// server ends with its times, of which the length differs.)
#[track_caller]
fn assert_same(one: &Value, other: &Value, worst: f64) {
    assert_eq!(one["top"][0]["class"], other["top"][0]["class"]);
    for (a, b) in logits(one).iter().zip(logits(other)) {
        assert!((a - b).abs() as f64 <= 2.0 * worst, "{a} and {b}");
    }
    for stage in ["model", "client", "offline", "online"] {
        let bytes = |answer| number(answer, &format!("cost/{stage}/bytes_up"));
        assert_eq!(bytes(one), bytes(other), "{stage}");
    }
}

/// How far the tiny network's outputs may be off.
fn worst(it: &Deployment) -> f64 {
    let bundle = jaguar::bundle::Bundle::read(it.model.as_ref(), jaguar::plan::Kit::standard().operators())
        .expect("compiled");
    tiny::worst_error(&bundle.model, jaguar::plan::Kit::JAGUAR)
}

#[test]
fn predictions_are_those_of_tcp() {
    let mut it = Deployment::new("websocket", &[]);
    let worst = worst(&it);
    // The hint is there after the first.
    ask(&it, &it.server.address, &[]);
    let want = ask(&it, &it.server.address, &[]);
    let clear = format!("ws://{}", it.server.address);
    assert_same(&ask(&it, &clear, &[]), &want, worst);
    assert_same(&ask(&it, &format!("{clear}/jaguar?x=y"), &["--tls", "off"]), &want, worst);

    let kept = it.folder.path("server");
    it.server = Server::start(&it.model, &["--tls", "on", "--cache", &kept], WATCHDOG);
    let pin = fingerprint(&mut it.server);
    let at = format!("wss://{}/jaguar", it.server.address);
    assert_same(&ask(&it, &at, &["--pin", &pin]), &want, worst);
    // Two connections at once, and a kept query.
    let photo = photo();
    answers(it.client(&at, "cache", &["--pin", &pin, &photo, &photo]), 2);

    let wrong = "0".repeat(64);
    let fails = |address: &str, options: &[&str], parts: &[&str]| {
        assert_fails(it.client(address, "cache", &[options, &[&*photo]].concat()), parts);
    };
    fails(&at, &["--pin", &wrong], &[&at, "not the pinned one", &pin]);
    fails(&at, &[], &[&at, "nothing tells whose", &pin]);
    fails(&at, &["--tls", "off"], &["wss:// is inside TLS"]);
    fails(&clear, &["--pin", &pin], &["ws:// is in the clear"]);
    fails(&format!("ws://{}/", it.server.address), &[], &["HTTP 400"]);
    fails("ws://192.0.2.1/", &[], &["beyond this machine", "wss://"]);
    fails("wss://host:port/", &[], &["is no address"]);
    let listening = ["serve", &it.model, "--measure", "off", "--listen", "ws://127.0.0.1:0/"];
    assert_fails(Process::start(crate::process::jaguar(&listening)), &["at every address"]);
}

/// HAProxy in HTTP mode, with the example that comes with the project: it ends the client's TLS, in front of a server in the
/// clear or one with TLS of its own.
#[test]
fn a_proxy_in_http_mode_passes_it_on() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skip: haproxy is not installed (Debian: haproxy)");
        return;
    }
    // (Another address of this machine, from which the proxy comes.)
    let it = Deployment::new("http-mode", &["--balancers", "127.0.0.9"]);
    let worst = worst(&it);
    ask(&it, &it.server.address, &[]);
    let want = ask(&it, &it.server.address, &[]);
    let authority = Authority::new(&it.folder, "web");
    let pair = authority.sign(&it.folder, "localhost").map(|file| std::fs::read(file).expect("a file"));
    let both = it.folder.path("both.pem");
    std::fs::write(&both, pair.concat()).expect("a file");

    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let mut text = std::fs::read_to_string(repository("packaging/haproxy-http.cfg")).expect("the example");
    for (from, to) in [
        ("bind :443 ssl crt /etc/haproxy/jaguar.pem", format!("bind {free} ssl crt {both}")),
        ("192.0.2.11:7447", it.server.address.clone()),
        ("send-proxy-v2", "send-proxy-v2 source 127.0.0.9".into()),
    ] {
        assert!(text.contains(from), "the example has no {from:?}");
        text = text.replace(from, &to);
    }
    let file = it.folder.path("haproxy-http.cfg");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f", &file]);
    let _proxy = Process::start(command);
    let deadline = Instant::now() + WATCHDOG;
    while TcpStream::connect(free).is_err() {
        assert!(Instant::now() < deadline, "haproxy does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    let at = format!("wss://localhost:{}/jaguar", free.port());
    let by_authority = ["--ca", authority.file.as_str()];
    let through = [&by_authority[..], &["--accept-proxy"]].concat();
    assert_same(&ask(&it, &at, &through), &want, worst);
    let photo = photo();
    answers(it.client(&at, "cache", &[&through[..], &[&photo, &photo]].concat()), 2);
    // The session cannot be bound to the proxy's TLS; and another path is not Jaguar's.
    let with = |address: &str, options: &[&str]| it.client(address, "cache", &[options, &[&*photo]].concat());
    assert_fails(with(&at, &by_authority), &["not bound", "TLS ends before it"]);
    assert_fails(with(&at.replace("/jaguar", "/other"), &through), &["HTTP 404"]);
}

/// The most memory that a process had, in bytes.
#[cfg(target_os = "linux")]
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("our own process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

/// Clients that claim or send much: the server's memory stays what it was, it says what they did, and serves the next.
#[cfg(target_os = "linux")]
#[test]
fn hostile_clients_take_no_memory() {
    let mut it = Deployment::new("hostile-frames", &["--max-clients", "40"]);
    ask(&it, &it.server.address, &[]);
    let before = peak(it.server.process.id);
    let opened = || {
        let mut socket = TcpStream::connect(&it.server.address).expect("listening");
        let request = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: jaguar\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("sent");
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 101");
        socket
    };
    // A frame of no length but what its head claims; fragments without an end; pings without an end, whose answers nobody takes.
    let claim = [&[0x82, 0xff][..], &(1u64 << 40).to_be_bytes(), &[0; 4]].concat();
    let fragment = [&[0x00, 0xff][..], &(1u64 << 16).to_be_bytes(), &[0; 4 + (1 << 16)]].concat();
    let begins = [&[0x02, 0x80][..], &[0; 4], &fragment.repeat(40)].concat();
    let ping = [&[0x89, 0x80 | 125][..], &[0; 4 + 125]].concat();
    let greeting = [&[0x82, 0x80 | 52, 0, 0, 0, 0][..], b"JAGUAR/0003 \r\n\r\n", &[0; 36]].concat();
    let pings = [&greeting[..], &ping.repeat(200_000)].concat();
    // All stay open: a socket that is dropped with an answer unread is reset, and what it sent may go with it.
    let mut held = Vec::new();
    for words in [&claim, &begins, &pings] {
        let mut sockets: Vec<TcpStream> = (0..8).map(|_| opened()).collect();
        for socket in &mut sockets {
            socket.set_write_timeout(Some(Duration::from_secs(2))).expect("a socket");
            let _ = socket.write_all(words);
        }
        held.append(&mut sockets);
    }
    for told in ["too long: 1099511627776", "too long: 1114112"] {
        it.server.process.line_with(told, WATCHDOG);
    }
    ask(&it, &format!("ws://{}", it.server.address), &[]);
    let grown = peak(it.server.process.id) - before;
    // 8 at once: a frame each, what was read and is not taken apart, and what the allocator keeps.
    assert!(grown < 64 << 20, "{grown} bytes more");
}
