// Package relu evaluates ReLU on encrypted slots by a composite polynomial (Appendix B of the paper; the polynomials are those of
// Lee, Lee, No and Kim, "Minimax approximation of sign function by composite polynomial for homomorphic comparison").
//
//	ReLU(x) ≈ x·(1 + f3(f2(f1(x))))/2,   |x| ≤ 1,   error at most 2^-10
//
// f1, f2, f3 are odd, of degree 7, 7 and 13: 3 + 3 + 4 levels, and one for the last product. Outside of [-1, 1] the polynomials
// grow without bound: whoever scales the input answers for the bound.
package relu

import (
	"fmt"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/polynomial"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"github.com/tuneinsight/lattigo/v6/utils/bignum"

	"jaguar/fhe/concurrent"
)

// MaximumError bounds |ReLU(x) - Plain(x)| for |x| ≤ 1.
const MaximumError = 1.0 / 1024

// The coefficients of x, x^3, x^5, ... of Appendix B.
var (
	f1 = []float64{10.8541842577442, -62.2833925211098, 114.369227820443, -62.8023496973074}
	f2 = []float64{4.13976170985111, -5.84997640211679, 2.94376255659280, -0.454530437460152}
	f3 = []float64{
		3.29956739043733, -7.84227260291355, 12.8907764115564, -12.4917112584486,
		6.94167991428074, -2.04298067399942, 0.246407138926031,
	}
)

// odd evaluates a polynomial of odd powers.
func odd(coefficients []float64, x float64) float64 {
	sum := 0.0
	for i := len(coefficients) - 1; i >= 0; i-- {
		sum = sum*x*x + coefficients[i]
	}
	return sum * x
}

// Sign is f3(f2(f1(x))).
func Sign(x float64) float64 { return odd(f3, odd(f2, odd(f1, x))) }

// Plain is what [Evaluator.Evaluate] computes, without noise.
func Plain(x float64) float64 { return x * (1 + Sign(x)) / 2 }

// Evaluator evaluates the polynomials on ciphertexts. It may be used by several goroutines.
type Evaluator struct {
	ckks        *concurrent.Evaluator
	polynomials *polynomial.Evaluator
	composite   []bignum.Polynomial
}

// New prepares with a relinearisation key.
func New(params ckks.Parameters, evaluator *concurrent.Evaluator) *Evaluator {
	// The factor 1/2 goes into f3.
	half := make([]float64, len(f3))
	for i, c := range f3 {
		half[i] = c / 2
	}
	polynomials := polynomial.NewEvaluator(params, evaluator.Evaluator)
	polynomials.Evaluator.Evaluator = evaluator
	return &Evaluator{
		ckks:        evaluator,
		polynomials: polynomials,
		composite:   []bignum.Polynomial{monomials(f1), monomials(f2), monomials(half)},
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

// Evaluate returns mask·ReLU(x), slot by slot. x has the default scale and at least 11 levels; the mask is a plaintext at its level
// whose scale is the modulus of that level, so that the product costs no precision: it waits for the sign, and takes no level of
// its own. The result has 11 levels less, and nearly the default scale.
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
