//! Measures what a round and a megabyte cost over TCP on this machine: both parties here, over loopback, bare and
//! through the shaped links of Jaguar's paper.
//!
//! `cargo run --release -p jaguar-wire --example loopback`

use std::thread;
use std::time::Instant;

use jaguar_wire::double::{Link, Shaped};
use jaguar_wire::tcp::{Listener, Options, Tcp};
use jaguar_wire::{Channel, WireError};

/// How much to send to see something.
struct Load {
    rounds: u32,
    megabytes: usize,
}

fn channel(tcp: Tcp, link: Option<Link>) -> Channel {
    match link {
        Some(link) => Channel::new(Shaped::new(tcp, link)),
        None => Channel::new(tcp),
    }
}

fn measure(name: &str, link: Option<Link>, load: &Load) -> Result<(), WireError> {
    let Load { rounds, megabytes } = *load;
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?;
    let echo = thread::spawn(move || -> Result<(), WireError> {
        let mut ch = channel(listener.accept()?.greet(Options::default())?, link);
        let mut word = [0; 8];
        for _ in 0..rounds {
            ch.recv_into(&mut word)?;
            ch.send(&word)?;
        }
        let mut block = vec![0; 1_000_000];
        for _ in 0..megabytes {
            ch.recv_into(&mut block)?;
        }
        ch.send(&word)
    });
    let mut ch = channel(Tcp::connect(address, Options::default())?, link);

    let start = Instant::now();
    let mut word = [0; 8];
    for _ in 0..rounds {
        ch.send(&word)?;
        ch.recv_into(&mut word)?;
    }
    let round = start.elapsed() / rounds;

    let block = vec![0x5a; 1_000_000];
    let start = Instant::now();
    for _ in 0..megabytes {
        ch.send(&block)?;
    }
    ch.recv_into(&mut word)?;
    let seconds = start.elapsed().as_secs_f64();
    echo.join().expect("the echo does not panic")?;

    let rate = megabytes as f64 / seconds;
    println!("{name}: round trip {round:?} (mean of {rounds}), one way {rate:.1} MB/s ({megabytes} MB)");
    Ok(())
}

fn main() -> Result<(), WireError> {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, one connection, 8 bytes a round");
    measure("loopback", None, &Load { rounds: 20_000, megabytes: 2000 })?;
    measure("LAN (0.3 ms, 384 MB/s)", Some(Link::LAN), &Load { rounds: 2000, megabytes: 1000 })?;
    measure("WAN (20 ms, 62.5 MB/s)", Some(Link::WAN), &Load { rounds: 50, megabytes: 100 })
}
