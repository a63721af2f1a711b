//! What a channel promises over any transport: bytes and rounds are counted, lengths are bounded.

use std::thread;

use jaguar_wire::double::{Fault, Faulty};
use jaguar_wire::{Channel, Stage, Traffic, WireError, memory_pair, memory_transports, pack};
use proptest::prelude::*;

/// Runs both parties, each in its thread, and returns what they return.
fn both<A: Send, B: Send>(
    (mut a, mut b): (Channel, Channel),
    alice: impl FnOnce(&mut Channel) -> A + Send,
    bob: impl FnOnce(&mut Channel) -> B + Send,
) -> (A, B) {
    thread::scope(|scope| {
        let bob = scope.spawn(move || bob(&mut b));
        // Alice's end must not outlive her part, or a waiting Bob would wait for ever.
        let alice = scope.spawn(move || alice(&mut a));
        (alice.join().expect("alice does not panic"), bob.join().expect("bob does not panic"))
    })
}

fn total(channel: &mut Channel) -> (u64, u64, u64) {
    let Traffic { sent, received, rounds, .. } = channel.total();
    (sent, received, rounds)
}

#[test]
fn bytes_and_rounds_are_counted_under_their_label() {
    let (alice, bob) = both(
        memory_pair(),
        |ch| {
            ch.enter(Stage::Client, "base");
            ch.send(&[1; 10]).unwrap();
            ch.send(&[2; 5]).unwrap();
            ch.recv(7).unwrap();
            ch.enter(Stage::Online, "relu 1");
            ch.send(&[3; 3]).unwrap();
            ch.recv(2).unwrap();
            ch.send(&[4; 3]).unwrap();
            ch.recv(2).unwrap();
            ch.stats().clone()
        },
        |ch| {
            ch.recv(15).unwrap();
            ch.send(&[0; 7]).unwrap();
            for _ in 0..2 {
                ch.recv(3).unwrap();
                ch.send(&[0; 2]).unwrap();
            }
            total(ch)
        },
    );
    let relu = &alice[&(Stage::Online, "relu 1".to_owned())];
    assert_eq!((relu.sent, relu.received, relu.rounds), (6, 4, 2));
    let base = &alice[&(Stage::Client, "base".to_owned())];
    assert_eq!((base.sent, base.received, base.rounds), (15, 7, 1));
    assert_eq!(alice.len(), 2, "the empty handshake label does not appear");
    // Bob waits three times: for the first message, and twice after having answered.
    assert_eq!(bob, (11, 21, 3));
}

#[test]
fn a_message_in_many_chunks_is_one_round() {
    // 1 MiB passes the channel's own flush threshold several times.
    let (_, bob) = both(
        memory_pair(),
        |ch| {
            for _ in 0..1024 {
                ch.send(&[7; 1024]).unwrap();
            }
        },
        |ch| {
            assert!(ch.recv(1 << 20).unwrap().iter().all(|&b| b == 7));
            total(ch)
        },
    );
    assert_eq!(bob, (0, 1 << 20, 1));
}

#[test]
fn figures_start_anew_when_taken() {
    let (mut a, _b) = memory_pair();
    a.send(&[0; 9]).unwrap();
    assert_eq!(a.take_stats().values().map(|t| t.sent).sum::<u64>(), 9);
    assert_eq!(total(&mut a), (0, 0, 0));
    a.send(&[0; 4]).unwrap();
    assert_eq!(total(&mut a), (4, 0, 0));
}

#[test]
fn the_last_message_arrives_without_an_explicit_flush() {
    let (mut a, mut b) = memory_pair();
    a.send(b"done").unwrap();
    drop(a);
    assert_eq!(b.recv(4).unwrap(), b"done");
    assert!(matches!(b.recv(1), Err(WireError::Closed { .. })));
}

#[test]
fn an_announced_length_reserves_nothing() {
    // Were memory reserved for what is only announced, this would abort the test process.
    let (mut a, mut b) = memory_pair();
    a.send(&[0; 100]).unwrap();
    drop(a);
    assert!(matches!(b.recv(1 << 46), Err(WireError::Closed { .. })));
}

#[test]
fn control_messages_are_bounded_and_checked() {
    let message = (7u32, "hello".to_owned(), vec![1u64, 2, 3]);
    let (mut a, mut b) = memory_pair();
    a.send_message(&message).unwrap();
    a.send_message(&message).unwrap();
    a.send_message(&(&message, [0u8; 3])).unwrap();
    a.send_message(&message).unwrap();
    a.flush().unwrap();
    assert_eq!(b.recv_message::<(u32, String, Vec<u64>)>("greeting", 64).unwrap(), message);
    let wrong = b.recv_message::<(u32, String, Vec<String>)>("greeting", 64).unwrap_err();
    assert!(matches!(wrong, WireError::PeerMisbehaved { what: "greeting", .. }), "{wrong}");
    let more = b.recv_message::<(u32, String, Vec<u64>)>("greeting", 64).unwrap_err().to_string();
    assert!(more.contains("3 bytes behind it"), "{more}");
    let more = jaguar_wire::decode::<u8>("a byte", &[1, 2]).unwrap_err().to_string();
    assert!(more.contains("1 bytes behind it"), "{more}");
    assert_eq!(jaguar_wire::decode::<u8>("a byte", &[1]).unwrap(), 1);
    let long = b.recv_message::<(u32, String, Vec<u64>)>("greeting", 4).unwrap_err();
    assert!(long.to_string().contains("at most 4 bytes"), "{long}");
}

#[test]
fn errors_say_what_the_session_was_at() {
    let (mut a, b) = memory_pair();
    drop(b);
    a.enter(Stage::Online, "relu 3");
    let text = a.recv(1).unwrap_err().to_string();
    assert!(text.contains("closed") && text.contains("online: relu 3"), "{text}");

    let (a, _b) = memory_transports();
    let mut a = Channel::new(Faulty::new(a, Fault::Silence(0)));
    a.enter(Stage::Offline, "triples");
    let text = a.recv(1).unwrap_err().to_string();
    assert!(text.contains("silent") && text.contains("offline: triples"), "{text}");

    // So do those that the peer is to blame for, and those that it sent.
    let (mut a, mut b) = memory_pair();
    a.send_message(&7u32).unwrap();
    a.abort("enough");
    b.enter(Stage::Client, "keys");
    let text = b.recv_message::<String>("a word", 0).unwrap_err().to_string();
    assert!(text.ends_with("at most 0 bytes) (client: keys)"), "{text}");
    b.recv(1).unwrap();
    let text = b.recv(1).unwrap_err().to_string();
    assert_eq!(text, "the peer gave up: enough (client: keys)");
}

#[test]
fn an_abort_brings_its_reason() {
    let (mut a, mut b) = memory_pair();
    a.send(&[1, 2]).unwrap();
    a.abort("the plan does not fit");
    assert_eq!(b.recv(2).unwrap(), [1, 2]);
    let reason = "the plan does not fit (model: handshake)";
    assert!(matches!(b.recv(1), Err(WireError::PeerAborted(r)) if r == reason));
    // Of a side that would do it at another time.
    let (mut a, mut b) = memory_pair();
    a.put_off("come back later");
    let error = b.recv(1).unwrap_err();
    assert!(matches!(&error, WireError::PeerBusy(r) if r == "come back later (model: handshake)"), "{error}");
    assert_eq!(error.to_string(), "the peer gave up: come back later (model: handshake)");
}

proptest! {
    /// However the two sides cut the stream into calls, the same bytes come out.
    #[test]
    fn borders_mean_nothing(
        sends in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20),
        cuts in prop::collection::vec(0usize..1500, 0..40),
    ) {
        let stream = sends.concat();
        let (mut a, mut b) = memory_pair();
        for chunk in &sends {
            a.send(chunk).unwrap();
            a.flush().unwrap();
        }
        let mut got = Vec::new();
        for cut in cuts {
            let n = cut.min(stream.len() - got.len());
            got.extend(b.recv(n).unwrap());
        }
        got.extend(b.recv(stream.len() - got.len()).unwrap());
        prop_assert_eq!(got, stream);
    }

    /// Packed values take exactly the announced bytes and come back reduced to their width.
    #[test]
    fn packed_values_come_back(values in prop::collection::vec(any::<u64>(), 0..300), bits in 1u32..=64) {
        let (mut a, mut b) = memory_pair();
        a.send_packed(&values, bits).unwrap();
        a.flush().unwrap();
        prop_assert_eq!(a.total().sent as usize, pack::packed_len(values.len(), bits));
        let want: Vec<u64> = values.iter().map(|v| if bits == 64 { *v } else { v % (1 << bits) }).collect();
        prop_assert_eq!(b.recv_packed(values.len(), bits).unwrap(), want);
    }
}
