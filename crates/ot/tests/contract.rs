//! What every source of correlated OTs promises, checked on the real one and on the test dealer alike.

use std::collections::HashSet;
use std::thread;

use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{Block, CotSource, Cots, OtError, Role, Tccr};
use jaguar_wire::{Channel, memory_pair};

/// Requests of one run: who sends, and how many.
const REQUESTS: [(Role, usize); 9] = [
    (Role::Client, 1),
    (Role::Server, 3),
    (Role::Server, 0),
    (Role::Client, 4095),
    (Role::Client, 5000),
    (Role::Server, 40_000),
    (Role::Client, 4096),
    (Role::Server, 7),
    (Role::Server, 1),
];

/// One party's part of the run: its Δ, its halves as a sender, and its (t, r) as a receiver.
type Part = (Block, Vec<Block>, Vec<(Block, bool)>);

fn play(source: &mut impl CotSource, chan: &mut Channel, role: Role) -> Result<Part, OtError> {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (sender, n) in REQUESTS {
        let mut blocks = vec![Block::ZERO; n];
        if sender == role {
            source.send(chan, &mut blocks)?;
            sent.extend(blocks);
        } else {
            let mut bits = vec![false; n];
            source.receive(chan, &mut blocks, &mut bits)?;
            received.extend(blocks.into_iter().zip(bits));
        }
    }
    Ok((source.delta(), sent, received))
}

fn check(make: fn(&mut Channel, Role) -> Box<dyn CotSource>) {
    let (mut a, mut b) = memory_pair();
    let server = thread::spawn(move || {
        let mut source = make(&mut b, Role::Server);
        play(&mut source, &mut b, Role::Server).unwrap()
    });
    let mut source = make(&mut a, Role::Client);
    let client = play(&mut source, &mut a, Role::Client).unwrap();
    let server = server.join().unwrap();
    assert!(client.0 != server.0);
    for ((delta, sent, _), (_, _, received)) in [(&client, &server), (&server, &client)] {
        assert!(delta.lsb());
        assert_eq!(sent.len(), received.len());
        let mut seen = HashSet::new();
        for (q, (t, r)) in sent.iter().zip(received) {
            assert!(!q.lsb() && *t == *q ^ delta.masked(*r));
            assert!(seen.insert(q.0), "handed out twice");
        }
        let ones = received.iter().filter(|(_, r)| *r).count() as f64;
        let n = received.len() as f64;
        assert!((ones - n / 2.0).abs() < 3.0 * n.sqrt(), "{ones} ones of {n}");
    }
}

#[test]
fn the_real_source_keeps_the_contract() {
    check(|chan, role| Box::new(Cots::setup(chan, role).unwrap()));
}

#[test]
fn the_dealer_keeps_the_contract() {
    check(|_, role| Box::new(InsecureTestDealer::new(3, role)));
}

/// How protocols use the crate: a table of 16 values, of which the receiver gets the one at its random index, from four
/// COTs and one hash on its side.
#[test]
fn four_correlations_make_one_of_sixteen() {
    let (mut a, mut b) = memory_pair();
    let (mut dealer_a, mut dealer_b) = InsecureTestDealer::pair(9);
    let (mut q, mut t, mut r) = ([Block::ZERO; 4], [Block::ZERO; 4], [false; 4]);
    dealer_a.send(&mut a, &mut q).unwrap();
    dealer_b.receive(&mut b, &mut t, &mut r).unwrap();
    // Horner: Σ X^b · half_b.
    let sum = |halves: [Block; 4]| halves.into_iter().rev().fold(Block::ZERO, |acc, h| acc.mul_x() ^ h);
    let hash = Tccr::new();
    let mut pads: [Block; 16] = std::array::from_fn(|v| sum(q) ^ dealer_a.delta().mul_small(v as u8, 4));
    hash.hash(77, 4, &mut pads);
    let mut pad = [sum(t)];
    hash.hash(77, 4, &mut pad);
    let choice = r.iter().rev().fold(0, |acc, r| 2 * acc + usize::from(*r));
    for (v, other) in pads.iter().enumerate() {
        assert_eq!(*other == pad[0], v == choice);
    }
}
