//! What a comparison tells the kernels: which digits are looked up, and which bits are multiplied. Public data.
//!
//! `gates/formula.rs` puts these together; the kernels of `loops.rs` work through them, one group at a time.

use jaguar_ot::Width;

/// What is looked up. a is the client's operand, b the server's, of the digit's bits each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// a < b, at the place a.
    Less,
    /// For the even one v of a and a − 1, at the place ⌊a / 2⌋.
    Even(Entry),
    /// For the odd one v of a and a − 1 mod 2^m, at the place ⌊(a − 1) / 2⌋ mod 2^(m − 1).
    Odd(Entry),
}

/// What is looked up of v, which is a or a − 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// v < b. Where a = 0 the client flips what it gets of the odd v: −1 < b.
    Less,
    /// v < b, and v < z with the server's second operand z. The client flips both.
    Both {
        /// First plane of z.
        z: usize,
    },
    /// With the sign bit on top: whether the sum is not negative, without a carry if v = a and with one if v = a − 1; v
    /// = z.
    Top {
        /// First plane of z.
        z: usize,
    },
}

impl Entry {
    /// Shared bits that come of it.
    pub(crate) const fn width(self) -> usize {
        match self {
            Self::Less => 1,
            Self::Both { .. } | Self::Top { .. } => 2,
        }
    }
}

/// Choice bits of a vector correlation.
const VECTOR: usize = Width::Vector.choices();

/// A place of at most so many bits is chosen by as many correlations of a bit; a longer one by a vector.
const MOST_BITS: usize = 2;

/// A table looked up at a few bits of the client's operand.
#[derive(Clone, Copy)]
pub(crate) struct Digit {
    /// First plane of the digit in both operands.
    pub(crate) shift: usize,
    /// Bits of the place in the table, at most 4: those of the digit, or with [`Table::Even`] and [`Table::Odd`] one
    /// less.
    pub(crate) bits: usize,
    pub(crate) table: Table,
}

impl Digit {
    /// Shared bits that come of it.
    pub(crate) const fn width(&self) -> usize {
        match self.table {
            Table::Less => 1,
            Table::Even(entry) | Table::Odd(entry) => entry.width(),
        }
    }

    /// Bits of the operands that it compares.
    pub(crate) const fn operand(&self) -> usize {
        match self.table {
            Table::Even(_) | Table::Odd(_) => self.bits + 1,
            Table::Less => self.bits,
        }
    }

    /// Choice bits of the correlations that it takes.
    pub(crate) const fn choices(&self) -> usize {
        if self.bits > MOST_BITS { VECTOR } else { self.bits }
    }

    /// Vector correlations that it takes.
    pub(crate) const fn vectors(&self) -> usize {
        if self.bits > MOST_BITS { 1 } else { 0 }
    }

    /// Correlations of a bit that it takes. A table of one entry takes none: nothing of it is sent.
    pub(crate) const fn cots(&self) -> usize {
        if self.bits > MOST_BITS { 0 } else { self.bits }
    }

    /// Planes of all masks that are prepared for it.
    pub(crate) const fn planes(&self) -> usize {
        if self.bits == 0 { 0 } else { self.width() << self.choices() }
    }

    /// Planes of its table on the wire: every entry but the first.
    pub(crate) const fn sent(&self) -> usize {
        self.width() * ((1 << self.bits) - 1)
    }
}

/// ANDs of one operand with one or more others: `out[i] = a·b[i]`. Numbers are wires.
pub(crate) struct And {
    pub(crate) a: usize,
    pub(crate) b: Vec<usize>,
    pub(crate) out: Vec<usize>,
}

impl And {
    /// Bits that each party opens.
    pub(crate) const fn opened(&self) -> usize {
        1 + self.b.len()
    }

    /// Bits of the prepared triple: a, every b, every a·b.
    pub(crate) const fn triple(&self) -> usize {
        1 + 2 * self.b.len()
    }
}
