//! A client that stays connected, and queries that are prepared while nobody asks.

use std::io::Write;
use std::process::ChildStdin;

use serde_json::Value;

use crate::predictions::{Deployment, logits, number, photo};
use crate::process::{Process, Server, jaguar};
use crate::{WATCHDOG, assert_fails};

/// A client that reads paths from its standard input.
fn staying(it: &Deployment, server: &Server, more: &[&str]) -> (Process, ChildStdin) {
    let cache = it.folder.path("cache");
    let mut command =
        jaguar(&["predict", "--stdin", "--json", "--server", &server.address, "--cache", &cache]);
    command.args(more);
    Process::start_with_input(command)
}

/// Each line is answered as it comes; what was prepared while nobody asked is used, and both sides say how much is there.
#[test]
fn lines_are_answered_as_they_come() {
    let mut it = Deployment::new("stdin", &[]);
    let alone = &it.ask("cache", &[&photo()])[0];
    let (mut client, mut lines) = staying(&it, &it.server, &["--keep", "2"]);
    let photo = photo();
    for number_kept in 0..2 {
        // Two queries are there before anybody asks the first time, and the one asked for each time.
        it.server.process.line_with("keeps 2 for this client, 2 in all", WATCHDOG);
        writeln!(lines, "{photo}\n").unwrap();
        let line = client.line_with(&format!("\"kept\":{number_kept}"), WATCHDOG);
        let answer: Value = serde_json::from_str(&line).unwrap();
        let cost = &answer["cost"];
        // The request: a length and two numbers.
        assert_eq!(number(cost, "online/bytes_up"), number(alone, "cost/online/bytes_up") + 6);
        assert_eq!(number(cost, "online/bytes_down"), number(alone, "cost/online/bytes_down"));
        assert_eq!(number(cost, "online/rounds"), number(alone, "cost/online/rounds"));
        // The background may be through with the next one, or not yet have told the client of the second.
        for held in [number(&answer, "ready/queries"), number(cost, "server_keeps/queries")] {
            assert!(held <= 2, "{answer}");
        }
        assert_eq!(number(&answer, "ready/queries") > 0, number(&answer, "ready/bytes") > 0);
        assert_eq!(number(cost, "server_keeps/queries") > 0, number(cost, "server_keeps/bytes") > 0);
        assert_eq!(number(&answer, "label"), number(alone, "label"));
        assert_eq!(logits(&answer).len(), logits(alone).len());
    }
    it.server.process.line_with("answered a kept query", WATCHDOG);
    // What cannot be used is named, and the next line is answered.
    writeln!(lines, "nowhere.jpg").unwrap();
    let line = client.line_with("\"error\"", WATCHDOG);
    assert!(line.contains("nowhere.jpg"), "{line}");
    writeln!(lines, "{photo}").unwrap();
    client.line_with("\"kept\":2", WATCHDOG);
    drop(lines);
    let finished = client.finish(WATCHDOG);
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("note: 2 prepared queries hold up to"), "{}", finished.stderr);
    assert!(finished.stderr.contains("1 of 4 inputs could not be used"), "{}", finished.stderr);
    it.server.process.line_with("left", WATCHDOG);
    // Nothing to do is done at once.
    let (client, lines) = staying(&it, &it.server, &["--keep", "0"]);
    drop(lines);
    assert_eq!(client.finish(WATCHDOG).succeeded(), "");
}

/// A server that keeps nothing, or has no memory for it, says so, and answers all the same; a client that asks for more than it
/// may hold is refused before it starts.
#[test]
fn bounds_are_told() {
    let it = Deployment::new("keep-bounds", &["--keep-queries", "0"]);
    let small = Server::start(&it.model, &["--keep-memory", "1K"], WATCHDOG);
    let photo = photo();
    for (server, said) in [
        (&it.server, "the server keeps 0 prepared queries for a client"),
        (&small, "the server keeps 1024 bytes of prepared queries"),
    ] {
        let (mut client, mut lines) = staying(&it, server, &[]);
        writeln!(lines, "{photo}").unwrap();
        client.line_with("\"label\"", WATCHDOG);
        drop(lines);
        let finished = client.finish(WATCHDOG);
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
        assert!(!finished.succeeded().contains("\"kept\""));
    }
    let (client, _lines) = staying(&it, &it.server, &["--keep", "1000000"]);
    assert_fails(client, &["1000000 prepared queries hold"]);
    let (client, _lines) = staying(&it, &it.server, &["--keep", "2", "--keep-memory", "1000"]);
    assert_fails(client, &["2 prepared queries hold", "more than the 1000 allowed"]);
}

/// A client that is killed while it waits takes what it kept with it. One that waits for too long loses it, and connects anew.
#[test]
fn what_is_kept_goes_with_either_side() {
    let mut it = Deployment::new("keep-killed", &["--keep-idle", "5"]);
    let photo = photo();
    let (mut client, lines) = staying(&it, &it.server, &["--keep", "1"]);
    it.server.process.line_with("keeps 1 for this client, 1 in all", WATCHDOG);
    client.kill();
    it.server.process.line_with("peer closed the connection", WATCHDOG);
    drop(lines);

    let (mut client, mut lines) = staying(&it, &it.server, &["--keep", "1"]);
    writeln!(lines, "{photo}").unwrap();
    client.line_with("\"label\"", WATCHDOG);
    it.server.process.line_with("nothing was asked for within 5 s: what was prepared is dropped", WATCHDOG);
    writeln!(lines, "{photo}").unwrap();
    drop(lines);
    let finished = client.finish(WATCHDOG);
    assert!(finished.stderr.contains("note: the connection broke off"), "{}", finished.stderr);
    assert_eq!(finished.succeeded().lines().count(), 2);
}

/// A server that is killed between the preparation and the picture: the client says how that connection ended, and then why it
/// could not open another one.
#[test]
fn a_server_that_has_gone_is_said_to_be_gone() {
    let mut it = Deployment::new("keep-gone", &[]);
    let (client, mut lines) = staying(&it, &it.server, &["--keep", "1"]);
    it.server.process.line_with("keeps 1 for this client, 1 in all", WATCHDOG);
    it.server.process.kill();
    writeln!(lines, "{}", photo()).unwrap();
    let finished = client.finish(WATCHDOG);
    assert_eq!(finished.status.code(), Some(1));
    let told = finished.stderr;
    // (In a layer or before it, as the query is ready.)
    let broke = |line: &str| {
        line.starts_with("note: the connection broke off (")
            && line.contains("the peer closed the connection")
    };
    assert!(told.lines().any(broke), "{told}");
    let error = told.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(&it.server.address) && error.contains("Connection refused"), "{told}");
}
