// Package relu evaluates ReLU on encrypted slots by a composite polynomial (Appendix B of the paper; such polynomials are those of
// Lee, Lee, No and Kim, "Minimax approximation of sign function by composite polynomial for homomorphic comparison").
//
//	ReLU(x) ≈ x·(1 + fn(… f2(f1(x))))/2,   |x| ≤ 1
//
// Each f is odd. Degree 7 takes 3 levels, 13 and 15 take 4, and the last product one. An [Option] is one choice of degrees: more
// levels, less error. Outside of [-1, 1] the polynomials grow without bound: whoever scales the input answers for the bound.
package relu

import (
	"fmt"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/polynomial"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"github.com/tuneinsight/lattigo/v6/utils/bignum"

	"jaguar/fhe/concurrent"
)

// Evaluator evaluates the polynomials on ciphertexts. It may be used by several goroutines.
type Evaluator struct {
	ckks        *concurrent.Evaluator
	polynomials *polynomial.Evaluator
	composite   []bignum.Polynomial
}

// New prepares an option, with a relinearisation key.
func New(params ckks.Parameters, evaluator *concurrent.Evaluator, option Option) *Evaluator {
	composite := make([]bignum.Polynomial, len(option.composite))
	for i, f := range option.composite {
		if i == len(composite)-1 {
			// The factor 1/2 goes into the last one.
			half := make([]float64, len(f))
			for k, c := range f {
				half[k] = c / 2
			}
			f = half
		}
		composite[i] = monomials(f)
	}
	polynomials := polynomial.NewEvaluator(params, evaluator.Evaluator)
	polynomials.Evaluator.Evaluator = evaluator
	return &Evaluator{
		ckks:        evaluator,
		polynomials: polynomials,
		composite:   composite,
	}
}

func monomials(coefficients []float64) bignum.Polynomial {
	all := make([]float64, 2*len(coefficients))
	for i, c := range coefficients {
		all[2*i+1] = c
	}
	p := bignum.NewPolynomial(bignum.Monomial, all, nil)
	p.IsEven = false
	for i := 0; i < len(all); i += 2 {
		p.Coeffs[i] = nil
	}
	return p
}

// Evaluate returns mask·ReLU(x), slot by slot. x has the default scale and at least the option's levels; the mask is a plaintext at
// its level whose scale is the modulus of that level, so that the product costs no precision: it waits for the sign, and takes no
// level of its own. The result has [Option.Levels] less, and nearly the default scale.
func (e *Evaluator) Evaluate(x *rlwe.Ciphertext, mask *rlwe.Plaintext) (*rlwe.Ciphertext, error) {
	scale := e.ckks.Evaluator.GetParameters().DefaultScale()
	masked, err := e.ckks.MulNew(x, mask)
	if err != nil {
		return nil, fmt.Errorf("relu: mask: %w", err)
	}
	if err := e.ckks.Rescale(masked, masked); err != nil {
		return nil, fmt.Errorf("relu: mask: %w", err)
	}
	sign := x
	for i, p := range e.composite {
		if sign, err = e.polynomials.Evaluate(sign, p, scale); err != nil {
			return nil, fmt.Errorf("relu: f%d: %w", i+1, err)
		}
	}
	if err := e.ckks.Add(sign, 0.5, sign); err != nil {
		return nil, fmt.Errorf("relu: sign: %w", err)
	}
	if masked.Level() > sign.Level() {
		e.ckks.DropLevel(masked, masked.Level()-sign.Level())
	}
	result, err := e.ckks.MulRelinNew(masked, sign)
	if err != nil {
		return nil, fmt.Errorf("relu: product: %w", err)
	}
	if err := e.ckks.Rescale(result, result); err != nil {
		return nil, fmt.Errorf("relu: product: %w", err)
	}
	return result, nil
}
