package network

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/answer"
	"jaguar/fhe/bootstrap"
	"jaguar/fhe/convolution"
	"jaguar/fhe/keys"
	"jaguar/fhe/layout"
	"jaguar/fhe/packing"
	"jaguar/fhe/parameters"
)

// Evaluator evaluates networks for one client.
type Evaluator struct {
	plan    *Plan
	server  *keys.Server
	set     *parameters.Set
	circuit *bootstrap.Evaluator
	packer  *packing.Packer
	encoder *ckks.Encoder
	ckks    *ckks.Evaluator
	masks   map[layout.Grid]bootstrap.Mask
}

// Times are how long each phase took.
type Times struct {
	Convolution, Packing time.Duration
	bootstrap.Times
}

// NewEvaluator prepares a calibrated plan for a client's keys.
func NewEvaluator(plan *Plan, server *keys.Server) (*Evaluator, error) {
	set := server.Set()
	if plan.Values != set.Values() {
		return nil, fmt.Errorf("network: planned for %d values a ciphertext, the parameters have %d", plan.Values, set.Values())
	}
	if err := plan.Calibrated(); err != nil {
		return nil, err
	}
	circuit, err := bootstrap.New(server)
	if err != nil {
		return nil, err
	}
	packer, err := packing.New(set.CKKS(), server.Packing(), set.InputLevel())
	if err != nil {
		return nil, err
	}
	e := &Evaluator{
		plan: plan, server: server, set: set, circuit: circuit, packer: packer,
		encoder: ckks.NewEncoder(set.CKKS()), ckks: ckks.NewEvaluator(set.CKKS(), nil),
		masks: map[layout.Grid]bootstrap.Mask{},
	}
	for _, grid := range plan.Grids[1:] {
		if _, there := e.masks[grid]; there {
			continue
		}
		if e.masks[grid], err = circuit.Mask(grid.Mask(plan.Values)); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Evaluate computes the encrypted logits of an encrypted input. progress, unless nil, is called after each layer, with the layer's
// times.
func (e *Evaluator) Evaluate(input *rlwe.Ciphertext, progress func(layer, layers int, times Times)) (*rlwe.Ciphertext, error) {
	if input.Degree() != 1 || input.Level() != e.set.InputLevel() {
		return nil, fmt.Errorf("network: the input has degree %d and level %d, not 1 and %d",
			input.Degree(), input.Level(), e.set.InputLevel())
	}
	layers := len(e.plan.Network.Layers)
	values := []*rlwe.Ciphertext{input}
	for i := range e.plan.Network.Layers {
		var times Times
		ct, err := e.layer(i, values, &times)
		if err != nil {
			return nil, fmt.Errorf("network: layer %d (%s): %w", i, e.plan.Network.Layers[i].Name, err)
		}
		values = append(values, ct)
		if progress != nil {
			progress(i+1, layers+1, times)
		}
	}
	var times Times
	logits, err := e.output(values, &times)
	if err != nil {
		return nil, fmt.Errorf("network: output: %w", err)
	}
	if progress != nil {
		progress(layers+1, layers+1, times)
	}
	return logits, nil
}

// bounds are those of all values: the input's, then the layers'.
func (p *Plan) bound(value int) float64 {
	if value == 0 {
		return p.Network.InputBound
	}
	return p.Network.Layers[value-1].Bound
}

// sums are the ciphertexts r_o of a layer, at the input level; logScale is log2 of the integer that stands for the layer's bound.
func (e *Evaluator) sums(layer *Layer, values []*rlwe.Ciphertext, logScale float64) ([]*rlwe.Ciphertext, error) {
	sums := make([]*rlwe.Ciphertext, layer.Terms[0].Out)
	err := parallel(len(sums), func(o int) error {
		sum := ckks.NewCiphertext(e.set.CKKS(), 1, e.set.InputLevel())
		sum.IsBatched = false
		for _, term := range layer.Terms {
			from := values[term.From]
			// Ciphertexts carry values divided by their bounds.
			scale := math.Exp2(logScale) / from.Scale.Float64() * e.plan.bound(term.From) / layer.Bound
			kernel, err := convolution.Encode(e.set, term.Kernel().Taps(e.plan.Grids[term.From], o), scale)
			if err != nil {
				return err
			}
			convolution.MulThenAdd(e.set, from, kernel, sum)
		}
		sum.Scale = rlwe.NewScale(math.Exp2(logScale))
		sums[o] = sum
		return nil
	})
	return sums, err
}

// layer computes value index+1.
func (e *Evaluator) layer(index int, values []*rlwe.Ciphertext, times *Times) (*rlwe.Ciphertext, error) {
	begin := time.Now()
	layer, grid := &e.plan.Network.Layers[index], e.plan.Grids[index+1]
	params := e.set.CKKS()
	merges := bits.Len(uint(grid.ColumnPitch)) - 1
	logRaised := math.Log2(e.set.RaisedScale())
	// Packing multiplies by 2^merges, rescaling divides by the last modulus.
	sums, err := e.sums(layer, values, logRaised-float64(merges)+math.Log2(float64(params.Q()[e.set.InputLevel()])))
	if err != nil {
		return nil, err
	}
	all := make([]*rlwe.Ciphertext, grid.ColumnPitch)
	err = parallel(len(sums), func(o int) error {
		all[o] = ckks.NewCiphertext(params, 1, e.set.InputLevel()-1)
		return e.ckks.Rescale(sums[o], all[o])
	})
	if err != nil {
		return nil, err
	}
	times.Convolution = time.Since(begin)
	begin = time.Now()
	packed, _, err := e.packer.Pack(all, merges+bits.Len(uint(e.set.Gap()))-1)
	if err != nil {
		return nil, err
	}
	if err := e.addBias(index, packed); err != nil {
		return nil, err
	}
	times.Packing = time.Since(begin)
	return e.circuit.Layer(packed, e.masks[grid], &times.Times)
}

// addBias adds bias/bound at the places of the layer's output.
func (e *Evaluator) addBias(index int, ct *rlwe.Ciphertext) error {
	places := make([]float64, e.plan.Values)
	e.plan.addBias(index, places)
	spread := make([]float64, e.set.CKKS().N())
	for v, bias := range places {
		spread[v*e.set.Gap()] = bias / e.plan.Network.Layers[index].Bound
	}
	plaintext := ckks.NewPlaintext(e.set.CKKS(), ct.Level())
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(e.set.RaisedScale())
	if err := e.encoder.Encode(spread, plaintext); err != nil {
		return fmt.Errorf("bias: %w", err)
	}
	e.set.CKKS().RingQ().AtLevel(ct.Level()).Add(ct.Value[0], plaintext.Value, ct.Value[0])
	return nil
}

// output makes the logits, gathers them, removes all else, and hides the noise.
func (e *Evaluator) output(values []*rlwe.Ciphertext, times *Times) (*rlwe.Ciphertext, error) {
	begin := time.Now()
	layer, params := &e.plan.Network.Output, e.set.CKKS()
	// Packing and trace multiply by N in all.
	logScale := float64(answer.LogScale(e.set) - params.LogN())
	sums, err := e.sums(layer, values, logScale)
	if err != nil {
		return nil, err
	}
	// The logit of r_o is its coefficient 0, and so is its bias's place.
	ringQ := params.RingQ().AtLevel(e.set.InputLevel())
	for o, bias := range layer.Bias {
		plaintext := ckks.NewPlaintext(params, e.set.InputLevel())
		plaintext.IsBatched = false
		plaintext.Scale = rlwe.NewScale(math.Exp2(logScale))
		if err := e.encoder.Encode([]float64{bias / layer.Bound}, plaintext); err != nil {
			return nil, fmt.Errorf("bias: %w", err)
		}
		ringQ.Add(sums[o].Value[0], plaintext.Value, sums[o].Value[0])
	}
	times.Convolution = time.Since(begin)
	begin = time.Now()
	packed, merges, err := e.packer.Pack(sums, params.LogN())
	if err != nil {
		return nil, err
	}
	if err := e.packer.Trace(packed, params.LogN()-merges); err != nil {
		return nil, err
	}
	if err := answer.Flood(e.server, packed, answer.Derive(e.set, params.XsHammingWeight(), e.plan.Outputs)); err != nil {
		return nil, err
	}
	times.Packing = time.Since(begin)
	return packed, nil
}

// parallel calls f(0) to f(n-1) on as many goroutines as there are processors, and returns the first error.
func parallel(n int, f func(i int) error) error {
	workers := min(n, runtime.GOMAXPROCS(0))
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
