//! Which protocol an option is for, where it is for one alone: with the other it would be read and mean nothing.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error};

use super::Protocol;
use crate::kit;

/// Options (and arguments) of commands that mean something to the interactive protocol alone.
const INTERACTIVE: [(&str, &[&str]); 3] = [
    (
        "compile",
        &[
            "activation_bits",
            "hide_for",
            "signs",
            "accuracy_bound",
            "data",
            "loss",
            "weight_bits",
            "headroom",
            "verbose",
            "report",
        ],
    ),
    (
        "predict",
        &["model", "stdin", "costs", "keep", "keep_memory", "batch", "csv", "resume", "trace", "lpn_noise"],
    ),
    (
        "serve",
        &[
            "hide_for",
            "backends",
            "reveal",
            "plan_for",
            "prefer",
            "max_batch",
            "weight_memory",
            "lpn_noise",
            "device",
            "measure",
            "max_memory",
            "new_hints_per_hour",
            "new_hints_per_address_and_hour",
            "keep_queries",
            "keep_memory",
            "keep_idle",
            "keep_keys",
            "web",
        ],
    ),
];

/// The protocol that an option of the command `name` is for; none if it is for all.
fn protocol_of(name: &str, arg: &Arg) -> Option<Protocol> {
    let listed = |(command, ids): &(&str, &[&str])| *command == name && ids.contains(&arg.get_id().as_str());
    let mut one_round = kit::ONE_ROUND.iter().filter(|own| arg.get_help_heading() == Some(own.heading()));
    let own = one_round.next().copied().map(Protocol::OneRound);
    own.or_else(|| INTERACTIVE.iter().any(listed).then_some(Protocol::Interactive))
}

/// What is wrong with an option of the command `name` that somebody has set, beside this protocol. `told` says where the protocol
/// comes from ([`DEFAULT`]), or nothing.
pub fn misplaced(name: &str, arg: &Arg, (protocol, told): (Protocol, &str)) -> Option<String> {
    let own = protocol_of(name, arg).filter(|own| *own != protocol)?;
    let option = arg.get_long().unwrap_or_default();
    Some(format!("--{option} is for --protocol {own}, and means nothing with --protocol {protocol}{told}"))
}

/// Refuses a command line that has an option of the other protocol.
///
/// # Errors
/// The option and the protocol, by name.
pub fn check(command: &Command, matches: &ArgMatches) -> Result<(), Error> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    // (What stands in a file counts for `jaguar serve`, too: it looks for itself.)
    let protocols = INTERACTIVE.iter().any(|(command, _)| *command == name && name != "serve");
    let Some(itself) = command.find_subcommand(name).filter(|_| protocols) else { return Ok(()) };
    let set = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let chosen = matches.get_one("protocol").copied().unwrap_or_default();
    let told = if set("protocol") { "" } else { DEFAULT };
    let given = itself.get_arguments().filter(|arg| set(arg.get_id().as_str()));
    match given.into_iter().find_map(|arg| misplaced(name, arg, (chosen, told))) {
        None => Ok(()),
        Some(wrong) => Err(Error::raw(ErrorKind::ArgumentConflict, format!("{wrong}\n"))),
    }
}

/// What is said of a protocol that nobody chose.
pub const DEFAULT: &str = " (the default)";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;
    use crate::serve::Settings;

    /// What is said of a command line.
    fn checked(line: &str) -> Result<(), String> {
        if let Some(words) = line.strip_prefix("jaguar serve ") {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            return Settings::load(&words).map(drop).map_err(|e| e.to_string());
        }
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(line.split(' ')).expect(line);
        check(&command, &matches).map_err(|e| e.to_string())
    }

    /// A command line that sets an option to a value that it takes.
    fn line(name: &str, arg: &Arg) -> String {
        let (option, zeros) = (arg.get_long().expect("an option"), "0".repeat(64));
        let possible = arg.get_possible_values();
        let value = match (option, possible.first()) {
            _ if !arg.get_action().takes_values() => "",
            (_, Some(value)) => value.get_name(),
            ("ticket", None) => zeros.as_str(),
            ("backends", None) => "jaguar",
            ("plan-for", None) => "lan",
            ("keep-answers", None) => "1h",
            (_, None) => "4",
        };
        // (Some need another one, or must be without an input.)
        let base = match (name, option) {
            ("compile", "first-layers") => "x.onnx --calibrate x -o x --last 1",
            ("compile", _) => "x.onnx --calibrate x -o x",
            ("predict", "ticket") => "--top 1",
            ("predict", "resume") => "x --csv x",
            _ => "x",
        };
        format!("jaguar {name} {base} --{option} {value}").trim_end().to_owned()
    }

    #[test]
    fn options_of_the_other_protocol_are_refused_by_both_names() {
        let all = Cli::command();
        let mut tried = [0, 0];
        for (name, _) in INTERACTIVE {
            for arg in all.find_subcommand(name).expect(name).get_arguments() {
                let Some(own) = protocol_of(name, arg) else { continue };
                let line = line(name, arg);
                assert_eq!(checked(&format!("{line} --protocol {own}")), Ok(()), "{line}");
                let other = match own {
                    Protocol::Interactive => Protocol::OneRound(kit::ONE_ROUND[0]),
                    Protocol::OneRound(_) => Protocol::Interactive,
                };
                let both = [own, other].map(|protocol| format!("--protocol {protocol}"));
                let named = format!("{line} {}", both[1]);
                // (The interactive one needs no name.)
                for line in if other.is_interactive() { vec![named, line] } else { vec![named] } {
                    let wrong = checked(&line).expect_err(&line);
                    assert!(both.iter().all(|part| wrong.contains(part)), "{line}: {wrong}");
                    assert!(wrong.trim_start_matches("error: ").starts_with("--"), "{line}: {wrong}");
                }
                tried[usize::from(!own.is_interactive())] += 1;
            }
        }
        assert_eq!(tried, [38, 14]);
    }

    /// A new option is thought of: if it is for the interactive protocol alone, it belongs into the list.
    #[test]
    fn every_option_is_for_one_protocol_or_for_both() {
        let all = Cli::command();
        for (name, ids) in INTERACTIVE {
            let command = all.find_subcommand(name).expect(name);
            assert!(
                ids.iter().all(|id| command.get_arguments().any(|arg| arg.get_id() == id)),
                "{name}: {ids:?}"
            );
            let both = command.get_arguments().filter(|arg| protocol_of(name, arg).is_none()).count();
            let known = match name {
                "compile" => 19,
                "predict" => 18,
                _ => 26,
            };
            assert_eq!(both, known, "{name}");
        }
    }
}
