// Package bootstrap is the second half of a convolutional layer (Section IV-C of the paper): values come as coefficients at level 0,
// and leave as coefficients at the level of the next convolution, rectified.
//
//	level 0 → ModUp → CtoS → sine → ReLU, Ext → StoC → level 1
//
// CtoS moves coefficients into slots, so that ReLU works on each, and StoC moves them back. StoC works at a low level, where it is
// cheap. The order of the slots is known to [Evaluator.Mask] only.
package bootstrap

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/concurrent"
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
	"jaguar/fhe/relu"
)

// Evaluator evaluates layers. It may be used by several goroutines.
type Evaluator struct {
	set     *parameters.Set
	circuit *bootstrapping.Evaluator
	threads *concurrent.Evaluator
	relu    *relu.Evaluator
	// reluLevel is the level at which its polynomials begin.
	reluLevel int
	encoder   *ckks.Encoder
}

// Times are how long the phases of a layer took, as in Figure 6.
type Times struct {
	CtoS, Sine, ReLU, StoC time.Duration
}

// New prepares the matrices of CtoS and StoC, and ReLU's polynomials. It fails if these take more levels than there are.
func New(server *keys.Server, option relu.Option) (*Evaluator, error) {
	set := server.Set()
	if option.Levels() > set.ReLULevels() {
		return nil, fmt.Errorf("bootstrap: ReLU by %s takes %d levels, parameter set %q has %d",
			option.Name(), option.Levels(), set.Name(), set.ReLULevels())
	}
	circuit, err := bootstrapping.NewEvaluator(set.Circuit(), server.Circuit())
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	threads := concurrent.New(circuit.Evaluator)
	circuit.Mod1Evaluator.PolynomialEvaluator.Evaluator.Evaluator = threads
	return &Evaluator{
		set:       set,
		circuit:   circuit,
		threads:   threads,
		relu:      relu.New(set.CKKS(), threads, option),
		reluLevel: set.StoCLevel() + option.Levels(),
		encoder:   ckks.NewEncoder(set.CKKS()),
	}, nil
}

// Mask is which values a layer keeps, as plaintexts in the order of slots: one for each ciphertext between CtoS and StoC.
type Mask []*rlwe.Plaintext

// Mask encodes a mask of [parameters.Set.Values] entries, mostly 0 and 1.
func (e *Evaluator) Mask(mask []float64) (Mask, error) {
	if len(mask) != e.set.Values() {
		return nil, fmt.Errorf("bootstrap: a mask of %d values, not %d", len(mask), e.set.Values())
	}
	params := e.set.CKKS()
	level := e.reluLevel
	parts := [][]float64{mask}
	if e.set.Dense() {
		parts = [][]float64{mask[:len(mask)/2], mask[len(mask)/2:]}
	}
	var encoded Mask
	for _, part := range parts {
		plaintext := ckks.NewPlaintext(params, level)
		plaintext.Scale = rlwe.NewScale(params.Q()[level])
		plaintext.LogDimensions = ring.Dimensions{Rows: 0, Cols: logLength(len(part))}
		if err := e.encoder.Encode(slotOrder(part, len(mask)/2), plaintext); err != nil {
			return nil, fmt.Errorf("bootstrap: mask: %w", err)
		}
		encoded = append(encoded, plaintext)
	}
	return encoded, nil
}

func logLength(length int) int { return bits.Len(uint(length)) - 1 }

// slotOrder sorts values into the order in which CtoS leaves them in slots: each half of a polynomial's values is bit-reversed on
// its own (Appendix C).
func slotOrder(values []float64, half int) []float64 {
	sorted := make([]float64, len(values))
	shift := bits.UintSize - logLength(half)
	for begin := 0; begin < len(values); begin += half {
		for k := range half {
			sorted[begin+int(bits.Reverse(uint(k))>>shift)] = values[begin+k]
		}
	}
	return sorted
}

// Slots raises the modulus and moves the values of a ciphertext at level 0 into slots: one ciphertext, or two if every
// coefficient carries a value. Values are at most 1 at the scale [parameters.Set.RaisedScale]; they come out at
// [parameters.Set.ValueScale]. The ciphertext is overwritten.
func (e *Evaluator) Slots(ct *rlwe.Ciphertext, times *Times) ([]*rlwe.Ciphertext, error) {
	if ct.Level() != 0 {
		return nil, fmt.Errorf("bootstrap: the ciphertext has level %d, not 0", ct.Level())
	}
	begin := time.Now()
	ct.Scale = rlwe.NewScale(e.set.RaisedScale())
	ct.IsBatched = true
	ct.LogDimensions = ring.Dimensions{Rows: 0, Cols: e.set.Circuit().LogMaxSlots()}
	raised, err := e.raise(ct)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: ModUp: %w", err)
	}
	slots, err := e.toSlots(raised)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: CtoS: %w", err)
	}
	times.CtoS += time.Since(begin)
	begin = time.Now()
	// The amplitude of the sine takes the values from the scale before ModUp to that of ReLU, without a level.
	factor := e.set.ValueScale() / e.set.RaisedScale()
	err = concurrent.Each(len(slots), func(i int) error {
		reduced, err := e.circuit.Mod1Evaluator.EvaluateAndScaleNew(slots[i], complex(factor, 0))
		if err != nil {
			return fmt.Errorf("bootstrap: sine: %w", err)
		}
		reduced.Scale = e.set.CKKS().DefaultScale()
		slots[i] = reduced
		return nil
	})
	times.Sine += time.Since(begin)
	return slots, err
}

// toSlots multiplies by the matrices of CtoS, and sorts real and imaginary parts apart: the former into the first ciphertext, the
// latter into the second one, or into the other half of the first one's slots. It is CoeffsToSlots of Lattigo's dft.Evaluator.
func (e *Evaluator) toSlots(raised *rlwe.Ciphertext) ([]*rlwe.Ciphertext, error) {
	half := 1 << raised.LogDimensions.Cols
	both, err := e.threads.Transform(raised, e.circuit.C2SDFTMatrix)
	if err != nil {
		return nil, err
	}
	params := e.set.CKKS()
	real := ckks.NewCiphertext(params, 1, both.Level())
	if err := e.threads.Automorphism(both, params.GaloisElementForComplexConjugation(), real); err != nil {
		return nil, err
	}
	imaginary, err := e.circuit.SubNew(both, real)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.circuit.Mul(imaginary, -1i, imaginary), e.circuit.Add(real, both, real)); err != nil {
		return nil, err
	}
	if e.set.Dense() {
		return []*rlwe.Ciphertext{real, imaginary}, nil
	}
	if err := e.threads.Automorphism(imaginary, params.GaloisElement(half), imaginary); err != nil {
		return nil, err
	}
	return []*rlwe.Ciphertext{real}, e.circuit.Add(real, imaginary, real)
}

// Rectify is ReLU with Ext: it keeps what the mask keeps.
func (e *Evaluator) Rectify(slots []*rlwe.Ciphertext, mask Mask, times *Times) error {
	if len(slots) != len(mask) {
		return fmt.Errorf("bootstrap: %d ciphertexts and a mask for %d", len(slots), len(mask))
	}
	begin := time.Now()
	defer func() { times.ReLU += time.Since(begin) }()
	return concurrent.Each(len(slots), func(i int) error {
		// A polynomial of fewer levels than there are begins lower, where it costs less.
		if above := slots[i].Level() - e.reluLevel; above > 0 {
			e.circuit.DropLevel(slots[i], above)
		}
		rectified, err := e.relu.Evaluate(slots[i], mask[i])
		slots[i] = rectified
		return err
	})
}

// Coefficients moves slots back into coefficients, at [parameters.Set.InputLevel].
func (e *Evaluator) Coefficients(slots []*rlwe.Ciphertext, times *Times) (*rlwe.Ciphertext, error) {
	begin := time.Now()
	defer func() { times.StoC += time.Since(begin) }()
	values := slots[0]
	if len(slots) == 2 {
		var err error
		if values, err = e.circuit.MulNew(slots[1], 1i); err != nil {
			return nil, fmt.Errorf("bootstrap: StoC: %w", err)
		}
		if err := e.circuit.Add(values, slots[0], values); err != nil {
			return nil, fmt.Errorf("bootstrap: StoC: %w", err)
		}
	}
	ct, err := e.threads.Transform(values, e.circuit.S2CDFTMatrix)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: StoC: %w", err)
	}
	ct.IsBatched = false
	return ct, nil
}

// Layer is all of it: [Evaluator.Slots], [Evaluator.Rectify], [Evaluator.Coefficients].
func (e *Evaluator) Layer(ct *rlwe.Ciphertext, mask Mask, times *Times) (*rlwe.Ciphertext, error) {
	slots, err := e.Slots(ct, times)
	if err != nil {
		return nil, err
	}
	if err := e.Rectify(slots, mask, times); err != nil {
		return nil, err
	}
	return e.Coefficients(slots, times)
}
