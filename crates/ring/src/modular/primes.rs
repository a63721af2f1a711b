//! The search for primes that have the roots of unity that a transform needs.

use super::{MAX_BITS, Modulus};

/// Miller and Rabin's test is exact below `2^64` with these bases (Sorenson and Webster, Mathematics of Computation 86,
/// 2017).
const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

/// Whether `n` is a prime. For public numbers of up to 60 bits.
pub fn is_prime(n: u64) -> bool {
    if n < 4 || n >> MAX_BITS != 0 {
        return n == 2 || n == 3;
    }
    if let Some(divisor) = BASES.into_iter().find(|base| n.is_multiple_of(*base)) {
        return n == divisor;
    }
    let modulus = Modulus::new(n);
    let twos = (n - 1).trailing_zeros();
    BASES.into_iter().all(|base| {
        let mut x = modulus.power_vt(base, (n - 1) >> twos);
        if x == 1 || x == n - 1 {
            return true;
        }
        (1..twos).any(|_| {
            x = modulus.mul(x, x);
            x == n - 1
        })
    })
}

/// The primes of exactly `bits` bits that are 1 modulo `order` (2n for transforms of length n), largest first.
///
/// # Panics
/// If `order` is no power of two or `bits` above [`MAX_BITS`].
pub fn primes(bits: u32, order: u64) -> impl Iterator<Item = u64> {
    assert!(order.is_power_of_two() && bits <= MAX_BITS, "primes of {bits} bits, 1 modulo {order}");
    let (low, high) = (1u64 << bits >> 1, 1u64 << bits);
    let most = high / order;
    (1..most).rev().map(move |k| k * order + 1).take_while(move |&p| p >= low).filter(|&p| is_prime(p))
}
