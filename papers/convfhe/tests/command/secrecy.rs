//! What a server sees of a client that cannot open its answers: the same as of one that can.

use super::*;
use crate::relay::{Recorded, recording};

/// Bytes before the first frame: a line, whether there is a binding and it, a wait, a token's length.
const GREETING: usize = 16 + 33 + 2 + 1;

/// What the client has sent over its last connection, without signs of life: those come when they like.
fn last(sent: &Recorded) -> Vec<u8> {
    let sent = sent.lock().unwrap();
    let mut rest = &sent.last().unwrap()[GREETING..];
    let mut data = Vec::new();
    while let [kind, a, b, c, d, behind @ ..] = rest {
        let (payload, next) = behind.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        match kind {
            1 => data.extend_from_slice(payload),
            2 => assert!(payload.is_empty()),
            kind => panic!("a frame of kind {kind}: {}", String::from_utf8_lossy(payload)),
        }
        rest = next;
    }
    data
}

/// Whether decryption passes its checks depends on the secret key, which lives long: a server that chooses its answers would learn a bit
/// of it from each that it could tell by.
#[test]
fn what_comes_of_decryption_does_not_show() {
    let it = Site::new("unseen");
    let mut server = it.serve(&[]);
    let (at, sent, _) = recording(&server.address);
    let queue = || std::fs::read_dir(it.scratch.path("server/insecure-n10/queue")).unwrap().count();
    let secret = it.of_client("client", "secret");
    let both = [it.inputs[0].as_str(), it.inputs[1].as_str()];

    let asked = lines(it.predict(&at, "client", &[&["--detach"], &both[..]].concat()));
    let tickets: Vec<&str> = asked.iter().map(|line| line["ticket"].as_str().unwrap()).collect();
    assert_eq!(lines(it.predict(&at, "client", &both)).len(), 2);
    let opened = last(&sent);
    assert_eq!(lines(it.predict(&at, "client", &["--ticket", tickets[0]])).len(), 1);
    let fetched = last(&sent);
    server.process.line_with("left", WATCHDOG);

    // The same client, whose checks all fail from here on.
    lines(it.predict(&at, "other", &[&it.inputs[3]]));
    std::fs::copy(it.of_client("other", "secret"), &secret).unwrap();
    let parts = ["decrypting the answer", "keys of another client"];
    assert_fails(it.predict(&at, "client", &["--ticket", tickets[1]]), &parts);
    let ticket = |text: &str| -> Vec<u8> {
        (0..32).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    };
    let without = |bytes: &[u8], number: usize| {
        let ticket = ticket(tickets[number]);
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&ticket)).collect();
        let mut bytes = bytes.to_vec();
        places.iter().for_each(|&at| bytes[at..at + 32].fill(0));
        (places, bytes)
    };
    assert_eq!(without(&last(&sent), 1), without(&fetched, 0));
    assert_eq!(without(&fetched, 0).0.len(), 2, "it is asked for, and acknowledged");

    // Both inputs are sent, and both answers acknowledged.
    assert_fails(it.predict(&at, "client", &both), &parts);
    assert_eq!(last(&sent).len(), opened.len());
    until("the queue is empty", || queue() == 0);
}
