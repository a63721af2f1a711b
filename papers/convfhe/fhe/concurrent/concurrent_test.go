package concurrent_test

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/concurrent"
	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/parameters"
)

func TestEachCallsAllAndReturnsErrors(t *testing.T) {
	var sum atomic.Int64
	if err := concurrent.Each(100, func(i int) error { sum.Add(int64(i)); return nil }); err != nil || sum.Load() != 4950 {
		t.Errorf("sum %d, %v", sum.Load(), err)
	}
	lost := errors.New("lost")
	err := concurrent.Few(2, 3, func(i int) error {
		if i == 2 {
			return lost
		}
		return nil
	})
	if !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if err := concurrent.Each(0, func(int) error { return lost }); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}

func TestProductsAreThoseOfTheSlots(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	params := p.Set.CKKS()
	evaluator := concurrent.New(ckks.NewEvaluator(params, p.Server.Circuit()))
	a, b := testparty.Random(1, params.MaxSlots()), testparty.Random(2, params.MaxSlots())
	encrypt := func(values []float64) *rlwe.Ciphertext {
		plaintext := ckks.NewPlaintext(params, 5)
		testparty.Check(p.Encoder.Encode(values, plaintext))
		ct := testparty.Must(rlwe.NewEncryptor(params, p.Client.Secret()).EncryptNew(plaintext))
		return ct
	}
	product := encrypt(a)
	// In place, as the sine's doubling does it.
	testparty.Check(evaluator.MulRelin(product, encrypt(b), product))
	if product.Degree() != 1 {
		t.Fatalf("degree %d", product.Degree())
	}
	got := make([]float64, len(a))
	testparty.Check(p.Encoder.Decode(rlwe.NewDecryptor(params, p.Client.Secret()).DecryptNew(product), got))
	for i := range got {
		if math.Abs(got[i]-a[i]*b[i]) > 1e-5 {
			t.Fatalf("slot %d is %g, not %g", i, got[i], a[i]*b[i])
		}
	}
}
