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
        Ok(Self { channels, height, width, column_pitch: pitch, row_pitch: pitch * (width + padding) })
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
        self.channels.div_ceil(self.column_pitch)
    }

    /// The channels of one polynomial: none behind the last one.
    pub fn channels_of(&self, polynomial: usize) -> std::ops::Range<usize> {
        let begin = polynomial.saturating_mul(self.column_pitch).min(self.channels);
        begin..begin.saturating_add(self.column_pitch).min(self.channels)
    }

    /// The index of value (c, i, j) in its polynomial. Rows and columns outside of the tensor are places of its
    /// padding; the index may then be negative or too large, and is to be taken modulo Y^M = -1.
    pub(crate) fn at(&self, c: usize, i: i64, j: i64) -> i64 {
        (c & (self.column_pitch - 1)) as i64 + j * self.column_pitch as i64 + i * self.row_pitch as i64
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
        Ok(Self { channels, height, width, column_pitch, row_pitch: self.row_pitch * stride })
    }

    /// Whether rows and columns, with so much padding on each side, fit into m values a polynomial: the places before
    /// the first row and after the last one are the same, and must hold zeros.
    ///
    /// # Errors
    /// If they do not: says why.
    pub fn fits(&self, padding: usize, m: usize) -> Result<(), Error> {
        let Self { channels, height, width, column_pitch, row_pitch } = *self;
        let padding = padding.min(MOST_SIZE);
        let columns = row_pitch / column_pitch;
        if width + padding > columns {
            let why = format!("rows of {width} values with padding {padding} in a pitch of {columns}");
            return Err(refuse("a grid", why));
        }
        let need = self.at(0, (height - 1 + padding) as i64, (width + padding) as i64);
        if need > m as i64 {
            let why = format!(
                "[{channels}, {height}, {width}] with padding {padding} takes {need} values, a ciphertext has {m}"
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
        let rows = (0..channels).flat_map(move |c| (0..height).map(move |i| (c, i)));
        rows.flat_map(move |(c, i)| {
            (0..width).map(move |j| (c / column_pitch, self.at(c, i as i64, j as i64) as usize))
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
