package concurrent

import (
	"fmt"
	"runtime"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/dft"
	"github.com/tuneinsight/lattigo/v6/circuits/common/lintrans"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring/ringqp"
)

// Transform multiplies a ciphertext by the matrices of CtoS or StoC, one after the other. It is `dft` of Lattigo's evaluator.
func (e *Evaluator) Transform(ct *rlwe.Ciphertext, matrix dft.Matrix) (*rlwe.Ciphertext, error) {
	dimensions := ct.LogDimensions
	next := 0
	for _, sharing := range matrix.Levels {
		for range sharing {
			var err error
			if ct, err = e.multiply(ct, lintrans.LinearTransformation(matrix.Matrices[next])); err != nil {
				return nil, fmt.Errorf("matrix %d: %w", next, err)
			}
			next++
		}
		if err := e.Rescale(ct, ct); err != nil {
			return nil, fmt.Errorf("matrix %d: %w", next-1, err)
		}
	}
	ct.LogDimensions = dimensions
	return ct, nil
}

// multiply is one product with a matrix, by baby and giant steps. Baby steps are rotations of the same digits; then each
// processor takes its share of the giant steps.
func (e *Evaluator) multiply(ct *rlwe.Ciphertext, matrix lintrans.LinearTransformation) (*rlwe.Ciphertext, error) {
	params := e.GetRLWEParameters()
	levelQ, levelP := min(matrix.LevelQ, ct.Level()), matrix.LevelP
	linear := lintrans.Evaluator(*lintrans.NewEvaluator(e.Evaluator))
	if matrix.N1 == 0 {
		out := rlwe.NewCiphertext(params, 1, levelQ)
		return out, linear.EvaluateMany(ct, []lintrans.LinearTransformation{matrix}, []*rlwe.Ciphertext{out})
	}
	giants, _, babies := matrix.BSGSIndex()
	rotated, err := e.rotations(ct, levelQ, levelP, babies)
	if err != nil {
		return nil, err
	}
	parts := split(matrix, giants, min(len(giants), runtime.GOMAXPROCS(0)))
	products := make([]*rlwe.Ciphertext, len(parts))
	err = Each(len(parts), func(i int) error {
		products[i] = rlwe.NewCiphertext(params, 1, levelQ)
		return linear.MultiplyByDiagMatrixBSGS(ct, parts[i], rotated, products[i])
	})
	if err != nil {
		return nil, err
	}
	ringQ := params.RingQ().AtLevel(levelQ)
	for _, product := range products[1:] {
		for i := range product.Value {
			ringQ.Add(products[0].Value[i], product.Value[i], products[0].Value[i])
		}
	}
	return products[0], nil
}

// rotations are those of the baby steps, still multiplied by P.
func (e *Evaluator) rotations(ct *rlwe.Ciphertext, levelQ, levelP int, steps []int) (map[int]*rlwe.Element[ringqp.Poly], error) {
	digits, release := e.decompose(levelQ, levelP, ct.Value[1])
	defer release()
	params := e.GetRLWEParameters()
	made := make([]*rlwe.Element[ringqp.Poly], len(steps))
	err := Each(len(steps), func(i int) error {
		if steps[i] == 0 {
			return nil
		}
		made[i] = rlwe.NewElementExtended(params, 1, levelQ, levelP)
		return e.AutomorphismHoistedLazy(levelQ, ct, digits, params.GaloisElement(steps[i]), made[i])
	})
	rotated := make(map[int]*rlwe.Element[ringqp.Poly], len(steps))
	for i, step := range steps {
		if made[i] != nil {
			rotated[step] = made[i]
		}
	}
	return rotated, err
}

// split gives each of the parts some giant steps of a matrix; their sum is the matrix.
func split(matrix lintrans.LinearTransformation, giants map[int][]int, parts int) []lintrans.LinearTransformation {
	split := make([]lintrans.LinearTransformation, parts)
	for i := range split {
		split[i] = matrix
		split[i].Vec = map[int]ringqp.Poly{}
	}
	next := 0
	for giant, babies := range giants {
		for _, baby := range babies {
			split[next].Vec[giant+baby] = matrix.Vec[giant+baby]
		}
		next = (next + 1) % parts
	}
	return split
}
