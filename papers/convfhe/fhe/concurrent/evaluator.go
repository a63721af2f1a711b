package concurrent

import (
	"fmt"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/ring/ringqp"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// Evaluator is Lattigo's, with products, automorphisms, rescaling and transforms on all processors. It may be used by several goroutines.
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
	switched := [2]*ring.Poly{e.pool.AtLevel(level).GetBuffPoly(), e.pool.AtLevel(level).GetBuffPoly()}
	defer e.pool.AtLevel(level).RecycleBuffPoly(switched[0])
	defer e.pool.AtLevel(level).RecycleBuffPoly(switched[1])
	if err := e.Switch(level, digits, &key.GadgetCiphertext, switched); err != nil {
		return fmt.Errorf("relinearize: %w", err)
	}
	ringQ := e.GetRLWEParameters().RingQ().AtLevel(level)
	for i := range switched {
		ringQ.Add(in.Value[i], *switched[i], out.Value[i])
	}
	out.Resize(1, level)
	*out.MetaData = *in.MetaData
	return nil
}

// Switch multiplies digits in NTT form by a key, and divides by P.
func (e *Evaluator) Switch(level int, digits []ringqp.Poly, key *rlwe.GadgetCiphertext, out [2]*ring.Poly) error {
	return e.divided(level, key.LevelP(), out, func(product *rlwe.Element[ringqp.Poly]) error {
		return e.GadgetProductHoistedLazy(level, digits, key, product)
	})
}

// divided divides what make writes by P.
func (e *Evaluator) divided(level, levelP int, out [2]*ring.Poly, make func(product *rlwe.Element[ringqp.Poly]) error) error {
	pool := e.pool.AtLevel(level, levelP)
	first, second := pool.GetBuffPolyQP(), pool.GetBuffPolyQP()
	defer pool.RecycleBuffPolyQP(first)
	defer pool.RecycleBuffPolyQP(second)
	product := &rlwe.Element[ringqp.Poly]{Value: []ringqp.Poly{*first, *second}, MetaData: &rlwe.MetaData{}}
	product.IsNTT = true
	if err := make(product); err != nil {
		return err
	}
	half := func(i int) func() {
		return func() { e.ModDownQPtoQNTT(level, levelP, product.Value[i].Q, product.Value[i].P, *out[i]) }
	}
	both(half(0), half(1))
	return nil
}

// Automorphism moves slots as the Galois element says. in and out may be the same.
func (e *Evaluator) Automorphism(in *rlwe.Ciphertext, element uint64, out *rlwe.Ciphertext) error {
	if in.Degree() != 1 || out.Degree() != 1 || !in.IsNTT || element == 1 {
		return e.Evaluator.Automorphism(in, element, out)
	}
	key, err := e.CheckAndGetGaloisKey(element)
	if err != nil {
		return fmt.Errorf("automorphism: %w", err)
	}
	level := min(in.Level(), out.Level())
	digits, release := e.decompose(level, key.LevelP(), in.Value[1])
	defer release()
	out.Resize(1, level)
	err = e.divided(level, key.LevelP(), [2]*ring.Poly{&out.Value[0], &out.Value[1]}, func(moved *rlwe.Element[ringqp.Poly]) error {
		return e.AutomorphismHoistedLazy(level, in, digits, element, moved)
	})
	if err != nil {
		return fmt.Errorf("automorphism: %w", err)
	}
	*out.MetaData = *in.MetaData
	return nil
}

// Rescale divides by the last modulus.
func (e *Evaluator) Rescale(in, out *rlwe.Ciphertext) error {
	params := e.GetParameters()
	if in.Degree() != 1 || in.Level() == 0 || params.LevelsConsumedPerRescaling() != 1 {
		return e.Evaluator.Rescale(in, out)
	}
	level := in.Level()
	if in != out {
		out.Resize(1, level-1)
	}
	ringQ := params.RingQ().AtLevel(level)
	half := func(i int) func() {
		return func() { ringQ.DivRoundByLastModulusNTT(in.Value[i], out.Value[i]) }
	}
	both(half(0), half(1))
	*out.MetaData = *in.MetaData
	out.Scale = out.Scale.Div(rlwe.NewScale(ringQ.SubRings[level].Modulus))
	out.Resize(1, level-1)
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
