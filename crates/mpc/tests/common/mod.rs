//! Both roles of a protocol in one closure.

use jaguar_mpc::{MpcError, Party};
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_ot::{Drawn, Role};
use jaguar_wire::{Channel, Stage, Traffic, memory_pair};

pub type TestParty = Party<InsecureTestDealer>;

/// What one party had of a run, besides its result.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)] // not every test binary looks at the cost
pub struct Seen {
    pub prepared: Traffic,
    pub online: Traffic,
    /// Correlations as sender and receiver.
    pub drawn: (Drawn, Drawn),
}

/// Prepares and runs a protocol at both parties, each in its thread; the client's result first.
pub fn both<P, T: Send>(
    seed: u64,
    prepare: impl Fn(&mut TestParty, &mut Channel) -> Result<P, MpcError> + Sync,
    run: impl Fn(P, Role, &mut Channel) -> Result<T, MpcError> + Sync,
) -> [(T, Seen); 2] {
    let (a, b) = memory_pair();
    let one = |role: Role, mut chan: Channel| {
        let mut party = Party::new(role, InsecureTestDealer::new(seed, role));
        chan.enter(Stage::Offline, "test");
        let prepared = prepare(&mut party, &mut chan).unwrap();
        chan.flush().unwrap();
        let traffic = chan.total();
        chan.take_stats();
        chan.enter(Stage::Online, "test");
        let result = run(prepared, role, &mut chan).unwrap();
        chan.flush().unwrap();
        assert_eq!(party.used(), party.source().counters());
        (result, Seen { prepared: traffic, online: chan.total(), drawn: party.used() })
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| one(Role::Client, a));
        let server = scope.spawn(|| one(Role::Server, b));
        [client.join().unwrap(), server.join().unwrap()]
    })
}

/// Numbers that look random and depend on the seed only.
pub fn words(seed: u64, n: usize) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d)
        })
        .collect()
}

/// Splits values mod 2^bits into shares, the client's first.
#[allow(dead_code)] // not every test binary shares values
pub fn share(values: &[i64], bits: u32, seed: u64) -> [Vec<u64>; 2] {
    let mask = u64::MAX >> (64 - bits);
    let client: Vec<u64> = words(seed, values.len()).iter().map(|w| w >> 7 & mask).collect();
    let server = values.iter().zip(&client).map(|(&v, c)| (v as u64).wrapping_sub(*c) & mask).collect();
    [client, server]
}
