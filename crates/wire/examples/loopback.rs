//! Measures what a round and a megabyte cost over TCP on this machine: both parties here, over loopback.
//!
//! `cargo run --release -p jaguar-wire --example loopback`

use std::thread;
use std::time::Instant;

use jaguar_wire::Channel;
use jaguar_wire::tcp::{Listener, Options, Tcp};

const ROUNDS: u32 = 20_000;
const MEGABYTES: usize = 2000;

fn main() -> Result<(), jaguar_wire::WireError> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address()?;
    let echo = thread::spawn(move || -> Result<(), jaguar_wire::WireError> {
        let mut ch = Channel::new(listener.accept()?.greet(Options::default())?);
        let mut word = [0; 8];
        for _ in 0..ROUNDS {
            ch.recv_into(&mut word)?;
            ch.send(&word)?;
        }
        let mut block = vec![0; 1_000_000];
        for _ in 0..MEGABYTES {
            ch.recv_into(&mut block)?;
        }
        ch.send(&word)
    });
    let mut ch = Channel::new(Tcp::connect(address, Options::default())?);

    let start = Instant::now();
    let mut word = [0; 8];
    for _ in 0..ROUNDS {
        ch.send(&word)?;
        ch.recv_into(&mut word)?;
    }
    let per_round = start.elapsed() / ROUNDS;

    let block = vec![0x5a; 1_000_000];
    let start = Instant::now();
    for _ in 0..MEGABYTES {
        ch.send(&block)?;
    }
    ch.recv_into(&mut word)?;
    let seconds = start.elapsed().as_secs_f64();
    echo.join().expect("the echo does not panic")?;

    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, loopback, one connection");
    println!("round trip of 8 bytes: {per_round:?} (mean of {ROUNDS})");
    println!("one direction: {:.0} MB/s ({MEGABYTES} MB)", MEGABYTES as f64 / seconds);
    Ok(())
}
