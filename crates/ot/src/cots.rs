//! Both directions of correlated OT between the two parties, ready for use.

use jaguar_ring::cpu::secret::declassify;
use jaguar_ring::{Prg, derive_seed};
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::ferret::{Context, PublicKeys, Receiver, Room, Sender, Side, Stream};
use crate::instance::{Instances, Lpn};
use crate::{Block, CotSource, Drawn, Hash, OtError, Role, Width, base, iknp};

/// Both directions of correlated OT: base OTs, IKNP, then Ferret for as many as are asked for, on all threads of the
/// current rayon pool.
///
/// Vectors of a direction are set up when the first of them is asked for. Secrets are zeroised on drop.
pub struct Cots {
    sender: Direction<Sender>,
    receiver: Direction<Receiver>,
    nonce: Block,
    sent: Drawn,
    received: Drawn,
    room: Room,
    /// A call has failed, or has not come to its end: the two parties may have drawn differently.
    spent: bool,
}

/// One direction, as one party has it.
struct Direction<S> {
    side: S,
    bits: Stream,
    vectors: Option<Stream>,
    vector_chain: Vec<Lpn>,
    vector_keys: Vec<PublicKeys>,
    /// For the first vectors.
    hash: Hash,
}

impl<S: Side> Direction<S> {
    /// Starts the bits from `base`; `transcript` and `sender` tell the direction's public keys.
    fn new(
        (chan, room): (&mut Channel, &mut Room),
        mut side: S,
        base: &[Block],
        instances: Instances,
        (transcript, sender, nonce): (&[u8; 32], Role, Block),
    ) -> Result<Self, OtError> {
        let keys = |width, chain: &[Lpn]| -> Vec<PublicKeys> {
            (0..chain.len()).map(|stage| public_keys(transcript, sender, width, stage)).collect()
        };
        let (chain, vector_chain) = (instances.chain(Width::Bit), instances.chain(Width::Vector));
        let mut context = Context { chan, side: &mut side, bits: None, room };
        let bits = Stream::start(&mut context, &chain, &keys(Width::Bit, &chain), base)?;
        let vector_keys = keys(Width::Vector, &vector_chain);
        let hash = Hash::for_purpose(nonce, 1, sender, Width::Bit);
        Ok(Self { side, bits, vectors: None, vector_chain, vector_keys, hash })
    }

    fn fill(
        &mut self,
        (chan, room): (&mut Channel, &mut Room),
        width: Width,
        out: &mut [Block],
    ) -> Result<(), OtError> {
        let Self { side, bits, vectors, .. } = self;
        match width {
            Width::Bit => bits.fill(&mut Context { chan, side, bits: None, room }, out),
            Width::Vector if out.is_empty() => Ok(()),
            Width::Vector => {
                if vectors.is_none() {
                    self.vectors = Some(self.start_vectors(chan, room)?);
                }
                let Self { side, bits, vectors, .. } = self;
                let vectors = vectors.as_mut().expect("just made");
                vectors.fill(&mut Context { chan, side, bits: Some(bits), room }, out)
            }
        }
    }

    /// The first vectors are made of four bits each.
    fn start_vectors(&mut self, chan: &mut Channel, room: &mut Room) -> Result<Stream, OtError> {
        let Self { side, bits, vector_chain, vector_keys, hash, .. } = self;
        let mut base = Zeroizing::new(vec![Block::ZERO; vector_chain[0].cost(0)]);
        let mut spent = Zeroizing::new(vec![Block::ZERO; 4 * base.len()]);
        bits.fill(&mut Context { chan, side, bits: None, room }, &mut spent)?;
        side.add_up(chan, hash, &spent, &mut base)?;
        Stream::start(&mut Context { chan, side, bits: Some(bits), room }, vector_chain, vector_keys, &base)
    }
}

impl Cots {
    /// Sets both directions up with the peer, which must do the same, with the same `instances`, at the same point of the
    /// protocol. Takes 3 rounds, [`setup_bytes`](crate::setup_bytes) each way (all but 4 KB of it sent before anything of it
    /// is read), and some 20 ms of computing.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    pub fn setup(chan: &mut Channel, role: Role, instances: Instances) -> Result<Self, OtError> {
        Self::setup_with(chan, role, instances, Prg::from_os())
    }

    /// As [`setup`](Self::setup), with this party's randomness from `prg`.
    pub(crate) fn setup_with(
        chan: &mut Channel,
        role: Role,
        instances: Instances,
        mut prg: Prg,
    ) -> Result<Self, OtError> {
        // 1. Base OTs: this party's Δ chooses for the direction in which it sends, and it offers for the other.
        let mut delta = Zeroizing::new([0; 16]);
        prg.fill(delta.as_mut());
        let delta = Zeroizing::new(Block::from_bytes(*delta).with_lsb(true));
        let offer = base::offer(chan, &mut prg)?;
        let (chosen, send_transcript) = base::choose(chan, &mut prg, &iknp::choices(*delta))?;
        let (pairs, receive_transcript) = offer.finish(chan, iknp::BASE)?;
        // 2. The first COTs.
        let count = instances.chain(Width::Bit)[0].cost(0);
        let t = iknp::receive(chan, &mut prg, &pairs, &receive_transcript, count)?;
        let q = iknp::send(chan, *delta, &chosen, &send_transcript, count)?;
        // 3. The first secrets of the main LPN instance.
        let nonce =
            public_key(&send_transcript, "nonce", &[]) ^ public_key(&receive_transcript, "nonce", &[]);
        let mut room = Room::default();
        let sends = (&send_transcript, role, nonce);
        let sender = Direction::new((chan, &mut room), Sender::new(*delta, prg), &q, instances, sends)?;
        let receives = (&receive_transcript, role.peer(), nonce);
        let receiver = Direction::new((chan, &mut room), Receiver, &t, instances, receives)?;
        Ok(Self {
            sender,
            receiver,
            nonce,
            sent: Drawn::default(),
            received: Drawn::default(),
            room,
            spent: false,
        })
    }

    /// Refuses if a call has failed; spent until this one has succeeded.
    fn begin(&mut self) -> Result<(), OtError> {
        if std::mem::replace(&mut self.spent, true) { Err(OtError::Spent) } else { Ok(()) }
    }

    /// How many correlations were handed out: as a sender, as a receiver.
    pub fn counters(&self) -> (Drawn, Drawn) {
        (self.sent, self.received)
    }
}

impl CotSource for Cots {
    fn nonce(&self) -> Block {
        self.nonce
    }

    fn deltas(&self, width: Width) -> &[Block] {
        match width {
            Width::Bit => &self.sender.side.delta[..],
            Width::Vector => &self.sender.side.deltas[..],
        }
    }

    fn send(&mut self, chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
        self.begin()?;
        self.sender.fill((chan, &mut self.room), width, q)?;
        match width {
            Width::Bit => self.sent.bits += q.len() as u64,
            Width::Vector => self.sent.vectors += q.len() as u64,
        }
        self.spent = false;
        Ok(())
    }

    fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
        self.begin()?;
        self.receiver.fill((chan, &mut self.room), width, t)?;
        match width {
            Width::Bit => self.received.bits += t.len() as u64,
            Width::Vector => self.received.vectors += t.len() as u64,
        }
        self.spent = false;
        Ok(())
    }
}

/// A public key of a direction: a hash of its base OTs' messages, which neither party chooses alone. (Who sends last could
/// try many hashes; a semi-honest party does not.)
fn public_key(transcript: &[u8; 32], label: &str, indices: &[u64]) -> Block {
    let mut seed = derive_seed(transcript, label, indices);
    // A hash of what was sent.
    declassify(&mut seed);
    Block::from_bytes(seed[..16].try_into().expect("16 of 32 bytes"))
}

/// The public keys of an instance: the `stage`-th of its chain, in the direction in which `sender` sends.
fn public_keys(transcript: &[u8; 32], sender: Role, width: Width, stage: usize) -> PublicKeys {
    let indices = [u64::from(sender == Role::Client), width as u64, stage as u64];
    PublicKeys {
        matrix: public_key(transcript, "matrix", &indices),
        trees: public_key(transcript, "trees", &indices),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::two_parties::{self, Run};
    use crate::{Bin, Noise, combinations, cost};

    /// One request: who sends, what, and how many.
    type Request = (Role, Width, usize);

    /// What a party got, request by request: q as a sender, t as a receiver.
    struct Party {
        deltas: [Vec<Block>; 2],
        got: Vec<Vec<Block>>,
        counters: (Drawn, Drawn),
    }

    fn party(
        chan: &mut Channel,
        role: Role,
        instances: Instances,
        requests: &[Request],
    ) -> Result<Party, OtError> {
        let seed = if role == Role::Client { [1; 32] } else { [2; 32] };
        let cots = Cots::setup_with(chan, role, instances, Prg::new(seed))?;
        draw(chan, cots, role, requests)
    }

    fn draw(chan: &mut Channel, mut cots: Cots, role: Role, requests: &[Request]) -> Result<Party, OtError> {
        let mut got = Vec::new();
        for &(sender, width, n) in requests {
            let mut halves = vec![Block::ZERO; n];
            if sender == role {
                cots.send(chan, width, &mut halves)?;
            } else {
                cots.receive(chan, width, &mut halves)?;
            }
            got.push(halves);
        }
        let deltas = Width::ALL.map(|width| cots.deltas(width).to_vec());
        Ok(Party { deltas, got, counters: cots.counters() })
    }

    fn run(instances: Instances, requests: &[Request]) -> Run<Party, Party> {
        let run = two_parties::run(
            |chan| party(chan, Role::Client, instances, requests),
            |chan| party(chan, Role::Server, instances, requests),
        );
        let Run { first, second, traffic, transcript } = run;
        Run { first: first.unwrap(), second: second.unwrap(), traffic, transcript }
    }

    /// Checks every correlation, and returns all pairs of halves by direction and width.
    fn check(run: &Run<Party, Party>, requests: &[Request]) -> [[Vec<(Block, Block)>; 2]; 2] {
        let (client, server) = (&run.first, &run.second);
        let mut all: [[Vec<_>; 2]; 2] = Default::default();
        for (i, &(sender, width, n)) in requests.iter().enumerate() {
            let (from, to) = if sender == Role::Client { (client, server) } else { (server, client) };
            let (q, t) = (&from.got[i], &to.got[i]);
            assert_eq!((q.len(), t.len()), (n, n));
            let mut deltas = from.deltas[width as usize].clone();
            deltas.resize(4, Block::ZERO);
            let sums = combinations(deltas[..].try_into().unwrap());
            for (j, (q, t)) in q.iter().zip(t).enumerate() {
                let choice = t.0 & width.choice_mask();
                assert!(*t == *q ^ sums[choice as usize], "{width:?} {j} of request {i}");
                assert!(q.0 & width.choice_mask() == 0);
            }
            all[usize::from(sender == Role::Server)][width as usize]
                .extend(q.iter().copied().zip(t.iter().copied()));
        }
        let drawn = all
            .each_ref()
            .map(|[bits, vectors]| Drawn { bits: bits.len() as u64, vectors: vectors.len() as u64 });
        assert_eq!((client.counters, server.counters), ((drawn[0], drawn[1]), (drawn[1], drawn[0])));
        all
    }

    fn drawn(requests: &[Request], sender: Role) -> Drawn {
        requests.iter().filter(|r| r.0 == sender).fold(Drawn::default(), |sum, &(_, width, n)| match width {
            Width::Bit => Drawn { bits: sum.bits + n as u64, ..sum },
            Width::Vector => Drawn { vectors: sum.vectors + n as u64, ..sum },
        })
    }

    /// Checks the bytes of a run, and returns both ways'.
    fn check_bytes(run: &Run<Party, Party>, instances: Instances, requests: &[Request]) {
        let bytes = |sender| {
            let extension = cost::extension_bytes(instances, Drawn::default(), drawn(requests, sender));
            cost::setup_bytes(instances) + extension
        };
        assert_eq!(run.traffic.sent, bytes(Role::Client));
        assert_eq!(run.traffic.received, bytes(Role::Server));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_sequence_of_requests_correlates_and_nothing_repeats(
            bins: (prop::sample::Index, prop::sample::Index),
            noise in prop_oneof![Just(Noise::Fresh), Just(Noise::Stationary)],
            requests in prop::collection::vec(
                (
                    prop_oneof![Just(Role::Client), Just(Role::Server)],
                    prop_oneof![Just(Width::Bit), Just(Width::Vector)],
                    // Around the size of a bin, where the paths through the buffer change.
                    prop_oneof![
                        0usize..10, 0usize..20_000, 1022usize..1026, 2046usize..2050, Just(512), 4090usize..4100,
                        Just(65_536), Just(140_000), Just(530_000),
                    ],
                ),
                0..10,
            ),
        ) {
            let instances = Instances { bits: *bins.0.get(&Bin::ALL), vectors: *bins.1.get(&Bin::ALL), noise };
            let run = run(instances, &requests);
            check_bytes(&run, instances, &requests);
            for direction in check(&run, &requests) {
                let mut seen = HashSet::new();
                prop_assert!(direction.iter().flatten().all(|(q, _)| seen.insert(q.0)));
            }
        }
    }

    /// Two iterations and the start of a third, so that what one iteration makes for the next serves it; alone and in lines.
    #[test]
    fn iterations_follow_each_other() {
        for (bin, width, noise) in [
            (Bin::B512, Width::Bit, Noise::Fresh),
            (Bin::B512, Width::Vector, Noise::Fresh),
            (Bin::B1024, Width::Bit, Noise::Fresh),
            (Bin::B1024, Width::Vector, Noise::Fresh),
            (Bin::B1024, Width::Bit, Noise::Stationary),
            (Bin::B1024, Width::Vector, Noise::Stationary),
        ] {
            let instances = Instances { bits: bin, vectors: bin, noise };
            let lpn = *instances.chain(width).last().unwrap();
            let for_use = |iteration| (lpn.bins - lpn.aside(iteration)) * lpn.bin();
            let requests = [(Role::Server, width, for_use(0) + for_use(1) + 1)];
            let run = run(instances, &requests);
            let [_, mut halves] = check(&run, &requests);
            let halves = std::mem::take(&mut halves[width as usize]);
            let mut seen = HashSet::with_capacity(halves.len());
            assert!(halves.iter().all(|(q, _)| seen.insert(q.0)));
            check_bytes(&run, instances, &requests);
            assert_eq!(run.traffic.rounds, 3);
            // The same, told beforehand and in two parts.
            let all = drawn(&requests, Role::Server);
            let none = Drawn::default();
            let first = Drawn { bits: all.bits / 2, vectors: all.vectors / 2 };
            let rest = Drawn { bits: all.bits - first.bits, vectors: all.vectors - first.vectors };
            let whole = cost::extension_bytes(instances, none, all);
            assert_eq!(
                whole,
                cost::extension_bytes(instances, none, first) + cost::extension_bytes(instances, first, rest)
            );

            // Choices: six standard deviations around half, overall, from one to the next, and by bins.
            let near_half =
                |ones: usize, n: usize| (ones as f64 - n as f64 / 2.0).abs() < 3.0 * (n as f64).sqrt();
            for j in 0..width.choice_mask().count_ones() {
                let bits: Vec<bool> = halves.iter().map(|(_, t)| t.0 >> j & 1 == 1).collect();
                assert!(near_half(bits.iter().filter(|r| **r).count(), bits.len()));
                for lag in [1, 2, 3, 4, 10, 64, lpn.bin()] {
                    let changes = bits.windows(lag + 1).filter(|w| w[0] != w[lag]).count();
                    assert!(near_half(changes, bits.len() - lag), "lag {lag}");
                }
                for bin in bits.chunks_exact(lpn.bin()) {
                    // Some thousand bins: seven standard deviations.
                    let (ones, n) = (bin.iter().filter(|r| **r).count() as f64, bin.len() as f64);
                    assert!((ones - n / 2.0).abs() < 3.5 * n.sqrt(), "{ones} ones in a bin");
                }
                // Two of the bits are independent of each other.
                for other in j + 1..width.choice_mask().count_ones() {
                    let equal = halves.iter().filter(|(_, t)| (t.0 >> j ^ t.0 >> other) & 1 == 0).count();
                    assert!(near_half(equal, halves.len()), "bits {j} and {other}");
                }
            }
            // And every other bit of the halves is as often 0 as 1.
            for j in width.choice_mask().count_ones()..128 {
                let ones = halves.iter().filter(|(q, _)| q.0 >> j & 1 == 1).count();
                assert!(near_half(ones, halves.len()), "bit {j}");
            }
        }
    }

    #[test]
    fn the_wire_format_is_the_recorded_one() {
        let instances = Instances { bits: Bin::B1024, vectors: Bin::B1024, ..Instances::default() };
        let requests = [
            (Role::Client, Width::Bit, 5000),
            (Role::Server, Width::Vector, 100),
            (Role::Server, Width::Bit, 1),
        ];
        let run = run(instances, &requests);
        check(&run, &requests);
        // Each way: the sender's point, 127 receiver's points, 127 columns of IKNP and its check, 611 and 610 bins for the first
        // secrets.
        let setup = 32 + 127 * 32 + 127 * 19_712 / 8 + 4080 + 611 * 7 * 16 + 610 * 9 * 16;
        assert_eq!(cost::setup_bytes(instances), setup);
        // A bin for each 1024, with eight levels and four errors.
        assert_eq!(run.traffic.sent, setup + 5 * (8 + 4) * 16);
        check_bytes(&run, instances, &requests);
        assert_eq!(run.traffic.rounds, 3);
        assert_eq!(run.digest(), "1152476173e50872ecda3f71ff35cd0fd4fdff6fa5b54ddef8539dce5c23b7a0");
    }

    /// The same bytes in the same order, and the same correlations, on any number of threads.
    #[test]
    fn threads_change_nothing() {
        let requests = [
            (Role::Client, Width::Bit, 50_000),
            (Role::Server, Width::Vector, 150_000),
            (Role::Server, Width::Bit, 40_001),
        ];
        let instances = Instances::default();
        let runs: Vec<_> = [1, 2, 3]
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                two_parties::run(
                    |chan| party(chan, Role::Client, instances, &requests).unwrap(),
                    |chan| pool.install(|| party(chan, Role::Server, instances, &requests).unwrap()),
                )
            })
            .into();
        for other in &runs[1..] {
            assert_eq!(runs[0].digest(), other.digest());
            assert!(runs[0].second.got == other.second.got);
        }
    }

    /// After an error nothing is handed out any more, even over a sound connection: the parties may have drawn differently.
    #[test]
    fn an_error_ends_the_source() {
        use jaguar_wire::memory_pair;
        let instances = Instances::default();
        for sends in [true, false] {
            let run = two_parties::run(
                |chan| Cots::setup_with(chan, Role::Client, instances, Prg::new([1; 32])).unwrap(),
                |chan| Cots::setup_with(chan, Role::Server, instances, Prg::new([2; 32])).unwrap(),
            );
            let (mut client, mut server) = (run.first, run.second);
            let mut blocks = [Block::ZERO; 10];
            let (mut broken, gone) = memory_pair();
            drop(gone);
            assert!(matches!(client.receive(&mut broken, Width::Bit, &mut blocks), Err(OtError::Wire(_))));
            let (mut a, mut b) = memory_pair();
            server.send(&mut b, Width::Bit, &mut blocks).unwrap();
            b.flush().unwrap();
            let again = match sends {
                true => client.send(&mut a, Width::Bit, &mut blocks),
                false => client.receive(&mut a, Width::Bit, &mut blocks),
            };
            assert!(matches!(again, Err(OtError::Spent)));
        }
    }

    #[test]
    fn a_peer_that_stops_is_an_error_wherever_it_stops() {
        use jaguar_wire::double::{Fault, Faulty};
        use jaguar_wire::memory_transports;
        let instances = Instances::default();
        let setup = cost::setup_bytes(instances);
        for end in [0, 31, 32, 100, 4096, 5000, setup - 1, setup + 500, setup + 400_000] {
            let (a, b) = memory_transports();
            let requests = [(Role::Server, Width::Bit, 10), (Role::Server, Width::Vector, 10)];
            let (client, server) = std::thread::scope(|scope| {
                let server = scope.spawn(move || {
                    let mut chan = Channel::new(b);
                    party(&mut chan, Role::Server, instances, &requests)
                });
                let mut chan = Channel::new(Faulty::new(a, Fault::CutReceived(end)));
                let client = party(&mut chan, Role::Client, instances, &requests);
                drop(chan);
                (client, server.join().expect("no panic"))
            });
            assert!(matches!(client, Err(OtError::Wire(_))), "cut after {end}");
            assert!(matches!(server, Err(OtError::Wire(_)) | Ok(_)), "cut after {end}");
        }
    }

    /// A bit of a tree that arrives flipped is no error, and spoils no other bin: of the block of an error one correlation.
    #[test]
    fn a_flipped_bit_spoils_its_bin_alone() {
        use jaguar_wire::double::{Fault, Faulty};
        use jaguar_wire::memory_transports;
        let instances = Instances { bits: Bin::B1024, vectors: Bin::B512, ..Instances::default() };
        let lpn = *instances.chain(Width::Bit).last().unwrap();
        let requests = [(Role::Server, Width::Bit, 3 * lpn.bin())];
        for block in 0..lpn.message(0) {
            let byte = cost::setup_bytes(instances) + ((lpn.message(0) + block) * size_of::<Block>()) as u64;
            let (a, b) = memory_transports();
            let (client, server) = std::thread::scope(|scope| {
                let server =
                    scope.spawn(|| party(&mut Channel::new(b), Role::Server, instances, &requests).unwrap());
                let mut chan = Channel::new(Faulty::new(a, Fault::FlipReceived { byte: byte + 9, bit: 3 }));
                let client = party(&mut chan, Role::Client, instances, &requests).unwrap();
                (client, server.join().expect("no panic"))
            });
            let delta = server.deltas[0][0];
            let pairs = server.got[0].iter().zip(&client.got[0]);
            let wrong = pairs.enumerate().filter(|(_, (q, t))| **t != **q ^ delta.masked(t.lsb()));
            let wrong: Vec<usize> = wrong.map(|(i, _)| i).collect();
            assert!(
                !wrong.is_empty() && wrong.iter().all(|i| i / lpn.bin() == 1),
                "block {block}: {wrong:?}"
            );
            if let Some(lane) = block.checked_sub(lpn.log_bin) {
                assert!(wrong.len() == 1 && wrong[0] % lpn.lanes == lane, "block {block}: {wrong:?}");
            }
        }
    }

    #[test]
    fn fresh_sessions_differ() {
        let session = || {
            let one = |chan: &mut Channel, role| {
                let cots = Cots::setup(chan, role, Instances::default()).unwrap();
                let deltas = Width::ALL.map(|width| cots.deltas(width).to_vec()).concat();
                (deltas, cots.nonce())
            };
            two_parties::run(|chan| one(chan, Role::Client), |chan| one(chan, Role::Server))
        };
        let (one, two) = (session(), session());
        let all = [&one.first, &one.second, &two.first, &two.second];
        let deltas: HashSet<u128> = all.iter().flat_map(|(deltas, _)| deltas.iter().map(|d| d.0)).collect();
        assert_eq!(deltas.len(), 20);
        assert!(one.first.1 == one.second.1 && one.first.1 != two.first.1);
        assert!(one.digest() != two.digest());
    }
}
