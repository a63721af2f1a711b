package bootstrap

import (
	"math"
	"math/big"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/ring/ringqp"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/concurrent"
)

// raise takes a ciphertext from modulus q0 to Q, by way of the ephemeral secret, and removes what is no value from its coefficients.
// It is ModUp of Lattigo's bootstrapping.Evaluator, which makes the NTT of the second half once for each of 27 digits. All digits of
// a polynomial that is below q0 are the same.
func (e *Evaluator) raise(ct *rlwe.Ciphertext) (*rlwe.Ciphertext, error) {
	if err := e.circuit.ApplyEvaluationKey(ct, e.circuit.EvkDenseToSparse, ct); err != nil {
		return nil, err
	}
	params := e.set.CKKS()
	level, levelP := params.MaxLevel(), params.MaxLevelP()
	subQ, subP := params.RingQ().SubRings[:level+1], params.RingP().SubRings[:levelP+1]
	small := [2][]uint64{make([]uint64, params.N()), make([]uint64, params.N())}
	for i := range small {
		subQ[0].INTT(ct.Value[i].Coeffs[0], small[i])
	}
	mod1 := e.circuit.Mod1Parameters
	factor := max(1, math.Round(mod1.ScalingFactor().Float64()/mod1.MessageRatio()/ct.Scale.Float64()))

	raised := ckks.NewCiphertext(params, 1, level)
	*raised.MetaData = *ct.MetaData
	raised.Scale = ct.Scale.Mul(rlwe.NewScale(factor))
	second := params.RingQP().NewPoly()
	err := concurrent.Each(2*len(subQ)+len(subP), func(i int) error {
		switch {
		case i < len(subQ):
			spread(small[0], subQ[0].Modulus, uint64(factor), subQ[i], raised.Value[0].Coeffs[i])
		case i < 2*len(subQ):
			i -= len(subQ)
			spread(small[1], subQ[0].Modulus, uint64(factor), subQ[i], second.Q.Coeffs[i])
		default:
			i -= 2 * len(subQ)
			spread(small[1], subQ[0].Modulus, uint64(factor), subP[i], second.P.Coeffs[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	digits := make([]ringqp.Poly, params.BaseRNSDecompositionVectorSize(level, levelP))
	for i := range digits {
		digits[i] = second
	}
	first := params.RingQ().NewPoly()
	key := &e.circuit.EvkSparseToDense.GadgetCiphertext
	if err := e.threads.Switch(level, digits, key, [2]*ring.Poly{&first, &raised.Value[1]}); err != nil {
		return nil, err
	}
	params.RingQ().Add(raised.Value[0], first, raised.Value[0])
	return raised, e.trace(raised)
}

// spread reduces centred residues modulo q0 by another modulus, multiplies them, and moves them into NTT form.
func spread(residues []uint64, q0, factor uint64, to *ring.SubRing, out []uint64) {
	q := to.Modulus
	for j, residue := range residues {
		if residue > q0>>1 {
			out[j] = q - ring.BRedAdd(q0-residue, q, to.BRedConstant)
		} else {
			out[j] = ring.BRedAdd(residue, q, to.BRedConstant)
		}
	}
	if factor > 1 {
		to.MulScalarMontgomery(out, ring.MForm(factor, q, to.BRedConstant), out)
	}
	to.NTT(out, out)
}

// trace leaves the coefficients that carry values, if not all do.
func (e *Evaluator) trace(ct *rlwe.Ciphertext) error {
	params := e.set.CKKS()
	ringQ := params.RingQ().AtLevel(ct.Level())
	begin, end := e.circuit.LogMaxSlots(), params.LogN()-1
	if begin == end {
		return nil
	}
	inverse := new(big.Int).ModInverse(big.NewInt(1<<(end-begin)), ringQ.ModulusAtLevel[ct.Level()])
	for i := range ct.Value {
		ringQ.MulScalarBigint(ct.Value[i], inverse, ct.Value[i])
	}
	moved := ckks.NewCiphertext(params, 1, ct.Level())
	for i := begin; i < end; i++ {
		if err := e.threads.Automorphism(ct, params.GaloisElement(1<<i), moved); err != nil {
			return err
		}
		for part := range ct.Value {
			ringQ.Add(ct.Value[part], moved.Value[part], ct.Value[part])
		}
	}
	return nil
}
