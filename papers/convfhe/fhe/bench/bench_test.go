package bench

import (
	"math"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/network"
	"jaguar/fhe/parameters"
)

// The baseline is timed as it is: it must be a convolution.
func TestSlotsHoldTheConvolution(t *testing.T) {
	set := testparty.Must(parameters.New(parameters.InsecureTest))
	params, level := set.CKKS(), set.InputLevel()
	v := vector{channels: 8, side: 8, kernel: 3}
	kgen := rlwe.NewKeyGenerator(params)
	secret := kgen.GenSecretKeyNew()
	var galois []*rlwe.GaloisKey
	for _, step := range v.rotations() {
		galois = append(galois, kgen.GenGaloisKeyNew(params.GaloisElement(step), secret))
	}
	v.evaluator = ckks.NewEvaluator(params, rlwe.NewMemEvaluationKeySet(nil, galois...))
	encoder := ckks.NewEncoder(params)
	x, kernels := testparty.Random(1, 8*64), testparty.Random(2, 8*8*9)
	plaintext := ckks.NewPlaintext(params, level)
	testparty.Check(encoder.Encode(x, plaintext))
	in := testparty.Must(rlwe.NewEncryptor(params, secret).EncryptNew(plaintext))
	products := 0
	out, err := v.convolve(in, func(d, tap int) (*rlwe.Plaintext, error) {
		products++
		weights := ckks.NewPlaintext(params, level)
		weights.Scale = rlwe.NewScale(math.Exp2(30))
		return weights, encoder.Encode(v.weights(kernels, d, tap), weights)
	})
	testparty.Check(err)
	if _, want := v.counts(); products != want {
		t.Errorf("%d products, not %d", products, want)
	}
	got := make([]float64, 8*64)
	testparty.Check(encoder.Decode(rlwe.NewDecryptor(params, secret).DecryptNew(out), got))
	for o := range 8 {
		for i := range 8 {
			for j := range 8 {
				want := 0.0
				for c := range 8 {
					for a := range 3 {
						for b := range 3 {
							if y, z := i+a-1, j+b-1; y >= 0 && z >= 0 && y < 8 && z < 8 {
								want += kernels[((o*8+c)*3+a)*3+b] * x[(c*8+y)*8+z]
							}
						}
					}
				}
				if math.Abs(got[(o*8+i)*8+j]-want) > 1e-3 {
					t.Fatalf("output (%d, %d, %d) is %g, not %g", o, i, j, got[(o*8+i)*8+j], want)
				}
			}
		}
	}
}

func TestEveryCaseIsMeasured(t *testing.T) {
	set := testparty.Must(parameters.New(parameters.InsecureDense))
	var rows []Convolution
	testparty.Check(Convolutions(set, []int{4, 16}, []int{3, 5}, 2, true, func(c Convolution) { rows = append(rows, c) }))
	if len(rows) != 8 || rows[1].Kernel != 5 || rows[4].Batch != 16 || rows[4].Side != 8 {
		t.Fatalf("%+v", rows)
	}
	// Table I, for four convolutions of eight channels: 4·(9 + 8 - 2) rotations, 4·9·8 products.
	if rows[4].VectorRotations != 60 || rows[4].VectorProducts != 288 || rows[4].Vector <= 0 || rows[4].Packing <= 0 {
		t.Errorf("%+v", rows[4])
	}
	if err := Convolutions(set, []int{3}, []int{3}, 1, false, nil); err == nil {
		t.Error("three channels fill 1024 values")
	}

	weights := func(n int) network.Floats { return testparty.Random(int64(n), n) }
	described := &network.Network{
		Name: "one layer", Input: [3]int{2, 6, 6}, InputBound: 1,
		Layers: []network.Layer{{
			Terms: []network.Term{{Out: 4, In: 2, Height: 3, Width: 3, Stride: 1, Padding: [4]int{1, 1, 1, 1}, Weights: weights(72)}},
			Bias:  weights(4),
		}},
		Output: network.Layer{
			Terms: []network.Term{{From: 1, Out: 3, In: 4, Height: 6, Width: 6, Stride: 1, Weights: weights(432)}}, Bias: weights(3),
		},
	}
	var layers []Layer
	made := 0
	for first, want := range []int{4, 2} {
		layers = nil
		err := Layers(set, []*network.Network{described, described}, first, 1, func(Keys) { made++ }, func(l Layer) { layers = append(layers, l) })
		if err != nil || len(layers) != want {
			t.Fatalf("first %d: %v, %+v", first, err, layers)
		}
	}
	if made != 2 || layers[0].Index != 1 || layers[0].Layers != 2 || layers[0].Ciphertexts != 1 || layers[0].CtoS <= 0 || layers[0].Busy <= 0 {
		t.Errorf("%d times keys, %+v", made, layers[0])
	}
}
