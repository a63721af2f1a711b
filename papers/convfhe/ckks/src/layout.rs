//! At which coefficient of a plaintext polynomial each value of a tensor stands (Kim and Guyot, IEEE TIFS 2023, section
//! IV-B).
//!
//! A polynomial carries M values; value v is the coefficient of Y^v, Y = X^(N/M), and Y^M = -1. A tensor `[C, H, W]`
//! stands at
//!
//! ```text
//! v(c, i, j) = c + j·column_pitch + i·row_pitch,   c < column_pitch
//! ```
//!
//! A tensor with more channels than `column_pitch` takes several polynomials: channel c stands in number c /
//! column_pitch, at c mod column_pitch of each place. All have the same pitches.
//!
//! A row's pitch is its width plus the padding, which need not be a power of two: the columns that follow a row pad it
//! on the right, and pad the next one on the left. A stride s multiplies both pitches by s. What was at (s·i, s·j)
//! stays where it is and is (i, j) of the new grid; the places between them become those of new channels. So a strided
//! convolution moves nothing (the rotations of the paper's Appendix C fall away).
//!
//! A stride leaves rows and columns between those of the new grid without values. A wide tensor fills them with
//! *groups*: the channels of one pitch are a unit, and unit u stands in number u / groups, moved by
//!
//! ```text
//! (g mod across)·(width + apart)·column_pitch + (g / across)·(height + apart)·row_pitch,   g = u mod groups
//! ```
//!
//! so `apart` columns and rows without a value lie between two groups. A value that comes from one bootstrap can
//! leave it in several [pieces](Split): each has some of its units or rows, in their places, and zeros elsewhere.
//! Pieces add up to the whole.

use crate::Error;

/// Largest size of a tensor or kernel, in each direction: sums and products of places fit an `i64` by far.
pub(crate) const MOST_SIZE: usize = 1 << 16;

/// Places a tensor `[channels, height, width]` in one or more polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    channels: usize,
    height: usize,
    width: usize,
    column_pitch: usize,
    row_pitch: usize,
    /// Groups beside each other, and below each other.
    groups: [usize; 2],
    /// Columns and rows between two of them.
    apart: usize,
}

/// In how many pieces a value's polynomials come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    /// Whether each unit of channels has a piece of its own.
    pub units: bool,
    /// Rows are apart by their number modulo this: 1 or more.
    pub phases: usize,
}

impl Split {
    /// One piece a polynomial.
    pub const WHOLE: Self = Self { units: false, phases: 1 };

    /// The coarsest of which pieces of both can be added up. (Phases are powers of two, as strides are.)
    pub fn with(self, other: Self) -> Self {
        Self { units: self.units || other.units, phases: self.phases.max(other.phases) }
    }
}

/// What one piece of a value has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which polynomial it is a piece of.
    pub polynomial: usize,
    /// Its channels.
    pub channels: std::ops::Range<usize>,
    /// Its rows, modulo `phases`.
    pub phase: usize,
    /// How many phases there are.
    pub phases: usize,
}

impl Piece {
    /// Whether row `i` is among its rows.
    pub(crate) fn has_row(&self, i: i64) -> bool {
        i.rem_euclid(self.phases as i64) == self.phase as i64
    }

    /// Whether all that `other`, of the same value, has is of this piece.
    pub fn covers(&self, other: &Self) -> bool {
        self.polynomial == other.polynomial
            && self.channels.start <= other.channels.start
            && other.channels.end <= self.channels.end
            && other.phases.is_multiple_of(self.phases)
            && other.phase % self.phases == self.phase
    }
}

/// Reduces an index modulo Y^M = -1, M a power of two: the place in 0..M, and the sign.
pub(crate) fn wrap(index: i64, m: usize) -> (usize, f64) {
    let place = index.rem_euclid(2 * m as i64) as usize;
    if place < m { (place, 1.0) } else { (place - m, -1.0) }
}

fn refuse(what: &'static str, why: String) -> Error {
    Error::Shape { what, why }
}

impl Grid {
    /// The grid of a tensor with `pitch` values a place, a power of two, and `padding` columns of zeros beside each
    /// row.
    ///
    /// # Errors
    /// If a size is 0 or above 2^16, or the pitch is no power of two.
    pub fn new([channels, height, width]: [usize; 3], padding: usize, pitch: usize) -> Result<Self, Error> {
        let sizes = [channels, height, width, pitch];
        if sizes.iter().any(|size| !(1..=MOST_SIZE).contains(size)) || padding > MOST_SIZE {
            let why = format!(
                "[{channels}, {height}, {width}], padding {padding}, pitch {pitch}: sizes are 1 to 2^16"
            );
            return Err(refuse("a grid", why));
        }
        if !pitch.is_power_of_two() {
            return Err(refuse("a grid", format!("a pitch of {pitch}, no power of two")));
        }
        let row_pitch = pitch * (width + padding);
        Ok(Self { channels, height, width, column_pitch: pitch, row_pitch, groups: [1, 1], apart: 0 })
    }

    /// The same with so many groups beside and below each other, and so many columns and rows between them.
    ///
    /// # Errors
    /// If a number is 0 or out of range, or if they do not fit into the rows.
    pub fn grouped(self, groups: [usize; 2], apart: usize) -> Result<Self, Error> {
        if groups.iter().any(|count| !(1..=MOST_SIZE).contains(count)) || apart > MOST_SIZE {
            let [across, down] = groups;
            return Err(refuse("a grid", format!("{across} × {down} groups, {apart} apart")));
        }
        let made = Self { groups, apart, ..self };
        made.across(apart)?;
        Ok(made)
    }

    /// How many groups share a polynomial.
    pub fn groups(&self) -> usize {
        self.groups[0] * self.groups[1]
    }

    /// How many groups are beside each other, and below each other.
    pub fn grouping(&self) -> [usize; 2] {
        self.groups
    }

    /// How many columns and rows lie between two groups.
    pub fn apart(&self) -> usize {
        self.apart
    }

    /// How many units of [`column_pitch`](Self::column_pitch) channels there are.
    pub fn units(&self) -> usize {
        self.channels.div_ceil(self.column_pitch)
    }

    /// The channels of one unit: none behind the last one.
    pub fn channels_of_unit(&self, unit: usize) -> std::ops::Range<usize> {
        let begin = unit.saturating_mul(self.column_pitch).min(self.channels);
        begin..begin.saturating_add(self.column_pitch).min(self.channels)
    }

    /// The units of one polynomial.
    pub fn units_of(&self, polynomial: usize) -> std::ops::Range<usize> {
        let begin = polynomial.saturating_mul(self.groups()).min(self.units());
        begin..begin.saturating_add(self.groups()).min(self.units())
    }

    /// How far a unit is moved.
    pub(crate) fn moved(&self, unit: usize) -> usize {
        let (group, [across, _]) = (unit % self.groups(), self.groups);
        let columns = (group % across) * (self.width + self.apart);
        let rows = (group / across) * (self.height + self.apart);
        columns * self.column_pitch + rows * self.row_pitch
    }

    /// All pieces of a split, polynomial by polynomial.
    pub fn pieces(&self, split: Split) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let phases = split.phases.max(1);
        for polynomial in 0..self.polynomials() {
            let units = self.units_of(polynomial);
            let channels = match split.units {
                true => units.map(|unit| self.channels_of_unit(unit)).collect(),
                false => vec![self.channels_of(polynomial)],
            };
            for channels in channels {
                let piece = |phase| Piece { polynomial, channels: channels.clone(), phase, phases };
                pieces.extend((0..phases).map(piece));
            }
        }
        pieces
    }

    /// Channels, height and width.
    pub fn shape(&self) -> [usize; 3] {
        [self.channels, self.height, self.width]
    }

    /// How many values lie from a column to the next: a power of two, which divides the [row's](Self::row_pitch).
    pub fn column_pitch(&self) -> usize {
        self.column_pitch
    }

    /// How many values lie from a row to the next.
    pub fn row_pitch(&self) -> usize {
        self.row_pitch
    }

    /// How many polynomials the tensor takes.
    pub fn polynomials(&self) -> usize {
        self.units().div_ceil(self.groups())
    }

    /// The channels of one polynomial: none behind the last one.
    pub fn channels_of(&self, polynomial: usize) -> std::ops::Range<usize> {
        let units = self.units_of(polynomial);
        let begin = units.start.saturating_mul(self.column_pitch).min(self.channels);
        begin..units.end.saturating_mul(self.column_pitch).min(self.channels)
    }

    /// The index of value (c, i, j) in its polynomial. Rows and columns outside of the tensor are places of its
    /// padding; the index may then be negative or too large, and is to be taken modulo Y^M = -1.
    pub(crate) fn at(&self, c: usize, i: i64, j: i64) -> i64 {
        let moved = self.moved(c / self.column_pitch) + (c & (self.column_pitch - 1));
        moved as i64 + j * self.column_pitch as i64 + i * self.row_pitch as i64
    }

    /// The grid of the output, `[channels, height, width]`, of a convolution with this stride.
    ///
    /// # Errors
    /// If the stride is no power of two, or a size or pitch is out of range.
    pub fn strided(&self, [channels, height, width]: [usize; 3], stride: usize) -> Result<Self, Error> {
        let sizes = [channels, height, width, stride];
        if sizes.iter().any(|size| !(1..=MOST_SIZE).contains(size)) || !stride.is_power_of_two() {
            let why = format!(
                "[{channels}, {height}, {width}] with stride {stride}: sizes are 1 to 2^16, strides powers of two"
            );
            return Err(refuse("a grid", why));
        }
        let column_pitch = self.column_pitch * stride;
        if column_pitch > MOST_SIZE {
            return Err(refuse("a grid", format!("strides make a pitch of {column_pitch}")));
        }
        let row_pitch = self.row_pitch * stride;
        Ok(Self { channels, height, width, column_pitch, row_pitch, groups: [1, 1], apart: 0 })
    }

    /// Fails if groups and so much padding beside them are wider than a row; the columns of all groups.
    fn across(&self, padding: usize) -> Result<usize, Error> {
        let Self { width, column_pitch, row_pitch, groups: [across, _], apart, .. } = *self;
        let (columns, beside) = (row_pitch / column_pitch, (across - 1).saturating_mul(width + apart));
        if beside.saturating_add(width + padding) <= columns {
            return Ok(beside + width);
        }
        let groups = if across > 1 { format!("{across} groups, ") } else { String::new() };
        let why = format!("{groups}rows of {width} values with padding {padding} in a pitch of {columns}");
        Err(refuse("a grid", why))
    }

    /// How many places rows and columns take, with so much padding on each side: the places before the first row and
    /// after the last one are the same, and must hold zeros.
    ///
    /// # Errors
    /// If they do not fit into a row.
    pub fn needed(&self, padding: usize) -> Result<usize, Error> {
        let padding = padding.min(MOST_SIZE);
        if self.groups() > 1 && padding > self.apart {
            return Err(refuse("a grid", format!("groups {} apart with padding {padding}", self.apart)));
        }
        self.across(padding)?;
        Ok(self.spread([padding, padding]))
    }

    /// At how many places in a row a product with a kernel is not zero that reaches so many rows and columns beyond a place.
    pub fn spread(&self, [rows, columns]: [usize; 2]) -> usize {
        let Self { height, width, column_pitch, row_pitch, groups: [across, down], apart, .. } = *self;
        let last = (down - 1) * (height + apart) + height - 1;
        let wide = (across - 1) * (width + apart) + width;
        let [rows, columns] = [last.saturating_add(rows), wide.saturating_add(columns)];
        rows.saturating_mul(row_pitch).saturating_add(columns.saturating_mul(column_pitch))
    }

    /// Whether what is [`needed`](Self::needed) fits into m values a polynomial.
    ///
    /// # Errors
    /// If it does not: says why.
    pub fn fits(&self, padding: usize, m: usize) -> Result<(), Error> {
        let (need, [channels, height, width]) = (self.needed(padding)?, self.shape());
        if need > m {
            let groups =
                if self.groups() > 1 { format!(", {} groups,", self.groups()) } else { String::new() };
            let why = format!(
                "[{channels}, {height}, {width}]{groups} with padding {padding} takes {need} values, a ciphertext has {m}"
            );
            return Err(refuse("a grid", why));
        }
        Ok(())
    }

    /// Puts a tensor, `[C, H, W]` row-major, into polynomials of m values. Places of no value are 0.
    ///
    /// # Errors
    /// If the tensor has another size, or does not fit.
    pub fn scatter(&self, tensor: &[f64], m: usize) -> Result<Vec<Vec<f64>>, Error> {
        let needed = self.shape().iter().product::<usize>();
        if tensor.len() != needed {
            let expected = needed.to_string();
            return Err(Error::Count { operation: "scatter", what: "values", found: tensor.len(), expected });
        }
        self.filled(m, |index| tensor[index])
    }

    /// What [`scatter`](Self::scatter) put there.
    ///
    /// # Errors
    /// If polynomials are too few, or values in one of them.
    pub fn gather(&self, polynomials: &[Vec<f64>]) -> Result<Vec<f64>, Error> {
        let count = |what, found: usize, expected: String| {
            Err(Error::Count { operation: "gather", what, found, expected })
        };
        if polynomials.len() != self.polynomials() {
            return count("polynomials", polynomials.len(), self.polynomials().to_string());
        }
        for values in polynomials {
            self.fits(0, values.len())?;
        }
        Ok(self.places().map(|(polynomial, place)| polynomials[polynomial][place]).collect())
    }

    /// 1 where a value of the tensor stands, and 0 elsewhere, for each polynomial.
    ///
    /// # Errors
    /// If the tensor does not fit into m values.
    pub fn masks(&self, m: usize) -> Result<Vec<Vec<f64>>, Error> {
        self.filled(m, |_| 1.0)
    }

    /// 1 where a value of a piece stands, and 0 elsewhere, for each piece of a split.
    ///
    /// # Errors
    /// If the tensor does not fit into m values.
    pub fn kept(&self, split: Split, m: usize) -> Result<Vec<Vec<f64>>, Error> {
        self.fits(0, m)?;
        let keep = |piece: &Piece| {
            let mut values = vec![0.0; m];
            for c in piece.channels.clone() {
                for i in (0..self.height as i64).filter(|&i| piece.has_row(i)) {
                    (0..self.width as i64).for_each(|j| values[self.at(c, i, j) as usize] = 1.0);
                }
            }
            values
        };
        Ok(self.pieces(split).iter().map(keep).collect())
    }

    fn filled(&self, m: usize, value: impl Fn(usize) -> f64) -> Result<Vec<Vec<f64>>, Error> {
        self.fits(0, m)?;
        let mut values = vec![vec![0.0; m]; self.polynomials()];
        for (index, (polynomial, place)) in self.places().enumerate() {
            values[polynomial][place] = value(index);
        }
        Ok(values)
    }

    /// Each value's polynomial and place, by its index in the row-major tensor.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let Self { channels, height, width, column_pitch, .. } = *self;
        let share = column_pitch * self.groups();
        let rows = (0..channels).flat_map(move |c| (0..height).map(move |i| (c, i)));
        rows.flat_map(move |(c, i)| {
            (0..width).map(move |j| (c / share, self.at(c, i as i64, j as i64) as usize))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places_of_their_own() {
        let m = 512;
        for (shape, padding, pitch) in
            [([2, 6, 6], 3, 4), ([5, 7, 3], 1, 4), ([9, 4, 8], 0, 8), ([1, 1, 1], 0, 1)]
        {
            let grid = Grid::new(shape, padding, pitch).unwrap();
            let size: usize = shape.iter().product();
            let tensor: Vec<f64> = (1..=size).map(|x| x as f64).collect();
            let polynomials = grid.scatter(&tensor, m).unwrap();
            assert_eq!(polynomials.len(), grid.polynomials());
            let there = |values: &Vec<Vec<f64>>| values.iter().flatten().filter(|&&x| x != 0.0).count();
            assert_eq!((there(&polynomials), there(&grid.masks(m).unwrap())), (size, size), "{shape:?}");
            assert_eq!(grid.gather(&polynomials).unwrap(), tensor);
            let [_, height, width] = shape;
            // Value (c, i, j) by the definition.
            for (index, &x) in tensor.iter().enumerate() {
                let (c, i, j) = (index / (height * width), index / width % height, index % width);
                assert_eq!(polynomials[c / pitch][c % pitch + pitch * (j + (width + padding) * i)], x);
            }
        }
    }

    #[test]
    fn strides_keep_places() {
        let grid = Grid::new([2, 6, 6], 1, 2).unwrap();
        let next = grid.strided([4, 3, 3], 2).unwrap();
        assert_eq!((next.column_pitch(), next.row_pitch(), next.polynomials()), (4, 28, 1));
        assert_eq!(next.at(0, 2, 1), grid.at(0, 4, 2));
        assert_eq!(
            (wrap(-3, 8), wrap(8, 8), wrap(15, 8), wrap(16, 8)),
            ((5, -1.0), (0, -1.0), (7, -1.0), (0, 1.0))
        );
        assert_eq!([0, 1, 2].map(|p| Grid::new([5, 1, 1], 0, 4).unwrap().channels_of(p)), [0..4, 4..5, 5..5]);
    }

    #[test]
    fn groups_have_places_of_their_own() {
        let m = 512;
        let base = Grid::new([4, 8, 8], 2, 2).unwrap().strided([9, 3, 3], 2).unwrap();
        for (groups, apart, polynomials, second) in
            [([2, 1], 1, 2, 16), ([2, 2], 1, 1, 16), ([1, 2], 2, 2, 200), ([3, 1], 0, 1, 12)]
        {
            let grid = base.grouped(groups, apart).unwrap();
            grid.fits(apart, m).unwrap();
            assert_eq!((grid.units(), grid.polynomials()), (3, polynomials));
            assert_eq!((grid.moved(0), grid.moved(1)), (0, second));
            let tensor: Vec<f64> = (1..=81).map(f64::from).collect();
            let whole = grid.scatter(&tensor, m).unwrap();
            let there: usize = whole.iter().flatten().filter(|&&x| x != 0.0).count();
            assert_eq!((there, grid.gather(&whole).unwrap()), (81, tensor));
            // Pieces are disjoint, and all of the value together.
            for split in [Split::WHOLE, Split { units: true, phases: 1 }, Split { units: true, phases: 2 }] {
                let pieces = grid.pieces(split);
                let mut sums = vec![vec![0.0; m]; polynomials];
                for (piece, keep) in pieces.iter().zip(grid.kept(split, m).unwrap()) {
                    sums[piece.polynomial].iter_mut().zip(keep).for_each(|(sum, keep)| *sum += keep);
                }
                assert_eq!(sums, grid.masks(m).unwrap(), "{groups:?} {split:?}");
            }
        }
        let pieces = base.grouped([2, 1], 1).unwrap().pieces(Split { units: true, phases: 2 });
        let shown: Vec<_> = pieces.iter().map(|p| (p.polynomial, p.channels.clone(), p.phase)).collect();
        let expected = [(0, 0..4, 0), (0, 0..4, 1), (0, 4..8, 0), (0, 4..8, 1), (1, 8..9, 0), (1, 8..9, 1)];
        assert_eq!(shown, expected);
        let whole = base.grouped([2, 1], 1).unwrap().pieces(Split::WHOLE);
        let covered: Vec<_> = pieces.iter().map(|piece| whole[0].covers(piece)).collect();
        assert_eq!(covered, [true, true, true, true, false, false]);
        assert!(!pieces[0].covers(&pieces[1]) && !pieces[0].covers(&whole[0]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |result: Result<Grid, Error>, part: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refused(Grid::new([0, 1, 1], 0, 1), "sizes are");
        refused(Grid::new([1, 1, 1 << 17], 0, 1), "sizes are");
        refused(Grid::new([1, 1, 1], usize::MAX, 1), "sizes are");
        refused(Grid::new([1, 1, 1], 0, 3), "no power of two");
        let grid = Grid::new([2, 6, 6], 1, 4).unwrap();
        refused(grid.grouped([0, 1], 0), "0 × 1 groups");
        refused(grid.grouped([2, 1], 1), "2 groups, rows of 6 values with padding 1 in a pitch of 7");
        refused(grid.grouped([1, usize::MAX], 1), "groups");
        let grouped = grid.grouped([1, 2], 1).unwrap();
        assert!(grouped.fits(2, 512).unwrap_err().to_string().contains("groups 1 apart with padding 2"));
        assert!(grouped.fits(1, 256).unwrap_err().to_string().contains("2 groups, with padding 1 takes 392"));
        refused(grid.strided([1, 2, 2], 3), "stride 3");
        refused(grid.strided([1, 1, 1], 1 << 15), "a pitch of");
        let error = |result: Result<(), Error>| result.unwrap_err().to_string();
        assert!(error(grid.fits(2, 512)).contains("in a pitch of 7"));
        assert!(error(grid.fits(1, 128)).contains("takes 196 values"));
        assert!(grid.fits(usize::MAX, 512).is_err());
        assert!(grid.scatter(&[0.0; 3], 512).is_err() && grid.gather(&[]).is_err());
        assert!(grid.masks(64).is_err() && grid.gather(&[vec![0.0; 64]]).is_err());
    }
}
