//! Slower links than the real one, to measure on.

use clap::ValueEnum;
use jaguar_wire::double::{Link, Shaped};
use jaguar_wire::{Channel, Transport};

/// A link to imitate. Each side shapes what it sends: give both the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// 384 MB/s, 0.3 ms round trip (the LAN of the Jaguar paper).
    Lan,
    /// 62.5 MB/s, 20 ms round trip (its WAN).
    Wan,
}

impl Shape {
    /// What it delays by.
    pub fn link(self) -> Link {
        match self {
            Self::Lan => Link::LAN,
            Self::Wan => Link::WAN,
        }
    }

    /// The same, as the planner calculates with it.
    pub fn figures(self) -> jaguar_plan::machine::Link {
        let Link { bytes_per_second, one_way } = self.link();
        jaguar_plan::machine::Link { bytes_per_second, round_trip: 2.0 * one_way.as_secs_f64() }
    }

    /// The name of the option's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }
}

/// A channel over `transport`, shaped if asked for.
pub fn channel(transport: impl Transport + 'static, shape: Option<Shape>) -> Channel {
    match shape {
        None => Channel::new(transport),
        Some(shape) => Channel::new(Shaped::new(transport, shape.link())),
    }
}
