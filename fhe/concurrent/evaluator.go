package concurrent

import (
	"fmt"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/ring/ringqp"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// Evaluator is Lattigo's, with products and transforms on all processors. It may be used by several goroutines.
type Evaluator struct {
	*ckks.Evaluator
	pool *rlwe.BufferPool
}

// New takes keys from an evaluator.
func New(evaluator *ckks.Evaluator) *Evaluator {
	return &Evaluator{Evaluator: evaluator, pool: rlwe.NewPool(evaluator.GetRLWEParameters().RingQP())}
}

// decompose writes the digits of a polynomial in NTT form, for key switching with these levels, and returns what takes them back.
func (e *Evaluator) decompose(levelQ, levelP int, poly ring.Poly) (digits []ringqp.Poly, release func()) {
	params := *e.GetRLWEParameters()
	pool := e.pool.AtLevel(levelQ, levelP)
	digits = pool.GetBuffDecompQP(params, levelQ, levelP)
	inverse := pool.GetBuffPoly()
	sub := params.RingQ().SubRings
	// Nothing here fails.
	_ = Each(levelQ+1, func(i int) error {
		sub[i].INTT(poly.Coeffs[i], inverse.Coeffs[i])
		return nil
	})
	_ = Each(len(digits), func(i int) error {
		e.DecomposeSingleNTT(levelQ, levelP, levelP+1, i, poly, *inverse, digits[i].Q, digits[i].P)
		return nil
	})
	pool.RecycleBuffPoly(inverse)
	return digits, func() { pool.RecycleBuffDecompQP(digits) }
}

// Relinearize takes a ciphertext of degree 2 to one of degree 1.
func (e *Evaluator) Relinearize(in, out *rlwe.Ciphertext) error {
	if in.Degree() != 2 || !in.IsNTT {
		return e.Evaluator.Relinearize(in, out)
	}
	key, err := e.CheckAndGetRelinearizationKey()
	if err != nil {
		return fmt.Errorf("relinearize: %w", err)
	}
	level, levelP := min(in.Level(), out.Level()), key.LevelP()
	digits, release := e.decompose(level, levelP, in.Value[2])
	defer release()
	pool := e.pool.AtLevel(level, levelP)
	first, second := pool.GetBuffPolyQP(), pool.GetBuffPolyQP()
	defer pool.RecycleBuffPolyQP(first)
	defer pool.RecycleBuffPolyQP(second)
	switched := &rlwe.Element[ringqp.Poly]{Value: []ringqp.Poly{*first, *second}, MetaData: &rlwe.MetaData{}}
	switched.IsNTT = true
	if err := e.GadgetProductHoistedLazy(level, digits, &key.GadgetCiphertext, switched); err != nil {
		return fmt.Errorf("relinearize: %w", err)
	}
	ringQ := e.GetRLWEParameters().RingQ().AtLevel(level)
	half := func(i int) func() {
		return func() {
			part := switched.Value[i]
			e.ModDownQPtoQNTT(level, levelP, part.Q, part.P, part.Q)
			ringQ.Add(in.Value[i], part.Q, out.Value[i])
		}
	}
	both(half(0), half(1))
	out.Resize(1, level)
	*out.MetaData = *in.MetaData
	return nil
}

// MulRelin is a product of degree 1.
func (e *Evaluator) MulRelin(a *rlwe.Ciphertext, b rlwe.Operand, out *rlwe.Ciphertext) error {
	product, err := e.MulRelinNew(a, b)
	if err != nil {
		return err
	}
	out.Resize(product.Degree(), product.Level())
	out.Copy(product)
	return nil
}

// MulRelinNew is a product of degree 1.
func (e *Evaluator) MulRelinNew(a *rlwe.Ciphertext, b rlwe.Operand) (*rlwe.Ciphertext, error) {
	product, err := e.MulNew(a, b)
	if err != nil || product.Degree() != 2 {
		return product, err
	}
	return product, e.Relinearize(product, product)
}
