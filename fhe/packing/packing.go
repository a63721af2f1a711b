// Package packing gathers single coefficients of many ciphertexts in one: PackLWEs, Algorithm 2 of the paper (after Chen, Dai,
// Kim and Song, ACNS 2021), with an initial step.
//
//	ct = (even + X^t·odd) + φ(even - X^t·odd),   φ: X → X^(N/t + 1),   t = 2^(s-l)
//
// φ keeps X^i where 2t divides i, and negates it where only t does. So coefficients at multiples of 2t of `even`, and those of
// `odd` moved by t, are doubled, and the others of that kind vanish. No level is consumed.
package packing

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// Element is the exponent of φ for t = 2^logT, in a ring of degree N = 2^logN.
func Element(logN, logT int) uint64 { return uint64(1)<<(logN-logT) + 1 }

// Elements are all exponents that [Packer.Pack] with steps up to 2^logN, and [Packer.Trace], may use. The last one, for
// t = N/2, is 3.
func Elements(logN int) []uint64 {
	elements := make([]uint64, 0, logN)
	for logT := range logN {
		elements = append(elements, Element(logN, logT))
	}
	return elements
}

// Packer holds keys and the monomials X^t. It may be used by several goroutines.
type Packer struct {
	evaluator *ckks.Evaluator
	logN      int
	// monomials[logT] is X^(2^logT) at the highest level used, in NTT and Montgomery form.
	monomials []ring.Poly
}

// New prepares for ciphertexts up to this level. The keys must have every exponent of [Elements].
func New(params ckks.Parameters, keys rlwe.EvaluationKeySet, level int) (*Packer, error) {
	for _, element := range Elements(params.LogN()) {
		if _, err := keys.GetGaloisKey(element); err != nil {
			return nil, fmt.Errorf("packing: no key for X → X^%d: %w", element, err)
		}
	}
	return &Packer{
		evaluator: ckks.NewEvaluator(params, keys),
		logN:      params.LogN(),
		monomials: rlwe.GenXPow2NTT(params.RingQ().AtLevel(level), params.LogN(), false),
	}, nil
}

// Pack gathers the coefficients at multiples of 2^logStep of up to 2^logStep ciphertexts: the result's coefficient i·2^logStep + c·2^(logStep-l)
// is 2^l times coefficient i·2^logStep of ciphertext c, with 2^l ≥ len(cts). Where l < logStep, coefficients that are no
// multiple of 2^(logStep-l) hold what is left over; [Packer.Trace] removes it. Returns l.
//
// All ciphertexts have the same level and scale, and are overwritten. nil stands for zero; at least one is not nil.
func (p *Packer) Pack(cts []*rlwe.Ciphertext, logStep int) (packed *rlwe.Ciphertext, merges int, err error) {
	if len(cts) == 0 || logStep > p.logN {
		return nil, 0, fmt.Errorf("packing: %d ciphertexts with a step of 2^%d in a ring of degree 2^%d", len(cts), logStep, p.logN)
	}
	merges = bits.Len(uint(len(cts) - 1))
	if merges > logStep {
		return nil, 0, fmt.Errorf("packing: %d ciphertexts do not fit between coefficients 2^%d apart", len(cts), logStep)
	}
	all := make([]*rlwe.Ciphertext, 1<<merges)
	copy(all, cts)
	packed, err = p.pack(all, logStep, merges)
	if err == nil && packed == nil {
		err = fmt.Errorf("packing: every ciphertext is nil")
	}
	return packed, merges, err
}

func (p *Packer) pack(cts []*rlwe.Ciphertext, logStep, l int) (*rlwe.Ciphertext, error) {
	if l == 0 {
		return cts[0], nil
	}
	half := len(cts) / 2
	evens, odds := make([]*rlwe.Ciphertext, half), make([]*rlwe.Ciphertext, half)
	for j := range half {
		evens[j], odds[j] = cts[2*j], cts[2*j+1]
	}
	var even, odd *rlwe.Ciphertext
	var evenErr, oddErr error
	var both sync.WaitGroup
	both.Go(func() { even, evenErr = p.pack(evens, logStep, l-1) })
	odd, oddErr = p.pack(odds, logStep, l-1)
	both.Wait()
	if evenErr != nil {
		return nil, evenErr
	}
	if oddErr != nil {
		return nil, oddErr
	}
	return p.merge(even, odd, logStep-l)
}

// merge is one line of the algorithm.
func (p *Packer) merge(even, odd *rlwe.Ciphertext, logT int) (*rlwe.Ciphertext, error) {
	if even == nil && odd == nil {
		return nil, nil
	}
	if odd == nil {
		return even, p.addImage(even, even, logT)
	}
	ringQ := p.evaluator.GetParameters().RingQ().AtLevel(odd.Level())
	for i := range odd.Value {
		ringQ.MulCoeffsMontgomery(odd.Value[i], p.monomials[logT], odd.Value[i])
	}
	if even == nil {
		even = odd.CopyNew()
		for i := range even.Value {
			even.Value[i].Zero()
		}
	}
	difference := even.CopyNew()
	for i := range even.Value {
		ringQ.Sub(even.Value[i], odd.Value[i], difference.Value[i])
		ringQ.Add(even.Value[i], odd.Value[i], even.Value[i])
	}
	return even, p.addImage(even, difference, logT)
}

// addImage adds φ(of) to sum.
func (p *Packer) addImage(sum, of *rlwe.Ciphertext, logT int) error {
	image, err := p.image(of, logT)
	if err != nil {
		return err
	}
	ringQ := p.evaluator.GetParameters().RingQ().AtLevel(sum.Level())
	for i := range sum.Value {
		ringQ.Add(sum.Value[i], image.Value[i], sum.Value[i])
	}
	return nil
}

func (p *Packer) image(of *rlwe.Ciphertext, logT int) (*rlwe.Ciphertext, error) {
	image := ckks.NewCiphertext(*p.evaluator.GetParameters(), 1, of.Level())
	if err := p.evaluator.Automorphism(of, Element(p.logN, logT), image); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return image, nil
}

// Trace removes every coefficient whose index is no multiple of 2^logStep, and multiplies the others by 2^logStep.
func (p *Packer) Trace(ct *rlwe.Ciphertext, logStep int) error {
	for logT := logStep - 1; logT >= 0; logT-- {
		if err := p.addImage(ct, ct, logT); err != nil {
			return err
		}
	}
	return nil
}
