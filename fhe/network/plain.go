package network

import (
	"fmt"
	"math"

	"jaguar/fhe/convolution"
	"jaguar/fhe/layout"
	"jaguar/fhe/relu"
)

// Rectifier is what a layer does with a value that was divided by the layer's bound.
type Rectifier func(x float64) float64

// Exact is ReLU; [relu.Plain] is what is evaluated on ciphertexts.
func Exact(x float64) float64 { return max(x, 0) }

// Approximate is the polynomial that is evaluated on ciphertexts.
func Approximate(x float64) float64 { return relu.Plain(x) }

// Plain computes the logits of an input [C, H, W] in floating point, over the same places as the ciphertexts, places that mean
// nothing included. seen, unless nil, gets each layer's largest absolute value before ReLU, the output's last; bounds are then not
// needed, and only [Exact] makes sense.
func (p *Plan) Plain(input []float64, rectify Rectifier, seen func(layer int, largest float64)) ([]float64, error) {
	if seen == nil {
		if err := p.Calibrated(); err != nil {
			return nil, err
		}
	}
	first, err := p.Grids[0].Scatter(input, p.Values)
	if err != nil {
		return nil, err
	}
	values := [][]float64{first}
	for i, layer := range p.Network.Layers {
		grid := p.Grids[i+1]
		sums := make([]float64, p.Values)
		for _, term := range layer.Terms {
			kernel := term.Kernel()
			for o := range term.Out {
				convolution.Plain(kernel.Taps(p.Grids[term.From], o), values[term.From], sums, grid.ColumnPitch, o)
			}
		}
		p.addBias(i, sums)
		bound := layer.Bound
		if seen != nil {
			seen(i, largest(sums))
			bound = 1
		}
		for v, keep := range grid.Mask(p.Values) {
			sums[v] = keep * bound * rectify(sums[v]/bound)
			if keep == 0 {
				sums[v] = 0
			}
		}
		values = append(values, sums)
	}
	output := p.Network.Output
	logits := make([]float64, p.Outputs)
	for _, term := range output.Terms {
		kernel := term.Kernel()
		for o := range logits {
			for _, tap := range kernel.Taps(p.Grids[term.From], o) {
				place, sign := layout.Wrap(tap.Offset, p.Values)
				logits[o] += sign * tap.Weight * values[term.From][place]
			}
		}
	}
	for o := range logits {
		logits[o] += output.Bias[o]
	}
	if seen != nil {
		seen(len(p.Network.Layers), largest(logits))
	}
	return logits, nil
}

// addBias adds a layer's bias at the places of its output.
func (p *Plan) addBias(layer int, values []float64) {
	grid := p.Grids[layer+1]
	for c, bias := range p.Network.Layers[layer].Bias {
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

// Calibrate sets every layer's bound: margin times the largest absolute value that the samples give anywhere. A value beyond the
// bound spoils an answer, and only that, so a larger margin costs precision and a smaller one safety.
func (p *Plan) Calibrate(samples [][]float64, margin float64) error {
	if len(samples) == 0 || !(margin >= 1) {
		return fmt.Errorf("network: calibration with %d samples and the margin %g", len(samples), margin)
	}
	bounds := make([]float64, len(p.Network.Layers)+1)
	for i, sample := range samples {
		if most := largest(sample); most > p.Network.InputBound {
			return fmt.Errorf("network: sample %d has the value %g, the input's bound is %g", i, most, p.Network.InputBound)
		}
		if _, err := p.Plain(sample, Exact, func(layer int, most float64) { bounds[layer] = max(bounds[layer], most) }); err != nil {
			return err
		}
	}
	for i, layer := range p.Network.all() {
		if bounds[i] == 0 {
			return fmt.Errorf("network: layer %d (%s) is 0 for all samples", i, layer.Name)
		}
		layer.Bound = margin * bounds[i]
	}
	return nil
}
