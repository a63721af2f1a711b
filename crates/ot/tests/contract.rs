//! What every source of correlated OTs promises, checked on the real one and on the test dealer alike.

use std::collections::HashSet;
use std::thread;

use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{Block, CotSource, Cots, Hash, Instances, OtError, Role, Width, combinations};
use jaguar_wire::{Channel, memory_pair};

/// Requests of one run: who sends, what, and how many.
const REQUESTS: [(Role, Width, usize); 10] = [
    (Role::Client, Width::Bit, 1),
    (Role::Server, Width::Bit, 3),
    (Role::Server, Width::Bit, 0),
    (Role::Client, Width::Vector, 1023),
    (Role::Client, Width::Bit, 5000),
    (Role::Server, Width::Vector, 40_000),
    (Role::Server, Width::Bit, 40_000),
    (Role::Client, Width::Bit, 1024),
    (Role::Server, Width::Vector, 7),
    (Role::Server, Width::Bit, 1),
];

/// One party's part of the run: its Δs, and its halves by width, as a sender and as a receiver.
struct Part {
    deltas: [Vec<Block>; 2],
    nonce: Block,
    sent: [Vec<Block>; 2],
    received: [Vec<Block>; 2],
}

fn play(source: &mut impl CotSource, chan: &mut Channel, role: Role) -> Result<Part, OtError> {
    let (mut sent, mut received) = <([Vec<Block>; 2], [Vec<Block>; 2])>::default();
    for (sender, width, n) in REQUESTS {
        let mut blocks = vec![Block::ZERO; n];
        if sender == role {
            source.send(chan, width, &mut blocks)?;
            sent[width as usize].extend(blocks);
        } else {
            source.receive(chan, width, &mut blocks)?;
            received[width as usize].extend(blocks);
        }
    }
    let deltas = Width::ALL.map(|width| source.deltas(width).to_vec());
    Ok(Part { deltas, nonce: source.nonce(), sent, received })
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
    assert!(client.nonce == server.nonce && client.deltas != server.deltas);
    for (sender, receiver) in [(&client, &server), (&server, &client)] {
        let mut seen = HashSet::new();
        for width in Width::ALL {
            let mask = width.choice_mask();
            let deltas = &sender.deltas[width as usize];
            assert_eq!(deltas.len(), mask.count_ones() as usize);
            assert!(deltas.iter().enumerate().all(|(j, delta)| delta.0 & mask == 1 << j));
            let (sent, received) = (&sender.sent[width as usize], &receiver.received[width as usize]);
            assert_eq!(sent.len(), received.len());
            for (q, t) in sent.iter().zip(received) {
                let chosen = deltas.iter().enumerate().filter(|(j, _)| t.0 >> j & 1 == 1);
                assert!(*t == chosen.fold(*q, |sum, (_, delta)| sum ^ *delta) && q.0 & mask == 0);
                assert!(seen.insert(q.0), "handed out twice");
            }
            for j in 0..deltas.len() {
                let ones = received.iter().filter(|t| t.0 >> j & 1 == 1).count() as f64;
                let n = received.len() as f64;
                assert!((ones - n / 2.0).abs() <= 3.0 * n.sqrt(), "{ones} ones of {n}");
            }
        }
    }
}

#[test]
fn the_real_source_keeps_the_contract() {
    check(|chan, role| Box::new(Cots::setup(chan, role, Instances::default()).unwrap()));
}

#[test]
fn the_dealer_keeps_the_contract() {
    check(|_, role| Box::new(InsecureTestDealer::new(3, role)));
}

/// How protocols use the crate: a table of 16 values, of which the receiver gets the one at its random index, from one
/// vector correlation and one hash on its side.
#[test]
fn a_vector_correlation_makes_one_of_sixteen() {
    let (mut a, mut b) = memory_pair();
    let (mut dealer_a, mut dealer_b) = InsecureTestDealer::pair(9);
    let (mut q, mut t) = ([Block::ZERO], [Block::ZERO]);
    dealer_a.send(&mut a, Width::Vector, &mut q).unwrap();
    dealer_b.receive(&mut b, Width::Vector, &mut t).unwrap();
    let hash = Hash::new(dealer_a.nonce(), Role::Client, Width::Vector);
    let deltas: [Block; 4] = dealer_a.deltas(Width::Vector).try_into().unwrap();
    let mut pads = [Block::ZERO; 16];
    hash.pads(77, &combinations(&deltas), &q, &mut pads);
    let mut pad = [Block::ZERO];
    hash.pads(77, &[Block::ZERO], &t, &mut pad);
    for (v, other) in pads.iter().enumerate() {
        assert_eq!(*other == pad[0], v as u128 == t[0].0 & 15);
    }
}
