//! A list that grows and leaves no copy behind: pictures and answers are their owner's secrets.

use std::io;
use std::ops::Deref;

use zeroize::Zeroize;

/// A vector that is wiped when it moves to more room, and at its end.
#[derive(Default)]
pub struct Wiped<T: Zeroize>(Vec<T>);

impl<T: Zeroize + Copy> Wiped<T> {
    /// An empty one with room for so many.
    pub fn with_room(items: usize) -> Self {
        Self(Vec::with_capacity(items))
    }

    /// Puts `items` at its end.
    pub fn extend(&mut self, items: &[T]) {
        let wanted = self.0.len() + items.len();
        if wanted > self.0.capacity() {
            let mut larger = Vec::with_capacity(wanted.max(2 * self.0.capacity()));
            larger.extend_from_slice(&self.0);
            std::mem::replace(&mut self.0, larger).zeroize();
        }
        self.0.extend_from_slice(items);
    }

    /// Puts one at its end.
    pub fn push(&mut self, item: T) {
        self.extend(&[item]);
    }
}

impl<T: Zeroize> Deref for Wiped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Zeroize> AsRef<[T]> for Wiped<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Zeroize> Drop for Wiped<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize + Copy> FromIterator<T> for Wiped<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items = items.into_iter();
        let mut all = Self::with_room(items.size_hint().0);
        items.for_each(|item| all.push(item));
        all
    }
}

impl io::Write for Wiped<u8> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
