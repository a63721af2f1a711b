package network

import (
	"encoding/json"
	"math"
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// full makes both parties at full size, or skips with the reason. `make test-convfhe` sets JAGUAR_CONVFHE_FULL; JAGUAR_CONVFHE_SET
// names another parameter set.
func full(t *testing.T, n *Network, samples [][]float64) (*Plan, *Public, *keys.Client, *Evaluator) {
	t.Helper()
	if os.Getenv("JAGUAR_CONVFHE_FULL") == "" {
		t.Skip("full sizes take 13 GB and many minutes: make test-convfhe")
	}
	name := os.Getenv("JAGUAR_CONVFHE_SET")
	if name == "" {
		name = parameters.Default.Name
	}
	literal := testparty.Must(parameters.ByName(name))
	set := testparty.Must(parameters.New(literal))
	plan := testparty.Must(NewPlan(n, set.Values()))
	// (A description that `jaguar-fhe calibrate` made has its bounds.)
	if plan.Calibrated() != nil {
		testparty.Must(plan.Calibrate(Inputs{Samples: samples, Margin: 1.5, StressMargin: 1}))
	}
	public := testparty.Must(plan.Public(set))
	begin := time.Now()
	client := keys.NewClient(set)
	server := testparty.Must(keys.Generate(client))
	t.Logf("%s: keys made in %.0f s", name, time.Since(begin).Seconds())
	begin = time.Now()
	evaluator := testparty.Must(NewEvaluator(plan, server))
	t.Logf("matrices made in %.0f s", time.Since(begin).Seconds())
	return plan, public, client, evaluator
}

// ask evaluates one input, logs the phases of every layer, and returns the logits.
func ask(t *testing.T, public *Public, client *keys.Client, evaluator *Evaluator, input []float64) []float64 {
	t.Helper()
	ct := testparty.Must(public.Encrypt(client, input))
	begin := time.Now()
	logits, err := evaluator.Evaluate(ct, func(layer, layers int, times Times) {
		t.Logf("layer %d of %d, %.0f s in all: convolution %.2f, packing %.2f, CtoS %.2f, sine %.2f, ReLU %.2f, StoC %.2f s",
			layer, layers, time.Since(begin).Seconds(), times.Convolution.Seconds(), times.Packing.Seconds(),
			times.CtoS.Seconds(), times.Sine.Seconds(), times.ReLU.Seconds(), times.StoC.Seconds())
	})
	testparty.Check(err)
	got := testparty.Must(public.Decrypt(client, logits))
	return got
}

func top(logits []float64) int {
	best := 0
	for i, logit := range logits {
		if logit > logits[best] {
			best = i
		}
	}
	return best
}

// agree checks one answer beside the plaintext network: the same class, logits within 2^-6 of their spread.
func agree(t *testing.T, plan *Plan, input, got []float64) {
	t.Helper()
	exact := testparty.Must(plan.Plain(input, Exact, nil))
	low, high, worst := math.Inf(1), math.Inf(-1), 0.0
	for o := range exact {
		low, high, worst = min(low, exact[o]), max(high, exact[o]), max(worst, math.Abs(got[o]-exact[o]))
	}
	t.Logf("encrypted %.3f\nplaintext %.3f\nlargest difference 2^%.1f of the spread", got, exact, math.Log2(worst/(high-low)))
	if top(got) != top(exact) {
		t.Errorf("class %d, not %d", top(got), top(exact))
	}
	if worst > (high-low)/64 {
		t.Errorf("a logit is off by %g, the spread is %g", worst, high-low)
	}
}

func TestOneLayerAtFullSize(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	n := &Network{
		Name: "one layer", Input: [3]int{16, 32, 32}, InputBound: 1,
		Layers: []Layer{{Name: "3 × 3", Terms: []Term{term(rng, 0, 16, 16, 3, 1, 1)}, Bias: biases(rng, 16)}},
		Output: Layer{Name: "fc", Terms: []Term{term(rng, 1, 16, 10, 32, 1, 0)}, Bias: biases(rng, 10)},
	}
	samples := inputs(n, 2)
	plan, public, client, evaluator := full(t, n, samples)
	agree(t, plan, samples[0], ask(t, public, client, evaluator, samples[0]))
}

// The description, calibrated or not, and the samples are what `cargo run --package jaguar-convfhe --example describe` writes.
// JAGUAR_CONVFHE_PICTURES says how many are run, minutes each; without it, half of them, up to five.
func TestWholeNetworkAtFullSize(t *testing.T) {
	description, samplesFile := os.Getenv("JAGUAR_CONVFHE_NETWORK"), os.Getenv("JAGUAR_CONVFHE_SAMPLES")
	if description == "" || samplesFile == "" {
		t.Skip("no network: JAGUAR_CONVFHE_NETWORK and JAGUAR_CONVFHE_SAMPLES name its description and samples")
	}
	n := testparty.Must(Parse(testparty.Must(os.ReadFile(description))))
	var samples [][]float64
	testparty.Check(json.Unmarshal(testparty.Must(os.ReadFile(samplesFile)), &samples))
	if len(samples) < 2 {
		t.Fatalf("%d samples; some are run, the others calibrate", len(samples))
	}
	run := min(len(samples)/2, 5)
	if text := os.Getenv("JAGUAR_CONVFHE_PICTURES"); text != "" {
		var err error
		if run, err = strconv.Atoi(text); err != nil || run < 1 || run >= len(samples) {
			t.Fatalf("JAGUAR_CONVFHE_PICTURES is %q; there are %d samples, and those that are not run calibrate", text, len(samples))
		}
	}
	plan, public, client, evaluator := full(t, n, samples[max(run, len(samples)/2):])
	for _, input := range samples[:run] {
		agree(t, plan, input, ask(t, public, client, evaluator, input))
	}
}
