//! Polynomials by their residues modulo primes, and the memory that they lie in.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use zeroize::Zeroize;

/// How a polynomial is written down: [`Coefficients`] or [`Values`].
pub trait Form: sealed::Sealed {}

/// As N coefficients.
#[derive(Clone, Copy, Debug)]
pub enum Coefficients {}

/// As N values at roots of unity (NTT form), where products are pointwise.
#[derive(Clone, Copy, Debug)]
pub enum Values {}

impl Form for Coefficients {}
impl Form for Values {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Coefficients {}
    impl Sealed for super::Values {}
}

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// N residues modulo one prime, at the beginning of a cache line.
pub(crate) struct Limb(Box<[Line]>);

impl Limb {
    pub(crate) fn words(&self) -> &[u64] {
        bytemuck::cast_slice(&self.0)
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Limbs that are not in use. All have N words.
pub(crate) struct Pool {
    n: usize,
    free: Mutex<Vec<Limb>>,
}

impl Pool {
    pub(crate) fn new(n: usize) -> Self {
        Self { n, free: Mutex::default() }
    }

    /// Limbs with anything in them, nothing secret.
    fn take(&self, count: usize) -> Vec<Limb> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.len().saturating_sub(count);
        let mut limbs = free.split_off(at);
        drop(free);
        let new = || Limb(vec![Line([0; 8]); self.n / 8].into());
        limbs.extend((limbs.len()..count).map(|_| new()));
        limbs
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn give(&self, limbs: &mut Vec<Limb>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).append(limbs);
    }
}

/// A polynomial in `Z[X]/(X^N + 1)` modulo some primes: the first ones of Q, and the first ones of P. Its memory is
/// used again when it is dropped; what is secret is wiped before.
pub struct Poly<F: Form> {
    pool: Arc<Pool>,
    limbs: Vec<Limb>,
    /// How many of the limbs are modulo primes of Q; the others are modulo those of P.
    ordinary: usize,
    form: PhantomData<F>,
}

impl<F: Form> Poly<F> {
    /// A polynomial of any residues, which the caller overwrites.
    pub(crate) fn unset(pool: &Arc<Pool>, ordinary: usize, special: usize) -> Self {
        Self { pool: Arc::clone(pool), limbs: pool.take(ordinary + special), ordinary, form: PhantomData }
    }

    /// A copy, made on purpose: copies are large.
    pub fn duplicate(&self) -> Self {
        self.first(self.ordinary, self.special())
    }

    /// A copy of the first limbs of both kinds, made on all threads where it is asked for by one of these.
    pub(crate) fn first(&self, ordinary: usize, special: usize) -> Self {
        let mut copy = Self::unset(&self.pool, ordinary, special);
        let kept = self.limbs[..ordinary].iter().chain(&self.limbs[self.ordinary..self.ordinary + special]);
        let copied = |(to, from): (&mut Limb, &Limb)| to.words_mut().copy_from_slice(from.words());
        if rayon::current_thread_index().is_some() {
            let kept: Vec<&Limb> = kept.collect();
            copy.limbs.par_iter_mut().zip(kept).with_max_len(1).for_each(copied);
        } else {
            copy.limbs.iter_mut().zip(kept).for_each(copied);
        }
        copy
    }

    /// How many primes of Q it has residues for.
    pub fn ordinary(&self) -> usize {
        self.ordinary
    }

    /// How many primes of P it has residues for.
    pub fn special(&self) -> usize {
        self.limbs.len() - self.ordinary
    }

    /// The residues of limb i: those of Q first.
    pub fn limb(&self, i: usize) -> &[u64] {
        self.limbs[i].words()
    }

    pub(crate) fn len(&self) -> usize {
        self.limbs.len()
    }

    pub(crate) fn limb_mut(&mut self, i: usize) -> &mut [u64] {
        self.limbs[i].words_mut()
    }

    /// The first two limbs.
    pub(crate) fn pair_mut(&mut self) -> [&mut [u64]; 2] {
        let (first, rest) = self.limbs.split_at_mut(1);
        [first[0].words_mut(), rest[0].words_mut()]
    }

    /// All limbs, to be changed.
    pub(crate) fn limbs_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u64]> {
        self.limbs.iter_mut().map(Limb::words_mut)
    }

    /// The limbs from `at` on, as a polynomial that stands for nothing.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let limbs = self.limbs.split_off(at);
        self.ordinary = self.ordinary.min(at);
        Self { pool: Arc::clone(&self.pool), ordinary: limbs.len(), limbs, form: PhantomData }
    }

    /// The same residues, read in another form.
    pub(crate) fn into_form<G: Form>(mut self) -> Poly<G> {
        let limbs = std::mem::take(&mut self.limbs);
        Poly { pool: Arc::clone(&self.pool), limbs, ordinary: self.ordinary, form: PhantomData }
    }
}

impl<F: Form> Drop for Poly<F> {
    fn drop(&mut self) {
        self.pool.give(&mut self.limbs);
    }
}

/// A polynomial that is secret: wiped when it is dropped, no `Debug`, no `Clone`.
pub(crate) struct Secret<F: Form>(Option<Poly<F>>);

impl<F: Form> Secret<F> {
    pub(crate) fn new(poly: Poly<F>) -> Self {
        Self(Some(poly))
    }

    /// The polynomial, which is secret no more or is wrapped again.
    pub(crate) fn into_inner(mut self) -> Poly<F> {
        self.0.take().expect("there until it is dropped")
    }
}

impl<F: Form> Deref for Secret<F> {
    type Target = Poly<F>;
    fn deref(&self) -> &Poly<F> {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<F: Form> DerefMut for Secret<F> {
    fn deref_mut(&mut self) -> &mut Poly<F> {
        self.0.as_mut().expect("there until it is dropped")
    }
}

impl<F: Form> Drop for Secret<F> {
    fn drop(&mut self) {
        if let Some(poly) = &mut self.0 {
            poly.limbs_mut().for_each(Zeroize::zeroize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_secrets_are_wiped() {
        let pool = Arc::new(Pool::new(16));
        let mut poly: Poly<Values> = Poly::unset(&pool, 2, 1);
        poly.limbs_mut().for_each(|limb| limb.fill(7));
        let place = poly.limb(0).as_ptr();
        assert!(poly.limb(2).as_ptr().addr().is_multiple_of(64));
        drop(Secret::new(poly));
        let again: Poly<Coefficients> = Poly::unset(&pool, 3, 0);
        assert!((0..3).any(|i| again.limb(i).as_ptr() == place));
        assert!((0..3).all(|i| again.limb(i).iter().all(|&word| word == 0)));
    }

    #[test]
    fn limbs_are_kept_by_kind() {
        let pool = Arc::new(Pool::new(16));
        let mut poly: Poly<Values> = Poly::unset(&pool, 3, 2);
        poly.limbs_mut().enumerate().for_each(|(i, limb)| limb.fill(i as u64));
        let first = poly.first(2, 1);
        assert_eq!((first.ordinary(), first.special()), (2, 1));
        assert_eq!([0, 1, 2].map(|i| first.limb(i)[5]), [0, 1, 3]);
        let rest = poly.split_off(1);
        assert_eq!((poly.ordinary(), poly.special(), poly.limb(0)[0]), (1, 0, 0));
        assert_eq!((rest.len(), rest.limb(3)[0]), (4, 4));
    }
}
