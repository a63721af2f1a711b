//! Who connects and says nothing keeps nobody out.
#![cfg(target_os = "linux")]

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use jaguar_engine::EngineError;
use jaguar_net::{Bound, Dialer, Listener};
use jaguar_serve::{Hosted, Limits, Server, Told, Visit};
use jaguar_wire::framed::Options;
use jaguar_wire::{Channel, Transport};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// Says a byte to whoever comes.
struct Hello;

impl Hosted for Hello {
    fn serve(&self, mut channel: Channel, _: &Visit<'_>, _: &mut dyn FnMut(Told)) -> Result<(), EngineError> {
        channel.send(&[7])?;
        channel.flush()?;
        Ok(())
    }
}

/// A connection to `server` from an address of this machine's own.
fn from(address: Ipv4Addr, server: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(address, 0)).expect("all of 127.0.0.0/8 is this machine");
    connect(&socket, &server).expect("it listens");
    socket.into()
}

#[test]
fn four_addresses_of_silent_connections_keep_nobody_out() {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::new(Hello, listener, Limits::default()).unwrap();
    let (bound, control) = (server.bound().clone(), server.control());
    let Bound::Tcp(address) = bound else { panic!("a TCP port was asked for") };
    let serving = thread::spawn(move || server.run(|_| ()));
    let over = Arc::new(AtomicBool::new(false));
    // 16 connections of each of four networks, and another whenever one is closed.
    let hostile: Vec<_> = (0..64)
        .map(|i| {
            let from = move || from(Ipv4Addr::new(127, 1 + i % 4, 0, 1), address);
            let (mut silent, over) = (from(), over.clone());
            thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    silent.set_read_timeout(Some(Duration::from_millis(50))).expect("open");
                    if silent.read(&mut [0]).is_ok_and(|n| n == 0) {
                        silent = from();
                    }
                }
            })
        })
        .collect();
    let dialer = Dialer::new(address.to_string().parse().unwrap());
    for _ in 0..10 {
        let mut connection = dialer.connect(Options::default()).expect("greeted");
        assert_eq!(connection.recv().expect("served"), [7]);
    }
    over.store(true, Ordering::SeqCst);
    hostile.into_iter().for_each(|it| it.join().expect("no panic"));
    control.drain(Duration::ZERO);
    serving.join().unwrap().unwrap();
}
