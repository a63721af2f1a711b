//! Correlated oblivious transfer between the two parties, semi-honest; receivers are checked. How hard it is to break stands
//! [below](#what-security-rests-on), by part.
//!
//! A *correlated OT* (COT) gives the sender, who holds a fixed odd Δ, a random block q, and the receiver a
//! random bit r and t = q ⊕ r·Δ. The receiver learns nothing of Δ or of q ⊕ (1⊕r)·Δ, the sender nothing of
//! r. A *vector correlation* has four bits and four keys, t = q ⊕ Σ_j r_j·Δ_j: a random 1-of-16 OT for little more than
//! one COT. Everything nonlinear is made from these, so this crate is the offline stage's hot path.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`Cots`] | both directions, as many as are asked for | |
//! | `base` | 127 base OTs each way | Chou, Orlandi, LATINCRYPT 2015 |
//! | `iknp` | the first COTs, with a check of the receiver | Ishai, Kilian, Nissim, Petrank, CRYPTO 2003 |
//! | `ferret` | the silent extension | Yang, Weng, Lan, Zhang, Wang, CCS 2020 (ePrint 2020/924) |
//! | `ggm`, `lpn` | its two halves: the errors, and the matrix, with four secrets side by side | Guo et al., EUROCRYPT 2023 (ePrint 2022/1431) |
//! | [`Instances`] | the LPN instances that may be chosen | `params/lpn.py` |
//! | [`mod@hash`] | the correlation-robust hash that turns correlations into pads | Guo et al., CRYPTO 2020 (ePrint 2019/1168) |
//! | [`setup_bytes`], [`extension_bytes`] | what all of it sends | |
//! | [`block`] | 128-bit strings | |
//! | [`threads`] | independent pieces of work on all threads | |
//! | [`insecure_test_dealer`] | correlations from a shared seed, for the tests of other crates | |
//!
//! What it costs: to set up, 3 rounds and 0.4 to 0.7 MB each way; then 0.06 to 0.36 bytes a correlation by instance, sent by its
//! sender only, in no round of its own. Speed: `cargo run --release --example cots`.
//!
//! # What security rests on
//!
//! - *Both parties follow the protocol*, but for one check: a receiver that would learn Δ from the first correlations is found
//!   (`iknp`). A malicious sender could learn choice bits, by whether what was made of them works: that is not checked.
//! - Computational Diffie–Hellman on ristretto255, BLAKE3 as a random oracle (base OTs): 2^126 group operations by the best attack.
//! - AES as a PRG (`jaguar_ring::Prg`), as an ideal cipher (trees, one key each; hash, a key for a few inputs). Who calls it p
//!   times tells a session's pads from random strings with an advantage of at most p / 2^116 ([`mod@hash`]): this bound is below
//!   128 bits. For trees the same argument has p / 2^122.
//! - LPN with regular noise and a sparse matrix: the parameters are in `instance`, the estimates in `params/lpn.py`. All have
//!   128 bits in every line, for the first 2^10 iterations of a session together. They are larger than in other
//!   implementations because of sub-matrices and of algebraic attacks on regular noise.
//!
//! Time and addresses depend on counts only, never on Δ, choice bits or paths. `unsafe` is confined to the
//! kernels, `aes::x86` and `gather`.

#[cfg(target_endian = "big")]
compile_error!("blocks are sent and counted in the order of memory, which must be little-endian");

mod aes;
mod base;
pub mod block;
mod cost;
mod cots;
mod drawn;
mod ferret;
mod gather;
mod ggm;
pub mod hash;
mod iknp;
pub mod insecure_test_dealer;
mod instance;
mod lpn;
#[cfg(feature = "steps")]
pub mod steps;
pub mod threads;

use jaguar_wire::{Channel, WireError};

pub use block::Block;
pub use cost::{extension_bytes, mean_extension_bytes, session_bytes, setup_bytes};
pub use cots::Cots;
pub use drawn::Drawn;
pub use hash::{Hash, combination, combinations, pair};
pub use instance::{Bin, Instances, LpnSize, Noise};

/// By what AES runs here: a name, and whether the processor's own instructions do it.
pub fn aes_kernel() -> (&'static str, bool) {
    let kernel = aes::Kernel::best();
    (kernel.name(), kernel.is_hardware())
}

/// Which of the two parties this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Holds the image; speaks first.
    Client,
    /// Holds the model.
    Server,
}

impl Role {
    /// The other party's role.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How many choice bits a correlation has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// One: a correlated OT, t = q ⊕ r·Δ.
    Bit,
    /// Four: a vector correlation, t = q ⊕ Σ_j r_j·Δ_j.
    Vector,
}

impl Width {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bit, Self::Vector];

    /// How many choice bits it has.
    pub const fn choices(self) -> usize {
        match self {
            Self::Bit => 1,
            Self::Vector => 4,
        }
    }

    /// The bits of a receiver's half that are its choice; they are zero in a sender's half.
    pub const fn choice_mask(self) -> u128 {
        (1 << self.choices()) - 1
    }
}

/// A source of correlations in both directions.
///
/// When one party calls [`send`](Self::send), its peer calls [`receive`](Self::receive) with the same width and count
/// at the same point of the protocol. Every correlation is handed out once.
pub trait CotSource {
    /// A number of the session that both parties know and neither chose alone: the keys of hashes follow from it.
    fn nonce(&self) -> Block;

    /// This party's Δ_j as a sender, the same for the whole session: one for bits, four for vectors. Of the choice bits
    /// ([`Width::choice_mask`]) bit j is set in Δ_j, the others are zero.
    fn deltas(&self, width: Width) -> &[Block];

    /// Fills `q` with the sender's halves; the choice bits of each are zero.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol. The source is spent then.
    fn send(&mut self, chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError>;

    /// Fills `t` with t_i = q_i ⊕ Σ_j r_ij·Δ_j of the peer's q and Δ_j, for random r_i, which are the choice bits of t_i.
    ///
    /// # Errors
    /// When the connection fails or the peer breaks the protocol. The source is spent then.
    fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError>;
}

impl<T: CotSource + ?Sized> CotSource for Box<T> {
    fn nonce(&self) -> Block {
        (**self).nonce()
    }

    fn deltas(&self, width: Width) -> &[Block] {
        (**self).deltas(width)
    }

    fn send(&mut self, chan: &mut Channel, width: Width, q: &mut [Block]) -> Result<(), OtError> {
        (**self).send(chan, width, q)
    }

    fn receive(&mut self, chan: &mut Channel, width: Width, t: &mut [Block]) -> Result<(), OtError> {
        (**self).receive(chan, width, t)
    }
}

/// What can go wrong, sorted by who is to blame. After an error the session is spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtError {
    /// The connection failed, or the peer stopped in the middle.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent something that the protocol does not allow.
    #[error("the peer broke the {protocol} protocol: {what}")]
    PeerMisbehaved {
        /// The protocol that it broke, by its name.
        protocol: &'static str,
        /// The rule that it broke.
        what: &'static str,
    },
    /// An earlier call failed: what the parties have drawn may differ since.
    #[error("an earlier error has ended this source of correlations")]
    Spent,
}

/// Runs both roles of a protocol in two threads over a recorded in-memory connection.
#[cfg(test)]
pub(crate) mod two_parties {
    use jaguar_wire::double::{Recorder, Transcript};
    use jaguar_wire::{Channel, Traffic, memory_transports};

    /// What the two roles returned, what the first sent and received, and a digest of it.
    pub(crate) struct Run<A, B> {
        pub(crate) first: A,
        pub(crate) second: B,
        /// Of the first role.
        pub(crate) traffic: Traffic,
        pub(crate) transcript: Transcript,
    }

    impl<A, B> Run<A, B> {
        /// The hash of all traffic, in hexadecimal.
        pub(crate) fn digest(&self) -> String {
            self.transcript.digest().iter().map(|byte| format!("{byte:02x}")).collect()
        }
    }

    pub(crate) fn run<A, B: Send>(
        first: impl FnOnce(&mut Channel) -> A,
        second: impl FnOnce(&mut Channel) -> B + Send,
    ) -> Run<A, B> {
        let (a, b) = memory_transports();
        let (a, transcript) = Recorder::hashing(a);
        std::thread::scope(|scope| {
            let second = scope.spawn(move || second(&mut Channel::new(b)));
            let mut chan = Channel::new(a);
            let first = first(&mut chan);
            chan.flush().expect("the second role takes what the first sends");
            let traffic = chan.total();
            // A second role that still waits for something is to see the end, not to hang.
            drop(chan);
            Run { first, second: second.join().expect("the second role"), traffic, transcript }
        })
    }
}
