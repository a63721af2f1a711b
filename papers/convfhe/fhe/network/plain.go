package network

import (
	"math"

	"jaguar/fhe/concurrent"
	"jaguar/fhe/convolution"
	"jaguar/fhe/layout"
)

// Rectifier is what a layer does with a value that was divided by the layer's bound.
type Rectifier func(x float64) float64

// Exact is ReLU; [relu.Option.Plain] of the plan is what is evaluated on ciphertexts.
func Exact(x float64) float64 { return max(x, 0) }

// Plain computes the logits of an input [C, H, W] in floating point, over the same places as the ciphertexts, places that mean
// nothing included. seen, unless nil, gets each layer's largest absolute value before ReLU, the output's last; bounds are then not
// needed, and only [Exact] makes sense.
func (p *Plan) Plain(input []float64, rectify Rectifier, seen func(layer int, largest float64)) ([]float64, error) {
	if seen != nil {
		return p.plain(input, rectify, false, seen)
	}
	if err := p.Calibrated(); err != nil {
		return nil, err
	}
	return p.plain(input, rectify, true, func(int, float64) {})
}

// plain is [Plan.Plain], which divides by bounds before it rectifies, or does not.
func (p *Plan) plain(input []float64, rectify Rectifier, bounded bool, seen func(layer int, largest float64)) ([]float64, error) {
	first, err := p.Grids[0].Scatter(input, p.Values)
	if err != nil {
		return nil, err
	}
	values := [][][]float64{first}
	for i := range p.Network.Layers {
		bound, sums := p.Network.Layers[i].Bound, p.sums(i, values)
		most := 0.0
		for _, sum := range sums {
			most = max(most, largest(sum))
		}
		seen(i, most)
		if !bounded {
			bound = 1
		}
		for part, mask := range p.Grids[i+1].Masks(p.Values) {
			for v, keep := range mask {
				if keep == 0 {
					sums[part][v] = 0
				} else {
					sums[part][v] = bound * rectify(sums[part][v]/bound)
				}
			}
		}
		values = append(values, sums)
	}
	output := p.Network.Output
	logits := make([]float64, p.Outputs)
	for o := range logits {
		logits[o] = output.Bias[o]
		for _, term := range output.Terms {
			for part, from := range values[term.From] {
				for _, tap := range term.Kernel().Taps(p.Grids[term.From], part, o) {
					place, sign := layout.Wrap(tap.Offset, p.Values)
					logits[o] += sign * tap.Weight * from[place]
				}
			}
		}
	}
	seen(len(p.Network.Layers), largest(logits))
	return logits, nil
}

// sums are what a layer holds before ReLU, at all places of its polynomials.
func (p *Plan) sums(layer int, values [][][]float64) [][]float64 {
	grid, terms := p.Grids[layer+1], p.Network.Layers[layer].Terms
	sums := make([][]float64, grid.Polynomials())
	for part := range sums {
		sums[part] = make([]float64, p.Values)
	}
	for _, term := range terms {
		for part, from := range values[term.From] {
			sorted := convolution.Sort(from, grid.ColumnPitch)
			// No output channel shares a place with another. Nothing fails.
			_ = concurrent.Each(grid.Channels, func(o int) error {
				taps := term.Kernel().Taps(p.Grids[term.From], part, o)
				convolution.Plain(taps, sorted, sums[o/grid.ColumnPitch], o%grid.ColumnPitch)
				return nil
			})
		}
	}
	for part := range sums {
		p.addBias(layer, part, sums[part])
	}
	return sums
}

// addBias adds a layer's bias at the places of one polynomial of its output.
func (p *Plan) addBias(layer, polynomial int, values []float64) {
	grid := p.Grids[layer+1]
	begin, end := grid.ChannelsOf(polynomial)
	for c := begin; c < end; c++ {
		bias := p.Network.Layers[layer].Bias[c]
		for i := range grid.Height {
			for j := range grid.Width {
				values[grid.At(c, i, j)] += bias
			}
		}
	}
}

func largest(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, math.Abs(v))
	}
	return most
}
