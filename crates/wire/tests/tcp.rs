//! Two parties over loopback sockets, and strangers of all kinds.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use jaguar_wire::tcp::{Incoming, Listener, Options, Tcp};
use jaguar_wire::{Channel, Transport, WireError};
use proptest::prelude::*;

/// Impatient, so that tests of silence take half a second.
fn options() -> Options {
    let mut options = Options::default();
    options.silence = Duration::from_millis(500);
    options.keep_alive = Duration::from_millis(50);
    options.greeting = Duration::from_millis(500);
    options
}

const GREETING: &[u8; 16] = b"JAGUAR/0003 \r\n\r\n";

/// What follows it on a connection that is bound to nothing, without a token.
const NO_MORE: &[u8; 36] = &[0; 36];

fn listen() -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    (listener, address)
}

fn pair_with(left: Options, right: Options) -> (Tcp, Tcp) {
    let (listener, address) = listen();
    let accepting = thread::spawn(move || listener.accept().unwrap().greet(right).unwrap());
    let connected = Tcp::connect(address, left).unwrap();
    (connected, accepting.join().unwrap())
}

fn pair() -> (Tcp, Tcp) {
    pair_with(options(), options())
}

/// A Jaguar's connection whose peer is this test, which has greeted and now writes frames by hand.
fn by_hand() -> (Tcp, TcpStream) {
    by_hand_with(options())
}

fn by_hand_with(options: Options) -> (Tcp, TcpStream) {
    let (listener, address) = listen();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&[&GREETING[..], NO_MORE].concat()).unwrap();
    let tcp = listener.accept().unwrap().greet(options).unwrap();
    let mut greeting = [0; 52];
    socket.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[..], [&GREETING[..], NO_MORE].concat());
    (tcp, socket)
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

/// The frames in `bytes` without the keep-alives. A last one may be cut off.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<5>() {
        let len = u32::from_le_bytes(head[1..].try_into().unwrap()) as usize;
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        if head[0] != 2 {
            frames.push((head[0], payload.to_vec()));
        }
        bytes = rest;
    }
    frames
}

fn receive(transport: &mut impl Transport, n: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < n {
        got.extend(transport.recv().unwrap());
    }
    assert_eq!(got.len(), n);
    got
}

// ---- Good peers ----

#[test]
fn bytes_arrive_in_order_both_ways() {
    let (mut a, mut b) = pair();
    for n in [1usize, 5, 1 << 20, (1 << 20) + 1, 3_500_000] {
        let data: Vec<u8> = (0..n).map(|i| (i * 31 % 253) as u8).collect();
        a.send(data.clone()).unwrap();
        b.send(data[..1].to_vec()).unwrap();
        assert!(receive(&mut b, n) == data, "{n} bytes");
        assert_eq!(receive(&mut a, 1), &data[..1]);
    }
}

#[test]
fn both_sides_may_send_a_hundred_megabytes_at_once() {
    const N: usize = 100_000_000;
    let work = |tcp: Tcp, byte: u8| {
        move || {
            let mut ch = Channel::new(tcp);
            let chunk = vec![byte; 1_000_000];
            (0..N / chunk.len()).for_each(|_| ch.send(&chunk).unwrap());
            ch.flush().unwrap();
            let mut buf = vec![0; 1_000_000];
            for _ in 0..N / buf.len() {
                ch.recv_into(&mut buf).unwrap();
                assert!(buf.iter().all(|&b| b == !byte));
            }
            let total = ch.total();
            assert_eq!((total.sent, total.received, total.rounds), (N as u64, N as u64, 1));
        }
    };
    let (a, b) = pair();
    let a = thread::spawn(work(a, 0x55));
    let b = thread::spawn(work(b, 0xaa));
    a.join().unwrap();
    b.join().unwrap();
}

#[test]
fn a_full_queue_blocks_the_sender_and_loses_nothing() {
    let mut small = options();
    small.queue = 10_000;
    let (mut a, mut b) = pair_with(small, small);
    const CHUNKS: usize = 20_000;
    let sender = thread::spawn(move || {
        (0..CHUNKS).for_each(|i| a.send(vec![i as u8; 1000]).unwrap());
    });
    // Longer than the silence: neither the stuck sender nor the full inbox counts as a dead peer.
    thread::sleep(Duration::from_millis(800));
    assert!(!sender.is_finished(), "20 MB cannot be on their way with queues of 10 kB");
    for i in 0..CHUNKS {
        assert!(receive(&mut b, 1000).iter().all(|&byte| byte == i as u8));
    }
    sender.join().unwrap();
}

#[test]
fn neither_reading_at_all_ends_in_an_error_on_both_sides() {
    let mut small = options();
    small.queue = 10_000;
    let (a, b) = pair_with(small, small);
    let flood = |mut tcp: Tcp| move || (0..).find_map(|_| tcp.send(vec![0; 1000]).err()).unwrap();
    let (a, b) = (thread::spawn(flood(a)), thread::spawn(flood(b)));
    // The first to give up closes, which may be how the other learns.
    let errors = [a.join().unwrap(), b.join().unwrap()];
    assert!(errors.iter().any(|e| matches!(e, WireError::Silent { .. })), "{errors:?}");
    assert!(
        errors.iter().all(|e| matches!(e, WireError::Silent { .. } | WireError::Closed { .. })),
        "{errors:?}"
    );
}

/// A peer that lives and never reads holds what is queued for it: not for ever.
#[test]
fn who_takes_nothing_is_given_up() {
    let mut small = options();
    small.queue = 10_000;
    small.stalled = Duration::from_millis(600);
    let (mut a, _b) = pair_with(small, small);
    let error = (0..).find_map(|_| a.send(vec![0; 1000]).err()).unwrap();
    assert!(matches!(error, WireError::Idle { .. }), "{error}");
    // The connection is over, whatever is tried next.
    assert!(matches!(a.recv(), Err(WireError::Idle { .. })) && a.send(vec![1]).is_err());
}

#[test]
fn a_peer_that_computes_is_not_silent() {
    let (mut a, mut b) = pair();
    let waiting = thread::spawn(move || a.recv());
    // Three times the silence, during which only the keep-alives of b's writer come.
    thread::sleep(Duration::from_millis(1500));
    b.send(b"result".to_vec()).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), b"result");
}

#[test]
fn dropping_sends_what_is_queued() {
    let (mut a, mut b) = pair();
    let data = vec![9; 30_000_000];
    let sender = thread::spawn(move || a.send(data).unwrap());
    assert!(receive(&mut b, 30_000_000).iter().all(|&byte| byte == 9));
    sender.join().unwrap();
    assert!(matches!(b.recv(), Err(WireError::Closed { .. })));
    assert!(matches!(b.send(vec![1]), Err(WireError::Closed { .. })));
}

#[test]
fn dropping_does_not_wait_for_ever() {
    let mut hasty = options();
    hasty.linger = Duration::from_millis(300);
    // The peer's inbox takes 10 kB and its owner never reads, so this can never be sent.
    let mut small = options();
    small.queue = 10_000;
    let (mut a, _b) = pair_with(hasty, small);
    a.send(vec![0; 50_000_000]).unwrap();
    drop(a);
}

#[test]
fn an_abort_overtakes_what_is_queued_and_names_the_reason() {
    let (mut a, mut b) = pair();
    // 200 MB do not fit into the socket's buffers; what of them is still queued need not arrive.
    a.send(vec![0; 200_000_000]).unwrap();
    let gave_up = thread::spawn(move || {
        a.abort("the model was unloaded\u{1b}[2J");
        assert!(matches!(a.send(vec![1]), Err(WireError::Io { .. })));
        assert!(matches!(a.recv(), Err(WireError::Io { .. })));
    });
    let error = loop {
        if let Err(error) = b.recv() {
            break error;
        }
    };
    // Control characters would reach a terminal.
    assert!(
        matches!(&error, WireError::PeerAborted(r) if r == "the model was unloaded\u{fffd}[2J"),
        "{error}"
    );
    assert!(matches!(b.send(vec![1]), Err(WireError::PeerAborted(_))));
    gave_up.join().unwrap();
}

#[test]
fn who_is_put_off_may_come_back() {
    let (mut a, mut b) = pair();
    a.put_off("as many as I take are here\u{1b}[2J");
    let error = b.recv().unwrap_err();
    assert!(
        matches!(&error, WireError::PeerBusy(r) if r == "as many as I take are here\u{fffd}[2J"),
        "{error}"
    );
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let (mut a, mut b) = pair();
    let aborting = thread::spawn(move || a.abort(&format!("x{}", "é".repeat(2000))));
    let error = b.recv().unwrap_err();
    // 1024 bytes hold the x and 511 two-byte letters.
    assert!(matches!(&error, WireError::PeerAborted(r) if r.chars().count() == 512), "{error}");
    aborting.join().unwrap();
}

#[test]
fn a_sender_in_the_middle_learns_of_an_abort() {
    let mut small = options();
    small.queue = 10_000;
    let (mut a, mut b) = pair_with(small, small);
    let sending = thread::spawn(move || (0..).find_map(|_| a.send(vec![0; 1000]).err()).unwrap());
    receive(&mut b, 5000);
    b.abort("enough");
    let error = sending.join().unwrap();
    assert!(matches!(&error, WireError::PeerAborted(r) if r == "enough"), "{error}");
}

// ---- Bad peers ----

#[test]
fn a_stopped_peer_is_noticed_by_both_calls() {
    let (mut tcp, _socket) = by_hand();
    let error = tcp.recv().unwrap_err();
    assert!(matches!(error, WireError::Silent { .. }), "{error}");
    assert!(error.to_string().contains("500ms while receiving"), "{error}");
    assert!(matches!(tcp.send(vec![0]), Err(WireError::Silent { .. })));
}

#[test]
fn a_sender_blocked_on_a_stopped_peer_gets_away() {
    let (listener, address) = listen();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&[&GREETING[..], NO_MORE].concat()).unwrap();
    let mut small = options();
    small.queue = 100_000;
    let mut tcp = listener.accept().unwrap().greet(small).unwrap();
    let error = (0..).find_map(|_| tcp.send(vec![0; 100_000]).err()).unwrap();
    assert!(matches!(error, WireError::Silent { .. }), "{error}");
    drop(socket);
}

#[test]
fn a_frame_of_unknown_kind_is_refused_and_the_peer_told() {
    let (mut tcp, mut socket) = by_hand();
    socket.write_all(&frame(1, b"fine")).unwrap();
    socket.write_all(&frame(9, b"?")).unwrap();
    assert_eq!(tcp.recv().unwrap(), b"fine");
    let error = tcp.recv().unwrap_err();
    assert!(matches!(error, WireError::PeerMisbehaved { .. }), "{error}");
    assert!(error.to_string().contains("found 9"), "{error}");
    let mut answer = Vec::new();
    socket.shutdown(Shutdown::Write).unwrap();
    socket.read_to_end(&mut answer).unwrap();
    let frames = frames(&answer);
    assert!(matches!(&frames[..], [(3, reason)] if reason.starts_with(b"broken framing")), "{frames:?}");
}

#[test]
fn an_oversize_frame_is_refused_by_its_header_alone() {
    for (kind, len) in [(1, (1u32 << 20) + 1), (1, u32::MAX), (2, 1), (3, 1025)] {
        let (mut tcp, mut socket) = by_hand();
        socket.write_all(&[&[kind][..], &len.to_le_bytes()].concat()).unwrap();
        let error = tcp.recv().unwrap_err();
        assert!(matches!(error, WireError::PeerMisbehaved { .. }), "{error}");
        assert!(error.to_string().contains(&len.to_string()), "{error}");
    }
}

#[test]
fn an_abort_must_be_text() {
    let (mut tcp, mut socket) = by_hand();
    socket.write_all(&frame(3, &[0xff, 0xfe])).unwrap();
    let error = tcp.recv().unwrap_err();
    assert!(matches!(error, WireError::PeerMisbehaved { .. }), "{error}");
}

#[test]
fn a_peer_that_ends_within_a_frame_has_closed() {
    let whole = frame(1, &[7; 100]);
    for cut in [0, 1, 4, 5, 6, 104] {
        let (mut tcp, mut socket) = by_hand();
        socket.write_all(&frame(1, b"before")).unwrap();
        socket.write_all(&whole[..cut]).unwrap();
        drop(socket);
        assert_eq!(tcp.recv().unwrap(), b"before");
        let error = tcp.recv().unwrap_err();
        assert!(matches!(error, WireError::Closed { .. }), "cut at {cut}: {error}");
    }
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    // Patient enough for a busy machine to hold this test's threads up between two bytes.
    let mut patient = options();
    patient.silence = Duration::from_secs(2);
    let (mut tcp, mut socket) = by_hand_with(patient);
    socket.set_nodelay(true).unwrap();
    let bytes = [frame(1, b""), frame(2, b""), frame(1, b"slow")].concat();
    let pause = patient.silence.mul_f64(1.2) / bytes.len() as u32;
    let writing = thread::spawn(move || {
        for byte in bytes {
            // In all, longer than the silence; between two bytes, much shorter.
            thread::sleep(pause);
            socket.write_all(&[byte]).unwrap();
        }
        socket
    });
    assert_eq!(tcp.recv().unwrap(), b"slow");
    drop(writing.join().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a peer sends, its valid data frames arrive and everything else is an error.
    #[test]
    fn any_bytes_end_in_an_error(
        valid in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..4),
        bytes in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..60),
    ) {
        let (mut tcp, mut socket) = by_hand();
        for payload in &valid {
            socket.write_all(&frame(1, payload)).unwrap();
        }
        socket.write_all(&bytes).unwrap();
        drop(socket);
        for payload in &valid {
            prop_assert_eq!(&tcp.recv().unwrap(), payload);
        }
        let error = (0..=bytes.len()).find_map(|_| tcp.recv().err());
        prop_assert!(error.is_some(), "more chunks than bytes");
    }
}

// ---- Strangers ----

/// What a server answers to `bytes`, and the error it reports. The stranger closes its side if `ends`.
fn stranger(bytes: &[u8], ends: bool) -> (Vec<u8>, WireError) {
    let (listener, address) = listen();
    let serving = thread::spawn(move || listener.accept().and_then(|i: Incoming| i.greet(options())).err());
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(bytes).unwrap();
    if ends {
        socket.shutdown(Shutdown::Write).unwrap();
    }
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    (answer, serving.join().unwrap().expect("a stranger is not let in"))
}

#[test]
fn a_browser_is_told_in_http() {
    let (answer, error) = stranger(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", false);
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
    assert!(error.to_string().contains("HTTP (\"GET / HTTP/1.1"), "{error}");
}

#[test]
fn other_strangers_are_named_and_see_the_version() {
    let cases: [(&[u8], bool, &str); 6] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false, "a TLS handshake"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", false, "SSH"),
        (b"\x00\x01\x02", false, "\\x00\\x01\\x02"),
        (b"JAGUAR/0004 \r\n\r\n", false, "another version"),
        (b"JAGUAR/1", false, "and then nothing"),
        (b"JAGUAR/1", true, "and the end"),
    ];
    for (bytes, ends, want) in cases {
        let (answer, error) = stranger(bytes, ends);
        assert_eq!(answer, if ends { &[][..] } else { &GREETING[..] }, "{want}");
        assert!(matches!(error, WireError::PeerMisbehaved { what: "the greeting", .. }), "{error}");
        assert!(error.to_string().contains(want), "{want}: {error}");
    }
}

#[test]
fn a_greeting_without_a_sound_second_part_is_refused() {
    let mut bound = NO_MORE.to_vec();
    bound[0] = 2;
    let (answer, error) = stranger(&[&GREETING[..], &bound].concat(), false);
    assert!(answer.starts_with(GREETING));
    assert!(
        matches!(error, WireError::PeerMisbehaved { .. }) && error.to_string().contains("found 2"),
        "{error}"
    );
}

/// A part of a greeting is what a lost connection leaves, and no stranger's.
#[test]
fn a_greeting_that_was_cut_is_a_lost_connection() {
    let whole = [&GREETING[..], NO_MORE].concat();
    for len in [1, 7, 15, 16, 36] {
        let (_, error) = stranger(&whole[..len], false);
        assert!(matches!(error, WireError::Silent { .. }), "{len}: {error}");
        let (_, error) = stranger(&whole[..len], true);
        assert!(matches!(error, WireError::Closed { .. }), "{len}: {error}");
    }
}

#[test]
fn a_stranger_that_says_nothing_is_silent_or_gone() {
    let (_, error) = stranger(b"", false);
    assert!(matches!(error, WireError::Silent { .. }), "{error}");
    let (_, error) = stranger(b"", true);
    assert!(matches!(error, WireError::Closed { .. }), "{error}");
}

/// The error of a client whose server answers with `answer` and then closes or keeps still.
fn connect_to(answer: &'static [u8], closes: bool) -> (String, WireError) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut greeting = [0; 52];
        socket.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[..], [&GREETING[..], NO_MORE].concat());
        socket.write_all(answer).unwrap();
        (!closes).then_some(socket)
    });
    let error = Tcp::connect(address.as_str(), options()).err().expect("no Jaguar there");
    drop(serving.join().unwrap());
    (address, error)
}

#[test]
fn a_client_recognises_a_server_that_is_no_jaguar() {
    let cases: [(&'static [u8], bool, &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", true, "HTTP"),
        (b"220 mail ESMTP\r\n", false, "220 mail ESMTP"),
        (b"JAGUAR/0007 \r\n\r\n", false, "another version (\"JAGUAR/0007"),
        (b"", true, "closed the connection"),
        (b"", false, "silent for 500ms"),
    ];
    for (answer, closes, want) in cases {
        let (address, error) = connect_to(answer, closes);
        let text = error.to_string();
        assert!(text.contains(want) && text.contains(&address), "{want}: {text}");
    }
}

#[test]
fn a_failed_connect_names_the_address() {
    let (listener, address) = listen();
    drop(listener);
    let error = Tcp::connect(address.as_str(), options()).err().expect("nobody listens");
    assert!(matches!(error, WireError::Io { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    let error = Tcp::connect("no port in this", options()).err().expect("no address");
    assert!(error.to_string().contains("no port in this"), "{error}");
    let error = Listener::bind("203.0.113.1:1").expect_err("not an address of this machine");
    assert!(error.to_string().contains("203.0.113.1:1"), "{error}");
}
