//! `--protocol`.

use clap::ValueEnum;

/// Which protocol is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Phase sharing over a power-of-two ring.
    Jaguar,
    /// The baseline: Cheetah, everything at full width.
    Cheetah,
}

impl From<Protocol> for jaguar_plan::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Jaguar => Self::Jaguar,
            Protocol::Cheetah => Self::Cheetah,
        }
    }
}
