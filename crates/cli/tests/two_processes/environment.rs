//! What the machine may lack: room on the disk, memory, file handles. Whoever lacks it says so and ends; who is served goes on.

use std::net::TcpStream;
use std::process::Command;

use crate::failures::on_a_full_disk;
use crate::predictions::{Deployment, answers, number, photo};
use crate::process::{Finished, Process, Scratch, jaguar};
use crate::{WATCHDOG, assert_fails, tiny};

/// The command under a shell that does `before` first.
fn after(before: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_jaguar")])
        .args(arguments);
    Process::start(command)
}

/// The command with its output sent to `target`.
fn into(target: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec \"$0\" \"$@\" {target}"), env!("CARGO_BIN_EXE_jaguar")])
        .args(arguments);
    Process::start(command).finish(WATCHDOG)
}

/// What is in a folder whose names contain `part`.
fn files_with(folder: &str, part: &str) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    files
        .map(|f| f.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|f| f.contains(part))
        .collect()
}

/// Rows of answers: begun whole or not at all; what a full disk cut off is asked again, and nothing twice.
#[test]
fn rows_on_a_full_disk() {
    let it = Deployment::new("full-rows", &[]);
    let (csv, folder) = (it.folder.path("out.csv"), it.folder.path(""));
    let predict = |more: &[&str]| {
        let cache = it.folder.path("cache");
        let start = ["predict", "--server", &it.server.address, "--cache", &cache, "--csv", &csv];
        [&start[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let photo = photo();
    let first = predict(&[&photo]);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    assert_fails(on_a_full_disk(0, &first), &["--csv", "out.csv"]);
    assert_eq!(files_with(&folder, "out.csv"), [""; 0]);

    // The hint is there before, so that rows alone fill the disk: 1024 bytes take some of them.
    it.ask("cache", &[&photo]);
    let pictures: Vec<String> = (0..12)
        .map(|i| {
            let path = it.folder.path(&format!("picture-{i}-{}.jpg", "x".repeat(60)));
            std::fs::copy(&photo, &path).unwrap();
            path
        })
        .collect();
    let pictures: Vec<&str> = pictures.iter().map(String::as_str).collect();
    let all = predict(&pictures);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let finished = on_a_full_disk(2, &all).finish(WATCHDOG);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("out.csv") && finished.stderr.contains("error: "),
        "{}",
        finished.stderr
    );
    let there = std::fs::read_to_string(&csv).unwrap();
    assert!(there.len() <= 1024 && there.lines().count() < pictures.len(), "{there}");
    Process::start(jaguar(&[&all[..], &["--resume"]].concat())).finish(WATCHDOG).succeeded();
    let rows = std::fs::read_to_string(&csv).unwrap();
    let mut inputs: Vec<&str> = rows.lines().skip(1).map(|row| row.split(',').next().unwrap()).collect();
    inputs.sort_unstable();
    let mut want = pictures.clone();
    want.sort_unstable();
    assert_eq!(inputs, want);
}

/// Pages and timelines replace a former file whole, or leave it.
#[test]
fn pages_on_a_full_disk() {
    let it = Deployment::new("full-pages", &[]);
    let (photo, folder) = (photo(), it.folder.path(""));
    it.ask("cache", &[&photo]);
    let cache = it.folder.path("cache");
    for name in ["trace.json", "trace.html", "report.html"] {
        let path = it.folder.path(name);
        std::fs::write(&path, "former").unwrap();
        let arguments = match name {
            "report.html" => vec!["plan", &it.model, "--measure", "off", "--report", &path],
            _ => vec!["predict", "--server", &it.server.address, "--cache", &cache, "--trace", &path, &photo],
        };
        let finished = on_a_full_disk(1, &arguments).finish(WATCHDOG);
        assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "former");
        Process::start(jaguar(&arguments)).finish(WATCHDOG).succeeded();
        assert!(std::fs::metadata(&path).unwrap().len() > 1000);
    }
    assert_eq!(files_with(&folder, ".part"), [""; 0]);
}

/// Answers that cannot be written are no success; what is told on standard error only is not worth failing for.
#[test]
fn outputs_that_take_nothing() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let it = Deployment::new("full-output", &[]);
    let (photo, cache, tokens) = (photo(), it.folder.path("cache"), it.folder.path("tokens"));
    let predict =
        ["predict", "--json", "--keep", "1", "--server", &it.server.address, "--cache", &cache, &photo];
    let token = ["token", "alice", "--tokens", &tokens];
    let plan = ["plan", &it.model, "--measure", "off"];
    for arguments in [&predict[..], &token, &plan] {
        let finished = into("> /dev/full", arguments);
        assert_eq!(finished.status.code(), Some(1), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("error: writing to standard output: "), "{}", finished.stderr);
    }
    let finished = into("2> /dev/full", &predict);
    assert_eq!(finished.succeeded().lines().count(), 1);
    assert_eq!(into("> /dev/full 2> /dev/full", &predict).status.code(), Some(1));
    // Who closes the pipe early has seen enough.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "exec 3>&1; (\"$0\" \"$@\"; echo \"code $?\" >&3) | true",
        env!("CARGO_BIN_EXE_jaguar"),
    ]);
    command.args(plan);
    let finished = Process::start(command).finish(WATCHDOG);
    assert_eq!((finished.stdout.trim(), &*finished.stderr), ("code 0", ""));
}

/// Files that say who is who: a part of a line, or of a key, would keep everybody out.
#[test]
fn tokens_and_keys_on_a_full_disk() {
    let folder = Scratch::new("full-tokens");
    let (model, tokens) = (tiny::compile(&folder), folder.path("tokens"));
    let before = format!("# clients\n#{}\n", "-".repeat(1000));
    std::fs::write(&tokens, &before).unwrap();
    assert_fails(on_a_full_disk(2, &["token", "alice", "--tokens", &tokens]), &["tokens"]);
    assert_eq!(std::fs::read_to_string(&tokens).unwrap(), before);
    Process::start(jaguar(&["token", "bob", "--tokens", &tokens])).finish(WATCHDOG).succeeded();

    let cache = folder.path("cache");
    let serve =
        ["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off", "--tls", "on", "--cache", &cache];
    assert_fails(on_a_full_disk(0, &serve), &["the server's key", "key.pem"]);
    assert_eq!(files_with(&folder.path("cache/tls"), ""), [""; 0]);
}

/// Ends in an answer, or in one line and an exit code: not in a signal, and not in a panic (`Process` looks for that).
fn ends_in_order(finished: &Finished, with: &str) -> bool {
    let code = finished.status.code();
    let what = format!("{with}: {}\n{}", finished.status, finished.stderr);
    assert!(code.is_some(), "{what}");
    if code == Some(0) {
        return true;
    }
    // (Where not even the program's libraries find room, the system's loader says so.)
    assert!(finished.stderr.contains("error"), "{what}");
    false
}

/// KiB of memory that the program needs to say its version, within 256 more.
fn least_memory() -> u32 {
    let (mut too_little, mut enough) = (0, 1 << 20);
    while enough - too_little > 256 {
        let memory = u32::midpoint(too_little, enough);
        let finished = after(&format!("ulimit -v {memory}"), &["--version"]).finish(WATCHDOG);
        if finished.status.success() { enough = memory } else { too_little = memory }
    }
    enough
}

/// As little memory as the system gives: from too little for the program itself to enough.
#[test]
fn memory_that_is_not_there() {
    let it = Deployment::new("no-memory", &[]);
    let (photo, cache) = (photo(), it.folder.path("cache"));
    let label = number(&it.ask("cache", &[&photo])[0], "label");
    let predict =
        ["predict", "--json", "--threads", "2", "--server", &it.server.address, "--cache", &cache, &photo];
    let (mut served, mut refused) = (0, 0);
    let program = least_memory();
    for memory in [2, 6, 10, 14, 18, 24, 32, 48, 64, 96, 160, 1024].map(|mib| program + (mib << 10)) {
        let finished = after(&format!("ulimit -v {memory}"), &predict).finish(WATCHDOG);
        if ends_in_order(&finished, &format!("{memory} KiB")) {
            served += 1;
            let answer: serde_json::Value = serde_json::from_str(finished.stdout.trim()).unwrap();
            assert_eq!(number(&answer, "label"), label);
        } else {
            refused += 1;
            assert_eq!(finished.stdout, "", "no part of an answer");
        }
    }
    assert!(served > 0 && refused > 0, "{served} and {refused}");
    // The server is the same.
    assert_eq!(number(&it.ask("cache", &[&photo])[0], "label"), label);

    // A server without memory says so and ends, or serves.
    for memory in [6, 18, 64, 1024].map(|mib| program + (mib << 10)) {
        let serve = ["serve", &it.model, "--listen", "127.0.0.1:0", "--measure", "off", "--threads", "2"];
        let mut server = after(&format!("ulimit -v {memory}"), &serve);
        let Some(address) = server.line_or_end("listening on ", WATCHDOG) else {
            assert!(!ends_in_order(&server.finish(WATCHDOG), &format!("{memory} KiB")));
            continue;
        };
        let address = address.rsplit(' ').next().unwrap().to_owned();
        let client = it.client(&address, "cache", &[&photo]).finish(WATCHDOG);
        if memory > 1024 << 10 {
            assert!(client.status.success(), "{}", client.stderr);
        }
        assert!(client.status.code().is_some(), "{}", client.stderr);
    }
}

/// A server that has no handle for another connection says so, waits, and serves the next when there is one again.
#[test]
fn handles_that_are_not_there() {
    let folder = Scratch::new("no-handles");
    let model = tiny::compile(&folder);
    let serve = ["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off"];
    let mut server = after("ulimit -n 16", &serve);
    let address = server.line_with("listening on ", WATCHDOG).rsplit(' ').next().unwrap().to_owned();
    let (photo, cache) = (photo(), folder.path("cache"));
    let ask = || {
        let predict = ["predict", "--json", "--server", &address, "--cache", &cache, &photo];
        answers(Process::start(jaguar(&predict)), 1)
    };
    let label = number(&ask()[0], "label");
    let silent: Vec<TcpStream> = (0..30).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    server.line_with("Too many open files", WATCHDOG);
    drop(silent);
    assert_eq!(number(&ask()[0], "label"), label);
    // A client with few of its own.
    for handles in [3, 4, 5, 8] {
        let predict = ["predict", "--json", "--no-cache", "--server", &address, &photo];
        let finished = after(&format!("ulimit -n {handles}"), &predict).finish(WATCHDOG);
        if ends_in_order(&finished, &format!("{handles} handles")) {
            assert_eq!(finished.stdout.lines().count(), 1);
        }
    }
    assert_eq!(number(&ask()[0], "label"), label);
}
