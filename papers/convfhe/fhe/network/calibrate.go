package network

import (
	"fmt"
	"math"
)

const (
	// enough samples that differ from each other are ten: with fewer, bounds say little.
	enough = 10
	// alike are two samples that differ by less than this part of the input's range, as a root of the mean square over all places.
	// (Any two of forty pictures of CIFAR differ by 0.14; a wall of bricks and a lawn by 0.05.)
	alike = 0.04
	// farthest is what [Simulation.Reach] says of all that is farther.
	farthest = 1e9
)

// Inputs are what a network is calibrated with.
type Inputs struct {
	// Samples are inputs like those that will come.
	Samples [][]float64
	// Margin is by how much others may exceed them.
	Margin float64
	// Stress are made-up inputs that lie far out: single colours, stripes, noise. There may be none.
	Stress [][]float64
	// StressMargin is by how much others may exceed those.
	StressMargin float64
}

// Calibration is what a calibration found.
type Calibration struct {
	Samples int `json:"samples"`
	Stress  int `json:"stress"`
	// Distinct is how many of the samples differ from those before them.
	Distinct int `json:"distinct"`
	// LeftOut is how far a sample reaches at most, by the bounds that all others give: 1 is a bound.
	LeftOut float64 `json:"left_out"`
	// Stressed is how many bounds the made-up inputs set, and Stretch by how much they raise one at most.
	Stressed int     `json:"stressed"`
	Stretch  float64 `json:"stretch"`
	// Warnings are for the operator.
	Warnings []string `json:"warnings"`
}

// Calibrate sets every layer's bound: the largest absolute value that samples give anywhere, times their margin, or made-up inputs
// times theirs, whichever is more. A value beyond the bound spoils an answer, and only that, so a larger margin costs precision and a
// smaller one safety.
func (p *Plan) Calibrate(inputs Inputs) (*Calibration, error) {
	if len(inputs.Samples) == 0 || !(inputs.Margin >= 1) || !(inputs.StressMargin >= 1) {
		return nil, fmt.Errorf("network: calibration with %d samples and the margins %g and %g",
			len(inputs.Samples), inputs.Margin, inputs.StressMargin)
	}
	all := p.Network.all()
	reaches := func(what string, inputs [][]float64, margin float64) ([][]float64, []float64, error) {
		each, most := make([][]float64, len(inputs)), make([]float64, len(all))
		for i, input := range inputs {
			if most := largest(input); !(most <= p.Network.InputBound) {
				return nil, nil, fmt.Errorf("network: %s %d has the value %g, the input's bound is %g", what, i, most, p.Network.InputBound)
			}
			each[i] = make([]float64, len(all))
			if _, err := p.Plain(input, Exact, func(layer int, reach float64) {
				each[i][layer] = reach
				most[layer] = max(most[layer], margin*reach)
			}); err != nil {
				return nil, nil, err
			}
		}
		return each, most, nil
	}
	each, bySamples, err := reaches("sample", inputs.Samples, inputs.Margin)
	if err != nil {
		return nil, err
	}
	_, byStress, err := reaches("made-up input", inputs.Stress, inputs.StressMargin)
	if err != nil {
		return nil, err
	}
	found := &Calibration{
		Samples: len(inputs.Samples), Stress: len(inputs.Stress), Distinct: p.distinct(inputs.Samples), Stretch: 1, Warnings: []string{},
	}
	for i, layer := range all {
		if bySamples[i] == 0 {
			return nil, fmt.Errorf("network: layer %d (%s) is 0 for all samples", i, layer.Name)
		}
		layer.Bound = max(bySamples[i], byStress[i])
		if layer.Bound > bySamples[i] {
			found.Stressed++
			found.Stretch = max(found.Stretch, layer.Bound/bySamples[i])
		}
	}
	if found.Distinct < found.Samples {
		found.Warnings = append(found.Warnings, fmt.Sprintf(
			"the samples are too alike: of %d only %d differ from those before them by %g %% of the input's range or more; the others add nothing",
			found.Samples, found.Distinct, 100*alike))
	}
	if found.Distinct < enough {
		found.Warnings = append(found.Warnings, fmt.Sprintf(
			"%d different samples are few to find bounds with: give %d or more, like those that will come", found.Distinct, enough))
	}
	if len(each) < 2 {
		return found, nil
	}
	worst, where := 0, 0
	for sample, own := range each {
		for layer, reach := range own {
			bound := byStress[layer]
			for other := range each {
				if other != sample {
					bound = max(bound, inputs.Margin*each[other][layer])
				}
			}
			// Where all others are 0, no factor says how unlike it is.
			if times := reach / bound; bound > 0 && times > found.LeftOut {
				found.LeftOut, worst, where = times, sample, layer
			}
		}
	}
	if found.LeftOut > 1 {
		found.Warnings = append(found.Warnings, fmt.Sprintf(
			"sample %d would leave the bounds that the others give (%.2f times, at %s): inputs like it are missing. Give more samples, or a larger --margin",
			worst, found.LeftOut, all[where].Name))
	}
	return found, nil
}

// distinct counts samples that are not [alike] to one that was counted before.
func (p *Plan) distinct(samples [][]float64) int {
	var counted [][]float64
	for _, sample := range samples {
		near := false
		for _, other := range counted {
			sum := 0.0
			for i, x := range sample {
				sum += (x - other[i]) * (x - other[i])
			}
			near = near || math.Sqrt(sum/float64(len(sample))) < alike*2*p.Network.InputBound
		}
		if !near {
			counted = append(counted, sample)
		}
	}
	return len(counted)
}

// Simulation is what an input does to a calibrated network, as [Evaluator.Evaluate] would compute it, without noise.
type Simulation struct {
	// Reach is the largest absolute value of the input, before a ReLU, or of a logit, divided by its bound: above 1 there is no answer, or
	// it means nothing.
	Reach float64 `json:"reach"`
	// Layer is where that is.
	Layer string `json:"layer"`
	// Logits are those of the polynomial; none if a value left its interval. Exact are those of ReLU itself.
	Logits []float64 `json:"logits"`
	Exact  []float64 `json:"exact"`
}

// Simulate evaluates a calibrated network in floating point, with ReLU and with its polynomial.
func (p *Plan) Simulate(input []float64) (*Simulation, error) {
	if err := p.Calibrated(); err != nil {
		return nil, err
	}
	all, made := p.Network.all(), new(Simulation)
	// A client does not encrypt what is beyond.
	if most := largest(input); !(most <= p.Network.InputBound) {
		made.Reach, made.Layer = min(most/p.Network.InputBound, farthest), "the input"
		if math.IsNaN(most) {
			return nil, fmt.Errorf("network: the input has what is no number")
		}
	}
	look := func(layer int, reach float64) {
		times := reach / all[layer].Bound
		// The polynomial gives infinities, which JSON does not know, and what is no number.
		if !(times <= farthest) {
			times = farthest
		}
		if times > made.Reach {
			made.Reach, made.Layer = times, all[layer].Name
		}
	}
	var err error
	if made.Exact, err = p.plain(input, Exact, true, look); err != nil || made.Reach > 1 {
		return made, err
	}
	if made.Logits, err = p.plain(input, p.ReLU.Plain, true, look); made.Reach > 1 {
		made.Logits = nil
	}
	return made, err
}
