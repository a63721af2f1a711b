//! `--protocol`: layer by layer, or by one of the kit's protocols of one round.

pub mod accuracy;
mod belongs;
pub mod protocol;

use std::fmt;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Command, Error, FromArgMatches};

use crate::kit;

pub use belongs::{DEFAULT, check, misplaced};
pub use protocol::{Answered, OneRound, Request, Source, Unencrypted, Which};

/// How server and client compute.
#[derive(Clone, Copy, Default)]
pub enum Protocol {
    /// Both parties talk layer by layer.
    #[default]
    Interactive,
    /// One message up, one down.
    OneRound(&'static dyn OneRound),
}

impl Protocol {
    /// As it stands behind `--protocol`.
    fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::OneRound(protocol) => protocol.name(),
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Interactive => "Both parties talk layer by layer: seconds, and tens of megabytes",
            Self::OneRound(protocol) => protocol.about(),
        }
    }

    /// Whether it is the interactive one.
    pub fn is_interactive(self) -> bool {
        matches!(self, Self::Interactive)
    }

    /// What reads it. One that this program was built without is refused by how to build with it.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        parser(kit::ONE_ROUND, kit::LEFT_OUT)
    }
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// As [`Protocol::parser`], where `there` are built in, and `left_out` are not: names that are their features' as well.
fn parser(
    there: &'static [&'static dyn OneRound],
    left_out: &'static [&'static str],
) -> impl TypedValueParser<Value = Protocol> {
    let all = || [Protocol::Interactive].into_iter().chain(there.iter().copied().map(Protocol::OneRound));
    let shown = all().map(|protocol| PossibleValue::new(protocol.name()).help(protocol.about()));
    let hidden = left_out.iter().map(|&name| PossibleValue::new(name).hide(true));
    PossibleValuesParser::new(shown.chain(hidden)).try_map(move |name| {
        all().find(|protocol| protocol.name() == name).ok_or_else(|| {
            format!("this program is built without it; `cargo build --release --package jaguar-cli --features {name}` has it")
        })
    })
}

/// Options that the kit's protocols add to a command of this name, behind all others of its own: what was given.
macro_rules! options {
    ($($command:ident)*) => {$(
        pub struct $command(pub ArgMatches);

        impl clap::Args for $command {
            fn augment_args(command: Command) -> Command {
                kit::ONE_ROUND.iter().fold(command, |command, protocol| protocol.options(Which::$command, command))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $command {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self(matches.clone()))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                self.0 = matches.clone();
                Ok(())
            }
        }
    )*};
}

options!(Compile Predict Serve);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_that_is_not_built_in_is_refused_by_how_to_build_with_it() {
        let command = || {
            let protocol = clap::Arg::new("protocol").long("protocol").value_parser(parser(&[], &["other"]));
            Command::new("x").no_binary_name(true).arg(protocol)
        };
        let refused =
            |name| command().try_get_matches_from(["--protocol", name]).expect_err(name).to_string();
        assert!(refused("other").contains("--features other"), "{}", refused("other"));
        assert!(refused("else").contains("[possible values: interactive]"), "{}", refused("else"));
        let taken = command().try_get_matches_from(["--protocol", "interactive"]).expect("it is there");
        assert!(taken.get_one::<Protocol>("protocol").is_some_and(|protocol| protocol.is_interactive()));
    }
}
