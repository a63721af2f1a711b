//! A server as its operator sees it: limits, metrics, probes, logs, and an orderly end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::predictions::{Deployment, answers, logits, number, photo};
use crate::process::{Process, Server, jaguar};
use crate::relay::Relay;
use crate::{WATCHDOG, assert_fails};

/// Tells a process to end.
fn terminate(process: &Process) {
    signal(process, "-TERM");
}

/// Sends a signal.
pub fn signal(process: &Process, signal: &str) {
    let status = Command::new("kill").args([signal, &process.id.to_string()]).status();
    assert!(status.is_ok_and(|s| s.success()));
}

/// A page of the metrics' address: its status line and its text.
fn get(address: &str, request: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).expect("metrics are answered");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("a page");
    let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or("").to_owned(), body.to_owned())
}

pub fn page(address: &str, path: &str) -> (String, String) {
    get(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Where a server answers metrics.
#[track_caller]
pub fn metrics_of(server: &mut Server) -> String {
    let line = server.process.line_with("metrics, and whether", WATCHDOG);
    let url = line.rsplit(' ').next().expect("an address at the end");
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// The figure of that name and labels.
#[track_caller]
pub fn figure(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Waits until a figure has this value: a client may be through before its server has counted it.
#[track_caller]
pub fn figure_becomes(at: &str, name: &str, want: f64) {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        let text = page(at, "/metrics").1;
        if text.lines().any(|line| line.starts_with(&format!("{name} "))) && figure(&text, name) == want {
            return;
        }
        assert!(Instant::now() < deadline, "{name} does not become {want}:\n{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn metrics_count_what_happened() {
    let mut it = Deployment::new("metrics", &["--metrics", "127.0.0.1:0"]);
    let at = metrics_of(&mut it.server);
    it.server.process.line_with("prepared the model", WATCHDOG);
    assert_eq!(page(&at, "/live"), ("HTTP/1.1 200 OK".into(), "live\n".into()));
    assert_eq!(page(&at, "/ready"), ("HTTP/1.1 200 OK".into(), "ready\n".into()));
    let (_, before) = page(&at, "/metrics");
    assert_eq!((figure(&before, "jaguar_sessions_total"), figure(&before, "jaguar_ready")), (0.0, 1.0));

    let answer = &it.ask("cache", &[&photo(), "--keep", "0"])[0];
    it.server.process.line_with("left", WATCHDOG);
    drop(TcpStream::connect(&it.server.address).expect("listening"));
    it.server.process.line_with("WARN", WATCHDOG);
    let (status, text) = page(&at, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(text.ends_with("# EOF\n"), "{text}");
    for (name, want) in [
        ("jaguar_sessions_total", 1.0),
        ("jaguar_queries_total{model=\"tiny\"}", 1.0),
        ("jaguar_model_ready{model=\"tiny\"}", 1.0),
        ("jaguar_model_sessions{model=\"tiny\"}", 0.0),
        ("jaguar_session_memory_bytes", 0.0),
        ("jaguar_failures_total", 1.0),
        ("jaguar_clients", 0.0),
        ("jaguar_query_seconds_count{model=\"tiny\",stage=\"online\"}", 1.0),
        ("jaguar_query_seconds_count{model=\"tiny\",stage=\"offline\"}", 1.0),
    ] {
        assert_eq!(figure(&text, name), want, "{name}");
    }
    // What the client counted, both ways: the same bytes.
    let stages = ["model", "client", "offline", "online"];
    let moved =
        |way: &str| stages.map(|s| number(answer, &format!("cost/{s}/{way}"))).iter().sum::<u64>() as f64;
    let [received, sent] = ["received", "sent"]
        .map(|d| figure(&text, &format!("jaguar_moved_bytes_total{{direction=\"{d}\"}}")));
    // (What the server says of its own cost, and the client's leave, come after that count.)
    for (counted, told) in [(received, moved("bytes_up")), (sent, moved("bytes_down"))] {
        assert!(counted >= told && counted < told + 100.0, "{counted} {told}");
    }
    assert!(figure(&text, "jaguar_memory_resident_bytes") > 1e6);
    // Standard streams, two ports, and the connection that asks.
    assert!((6.0..40.0).contains(&figure(&text, "jaguar_open_files")));
    assert!(figure(&text, "jaguar_memory_peak_bytes") >= figure(&text, "jaguar_memory_resident_bytes"));

    let (status, _) = page(&at, "/other");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    let (status, body) = get(&at, "HEAD /live HTTP/1.1\r\n\r\n");
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
    for (request, want) in [("POST /metrics HTTP/1.1\r\n\r\n", "405"), ("nonsense\r\n\r\n", "400")] {
        assert!(get(&at, request).0.contains(want), "{request}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(10_000));
    assert!(get(&at, &long).0.contains("400"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let serve = ["serve", &it.model, "--listen", "127.0.0.1:0", "--measure", "off", "--metrics", &taken];
    assert_fails(Process::start(jaguar(&serve)), &["metrics", &taken, "in use"]);
}

#[test]
fn a_full_server_says_that_it_is_not_ready() {
    let mut it = Deployment::new("full", &["--metrics", "127.0.0.1:0", "--max-clients", "1"]);
    let at = metrics_of(&mut it.server);
    it.server.process.line_with("prepared the model", WATCHDOG);
    let places = |text: &str| {
        ["places", "places_free", "ready", "accepting"].map(|name| figure(text, &format!("jaguar_{name}")))
    };
    assert_eq!(places(&page(&at, "/metrics").1), [1.0, 1.0, 1.0, 1.0]);
    let dialer = jaguar::net::Dialer::new(it.server.address.parse().expect("an address"));
    let held = dialer.connect(jaguar::wire::framed::Options::default()).expect("greeted");
    figure_becomes(&at, "jaguar_clients", 1.0);
    let full = ("HTTP/1.1 503 Service Unavailable".into(), "not ready: all places are taken\n".to_owned());
    for path in ["/ready", "/ready/tiny"] {
        assert_eq!(page(&at, path), full, "{path}");
    }
    assert_eq!(page(&at, "/accepting"), ("HTTP/1.1 200 OK".into(), "accepting\n".into()));
    assert_eq!(places(&page(&at, "/metrics").1), [1.0, 0.0, 0.0, 1.0]);
    drop(held);
    figure_becomes(&at, "jaguar_ready", 1.0);
    assert_eq!(page(&at, "/ready/tiny").1, "ready\n");
}

#[test]
fn a_client_waits_for_its_place() {
    let mut it = Deployment::new("wait", &["--metrics", "127.0.0.1:0", "--max-clients", "1"]);
    let at = metrics_of(&mut it.server);
    it.server.process.line_with("prepared the model", WATCHDOG);
    let dialer = jaguar::net::Dialer::new(it.server.address.parse().expect("an address"));
    let held = dialer.connect(jaguar::wire::framed::Options::default()).expect("greeted");
    figure_becomes(&at, "jaguar_clients", 1.0);
    // Several inputs, so that it would have a second connection too: for that one it does not wait.
    let photo = photo();
    let ask =
        |wait: &str| it.client(&it.server.address, "cache", &["--wait", wait, "--keep", "1", &photo, &photo]);
    let waiting = ask("300");
    figure_becomes(&at, "jaguar_waiting", 1.0);
    assert_fails(ask("1"), &["busy with as many clients as it takes (1)", "seconds or more"]);
    drop(held);
    let finished = waiting.finish(WATCHDOG);
    let (told, second) = ("the server has no free place: number 1 in its line", "no second connection");
    assert!(finished.stderr.contains(told) && finished.stderr.contains(second), "{}", finished.stderr);
    assert_eq!(finished.succeeded().lines().count(), 2);
    figure_becomes(&at, "jaguar_waiting", 0.0);
    it.server.process.line_with("waits for a place, number 1 in the line", WATCHDOG);
}

/// How many bytes of the client take a query halfway through its online stage, with the hint there.
fn halfway(it: &Deployment) -> u64 {
    it.ask("cache", &[&photo()]);
    let answer: &Value = &it.ask("cache", &[&photo()])[0];
    let up = |stage: &str| number(answer, &format!("cost/{stage}/bytes_up"));
    up("model") + up("client") + up("offline") + up("online") / 2
}

#[test]
fn a_server_ends_when_its_clients_are_through() {
    let mut it = Deployment::new("drain", &["--metrics", "127.0.0.1:0"]);
    let at = metrics_of(&mut it.server);
    let relay = Relay::start(&it.server.address, halfway(&it));
    let client = it.client(&relay.address, "cache", &[&photo()]);
    relay.wait(WATCHDOG);
    terminate(&it.server.process);
    it.server.process.line_with("shutting down", WATCHDOG);
    // Nobody else comes in; who probes is told.
    assert_fails(it.client(&it.server.address, "other", &[&photo()]), &[&it.server.address, "refused"]);
    let (status, text) = page(&at, "/ready");
    assert!(status.contains("503") && text.contains("shutting down"), "{status} {text}");
    assert!(page(&at, "/live").0.contains("200"));
    relay.go_on();
    answers(client, 1);
    let ended = it.server.process.finish(WATCHDOG).succeeded();
    assert!(ended.contains("ended; 0 clients were cut off"), "{ended}");
}

#[test]
fn a_server_without_clients_ends_at_once_and_one_with_idle_ones_soon() {
    let it = Deployment::new("drain-idle", &[]);
    let cache = it.folder.path("cache");
    let predict = ["predict", "--json", "--server", &it.server.address, "--cache", &cache, "--stdin"];
    let (mut client, mut input) = Process::start_with_input(jaguar(&predict));
    writeln!(input, "{}", photo()).expect("it reads");
    client.line_with("logits", WATCHDOG);
    terminate(&it.server.process);
    let ended = it.server.process.finish(WATCHDOG).succeeded();
    assert!(
        ended.contains("turned away: the server is shutting down") && ended.contains("ended; 0 clients"),
        "{ended}"
    );
    // The client says so when it wants more: there is no other server.
    writeln!(input, "{}", photo()).expect("it reads");
    drop(input);
    let finished = client.finish(WATCHDOG);
    let has = |begin: &str, what: &str| {
        finished.stderr.lines().any(|line| line.starts_with(begin) && line.contains(what))
    };
    // (In a layer, if the client had a query ready and began it.)
    let told = has("note: the connection broke off (", "the peer gave up: the server is shutting down")
        && has("error: ", "Connection refused");
    assert!(!finished.status.success() && told, "{}", finished.stderr);

    let alone = Server::start(&it.model, &[], WATCHDOG);
    terminate(&alone.process);
    assert!(alone.process.finish(WATCHDOG).succeeded().contains("ended; 0 clients"));
}

#[test]
fn a_client_that_is_not_through_in_time_is_cut_off() {
    let mut it = Deployment::new("drain-cut", &["--grace", "1"]);
    let relay = Relay::start(&it.server.address, halfway(&it));
    let client = it.client(&relay.address, "cache", &[&photo()]);
    relay.wait(WATCHDOG);
    it.server.process.line_with("connected", WATCHDOG);
    terminate(&it.server.process);
    let ended = it.server.process.finish(WATCHDOG).succeeded();
    assert!(ended.contains("ended; 1 clients were cut off"), "{ended}");
    relay.go_on();
    // It is told before the server's process ends.
    assert_fails(client, &["layer '", "the peer gave up: the server is shutting down", "come back in"]);
}

#[test]
fn limits_say_when_to_come_back() {
    let often = ["--max-sessions-per-address-and-hour", "2"];
    let mut it = Deployment::new("limits", &often);
    let asking =
        |it: &Deployment, server: &Server| it.client(&server.address, "cache", &[&photo(), "--keep", "0"]);
    for _ in 0..2 {
        answers(asking(&it, &it.server), 1);
    }
    assert_fails(asking(&it, &it.server), &["2 an hour", "come back in", "seconds"]);
    it.server.process.line_with("turned away", WATCHDOG);

    let bytes = Server::start(&it.model, &["--max-session-bytes", "100K"], WATCHDOG);
    assert_fails(asking(&it, &bytes), &["102400 bytes", "connect again"]);

    // One that connects and does not go on, and what it is told; then others are served.
    let mut idle =
        Server::start(&it.model, &["--max-stalled", "1", "--max-clients-per-address", "1"], WATCHDOG);
    let dialer = jaguar::net::Dialer::new(idle.address.parse().expect("an address"));
    let mut quiet = dialer.connect(jaguar::wire::framed::Options::default()).expect("greeted");
    idle.process.line_with("connected", WATCHDOG);
    assert_fails(
        asking(&it, &idle),
        &["1 clients from this address", "try again later, in 10 seconds", "`--wait SECONDS` waits"],
    );
    let error = jaguar::wire::Transport::recv(&mut quiet).expect_err("it asks for nothing").to_string();
    assert!(error.contains("no data came for 1s"), "{error}");
    idle.process.line_with("turned away: this side ended the session: no data came", WATCHDOG);
    answers(asking(&it, &idle), 1);
}

/// What a line of the log may be made of. A field that is not here is one that somebody thought about: is it a secret?
const FIELDS: [&str; 31] = [
    "timestamp",
    "level",
    "message",
    "event",
    "peer",
    "client",
    "model",
    "network",
    "protocol",
    "address",
    "fingerprint",
    "seconds",
    "offline_seconds",
    "online_seconds",
    "received",
    "sent",
    "rounds",
    "images",
    "kept",
    "queries",
    "bytes_each",
    "bytes_for_all",
    "device",
    "reason",
    "clients",
    "cut",
    "place",
    "offline",
    "online",
    "bytes",
    "all",
];

#[test]
fn logs_hold_no_secret() {
    let folder = crate::process::Scratch::new("logs");
    let (model, cache, tokens) =
        (crate::tiny::compile(&folder), folder.path("server"), folder.path("tokens"));
    let token = Process::start(jaguar(&["token", "alice", "--tokens", &tokens])).finish(WATCHDOG).succeeded();
    let token_file = folder.path("token");
    crate::private_files::write_secret(&token_file, &token);
    let options = ["--tls", "on", "--cache", &cache, "--tokens", &tokens, "--log", "json"];
    let mut server = Server::start_logging(&model, &options, WATCHDOG);
    let tls = server.process.line_with("\"tls\"", WATCHDOG);
    let tls: Value = serde_json::from_str(&tls).expect("JSON");
    let pin = tls["fingerprint"].as_str().expect("text").to_owned();
    let ask = |more: &[&str]| {
        let (cache, photo) = (folder.path("cache"), photo());
        let mut command = jaguar(&[
            "predict",
            "--json",
            "--server",
            &server.address,
            "--cache",
            &cache,
            "--pin",
            &pin,
            &photo,
        ]);
        command.args(more);
        Process::start(command)
    };
    let answer = answers(ask(&["--token-file", &token_file]), 1).remove(0);
    assert_fails(ask(&[]), &["token"]);
    server.process.line_with("\"refused\"", WATCHDOG);
    terminate(&server.process);
    let log = server.process.finish(WATCHDOG).succeeded();

    let lines: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    let events: Vec<&str> = lines.iter().filter_map(|l| l["event"].as_str()).collect();
    for event in
        ["tls", "listening", "prepared", "connected", "answered", "left", "refused", "draining", "ended"]
    {
        assert!(events.contains(&event), "{event}: {events:?}");
    }
    assert_eq!(events.len(), lines.len(), "every line is an event of the server's own");
    for line in &lines {
        for (field, value) in line.as_object().expect("an object") {
            assert!(FIELDS.contains(&field.as_str()), "{field}: {line}");
            assert!(!value.is_array() && !value.is_object(), "{field}: {line}");
            // Neither a share nor a ciphertext is as short as that; names of protocols are the longest.
            assert!(value.as_str().is_none_or(|text| text.len() < 300), "{field}: {line}");
        }
    }
    // Neither the token nor its hash, no key, and nothing of the answer.
    let digits = token.trim().trim_start_matches("jaguar_");
    let hash = std::fs::read_to_string(&tokens).expect("there");
    let hash = hash.split(' ').next().expect("a hash");
    let key = std::fs::read_to_string(folder.path("server/tls/key.pem")).expect("there");
    let key: Vec<&str> = key.lines().filter(|l| !l.starts_with("---")).collect();
    let values = logits(&answer).iter().map(i64::to_string).filter(|text| text.len() > 3).collect::<Vec<_>>();
    let secrets =
        key.into_iter().chain([&digits[..16], &hash[..16]]).chain(values.iter().map(String::as_str));
    // (A number may stand within a longer one, of bytes or of a time.)
    let words: Vec<&str> = log.split(|c: char| !(c.is_ascii_alphanumeric() || "+/=-".contains(c))).collect();
    for secret in secrets {
        assert!(!words.contains(&secret) && (secret.len() < 16 || !log.contains(secret)), "{secret}");
    }
}
