//! Two servers of one model behind a balancer: nothing is stored for a client that the other one would need.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use jaguar::plan::PROTOCOL_VERSION;
use serde_json::Value;

use crate::connections::fingerprint;
use crate::operation::{figure, figure_becomes, metrics_of, page};
use crate::predictions::{Deployment, answers, number, photo};
use crate::process::{Process, Scratch, Server, repository};
use crate::{WATCHDOG, relay, until};

/// The second server: the same compiled model, and nothing else in common.
fn second(it: &Deployment, arguments: &[&str]) -> Server {
    Server::start(&it.model, arguments, WATCHDOG)
}

/// One picture at `address` after the other, each in a session of its own, with one cache folder.
fn in_turn(it: &Deployment, address: &str, times: usize) -> Vec<Value> {
    let photo = photo();
    let one = |_| answers(it.client(address, "cache", &["--keep", "0", &photo]), 1).remove(0);
    (0..times).map(one).collect()
}

/// The hint comes with the first session only, whoever answers the others, and all say the same.
#[track_caller]
fn assert_one_hint(answers: &[Value]) {
    let down = |answer: &Value| number(answer, "cost/client/bytes_down");
    let (first, others) = answers.split_first().expect("answers");
    for other in others {
        assert!(down(first) > down(other) + 10_000, "{} and {}", down(first), down(other));
        assert_eq!(down(other), down(&others[0]));
        assert_eq!(other["top"][0]["class"], first["top"][0]["class"]);
    }
}

/// How many queries a server has answered.
fn answered(server: &mut Server) -> usize {
    let (_, text) = page(&metrics_of(server), "/metrics");
    figure(&text, "jaguar_queries_total{model=\"tiny\"}") as usize
}

#[test]
fn two_replicas_serve_one_client_with_one_hint() {
    let metrics = ["--metrics", "127.0.0.1:0"];
    let mut it = Deployment::new("replicas", &metrics);
    let mut other = second(&it, &metrics);
    let address = relay::in_turn(&[&it.server.address, &other.address]);
    assert_one_hint(&in_turn(&it, &address, 4));
    assert_eq!((answered(&mut it.server), answered(&mut other)), (2, 2));
}

/// A client that prepares over one connection and asks over another may meet another replica with the second: it is told,
/// and goes on over one.
#[test]
fn a_second_connection_that_meets_the_other_replica_is_done_without() {
    let it = Deployment::new("replicas-keep", &[]);
    let other = second(&it, &[]);
    let address = relay::in_turn(&[&it.server.address, &other.address]);
    let photo = photo();
    let finished = it.client(&address, "cache", &[&*photo; 3]).finish(WATCHDOG);
    assert!(finished.stderr.contains("note: no second connection"), "{}", finished.stderr);
    assert_eq!(finished.succeeded().lines().count(), 3);
}

/// The same behind HAProxy, with the file that comes with the project: other ports, by turns, and no check by port 9447. The
/// replicas have the clients' address, and not the balancer's.
#[test]
fn two_replicas_behind_haproxy() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skip: haproxy is not installed (Debian: haproxy)");
        return;
    }
    let options = ["--metrics", "127.0.0.1:0", "--balancers", BALANCER];
    let mut it = Deployment::new("haproxy", &options);
    let mut other = second(&it, &options);
    let (_balancer, address) = balancer(
        &it,
        &[
            ("balance source", "balance roundrobin"),
            ("192.0.2.11:7447", &it.server.address),
            ("192.0.2.12:7447", &other.address),
            (" check port 9447", ""),
        ],
    );
    assert_one_hint(&in_turn(&it, &address, 4));
    // The look whether it listens went to one of the two, too.
    let counts = (answered(&mut it.server), answered(&mut other));
    assert_eq!(counts.0 + counts.1, 4);
    assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
    for server in [&mut it.server, &mut other] {
        let connected = server.process.line_with("connected", WATCHDOG);
        assert!(connected.contains(" 127.0.0.1:"), "{connected}");
    }
}

/// Where the balancer's connections come from. Clients and balancer are the same machine here: this is another of its addresses.
const BALANCER: &str = "127.0.0.9";

/// Limits by address are limits of each client's, and not of all that come by the balancer. Nobody else may say where clients are.
#[test]
fn a_balancer_says_where_clients_come_from_and_nobody_else_does() {
    let options = ["--max-clients-per-address", "1", "--max-clients", "3", "--balancers", "127.0.0.0/8"];
    let it = Deployment::new("proxied", &options);
    let header = |client: u8| {
        let addresses = [203, 0, 113, client, 192, 0, 2, 1, 0x1f, 0x90, 0x1d, 0x17];
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
    };
    let [one, two] = [1, 2].map(|client| relay::introducing(&it.server.address, header(client)));
    let photo = photo();
    let ask = |address: &str| it.client(address, "cache", &["--keep", "0", &photo]);
    // Each of the two may have one session at once.
    let held = hold(&one, 1);
    until("its place is taken", || ask(&one).finish(WATCHDOG).stderr.contains("clients from this address"));
    answers(ask(&two), 1);
    drop(held);
    until("it has its place again", || ask(&one).finish(WATCHDOG).status.success());
    // A balancer that does not say for whom it comes is not taken for a client.
    assert!(!ask(&it.server.address).finish(WATCHDOG).status.success());
    // What others say of themselves is no greeting.
    let other = second(&it, &["--balancers", "203.0.113.1"]);
    assert!(!ask(&relay::introducing(&other.address, header(3))).finish(WATCHDOG).status.success());
    answers(ask(&other.address), 1);
}

/// A client says its version of the protocol before it is let in: servers of two versions stand behind one address.
#[test]
fn clients_of_two_versions_behind_haproxy() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skip: haproxy is not installed (Debian: haproxy)");
        return;
    }
    let folder = Scratch::new("haproxy-versions-server");
    let kept = folder.path("server");
    let options = ["--metrics", "127.0.0.1:0", "--balancers", BALANCER];
    let mut it =
        Deployment::new("haproxy-versions", &[&options[..], &["--tls", "on", "--cache", &kept]].concat());
    let pin = fingerprint(&mut it.server);
    // The other has the same certificate.
    let [certificate, key] =
        ["certificate", "key"].map(|name| folder.path(&format!("server/tls/{name}.pem")));
    let mut older = second(&it, &[&options[..], &["--tls-cert", &certificate, "--tls-key", &key]].concat());
    let photo = photo();
    let mut serves = |version: u32| {
        let (_balancer, address) = balancer_of(
            &it,
            "packaging/haproxy-versions.cfg",
            &[
                (&format!("jaguar/{PROTOCOL_VERSION}("), &format!("jaguar/{version}(")),
                ("192.0.2.11:7447", &it.server.address),
                ("192.0.2.12:7447", &older.address),
            ],
        );
        answers(it.client(&address, "cache", &["--keep", "0", "--pin", &pin, &photo]), 1);
        (answered(&mut it.server), answered(&mut older))
    };
    assert_eq!(serves(PROTOCOL_VERSION), (1, 0));
    assert_eq!(serves(PROTOCOL_VERSION + 1), (1, 1), "the newer servers have another version");
}

/// HAProxy with `packaging/haproxy.cfg`, in which some words are others, and where it listens.
fn balancer(it: &Deployment, changes: &[(&str, &str)]) -> (Process, String) {
    balancer_of(it, "packaging/haproxy.cfg", changes)
}

/// The same with another file.
fn balancer_of(it: &Deployment, file: &str, changes: &[(&str, &str)]) -> (Process, String) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let mut text = std::fs::read_to_string(repository(file)).expect("the example");
    let ours = [
        ("bind :7447", format!("bind {free}")),
        ("send-proxy-v2", format!("send-proxy-v2 source {BALANCER}")),
    ];
    let ours = ours.each_ref().map(|(from, to)| (*from, &**to));
    for (from, to) in [&ours, changes].concat() {
        assert!(text.contains(from), "the example has no {from:?}");
        text = text.replace(from, to);
    }
    let file = it.folder.path("haproxy.cfg");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f", &file]);
    let balancer = Process::start(command);
    until("haproxy listens", || TcpStream::connect(&free).is_ok());
    (balancer, free)
}

/// Connections that hold the places of a server: they have greeted, and ask for nothing yet.
fn hold(server: &str, places: usize) -> Vec<jaguar::wire::framed::Framed> {
    let dialer = jaguar::net::Dialer::new(server.parse().expect("an address"));
    (0..places).map(|_| dialer.connect(Default::default()).expect("greeted")).collect()
}

#[test]
fn who_comes_to_a_full_replica_is_sent_to_one_with_a_free_place() {
    if Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skip: haproxy is not installed (Debian: haproxy)");
        return;
    }
    let options = ["--metrics", "127.0.0.1:0", "--max-clients", "2", "--balancers", BALANCER];
    let mut it = Deployment::new("haproxy-full", &options);
    let mut other = second(&it, &options);
    let metrics = [metrics_of(&mut it.server), metrics_of(&mut other)];
    let [one, two] = [&it.server.address, &other.address];
    let servers = [(one, &metrics[0]), (two, &metrics[1])].map(|(server, metrics)| {
        let port = metrics.rsplit(':').next().expect("a port");
        format!("{server} port {port}")
    });
    let changes =
        [("192.0.2.11:7447", &*servers[0]), ("192.0.2.12:7447", &servers[1]), (" check port 9447", " check")];
    let (_balancer, address) = balancer(&it, &changes);
    let photo = photo();
    let ask = || it.client(&address, "cache", &["--keep", "0", &photo]);
    answers(ask(), 1);
    // Whichever of the two this machine is sent to, it is full; the other has room.
    for (full, at) in [(one, &metrics[0]), (two, &metrics[1])] {
        let held = hold(full, 2);
        figure_becomes(at, "jaguar_places_free", 0.0);
        until("a client is served by the other replica", || ask().finish(WATCHDOG).status.success());
        drop(held);
        figure_becomes(at, "jaguar_places_free", 2.0);
    }
    // Where none has room, the client hears so from one of them: it is not turned away by the balancer.
    let _held = [hold(one, 2), hold(two, 2)];
    metrics.iter().for_each(|at| figure_becomes(at, "jaguar_places_free", 0.0));
    let busy = || ask().finish(WATCHDOG).stderr.contains("busy with as many clients as it takes (2)");
    until("a client is told by a replica", busy);
    // (The balancer comes to know within this time that both are full.)
    assert!((0..15).all(|_| busy()));
}
