//! The same framing over a byte stream that is not TCP: a pair of Unix sockets.
#![cfg(unix)]

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{ByteStream, Channel, Transport, WireError};

struct Unix(UnixStream);

impl ByteStream for Unix {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buf)
    }

    /// One part at a time: a stream need not take more.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let part = parts.iter().find(|p| !p.is_empty());
        part.map_or(Ok(0), |part| (&self.0).write(part))
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
}

fn pair() -> (Framed, Framed) {
    let (a, b) = UnixStream::pair().unwrap();
    let accepting =
        thread::spawn(move || Framed::accept(Box::new(Unix(b)), "the client".into(), Options::default()));
    let connected = Framed::connect(Box::new(Unix(a)), "the server".into(), Options::default()).unwrap();
    (connected, accepting.join().unwrap().unwrap())
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
