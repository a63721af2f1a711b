//! What goes wrong under TLS: silence, drops of a record, damage, ends.

mod site;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use jaguar_net::tls::{Client, Server, Trust};
use jaguar_net::{Dialer, Greeted};
use jaguar_wire::framed::Framed;
use jaguar_wire::{Transport, WireError};
use site::{Scratch, both, greet, listen, options, refused, what_is_queued_arrives};

/// What a relay does with the server's bytes once it may.
#[derive(Clone, Copy)]
enum Fault {
    /// Passes nothing on any more.
    Stall,
    /// Passes on the head of a record that announces more, and then a byte from time to time.
    Drip,
    /// Turns a bit over.
    Flip,
    /// Closes both connections without TLS's farewell.
    Cut,
}

/// Relays a connection to `server`. The server's bytes after the first `sound` ones have the fault.
fn relay(server: String, sound: usize, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        let mut client = listener.accept().expect("a client").0;
        let mut server = TcpStream::connect(server).expect("listening");
        let (mut up, mut to) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
        thread::spawn(move || std::io::copy(&mut up, &mut to));
        let (mut buffer, mut passed) = (vec![0; 1 << 16], 0);
        loop {
            let wanted = buffer.len().min(sound.saturating_sub(passed).max(1));
            let n = if passed < sound { wanted } else { buffer.len() };
            let Ok(n @ 1..) = server.read(&mut buffer[..n]) else { return };
            if passed >= sound {
                match fault {
                    Fault::Stall => thread::sleep(Duration::from_secs(3600)),
                    Fault::Cut => {
                        let _ = client.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                    Fault::Flip => buffer[n - 1] ^= 1,
                    Fault::Drip => {
                        // Application data, 16 KiB of it.
                        let _ = client.write_all(&[23, 3, 3, 64, 0]);
                        while client.write_all(&[0]).is_ok() {
                            thread::sleep(Duration::from_millis(20));
                        }
                        return;
                    }
                }
            }
            passed += n;
            if client.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    });
    address
}

/// Both ends of a TLS connection through a relay with a fault some time after the greetings.
fn through(name: &str, fault: Fault) -> (Framed, Greeted, Scratch) {
    let folder = Scratch::new(name);
    let server = Server::made(folder.path(), None).expect("made");
    let client = Client::new(&Trust::Pin(server.fingerprint()), None).expect("sound");
    let (listener, address) = listen(Some(server));
    let address = relay(address, 100_000, fault);
    let (connected, accepted) =
        both(&listener, &Dialer::new(address.parse().expect("an address")).with_tls(client));
    (connected.expect("connected"), accepted.expect("greeted"), folder)
}

/// What the client's reading ends in, while the server sends without end.
fn ends_in(mut client: Framed, server: Greeted) -> (WireError, WireError) {
    let sending = thread::spawn(move || {
        let mut connection = server.connection;
        (0..).find_map(|_| connection.send(vec![0x5a; 1000]).err()).expect("an end")
    });
    let error = loop {
        match client.recv() {
            Ok(chunk) => assert!(chunk.iter().all(|&b| b == 0x5a)),
            Err(error) => break error,
        }
    };
    drop(client);
    (error, sending.join().expect("it learns of the end"))
}

#[test]
fn a_connection_that_stalls_or_drips_is_silent() {
    for (name, fault) in [("stall", Fault::Stall), ("drip", Fault::Drip)] {
        let (client, server, _folder) = through(name, fault);
        let (error, _) = ends_in(client, server);
        assert!(matches!(error, WireError::Silent { .. }), "{name}: {error}");
    }
}

#[test]
fn damage_is_found_and_nothing_of_it_delivered() {
    let (client, server, _folder) = through("flip", Fault::Flip);
    let (error, _) = ends_in(client, server);
    assert!(matches!(error, WireError::Io { .. }) && error.to_string().contains("decrypt"), "{error}");
}

#[test]
fn a_cut_connection_is_closed() {
    let (client, server, _folder) = through("cut", Fault::Cut);
    let (error, _) = ends_in(client, server);
    assert!(matches!(error, WireError::Closed { .. }), "{error}");
}

#[test]
fn ends_are_orderly_inside_tls() {
    let folder = Scratch::new("ends");
    let server = Server::made(folder.path(), None).expect("made");
    let client = Client::new(&Trust::Pin(server.fingerprint()), None).expect("sound");
    let (listener, address) = listen(Some(server));
    let dialer = Dialer::new(address.parse().expect("an address")).with_tls(client);
    // What is queued when a side goes still arrives.
    let (client, server) = both(&listener, &dialer);
    what_is_queued_arrives(client.expect("connected"), server.expect("greeted").connection);
    // A peer that computes sends signs of life, and is waited for; an abort says why.
    let (client, server) = both(&listener, &dialer);
    let (mut one, mut other) = (client.expect("connected"), server.expect("greeted").connection);
    assert_eq!(one.recv_within(options().silence * 3).expect("alive"), None);
    other.abort("no more of this");
    let error = one.recv().expect_err("given up");
    assert!(matches!(&error, WireError::PeerAborted(why) if why == "no more of this"), "{error}");
}

#[test]
fn handshakes_that_stop_end_in_time() {
    let folder = Scratch::new("handshakes");
    let server = Server::made(folder.path(), None).expect("made");
    let trust = Trust::Pin(server.fingerprint());
    let (listener, address) = listen(Some(server));
    // Nothing, part of a record, and a byte from time to time.
    for (first, drips) in
        [(&b""[..], false), (&[22, 3, 1, 1, 0, 1, 0, 0, 252], false), (&[22, 3, 1, 64, 0, 1], true)]
    {
        let mut socket = TcpStream::connect(&address).expect("listening");
        socket.write_all(first).expect("sent");
        let dripping = thread::spawn(move || {
            while drips && socket.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
            socket
        });
        let error = greet(&listener).err().expect("nobody");
        assert!(matches!(error, WireError::Silent { .. }), "{error}");
        drop(dripping.join().expect("ended"));
    }
    // A server that is silent, one that hangs up, and one that is none.
    let client = Client::new(&trust, None).expect("sound");
    for (answer, part) in
        [(None, "silent"), (Some(&b""[..]), "closed"), (Some(b"220 mail ESMTP\r\n"), "220 mail")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let serving = thread::spawn(move || {
            let mut socket = listener.accept().expect("a client").0;
            let _ = socket.read(&mut [0; 4096]);
            answer
                .is_none_or(|answer| answer.is_empty() || socket.write_all(answer).is_ok())
                .then_some(socket)
                .filter(|_| answer != Some(b""))
        });
        let dialer = Dialer::new(address.parse().expect("an address")).with_tls(client.clone());
        let error = refused(dialer.connect(options()));
        assert!(error.contains(part) && error.contains(&address), "{part}: {error}");
        drop(serving.join().expect("ended"));
    }
}
