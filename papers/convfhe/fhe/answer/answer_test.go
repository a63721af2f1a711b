package answer

import (
	"math"
	"testing"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/packing"
	"jaguar/fhe/parameters"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
)

// The noise that packing, trace and the fresh encryption of zero leave must lie below the derived bound; coefficients that are no
// logit hold nothing else.
func TestNoiseOfPackingIsWithinTheBound(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	packer := testparty.Must(packing.New(p.Set.CKKS(), p.Server.Packing(), p.Set.InputLevel()))
	const outputs = 5
	n := p.Set.CKKS().N()
	cts := make([]*rlwe.Ciphertext, outputs)
	for c := range cts {
		cts[c] = p.EncryptAll(testparty.Random(int64(c), n), p.Set.InputLevel(), math.Exp2(40))
	}
	packed, merges, err := packer.Pack(len(cts), func(i int) (*rlwe.Ciphertext, error) { return cts[i], nil }, p.Set.CKKS().LogN())
	testparty.Check(err)
	testparty.Check(packer.Trace(packed, p.Set.CKKS().LogN()-merges))
	noise := Derive(p.Set, p.Set.CKKS().XsHammingWeight(), outputs)
	silent := noise
	silent.LogRange = 1
	testparty.Check(Flood(p.Server, packed, silent))
	packed.Scale = rlwe.NewScale(1)
	distance := n >> merges
	worst := 0.0
	for i, x := range p.DecryptAll(packed) {
		if i%distance != 0 || i/distance >= outputs {
			worst = max(worst, math.Abs(x))
		}
	}
	t.Logf("noise 2^%.1f, bound 2^%.1f, R = 2^%d, distance 2^%.1f", math.Log2(worst), noise.LogError, noise.LogRange, noise.LogDistance)
	if math.Log2(worst) > noise.LogError {
		t.Errorf("noise 2^%.1f is above the bound 2^%.1f", math.Log2(worst), noise.LogError)
	}
	if worst == 0 {
		t.Error("no noise at all")
	}
}

func TestFloodIsUniformOverItsRange(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	noise := Derive(p.Set, p.Set.CKKS().XsHammingWeight(), 10)
	ct := p.EncryptAll(nil, p.Set.InputLevel(), 1)
	testparty.Check(Flood(p.Server, ct, noise))
	ct.Scale = rlwe.NewScale(math.Exp2(float64(noise.LogRange)))
	var mean, square, most float64
	all := p.DecryptAll(ct)
	for _, x := range all {
		mean += x / float64(len(all))
		square += x * x / float64(len(all))
		most = max(most, math.Abs(x))
	}
	// Of 1024 uniform numbers: mean 0 ± 0.018, mean square 1/3 ± 0.0093; ten deviations.
	if most > 1+1e-9 || math.Abs(mean) > 0.18 || math.Abs(square-1.0/3) > 0.093 {
		t.Errorf("largest %g, mean %g, mean square %g", most, mean, square)
	}
	low := p.EncryptAll(nil, 0, 1)
	if err := Flood(p.Server, low, noise); err == nil {
		t.Error("level 0 was taken")
	}
}

// What docs/protocols/convfhe.md states of the default set.
func TestTheDefaultHidesItsNoise(t *testing.T) {
	set := testparty.Must(parameters.New(parameters.Default))
	noise := Derive(set, set.CKKS().XsHammingWeight(), 10)
	if noise.LogRange != 92 || noise.LogError > 34 || noise.LogDistance > -43 {
		t.Errorf("%+v", noise)
	}
}

func TestRoundingIsCoarserThanNoise(t *testing.T) {
	for _, logit := range []float64{-3.1, 0, 0.004, 7.77} {
		const bound = 8
		if got := Round(logit, bound); math.Abs(got-logit) > bound*math.Exp2(-gridBits-1) {
			t.Errorf("%g becomes %g", logit, got)
		}
	}
	if noiseBits <= gridBits {
		t.Error("noise reaches beyond a step of the grid")
	}
}
