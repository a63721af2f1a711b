//! What the documentation says to type is what the command takes: each `jaguar` line in a block of shell, and each option that is
//! named in a sentence. Nothing runs here; `tests/two_processes/pages.rs` runs the pages that a newcomer follows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::Cli;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the repository: its path, and its text.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![
        "docs",
        "docs/protocols",
        "",
        "python/jaguar",
        "papers/circulant",
        "params",
        "packaging",
        "papers/convfhe/fhe",
        "demo",
    ];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                found.push((format!("{folder}/{name}"), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(found.len() > 25, "{found:?}");
    found
}

/// Lines of blocks of shell, those that go on joined.
fn shell(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for block in text.split("```sh\n").skip(1) {
        let block = block.split("```").next().unwrap().replace("\\\n", " ");
        lines.extend(block.lines().map(|line| line.trim().to_owned()));
    }
    lines
}

/// The words of each `jaguar` command in a line of shell; what is said to be optional is given, with the first of its values.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" # ").next().unwrap();
    let line = line.trim_start_matches("# or: ");
    let line = line.replace("[preprocessing]", "").replace(['[', ']'], " ");
    let line = line.replace("target/release/jaguar ", "jaguar ");
    line.split(['&', ';'])
        .map(|part| part.split(" > ").next().unwrap())
        .filter(|part| part.trim_start().starts_with("jaguar "))
        .map(|part| {
            part.split_whitespace()
                .map(|word| word.split('|').next().unwrap())
                // A file that only the reader has.
                .map(|word| match word.split_once('=') {
                    Some((name, file)) if file.ends_with(".npy") => format!("{name}=0"),
                    // What the command before has printed.
                    None if word == "TICKET" => "0".repeat(64),
                    _ => word.to_owned(),
                })
                .collect()
        })
        .collect()
}

#[test]
fn every_command_on_the_pages_is_one() {
    let mut parsed = 0;
    for (page, text) in pages() {
        for line in shell(&text) {
            for words in commands(&line) {
                match Cli::try_parse_from(&words) {
                    Ok(_) => parsed += 1,
                    Err(e) if e.kind() == clap::error::ErrorKind::DisplayVersion => parsed += 1,
                    Err(e) => panic!("{page}: {line}\n{e}"),
                }
            }
        }
    }
    // (README.md, start, tutorial, models, operation, planner, the protocols.)
    assert!(parsed >= 40, "{parsed} commands were found");
}

/// Options of the command and of all its subcommands.
fn options() -> BTreeSet<String> {
    let mut found: BTreeSet<String> = ["--help", "--version"].map(str::to_owned).into();
    let mut all = vec![Cli::command()];
    while let Some(command) = all.pop() {
        found.extend(command.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?))));
        all.extend(command.get_subcommands().cloned());
    }
    found
}

#[test]
fn every_option_on_the_pages_that_teach_is_one() {
    let options = options();
    // Of cargo, of Debian's and of the project's own programs.
    let others = [
        "--queries",
        "--path",
        "--locked",
        "--release",
        "--features",
        "--variants",
        "--example",
        "--size",
        "--layers",
        "--count",
        "--torch",
        "--network",
        "--table",
    ];
    for (page, text) in pages() {
        let name = page.trim_start_matches("docs/");
        let teaches = [
            "start.md",
            "tutorial.md",
            "your-model.md",
            "models.md",
            "operation.md",
            "choosing.md",
            "planner.md",
        ];
        if !teaches.contains(&name) {
            continue;
        }
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            if !word.starts_with("--") || !word[2..].starts_with(|c: char| c.is_ascii_lowercase()) {
                continue;
            }
            // (Several that begin alike: `--keep-*`.)
            let begins = |option: &String| word.ends_with('-') && option.starts_with(word);
            let known = options.contains(word) || options.iter().any(begins) || others.contains(&word);
            assert!(known, "{page}: {word}");
        }
    }
}
