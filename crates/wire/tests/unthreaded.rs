//! The connection of one thread, with one of threads at the other end.

use std::io::IoSlice;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::unthreaded::KEEP_ALIVE;
use jaguar_wire::{ByteStream, Channel, Introduction, Queued, Transport, Unthreaded, WireError};

/// Both ends of a TCP connection on this machine.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn connect(near: TcpStream, wait: u16, options: Options) -> Result<Unthreaded, WireError> {
    let introduction = Introduction { token: b"token", unbound: true, wait };
    Unthreaded::connect_as(Box::new(near), "the server", &introduction, options)
}

/// A client of one thread, and the server's end.
fn pair(wait: u16, options: Options) -> (Unthreaded, Framed) {
    let (near, far) = sockets();
    let accepting = thread::spawn(move || {
        Framed::accept_introduced(Box::new(far), "the client".into(), Options::default())
    });
    let client = connect(near, wait, options).unwrap();
    let (server, token) = accepting.join().unwrap().unwrap();
    assert_eq!(*token, *b"token");
    (client, server)
}

#[test]
fn bytes_arrive_both_ways_in_order() {
    let (client, server) = pair(0, Options::default());
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let sent = data.clone();
    let serving = thread::spawn(move || {
        let mut channel = Channel::new(server);
        let got = channel.recv(sent.len()).unwrap();
        assert!(got == sent);
        channel.send(&got).unwrap();
        channel.flush().unwrap();
    });
    let mut channel = Channel::new(client);
    channel.send(&data).unwrap();
    assert!(channel.recv(data.len()).unwrap() == data);
    serving.join().unwrap();
    // Behind the last of it comes the end.
    assert!(matches!(channel.recv(1), Err(WireError::Closed { .. })));
}

#[test]
fn places_are_heard_and_nothing_else_comes_before_one() {
    let (mut client, server) = pair(60, Options::default());
    server.tell_place(Queued { place: 2, seconds: 9 });
    let mut heard = Vec::new();
    client
        .wait_for_place(Duration::from_secs(60), &mut |queued| {
            heard.push(queued.place);
            server.tell_place(Queued::SERVED);
            true
        })
        .unwrap();
    assert_eq!(heard, [2]);
    let (mut client, mut server) = pair(60, Options::default());
    server.send(vec![7; 10]).unwrap();
    let early = client.wait_for_place(Duration::from_secs(60), &mut |_| true);
    assert!(matches!(early, Err(WireError::PeerMisbehaved { .. })), "{early:?}");
    let (mut client, _server) = pair(60, Options::default());
    let none = client.wait_for_place(Duration::from_millis(50), &mut |_| true);
    assert!(matches!(none, Err(WireError::Idle { .. })), "{none:?}");
}

#[test]
fn both_sides_hear_why_the_other_gives_up() {
    let (mut client, mut server) = pair(0, Options::default());
    server.put_off("come back in 9 s");
    assert!(matches!(client.recv(), Err(WireError::PeerBusy(why)) if why == "come back in 9 s"));
    let (mut client, mut server) = pair(0, Options::default());
    server.abort("no");
    assert!(matches!(client.recv(), Err(WireError::PeerAborted(why)) if why == "no"));
    let (mut client, mut server) = pair(0, Options::default());
    client.abort("enough");
    assert!(matches!(server.recv(), Err(WireError::PeerAborted(why)) if why == "enough"));
}

/// As a WebSocket that has closed: what came can be read, and nothing can be written.
struct Shut(TcpStream);

impl ByteStream for Shut {
    fn read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
        ByteStream::read(&self.0, buf)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let greets = parts.iter().any(|part| part.starts_with(b"JAGUAR/"));
        if greets { ByteStream::write(&self.0, parts) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    }

    fn set_read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        ByteStream::set_read_timeout(&self.0, timeout)
    }

    fn set_write_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        ByteStream::set_write_timeout(&self.0, timeout)
    }

    fn shutdown(&self, how: Shutdown) -> std::io::Result<()> {
        ByteStream::shutdown(&self.0, how)
    }
}

/// A server that is busy says so and closes, perhaps before the client has said anything.
#[test]
fn who_cannot_send_any_more_hears_why() {
    let frames: [&[&[u8]]; 3] = [
        &[&[4, 4, 0, 0, 0], b"busy"],
        // Something of the session came before it.
        &[&KEEP_ALIVE, &[1, 2, 0, 0, 0, 7, 7], &[4, 4, 0, 0, 0], b"busy"],
        &[&KEEP_ALIVE],
    ];
    let heard = frames.map(|frames| {
        let (near, far) = sockets();
        let words = [&b"JAGUAR/0003 \r\n\r\n"[..], &[0; 36], &frames.concat()].concat();
        ByteStream::write(&far, &[IoSlice::new(&words)]).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let introduction = Introduction { token: b"token", unbound: true, wait: 0 };
        let mut client =
            Unthreaded::connect_as(Box::new(Shut(near)), "the server", &introduction, Options::default())
                .unwrap();
        client.send(vec![1; 100]).expect_err("it takes nothing")
    });
    let [busy, later, closed] = heard;
    assert!(matches!(&busy, WireError::PeerBusy(why) if why == "busy"), "{busy}");
    assert!(matches!(&later, WireError::PeerBusy(why) if why == "busy"), "{later}");
    assert!(matches!(closed, WireError::Closed { .. }), "{closed}");
}

#[test]
fn silence_is_told_from_a_peer_that_lives() {
    let mut options = Options::default();
    options.silence = Duration::from_millis(400);
    let (near, far) = sockets();
    let accepting = thread::spawn(move || {
        // A server's greeting, a sign of life, and then nothing.
        let greeting = [&b"JAGUAR/0003 \r\n\r\n"[..], &[0; 36], &KEEP_ALIVE].concat();
        ByteStream::write(&far, &[IoSlice::new(&greeting)]).unwrap();
        far
    });
    let mut client = connect(near, 0, options).unwrap();
    let _far = accepting.join().unwrap();
    assert!(client.recv_within(Duration::from_millis(20)).unwrap().is_none());
    assert!(matches!(client.recv(), Err(WireError::Silent { .. })));
}

#[test]
fn frames_that_break_the_rules_end_it() {
    for bad in [
        &[9, 0, 0, 0, 0][..],
        &[1, 1, 0, 16, 0],
        &[2, 1, 0, 0, 0, 7],
        &[5, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    ] {
        let (near, far) = sockets();
        let greeting = [&b"JAGUAR/0003 \r\n\r\n"[..], &[0; 36], bad].concat();
        ByteStream::write(&far, &[IoSlice::new(&greeting)]).unwrap();
        let mut client = connect(near, 0, Options::default()).unwrap();
        let got = client.recv();
        assert!(matches!(got, Err(WireError::PeerMisbehaved { .. })), "{bad:?}");
    }
}
