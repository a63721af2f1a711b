//! The same framing over a byte stream that is not TCP: a pair of Unix sockets.
#![cfg(unix)]

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{ByteStream, Channel, Introduction, Queued, Side, Transport, WireError};

/// A socket that says it is encrypted, as connection number `self.1`, if it has a number.
struct Unix(UnixStream, Option<u8>);

impl ByteStream for Unix {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Read::read(&mut &self.0, buf)
    }

    /// One part at a time: a stream need not take more.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let part = parts.iter().find(|p| !p.is_empty());
        part.map_or(Ok(0), |part| Write::write(&mut &self.0, part))
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(timeout))
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_write_timeout(Some(timeout))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    fn binding(&self, side: Side) -> Option<[u8; 32]> {
        let side = if side == Side::Connecting { 1 } else { 2 };
        self.1.map(|number| [&[number; 31][..], &[side]].concat().try_into().expect("32 bytes"))
    }
}

type Accepted = Result<(Framed, Vec<u8>), WireError>;

/// The client's and the server's view of a greeting, over what each believes to be the connection with a number.
fn greet(
    connections: [Option<u8>; 2],
    introduction: Introduction<'_>,
) -> (Result<Framed, WireError>, Accepted) {
    let (a, b) = UnixStream::pair().unwrap();
    let [ours, theirs] = connections;
    let accepting = thread::spawn(move || {
        let accepted =
            Framed::accept_introduced(Box::new(Unix(b, theirs)), "the client".into(), Options::default());
        accepted.map(|(connection, token)| (connection, token.to_vec()))
    });
    let stream = Box::new(Unix(a, ours));
    let connected = Framed::connect_as(stream, "the server".into(), &introduction, Options::default());
    (connected, accepting.join().unwrap())
}

fn pair() -> (Framed, Framed) {
    let (connected, accepted) = greet([None, None], Introduction::default());
    (connected.unwrap(), accepted.unwrap().0)
}

#[test]
fn a_session_is_bound_to_its_connection() {
    let strict = Introduction::default();
    let lenient = Introduction { unbound: true, ..strict };
    let (connected, accepted) = greet([Some(7), Some(7)], strict);
    assert!(connected.is_ok() && accepted.is_ok());
    // Something in between ends one TLS connection and opens another.
    let (connected, accepted) = greet([Some(7), Some(8)], strict);
    for error in [connected.err().expect("refused"), accepted.err().expect("refused")] {
        assert!(
            matches!(&error, WireError::NotBound { found, .. } if found.contains("encrypts anew")),
            "{error}"
        );
    }
    // Something in between ends TLS: the client may allow that.
    let (connected, _) = greet([Some(7), None], strict);
    let error = connected.err().expect("refused").to_string();
    assert!(error.contains("the server") && error.contains("TLS ends before it"), "{error}");
    let (connected, accepted) = greet([Some(7), None], lenient);
    assert!(connected.is_ok() && accepted.is_ok());
    // A server that ends TLS itself takes nobody who does not.
    for client in [(None, strict), (Some(7), lenient)] {
        let (_, accepted) = greet([client.0, Some(7)], client.1);
        let error = accepted.err().expect("refused");
        assert!(matches!(&error, WireError::NotBound { peer, .. } if peer == "the client"), "{error}");
    }
}

#[test]
fn a_token_arrives_as_it_was_given() {
    for token in [&b""[..], b"x", &[0xa5; 255]] {
        let (_connected, accepted) =
            greet([Some(1), Some(1)], Introduction { token, unbound: false, wait: 0 });
        assert_eq!(accepted.unwrap().1, token);
    }
}

#[test]
fn who_waits_is_told_its_place_and_then_served() {
    let (connected, accepted) = greet([None, None], Introduction { wait: 60, ..Introduction::default() });
    let (mut client, (mut server, _)) = (connected.unwrap(), accepted.unwrap());
    assert_eq!(server.would_wait(), Duration::from_secs(60));
    let first = Queued { place: 2, seconds: 70_000 };
    server.tell_place(first);
    let waiting = thread::spawn(move || {
        let mut heard = Vec::new();
        let waited = client.wait_for_place(Duration::from_secs(60), &mut |told| {
            // The server goes on when the first was heard.
            if let (Some(told), true) = (told, heard.is_empty()) {
                heard.push(told);
                server.tell_place(Queued::SERVED);
                server.tell_place(first);
                server.send(vec![7]).unwrap();
            }
            true
        });
        (waited, heard, client, server)
    });
    let (waited, heard, mut client, server) = waiting.join().unwrap();
    waited.unwrap();
    assert_eq!(heard, [first]);
    assert_eq!(client.recv().unwrap(), [7]);
    assert_eq!(server.would_wait(), Duration::ZERO, "it is over");
    assert!(server.is_there().is_ok());
    drop(client);
    thread::spawn(move || while server.is_there().is_ok() {}).join().unwrap();
}

#[test]
fn a_wait_ends_with_a_refusal_by_itself_or_when_it_is_told_to() {
    let wait = Introduction { wait: 60, ..Introduction::default() };
    let site = || {
        let (connected, accepted) = greet([None, None], wait);
        (connected.unwrap(), accepted.unwrap().0)
    };
    let long = Duration::from_secs(60);
    let (mut client, mut server) = site();
    thread::spawn(move || server.put_off("come back"));
    let refused = client.wait_for_place(long, &mut |_| true);
    assert!(matches!(&refused, Err(WireError::PeerBusy(why)) if why == "come back"), "{refused:?}");
    let (mut client, _server) = site();
    let stopped = client.wait_for_place(long, &mut |_| false).expect_err("stopped").to_string();
    assert!(stopped.contains("asked to stop"), "{stopped}");
    let (mut client, _server) = site();
    let nothing = client.wait_for_place(Duration::ZERO, &mut |_| true);
    assert!(matches!(nothing, Err(WireError::Idle { .. })), "{nothing:?}");
    // Who does not wait is told nothing, and waits for nothing.
    let (mut client, mut server) = pair();
    server.tell_place(Queued { place: 1, seconds: 1 });
    client.wait_for_place(long, &mut |_| true).expect("served");
    server.send(vec![1]).unwrap();
    assert_eq!(client.recv().unwrap(), [1]);
}

#[test]
fn bytes_arrive_both_ways_and_ends_are_orderly() {
    let (a, b) = pair();
    assert_eq!((a.peer(), b.peer()), ("the server", "the client"));
    let data: Vec<u8> = (0..3_000_000).map(|i| (i * 31 % 253) as u8).collect();
    let (theirs, want) = (data.clone(), data.len());
    let other = thread::spawn(move || {
        let mut channel = Channel::new(b);
        let got = channel.recv(want).unwrap();
        channel.send(&got).unwrap();
        channel.flush().unwrap();
        assert!(got == theirs);
    });
    let mut channel = Channel::new(a);
    channel.send(&data).unwrap();
    assert!(channel.recv(want).unwrap() == data);
    other.join().unwrap();
    assert!(matches!(channel.recv(1), Err(WireError::Closed { .. })));
}

#[test]
fn an_abort_says_why() {
    let (mut a, mut b) = pair();
    a.abort("no more of this");
    let error = b.recv().unwrap_err();
    assert!(matches!(&error, WireError::PeerAborted(why) if why == "no more of this"), "{error}");
}
