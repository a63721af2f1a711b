// Package convolution is the batch convolution in coefficient encoding: Algorithm 1 of the paper.
//
//	r_o(Y) = Σ over terms of I_t(Y) · K_{t,o}(Y),   K_{t,o}(Y) = Σ_{c,a,b} w[o,c,a,b] · Y^-(c + (b-left)·ColumnPitch + (a-top)·RowPitch)
//
// The coefficient of Y^(j·ColumnPitch' + i·RowPitch') of r_o is output (o, i, j). One product an output channel and term, one
// level, no rotation, whatever the kernel's size is. Other coefficients mean nothing; packing drops most of them, the mask the
// rest. A layer is a sum of convolutions of several values: so a residual connection, with or without a stride, is one term more.
package convolution

import (
	"fmt"
	"math"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"

	"jaguar/fhe/layout"
	"jaguar/fhe/parameters"
)

// Kernel is a convolution's geometry and weights. A fully connected layer has a kernel of its input's height and width.
type Kernel struct {
	// Out and In are channels; Height and Width the kernel's.
	Out, In, Height, Width int
	// Stride is the same for rows and columns.
	Stride int
	// Top, Left, Bottom, Right are rows and columns of zeros around the input.
	Top, Left, Bottom, Right int
	// Weights are [Out, In, Height, Width], row-major.
	Weights []float64
}

// maxWeights bounds how many weights a kernel may have.
const maxWeights = 1 << 26

// Check fails if the weights do not have the stated shape, or a size is out of range.
func (k Kernel) Check() error {
	if k.Out < 1 || k.In < 1 || k.Height < 1 || k.Width < 1 || k.Stride < 1 || min(k.Top, k.Left, k.Bottom, k.Right) < 0 {
		return fmt.Errorf("convolution: kernel [%d, %d, %d, %d] with stride %d and padding %d %d %d %d",
			k.Out, k.In, k.Height, k.Width, k.Stride, k.Top, k.Left, k.Bottom, k.Right)
	}
	if max(k.Top, k.Bottom) >= k.Height || max(k.Left, k.Right) >= k.Width {
		return fmt.Errorf("convolution: padding %d %d %d %d of a %d × %d kernel", k.Top, k.Left, k.Bottom, k.Right, k.Height, k.Width)
	}
	want := 1
	for _, size := range []int{k.Out, k.In, k.Height, k.Width} {
		if want > maxWeights/size {
			return fmt.Errorf("convolution: more than %d weights for [%d, %d, %d, %d]", maxWeights, k.Out, k.In, k.Height, k.Width)
		}
		want *= size
	}
	if len(k.Weights) != want {
		return fmt.Errorf("convolution: %d weights for [%d, %d, %d, %d]", len(k.Weights), k.Out, k.In, k.Height, k.Width)
	}
	for i, w := range k.Weights {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			return fmt.Errorf("convolution: weight %d is %v", i, w)
		}
	}
	return nil
}

// Padding is the largest of the four.
func (k Kernel) Padding() int { return max(k.Top, k.Left, k.Bottom, k.Right) }

// OutputSize is the output's height and width; an error if the kernel is larger than the padded input.
func (k Kernel) OutputSize(height, width int) (h, w int, err error) {
	h, w = height+k.Top+k.Bottom-k.Height, width+k.Left+k.Right-k.Width
	if h < 0 || w < 0 {
		return 0, 0, fmt.Errorf("convolution: a %d × %d kernel over %d × %d values", k.Height, k.Width, height, width)
	}
	return h/k.Stride + 1, w/k.Stride + 1, nil
}

// Tap is one weight and how far from an output's place its input stands.
type Tap struct {
	Offset int
	Weight float64
}

// Taps are the weights of one output channel that are not 0, over one polynomial of an input in this grid.
func (k Kernel) Taps(in layout.Grid, polynomial, out int) []Tap {
	begin, end := in.ChannelsOf(polynomial)
	taps := make([]Tap, 0, (end-begin)*k.Height*k.Width)
	at := (out*k.In + begin) * k.Height * k.Width
	for c := begin; c < end; c++ {
		for a := range k.Height {
			for b := range k.Width {
				if w := k.Weights[at]; w != 0 {
					taps = append(taps, Tap{Offset: in.At(c, a-k.Top, b-k.Left), Weight: w})
				}
				at++
			}
		}
	}
	return taps
}

// Sorted are the values of a polynomial by their index modulo a pitch: those of one remainder lie together, as [Plain] reads them.
type Sorted struct {
	pitch int
	// values[r][k] is value k·pitch + r.
	values [][]float64
}

// Sort sorts the values of a polynomial; the pitch divides their number.
func Sort(values []float64, pitch int) Sorted {
	sorted := Sorted{pitch: pitch, values: make([][]float64, pitch)}
	for r := range sorted.values {
		own := make([]float64, len(values)/pitch)
		for k := range own {
			own[k] = values[k*pitch+r]
		}
		sorted.values[r] = own
	}
	return sorted
}

// Plain adds what a layer of encrypted values would hold at the places of one output channel: for every multiple v of the pitch,
// values[v + channel] += Σ w·input[v + offset], modulo Y^M = -1. Places that mean nothing are computed too: they take part in
// the bound of what is to be encrypted.
func Plain(taps []Tap, input Sorted, values []float64, channel int) {
	count := len(input.values[0])
	sums := make([]float64, count)
	for _, tap := range taps {
		place, sign := layout.Wrap(tap.Offset, count*input.pitch)
		first, own, weight := place/input.pitch, input.values[place%input.pitch], sign*tap.Weight
		for k, x := range own[first:] {
			sums[k] += weight * x
		}
		for k, x := range own[:first] {
			sums[count-first+k] -= weight * x
		}
	}
	for k, sum := range sums {
		values[k*input.pitch+channel] += sum
	}
}

// maxCoefficient bounds a scaled weight, so that it fits the integers that are computed with.
const maxCoefficient = 1 << 62

// EncodeInto writes the plaintext K(Y) of these taps at the level of a convolution's input, in NTT and Montgomery form. A weight w
// becomes the integer nearest to w·scale; an error if that is 2^62 or more.
func EncodeInto(set *parameters.Set, taps []Tap, scale float64, poly ring.Poly) error {
	ringQ := set.CKKS().RingQ().AtLevel(set.InputLevel())
	poly.Zero()
	m, gap := set.Values(), set.Gap()
	for _, tap := range taps {
		scaled := math.RoundToEven(tap.Weight * scale)
		if !(math.Abs(scaled) < maxCoefficient) {
			return fmt.Errorf("convolution: weight %g does not fit at the scale 2^%.1f", tap.Weight, math.Log2(scale))
		}
		place, sign := layout.Wrap(-tap.Offset, m)
		coefficient := int64(sign * scaled)
		for level, sub := range ringQ.SubRings[:ringQ.Level()+1] {
			q := sub.Modulus
			reduced := uint64(max(coefficient, -coefficient)) % q
			if coefficient < 0 && reduced != 0 {
				reduced = q - reduced
			}
			// Two taps may meet at one place where the kernel is as large as the ring.
			poly.Coeffs[level][place*gap] = (poly.Coeffs[level][place*gap] + reduced) % q
		}
	}
	ringQ.NTT(poly, poly)
	ringQ.MForm(poly, poly)
	return nil
}

// MulThenAdd adds kernel·ct to sum. Both ciphertexts are in NTT form and at the input level; scales are the caller's.
func MulThenAdd(set *parameters.Set, ct *rlwe.Ciphertext, kernel ring.Poly, sum *rlwe.Ciphertext) {
	ringQ := set.CKKS().RingQ().AtLevel(set.InputLevel())
	for i := range sum.Value {
		ringQ.MulCoeffsMontgomeryThenAdd(ct.Value[i], kernel, sum.Value[i])
	}
}
