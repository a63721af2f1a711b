//! What a fuzz input says: numbers and bytes, one after the other, and from them changes to what was recorded.

/// Reads an input from its beginning; behind its end there are zeros.
pub struct Script<'a>(&'a [u8]);

/// Changes to one recording, at most: an input shall tell which of them mattered.
const MOST_CHANGES: usize = 16;

/// Bytes that a change repeats, at most.
const MOST_REPEATED: usize = 1 << 12;

impl<'a> Script<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, as many as there are.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes, little-endian.
    pub fn word(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// A number below `count`, which is not zero.
    pub fn below(&mut self, count: usize) -> usize {
        (self.word() * count) >> 16
    }

    /// Changes recorded chunks as the rest of the input says: nothing, where it says nothing.
    pub fn change(&mut self, chunks: &mut Vec<Vec<u8>>) {
        for _ in 0..MOST_CHANGES {
            if self.is_empty() || chunks.is_empty() {
                return;
            }
            let kind = self.byte();
            let at = self.below(chunks.len());
            let chunk = &mut chunks[at];
            // By the two top bits: from the beginning, from the end, anywhere.
            let offset = match kind >> 6 {
                0 => self.word(),
                1 => chunk.len().saturating_sub(self.word()),
                _ => self.below(chunk.len() + 1),
            }
            .min(chunk.len());
            match kind & 7 {
                0 => {
                    let count = usize::from(self.byte() & 31) + 1;
                    for (to, from) in chunk[offset..].iter_mut().zip(self.bytes(count)) {
                        *to = *from;
                    }
                }
                1 => {
                    let flipped = self.byte();
                    chunk[offset..].iter_mut().take(1).for_each(|byte| *byte ^= flipped);
                }
                2 => chunk.truncate(offset),
                3 => {
                    let end = (offset + self.word()).min(chunk.len());
                    chunk.drain(offset..end);
                }
                4 => {
                    let count = usize::from(self.byte());
                    let new = self.bytes(count);
                    chunk.splice(offset..offset, new.iter().copied());
                }
                5 => {
                    let (count, byte) = (self.word().min(MOST_REPEATED), self.byte());
                    let end = (offset + count).min(chunk.len());
                    chunk[offset..end].fill(byte);
                }
                6 => {
                    // A chunk comes twice, or in the place of another.
                    let copy = chunk.clone();
                    let to = self.below(chunks.len() + 1);
                    if kind & 8 == 0 || to == chunks.len() {
                        chunks.insert(to, copy);
                    } else {
                        chunks[to] = copy;
                    }
                }
                _ => {
                    chunks.truncate(at);
                }
            }
        }
    }
}
