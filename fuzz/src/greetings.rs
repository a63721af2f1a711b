//! What comes first on a connection: the greeting, and the frames behind it.

use std::time::Duration;

use jaguar_wire::framed::Options;
use jaguar_wire::{Channel, Framed, Introduction, Transport, turn_away};

use crate::doubles::Fed;
use crate::script::Script;
use crate::{Bound, Target};

/// The first line. Behind it: 33 bytes of binding, two of a wait, and a token with its length.
pub(crate) const GREETING: &[u8] = b"JAGUAR/0003 \r\n\r\n";

pub(crate) fn targets() -> Vec<Target> {
    let bound = Bound { fixed: 4 << 20, per_byte: 128 };
    vec![
        Target { name: "greeting", run: greeting, seeds: greeting_seeds, bound, longest: 512, tried: 400 },
        Target { name: "frames", run: frames, seeds: frame_seeds, bound, longest: 4096, tried: 400 },
    ]
}

fn options() -> Options {
    Options::default()
}

fn peer() -> String {
    "a fuzzer".into()
}

/// A byte that says which side this is and how many bytes a read gives; then the peer's bytes.
fn greeting(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, bytes) = (script.byte(), script.rest());
    let stream = || Box::new(Fed::new(bytes.to_vec(), usize::from(how >> 2) + 1));
    match how & 3 {
        0 => drop(Framed::accept_introduced(stream(), peer(), options())),
        1 => drop(Framed::connect(stream(), peer(), options())),
        2 => {
            let introduction = Introduction { token: b"a token", unbound: true, wait: 9 };
            drop(Framed::connect_as(stream(), peer(), &introduction, options()));
        }
        _ => turn_away(&*stream(), bytes, "there is no place"),
    }
}

fn greeting_seeds() -> Vec<Vec<u8>> {
    let whole = |token: &[u8]| [GREETING, &[0; 35], &[token.len() as u8], token].concat();
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let bound = [GREETING, &[1; 33], &[9, 0, 3], b"abc"].concat();
    let peers =
        [whole(b""), whole(b"a token"), bound, http, vec![0x16, 3, 1, 0, 5], b"SSH-2.0-x\r\n".to_vec()];
    (0..4).flat_map(|role| peers.iter().map(move |peer| [&[role | 0xf8], &peer[..]].concat())).collect()
}

/// How what was received is read: by kind, with a length.
fn read(channel: &mut Channel, kind: u8, size: usize) -> Result<(), jaguar_wire::WireError> {
    match kind % 6 {
        0 => channel.recv(size).map(drop),
        1 => channel.recv_message::<Vec<String>>("a list", 1 << 12).map(drop),
        2 => channel.recv_message::<(u64, Option<Vec<u32>>, String)>("numbers", 1 << 12).map(drop),
        3 => channel.recv_packed(size, u32::from(kind) % 64 + 1).map(drop),
        4 => channel.wait_for_input(Duration::ZERO).map(drop),
        _ => channel.recv_into(&mut [0; 16]),
    }
}

/// How to read, then frames: kind, announced length, and the bytes that really come (a length of its own).
fn frames(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, reads) = (script.byte(), script.byte() % 8);
    let reads: Vec<(u8, usize)> = (0..reads).map(|_| (script.byte(), script.word() & 0x1fff)).collect();
    let mut bytes = [GREETING, &[0; 36]].concat();
    while !script.is_empty() {
        let (kind, announced) = (script.byte(), script.word());
        // Now and then the announced length is not what comes, or is enormous.
        let (announced, real) = match kind >> 5 {
            0 => (announced as u32, script.byte() as usize),
            1 => ((announced as u32) << 16, script.byte() as usize),
            _ => (announced as u32 & 0xff, announced & 0xff),
        };
        bytes.push(kind & 7);
        bytes.extend_from_slice(&announced.to_le_bytes());
        bytes.extend_from_slice(script.bytes(real));
    }
    let stream = Box::new(Fed::new(bytes, 1 << (how >> 4)));
    let framed = if how & 1 == 0 {
        Framed::accept(stream, peer(), options())
    } else {
        Framed::connect(stream, peer(), options())
    };
    let Ok(mut framed) = framed else { return };
    if how & 2 == 0 {
        while framed.recv().is_ok() {}
        return;
    }
    let mut channel = Channel::new(framed);
    for (kind, size) in reads {
        if read(&mut channel, kind, size).is_err() {
            return;
        }
    }
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for how in [0xf0, 0xf1, 0xf2, 0xf3, 0x02] {
        for reads in [&[][..], &[(0u8, 20u16), (1, 0)], &[(3, 9), (5, 0)], &[(2, 0), (4, 0)]] {
            let mut seed = vec![how, reads.len() as u8];
            for (kind, size) in reads {
                seed.push(*kind);
                seed.extend_from_slice(&size.to_le_bytes());
            }
            // Data, a keep-alive, data, an abort.
            for (kind, payload) in
                [(0x41, &[2, 0, 0, 0, 1, 1, 97][..]), (0x42, b""), (0x41, &[5; 40]), (0x43, b"bye")]
            {
                seed.push(kind);
                seed.extend_from_slice(&(payload.len() as u16).to_le_bytes());
                seed.extend_from_slice(payload);
            }
            seeds.push(seed);
        }
    }
    seeds
}
