//! Strangers on the port, and peers that die or stop in the middle of a query.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::predictions::{Deployment, answers, number, photo};
use crate::process::{Process, Scratch, jaguar};
use crate::relay::Relay;
use crate::{WATCHDOG, assert_fails};

/// Answers one connection with `reply`, then listens on until the other side closes.
fn impostor(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(reply);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    address
}

fn predict(server: &str, folder: &Scratch) -> Process {
    Process::start(jaguar(&["predict", "--server", server, "--cache", &folder.path("cache"), &photo()]))
}

#[test]
fn servers_that_are_none() {
    let folder = Scratch::new("impostors");
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    // All at once: silence is told from slowness only after some seconds.
    let cases: [(&'static [u8], &[&str]); 5] = [
        (http, &["HTTP"]),
        (b"220 mail.example ESMTP ready\r\n", &["Jaguar"]),
        (&[0xfe; 4096], &["Jaguar"]),
        (b"JAGUAR/9999\r\n\r\n\0", &["9999"]),
        (b"", &["127.0.0.1"]),
    ];
    let clients: Vec<_> =
        cases.iter().map(|(reply, parts)| (predict(&impostor(reply), &folder), parts)).collect();
    clients.into_iter().for_each(|(client, parts)| assert_fails(client, parts));
    // One that hangs up at once.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hangs_up = thread::spawn(move || drop(listener.accept().unwrap()));
    assert_fails(predict(&address, &folder), &["127.0.0.1"]);
    hangs_up.join().unwrap();
}

#[test]
fn clients_that_are_none() {
    let mut it = Deployment::new("strangers", &[]);
    let connect = || TcpStream::connect(&it.server.address).unwrap();
    let answer = |request: &[u8]| {
        let mut socket = connect();
        let _ = socket.write_all(request);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        let _ = socket.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    };
    let page = answer(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 4"), "{page}");
    for garbage in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], &[0; 100_000], b"JAG", b"JAGUAR/9999\r\n\r\n\0"] {
        answer(garbage);
    }
    // The right greeting, read off the server itself, and then frames that no one may send: an unknown kind,
    // a length beyond every limit, a message that claims four gigabytes, noise.
    let greeting = {
        let mut socket = connect();
        socket.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
        let mut greeting = [0; 16];
        socket.read_exact(&mut greeting).unwrap();
        greeting
    };
    assert!(greeting.starts_with(b"JAGUAR/"));
    let frame = |payload: &[u8]| [&[1], &(payload.len() as u32).to_le_bytes()[..], payload].concat();
    let noise: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bytes in [vec![77; 50], vec![1, 255, 255, 255, 255], frame(&[255; 4]), frame(&noise)] {
        answer(&[&greeting[..], &bytes].concat());
    }
    // One that connects and says nothing, while the others are served.
    let silent = connect();
    it.ask("cache", &[&photo()]);
    drop(silent);
    for told in ["HTTP", "Jaguar", "9999", "protocol"] {
        it.server.process.line_with(told, WATCHDOG);
    }
}

/// Sends a signal, as `kill -NAME`.
fn send(name: &str, process: &Process) {
    let status = Command::new("kill").args([format!("-{name}"), process.id.to_string()]).status();
    assert!(status.is_ok_and(|s| s.success()), "kill -{name} {}", process.id);
    if name == "STOP" {
        // A thread that runs stops a moment after the signal was sent, and may get a whole query done in it.
        while !all_threads_stopped(process.id) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether the system has every thread of a process down as stopped.
fn all_threads_stopped(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process that lives");
    tasks.map(|task| task.expect("an entry").path().join("stat")).all(|stat| {
        // `pid (name) state ...`; a thread that ended meanwhile counts for nothing.
        std::fs::read_to_string(stat)
            .map_or(true, |text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    })
}

/// How many bytes of the client take a query halfway through its online stage, with the hint there.
fn halfway(it: &Deployment, cache: &str) -> u64 {
    it.ask(cache, &[&photo()]);
    let answer: &Value = &it.ask(cache, &[&photo()])[0];
    let up = |stage: &str| number(answer, &format!("cost/{stage}/bytes_up"));
    up("model") + up("client") + up("offline") + up("online") / 2
}

#[test]
fn a_client_that_dies_leaves_the_server_serving() {
    let mut it = Deployment::new("client-dies", &[]);
    let halfway = halfway(&it, "cache");
    let sound = it.ask("cache", &[&photo()]);
    for signal in ["KILL", "INT"] {
        let relay = Relay::start(&it.server.address, halfway);
        let client = it.client(&relay.address, "cache", &[&photo()]);
        relay.wait(WATCHDOG);
        send(signal, &client);
        assert!(!client.finish(WATCHDOG).status.success());
        relay.go_on();
        // The lock on the cache went with the process; the hint in it is whole.
        let next = it.ask("cache", &[&photo()]);
        assert_eq!(number(&next[0], "cost/client/bytes_down"), number(&sound[0], "cost/client/bytes_down"));
    }
    let line = it.server.process.line_with("peer closed the connection", WATCHDOG);
    assert!(line.contains("layer '"), "{line}");
}

#[test]
fn a_server_that_dies_is_named_by_the_client() {
    let mut it = Deployment::new("server-dies", &[]);
    let relay = Relay::start(&it.server.address, halfway(&it, "cache"));
    let client = it.client(&relay.address, "cache", &[&photo()]);
    relay.wait(WATCHDOG);
    it.server.process.kill();
    relay.go_on();
    assert_fails(client, &["layer '", "the peer closed the connection"]);
    // Another server of the same model takes over, with the hint that is there.
    let next = crate::process::Server::start(&it.model, &[], WATCHDOG);
    answers(it.client(&next.address, "cache", &[&photo()]), 1);
}

/// Peers that were stopped (by a debugger, a laptop's lid, a cut cable) and do not even close the connection.
/// Takes as long as either side's patience, fifteen seconds.
#[test]
fn peers_that_stop_are_given_up() {
    let stopped_server = Deployment::new("server-stops", &[]);
    let mut it = Deployment::new("client-stops", &[]);
    let start = |it: &Deployment| {
        let relay = Relay::start(&it.server.address, halfway(it, "cache"));
        let client = it.client(&relay.address, "cache", &[&photo()]);
        relay.wait(WATCHDOG);
        (relay, client)
    };
    let (relay, waiting) = start(&stopped_server);
    send("STOP", &stopped_server.server.process);
    relay.go_on();
    let (other_relay, stopped) = start(&it);
    send("STOP", &stopped);
    other_relay.go_on();

    assert_fails(waiting, &["layer '", "silent for 15s"]);
    let line = it.server.process.line_with("silent for 15s", Duration::from_secs(40));
    assert!(line.contains("layer '"), "{line}");
    // The server goes on without it.
    it.ask("other", &[&photo()]);
}

#[test]
fn damaged_hints_are_mended() {
    let it = Deployment::new("hints", &[]);
    let photo = photo();
    let ask = || it.ask("cache", &[&photo]).remove(0);
    let fetched = |answer: &Value| number(answer, "cost/client/bytes_down");
    let (first, again) = (ask(), ask());
    let whole = fetched(&first) - fetched(&again);
    let hints = PathBuf::from(it.folder.path("cache/hints"));
    let path = std::fs::read_dir(hints).unwrap().next().expect("a hint").unwrap().path();
    let sound = std::fs::read(&path).unwrap();

    type Damage = fn(&mut Vec<u8>);
    // What is done to the file, and whether all of it or a part must be fetched again.
    let damages: [(&str, Damage, bool); 7] = [
        ("a bit in the last block", |b| *b.last_mut().unwrap() ^= 1, false),
        (
            "a bit in the middle",
            |b| {
                let middle = b.len() / 2;
                b[middle] ^= 4
            },
            false,
        ),
        ("cut in the middle", |b| b.truncate(b.len() / 2), false),
        ("a bit in the header", |b| b[20] ^= 1, true),
        ("cut in the header", |b| b.truncate(50), true),
        ("emptied", Vec::clear, true),
        ("something else altogether", |b| *b = b"not a hint".repeat(100), true),
    ];
    for (what, damage, all) in damages {
        let mut bytes = sound.clone();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let answer = ask();
        let missing = fetched(&answer) - fetched(&again);
        assert!(
            if all { missing == whole } else { 0 < missing && missing < whole },
            "{what}: {missing} of {whole}"
        );
        assert_eq!(number(&answer, "label"), number(&first, "label"), "{what}");
        assert_eq!(fetched(&ask()), fetched(&again), "{what}: the mended hint is kept");
        // More behind its end does no harm.
        std::fs::write(&path, [&sound[..], b"more"].concat()).unwrap();
        assert_eq!(fetched(&ask()), fetched(&again), "{what}");
    }
    // A session of another client leaves this one's hint as it was.
    it.ask("other", &[&photo]);
    assert_eq!(std::fs::read(&path).unwrap().len(), sound.len());
}
