//! Tells the benchmarks of which commit they are: a record says so.

use std::process::Command;

/// What is measured: all that the program is made of.
const MEASURED: [&str; 4] = ["../../crates", "../../papers", "../../Cargo.toml", "../../Cargo.lock"];

/// What git says to these words, without the newline behind it; `None` without git, or outside of a repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    let status: Vec<&str> = ["status", "--porcelain", "--"].into_iter().chain(MEASURED).collect();
    let commit = match (git(&["rev-parse", "--short=7", "HEAD"]), git(&status)) {
        (Some(commit), Some(changed)) if changed.is_empty() => commit,
        (Some(commit), Some(_)) => format!("{commit}, changed"),
        (Some(_) | None, _) => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=JAGUAR_COMMIT={commit}");
    let heads = ["HEAD", "logs/HEAD"].map(|name| git(&["rev-parse", "--git-path", name]));
    for path in MEASURED.into_iter().map(str::to_owned).chain(heads.into_iter().flatten()) {
        if std::path::Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
