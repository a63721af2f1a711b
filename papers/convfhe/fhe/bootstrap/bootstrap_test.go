package bootstrap

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
	"jaguar/fhe/relu"
)

var literals = []parameters.Literal{parameters.InsecureTest, parameters.InsecureDense}

func option(t *testing.T, name string) relu.Option {
	t.Helper()
	found, err := relu.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func newEvaluator(t *testing.T, p *testparty.Party) *Evaluator {
	t.Helper()
	evaluator, err := New(p.Server, option(t, relu.Default))
	if err != nil {
		t.Fatal(err)
	}
	return evaluator
}

func TestSlotsHoldTheCoefficientsInTheMasksOrder(t *testing.T) {
	for _, literal := range literals {
		p := testparty.New(t, literal)
		values := testparty.Random(7, p.Set.Values())
		slots, err := newEvaluator(t, p).Slots(p.Encrypt(t, values, 0, p.Set.RaisedScale()), &Times{})
		if err != nil {
			t.Fatal(err)
		}
		half := len(values) / 2
		length := len(values) / len(slots)
		for i, ct := range slots {
			ct.LogDimensions.Cols = logLength(length)
			got := make([]float64, length)
			if err := p.Encoder.Decode(rlwe.NewDecryptor(p.Set.CKKS(), p.Client.Secret()).DecryptNew(ct), got); err != nil {
				t.Fatal(err)
			}
			for k, want := range slotOrder(values[i*length:(i+1)*length], half) {
				// sin(y) is y - y^3/6 + ..., y = 2π/256 for a value of 1.
				if math.Abs(got[k]-want) > math.Pow(2*math.Pi/256, 2)/6+1e-5 {
					t.Fatalf("%s: ciphertext %d slot %d is %g, not %g", literal.Name, i, k, got[k], want)
				}
			}
		}
	}
}

func TestLayerRectifiesAndMasks(t *testing.T) {
	for _, test := range []struct {
		literal parameters.Literal
		options []string
	}{
		{parameters.InsecureTest, []string{"7-15", "7-7-7", "7-7-13"}},
		{parameters.InsecureDense, []string{"7-7-13"}},
	} {
		p := testparty.New(t, test.literal)
		for _, name := range test.options {
			rectifiesAndMasks(t, p, option(t, name))
		}
	}
}

func rectifiesAndMasks(t *testing.T, p *testparty.Party, option relu.Option) {
	t.Helper()
	evaluator, err := New(p.Server, option)
	if err != nil {
		t.Fatal(err)
	}
	values := testparty.Random(8, p.Set.Values())
	keep := make([]float64, len(values))
	for v := range keep {
		keep[v] = float64(v % 3 % 2)
	}
	mask, err := evaluator.Mask(keep)
	if err != nil {
		t.Fatal(err)
	}
	ct, err := evaluator.Layer(p.Encrypt(t, values, 0, p.Set.RaisedScale()), mask, &Times{})
	if err != nil {
		t.Fatal(err)
	}
	if ct.Level() != p.Set.InputLevel() {
		t.Fatalf("%s: level %d, not %d", p.Set.Name(), ct.Level(), p.Set.InputLevel())
	}
	worst := 0.0
	for v, y := range p.Decrypt(t, ct) {
		x := values[v]
		worst = max(worst, math.Abs(y-keep[v]*option.Plain(x)))
		if difference := math.Abs(y - keep[v]*max(x, 0)); difference > option.Error()+3e-4 {
			t.Fatalf("%s, %s: value %d: ReLU(%g)·%g is %g", p.Set.Name(), option.Name(), v, x, keep[v], y)
		}
	}
	t.Logf("%s, %s: error beside the polynomial: %g", p.Set.Name(), option.Name(), worst)
}

func TestWrongLevelsAndMasksAreRefused(t *testing.T) {
	p := testparty.New(t, parameters.InsecureTest)
	evaluator := newEvaluator(t, p)
	if _, err := evaluator.Mask(make([]float64, 3)); err == nil || !strings.Contains(err.Error(), "3 values") {
		t.Errorf("a mask of 3 values: %v", err)
	}
	if _, err := evaluator.Slots(p.Encrypt(t, nil, 1, 1), &Times{}); err == nil || !strings.Contains(err.Error(), "level 1, not 0") {
		t.Errorf("level 1: %v", err)
	}
	few := parameters.InsecureTest
	few.ReLULevels = 10
	if _, err := New(testparty.New(t, few).Server, option(t, "7-7-13")); err == nil || !strings.Contains(err.Error(), "takes 11 levels") {
		t.Errorf("more levels than there are: %v", err)
	}
	if err := evaluator.Rectify(nil, make(Mask, 1), &Times{}); err == nil {
		t.Error("a mask for no ciphertext")
	}
}

// The phases of a layer in a ring of an eighth of the full degree, which protects nothing.
func BenchmarkLayer(b *testing.B) {
	literal := parameters.Default
	literal.Name, literal.LogN, literal.LogValues = "insecure-n13", 13, 12
	set, err := parameters.New(literal)
	if err != nil {
		b.Fatal(err)
	}
	client := keys.NewClient(set)
	server, err := keys.Generate(client)
	if err != nil {
		b.Fatal(err)
	}
	paper, err := relu.ByName(relu.Default)
	if err != nil {
		b.Fatal(err)
	}
	evaluator, err := New(server, paper)
	if err != nil {
		b.Fatal(err)
	}
	mask, err := evaluator.Mask(make([]float64, set.Values()))
	if err != nil {
		b.Fatal(err)
	}
	ct := rlwe.NewCiphertext(set.CKKS(), 1, 0)
	if err := rlwe.NewEncryptor(set.CKKS(), client.Secret()).EncryptZero(ct); err != nil {
		b.Fatal(err)
	}
	var times Times
	for b.Loop() {
		if _, err := evaluator.Layer(ct.CopyNew(), mask, &times); err != nil {
			b.Fatal(err)
		}
	}
	for name, phase := range map[string]time.Duration{"CtoS": times.CtoS, "sine": times.Sine, "ReLU": times.ReLU, "StoC": times.StoC} {
		b.ReportMetric(phase.Seconds()/float64(b.N), name+"-s/op")
	}
}
