//! A curve y = f(x) in pieces: what it is on integers.
//!
//! The integers −2^(d−1) ≤ x < 2^(d−1) are cut into N = 2^k pieces of 2^low neighbours, d = low + k. In piece j, with u the
//! distance from its lower end, y = (offset_j·2^a + slope_j·u) / 2^shift, rounded. So N pairs of integers are all that there is
//! of f: whoever has them computes the same. Outside these integers the pieces are repeated, or the lines at both ends go on; or the
//! pieces begin elsewhere, and all that is outside is level ([`Beyond`]).

use std::ops::RangeInclusive;

/// Lines by piece; public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Each piece has 2^`low` integers: 1 to 40.
    pub low: u32,
    /// Offsets count in units of 2^`offset_shift`, at most 40.
    pub offset_shift: u32,
    /// The lines are 2^`shift` times too large: 1 to 40.
    pub shift: u32,
    /// Each piece's value at its lower end, from the lowest piece up: as many as a power of two, 4 to 512, in ±2^40.
    pub offsets: Vec<i64>,
    /// By how much each piece's line grows from an integer to the next: as many, in ±2^40.
    pub slopes: Vec<i64>,
    /// What x outside the pieces become.
    pub beyond: Beyond,
}

/// What a curve makes of values outside its pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Bits above the domain are left out, so the pieces are repeated.
    #[default]
    Repeated,
    /// The first and the last line go on. The first two pieces have one line, without a slope; the last two have one, too, and its slope
    /// is a whole number ([`Pieces::tail`]).
    Straight,
    /// The pieces are those of the 2^d integers from `begin` on. All others have the line of the first two pieces, which is one, without a
    /// slope. So pieces are of use from the third on, to the last.
    Level {
        /// The lowest piece's lower end, in ±2^40.
        begin: i64,
    },
}

/// How many pieces there may be, as a power of two.
pub const PIECES_LOG2: RangeInclusive<u32> = 2..=9;

/// Bits of a coefficient's size.
const MOST_BITS: u32 = 40;

impl Pieces {
    /// Whether all parameters are in their ranges.
    ///
    /// # Errors
    /// The name of one that is not.
    pub fn check(&self) -> Result<(), &'static str> {
        let count = self.offsets.len();
        let known = PIECES_LOG2.map(|log2| 1 << log2).any(|pieces| pieces == count);
        let fits = |all: &[i64]| all.iter().all(|c| c.unsigned_abs() < 1 << MOST_BITS);
        for (holds, what) in [
            (known && self.slopes.len() == count, "number of pieces"),
            ((1..=MOST_BITS).contains(&self.low), "width of a piece"),
            (self.offset_shift <= MOST_BITS, "shift of offsets"),
            ((1..=MOST_BITS).contains(&self.shift), "shift"),
            (fits(&self.offsets), "offset"),
            (fits(&self.slopes), "slope"),
        ] {
            if !holds {
                return Err(what);
            }
        }
        match self.beyond {
            Beyond::Repeated => Ok(()),
            Beyond::Straight if self.ends_are_straight() => Ok(()),
            Beyond::Level { begin } if begin.unsigned_abs() >= 1 << MOST_BITS => Err("begin of the pieces"),
            Beyond::Level { .. } if self.begins_level() => Ok(()),
            Beyond::Straight | Beyond::Level { .. } => Err("line at an end"),
        }
    }

    /// Whether the first two pieces have one line, without a slope.
    fn begins_level(&self) -> bool {
        self.slopes[..2] == [0, 0] && self.offsets[0] == self.offsets[1]
    }

    /// Whether the lines at both ends are as [`Beyond::Straight`] asks.
    fn ends_are_straight(&self) -> bool {
        let [.., before, last] = &self.slopes[..] else { return false };
        let end = self.offsets.len() - 1;
        let offset = |piece: usize| i128::from(self.offsets[piece]) << self.offset_shift;
        let whole = i128::from(self.tail()) << self.shift;
        self.begins_level()
            && [*before, *last].map(i128::from) == [whole; 2]
            && offset(end) - offset(end - 1) == whole << self.low
    }

    /// By how much y grows from an integer to the next above the pieces, where their line goes on.
    pub fn tail(&self) -> i64 {
        match self.beyond {
            Beyond::Straight => self.slopes.last().map_or(0, |slope| slope >> self.shift),
            Beyond::Repeated | Beyond::Level { .. } => 0,
        }
    }

    /// The lowest piece's lower end.
    pub fn begin(&self) -> i64 {
        match self.beyond {
            Beyond::Repeated | Beyond::Straight => -(1 << (self.domain_bits() - 1)),
            Beyond::Level { begin } => begin,
        }
    }

    /// k: there are 2^k pieces.
    pub fn log2(&self) -> u32 {
        self.offsets.len().trailing_zeros()
    }

    /// d: x has so many bits, as a signed number.
    pub fn domain_bits(&self) -> u32 {
        self.low + self.log2()
    }

    /// In which piece x is, and how far above its lower end.
    fn place(&self, x: i64) -> (usize, i128) {
        let pieces = self.offsets.len() as i64;
        let t = i128::from(x) - i128::from(self.begin());
        let place = t >> self.low;
        let last = i128::from(pieces - 1);
        let within = match self.beyond {
            Beyond::Repeated => place,
            Beyond::Straight => place.clamp(0, last),
            Beyond::Level { .. } if (0..=last).contains(&place) => place,
            Beyond::Level { .. } => 0,
        };
        let above = t - (within << self.low);
        (within.rem_euclid(i128::from(pieces)) as usize, above)
    }

    /// By how much y grows from x to the next integer.
    pub fn slope(&self, x: i64) -> f64 {
        self.slopes[self.place(x).0] as f64 / f64::from(self.shift).exp2()
    }

    /// 2^`shift` times y, before rounding.
    pub fn line(&self, x: i64) -> i128 {
        let (piece, u) = self.place(x);
        (i128::from(self.offsets[piece]) << self.offset_shift) + i128::from(self.slopes[piece]) * u
    }

    /// y, to the nearest.
    pub fn nearest(&self, x: i64) -> i64 {
        self.shifted(x, 1 << (self.shift - 1))
    }

    /// y as shares make it: up where the lowest `shift` bits of `share` carry out of the fraction.
    pub fn by_share(&self, x: i64, share: u64) -> i64 {
        self.shifted(x, share & ((1 << self.shift) - 1))
    }

    fn shifted(&self, x: i64, add: u64) -> i64 {
        let shifted = (self.line(x) + i128::from(add)) >> self.shift;
        // (No value of a sound network is so large; it counts as one out of range.)
        i64::try_from(shifted).unwrap_or(if shifted < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let (offsets, slopes) = (vec![-8, -4, 0, 4], vec![1, 1, 1, 2]);
        Pieces { low: 3, offset_shift: 1, shift: 2, offsets, slopes, beyond: Beyond::Repeated }
    }

    /// 5 below -16, and 3·x + 1 from 16 on; in quarters.
    fn straight() -> Pieces {
        let (offsets, slopes) = (vec![10, 10, -7, 0, 4, 9, 98, 146], vec![0, 0, -2, 1, 3, 5, 12, 12]);
        Pieces { low: 3, offset_shift: 1, shift: 2, offsets, slopes, beyond: Beyond::Straight }
    }

    #[test]
    fn a_line_is_that_of_its_piece() {
        let pieces = pieces();
        pieces.check().unwrap();
        assert_eq!(pieces.domain_bits(), 5);
        for x in -16i64..16 {
            let piece = (x.div_euclid(8) + 2) as usize;
            let want = 2 * [-8, -4, 0, 4][piece] + [1, 1, 1, 2][piece] * x.rem_euclid(8);
            assert_eq!(pieces.line(x), i128::from(want), "{x}");
            // What is above the domain is left out.
            assert_eq!(pieces.line(x + 32), i128::from(want), "{x}");
            assert_eq!(pieces.nearest(x), (want + 2).div_euclid(4), "{x}");
            assert_eq!((0..4).map(|share| pieces.by_share(x, share)).sum::<i64>(), want, "{x}: no bias");
        }
    }

    #[test]
    fn straight_lines_go_on_beyond_the_pieces() {
        let (pieces, repeated) = (straight(), Pieces { beyond: Beyond::Repeated, ..straight() });
        pieces.check().unwrap();
        assert_eq!((pieces.domain_bits(), pieces.tail()), (6, 3));
        for x in -200i64..200 {
            let want = match x {
                ..-16 => 20,
                -16..16 => repeated.line(x),
                16.. => i128::from(4 * (3 * x + 1)),
            };
            assert_eq!(pieces.line(x), want, "{x}");
            let slope = [0.0, repeated.slope(x), 3.0][usize::from(x >= -16) + usize::from(x >= 16)];
            assert_eq!(pieces.slope(x), slope, "{x}");
        }
        // Ends that are no line, or none that the protocol has.
        let change = |change: fn(&mut Pieces)| {
            let mut changed = straight();
            change(&mut changed);
            changed.check()
        };
        for bad in [
            |p: &mut Pieces| p.slopes[0] = 1,
            |p: &mut Pieces| p.slopes[1] = 1,
            |p: &mut Pieces| p.offsets[1] = 9,
            |p: &mut Pieces| p.offsets[7] = 147,
            |p: &mut Pieces| p.slopes[6] = 8,
            |p: &mut Pieces| p.slopes[7] = 13,
            // A slope of two and a half.
            |p: &mut Pieces| (p.slopes[6..].fill(10), p.offsets[7] = 138).1,
        ] {
            assert_eq!(change(bad), Err("line at an end"));
        }
        assert_eq!(change(|p| (p.slopes[6..].fill(8), p.offsets[7] = 130).1), Ok(()));
    }

    /// From −9 on, and 5/2 outside of 64 integers and in the first 16 of them.
    #[test]
    fn all_is_level_outside_of_pieces_that_begin_anywhere() {
        let level = Pieces { beyond: Beyond::Level { begin: -9 }, ..straight() };
        level.check().unwrap();
        assert_eq!((level.domain_bits(), level.begin(), level.tail()), (6, -9, 0));
        for x in -200i64..200 {
            let inside = (-9 + 16..-9 + 64).contains(&x);
            let want = if inside { straight().line(x - 9 - 14) } else { 20 };
            // (Straight pieces begin at −32.)
            assert_eq!(straight().begin() + 9 + 14, -9, "the same pieces, 23 lower");
            assert_eq!(level.line(x), want, "{x}");
            assert_eq!(level.slope(x), if inside { straight().slope(x - 23) } else { 0.0 }, "{x}");
        }
        assert_eq!([i64::MIN, i64::MAX].map(|x| level.line(x)), [20; 2]);
        let bad = |change: fn(&mut Pieces)| {
            let mut changed = level.clone();
            change(&mut changed);
            changed.check()
        };
        assert_eq!(bad(|p| p.slopes[0] = 1), Err("line at an end"));
        assert_eq!(bad(|p| p.slopes[1] = 1), Err("line at an end"));
        assert_eq!(bad(|p| p.offsets[1] = 9), Err("line at an end"));
        assert_eq!(bad(|p| p.beyond = Beyond::Level { begin: 1 << 40 }), Err("begin of the pieces"));
        // What the last pieces are is free.
        assert_eq!(bad(|p| p.slopes[7] = 13), Ok(()));
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let (good, most) = (pieces(), 1i64 << MOST_BITS);
        for (bad, what) in [
            (Pieces { offsets: vec![0; 3], slopes: vec![0; 3], ..good.clone() }, "number of pieces"),
            (Pieces { slopes: vec![0; 8], ..good.clone() }, "number of pieces"),
            (Pieces { offsets: vec![0; 1024], slopes: vec![0; 1024], ..good.clone() }, "number of pieces"),
            (Pieces { low: 0, ..good.clone() }, "width of a piece"),
            (Pieces { low: 41, ..good.clone() }, "width of a piece"),
            (Pieces { offset_shift: 41, ..good.clone() }, "shift of offsets"),
            (Pieces { shift: 0, ..good.clone() }, "shift"),
            (Pieces { shift: 41, ..good.clone() }, "shift"),
            (Pieces { offsets: vec![0, 0, 0, most], ..good.clone() }, "offset"),
            (Pieces { slopes: vec![0, 0, 0, i64::MIN], ..good.clone() }, "slope"),
        ] {
            assert_eq!(bad.check(), Err(what));
        }
    }
}
