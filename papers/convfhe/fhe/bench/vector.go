package bench

import (
	"fmt"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// vector is a convolution in slots, the paper's baseline (Section III-C, after Gazelle): `channels` channels of side × side values
// fill all slots, row by row, and kernels have an odd side.
//
//	out = Σ_d rotation by d·side² of Σ_tap weights_{d,tap} ⊙ rotation by tap of in
//
// It takes kernel² - 1 rotations of one ciphertext, kernel²·channels products, and channels - 1 rotations of sums.
type vector struct {
	evaluator              *ckks.Evaluator
	channels, side, kernel int
}

// taps are how far each weight's input stands from its output, row by row.
func (v vector) taps() []int {
	var taps []int
	for a := -(v.kernel / 2); a <= v.kernel/2; a++ {
		for b := -(v.kernel / 2); b <= v.kernel/2; b++ {
			taps = append(taps, a*v.side+b)
		}
	}
	return taps
}

// rotations are the steps whose keys are needed.
func (v vector) rotations() []int { return append(v.taps(), v.side*v.side) }

// counts are how many rotations and products with plaintexts one call of [vector.convolve] takes.
func (v vector) counts() (rotations, products int) {
	return v.kernel*v.kernel - 1 + v.channels - 1, v.kernel * v.kernel * v.channels
}

// weights are what is multiplied to the rotation by tap number `tap` for diagonal d. kernels are [out, in, kernel, kernel].
func (v vector) weights(kernels []float64, d, tap int) []float64 {
	place := v.side * v.side
	a, b := tap/v.kernel-v.kernel/2, tap%v.kernel-v.kernel/2
	values := make([]float64, v.channels*place)
	for c := range v.channels {
		out := (c - d + v.channels) % v.channels
		w := kernels[(out*v.channels+c)*v.kernel*v.kernel+tap]
		for i := range v.side {
			for j := range v.side {
				if i+a >= 0 && i+a < v.side && j+b >= 0 && j+b < v.side {
					values[c*place+i*v.side+j] = w
				}
			}
		}
	}
	return values
}

// convolve computes it; `weights` gives the plaintext of [vector.weights].
func (v vector) convolve(in *rlwe.Ciphertext, weights func(d, tap int) (*rlwe.Plaintext, error)) (*rlwe.Ciphertext, error) {
	taps := v.taps()
	var steps []int
	for _, tap := range taps {
		if tap != 0 {
			steps = append(steps, tap)
		}
	}
	rotated, err := v.evaluator.RotateHoistedNew(in, steps)
	if err != nil {
		return nil, fmt.Errorf("bench: rotations: %w", err)
	}
	rotated[0] = in
	var out *rlwe.Ciphertext
	for d := v.channels - 1; d >= 0; d-- {
		var sum *rlwe.Ciphertext
		for tap, step := range taps {
			plaintext, err := weights(d, tap)
			if err != nil {
				return nil, err
			}
			if sum == nil {
				sum, err = v.evaluator.MulNew(rotated[step], plaintext)
			} else {
				err = v.evaluator.MulThenAdd(rotated[step], plaintext, sum)
			}
			if err != nil {
				return nil, fmt.Errorf("bench: product: %w", err)
			}
		}
		if out == nil {
			out = sum
			continue
		}
		// One rotation for all diagonals above this one.
		if err := v.evaluator.Rotate(out, v.side*v.side, out); err != nil {
			return nil, fmt.Errorf("bench: rotation: %w", err)
		}
		if err := v.evaluator.Add(out, sum, out); err != nil {
			return nil, fmt.Errorf("bench: sum: %w", err)
		}
	}
	return out, nil
}
