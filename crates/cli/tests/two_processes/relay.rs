//! A link between client and server that stops at a chosen byte until it is told to go on: so that something
//! can happen to either side in the middle of a query, and always at the same place.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Relays one connection.
pub struct Relay {
    /// Where the client connects to.
    pub address: String,
    reached: Receiver<()>,
    resume: Sender<()>,
    passed: [Arc<AtomicU64>; 2],
}

impl Relay {
    /// Relays to `server` and stops the client's bytes once `pause_after` of them came.
    pub fn start(server: &str, pause_after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (tell_reached, reached) = channel();
        let (resume, go_on) = channel();
        let passed = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let [up, down] = passed.clone();
        let server = server.to_owned();
        thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else { return };
            let Ok(server) = TcpStream::connect(server) else { return };
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("a socket");
            }
            let ends = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
            thread::spawn(move || copy(ends.0, ends.1, &down, &mut |_| ()));
            let mut paused = false;
            copy(client, server, &up, &mut |count| {
                if count >= pause_after && !paused {
                    paused = true;
                    let _ = tell_reached.send(());
                    let _ = go_on.recv();
                }
            });
        });
        Self { address, reached, resume, passed }
    }

    /// Waits until the client's bytes are stopped.
    #[track_caller]
    pub fn wait(&self, limit: Duration) {
        self.reached.recv_timeout(limit).expect("the client sends as much");
    }

    /// Lets them pass again.
    pub fn go_on(&self) {
        let _ = self.resume.send(());
    }

    /// Bytes that passed: from the client, to the client.
    pub fn passed(&self) -> [u64; 2] {
        [0, 1].map(|i| self.passed[i].load(Ordering::SeqCst))
    }
}

/// Relays to these servers by turns, a connection each. Returns where the client connects to.
pub fn in_turn(servers: &[&str]) -> String {
    begun(servers, Vec::new())
}

/// Relays to `server`, and says `first` before each client does. Returns where the client connects to.
pub fn introducing(server: &str, first: Vec<u8>) -> String {
    begun(&[server], first)
}

fn begun(servers: &[&str], first: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let servers: Vec<String> = servers.iter().map(|&server| server.to_owned()).collect();
    thread::spawn(move || {
        for (client, server) in listener.incoming().zip(servers.iter().cycle()) {
            let (Ok(client), Ok(mut server)) = (client, TcpStream::connect(server)) else { return };
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let back = (clone(&server), clone(&client));
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("a socket");
            }
            server.write_all(&first).expect("it is there");
            thread::spawn(move || copy(back.0, back.1, &AtomicU64::new(0), &mut |_| ()));
            thread::spawn(move || copy(client, server, &AtomicU64::new(0), &mut |_| ()));
        }
    });
    address
}

/// Relays to `server`, and cuts the second connection once the client has sent so many bytes over it. Returns where the client
/// connects to.
pub fn cutting(server: &str, after: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = server.to_owned();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("a socket");
            }
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let (back, both) = ((clone(&server), clone(&client)), [clone(&server), clone(&client)]);
            thread::spawn(move || copy(back.0, back.1, &AtomicU64::new(0), &mut |_| ()));
            thread::spawn(move || {
                copy(client, server, &AtomicU64::new(0), &mut |count| {
                    if number == 1 && count >= after {
                        both.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
                    }
                });
            });
        }
    });
    address
}

/// What went one way so far, a connection each.
pub type Recorded = Arc<Mutex<Vec<Vec<u8>>>>;

/// Relays to `server`, and records it. Returns where clients connect to, what they have sent, and what they got.
pub fn recording(server: &str) -> (String, Recorded, Recorded) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = server.to_owned();
    let (sent, got) = (Recorded::default(), Recorded::default());
    let all = (sent.clone(), got.clone());
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let back = (clone(&server), clone(&client));
            for (recorded, (mut from, mut to)) in [(all.0.clone(), (client, server)), (all.1.clone(), back)] {
                recorded.lock().expect("no panic").push(Vec::new());
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 14];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        recorded.lock().expect("no panic")[number].extend_from_slice(&buffer[..n]);
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, sent, got)
}

pub fn copy(mut from: TcpStream, mut to: TcpStream, passed: &AtomicU64, watch: &mut dyn FnMut(u64)) {
    let mut buffer = vec![0; 1 << 14];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        watch(passed.fetch_add(n as u64, Ordering::SeqCst) + n as u64);
        if to.write_all(&buffer[..n]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
