// Package packing gathers single coefficients of many ciphertexts in one: PackLWEs, Algorithm 2 of the paper (after Chen, Dai,
// Kim and Song, ACNS 2021), with an initial step.
//
//	ct = (even + X^t·odd) + φ(even - X^t·odd),   φ: X → X^(N/t + 1),   t = 2^(s-l)
//
// φ keeps X^i where 2t divides i, and negates it where only t does. So coefficients at multiples of 2t of `even`, and those of
// `odd` moved by t, are doubled, and the others of that kind vanish. No level is consumed.
package packing

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
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

// Leaf makes ciphertext number i of those that are packed. It may be called by several goroutines; what it returns is overwritten.
// nil stands for zero.
type Leaf func(i int) (*rlwe.Ciphertext, error)

// Pack gathers the coefficients at multiples of 2^logStep of up to 2^logStep ciphertexts: the result's coefficient i·2^logStep + c·2^(logStep-l)
// is 2^l times coefficient i·2^logStep of ciphertext c, with 2^l ≥ count. Where l < logStep, coefficients that are no
// multiple of 2^(logStep-l) hold what is left over; [Packer.Trace] removes it. Returns l.
//
// All ciphertexts have the same level and scale; at least one is not nil. Each is made when its turn comes, so that only l of them
// a goroutine are in memory at a time. There are as many goroutines as processors.
func (p *Packer) Pack(count int, leaf Leaf, logStep int) (packed *rlwe.Ciphertext, merges int, err error) {
	if count < 1 || logStep > p.logN {
		return nil, 0, fmt.Errorf("packing: %d ciphertexts with a step of 2^%d in a ring of degree 2^%d", count, logStep, p.logN)
	}
	merges = bits.Len(uint(count - 1))
	if merges > logStep {
		return nil, 0, fmt.Errorf("packing: %d ciphertexts do not fit between coefficients 2^%d apart", count, logStep)
	}
	t := tree{packer: p, count: count, leaf: leaf, logStep: logStep, apart: bits.Len(uint(runtime.GOMAXPROCS(0) - 1))}
	packed, err = t.pack(0, 1, merges)
	if err == nil && packed == nil {
		err = fmt.Errorf("packing: every ciphertext is nil")
	}
	return packed, merges, err
}

// tree is one call of [Packer.Pack]. Its first `apart` levels have goroutines of their own.
type tree struct {
	packer                *Packer
	count, logStep, apart int
	leaf                  Leaf
}

// pack gathers the 2^l ciphertexts first, first + stride, ...
func (t *tree) pack(first, stride, l int) (*rlwe.Ciphertext, error) {
	if first >= t.count {
		return nil, nil
	}
	if l == 0 {
		return t.leaf(first)
	}
	var even, odd *rlwe.Ciphertext
	var evenErr, oddErr error
	evens := func() { even, evenErr = t.pack(first, 2*stride, l-1) }
	if stride < 1<<t.apart {
		var both sync.WaitGroup
		both.Go(evens)
		odd, oddErr = t.pack(first+stride, 2*stride, l-1)
		both.Wait()
	} else if evens(); evenErr == nil {
		odd, oddErr = t.pack(first+stride, 2*stride, l-1)
	}
	if err := errors.Join(evenErr, oddErr); err != nil {
		return nil, err
	}
	return t.packer.merge(even, odd, t.logStep-l)
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
