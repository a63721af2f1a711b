//! The cache saves a client the hint's way; no query needs it. Folders that are full, read-only, in use, or not wanted.

use std::process::Command;

use jaguar::bundle::Bundle;
use jaguar::hint::blocks;
use jaguar::plan::{Choices, Kit, Plan};
use serde_json::Value;

use crate::failures::on_a_full_disk;
use crate::predictions::{Deployment, answers, number, photo};
use crate::process::{Finished, Process, jaguar};
use crate::relay::Relay;
use crate::{WATCHDOG, assert_fails};

/// How many bytes of the hint came with these answers.
fn fetched(answers: &[Value]) -> u64 {
    let rows = answers.iter().flat_map(|a| a["cost"]["rows"].as_array().expect("rows"));
    rows.map(|row| number(row, "hint/bytes_down")).sum()
}

/// The whole hint, with a hash a block.
fn whole(it: &Deployment) -> u64 {
    let bundle = Bundle::read(it.model.as_ref(), Kit::standard().operators()).unwrap();
    let choices = Choices::standard(&bundle.model.network, Kit::JAGUAR);
    let plan = Plan::new(&bundle.model.network, choices).unwrap();
    plan.hint_bytes() as u64 + 32 * blocks(&plan).len() as u64
}

/// The answers of a client that succeeded but warned once, of all of `parts`.
#[track_caller]
fn warned(finished: Finished, parts: &[&str]) -> Vec<Value> {
    let (status, stderr) = (finished.status, finished.stderr.clone());
    let warnings: Vec<&str> = stderr.lines().filter(|l| l.starts_with("warning: ")).collect();
    let [warning] = warnings.as_slice() else { panic!("{status}, not one warning: {stderr}") };
    for part in parts {
        assert!(warning.contains(part), "{warning:?} does not say {part:?}");
    }
    let answers: Vec<Value> =
        finished.succeeded().lines().map(|l| serde_json::from_str(l).expect("an answer")).collect();
    let told = answers[0]["warnings"].as_array().expect("a list");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(format!("warning: {}", told[0].as_str().unwrap()), *warning);
    answers
}

fn predict<'a>(it: &'a Deployment, cache: &'a str, photo: &'a str, pictures: usize) -> Vec<&'a str> {
    let mut arguments = vec!["predict", "--json", "--server", &it.server.address, "--cache", cache];
    arguments.extend(std::iter::repeat_n(photo, pictures));
    arguments
}

#[test]
fn a_folder_that_cannot_be_is_done_without() {
    let it = Deployment::new("no-folder", &[]);
    let (photo, file) = (photo(), it.folder.path("file"));
    std::fs::write(&file, "in the way").unwrap();
    let run = |pictures| Process::start(jaguar(&predict(&it, &file, &photo, pictures))).finish(WATCHDOG);
    let first = warned(run(1), &["creating", "file/hints", "in memory"]);
    assert_eq!(fetched(&first), whole(&it));
    // The second connection finds the hint in memory.
    let many = warned(run(4), &["file/hints"]);
    assert_eq!((many.len(), fetched(&many)), (4, whole(&it)));
    assert!(many.iter().filter(|a| number(a, "cost/model/bytes_up") > 0).count() <= 2);
    for answer in &many {
        assert_eq!(number(answer, "label"), number(&first[0], "label"));
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"in the way");
    // To keep it is all that `fetch` is for.
    let fetch = jaguar(&["fetch", "--server", &it.server.address, "--cache", &file]);
    assert_fails(Process::start(fetch), &["creating", "file/hints"]);
}

#[test]
fn a_full_disk_is_left_as_it_was() {
    let it = Deployment::new("full", &[]);
    let (photo, cache) = (photo(), it.folder.path("cache"));
    let left = || -> u64 {
        let hints = std::fs::read_dir(it.folder.path("cache/hints")).unwrap();
        hints.map(|f| f.unwrap().metadata().unwrap().len()).sum()
    };
    // Room for a header and a part of the blocks; for nothing at all.
    for blocks in [100, 0] {
        let arguments = predict(&it, &cache, &photo, 3);
        let answers =
            warned(on_a_full_disk(blocks, &arguments).finish(WATCHDOG), &["writing", "cache", "in memory"]);
        assert_eq!((answers.len(), fetched(&answers)), (3, whole(&it)), "{blocks}");
        assert_eq!(left(), 0, "{blocks}");
    }
    // `fetch` fails, and leaves no part that would keep the disk full.
    let fetch = ["fetch", "--server", &it.server.address, "--cache", &cache];
    assert_fails(on_a_full_disk(100, &fetch), &["writing", "cache/hints/"]);
    assert_eq!(left(), 0);
    // With room on the disk it is kept.
    let run = || answers(Process::start(jaguar(&predict(&it, &cache, &photo, 1))), 1);
    assert_eq!((fetched(&run()), fetched(&run())), (whole(&it), 0));
}

/// A folder that is mounted read-only: a whole hint in it is used, without one memory serves.
#[test]
fn a_read_only_folder_is_read() {
    let apart = Command::new("unshare").args(["-m", "true"]).output();
    if !apart.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: this user may not mount anything");
        return;
    }
    let it = Deployment::new("read-only", &[]);
    let (photo, cache) = (photo(), it.folder.path("cache"));
    std::fs::create_dir(&cache).unwrap();
    let arguments = predict(&it, &cache, &photo, 1);
    let read_only = || {
        let script = format!(
            "mount --bind '{cache}' '{cache}' && mount -o remount,bind,ro '{cache}' && exec \"$0\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_jaguar")]).args(&arguments);
        Process::start(command).finish(WATCHDOG)
    };
    let without = warned(read_only(), &["cache", "Read-only", "in memory"]);
    assert_eq!(fetched(&without), whole(&it));
    answers(Process::start(jaguar(&arguments)), 1);
    let with = read_only();
    assert!(!with.stderr.contains("warning"), "{}", with.stderr);
    assert_eq!(fetched(&[serde_json::from_str(with.succeeded().trim()).unwrap()]), 0);
}

#[test]
fn nothing_is_kept_where_nothing_is_wanted() {
    let it = Deployment::new("no-cache", &[]);
    let (photo, home) = (photo(), it.folder.path("home"));
    std::fs::create_dir(&home).unwrap();
    let mut command =
        jaguar(&["predict", "--json", "--no-cache", "--server", &it.server.address, &photo, &photo]);
    command.env("HOME", &home).env("XDG_CACHE_HOME", &home);
    let finished = Process::start(command).finish(WATCHDOG);
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.succeeded().lines().count(), 2);
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    // Where no folder is known, and none was named.
    let mut command = jaguar(&["predict", "--json", "--server", &it.server.address, &photo]);
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    warned(Process::start(command).finish(WATCHDOG), &["no cache folder is known", "--cache"]);
}

/// One process fetches at a time: another waits for it, but not for ever.
#[test]
fn a_cache_in_use_is_waited_for_then_done_without() {
    let it = Deployment::new("fetching", &[]);
    let photo = photo();
    // Behind the greeting and the version, before the server hears what is missing of the hint.
    let relay = Relay::start(&it.server.address, 84);
    let client = it.client(&relay.address, "cache", &[&photo]);
    relay.wait(WATCHDOG);
    let other = it.client(&it.server.address, "cache", &[&photo]).finish(WATCHDOG);
    assert!(other.stderr.contains("note: another process is fetching the hint"), "{}", other.stderr);
    let other = warned(other, &["being fetched by another process", "in memory"]);
    relay.go_on();
    let first = answers(client, 1);
    assert_eq!([fetched(&other), fetched(&first)], [whole(&it); 2]);
    assert_eq!(fetched(&it.ask("cache", &[&photo])), 0);
    // To keep it is all that `fetch` is for; here it is there.
    let fetch = jaguar(&["fetch", "--server", &it.server.address, "--cache", &it.folder.path("cache")]);
    assert!(Process::start(fetch).finish(WATCHDOG).succeeded().contains("was there"));
}

/// Whoever comes first: all of them get their answers.
#[test]
fn first_queries_at_once_share_a_cache() {
    let it = Deployment::new("at-once", &[]);
    let photo = photo();
    let clients: Vec<Process> =
        (0..3).map(|_| it.client(&it.server.address, "cache", &[&photo, &photo])).collect();
    let labels: Vec<u64> =
        clients.into_iter().flat_map(|c| answers(c, 2)).map(|a| number(&a, "label")).collect();
    assert!(labels.iter().all(|l| *l == labels[0]), "{labels:?}");
    assert_eq!(fetched(&it.ask("cache", &[&photo])), 0);
}
