package convolution_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/convolution"
	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/layout"
	"jaguar/fhe/parameters"
)

func kernel(size, stride, in, out int) convolution.Kernel {
	return convolution.Kernel{
		Out: out, In: in, Height: size, Width: size, Stride: stride,
		Top: size / 2, Left: size / 2, Bottom: size / 2, Right: size / 2,
		Weights: testparty.Random(11, out*in*size*size),
	}
}

// Algorithm 1: the coefficients at the places of one output channel are the convolution, for every size of kernel and stride.
func TestProductsHoldTheConvolution(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	for _, test := range []struct{ size, stride int }{{1, 1}, {3, 1}, {3, 2}, {5, 1}, {7, 1}} {
		k := kernel(test.size, test.stride, 2, 3)
		in := testparty.Must(layout.New(2, 6, 6, k.Padding(), 4))
		testparty.Check(in.Fits(k.Padding(), p.Set.Values()))
		tensor := testparty.Random(12, 2*6*6)
		scattered := testparty.Must(in.Scatter(tensor, p.Set.Values()))
		ct := p.Encrypt(scattered[0], p.Set.InputLevel(), p.Set.ValueScale())
		height, width, err := k.OutputSize(6, 6)
		testparty.Check(err)
		out := testparty.Must(in.Strided(3, height, width, test.stride))
		for o := range 3 {
			encoded := p.Set.CKKS().RingQ().AtLevel(p.Set.InputLevel()).NewPoly()
			testparty.Check(convolution.EncodeInto(p.Set, k.Taps(in, 0, o), math.Exp2(30), encoded))
			sum := ckks.NewCiphertext(p.Set.CKKS(), 1, p.Set.InputLevel())
			sum.Scale = rlwe.NewScale(p.Set.ValueScale() * math.Exp2(30))
			convolution.MulThenAdd(p.Set, ct, encoded, sum)
			got := p.Decrypt(sum)
			for i := range height {
				for j := range width {
					want := 0.0
					for c := range 2 {
						for a := range test.size {
							for b := range test.size {
								y, x := i*test.stride+a-k.Top, j*test.stride+b-k.Left
								if y >= 0 && x >= 0 && y < 6 && x < 6 {
									want += k.Weights[((o*2+c)*test.size+a)*test.size+b] * tensor[(c*6+y)*6+x]
								}
							}
						}
					}
					if place := out.At(0, i, j); math.Abs(got[place]-want) > 1e-4 {
						t.Fatalf("kernel %d stride %d: output (%d, %d, %d) is %g, not %g", test.size, test.stride, o, i, j, got[place], want)
					}
				}
			}
		}
	}
}

func TestKernelsAreChecked(t *testing.T) {
	for want, spoil := range map[string]func(k *convolution.Kernel){
		"stride 0":  func(k *convolution.Kernel) { k.Stride = 0 },
		"weights":   func(k *convolution.Kernel) { k.Weights = k.Weights[1:] },
		"is NaN":    func(k *convolution.Kernel) { k.Weights[3] = math.NaN() },
		"padding 3": func(k *convolution.Kernel) { k.Top = 3 },
	} {
		k := kernel(3, 1, 2, 3)
		spoil(&k)
		if err := k.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	set := testparty.Must(parameters.New(parameters.InsecureTest))
	poly := set.CKKS().RingQ().AtLevel(set.InputLevel()).NewPoly()
	if err := convolution.EncodeInto(set, []convolution.Tap{{Weight: 2}}, math.Exp2(62), poly); err == nil {
		t.Error("a weight of 2^63 was encoded")
	}
}

// The paper's claim: a kernel's size does not change the cost. One output channel of 64 inputs at full size, plaintext made anew.
func BenchmarkKernels(b *testing.B) {
	set := testparty.Must(parameters.New(parameters.Default))
	ct := ckks.NewCiphertext(set.CKKS(), 1, set.InputLevel())
	sum := ckks.NewCiphertext(set.CKKS(), 1, set.InputLevel())
	encoded := set.CKKS().RingQ().AtLevel(set.InputLevel()).NewPoly()
	for _, size := range []int{3, 5, 7, 3, 5, 7} {
		k := kernel(size, 1, 64, 1)
		in := testparty.Must(layout.New(64, 8, 8, k.Padding(), 64))
		b.Run(fmt.Sprintf("%dx%d", size, size), func(b *testing.B) {
			for b.Loop() {
				testparty.Check(convolution.EncodeInto(set, k.Taps(in, 0, 0), math.Exp2(40), encoded))
				convolution.MulThenAdd(set, ct, encoded, sum)
			}
		})
	}
}
