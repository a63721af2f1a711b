//! What TLS takes: the same bytes over loopback in the clear and in TLS, by turns, one way and both ways at once.
//!
//! `cargo run --release -p jaguar-net --example throughput [MEGABYTES] [REPEATS]`

use std::thread;
use std::time::{Duration, Instant};

use jaguar_net::tls::{Client, Server, Trust};
use jaguar_net::{Dialer, Listener};
use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{Channel, Transport, WireError};

fn connect(listener: &Listener, dialer: &Dialer) -> Result<(Framed, Framed), WireError> {
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept()?.greet(Options::default()));
        let connected = dialer.connect(Options::default())?;
        Ok((connected, accepting.join().expect("no panic")?.connection))
    })
}

/// Sends and receives so many bytes.
fn exchange(transport: impl Transport + 'static, send: usize, receive: usize) -> Result<(), WireError> {
    let mut channel = Channel::new(transport);
    let chunk = vec![0x5a; 1 << 20];
    (0..send / chunk.len()).try_for_each(|_| channel.send(&chunk))?;
    channel.flush()?;
    (0..receive / chunk.len()).try_for_each(|_| channel.recv(chunk.len()).map(drop))
}

fn time(pair: (Framed, Framed), up: usize, down: usize) -> Result<Duration, WireError> {
    let start = Instant::now();
    let (one, other) = pair;
    let answering = thread::spawn(move || exchange(other, down, up));
    exchange(one, up, down)?;
    answering.join().expect("no panic")?;
    Ok(start.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let bytes = numbers.next().transpose()?.unwrap_or(512) << 20;
    let repeats = numbers.next().transpose()?.unwrap_or(7);
    let folder = std::env::temp_dir().join(format!("jaguar-throughput-{}", std::process::id()));
    let server = Server::made(&folder, None)?;
    let client = Client::new(&Trust::Pin(server.fingerprint()), None)?;
    let listen = || Listener::bind(&"127.0.0.1:0".parse().expect("an address"));
    let (clear, secret) = (listen()?, listen()?.with_tls(server));
    let dial = |listener: &Listener| {
        listener.bound().map(|at| Dialer::new(at.to_string().parse().expect("an address")))
    };
    let (to_clear, to_secret) = (dial(&clear)?, dial(&secret)?.with_tls(client));
    for (name, up, down) in [("one way", bytes, 0), ("both ways", bytes, bytes)] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..repeats {
            times[0].push(time(connect(&clear, &to_clear)?, up, down)?);
            times[1].push(time(connect(&secret, &to_secret)?, up, down)?);
        }
        let [plain, tls] = times.map(|mut all| {
            all.sort();
            all[all.len() / 2].as_secs_f64()
        });
        let rate = |seconds: f64| (up + down) as f64 / seconds * 1e-6;
        println!(
            "{name}: {:.0} MB/s in the clear, {:.0} MB/s in TLS, {:.2} times as long (medians of {repeats})",
            rate(plain),
            rate(tls),
            tls / plain
        );
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
