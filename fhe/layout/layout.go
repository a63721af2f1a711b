// Package layout says at which coefficient of a plaintext polynomial each value of a tensor stands (Section IV-B of the paper).
//
// A polynomial carries M values; value v is the coefficient of Y^v, Y = X^(N/M), and Y^M = -1. A tensor [C, H, W] stands at
//
//	v(c, i, j) = c + j·ColumnPitch + i·RowPitch,   c < ColumnPitch
//
// The paper gives rows a pitch of W places and crops images so that a margin of zeros fits. Here a row's pitch is W plus the
// padding, which need not be a power of two: the columns that follow a row pad it on the right, and pad the next one on the left.
// A stride s multiplies both pitches by s. What was at (s·i, s·j) stays where it is and is (i, j) of the new grid; the places
// between them become those of new channels. So a strided convolution moves nothing (Appendix C's rotations fall away).
package layout

import "fmt"

// Grid places a tensor [Channels, Height, Width] in a polynomial.
type Grid struct {
	Channels int `json:"channels"`
	Height   int `json:"height"`
	Width    int `json:"width"`
	// ColumnPitch and RowPitch are distances in values. ColumnPitch is a power of two and a divisor of RowPitch.
	ColumnPitch int `json:"column_pitch"`
	RowPitch    int `json:"row_pitch"`
}

// New is the tightest grid of a tensor whose consumers need `padding` zeros on each side, with at least minPitch values a place.
func New(channels, height, width, padding, minPitch int) (Grid, error) {
	if channels < 1 || height < 1 || width < 1 || padding < 0 || minPitch < 1 {
		return Grid{}, fmt.Errorf("layout: no grid for %d channels of %d × %d, padding %d", channels, height, width, padding)
	}
	pitch := 1
	for pitch < channels || pitch < minPitch {
		pitch *= 2
	}
	return Grid{
		Channels: channels, Height: height, Width: width,
		ColumnPitch: pitch, RowPitch: pitch * (width + padding),
	}, nil
}

// At is the index of value (c, i, j). Rows and columns outside of the tensor are places of its padding; the index may then be
// negative or too large, and [Wrap] finds the place.
func (g Grid) At(c, i, j int) int { return c + j*g.ColumnPitch + i*g.RowPitch }

// Wrap reduces an index modulo Y^M = -1: the place in [0, M), and the sign.
func Wrap(index, m int) (place int, sign float64) {
	place = index % (2 * m)
	if place < 0 {
		place += 2 * m
	}
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
	if channels > out.ColumnPitch {
		return Grid{}, fmt.Errorf("layout: %d channels do not fit: there are %d values a place", channels, out.ColumnPitch)
	}
	return out, nil
}

// Fits fails if the tensor with this padding on each side does not fit into m values: the places before its first row and after
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

// Scatter puts a tensor, [C, H, W] row-major, into m values. Places of no value are 0.
func (g Grid) Scatter(tensor []float64, m int) ([]float64, error) {
	if len(tensor) != g.Channels*g.Height*g.Width {
		return nil, fmt.Errorf("layout: %d values for [%d, %d, %d]", len(tensor), g.Channels, g.Height, g.Width)
	}
	if err := g.Fits(0, m); err != nil {
		return nil, err
	}
	values := make([]float64, m)
	g.each(func(v, t int) { values[v] = tensor[t] })
	return values, nil
}

// Gather is the inverse of [Grid.Scatter]; it drops what stands at other places.
func (g Grid) Gather(values []float64) []float64 {
	tensor := make([]float64, g.Channels*g.Height*g.Width)
	g.each(func(v, t int) { tensor[t] = values[v] })
	return tensor
}

// Mask is 1 where a value of the tensor stands, and 0 elsewhere.
func (g Grid) Mask(m int) []float64 {
	mask := make([]float64, m)
	g.each(func(v, _ int) { mask[v] = 1 })
	return mask
}

// each calls f with every value's place and its index in the row-major tensor.
func (g Grid) each(f func(place, index int)) {
	index := 0
	for c := range g.Channels {
		for i := range g.Height {
			for j := range g.Width {
				f(g.At(c, i, j), index)
				index++
			}
		}
	}
}
