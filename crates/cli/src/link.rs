//! Slower links than the real one, to measure on.

use clap::ValueEnum;
use jaguar_wire::Channel;
use jaguar_wire::double::{Link, Shaped};
use jaguar_wire::tcp::Tcp;

/// A link to imitate. Each side shapes what it sends: give both the same.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shape {
    /// 384 MB/s, 0.3 ms round trip (the LAN of the Jaguar paper).
    Lan,
    /// 62.5 MB/s, 20 ms round trip (its WAN).
    Wan,
}

/// A channel over `tcp`, shaped if asked for.
pub fn channel(tcp: Tcp, shape: Option<Shape>) -> Channel {
    match shape {
        None => Channel::new(tcp),
        Some(Shape::Lan) => Channel::new(Shaped::new(tcp, Link::LAN)),
        Some(Shape::Wan) => Channel::new(Shaped::new(tcp, Link::WAN)),
    }
}
