// Package layout says at which coefficient of a plaintext polynomial each value of a tensor stands (Section IV-B of the paper).
//
// A polynomial carries M values; value v is the coefficient of Y^v, Y = X^(N/M), and Y^M = -1. A tensor [C, H, W] stands at
//
//	v(c, i, j) = c + j·ColumnPitch + i·RowPitch,   c < ColumnPitch
//
// A tensor with more channels than ColumnPitch takes several polynomials: channel c stands in number c / ColumnPitch, at
// c mod ColumnPitch of each place. All have the same pitches.
//
// The paper gives rows a pitch of W places and crops images so that a margin of zeros fits. Here a row's pitch is W plus the
// padding, which need not be a power of two: the columns that follow a row pad it on the right, and pad the next one on the left.
// A stride s multiplies both pitches by s. What was at (s·i, s·j) stays where it is and is (i, j) of the new grid; the places
// between them become those of new channels. So a strided convolution moves nothing (Appendix C's rotations fall away).
package layout

import "fmt"

// Grid places a tensor [Channels, Height, Width] in one or more polynomials.
type Grid struct {
	Channels int `json:"channels"`
	Height   int `json:"height"`
	Width    int `json:"width"`
	// ColumnPitch and RowPitch are distances in values. ColumnPitch is a power of two and a divisor of RowPitch.
	ColumnPitch int `json:"column_pitch"`
	RowPitch    int `json:"row_pitch"`
}

// New is the grid of a tensor with `pitch` values a place, a power of two, and `padding` columns of zeros beside each row.
func New(channels, height, width, padding, pitch int) (Grid, error) {
	if channels < 1 || height < 1 || width < 1 || padding < 0 || pitch < 1 || pitch&(pitch-1) != 0 {
		return Grid{}, fmt.Errorf("layout: no grid for %d channels of %d × %d, padding %d, pitch %d", channels, height, width, padding, pitch)
	}
	return Grid{
		Channels: channels, Height: height, Width: width,
		ColumnPitch: pitch, RowPitch: pitch * (width + padding),
	}, nil
}

// Polynomials is how many the tensor takes.
func (g Grid) Polynomials() int { return (g.Channels + g.ColumnPitch - 1) / g.ColumnPitch }

// ChannelsOf are the first channel in a polynomial, and the one after its last.
func (g Grid) ChannelsOf(polynomial int) (begin, end int) {
	return polynomial * g.ColumnPitch, min((polynomial+1)*g.ColumnPitch, g.Channels)
}

// At is the index of value (c, i, j) in polynomial c / ColumnPitch. Rows and columns outside of the tensor are places of its
// padding; the index may then be negative or too large, and [Wrap] finds the place.
func (g Grid) At(c, i, j int) int { return c&(g.ColumnPitch-1) + j*g.ColumnPitch + i*g.RowPitch }

// Wrap reduces an index modulo Y^M = -1, M a power of two: the place in [0, M), and the sign.
func Wrap(index, m int) (place int, sign float64) {
	place = index & (2*m - 1)
	if place >= m {
		return place - m, -1
	}
	return place, 1
}

// Strided is the grid of the output of a convolution with this stride.
func (g Grid) Strided(channels, height, width, stride int) (Grid, error) {
	out := Grid{
		Channels: channels, Height: height, Width: width,
		ColumnPitch: g.ColumnPitch * stride, RowPitch: g.RowPitch * stride,
	}
	if stride < 1 || stride&(stride-1) != 0 {
		return Grid{}, fmt.Errorf("layout: stride %d is no power of two", stride)
	}
	return out, nil
}

// Fits fails if rows and columns with this padding on each side do not fit into m values a polynomial: the places before its first row and after
// its last one are the same, and must hold zeros.
func (g Grid) Fits(padding, m int) error {
	need := g.At(0, g.Height-1+padding, g.Width+padding)
	if g.Width+padding > g.RowPitch/g.ColumnPitch {
		return fmt.Errorf("layout: rows of %d values with padding %d do not fit into a pitch of %d", g.Width, padding, g.RowPitch/g.ColumnPitch)
	}
	if need > m {
		return fmt.Errorf("layout: [%d, %d, %d] with padding %d takes %d values, a ciphertext has %d",
			g.Channels, g.Height, g.Width, padding, need, m)
	}
	return nil
}

// Scatter puts a tensor, [C, H, W] row-major, into polynomials of m values. Places of no value are 0.
func (g Grid) Scatter(tensor []float64, m int) ([][]float64, error) {
	if len(tensor) != g.Channels*g.Height*g.Width {
		return nil, fmt.Errorf("layout: %d values for [%d, %d, %d]", len(tensor), g.Channels, g.Height, g.Width)
	}
	if err := g.Fits(0, m); err != nil {
		return nil, err
	}
	values := g.empty(m)
	g.each(func(p, v, t int) { values[p][v] = tensor[t] })
	return values, nil
}

// Masks are 1 where a value of the tensor stands, and 0 elsewhere.
func (g Grid) Masks(m int) [][]float64 {
	masks := g.empty(m)
	g.each(func(p, v, _ int) { masks[p][v] = 1 })
	return masks
}

func (g Grid) empty(m int) [][]float64 {
	values := make([][]float64, g.Polynomials())
	for p := range values {
		values[p] = make([]float64, m)
	}
	return values
}

// each calls f with every value's polynomial and place, and its index in the row-major tensor.
func (g Grid) each(f func(polynomial, place, index int)) {
	index := 0
	for c := range g.Channels {
		for i := range g.Height {
			for j := range g.Width {
				f(c/g.ColumnPitch, g.At(c, i, j), index)
				index++
			}
		}
	}
}
