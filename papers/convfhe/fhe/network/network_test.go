package network

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/answer"
	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// term draws a convolution.
func term(rng *rand.Rand, from, in, out, kernel, stride, padding int) Term {
	t := Term{
		From: from, In: in, Out: out, Height: kernel, Width: kernel, Stride: stride,
		Padding: [4]int{padding, padding, padding, padding},
		Weights: make(Floats, out*in*kernel*kernel),
	}
	for i := range t.Weights {
		t.Weights[i] = float64(float32(rng.NormFloat64() / math.Sqrt(float64(in*kernel*kernel))))
	}
	return t
}

func biases(rng *rand.Rand, n int) Floats {
	b := make(Floats, n)
	for i := range b {
		b[i] = float64(float32(rng.NormFloat64() / 4))
	}
	return b
}

// small has what ResNet-20 has: a first layer, a residual block, a block with stride and option-A shortcut, pool and FC; and a
// 5 × 5 kernel, and fewer channels than a power of two.
func small() *Network {
	rng := rand.New(rand.NewSource(3))
	// Option A: channel c of value 2, every second row and column, becomes channel c + 2 of 8.
	shortcut := Term{From: 2, In: 3, Out: 8, Height: 1, Width: 1, Stride: 2, Weights: make(Floats, 24)}
	for c := range 3 {
		shortcut.Weights[(c+2)*3+c] = 1
	}
	identity := Term{From: 1, In: 3, Out: 3, Height: 1, Width: 1, Stride: 1, Weights: Floats{1, 0, 0, 0, 1, 0, 0, 0, 1}}
	fc := term(rng, 4, 8, 5, 3, 1, 0)
	return &Network{
		Name: "small", Input: [3]int{2, 6, 6}, InputBound: 1,
		Layers: []Layer{
			{Name: "first", Terms: []Term{term(rng, 0, 2, 3, 5, 1, 2)}, Bias: biases(rng, 3)},
			{Name: "residual", Terms: []Term{term(rng, 1, 3, 3, 3, 1, 1), identity}, Bias: biases(rng, 3)},
			{Name: "strided", Terms: []Term{term(rng, 2, 3, 8, 3, 2, 1)}, Bias: biases(rng, 8)},
			{Name: "option A", Terms: []Term{term(rng, 3, 8, 8, 3, 1, 1), shortcut}, Bias: biases(rng, 8)},
		},
		Output: Layer{Name: "fc", Terms: []Term{fc}, Bias: biases(rng, 5)},
	}
}

// wide has an input and values of several ciphertexts of 512 values, and later ones of one.
func wide() *Network {
	rng := rand.New(rand.NewSource(6))
	identity := Term{From: 1, In: 12, Out: 12, Height: 1, Width: 1, Stride: 1, Weights: make(Floats, 144)}
	for c := range 12 {
		identity.Weights[c*12+c] = 1
	}
	return &Network{
		Name: "wide", Input: [3]int{10, 6, 6}, InputBound: 1,
		Layers: []Layer{
			{Name: "first", Terms: []Term{term(rng, 0, 10, 12, 3, 1, 1)}, Bias: biases(rng, 12)},
			{Name: "residual", Terms: []Term{term(rng, 1, 12, 12, 3, 1, 1), identity}, Bias: biases(rng, 12)},
			{Name: "strided", Terms: []Term{term(rng, 2, 12, 14, 3, 2, 1)}, Bias: biases(rng, 14)},
		},
		Output: Layer{Name: "fc", Terms: []Term{term(rng, 3, 14, 3, 3, 1, 0)}, Bias: biases(rng, 3)},
	}
}

func inputs(n *Network, count int) [][]float64 {
	rng := rand.New(rand.NewSource(9))
	all := make([][]float64, count)
	for i := range all {
		all[i] = make([]float64, n.Input[0]*n.Input[1]*n.Input[2])
		for j := range all[i] {
			all[i][j] = 2*rng.Float64() - 1
		}
	}
	return all
}

// bootstraps is how many ciphertexts all layers together make, each of which is bootstrapped.
func bootstraps(p *Plan) int {
	total := 0
	for _, grid := range p.Grids[1:] {
		total += grid.Polynomials()
	}
	return total
}

// parties are a client, and what evaluates its inputs and what it is told, of a calibrated network.
func parties(plan *Plan, set *parameters.Set) (*keys.Client, *Evaluator, *Public) {
	client := keys.NewClient(set)
	server := testparty.Must(keys.Generate(client))
	return client, testparty.Must(NewEvaluator(plan, server)), testparty.Must(plan.Public(set))
}

// direct is the network by the definition of a convolution, on tensors.
func direct(n *Network, input []float64) []float64 {
	shapes := testparty.Must(n.shapes())
	values := [][]float64{input}
	for l, layer := range n.all() {
		out := shapes[l+1]
		sum := make([]float64, out[0]*out[1]*out[2])
		for o := range out[0] {
			for i := range out[1] {
				for j := range out[2] {
					at := &sum[(o*out[1]+i)*out[2]+j]
					*at = layer.Bias[o]
					for _, term := range layer.Terms {
						from := shapes[term.From]
						for c := range term.In {
							for a := range term.Height {
								for b := range term.Width {
									y, x := i*term.Stride+a-term.Padding[0], j*term.Stride+b-term.Padding[1]
									if y < 0 || x < 0 || y >= from[1] || x >= from[2] {
										continue
									}
									w := term.Weights[((o*term.In+c)*term.Height+a)*term.Width+b]
									*at += w * values[term.From][(c*from[1]+y)*from[2]+x]
								}
							}
						}
					}
					if l < len(n.Layers) {
						*at = max(*at, 0)
					}
				}
			}
		}
		values = append(values, sum)
	}
	return values[len(values)-1]
}

func TestPlacesGiveTheConvolutionsOfTensors(t *testing.T) {
	n := small()
	for m, polynomials := range map[int][]int{64: {2, 3, 3, 4, 4}, 128: {1, 2, 2, 2, 2}, 256: {1, 1, 1, 1, 1}, 1024: {1, 1, 1, 1, 1}} {
		plan := testparty.Must(NewPlan(n, m))
		for v, grid := range plan.Grids {
			if grid.Polynomials() != polynomials[v] {
				t.Errorf("%d values: value %d takes %d polynomials, not %d", m, v, grid.Polynomials(), polynomials[v])
			}
		}
		for _, input := range inputs(n, 3) {
			got := testparty.Must(plan.Plain(input, Exact, func(int, float64) {}))
			for o, want := range direct(n, input) {
				if math.Abs(got[o]-want) > 1e-9 {
					t.Fatalf("%d values: logit %d is %g, not %g", m, o, got[o], want)
				}
			}
		}
	}
}

// chain is a plain network by its shapes, without weights: blocks of layers, the first of each with a stride.
func chain(input [3]int, blocks []Term, counts []int, outputs int) *Network {
	n := &Network{Name: "chain", Input: input, InputBound: 1}
	channels, side := input[0], input[1]
	for b, block := range blocks {
		for i := range counts[b] {
			t := block
			t.From, t.In, t.Width, t.Padding = len(n.Layers), channels, t.Height, [4]int{t.Height / 2, t.Height / 2, t.Height / 2, t.Height / 2}
			if i > 0 {
				t.Stride = 1
			}
			t.Weights = make(Floats, t.Out*t.In*t.Height*t.Width)
			n.Layers = append(n.Layers, Layer{Terms: []Term{t}, Bias: make(Floats, t.Out)})
			channels, side = t.Out, side/t.Stride
		}
	}
	n.Output = Layer{Bias: make(Floats, outputs), Terms: []Term{{
		From: len(n.Layers), Out: outputs, In: channels, Height: side, Width: side, Stride: 1, Weights: make(Floats, outputs*channels*side*side),
	}}}
	return n
}

func TestThePapersNetworksFit(t *testing.T) {
	plain := func(kernel, perBlock, width int) *Network {
		blocks := []Term{
			{Out: 16, Height: kernel, Stride: 1}, {Out: 16 * width, Height: kernel, Stride: 1},
			{Out: 32 * width, Height: kernel, Stride: 2}, {Out: 64 * width, Height: kernel, Stride: 2},
		}
		return chain([3]int{3, 32, 32}, blocks, []int{1, perBlock, perBlock, perBlock}, 10)
	}
	tail := func(kernel int) *Network {
		blocks := []Term{{Out: 256, Height: kernel, Stride: 2}, {Out: 512, Height: kernel, Stride: 2}}
		return chain([3]int{128, 28, 28}, blocks, []int{4, 4}, 10)
	}
	for _, test := range []struct {
		name                      string
		network                   *Network
		logValues                 int
		pitch, inputs, bootstraps int
	}{
		{"k3-d20-w1", plain(3, 6, 1), 15, 16, 1, 19},
		{"k7-d20-w1", plain(7, 6, 1), 15, 16, 1, 19},
		{"k5-d8-w3", plain(5, 2, 3), 15, 16, 1, 19},
		{"k5-d8-w3", plain(5, 2, 3), 16, 32, 1, 13},
		{"k3-d14-w3", plain(3, 4, 3), 15, 16, 1, 37},
		{"k3-d14-w3", plain(3, 4, 3), 16, 32, 1, 25},
		{"k3-d20-w3", plain(3, 6, 3), 15, 16, 1, 55},
		{"k3-d20-w3", plain(3, 6, 3), 16, 32, 1, 37},
		{"tail, k3", tail(3), 15, 32, 4, 32},
		{"tail, k5", tail(5), 16, 64, 2, 16},
	} {
		plan, err := NewPlan(test.network, 1<<test.logValues)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		first := plan.Grids[0]
		if first.ColumnPitch != test.pitch || first.Polynomials() != test.inputs || bootstraps(plan) != test.bootstraps {
			t.Errorf("%s in 2^%d values: pitch %d, %d ciphertexts of input, %d bootstraps",
				test.name, test.logValues, first.ColumnPitch, first.Polynomials(), bootstraps(plan))
		}
	}
	if _, err := NewPlan(chain([3]int{3, 224, 224}, []Term{{Out: 8, Height: 3, Stride: 2}}, []int{1}, 2), 1<<15); err == nil ||
		!strings.Contains(err.Error(), "a ciphertext has 32768") {
		t.Errorf("pictures of ImageNet: %v", err)
	}
}

func TestEncryptedNetworkGivesTheLogits(t *testing.T) {
	for _, test := range []struct {
		network            *Network
		literal            parameters.Literal
		inputs, bootstraps int
	}{
		{small(), parameters.InsecureTest, 1, 4},
		{small(), parameters.InsecureDense, 1, 4},
		{wide(), parameters.InsecureTest, 2, 5},
	} {
		literal, layers := test.literal, len(test.network.Layers)
		set := testparty.Must(parameters.New(literal))
		plan := testparty.Must(NewPlan(test.network, set.Values()))
		if plan.Grids[0].Polynomials() != test.inputs || bootstraps(plan) != test.bootstraps {
			t.Fatalf("%s: %d ciphertexts of input, %d bootstraps", test.network.Name, plan.Grids[0].Polynomials(), bootstraps(plan))
		}
		samples := inputs(plan.Network, 5)
		testparty.Must(plan.Calibrate(Inputs{Samples: samples, Margin: 1.25, StressMargin: 1}))
		client, evaluator, public := parties(plan, set)
		ct := testparty.Must(public.Encrypt(client, samples[0]))
		told := 0
		logits, err := evaluator.Evaluate(ct, func(layer, of int, times Times) {
			told++
			if layer != told || of != layers+1 {
				t.Errorf("progress %d of %d after %d layers", layer, of, told)
			}
		})
		testparty.Check(err)
		got := testparty.Must(public.Decrypt(client, logits))
		approximate := testparty.Must(plan.Plain(samples[0], plan.ReLU.Plain, nil))
		exact := direct(plan.Network, samples[0])
		bound := plan.Network.Output.Bound
		for o := range got {
			t.Logf("%s: logit %d: %.4f encrypted, %.4f by the polynomial, %.4f exact", literal.Name, o, got[o], approximate[o], exact[o])
			if math.Abs(got[o]-approximate[o]) > answer.MaximumError(bound)+bound*5e-4 {
				t.Errorf("%s: logit %d is %g, not %g", literal.Name, o, got[o], approximate[o])
			}
		}
		if _, err := evaluator.Evaluate(ct[:len(ct)-1], nil); err == nil || !strings.Contains(err.Error(), "ciphertexts") {
			t.Errorf("a part of an input: %v", err)
		}
		if told != layers+1 {
			t.Errorf("progress told %d times", told)
		}
	}
}

func TestDescriptionSurvivesJSON(t *testing.T) {
	n := small()
	text := testparty.Must(json.Marshal(n))
	read := testparty.Must(Parse(text))
	input := inputs(n, 1)[0]
	want := direct(n, input)
	for o, got := range direct(read, input) {
		if got != want[o] {
			t.Fatalf("logit %d is %g, not %g", o, got, want[o])
		}
	}
}

func TestBadDescriptionsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(n *Network){
		"takes value":      func(n *Network) { n.Layers[1].Terms[0].From = 2 },
		"channels":         func(n *Network) { n.Layers[1].Terms[0].From = 0 },
		"weights":          func(n *Network) { n.Layers[0].Terms[0].Weights = n.Layers[0].Terms[0].Weights[1:] },
		"bias":             func(n *Network) { n.Layers[0].Bias = nil },
		"no terms":         func(n *Network) { n.Output.Terms = nil },
		"not one number":   func(n *Network) { n.Output.Terms[0].Padding = [4]int{1, 1, 1, 1} },
		"bound":            func(n *Network) { n.InputBound = 0 },
		"the terms before": func(n *Network) { n.Layers[3].Terms[1].Stride = 1 },
		"size":             func(n *Network) { n.Layers[0].Terms[0].Stride = 0 },
		"input [2, 0, 6]":  func(n *Network) { n.Input[1] = 0 },
		"a 5 × 5 kernel":   func(n *Network) { n.Input[1] = 1; n.Layers[0].Terms[0].Padding = [4]int{} },
		"more than 67108864": func(n *Network) {
			t := &n.Layers[0].Terms[0]
			t.Out, t.In, t.Height, t.Width, t.Weights = 1<<16, 1<<16, 1<<16, 1<<16, nil
		},
		"padding 9 9 9 9 of": func(n *Network) { n.Layers[0].Terms[0].Padding = [4]int{9, 9, 9, 9} },
	} {
		n := small()
		spoil(n)
		text := testparty.Must(json.Marshal(n))
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	strided := small()
	strided.Layers[0].Terms[0].Stride, strided.Layers[0].Terms[0].Padding = 1<<16, [4]int{2, 2, 2, 2}
	strided.Layers, strided.Output = strided.Layers[:1], Layer{
		Name: "fc", Bias: Floats{0}, Terms: []Term{{From: 1, Out: 1, In: 3, Height: 1, Width: 1, Stride: 1, Weights: Floats{1, 1, 1}}},
	}
	if _, err := NewPlan(strided, 512); err == nil || !strings.Contains(err.Error(), "strides of 65536") {
		t.Errorf("a stride of 2^16: %v", err)
	}
	few := parameters.InsecureTest
	few.ReLULevels = 10
	plan := testparty.Must(NewPlan(small(), 512))
	set := testparty.Must(parameters.New(few))
	if err := plan.Check(set); err == nil || !strings.Contains(err.Error(), "takes 11 levels") {
		t.Errorf("a polynomial of 11 levels: %v", err)
	}
	unknown := small()
	unknown.ReLU = "9-9"
	if _, err := NewPlan(unknown, 512); err == nil || !strings.Contains(err.Error(), "no polynomial is called") {
		t.Errorf("an unknown polynomial: %v", err)
	}
	if _, err := NewPlan(small(), 32); err == nil || !strings.Contains(err.Error(), "a ciphertext has 32") {
		t.Errorf("a ciphertext that is too small: %v", err)
	}
}

// single has one output, so that a random logit often lies within its bound.
func single() *Network {
	n := small()
	rng := rand.New(rand.NewSource(12))
	n.Output = Layer{Name: "fc", Terms: []Term{term(rng, 4, 8, 1, 3, 1, 0)}, Bias: biases(rng, 1)}
	return n
}

func TestAnAnswerThatMeansNothingIsNoticed(t *testing.T) {
	for _, n := range []*Network{single(), small(), wide()} {
		set := testparty.Must(parameters.New(parameters.InsecureTest))
		plan := testparty.Must(NewPlan(n, set.Values()))
		// Bounds for inputs that are a third as large as those that come.
		near, far := inputs(n, 4), inputs(n, 4)
		for _, input := range near {
			for i := range input {
				input[i] /= 3
			}
		}
		testparty.Must(plan.Calibrate(Inputs{Samples: near, Margin: 1.25, StressMargin: 1}))
		client, evaluator, public := parties(plan, set)
		if public.Checks != maxChecks {
			t.Fatalf("%d checks", public.Checks)
		}
		ask := func(input []float64) error {
			ct := testparty.Must(public.Encrypt(client, input))
			logits := testparty.Must(evaluator.Evaluate(ct, nil))
			_, err := public.Decrypt(client, logits)
			return err
		}
		if err := ask(near[0]); err != nil {
			t.Errorf("%d outputs: an input within the bounds: %v", plan.Outputs, err)
		}
		for _, input := range far {
			simulated, err := plan.Simulate(input)
			if err != nil || simulated.Reach < 1.1 || simulated.Logits != nil {
				t.Fatalf("an input beyond the bounds: %+v, %v", simulated, err)
			}
			if err := ask(input); !errors.Is(err, ErrLeft) {
				t.Errorf("%d outputs: an input that reaches %.2f times the bound of %s: %v", plan.Outputs, simulated.Reach, simulated.Layer, err)
			}
		}
	}
}

func TestAnAnswerIsRead(t *testing.T) {
	public := Public{Outputs: 3, OutputBound: 2, Checks: 4}
	right := func() []float64 {
		coefficients := make([]float64, 64)
		for i := range coefficients {
			coefficients[i] = answer.RelativeNoise * (1 - 2*float64(i%2))
		}
		coefficients[0], coefficients[8], coefficients[16] = 0.5, -1, 0.25
		return coefficients
	}
	logits, err := public.read(right())
	if err != nil || len(logits) != 3 || logits[0] != 1 || logits[1] != -2 || logits[2] != 0.5 {
		t.Errorf("%v, %v", logits, err)
	}
	for _, test := range []struct {
		at    int
		value float64
		want  error
	}{
		{8, -1.01, ErrLeft}, {0, 7, ErrLeft}, {16, math.NaN(), ErrLeft}, {24, 0.01, ErrLeft}, {48, -3, ErrLeft}, {40, math.NaN(), ErrLeft},
		{1, 0.01, ErrSpoilt}, {56, -3, ErrSpoilt}, {63, math.NaN(), ErrSpoilt},
	} {
		coefficients := right()
		coefficients[test.at] = test.value
		if _, err := public.read(coefficients); !errors.Is(err, test.want) {
			t.Errorf("%g at %d: %v", test.value, test.at, err)
		}
	}
}

// What the places of checks hold in a right answer is hidden by its noise as the noise of packing is.
func TestChecksTellNothing(t *testing.T) {
	set := testparty.Must(parameters.New(parameters.InsecureTest))
	plan := testparty.Must(NewPlan(wide(), set.Values()))
	samples := inputs(plan.Network, 1)
	testparty.Must(plan.Calibrate(Inputs{Samples: samples, Margin: 1.25, StressMargin: 1}))
	client, evaluator, public := parties(plan, set)
	input := testparty.Must(public.Encrypt(client, samples[0]))
	values := [][]*rlwe.Ciphertext{input}
	for layer := range plan.Network.Layers {
		var times Times
		made := testparty.Must(evaluator.layer(layer, values, &times))
		values = append(values, made)
	}
	noise := answer.Derive(set, set.CKKS().XsHammingWeight(), plan.Outputs+plan.Checks())
	for index := range plan.Checks() {
		sum := testparty.Must(evaluator.check(index, values, 0))
		plaintext := rlwe.NewDecryptor(set.CKKS(), client.Secret()).DecryptNew(sum)
		plaintext.IsBatched, plaintext.Scale = false, rlwe.NewScale(1)
		coefficients := make([]float64, set.CKKS().N())
		testparty.Check(ckks.NewEncoder(set.CKKS()).Decode(plaintext, coefficients))
		// Packing multiplies by N.
		stands := math.Log2(math.Abs(coefficients[0])+1) + float64(set.CKKS().LogN())
		t.Logf("check %d: 2^%.1f under noise of 2^%d", index, stands, noise.LogRange)
		if distance := stands - float64(noise.LogRange) - 1; distance > noise.LogDistance-2 {
			t.Errorf("check %d is 2^%.1f from nothing, the packing's noise 2^%.1f", index, distance, noise.LogDistance)
		}
	}
}

func TestCalibrationTellsWhatItFound(t *testing.T) {
	n := small()
	plan := testparty.Must(NewPlan(n, 512))
	calibrate := func(samples, stress [][]float64) *Calibration {
		found := testparty.Must(plan.Calibrate(Inputs{Samples: samples, Margin: 1.5, Stress: stress, StressMargin: 1.25}))
		return found
	}
	various := inputs(n, 12)
	if found := calibrate(various, nil); len(found.Warnings) > 0 || found.Distinct != 12 || found.LeftOut > 1 || found.LeftOut < 0.5 {
		t.Errorf("twelve samples: %+v", found)
	}
	// One picture, hardly changed.
	frames := make([][]float64, 12)
	for i := range frames {
		frames[i] = slices.Clone(various[0])
		frames[i][i] /= 2
	}
	found := calibrate(frames, nil)
	if found.Distinct != 1 || len(found.Warnings) != 2 || !strings.Contains(found.Warnings[0], "too alike: of 12 only 1 differ") {
		t.Errorf("twelve frames: %+v", found)
	}
	// Small ones, and one that is not.
	for _, input := range various[1:] {
		for i := range input {
			input[i] /= 5
		}
	}
	found = calibrate(various, nil)
	if len(found.Warnings) != 1 || !strings.Contains(found.Warnings[0], "sample 0 would leave the bounds") {
		t.Errorf("one that is unlike the others: %+v", found)
	}
	// Made-up inputs set bounds where they reach farther.
	before := make([]float64, len(n.all()))
	calibrate(various[1:], nil)
	for i, layer := range n.all() {
		before[i] = layer.Bound
	}
	found = calibrate(various[1:], inputs(n, 3))
	if found.Stressed != len(before) || found.Stretch < 2 {
		t.Errorf("made-up inputs: %+v", found)
	}
	for i, layer := range n.all() {
		if layer.Bound <= before[i] {
			t.Errorf("layer %d has the bound %g, %g without made-up inputs", i, layer.Bound, before[i])
		}
	}
	beyond := slices.Clone(various[0])
	beyond[3] = 1.5
	if simulated, err := plan.Simulate(beyond); err != nil || simulated.Reach < 1.5 || simulated.Logits != nil || len(simulated.Exact) != plan.Outputs {
		t.Errorf("an input beyond its bound: %+v, %v", simulated, err)
	}
	if _, err := plan.Calibrate(Inputs{Samples: various, Margin: 1.5, StressMargin: 0.5}); err == nil {
		t.Error("a margin of a half")
	}
}
