//! Secrets that no branch and no address may depend on: masks that stay masks, and marks for the tool that looks.
//!
//! **Masks.** `x & mask` with a mask of a secret bit has no branch in the source. An optimiser may make one all the same: where it
//! knows that a mask is all ones or zero, it may split a loop by the bit (*unswitching*), or read one of two words. So every
//! mask of a secret bit is made here, from a word that the optimiser knows nothing about: [`mask`] for one bit, [`BitMasks`] for a
//! loop over many.
//!
//! **Marks.** Memcheck (valgrind) reports each branch and each address that depends on undefined memory (the idea is Langley's
//! ctgrind). [`classify`] tells it that a secret is undefined, [`declassify`] that a value is public though secrets went into it: it was
//! sent, or it is the answer. Randomness of the operating system is marked where it is drawn, and so everything that follows from it. The marks are
//! a few instructions without any effect outside valgrind. They stand in the program that ships, so that very
//! program can be looked at: `make test-timing`, `tools/secrets_in_memory.py`.

use std::hint::black_box;

/// All ones if the bit is set, else zero. The optimiser does not know that it is one of the two.
#[inline(always)]
pub fn mask(bit: bool) -> u64 {
    black_box(u64::from(bit)).wrapping_neg()
}

/// Makes masks of many bits, in a loop that stays a loop over vectors: what hides them is a word that is made once.
#[derive(Clone, Copy)]
pub struct BitMasks {
    /// One, and the optimiser does not know it.
    one: u64,
}

impl BitMasks {
    /// To be made outside the loop.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "it holds nothing that a default would name")]
    pub fn new() -> Self {
        Self { one: black_box(1) }
    }

    /// All ones if bit 0 of `word` is set, else zero.
    #[inline(always)]
    pub const fn of(self, word: u64) -> u64 {
        (word & self.one).wrapping_neg()
    }
}

/// Marks `secret` as undefined for memcheck: from here on it reports what branches on it. What memory holds is not changed.
#[inline]
pub fn classify<T: Copy>(secret: &mut [T]) {
    memcheck(Request::MakeUndefined, secret);
}

/// Marks `public` as defined for memcheck: it follows from secrets, but everybody may know it. Say why at each call.
#[inline]
pub fn declassify<T: Copy>(public: &mut [T]) {
    memcheck(Request::MakeDefined, public);
}

/// Memcheck's requests, from the interface in `memcheck.h`: `MC` in the two highest bytes, and a number.
#[derive(Clone, Copy)]
enum Request {
    MakeUndefined = 0x4d43_0001,
    MakeDefined = 0x4d43_0002,
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn memcheck<T: Copy>(request: Request, place: &mut [T]) {
    let request = [request as usize, place.as_mut_ptr() as usize, size_of_val(place), 0, 0, 0];
    // SAFETY: valgrind's request sequence. The rotations add up to 128 bits, so rdi is as before; rbx is exchanged with itself; the
    // flags count as changed. What memory holds is not changed.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") request.as_ptr(), inout("rdx") 0usize => _,
        );
    }
}

/// Valgrind's sequence is another one on other processors; the check is made on x86-64.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn memcheck<T: Copy>(_: Request, _: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_all_ones_or_zero() {
        assert_eq!([mask(false), mask(true)], [0, u64::MAX]);
        let masks = BitMasks::new();
        for word in [0, 1, 2, 3, u64::MAX, u64::MAX - 1] {
            assert_eq!(masks.of(word), mask(word & 1 == 1));
        }
    }

    #[test]
    fn marks_change_nothing() {
        let mut words = [1u32, 2, 3];
        classify(&mut words);
        declassify(&mut words);
        assert_eq!(words, [1, 2, 3]);
        classify::<u8>(&mut []);
    }
}
