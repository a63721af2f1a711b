//! The test doubles do what the tests that use them rely on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jaguar_wire::double::{Fault, Faulty, Frozen, Link, Recorder, Shaped, link};
use jaguar_wire::tcp::{Listener, Options, Tcp};
use jaguar_wire::{Channel, Clock, Memory, Side, SystemClock, Transport, WireError, memory_transports};
use proptest::prelude::*;

/// Everything that comes until the connection ends, and how it ends.
fn drain(transport: &mut impl Transport) -> (Vec<u8>, WireError) {
    let mut all = Vec::new();
    loop {
        match transport.recv() {
            Ok(chunk) => all.extend(chunk),
            Err(error) => return (all, error),
        }
    }
}

/// One budget may be asked by both clocks.
#[test]
fn a_frozen_clock_stands_and_is_not_behind_the_systems() {
    let before = SystemClock.now();
    let frozen = Frozen::default();
    let stands = frozen.now();
    assert!(stands >= before, "{stands:?} before {before:?}");
    std::thread::sleep(Duration::from_millis(2));
    assert!(frozen.now() == stands && SystemClock.now() > stands);
}

#[test]
fn a_recorder_keeps_both_directions() {
    let (a, b) = memory_transports();
    let (a, script) = Recorder::new(a);
    let (mut a, mut b) = (Channel::new(a), Channel::new(b));
    a.send(b"question").unwrap();
    a.flush().unwrap();
    b.recv(8).unwrap();
    b.send(b"answer").unwrap();
    b.flush().unwrap();
    a.recv(6).unwrap();
    drop(a);
    assert_eq!((script.sent(), script.received()), (b"question".to_vec(), b"answer".to_vec()));
    assert_eq!(script.lengths(), (8, 6));
}

/// The digest of a conversation in which `sent` goes out and `received` comes in, in the given pieces.
fn digest(sent: &[&[u8]], received: &[&[u8]]) -> [u8; 32] {
    let (a, mut b) = memory_transports();
    let (mut a, script) = Recorder::hashing(a);
    sent.iter().for_each(|chunk| a.send(chunk.to_vec()).unwrap());
    for chunk in received {
        b.send(chunk.to_vec()).unwrap();
        a.recv().unwrap();
    }
    assert!(script.sent().is_empty(), "only hashes are kept");
    script.digest()
}

#[test]
fn a_digest_depends_on_the_bytes_and_not_on_the_chunks() {
    let whole = digest(&[b"abcdef"], &[b"xyz"]);
    assert_eq!(whole, digest(&[b"ab", b"cdef"], &[b"x", b"yz"]));
    assert_ne!(whole, digest(&[b"abcdeg"], &[b"xyz"]));
    assert_ne!(whole, digest(&[b"xyz"], &[b"abcdef"]));
    assert_ne!(whole, digest(&[b"abcdefx"], &[b"yz"]));
}

fn shaped(link: Link) -> (Shaped<Memory>, Shaped<Memory>) {
    let (a, b) = memory_transports();
    (Shaped::new(a, link), Shaped::new(b, link))
}

// A shaped link must never be faster than the link it stands for; how much slower it is depends on the
// machine, so nothing is asserted about that.

#[test]
fn a_shaped_link_is_no_faster_than_its_bandwidth_and_latency() {
    let link = Link { bytes_per_second: 10e6, one_way: Duration::from_millis(30) };
    let (mut a, mut b) = shaped(link);
    let data: Vec<u8> = (0..500_000u32).map(|i| (i % 251) as u8).collect();
    let start = Instant::now();
    a.send(data.clone()).unwrap();
    let mut got = b.recv().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30), "the first parcel pays the latency");
    while got.len() < data.len() {
        got.extend(b.recv().unwrap());
    }
    assert!(start.elapsed() >= Duration::from_millis(80), "50 ms for 500 kB and the latency once");
    assert_eq!(got, data);
}

#[test]
fn sending_does_not_wait_for_a_shaped_link() {
    // Ten minutes' worth: if `send` waited, or the drop did, this test would not end.
    let (mut a, _b) = shaped(Link { bytes_per_second: 1e3, one_way: Duration::from_secs(60) });
    a.send(vec![0; 600_000]).unwrap();
}

/// Stamps (nanoseconds) and lengths of the parcels in what a shaped end sent, seen from an unshaped one.
fn parcels(mut raw: &[u8]) -> Vec<(u64, usize)> {
    let mut parcels = Vec::new();
    while let Some((stamp, rest)) = raw.split_first_chunk::<12>() {
        let len = u32::from_le_bytes(stamp[8..].try_into().unwrap()) as usize;
        parcels.push((u64::from_le_bytes(stamp[..8].try_into().unwrap()), len));
        raw = &rest[len..];
    }
    assert!(raw.is_empty(), "whole parcels only");
    parcels
}

#[test]
fn parcels_follow_each_other_at_the_links_rate() {
    // One byte a microsecond. The second chunk is sent while the link is busy with the first for a second,
    // so its parcels queue up behind: the latency shows in the first stamp and in no distance.
    let link = Link { bytes_per_second: 1e6, one_way: Duration::from_secs(5) };
    let (a, mut b) = memory_transports();
    let mut a = Shaped::new(a, link);
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    a.send(vec![1; 1_000_000]).unwrap();
    a.send(vec![2; 100_000]).unwrap();
    drop(a);
    let parcels = parcels(&drain(&mut b).0);
    assert_eq!(parcels.iter().map(|p| p.1).sum::<usize>(), 1_100_000);
    let first = before + link.one_way + Duration::from_micros(parcels[0].1 as u64);
    assert!(u128::from(parcels[0].0) >= first.as_nanos());
    for pair in parcels.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, pair[1].1 as u64 * 1000);
    }
}

#[test]
fn a_malformed_parcel_is_the_peers_fault() {
    let (mut a, b) = memory_transports();
    a.send(vec![0xff; 12]).unwrap();
    let error = Shaped::new(b, Link::LAN).recv().unwrap_err();
    assert!(matches!(error, WireError::PeerMisbehaved { .. }), "{error}");
}

proptest! {
    #[test]
    fn a_cut_lets_exactly_so_many_bytes_through(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..10),
        end in 0u64..300,
        at_sender: bool,
    ) {
        let stream = chunks.concat();
        let (a, b) = memory_transports();
        let (got, error, failed) = if at_sender {
            let (mut a, mut b) = (Faulty::new(a, Fault::CutSent(end)), b);
            let failed = chunks.iter().any(|chunk| a.send(chunk.clone()).is_err());
            // What the cut has not ended, the drop does.
            drop(a);
            let (got, error) = drain(&mut b);
            (got, error, failed)
        } else {
            let (mut a, mut b) = (a, Faulty::new(b, Fault::CutReceived(end)));
            chunks.iter().for_each(|chunk| a.send(chunk.clone()).unwrap());
            drop(a);
            let (got, error) = drain(&mut b);
            (got, error, stream.len() as u64 > end)
        };
        prop_assert_eq!(&got[..], &stream[..stream.len().min(end as usize)]);
        prop_assert_eq!(failed, stream.len() as u64 > end);
        let closed = matches!(error, WireError::Closed { .. });
        prop_assert!(closed, "{}", error);
    }

    #[test]
    fn a_flip_changes_exactly_one_bit(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..10),
        byte in 0u64..300,
        bit in 0u8..8,
        at_sender: bool,
    ) {
        let mut want = chunks.concat();
        if let Some(hit) = want.get_mut(byte as usize) {
            *hit ^= 1 << bit;
        }
        let (a, b) = memory_transports();
        let (mut a, mut b): (Box<dyn Transport>, Box<dyn Transport>) = if at_sender {
            (Box::new(Faulty::new(a, Fault::FlipSent { byte, bit })), Box::new(b))
        } else {
            (Box::new(a), Box::new(Faulty::new(b, Fault::FlipReceived { byte, bit })))
        };
        chunks.iter().for_each(|chunk| a.send(chunk.clone()).unwrap());
        let mut got = Vec::new();
        while got.len() < want.len() {
            got.extend(b.recv().unwrap());
        }
        prop_assert_eq!(got, want);
    }
}

#[test]
fn silence_comes_after_the_given_byte() {
    let (mut a, b) = memory_transports();
    let mut b = Faulty::new(b, Fault::Silence(5));
    a.send(b"abc".to_vec()).unwrap();
    a.send(b"defg".to_vec()).unwrap();
    let (got, error) = drain(&mut b);
    assert_eq!(got, b"abcde");
    assert!(matches!(error, WireError::Silent { .. }), "{error}");
}

/// Waiting for a time: nothing, then what comes, then the end, on every transport; and nothing is lost by it.
#[test]
fn a_wait_ends_in_time() {
    let moment = Duration::from_millis(2);
    fn check(mut one: impl Transport, mut other: impl Transport, moment: Duration) {
        assert_eq!(one.recv_within(moment).unwrap(), None);
        other.send(vec![1, 2, 3]).unwrap();
        let chunk = loop {
            if let Some(chunk) = one.recv_within(moment).unwrap() {
                break chunk;
            }
        };
        assert_eq!(chunk, [1, 2, 3]);
        other.send(vec![4]).unwrap();
        assert_eq!(one.recv().unwrap(), [4]);
        drop(other);
        let error = loop {
            match one.recv_within(moment) {
                Ok(nothing) => assert_eq!(nothing, None),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WireError::Closed { .. }), "{error}");
    }
    let (a, b) = memory_transports();
    check(a, b, moment);
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    check(Faulty::new(recorder, Fault::Silence(u64::MAX)), b, moment);
    assert_eq!(transcript.received(), [1, 2, 3, 4]);
    let (a, b) = shaped(Link::LAN);
    check(a, b, moment);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    let accepting = std::thread::spawn(move || listener.accept().unwrap().greet(Options::default()).unwrap());
    let client = Tcp::connect(address.as_str(), Options::default()).unwrap();
    check(client, accepting.join().unwrap(), moment);

    // A channel with patience gives up on a peer that lives; what it has read of a message is not lost by looking.
    let (a, mut b) = memory_transports();
    let mut channel = Channel::new(a);
    assert!(!channel.wait_for_input(moment).unwrap());
    b.send(vec![5, 6]).unwrap();
    assert!(channel.wait_for_input(moment).unwrap() && channel.wait_for_input(moment).unwrap());
    channel.set_patience(Some(moment));
    assert_eq!(channel.recv(2).unwrap(), [5, 6]);
    assert!(matches!(channel.recv(1), Err(WireError::Idle { .. })));
    b.send(vec![7]).unwrap();
    channel.set_patience(None);
    assert_eq!(channel.recv(1).unwrap(), [7]);
}

/// What a link does with the middle one of three messages, and how it ends when both sides have gone.
fn through_a_link(fault: link::Fault) -> (Vec<Vec<u8>>, WireError, link::Watch) {
    let at = link::At { from: Side::Connecting, message: 1, fault };
    let (mut a, mut b, watch) = link::pair(Some(at));
    let sent = [vec![1, 2], vec![3, 4], vec![5, 6]].map(|chunk| a.send(chunk).is_ok());
    assert_eq!(watch.happened(), sent[1]);
    let mut got = Vec::new();
    if fault != link::Fault::Reset {
        // Otherwise this end hears of the same end.
        drop(a);
    }
    loop {
        match b.recv() {
            Ok(chunk) => got.push(chunk),
            Err(error) => return (got, error, watch),
        }
    }
}

#[test]
fn a_link_does_to_one_message_what_it_should() {
    use link::Fault;
    let [one, two, three] = [vec![1, 2], vec![3, 4], vec![5, 6]];
    for (fault, want) in [
        (Fault::Cut, vec![one.clone()]),
        (Fault::Truncate, vec![one.clone(), vec![3]]),
        (Fault::Reset, vec![]),
        (Fault::Drop, vec![one.clone(), three.clone()]),
        (Fault::Duplicate, vec![one.clone(), two.clone(), two.clone(), three.clone()]),
        (Fault::Reorder, vec![one.clone(), three.clone(), two.clone()]),
        (Fault::Flip { byte: 3, bit: 7 }, vec![one.clone(), vec![3, 0x84], three.clone()]),
    ] {
        let (got, error, watch) = through_a_link(fault);
        assert_eq!(got, want, "{fault:?}");
        assert!(matches!(error, WireError::Closed { .. }), "{fault:?}: {error}");
        assert_eq!((watch.now(), watch.hung()), (Duration::ZERO, false));
    }
    for fault in [Fault::Stall, Fault::StallOneWay] {
        let (got, error, watch) = through_a_link(fault);
        assert_eq!(got, [&one[..]], "{fault:?}");
        assert!(matches!(error, WireError::Silent { .. }), "{fault:?}: {error}");
        assert_eq!(watch.now(), link::SILENCE);
    }
}

/// Time passes on a link when both ends wait: the less patient one gives up first, and nobody has waited for real.
#[test]
fn a_links_time_passes_when_nothing_else_does() {
    let hour = Duration::from_secs(3600);
    let (mut a, mut b, watch) = link::pair(None);
    let waiting = std::thread::spawn(move || (b.recv_within(2 * hour).unwrap(), b));
    assert_eq!(a.recv_within(hour).unwrap(), None);
    assert_eq!(watch.now(), hour);
    a.send(vec![1]).unwrap();
    let (got, mut b) = waiting.join().unwrap();
    assert_eq!((got, watch.now()), (Some(vec![1]), hour));
    // A message that is held back comes when everybody waits for it.
    let at = link::At { from: Side::Accepting, message: 0, fault: link::Fault::Reorder };
    let (mut c, mut d, _) = link::pair(Some(at));
    let late = std::thread::spawn(move || {
        d.send(vec![2]).unwrap();
        d.recv_within(hour).is_err()
    });
    assert_eq!(c.recv().unwrap(), [2]);
    drop(c);
    assert!(late.join().unwrap());
    // Who waits for ever is found out.
    let waiting = std::thread::spawn(move || b.recv().is_err());
    assert!(a.recv().is_err() && waiting.join().unwrap());
    assert!(watch.hung());
}
