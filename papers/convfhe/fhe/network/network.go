// Package network evaluates a whole network in one round: what it consists of, where its values stand, its plaintext twin, and its
// evaluation on ciphertexts.
package network

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"

	"jaguar/fhe/convolution"
	"jaguar/fhe/layout"
	"jaguar/fhe/parameters"
	"jaguar/fhe/relu"
)

// Limits on what a description may say.
const (
	maxLayers   = 1000
	maxChannels = 1 << 16
	maxSide     = 1 << 12
)

// Network is a description, as JSON and in memory. Value 0 is the input, value i the output of layer i-1. Each layer is
//
//	value = ReLU(Σ over terms of convolution(value `from`) + bias)
//
// and the output the same without ReLU, with one number a channel.
type Network struct {
	// Name of the model, for people.
	Name string `json:"name"`
	// Input is the shape [C, H, W].
	Input [3]int `json:"input"`
	// InputBound is the largest absolute value of an input.
	InputBound float64 `json:"input_bound"`
	// ReLU names the polynomial that stands for it ([relu.ByName]). None is [relu.Default].
	ReLU string `json:"relu,omitempty"`
	// Layers in the order of evaluation.
	Layers []Layer `json:"layers"`
	// Output makes the logits.
	Output Layer `json:"output"`
}

// Layer is a sum of convolutions and a bias.
type Layer struct {
	// Name, for messages.
	Name string `json:"name"`
	// Terms are what is summed; their outputs have the same shape.
	Terms []Term `json:"terms"`
	// Bias is one number an output channel.
	Bias Floats `json:"bias"`
	// Bound is the largest absolute value before ReLU, at any place of the polynomial. 0 until [Network.Calibrate].
	Bound float64 `json:"bound,omitempty"`
}

// Term is a convolution of one value.
type Term struct {
	From   int `json:"from"`
	Out    int `json:"out"`
	In     int `json:"in"`
	Height int `json:"height"`
	Width  int `json:"width"`
	Stride int `json:"stride"`
	// Padding are rows and columns of zeros: top, left, bottom, right.
	Padding [4]int `json:"padding"`
	// Weights are [Out, In, Height, Width].
	Weights Floats `json:"weights"`
}

// Floats are numbers that JSON carries as the base64 of float32, little-endian.
type Floats []float64

// MarshalJSON writes base64. Numbers are rounded to float32.
func (f Floats) MarshalJSON() ([]byte, error) {
	raw := make([]byte, 4*len(f))
	for i, x := range f {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(x)))
	}
	return json.Marshal(raw)
}

// UnmarshalJSON reads base64. It fails at a length that is no multiple of four, and at what is not finite.
func (f *Floats) UnmarshalJSON(text []byte) error {
	var raw []byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("network: %d bytes of float32", len(raw))
	}
	values := make(Floats, len(raw)/4)
	for i := range values {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("network: number %d is %v", i, x)
		}
		values[i] = x
	}
	*f = values
	return nil
}

// Kernel is the term's convolution.
func (t Term) Kernel() convolution.Kernel {
	return convolution.Kernel{
		Out: t.Out, In: t.In, Height: t.Height, Width: t.Width, Stride: t.Stride,
		Top: t.Padding[0], Left: t.Padding[1], Bottom: t.Padding[2], Right: t.Padding[3],
		Weights: t.Weights,
	}
}

// Parse reads a description and checks it, except for its bounds.
func Parse(text []byte) (*Network, error) {
	n := new(Network)
	if err := json.Unmarshal(text, n); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if _, err := n.shapes(); err != nil {
		return nil, err
	}
	return n, nil
}

// shapes of all values, the output's last. It fails at the first layer that does not fit what it takes.
func (n *Network) shapes() ([][3]int, error) {
	if len(n.Layers) > maxLayers {
		return nil, fmt.Errorf("network: %d layers, at most %d", len(n.Layers), maxLayers)
	}
	if c, h, w := n.Input[0], n.Input[1], n.Input[2]; c < 1 || h < 1 || w < 1 || c > maxChannels || h > maxSide || w > maxSide {
		return nil, fmt.Errorf("network: input [%d, %d, %d]", c, h, w)
	}
	if !(n.InputBound > 0) || math.IsInf(n.InputBound, 0) {
		return nil, fmt.Errorf("network: bound %g of the input", n.InputBound)
	}
	shapes := [][3]int{n.Input}
	for i, layer := range n.all() {
		shape, err := layer.shape(shapes)
		if err != nil {
			return nil, fmt.Errorf("network: layer %d (%s): %w", i, layer.Name, err)
		}
		shapes = append(shapes, shape)
	}
	if last := shapes[len(shapes)-1]; last[1] != 1 || last[2] != 1 {
		return nil, fmt.Errorf("network: the output is [%d, %d, %d], not one number a channel", last[0], last[1], last[2])
	}
	return shapes, nil
}

// all are the layers and the output.
func (n *Network) all() []*Layer {
	all := make([]*Layer, 0, len(n.Layers)+1)
	for i := range n.Layers {
		all = append(all, &n.Layers[i])
	}
	return append(all, &n.Output)
}

// shape of the layer's output, from those of the values before it.
func (l *Layer) shape(before [][3]int) (shape [3]int, err error) {
	if len(l.Terms) == 0 {
		return shape, fmt.Errorf("no terms")
	}
	for i, term := range l.Terms {
		if term.From < 0 || term.From >= len(before) {
			return shape, fmt.Errorf("term %d takes value %d of %d", i, term.From, len(before))
		}
		from := before[term.From]
		for _, size := range []int{term.Out, term.In, term.Height, term.Width, term.Stride} {
			if size < 1 || size > maxChannels {
				return shape, fmt.Errorf("term %d: size %d", i, size)
			}
		}
		kernel := term.Kernel()
		if err := kernel.Check(); err != nil {
			return shape, fmt.Errorf("term %d: %w", i, err)
		}
		if term.In != from[0] {
			return shape, fmt.Errorf("term %d takes %d channels, value %d has %d", i, term.In, term.From, from[0])
		}
		height, width, err := kernel.OutputSize(from[1], from[2])
		if err != nil {
			return shape, fmt.Errorf("term %d: %w", i, err)
		}
		made := [3]int{term.Out, height, width}
		if i > 0 && made != shape {
			return shape, fmt.Errorf("term %d makes %v, the terms before it %v", i, made, shape)
		}
		shape = made
	}
	if len(l.Bias) != shape[0] {
		return shape, fmt.Errorf("%d numbers of bias for %d channels", len(l.Bias), shape[0])
	}
	if l.Bound < 0 || math.IsNaN(l.Bound) || math.IsInf(l.Bound, 0) {
		return shape, fmt.Errorf("bound %g", l.Bound)
	}
	return shape, nil
}

// Plan is a network whose values have their places in ciphertexts.
type Plan struct {
	Network *Network
	// Values is how many values a ciphertext carries.
	Values int
	// Grids are where the input and each layer's output stand, each in one ciphertext or more.
	Grids []layout.Grid
	// Outputs is how many logits there are.
	Outputs int
	// ReLU is the polynomial that stands for it.
	ReLU relu.Option
}

// NewPlan places all values in ciphertexts of m values, a power of two. As many channels share a ciphertext as fit. It fails, and
// says at which layer and why, if rows and columns of one channel do not fit into one, or if terms of one sum would leave their
// outputs at different places.
func NewPlan(n *Network, m int) (*Plan, error) {
	shapes, err := n.shapes()
	if err != nil {
		return nil, err
	}
	option, err := relu.ByName(n.ReLU)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	// What each value's consumers pad it with, and by how much strides spread it.
	padding, spread := make([]int, len(shapes)), make([]int, len(shapes))
	spread[0] = 1
	for i, layer := range n.all() {
		for _, term := range layer.Terms {
			padding[term.From] = max(padding[term.From], term.Kernel().Padding())
			if spread[i+1] = spread[term.From] * term.Stride; spread[i+1] > m {
				return nil, fmt.Errorf("network: layer %d (%s): strides of %d in all", i, layer.Name, spread[i+1])
			}
		}
	}
	margin, need := 0, 1
	for v, shape := range shapes[:len(shapes)-1] {
		margin = max(margin, shape[2]+padding[v]-n.Input[2])
		need = max(need, (shape[0]+spread[v]-1)/spread[v])
	}
	outputs := shapes[len(shapes)-1][0]
	if outputs > m {
		return nil, fmt.Errorf("network: %d outputs, a ciphertext has %d values", outputs, m)
	}
	var grids []layout.Grid
	for pitch := 1 << bits.Len(uint(need-1)); pitch > 0; pitch /= 2 {
		if grids, err = n.place(shapes, padding, margin, pitch, m); err == nil {
			return &Plan{Network: n, Values: m, Grids: grids, Outputs: outputs, ReLU: option}, nil
		}
	}
	return nil, err
}

// place gives the input so many values a place, and all other values what follows from it.
func (n *Network) place(shapes [][3]int, padding []int, margin, pitch, m int) ([]layout.Grid, error) {
	first, err := layout.New(n.Input[0], n.Input[1], n.Input[2], margin, pitch)
	if err != nil {
		return nil, err
	}
	grids := []layout.Grid{first}
	for i, layer := range n.Layers {
		shape := shapes[i+1]
		var grid layout.Grid
		for t, term := range layer.Terms {
			made, err := grids[term.From].Strided(shape[0], shape[1], shape[2], term.Stride)
			if err != nil {
				return nil, fmt.Errorf("network: layer %d (%s): %w", i, layer.Name, err)
			}
			if t > 0 && made != grid {
				return nil, fmt.Errorf("network: layer %d (%s): term %d leaves its output at other places than the terms before it",
					i, layer.Name, t)
			}
			grid = made
		}
		grids = append(grids, grid)
	}
	for v, grid := range grids {
		if err := grid.Fits(padding[v], m); err != nil {
			return nil, fmt.Errorf("network: value %d: %w", v, err)
		}
	}
	return grids, nil
}

// Check fails if the plan was not made for ciphertexts of this set, or if the set has too few levels for its ReLU.
func (p *Plan) Check(set *parameters.Set) error {
	if p.Values != set.Values() {
		return fmt.Errorf("network: planned for %d values a ciphertext, parameter set %q has %d", p.Values, set.Name(), set.Values())
	}
	if need, there := p.ReLU.Levels(), set.ReLULevels(); need > there {
		return fmt.Errorf("network: ReLU by %s takes %d levels, parameter set %q has %d", p.ReLU.Name(), need, set.Name(), there)
	}
	return nil
}

// Calibrated fails if a layer has no bound.
func (p *Plan) Calibrated() error {
	for i, layer := range p.Network.all() {
		if !(layer.Bound > 0) {
			return fmt.Errorf("network: layer %d (%s) has no bound: calibrate the network with samples first", i, layer.Name)
		}
	}
	return nil
}
