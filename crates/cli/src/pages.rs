//! What the documentation says to type is what a program takes: each of its lines in a block of shell, each of its commands and options
//! that a sentence names. Nothing runs here; `tests/two_processes/pages.rs` runs the pages that a newcomer follows. (`jaguar-bench` has
//! this module, too.)

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, Parser};

use crate::Cli;

/// The program, as pages call it.
const PROGRAM: &str = env!("CARGO_BIN_NAME");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the repository but its history: the path, and the text.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            let built = name.starts_with('.') || ["target", "models", "corpus"].contains(&&*name);
            if path.is_dir() && !built {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") && name != "CHANGELOG.md" {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().display().to_string(), text));
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

/// The words of each command of the program in a line of shell; what is said to be optional is given, with the first of its values.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" # ").next().unwrap();
    let line = line.trim_start_matches("# or: ");
    let line = line.replace("[preprocessing]", "").replace(['[', ']'], " ");
    let line = line.replace("target/release/", "");
    line.split(['&', ';'])
        .map(|part| part.split(" > ").next().unwrap())
        .filter(|part| part.split_whitespace().next() == Some(PROGRAM))
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
    // (README.md, start, tutorial, models, operation, planner, the protocols; of `jaguar-bench` fewer.)
    assert!(parsed >= if PROGRAM == "jaguar" { 40 } else { 5 }, "{parsed} commands were found");
}

/// What stands between backticks in a page's sentences. (Of a record, the command is that of its commit.)
fn spans(text: &str) -> Vec<String> {
    let mut inside = false;
    let prose = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !(inside || fence)
    });
    let prose = prose.collect::<Vec<_>>().join("\n");
    let paragraphs = prose.split("\n\n").filter(|paragraph| !paragraph.starts_with("Commit "));
    let spans = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Whether a command has an option of this name, `--name` or `-n`.
fn has(command: &Command, option: &str) -> bool {
    let named = |arg: &Arg| match option.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long)),
        None => arg.get_short().is_some_and(|short| option == format!("-{short}")),
    };
    ["--help", "-h", "--version", "-V", "--"].contains(&option) || command.get_arguments().any(named)
}

/// What the program lacks of a line that a sentence names: a command, or an option of one. Words in capitals stand for any.
fn lacks(line: &str) -> Option<String> {
    let program = Cli::command();
    let (mut command, mut value) = (&program, false);
    for word in line.split_whitespace().skip(1) {
        if ["|", "&&", ";", "&", ">", "#"].contains(&word) {
            break;
        }
        let name = word.split(['=', '/']).next().unwrap().trim_end_matches(['.', ',', ';', ':', ')', ']']);
        let option =
            name.starts_with('-') && name.len() > 1 && !name[1..].starts_with(|c: char| c.is_ascii_digit());
        if option && !has(command, name) {
            return Some(format!("{name} of {}", command.get_name()));
        }
        let plain = word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if plain && !value && command.has_subcommands() {
            match command.find_subcommand(word) {
                Some(below) => command = below,
                None => return Some(word.to_owned()),
            }
        }
        value = option;
    }
    None
}

#[test]
fn every_command_and_option_that_a_sentence_names_is_one() {
    let mut named = 0;
    for (page, text) in pages() {
        for span in spans(&text).iter().filter(|span| span.split(' ').next() == Some(PROGRAM)) {
            assert_eq!(lacks(span), None, "{page}: {span}");
            named += 1;
        }
    }
    assert!(named >= 20, "{named} were found");
    let command = Cli::command().get_subcommands().next().expect("one").get_name().to_owned();
    for (line, wrong) in [
        ("gone".to_owned(), Some("gone".to_owned())),
        ("--gone".to_owned(), Some(format!("--gone of {}", Cli::command().get_name()))),
        (format!("{command} MODEL --gone=3"), Some(format!("--gone of {command}"))),
        (format!("{command} --help all | x --gone"), None),
    ] {
        assert_eq!(lacks(&format!("{PROGRAM} {line}")), wrong, "{line}");
    }
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
        "--example",
        "--size",
        "--layers",
        "--count",
        "--torch",
        "--network",
        "--table",
        "--pictures",
        "--record",
        "--without",
        "--sample",
        "--sampled",
        "--seed",
        "--jobs",
        "--import",
        "--write",
        "--places",
        "--seconds",
        "--session",
        "--leave-within",
    ];
    for (page, text) in if PROGRAM == "jaguar" { pages() } else { Vec::new() } {
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
