//! A pseudorandom stream: AES-256 in counter mode under a 32-byte seed.
//!
//! Block `i` of the stream is `AES-256(seed, i)`, `i` as 16 little-endian bytes. The stream is a sequence of bytes:
//! how it is cut into calls does not change it, and it is the same on every target, so both parties may expand it.
//! AES has a fixed-time implementation on every target (hardware instructions, else bit-sliced).
//!
//! *Secret seeds* (keys, masks, noise): the stream is indistinguishable from uniform to anyone without the seed, up
//! to the birthday bound of a 128-bit block, about `L^2 / 2^129` for `L` blocks; a gigabyte is `L = 2^26`.
//!
//! *Public seeds* (the ring elements `a` and `p1` that both parties expand): what is needed is that the stream has
//! no structure that anyone chose. FrodoKEM expands its public matrix by AES in the same way (Alkim et al., FrodoKEM
//! specification, `Gen` with AES-128), with AES seen as an ideal cipher. Neither party can steer the result
//! because the seed comes out of BLAKE3 over everything it belongs to: use [`Prg::derive`] or [`derive_seed`] for
//! public data, never [`Prg::new`] with bytes that a peer chose.

use crate::cpu::secret::classify;
use aes::Aes256;
use aes::Block;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::Zeroize;

/// Blocks that a short read prepares at once; more than any AES pipeline holds.
const BUFFER: usize = 512;
/// Bytes encrypted at once in a long read: they stay in the first-level cache between the writing of the counters
/// and their encryption.
const CHUNK: usize = 4096;

/// A stream of pseudorandom bytes. Zeroised on drop.
///
/// Its state lies in a block of its own: who moves a stream copies a pointer, and leaves no round keys behind (the first two of
/// AES-256 are the seed).
pub struct Prg(Box<State>);

struct State {
    cipher: Aes256,
    next_block: u128,
    buffer: [u8; BUFFER],
    /// Bytes of `buffer` already given out.
    used: usize,
}

impl Prg {
    /// The stream of `seed`, which must be uniform: from the operating system, a key exchange or [`derive_seed`].
    pub fn new(mut seed: [u8; 32]) -> Prg {
        let state = State::boxed(&seed);
        wipe_stack::<4096>();
        // This function's own copy.
        seed.zeroize();
        Prg(state)
    }

    /// The stream of [`derive_seed`]`(key, label, indices)`.
    pub fn derive(key: &[u8; 32], label: &str, indices: &[u64]) -> Prg {
        let mut seed = derive_seed(key, label, indices);
        let prg = Prg::new(seed);
        seed.zeroize();
        prg
    }

    /// A stream under a fresh seed from the operating system.
    ///
    /// # Panics
    /// As [`os_fill`].
    pub fn from_os() -> Prg {
        let mut seed = [0; 32];
        os_fill(&mut seed);
        let prg = Prg::new(seed);
        seed.zeroize();
        prg
    }

    /// The next `out.len()` bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        let State { cipher, next_block, buffer, used } = &mut *self.0;
        let ready = out.len().min(BUFFER - *used);
        let (head, rest) = out.split_at_mut(ready);
        head.copy_from_slice(&buffer[*used..*used + ready]);
        *used += ready;
        let whole = rest.len() - rest.len() % BUFFER;
        let (body, tail) = rest.split_at_mut(whole);
        for chunk in body.chunks_mut(CHUNK) {
            expand(cipher, next_block, chunk);
        }
        if !tail.is_empty() {
            expand(cipher, next_block, buffer);
            tail.copy_from_slice(&buffer[..tail.len()]);
            *used = tail.len();
        }
    }

    /// Words of 64 bits, eight little-endian bytes each.
    pub fn fill_u64(&mut self, out: &mut [u64]) {
        self.fill(bytemuck::cast_slice_mut(out));
        if cfg!(target_endian = "big") {
            out.iter_mut().for_each(|word| *word = u64::from_le(*word));
        }
    }

    /// Words uniform in `0..2^bits`. Each takes eight bytes of the stream, whatever `bits` is.
    ///
    /// # Panics
    /// If `bits` is not in `1..=64`.
    pub fn fill_words(&mut self, out: &mut [u64], bits: u32) {
        let mask = crate::mask(bits);
        // In pieces that stay in the first-level cache until they are masked.
        for piece in out.chunks_mut(CHUNK / 8) {
            self.fill_u64(piece);
            piece.iter_mut().for_each(|word| *word &= mask);
        }
    }

    /// The next eight bytes, little-endian.
    pub fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The blocks of the stream from `*next` on; `out` is a whole number of them.
fn expand(cipher: &Aes256, next: &mut u128, out: &mut [u8]) {
    let (blocks, rest) = Block::slice_as_chunks_mut(out);
    debug_assert!(rest.is_empty());
    for block in blocks.iter_mut() {
        block.0 = next.to_le_bytes();
        *next += 1;
    }
    cipher.encrypt_blocks(blocks);
}

impl State {
    /// (Not inlined: whatever it leaves on the stack is below its caller.)
    #[inline(never)]
    fn boxed(seed: &[u8; 32]) -> Box<Self> {
        Box::new(Self { cipher: Aes256::new(seed.into()), next_block: 0, buffer: [0; BUFFER], used: BUFFER })
    }
}

/// Overwrites `BYTES` of the stack below the caller's frame, which calls before this one may have used. What stays there comes
/// into other memory with the padding of values that are moved, and nobody would wipe it.
#[inline(never)]
pub fn wipe_stack<const BYTES: usize>() {
    let mut stack = [0u8; BYTES];
    std::hint::black_box(&mut stack);
}

impl Drop for State {
    fn drop(&mut self) {
        // The cipher clears its own round keys.
        crate::simd::wipe(&mut self.buffer);
    }
}

/// A seed for the purpose named by `label` and `indices`: keyed BLAKE3 under `key` of
/// `len(label) ‖ label ‖ count(indices) ‖ indices`, lengths and indices as 8 little-endian bytes, so that no two
/// purposes share an encoding. With a secret `key` the seeds are pseudorandom and independent; with a public one
/// they are the output of a hash function that nobody can steer.
pub fn derive_seed(key: &[u8; 32], label: &str, indices: &[u64]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(label.len() as u64).to_le_bytes());
    hasher.update(label.as_bytes());
    hasher.update(&(indices.len() as u64).to_le_bytes());
    for index in indices {
        hasher.update(&index.to_le_bytes());
    }
    let mut hash = hasher.finalize();
    let seed = *hash.as_bytes();
    hasher.zeroize();
    hash.zeroize();
    seed
}

/// Fresh random bytes from the operating system, for what is public or ends in a file. (A secret is drawn where it stays, by
/// [`os_fill`].)
///
/// # Panics
/// As [`os_fill`].
pub fn os_random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill_from_os(&mut bytes);
    bytes
}

/// Fills `out` with fresh random bytes from the operating system, and marks them as secret ([`crate::cpu::secret`]). No copy of them
/// is left behind.
///
/// # Panics
/// If the operating system has no randomness to give: nothing secret can be done without it, and no caller could
/// do better than stop.
pub fn os_fill(out: &mut [u8]) {
    fill_from_os(out);
    classify(out);
}

fn fill_from_os(out: &mut [u8]) {
    #[cfg(feature = "fixed-randomness")]
    if fixed::fill(out) {
        return;
    }
    getrandom::fill(out).expect("the operating system gives no randomness");
}

/// Randomness that a test fixes, to pin what passes between two parties. Only the tests of other crates turn the feature on.
#[cfg(feature = "fixed-randomness")]
mod fixed {
    use std::cell::RefCell;

    use super::Prg;

    thread_local! {
        static STREAM: RefCell<Option<Prg>> = const { RefCell::new(None) };
    }

    /// Fills `out`, if this thread's randomness is fixed.
    pub(super) fn fill(out: &mut [u8]) -> bool {
        STREAM.with_borrow_mut(|stream| stream.as_mut().map(|prg| prg.fill(out)).is_some())
    }

    /// Ends it, also in a panic.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            STREAM.set(None);
        }
    }

    /// Runs `f`, in which [`os_random`](super::os_random) on this thread gives the stream of `seed` and nothing random. There is no
    /// security in it.
    pub fn with_insecure_fixed_randomness<T>(seed: [u8; 32], f: impl FnOnce() -> T) -> T {
        let _end = End;
        STREAM.set(Some(Prg::new(seed)));
        f()
    }
}

#[cfg(feature = "fixed-randomness")]
pub use fixed::with_insecure_fixed_randomness;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Block 0 under the zero key is in NIST's known-answer tests (AESAVS); the others were made with OpenSSL.
    #[test]
    fn known_answers() {
        let mut out = [0; 32];
        Prg::new([0; 32]).fill(&mut out);
        assert_eq!(hex(&out[..16]), "dc95c078a2408989ad48a21492842087");
        assert_eq!(hex(&out[16..]), "5275f3d86b4fb8684593133ebfa53cd3");
        let mut out = [0; 301 * 16];
        Prg::new(std::array::from_fn(|i| i as u8)).fill(&mut out);
        assert_eq!(hex(&out[300 * 16..]), "832cd3bbaf11ad8a8daa7ea2202d79dd");
    }

    #[test]
    fn seeds_of_different_purposes_differ() {
        let key = [3; 32];
        let seeds = [
            derive_seed(&key, "a", &[1, 2]),
            derive_seed(&key, "a", &[1]),
            derive_seed(&key, "a", &[2, 1]),
            derive_seed(&key, "ab", &[1, 2]),
            derive_seed(&key, "", &[1, 2]),
            derive_seed(&[4; 32], "a", &[1, 2]),
            // The length of the label and its bytes as they would stand if indices and labels could be confused.
            derive_seed(&key, "a\u{2}\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0", &[2]),
        ];
        for (i, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..i].contains(seed));
        }
        let independent = {
            let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, b'a', 1, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend_from_slice(&1u64.to_le_bytes());
            *blake3::keyed_hash(&key, &bytes).as_bytes()
        };
        assert_eq!(seeds[1], independent);
    }

    #[test]
    fn system_randomness_differs() {
        assert_ne!(os_random::<32>(), os_random::<32>());
        assert_ne!(Prg::from_os().next_u64(), Prg::from_os().next_u64());
    }

    #[test]
    fn words_fill_their_width_and_no_more() {
        for bits in [1, 7, 32, 48, 53, 63, 64] {
            let mut out = vec![0; 5000];
            Prg::new([bits as u8; 32]).fill_words(&mut out, bits);
            let or = out.iter().fold(0, |or, word| or | word);
            let and = out.iter().fold(u64::MAX, |and, word| and & word);
            assert_eq!((or, and), (crate::mask(bits), 0));
            let ones: u32 = out.iter().map(|word| word.count_ones()).sum();
            let expected = 5000.0 * f64::from(bits) / 2.0;
            // Six standard deviations of a binomial with parameter one half.
            assert!((f64::from(ones) - expected).abs() < 6.0 * (5000.0 * f64::from(bits) / 4.0).sqrt());
        }
    }

    proptest! {
        #[test]
        fn the_stream_does_not_depend_on_its_cuts(
            seed in any::<[u8; 32]>(),
            cuts in proptest::collection::vec(0usize..1500, 1..12),
        ) {
            let total = cuts.iter().sum();
            let mut whole = vec![0; total];
            Prg::new(seed).fill(&mut whole);
            let mut prg = Prg::new(seed);
            let mut pieces = Vec::new();
            for cut in cuts {
                let mut piece = vec![0; cut];
                prg.fill(&mut piece);
                pieces.extend(piece);
            }
            prop_assert_eq!(&whole, &pieces);
            let mut words = vec![0; total / 8];
            Prg::new(seed).fill_u64(&mut words);
            for (word, bytes) in words.iter().zip(whole.chunks_exact(8)) {
                prop_assert_eq!(&word.to_le_bytes()[..], bytes);
            }
        }
    }
}
