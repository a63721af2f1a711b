//! Links: those that can be imitated, to measure on, and those that are planned for.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::str::FromStr;

use jaguar_plan::machine::{Link, Machine, Placement};
use jaguar_plan::predict::{Aim, Site};
use jaguar_wire::double::{self, Shaped};
use jaguar_wire::{Channel, Transport};

use crate::store::{known_link, read_link};

/// A link to imitate. Each side shapes what it sends: give both the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Imitated {
    /// 384 MB/s, 0.3 ms round trip (the LAN of the Jaguar paper).
    Lan,
    /// 62.5 MB/s, 20 ms round trip (its WAN).
    Wan,
    /// 460 MB/s (the LAN of the Fregata paper), 0.3 ms round trip (assumed).
    Lan460,
}

impl Imitated {
    /// What it delays by.
    pub fn link(self) -> double::Link {
        match self {
            Self::Lan => double::Link::LAN,
            Self::Wan => double::Link::WAN,
            Self::Lan460 => double::Link::LAN_460,
        }
    }

    /// The same, as the planner calculates with it.
    pub fn figures(self) -> Link {
        let double::Link { bytes_per_second, one_way } = self.link();
        Link { bytes_per_second, round_trip: 2.0 * one_way.as_secs_f64() }
    }

    /// Its name: `lan`, `wan` or `lan460`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Wan => "wan",
            Self::Lan460 => "lan460",
        }
    }
}

/// A channel over `transport`, delayed as `imitated` says, if it says anything.
pub fn channel(transport: impl Transport + 'static, imitated: Option<Imitated>) -> Channel {
    match imitated {
        None => Channel::new(transport),
        Some(imitated) => Channel::new(Shaped::new(transport, imitated.link())),
    }
}

/// What lies between the two parties, to plan for.
#[derive(Clone, Debug, PartialEq)]
pub enum Between {
    /// Two processes on this machine.
    Loopback,
    /// One of those that can be imitated.
    Imitated(Imitated),
    /// As measured by a client (`jaguar measure --link-to`), or assumed.
    Measured(Link),
}

/// Why a text names no link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLink {
    /// The file's link has no bandwidth, or figures that are not finite.
    #[error("a link that carries nothing")]
    Unsound,
    /// There is no such file.
    #[error("neither loopback, lan or wan nor a file")]
    Unknown,
    /// The file is of no use.
    #[error(transparent)]
    Unusable(#[from] crate::Unusable),
}

impl FromStr for Between {
    type Err = NoLink;

    /// Reads `loopback`, `lan`, `wan`, `lan460`, or the name of a file that [`write_link`](crate::store::write_link) wrote.
    fn from_str(text: &str) -> Result<Self, NoLink> {
        match text {
            "loopback" => Ok(Self::Loopback),
            "lan" => Ok(Self::Imitated(Imitated::Lan)),
            "wan" => Ok(Self::Imitated(Imitated::Wan)),
            "lan460" => Ok(Self::Imitated(Imitated::Lan460)),
            path => match read_link(Path::new(path))? {
                Some(link) if link.is_sound() => Ok(Self::Measured(link)),
                Some(_) => Err(NoLink::Unsound),
                None => Err(NoLink::Unknown),
            },
        }
    }
}

impl Between {
    /// What a client sees between itself and the server at `address`: the imitated link if there is one, else this
    /// machine, else what was measured before and kept in the folder `cache`.
    pub fn to(cache: Option<&Path>, address: &str, imitated: Option<Imitated>) -> Option<Self> {
        let here = || address.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()));
        match imitated {
            Some(imitated) => Some(Self::Imitated(imitated)),
            None if here() => Some(Self::Loopback),
            None => known_link(cache, address).map(Self::Measured),
        }
    }

    /// Where a plan is to run: on this machine, and over this link. Imitated links run between two processes of one
    /// machine. `aim` says what is to be short.
    pub fn site<'a>(&self, machine: &'a Machine, aim: Aim) -> Site<'a> {
        let (link, placement) = match self {
            Self::Loopback => (machine.loopback, Placement::Shared),
            Self::Imitated(imitated) => (imitated.figures(), Placement::Shared),
            Self::Measured(link) => (*link, Placement::Apart),
        };
        Site { machine, link, placement, aim }
    }
}
