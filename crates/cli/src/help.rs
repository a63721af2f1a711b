//! What `--help` shows: of each command the options that people use, one a line. `--help all` shows every option, in full.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// What stands behind `--help` of somebody who wants to see all.
const ALL: &str = "all";

/// `command` with its `--help`; `words` are then without what is said to that alone.
pub fn command(command: Command, words: &mut Vec<OsString>) -> Command {
    let asked = words.windows(2).position(|two| (two[0] == "--help" || two[0] == "-h") && two[1] == ALL);
    if let Some(at) = asked {
        words.remove(at + 1);
    }
    with_help(command, asked.is_some())
}

/// The command, whose `--help` shows everything or the usual.
fn with_help(command: Command, everything: bool) -> Command {
    let action = if everything { ArgAction::HelpLong } else { ArgAction::HelpShort };
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .help("Show the usual options; with `all` behind it, all of them");
    let version =
        Arg::new("version").short('V').long("version").help("Show the version").action(ArgAction::Version);
    let own = [help.action(action), version].map(|arg| arg.global(true).help_heading("Help"));
    let command = command.disable_help_flag(true).disable_help_subcommand(true);
    let command = command.disable_version_flag(true).args(own);
    if everything { whole(command) } else { usual(command, "jaguar".to_owned()) }
}

/// With every option shown.
fn whole(command: Command) -> Command {
    command.mut_args(|arg| arg.hide(false)).mut_subcommands(whole)
}

/// Says at the end of each help how much more there is.
fn usual(command: Command, name: String) -> Command {
    let hidden = command.get_arguments().filter(|arg| arg.is_hide_set()).count();
    let more = match hidden {
        0 => format!("`{name} --help all` says more of each."),
        1 => format!("`{name} --help all` shows one option more, and says more of each."),
        _ => format!("`{name} --help all` shows {hidden} options more, and says more of each."),
    };
    command.after_help(more).mut_subcommands(|sub| {
        let name = format!("{name} {}", sub.get_name());
        usual(sub, name)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    /// Lines of options that a help may have.
    const LINES: usize = 20;

    /// What each command and each of its own commands shows: its words, itself, and its help.
    fn helps(everything: bool) -> Vec<(String, Command, String)> {
        let mut found = Vec::new();
        let mut left = vec![vec!["jaguar".to_owned()]];
        while let Some(path) = left.pop() {
            let mut command = with_help(Cli::command(), everything).term_width(100);
            let words = path.iter().cloned().chain(["--help".to_owned()]);
            let help = command.try_get_matches_from_mut(words).expect_err("help").to_string();
            let mut itself = &command;
            for name in &path[1..] {
                itself = itself.find_subcommand(name).expect("it was found before");
            }
            let below =
                itself.get_subcommands().map(|sub| [&path[..], &[sub.get_name().to_owned()]].concat());
            left.extend(below);
            found.push((path.join(" "), itself.clone(), help));
        }
        assert!(found.len() > 12, "{}", found.len());
        found
    }

    #[test]
    fn help_has_twenty_lines_of_options_at_most() {
        for (name, _, help) in helps(false) {
            let mut section = "";
            let mut lines = Vec::new();
            for line in help.lines() {
                if !line.starts_with(' ') {
                    section = line;
                } else if !section.starts_with("Commands") && !section.starts_with("Arguments") {
                    lines.push(line);
                }
            }
            lines.retain(|line| !line.trim().is_empty());
            assert!(lines.len() <= LINES, "{name}: {} lines\n{help}", lines.len());
            // One line an option, and each in a group that says what it is for.
            assert!(lines.iter().all(|line| line.trim_start().starts_with('-')), "{name}\n{help}");
            assert!(!help.contains("\nOptions:"), "{name}\n{help}");
        }
    }

    #[test]
    fn all_shows_every_option() {
        for (name, command, help) in helps(true) {
            assert!(!help.contains("\nOptions:"), "{name}\n{help}");
            for arg in command.get_arguments() {
                let shown = match (arg.get_long(), arg.get_value_names()) {
                    (Some(long), _) => format!("--{long}"),
                    (None, Some([value, ..])) => format!("{value}"),
                    (None, _) => panic!("{name}: {arg:?}"),
                };
                assert!(help.contains(&shown), "{name}: {shown}\n{help}");
            }
        }
    }

    #[test]
    fn all_is_a_word_of_help_alone() {
        for (line, rest, shows) in [
            ("jaguar serve --help all", "jaguar serve --help", "--keep-answers"),
            ("jaguar -h all", "jaguar -h", "Commands"),
            ("jaguar serve all --help", "jaguar serve all --help", "--max-clients"),
        ] {
            let mut words = line.split(' ').map(OsString::from).collect();
            let mut command = command(Cli::command(), &mut words);
            assert_eq!(words, rest.split(' ').map(OsString::from).collect::<Vec<_>>());
            let help = command.try_get_matches_from_mut(words).expect_err("help").to_string();
            assert!(help.contains(shows), "{line}\n{help}");
        }
        let (_, _, usual) =
            helps(false).into_iter().find(|(name, ..)| name == "jaguar serve").expect("it is one");
        assert!(
            !usual.contains("--keep-answers") && usual.contains("`jaguar serve --help all` shows"),
            "{usual}"
        );
    }
}
