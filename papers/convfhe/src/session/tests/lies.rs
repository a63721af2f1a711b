//! Peers that send what cannot be right.

use jaguar_engine::one_round;

use super::*;
use crate::session::message::{From, Have, MAX_MESSAGE, Reply, Request};

/// A client that speaks for itself, after the handshake.
fn raw(channel: &mut Channel, own: &Own) {
    one_round::ask(channel, NAME, VERSION).unwrap();
    one_round::choose(channel, NAME, VERSION).unwrap();
    channel.send(&own.client).unwrap();
}

#[test]
fn lying_clients_are_told_and_nothing_of_theirs_stays() {
    let scratch = Scratch::new("liars");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    let keys = |bytes: u64, hash| Request::Keys { bytes, hash };
    type Lie<'a> = (&'a str, Box<dyn Fn(&mut Channel) + 'a>);
    let have = |channel: &mut Channel| channel.recv_message::<Have>("have", MAX_MESSAGE).unwrap();
    let all = KEYS as u64;
    let send = |channel: &mut Channel, bytes: &[u8], running: Option<[u8; 32]>| {
        let mut hasher = blake3::Hasher::new();
        for chunk in bytes.chunks(CHUNK) {
            hasher.update(chunk);
            // The other side may be gone.
            let _ = channel.send(chunk);
            let _ = channel.send(&running.unwrap_or(*hasher.finalize().as_bytes()));
        }
        let _ = channel.flush();
    };
    let lies: Vec<Lie<'_>> = vec![
        (
            "keys of 18446744073709551615 bytes",
            Box::new(|c| c.send_message(&keys(u64::MAX, own.hash)).unwrap()),
        ),
        ("keys of 5 bytes", Box::new(|c| c.send_message(&keys(5, own.hash)).unwrap())),
        (
            "keys that do not match their hash",
            Box::new(|c| {
                c.send_message(&keys(all, [9; 32])).unwrap();
                have(c);
                c.send_message(&From { offset: 0 }).unwrap();
                send(c, &own.bytes, None);
            }),
        ),
        (
            "damaged behind 0 bytes",
            Box::new(|c| {
                c.send_message(&keys(all, own.hash)).unwrap();
                have(c);
                c.send_message(&From { offset: 0 }).unwrap();
                send(c, &own.bytes, Some([3; 32]));
            }),
        ),
        (
            "from byte 12345",
            Box::new(|c| {
                c.send_message(&keys(all, own.hash)).unwrap();
                have(c);
                c.send_message(&From { offset: 12345 }).unwrap();
            }),
        ),
        (
            "an input before the keys",
            Box::new(|c| {
                c.send_message(&Request::Input { waits: true }).unwrap();
                c.send(&[0; CIPHERTEXT]).unwrap();
            }),
        ),
        ("at most 4096 bytes", Box::new(|c| c.send(&u32::MAX.to_le_bytes()).unwrap())),
        ("well-formed", Box::new(|c| c.send(&[1, 0, 0, 0, 99]).unwrap())),
    ];
    for (part, lie) in lies {
        let (told, served) = site.over(None, |mut channel| {
            raw(&mut channel, &own);
            lie(&mut channel);
            channel.flush().unwrap();
            loop {
                if let Err(told) = channel.recv(1) {
                    return told.to_string();
                }
            }
        });
        says(served, part);
        assert!(told.contains(part), "{told:?} does not say {part:?}");
        assert_eq!(scratch.kept(), [""; 0], "{part}");
    }
    assert_eq!(site.ask(&own, &[[1; CIPHERTEXT]]).unwrap().1.len(), 1, "others are not concerned");
}

/// A server that speaks for itself, behind the handshake.
fn against(
    lie: impl FnOnce(&mut Channel) + Send,
    client: impl FnOnce(Channel) -> Result<(), EngineError>,
) -> String {
    let (ours, mut theirs) = memory_pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let parameters = jaguar_wire::encode(&terms());
            one_round::offer(&mut theirs, ModelId([7; 32]), (NAME, VERSION), &parameters).unwrap();
            theirs.recv(32).unwrap();
            lie(&mut theirs);
            let _ = theirs.flush();
        });
        client(ours).unwrap_err().to_string()
    })
}

#[test]
fn lying_servers_are_not_believed() {
    let scratch = Scratch::new("lying-server");
    let own = scratch.keys(1);
    let give = |channel| {
        begin(channel, &own)?.give_keys(&own.offered(), &mut |_, _| ())?;
        Ok(())
    };
    for (have, part) in [
        (Have { bytes: u64::MAX, hash: own.hash }, "it has 18446744073709551615 bytes"),
        (Have { bytes: KEYS as u64, hash: [0; 32] }, "it has 2097159 bytes"),
    ] {
        let text = against(
            |channel| {
                channel.recv_message::<Request>("keys", MAX_MESSAGE).unwrap();
                channel.send_message(&have).unwrap();
            },
            give,
        );
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    let text = against(
        |channel| {
            channel.recv_message::<Request>("keys", MAX_MESSAGE).unwrap();
            channel.send_message(&Have { bytes: 0, hash: *blake3::hash(b"").as_bytes() }).unwrap();
            channel.recv_message::<From>("from", MAX_MESSAGE).unwrap();
            channel.recv(KEYS + 3 * 32).unwrap();
            channel.send_message(&Have { bytes: 3, hash: own.hash }).unwrap();
        },
        give,
    );
    assert!(text.contains("acknowledges 3 bytes"), "{text}");
    let answer = |channel| {
        let mut session = begin(channel, &own)?;
        session.send(&[1; CIPHERTEXT], true)?;
        session.answer(&mut |_| ())?;
        Ok(())
    };
    for (reply, part) in [
        (Reply::Failed { reason: "a\nb\x1b".into() }, "the server has no answer: ab"),
        (Reply::Unknown, "no answer under this ticket"),
        // It announces an answer and ends.
        (Reply::Answer, "clos"),
    ] {
        let text = against(
            |channel| {
                channel.recv_message::<Request>("input", MAX_MESSAGE).unwrap();
                channel.recv(CIPHERTEXT).unwrap();
                channel.send_message(&Ticket([1; 32])).unwrap();
                channel.send_message(&reply).unwrap();
            },
            answer,
        );
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn terms_that_do_not_fit_together_are_refused() {
    type Change = fn(&mut Terms);
    let changes: [(&str, Change); 9] = [
        ("shape", |t| t.facing.shape = [1, usize::MAX, 2]),
        ("shape", |t| t.facing.shape = [0, 2, 2]),
        ("affine maps", |t| t.facing.affine = vec![(1.0, 0.0); 2]),
        ("preprocessing", |t| t.facing.image.mean = vec![]),
        ("labels", |t| t.facing.labels = vec![String::new(); 2]),
        ("no plain text", |t| t.facing.name = "a\x1b[2J".into()),
        ("no plain text", |t| t.facing.labels = vec!["a\nb".into()]),
        ("a parameter set called", |t| t.set = "../n16".into()),
        ("parts", |t| {
            let part = jaguar_graph::network::OutputPart {
                name: String::new(),
                dims: vec![7],
                finish: Default::default(),
            };
            t.facing.parts = vec![part];
        }),
    ];
    for (part, change) in changes {
        let mut changed = terms();
        change(&mut changed);
        let (ours, mut theirs) = memory_pair();
        let text = thread::scope(|scope| {
            scope.spawn(move || {
                let parameters = jaguar_wire::encode(&changed);
                one_round::offer(&mut theirs, ModelId([7; 32]), (NAME, VERSION), &parameters).unwrap_err();
            });
            Session::open(ours).err().expect("refused").to_string()
        });
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}
