package network

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/answer"
	"jaguar/fhe/bootstrap"
	"jaguar/fhe/concurrent"
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
	// masks are one a ciphertext of a value.
	masks map[layout.Grid][]bootstrap.Mask
	// kernels are polynomials to encode weights into.
	kernels sync.Pool
}

// Times are how long each phase took.
type Times struct {
	Convolution, Packing time.Duration
	bootstrap.Times
}

// Total is all of it.
func (t *Times) Total() time.Duration {
	return t.Convolution + t.Packing + t.CtoS + t.Sine + t.ReLU + t.StoC
}

// phases are all of them, in order.
func (t *Times) phases() []*time.Duration {
	return []*time.Duration{&t.Convolution, &t.Packing, &t.CtoS, &t.Sine, &t.ReLU, &t.StoC}
}

func (t *Times) add(other Times) {
	for i, phase := range t.phases() {
		*phase += *other.phases()[i]
	}
}

// shrink makes the sum of phases that ran beside each other the time that elapsed.
func (t *Times) shrink(elapsed time.Duration) {
	if total := t.Total(); total > elapsed {
		for _, phase := range t.phases() {
			*phase = time.Duration(float64(*phase) * float64(elapsed) / float64(total))
		}
	}
}

// NewEvaluator prepares a calibrated plan for a client's keys.
func NewEvaluator(plan *Plan, server *keys.Server) (*Evaluator, error) {
	set := server.Set()
	if err := plan.Check(set); err != nil {
		return nil, err
	}
	circuit, err := bootstrap.New(server, plan.ReLU)
	if err != nil {
		return nil, err
	}
	packer, err := packing.New(set.CKKS(), server.Packing(), set.InputLevel())
	if err != nil {
		return nil, err
	}
	return newEvaluator(plan, server, circuit, packer)
}

// With is an evaluator of another plan for the same client, with the same matrices. ReLU's polynomial stays.
func (e *Evaluator) With(plan *Plan) (*Evaluator, error) {
	if err := plan.Check(e.set); err != nil {
		return nil, err
	}
	if plan.ReLU.Name() != e.plan.ReLU.Name() {
		return nil, fmt.Errorf("network: ReLU by %s, this evaluator has %s", plan.ReLU.Name(), e.plan.ReLU.Name())
	}
	return newEvaluator(plan, e.server, e.circuit, e.packer)
}

func newEvaluator(plan *Plan, server *keys.Server, circuit *bootstrap.Evaluator, packer *packing.Packer) (*Evaluator, error) {
	if err := plan.Calibrated(); err != nil {
		return nil, err
	}
	set := server.Set()
	e := &Evaluator{
		plan: plan, server: server, set: set, circuit: circuit, packer: packer,
		encoder: ckks.NewEncoder(set.CKKS()), ckks: ckks.NewEvaluator(set.CKKS(), nil),
		masks: map[layout.Grid][]bootstrap.Mask{},
	}
	e.kernels.New = func() any {
		poly := set.CKKS().RingQ().AtLevel(set.InputLevel()).NewPoly()
		return &poly
	}
	for _, grid := range plan.Grids[1:] {
		if _, there := e.masks[grid]; there {
			continue
		}
		for _, keep := range grid.Masks(plan.Values) {
			mask, err := circuit.Mask(keep)
			if err != nil {
				return nil, err
			}
			e.masks[grid] = append(e.masks[grid], mask)
		}
	}
	return e, nil
}

// Evaluate computes the encrypted logits of an encrypted input, which is one ciphertext or more. progress, unless nil, is called
// after each layer, with the layer's times.
func (e *Evaluator) Evaluate(input []*rlwe.Ciphertext, progress func(layer, layers int, times Times)) (*rlwe.Ciphertext, error) {
	return e.EvaluateFirst(input, 0, progress)
}

// EvaluateFirst is [Evaluator.Evaluate] up to layer number `first`, the logits left out, unless that is 0. It is for benchmarks.
func (e *Evaluator) EvaluateFirst(
	input []*rlwe.Ciphertext, first int, progress func(layer, layers int, times Times),
) (*rlwe.Ciphertext, error) {
	if want := e.plan.Grids[0].Polynomials(); len(input) != want {
		return nil, fmt.Errorf("network: the input has %d ciphertexts, not %d", len(input), want)
	}
	for _, ct := range input {
		if ct.Degree() != 1 || ct.Level() != e.set.InputLevel() {
			return nil, fmt.Errorf("network: the input has degree %d and level %d, not 1 and %d",
				ct.Degree(), ct.Level(), e.set.InputLevel())
		}
	}
	layers := len(e.plan.Network.Layers)
	values := [][]*rlwe.Ciphertext{input}
	for i := range e.plan.Network.Layers {
		var times Times
		made, err := e.layer(i, values, &times)
		if err != nil {
			return nil, fmt.Errorf("network: layer %d (%s): %w", i, e.plan.Network.Layers[i].Name, err)
		}
		values = append(values, made)
		if progress != nil {
			progress(i+1, layers+1, times)
		}
		if i+1 == first {
			return nil, nil
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

// sum is the ciphertext r_o of a layer, at the input level; logScale is log2 of the integer that stands for the layer's bound. It is
// nil where every weight is 0.
func (e *Evaluator) sum(layer *Layer, o int, values [][]*rlwe.Ciphertext, logScale float64) (*rlwe.Ciphertext, error) {
	poly := e.kernels.Get().(*ring.Poly)
	defer e.kernels.Put(poly)
	var sum *rlwe.Ciphertext
	for _, term := range layer.Terms {
		for part, from := range values[term.From] {
			taps := term.Kernel().Taps(e.plan.Grids[term.From], part, o)
			if len(taps) == 0 {
				continue
			}
			// Ciphertexts carry values divided by their bounds.
			scale := math.Exp2(logScale) / from.Scale.Float64() * e.plan.bound(term.From) / layer.Bound
			if err := convolution.EncodeInto(e.set, taps, scale, *poly); err != nil {
				return nil, err
			}
			if sum == nil {
				sum = ckks.NewCiphertext(e.set.CKKS(), 1, e.set.InputLevel())
				sum.IsBatched = false
				sum.Scale = rlwe.NewScale(math.Exp2(logScale))
			}
			convolution.MulThenAdd(e.set, from, *poly, sum)
		}
	}
	return sum, nil
}

// check is the sum of values at places that hold zero, one place of each ciphertext of which the logits are sums; see [Plan.Checks].
// Weights are the integer 1: what noise stands there comes out far below the noise of the answer, and only what has filled the
// modulus comes out at all.
func (e *Evaluator) check(index int, values [][]*rlwe.Ciphertext, logScale float64) (*rlwe.Ciphertext, error) {
	poly := e.kernels.Get().(*ring.Poly)
	defer e.kernels.Put(poly)
	sum := ckks.NewCiphertext(e.set.CKKS(), 1, e.set.InputLevel())
	sum.IsBatched = false
	sum.Scale = rlwe.NewScale(math.Exp2(logScale))
	for _, at := range e.plan.idle() {
		place := at.places[index%len(at.places)]
		if err := convolution.EncodeInto(e.set, []convolution.Tap{{Offset: place, Weight: 1}}, 1, *poly); err != nil {
			return nil, err
		}
		convolution.MulThenAdd(e.set, values[at.value][at.part], *poly, sum)
	}
	return sum, nil
}

// clock tells what a phase takes that several goroutines do beside another one.
type clock struct{ total atomic.Int64 }

// since adds the time since begin.
func (c *clock) since(begin time.Time) { c.total.Add(int64(time.Since(begin))) }

// of is its share of an elapsed time on all processors.
func (c *clock) of(elapsed time.Duration) time.Duration {
	return min(elapsed, time.Duration(c.total.Load()/int64(runtime.GOMAXPROCS(0))))
}

// layer computes value index+1.
func (e *Evaluator) layer(index int, values [][]*rlwe.Ciphertext, times *Times) ([]*rlwe.Ciphertext, error) {
	grid := e.plan.Grids[index+1]
	made := make([]*rlwe.Ciphertext, grid.Polynomials())
	apart := make([]Times, len(made))
	begin := time.Now()
	// Each holds hundreds of megabytes of rotations, so no more than two at a time.
	err := concurrent.Few(2, len(made), func(part int) error {
		packed, err := e.convolve(index, part, values, &apart[part])
		if err != nil {
			return err
		}
		made[part], err = e.circuit.Layer(packed, e.masks[grid][part], &apart[part].Times)
		return err
	})
	for _, part := range apart {
		times.add(part)
	}
	times.shrink(time.Since(begin))
	return made, err
}

// convolve computes and packs the channels of one ciphertext of a layer, before ReLU, at level 0.
func (e *Evaluator) convolve(index, part int, values [][]*rlwe.Ciphertext, times *Times) (*rlwe.Ciphertext, error) {
	begin := time.Now()
	layer, grid, params := &e.plan.Network.Layers[index], e.plan.Grids[index+1], e.set.CKKS()
	merges := bits.Len(uint(grid.ColumnPitch)) - 1
	// Packing multiplies by 2^merges, rescaling divides by the last modulus.
	logScale := math.Log2(e.set.RaisedScale()) - float64(merges) + math.Log2(float64(params.Q()[e.set.InputLevel()]))
	first, end := grid.ChannelsOf(part)
	var products clock
	packed, _, err := e.packer.Pack(grid.ColumnPitch, func(c int) (*rlwe.Ciphertext, error) {
		if first+c >= end {
			return nil, nil
		}
		defer products.since(time.Now())
		sum, err := e.sum(layer, first+c, values, logScale)
		if err != nil {
			return nil, err
		}
		rescaled := ckks.NewCiphertext(params, 1, e.set.InputLevel()-1)
		if sum == nil {
			return rescaled, nil
		}
		return rescaled, e.ckks.Rescale(sum, rescaled)
	}, merges+bits.Len(uint(e.set.Gap()))-1)
	if err != nil {
		return nil, err
	}
	if err := e.addBias(index, part, packed); err != nil {
		return nil, err
	}
	elapsed := time.Since(begin)
	times.Convolution += products.of(elapsed)
	times.Packing += elapsed - products.of(elapsed)
	return packed, nil
}

// addBias adds bias/bound at the places of one ciphertext of the layer's output.
func (e *Evaluator) addBias(index, part int, ct *rlwe.Ciphertext) error {
	places := make([]float64, e.plan.Values)
	e.plan.addBias(index, part, places)
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
func (e *Evaluator) output(values [][]*rlwe.Ciphertext, times *Times) (*rlwe.Ciphertext, error) {
	begin := time.Now()
	layer, params := &e.plan.Network.Output, e.set.CKKS()
	// Packing and trace multiply by N in all.
	logScale := float64(answer.LogScale(e.set) - params.LogN())
	ringQ := params.RingQ().AtLevel(e.set.InputLevel())
	var products clock
	count := e.plan.Outputs + e.plan.Checks()
	packed, merges, err := e.packer.Pack(count, func(o int) (*rlwe.Ciphertext, error) {
		defer products.since(time.Now())
		if o >= e.plan.Outputs {
			return e.check(o-e.plan.Outputs, values, logScale)
		}
		sum, err := e.sum(layer, o, values, logScale)
		if err != nil {
			return nil, err
		}
		if sum == nil {
			sum = ckks.NewCiphertext(params, 1, e.set.InputLevel())
			sum.Scale = rlwe.NewScale(math.Exp2(logScale))
		}
		// The logit of r_o is its coefficient 0, and so is its bias's place: in NTT form, the bias is added everywhere.
		bias, _ := big.NewFloat(layer.Bias[o] / layer.Bound * math.Exp2(logScale)).Int(nil)
		ringQ.AddScalarBigint(sum.Value[0], bias, sum.Value[0])
		return sum, nil
	}, params.LogN())
	if err != nil {
		return nil, err
	}
	if err := e.packer.Trace(packed, params.LogN()-merges); err != nil {
		return nil, err
	}
	if err := answer.Flood(e.server, packed, answer.Derive(e.set, params.XsHammingWeight(), count)); err != nil {
		return nil, err
	}
	elapsed := time.Since(begin)
	times.Convolution = products.of(elapsed)
	times.Packing = elapsed - products.of(elapsed)
	return packed, nil
}
