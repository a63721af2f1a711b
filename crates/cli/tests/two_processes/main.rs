//! The `jaguar` command as its users run it: server and client are two processes that share a socket.
//!
//! - [`accuracy`]: labelled pictures.
//! - [`batch`]: queries of several images.
//! - [`cache`]: folders that are full, read-only, in use or not wanted.
//! - [`cheetah`]: the baseline, told to the server only.
//! - [`inputs`]: pictures and tensors of all kinds, folders of them, and what is told of those that do not fit.
//! - [`convfhe`]: one message up and one down.
//! - [`many`]: rows of a CSV file, and the pages that commands write.
//! - [`memory`]: too little of it is said before anything runs.
//! - [`names`]: what a model's file calls its nodes stays with the server.
//! - [`predictions`]: what comes out is what the integer reference says, at the stated cost.
//! - [`environment`]: no room on the disk, no memory, no file handles.
//! - [`private_files`]: what commands write, nobody but its owner can read.
//! - [`failures`]: what can be wrong on one machine ends in one clear line and a failing exit code.
//! - [`connections`]: TLS, certificates, tokens, and addresses of all kinds.
//! - [`operation`]: limits, metrics, probes, logs, and an orderly end.
//! - [`configuration`]: flags, the environment and a file, and what counts of them.
//! - [`serving`]: several models, read again while clients are served.
//! - [`rules`]: limits by client.
//! - [`pages`]: what the pages say to a newcomer, done.
//! - [`security`]: what a compiled model rests on.
//! - [`replicas`]: two servers of one model behind a balancer.
//! - [`websockets`]: the same over WebSockets, through a proxy, and hostile frames.
//! - [`gateway`]: programs that ask over HTTP.
//! - [`doctor`]: what it finds wrong, and what it says to do.
//! - [`interruptions`]: strangers on the port, and peers that die or stop in the middle of a query.

mod accuracy;
mod again;
mod batch;
mod cache;
mod cheetah;
mod configuration;
mod connections;
#[cfg(all(target_os = "linux", feature = "convfhe"))]
#[path = "../../../../papers/convfhe/tests/command/mod.rs"]
mod convfhe;
#[cfg(unix)]
mod doctor;
mod environment;
mod failures;
#[cfg(unix)]
mod gateway;
mod inputs;
mod interruptions;
mod kept;
mod many;
mod memory;
mod names;
mod operation;
mod pages;
mod predictions;
#[cfg(unix)]
mod private_files;
mod process;
mod relay;
mod replicas;
mod rules;
mod security;
mod serving;
mod tiny;
mod websockets;

use std::thread;
use std::time::{Duration, Instant};

use process::{Process, jaguar};

/// Nothing here takes nearly as long, on however busy a machine; what does is stuck.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs the command, which must fail with one line that contains each of `parts`.
#[track_caller]
fn fails(arguments: &[&str], parts: &[&str]) {
    assert_fails(Process::start(jaguar(arguments)), parts);
}

/// Waits until something is so.
#[track_caller]
fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn assert_fails(process: Process, parts: &[&str]) {
    let lines = failure(process);
    let [line] = lines.as_slice() else { panic!("not one line: {lines:#?}") };
    for part in parts {
        assert!(line.contains(part), "{line:?} does not say {part:?}");
    }
    let again = said_again(line);
    assert!(again.is_none(), "{line:?} says {again:?} twice");
}

/// What comes behind a colon of `line` to its end, and stands before that colon already.
fn said_again(line: &str) -> Option<&str> {
    let ends = line.match_indices(": ").map(|(at, colon)| (&line[..at], &line[at + colon.len()..]));
    ends.filter(|(_, end)| end.len() > 12).find(|(before, end)| before.contains(end)).map(|(_, end)| end)
}

#[test]
fn a_line_that_says_something_twice_is_seen() {
    assert_eq!(said_again("error: no such layer here: at step 3 (no such layer)"), None);
    let twice = "error: no such layer: conv1, found by this side (model): no such layer: conv1";
    assert_eq!(said_again(twice), Some("no such layer: conv1"));
}

/// What a process that must fail says on standard error; notes, warnings and what is under way left out.
#[track_caller]
fn failure(process: Process) -> Vec<String> {
    let finished = process.finish(WATCHDOG);
    // A signal (or an abort) would leave no code.
    assert!(finished.status.code().is_some_and(|c| c != 0), "{}\n{}", finished.status, finished.stdout);
    let lines: Vec<String> = finished
        .stderr
        .lines()
        .filter(|l| !["note: ", "warning: "].iter().any(|kind| l.starts_with(kind)) && !l.ends_with(" ..."))
        .map(str::to_owned)
        .collect();
    assert!(lines.first().is_some_and(|l| l.starts_with("error: ")), "{lines:#?}");
    lines
}
