//! What a comparison tells the kernels: which digits are looked up, and which bits are multiplied. Public data.
//!
//! `gates/formula.rs` puts these together; the kernels of `loops.rs` work through them, one group at a time.

/// Which table a digit looks up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// a < b.
    Less,
    /// a < b, a = b.
    LessEqual,
    /// a < b, a = b, a = z, with the server's second operand z from plane `z` up.
    Middle {
        /// First plane of z.
        z: usize,
    },
    /// With the sign bit on top, without a carry: the sum is not negative; all bits below the sign are ones;
    /// a = z; a = b.
    Top {
        /// First plane of z.
        z: usize,
    },
}

/// Choice bits of the correlation that a digit takes, and entries of the table of masks that comes of it.
pub(crate) const CHOICES: usize = 4;

/// A few bits of both operands.
#[derive(Clone, Copy)]
pub(crate) struct Digit {
    /// First plane of the digit in both operands.
    pub(crate) shift: usize,
    /// How many bits: 1..=4.
    pub(crate) bits: usize,
    pub(crate) table: Table,
}

impl Digit {
    /// Shared bits that come of it.
    pub(crate) const fn width(&self) -> usize {
        match self.table {
            Table::Less => 1,
            Table::LessEqual => 2,
            Table::Middle { .. } => 3,
            Table::Top { .. } => 4,
        }
    }

    /// Planes of all masks that are prepared for it.
    pub(crate) const fn planes(&self) -> usize {
        self.width() << CHOICES
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
