//! Both directions of correlated OT between the two parties, ready for use.

use jaguar_ring::{Prg, derive_seed};
use jaguar_wire::Channel;
use zeroize::{Zeroize, Zeroizing};

use crate::ferret::{Ferret, Lpn, PublicKeys, Receiver, Sender};
use crate::{Block, CotSource, OtError, Role, base, iknp};

/// Both directions of correlated OT: base OTs, IKNP, then Ferret for as many as are asked for.
///
/// Holds about 10 MiB per direction, and 8 MiB for what is made ahead. Secrets are zeroised on drop.
pub struct Cots {
    sender: Ferret<Sender>,
    receiver: Ferret<Receiver>,
    sent: u64,
    received: u64,
    /// The sender's halves that were made ahead of time: `ahead[taken..]`.
    ahead: Zeroizing<Vec<Block>>,
    taken: usize,
    /// How many more COTs will be drawn as a sender before anything else is sent.
    promised: u64,
    /// A call has failed, or has not come to its end: the two parties may have drawn differently.
    spent: bool,
}

/// How many COTs a sender makes ahead of time, if it may: what both parties use up in some ten milliseconds, for 8 MiB.
const AHEAD: usize = 1 << 19;

impl Cots {
    /// Sets both directions up with the peer, which must do the same at the same point of the protocol. Takes 3
    /// rounds, 0.86 MB each way (all but 4 KB of it sent before anything of it is read), and about 30 ms of computing.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol.
    pub fn setup(chan: &mut Channel, role: Role) -> Result<Self, OtError> {
        Self::setup_with(chan, role, Prg::from_os())
    }

    /// As [`setup`](Self::setup), with this party's randomness from `prg`.
    pub(crate) fn setup_with(chan: &mut Channel, role: Role, mut prg: Prg) -> Result<Self, OtError> {
        // 1. Base OTs: this party's Δ chooses for the direction in which it sends, and it offers for the other.
        let mut delta = Zeroizing::new([0; 16]);
        prg.fill(delta.as_mut());
        let delta = Zeroizing::new(Block::from_bytes(*delta).with_lsb(true));
        let offer = base::offer(chan, &mut prg)?;
        let (chosen, send_transcript) = base::choose(chan, &mut prg, &iknp::choices(*delta))?;
        let (pairs, receive_transcript) = offer.finish(chan, iknp::BASE)?;
        // 2. The first COTs.
        let mut t = Zeroizing::new(vec![Block::ZERO; Lpn::SETUP.cost()]);
        iknp::receive(chan, &mut prg, &pairs, &mut t)?;
        let mut q = Zeroizing::new(vec![Block::ZERO; Lpn::SETUP.cost()]);
        iknp::send(chan, *delta, &chosen, &mut q)?;
        // 3. The first secrets of the main LPN instance.
        let sender = Ferret::new(chan, Sender::new(*delta, prg), q, public_keys(&send_transcript, role))?;
        let receiver = Ferret::new(chan, Receiver, t, public_keys(&receive_transcript, role.peer()))?;
        Ok(Self {
            sender,
            receiver,
            sent: 0,
            received: 0,
            ahead: Zeroizing::default(),
            taken: 0,
            promised: 0,
            spent: false,
        })
    }

    /// This party's Δ as a sender, the same for the whole session, bit 0 set.
    pub fn delta(&self) -> Block {
        *self.sender.side().delta
    }

    /// Fills `q` with the sender's halves, bit 0 of each zero. The peer must call [`receive`](Self::receive) with the
    /// same count at the same point of the protocol; from time to time something is sent to it.
    ///
    /// # Errors
    /// When the connection fails, or a call did before. The session is spent then.
    pub fn send(&mut self, chan: &mut Channel, q: &mut [Block]) -> Result<(), OtError> {
        self.begin()?;
        let ready = q.len().min(self.ahead.len() - self.taken);
        let (made, rest) = q.split_at_mut(ready);
        let ahead = &mut self.ahead[self.taken..self.taken + ready];
        made.copy_from_slice(ahead);
        ahead.zeroize();
        self.taken += ready;
        self.sender.fill(chan, rest)?;
        self.sent += q.len() as u64;
        self.promised = self.promised.saturating_sub(q.len() as u64);
        self.spent = false;
        Ok(())
    }

    /// Fills `r` with random choice bits and `t` with `t_i = q_i ^ r_i·Δ` of the peer's q and Δ, so that bit 0 of
    /// `t_i` is `r_i`.
    ///
    /// # Errors
    /// When the connection fails, or a call did before. The session is spent then.
    ///
    /// # Panics
    /// When `t` and `r` differ in length.
    pub fn receive(&mut self, chan: &mut Channel, t: &mut [Block], r: &mut [bool]) -> Result<(), OtError> {
        assert_eq!(t.len(), r.len(), "as many choice bits as blocks");
        self.begin()?;
        self.run_ahead(chan)?;
        self.receiver.fill(chan, t)?;
        for (t, r) in t.iter().zip(r) {
            *r = t.lsb();
        }
        self.received += t.len() as u64;
        self.spent = false;
        Ok(())
    }

    /// Refuses if a call has failed; spent until this one has succeeded.
    fn begin(&mut self) -> Result<(), OtError> {
        if std::mem::replace(&mut self.spent, true) { Err(OtError::Spent) } else { Ok(()) }
    }

    /// As [`CotSource::promise`].
    pub fn promise(&mut self, count: u64) {
        self.promised = count;
    }

    /// As [`CotSource::promised`].
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Makes COTs ahead of time, as far as was promised, when half of those that were made are used up.
    fn run_ahead(&mut self, chan: &mut Channel) -> Result<(), OtError> {
        let left = self.ahead.len() - self.taken;
        let want = AHEAD.min(usize::try_from(self.promised).unwrap_or(usize::MAX));
        if left >= want.div_ceil(2) {
            return Ok(());
        }
        // Room for all there will ever be, so that growing leaves no copy behind.
        let held = self.ahead.len();
        self.ahead.reserve_exact(AHEAD.saturating_sub(held));
        self.ahead.copy_within(self.taken.., 0);
        self.taken = 0;
        self.ahead.resize(want, Block::ZERO);
        self.sender.fill(chan, &mut self.ahead[left..])?;
        Ok(chan.flush()?)
    }

    /// How many correlations were handed out: as a sender, as a receiver.
    pub fn counters(&self) -> (u64, u64) {
        (self.sent, self.received)
    }
}

impl CotSource for Cots {
    fn promise(&mut self, count: u64) {
        Self::promise(self, count);
    }

    fn promised(&self) -> u64 {
        Self::promised(self)
    }

    fn delta(&self) -> Block {
        Self::delta(self)
    }

    fn send(&mut self, chan: &mut Channel, q: &mut [Block]) -> Result<(), OtError> {
        Self::send(self, chan, q)
    }

    fn receive(&mut self, chan: &mut Channel, t: &mut [Block], r: &mut [bool]) -> Result<(), OtError> {
        Self::receive(self, chan, t, r)
    }
}

/// Bytes that the sender of a direction sends for `count` more COTs, when `before` were drawn already: whole bins are
/// made, and at the start of each iteration those that are put aside for the next.
pub fn extension_bytes(before: u64, count: u64) -> u64 {
    let Lpn { bins, log_bin, .. } = Lpn::MAIN;
    let aside = (Lpn::MAIN.cost() / Lpn::MAIN.bin()) as u64;
    let trees = |cots: u64| {
        let wanted = cots.div_ceil(Lpn::MAIN.bin() as u64);
        wanted + aside * wanted.div_ceil(bins as u64 - aside)
    };
    (trees(before + count) - trees(before)) * (size_of::<Block>() * log_bin) as u64
}

/// What a COT sends in the long run, in bytes: those of an iteration, over the COTs that it hands out.
pub fn mean_extension_bytes() -> f64 {
    let Lpn { bins, log_bin, .. } = Lpn::MAIN;
    (bins * log_bin * size_of::<Block>()) as f64 / (Lpn::MAIN.samples() - Lpn::MAIN.cost()) as f64
}

/// The public keys of the setup and the main instance of a direction: hashes of its base OTs' messages, which neither
/// party could steer alone, and of who sends.
fn public_keys(transcript: &[u8; 32], sender: Role) -> [PublicKeys; 2] {
    let key = |label| {
        let seed = derive_seed(transcript, label, &[u64::from(sender == Role::Client)]);
        Block::from_bytes(seed[..16].try_into().expect("16 of 32 bytes"))
    };
    [
        PublicKeys { matrix: key("setup matrix"), trees: key("setup trees") },
        PublicKeys { matrix: key("main matrix"), trees: key("main trees") },
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::two_parties::{self, Run};

    /// One request: who sends, and how many.
    type Request = (Role, usize);

    /// What a party got: (q, no bits) as a sender, (t, r) as a receiver.
    struct Party {
        delta: Block,
        got: Vec<(Vec<Block>, Vec<bool>)>,
        counters: (u64, u64),
    }

    fn party(chan: &mut Channel, role: Role, seed: [u8; 32], requests: &[Request]) -> Result<Party, OtError> {
        let cots = Cots::setup_with(chan, role, Prg::new(seed))?;
        draw(chan, cots, role, requests)
    }

    fn draw(chan: &mut Channel, mut cots: Cots, role: Role, requests: &[Request]) -> Result<Party, OtError> {
        let mut got = Vec::new();
        for &(sender, n) in requests {
            let mut halves = vec![Block::ZERO; n];
            let mut bits = vec![false; if sender == role { 0 } else { n }];
            if sender == role {
                cots.send(chan, &mut halves)?;
            } else {
                cots.receive(chan, &mut halves, &mut bits)?;
            }
            got.push((halves, bits));
        }
        Ok(Party { delta: cots.delta(), got, counters: cots.counters() })
    }

    fn run(requests: &[Request]) -> Run<Party, Party> {
        let run = two_parties::run(
            |chan| party(chan, Role::Client, [1; 32], requests),
            |chan| party(chan, Role::Server, [2; 32], requests),
        );
        let Run { first, second, traffic, transcript } = run;
        Run { first: first.unwrap(), second: second.unwrap(), traffic, transcript }
    }

    /// Checks every correlation, and returns all senders' halves and the receivers' bits by direction.
    fn check(run: &Run<Party, Party>, requests: &[Request]) -> [Vec<(Block, bool)>; 2] {
        let (client, server) = (&run.first, &run.second);
        assert!(client.delta.lsb() && server.delta.lsb() && client.delta != server.delta);
        let mut all = [Vec::new(), Vec::new()];
        for (i, &(sender, n)) in requests.iter().enumerate() {
            let (from, to) = if sender == Role::Client { (client, server) } else { (server, client) };
            let (q, (t, r)) = (&from.got[i].0, &to.got[i]);
            assert_eq!((q.len(), t.len(), r.len()), (n, n, n));
            for j in 0..n {
                assert!(t[j] == q[j] ^ from.delta.masked(r[j]), "COT {j} of request {i}");
                assert!(!q[j].lsb());
                all[usize::from(sender == Role::Server)].push((q[j], r[j]));
            }
        }
        let counts = all.each_ref().map(|halves| halves.len() as u64);
        assert_eq!((client.counters, server.counters), ((counts[0], counts[1]), (counts[1], counts[0])));
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_sequence_of_requests_correlates_and_nothing_repeats(
            requests in prop::collection::vec(
                (
                    prop_oneof![Just(Role::Client), Just(Role::Server)],
                    // Around the size of a bin, where the paths through the buffer change.
                    prop_oneof![
                        0usize..10, 0usize..20_000, 4090usize..4100, Just(4096), Just(8192), 8190usize..8200,
                    ],
                ),
                0..12,
            ),
        ) {
            let run = run(&requests);
            let drawn = |role| requests.iter().filter(|r| r.0 == role).map(|r| r.1 as u64).sum();
            prop_assert_eq!(run.traffic.sent, SETUP_BYTES + extension_bytes(0, drawn(Role::Client)));
            prop_assert_eq!(run.traffic.received, SETUP_BYTES + extension_bytes(0, drawn(Role::Server)));
            for halves in check(&run, &requests) {
                let mut seen = HashSet::new();
                prop_assert!(halves.iter().all(|(q, _)| seen.insert(q.0)));
            }
        }
    }

    /// Two iterations and the start of a third, so that what one iteration puts aside serves the next.
    #[test]
    fn iterations_follow_each_other() {
        let per_iteration = Lpn::MAIN.samples() - Lpn::MAIN.cost();
        let requests = [(Role::Server, 2 * per_iteration + 1)];
        let run = run(&requests);
        let [_, halves] = check(&run, &requests);
        let mut seen = HashSet::with_capacity(halves.len());
        assert!(halves.iter().all(|(q, _)| seen.insert(q.0)));

        // Bytes a COT, once set up: three starts are in it for the work of two, and still it is a tenth.
        let extension = run.traffic.received - SETUP_BYTES;
        let bins = 2 * Lpn::MAIN.bins + Lpn::MAIN.cost() / Lpn::MAIN.bin() + 1;
        assert_eq!(extension, (bins * Lpn::MAIN.log_bin * 16) as u64);
        // The same, told beforehand and in two parts.
        let (first, rest) = (per_iteration as u64 - 1, per_iteration as u64 + 2);
        assert_eq!(extension, extension_bytes(0, first) + extension_bytes(first, rest));
        assert!((mean_extension_bytes() - 0.051).abs() < 0.0005);
        assert!((extension as f64) < 0.06 * halves.len() as f64);
        assert_eq!((run.traffic.sent, run.traffic.rounds), (SETUP_BYTES, 3));

        // Choice bits: six standard deviations around half, overall, from one to the next, and by bins.
        let bits: Vec<bool> = halves.iter().map(|(_, r)| *r).collect();
        let near_half =
            |ones: usize, n: usize| (ones as f64 - n as f64 / 2.0).abs() < 3.0 * (n as f64).sqrt();
        assert!(near_half(bits.iter().filter(|r| **r).count(), bits.len()));
        for lag in [1, 2, 10, 64, 4096] {
            let changes = bits.windows(lag + 1).filter(|w| w[0] != w[lag]).count();
            assert!(near_half(changes, bits.len() - lag), "lag {lag}");
        }
        for bin in bits.chunks_exact(4096) {
            // Some 1850 bins: seven standard deviations.
            let ones = bin.iter().filter(|r| **r).count() as f64;
            assert!((ones - 2048.0).abs() < 3.5 * 64.0, "{ones} ones in a bin");
        }
        // And every bit of the halves is as often 0 as 1, but for bit 0.
        for j in 1..128 {
            let ones = halves.iter().filter(|(q, _)| q.0 >> j & 1 == 1).count();
            assert!(near_half(ones, halves.len()), "bit {j}");
        }
    }

    /// Each way: the sender's point, 127 receiver's points, 127 columns of IKNP, the trees of the setup instance.
    const SETUP_BYTES: u64 = 32 + 127 * 32 + 127 * 47_872 / 8 + 656 * 9 * 16;

    #[test]
    fn the_wire_format_is_the_recorded_one() {
        assert_eq!(Lpn::SETUP.cost(), 47_872);
        let requests = [(Role::Client, 5000), (Role::Server, 100), (Role::Server, 1)];
        let run = run(&requests);
        check(&run, &requests);
        // The base of the next iteration is made before the first COT: 82 bins, then one or two for the request.
        let bin = 12 * 16;
        assert_eq!(run.traffic.sent, SETUP_BYTES + (82 + 2) * bin);
        assert_eq!(run.traffic.received, SETUP_BYTES + (82 + 1) * bin);
        assert_eq!(run.traffic.rounds, 3);
        assert_eq!(run.digest(), "ebbe9574cb4280154747884cf3f670044d0f3ae6f3b76798b2689bdbdc8ff743");
    }

    /// A party that promises what it will draw sends it ahead: the same correlations and bytes, but the other one
    /// finds them waiting.
    #[test]
    fn running_ahead_changes_nothing_but_the_order() {
        let requests: Vec<Request> =
            (0..60).flat_map(|i| [(Role::Client, 30_000 - i), (Role::Server, 20_000 + 7 * i)]).collect();
        let plain = run(&requests);
        let promised = two_parties::run(
            |chan| {
                let mut cots = Cots::setup_with(chan, Role::Client, Prg::new([1; 32])).unwrap();
                cots.promise(requests.iter().filter(|r| r.0 == Role::Client).map(|r| r.1 as u64).sum());
                // Ahead of the first thing that is waited for.
                let before = chan.total().sent;
                cots.run_ahead(chan).unwrap();
                assert!(chan.total().sent > before);
                draw(chan, cots, Role::Client, &requests).unwrap()
            },
            |chan| party(chan, Role::Server, [2; 32], &requests).unwrap(),
        );
        for (a, b) in [(&plain.first, &promised.first), (&plain.second, &promised.second)] {
            for (a, b) in a.got.iter().zip(&b.got) {
                assert!(a.0 == b.0 && a.1 == b.1);
            }
        }
        assert_eq!(plain.traffic.sent, promised.traffic.sent);
        assert_eq!(plain.traffic.received, promised.traffic.received);
    }

    #[test]
    fn a_peer_that_stops_is_an_error_wherever_it_stops() {
        use jaguar_wire::double::{Fault, Faulty};
        use jaguar_wire::memory_transports;
        for end in [0, 31, 32, 100, 4096, 5000, SETUP_BYTES - 1, SETUP_BYTES + 500] {
            let (a, b) = memory_transports();
            let requests = [(Role::Server, 10), (Role::Client, 10)];
            let (client, server) = std::thread::scope(|scope| {
                let server = scope.spawn(move || {
                    let mut chan = Channel::new(b);
                    party(&mut chan, Role::Server, [2; 32], &requests)
                });
                let mut chan = Channel::new(Faulty::new(a, Fault::CutReceived(end)));
                let client = party(&mut chan, Role::Client, [1; 32], &requests);
                drop(chan);
                (client, server.join().expect("no panic"))
            });
            assert!(matches!(client, Err(OtError::Wire(_))), "cut after {end}");
            assert!(matches!(server, Err(OtError::Wire(_)) | Ok(_)), "cut after {end}");
        }
    }

    /// After an error nothing is handed out any more, even over a sound connection: the parties may have drawn differently.
    #[test]
    fn an_error_ends_the_source() {
        use jaguar_wire::memory_pair;
        for sends in [true, false] {
            let run = two_parties::run(
                |chan| Cots::setup_with(chan, Role::Client, Prg::new([1; 32])).unwrap(),
                |chan| Cots::setup_with(chan, Role::Server, Prg::new([2; 32])).unwrap(),
            );
            let (mut client, mut server) = (run.first, run.second);
            let (mut blocks, mut bits) = ([Block::ZERO; 10], [false; 10]);
            let (mut broken, gone) = memory_pair();
            drop(gone);
            assert!(matches!(client.receive(&mut broken, &mut blocks, &mut bits), Err(OtError::Wire(_))));
            let (mut a, mut b) = memory_pair();
            server.send(&mut b, &mut blocks).unwrap();
            b.flush().unwrap();
            let again = match sends {
                true => client.send(&mut a, &mut blocks),
                false => client.receive(&mut a, &mut blocks, &mut bits),
            };
            assert!(matches!(again, Err(OtError::Spent)));
            assert_eq!(client.counters(), (0, 0));
        }
    }

    /// What was promised, less what was drawn; also behind a box.
    #[test]
    fn a_promise_is_kept_count_of() {
        let run = two_parties::run(
            |chan| {
                let mut cots: Box<dyn CotSource> =
                    Box::new(Cots::setup_with(chan, Role::Client, Prg::new([1; 32])).unwrap());
                let mut left = Vec::new();
                cots.promise(100);
                for count in [30, 70, 5] {
                    left.push(cots.promised());
                    cots.send(chan, &mut vec![Block::ZERO; count]).unwrap();
                }
                left.push(cots.promised());
                left
            },
            |chan| {
                let mut cots = Cots::setup_with(chan, Role::Server, Prg::new([2; 32])).unwrap();
                cots.receive(chan, &mut [Block::ZERO; 105], &mut [false; 105]).unwrap();
            },
        );
        assert_eq!(run.first, [100, 70, 0, 0]);
    }

    #[test]
    fn fresh_sessions_differ() {
        let session = || {
            two_parties::run(
                |chan| Cots::setup(chan, Role::Client).map(|cots| cots.delta()).unwrap(),
                |chan| Cots::setup(chan, Role::Server).map(|cots| cots.delta()).unwrap(),
            )
        };
        let (one, two) = (session(), session());
        let deltas: HashSet<u128> = [one.first, one.second, two.first, two.second].map(|d| d.0).into();
        assert_eq!(deltas.len(), 4);
        assert!(one.digest() != two.digest());
    }
}
