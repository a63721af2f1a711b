package packing_test

import (
	"errors"
	"math"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/packing"
	"jaguar/fhe/parameters"
)

const scale = 1 << 40

func newPacker(p *testparty.Party) *packing.Packer {
	return testparty.Must(packing.New(p.Set.CKKS(), p.Server.Packing(), p.Set.InputLevel()))
}

func TestPackGathersMultiplesOfTheStep(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	packer := newPacker(p)
	n := p.Set.CKKS().N()
	for _, test := range []struct{ count, logStep, level int }{
		{8, 3, 0}, {8, 3, 1}, {5, 3, 0}, {1, 4, 0}, {16, 6, 0}, {3, 10, 1},
	} {
		cts := make([]*rlwe.Ciphertext, test.count)
		plain := make([][]float64, test.count)
		for c := range cts {
			// The third is zero without a ciphertext.
			if plain[c] = make([]float64, n); c != 2 {
				plain[c] = testparty.Random(int64(c), n)
				cts[c] = p.EncryptAll(plain[c], test.level, scale)
			}
		}
		packed, merges, err := packer.Pack(test.count, func(c int) (*rlwe.Ciphertext, error) { return cts[c], nil }, test.logStep)
		testparty.Check(err)
		if 1<<merges < test.count || 1<<merges >= 2*test.count {
			t.Fatalf("%+v: %d merges", test, merges)
		}
		testparty.Check(packer.Trace(packed, test.logStep-merges))
		factor := math.Exp2(float64(test.logStep))
		want := make([]float64, n)
		for c := range cts {
			for i := 0; i < n; i += 1 << test.logStep {
				want[i+c<<(test.logStep-merges)] = plain[c][i] * factor
			}
		}
		for i, got := range p.DecryptAll(packed) {
			if math.Abs(got-want[i]) > 1e-5*factor {
				t.Fatalf("%+v: coefficient %d is %g, not %g", test, i, got, want[i])
			}
		}
	}
}

func TestPackRefusesWhatDoesNotFit(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	packer := newPacker(p)
	none := func(int) (*rlwe.Ciphertext, error) { return nil, nil }
	for _, test := range []struct{ count, logStep int }{{0, 3}, {9, 3}, {2, 11}} {
		if _, _, err := packer.Pack(test.count, none, test.logStep); err == nil {
			t.Errorf("%+v was packed", test)
		}
	}
	if _, _, err := packer.Pack(2, none, 3); err == nil {
		t.Error("nothing was packed")
	}
	lost := errors.New("lost")
	if _, _, err := packer.Pack(5, func(int) (*rlwe.Ciphertext, error) { return nil, lost }, 3); !errors.Is(err, lost) {
		t.Errorf("a ciphertext that cannot be made: %v", err)
	}
	if _, err := packing.New(p.Set.CKKS(), rlwe.NewMemEvaluationKeySet(nil), 1); err == nil {
		t.Error("no keys are enough")
	}
}
