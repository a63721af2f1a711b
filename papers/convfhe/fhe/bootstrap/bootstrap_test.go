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

func newEvaluator(p *testparty.Party) *Evaluator {
	return testparty.Must(New(p.Server, testparty.Must(relu.ByName(relu.Default))))
}

func TestSlotsHoldTheCoefficientsInTheMasksOrder(t *testing.T) {
	for _, literal := range literals {
		p := testparty.New(literal)
		values := testparty.Random(7, p.Set.Values())
		slots := testparty.Must(newEvaluator(p).Slots(p.Encrypt(values, 0, p.Set.RaisedScale()), &Times{}))
		half := len(values) / 2
		length := len(values) / len(slots)
		for i, ct := range slots {
			ct.LogDimensions.Cols = logLength(length)
			got := make([]float64, length)
			testparty.Check(p.Encoder.Decode(rlwe.NewDecryptor(p.Set.CKKS(), p.Client.Secret()).DecryptNew(ct), got))
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
		p := testparty.New(test.literal)
		for _, name := range test.options {
			rectifiesAndMasks(t, p, testparty.Must(relu.ByName(name)))
		}
	}
}

func rectifiesAndMasks(t *testing.T, p *testparty.Party, option relu.Option) {
	t.Helper()
	evaluator := testparty.Must(New(p.Server, option))
	values := testparty.Random(8, p.Set.Values())
	keep := make([]float64, len(values))
	for v := range keep {
		keep[v] = float64(v % 3 % 2)
	}
	mask := testparty.Must(evaluator.Mask(keep))
	ct := testparty.Must(evaluator.Layer(p.Encrypt(values, 0, p.Set.RaisedScale()), mask, &Times{}))
	if ct.Level() != p.Set.InputLevel() {
		t.Fatalf("%s: level %d, not %d", p.Set.Name(), ct.Level(), p.Set.InputLevel())
	}
	worst := 0.0
	for v, y := range p.Decrypt(ct) {
		x := values[v]
		worst = max(worst, math.Abs(y-keep[v]*option.Plain(x)))
		if difference := math.Abs(y - keep[v]*max(x, 0)); difference > option.Error()+3e-4 {
			t.Fatalf("%s, %s: value %d: ReLU(%g)·%g is %g", p.Set.Name(), option.Name(), v, x, keep[v], y)
		}
	}
	t.Logf("%s, %s: error beside the polynomial: %g", p.Set.Name(), option.Name(), worst)
}

func TestWrongLevelsAndMasksAreRefused(t *testing.T) {
	p := testparty.New(parameters.InsecureTest)
	evaluator := newEvaluator(p)
	if _, err := evaluator.Mask(make([]float64, 3)); err == nil || !strings.Contains(err.Error(), "3 values") {
		t.Errorf("a mask of 3 values: %v", err)
	}
	if _, err := evaluator.Slots(p.Encrypt(nil, 1, 1), &Times{}); err == nil || !strings.Contains(err.Error(), "level 1, not 0") {
		t.Errorf("level 1: %v", err)
	}
	few := parameters.InsecureTest
	few.ReLULevels = 10
	if _, err := New(testparty.New(few).Server, testparty.Must(relu.ByName("7-7-13"))); err == nil || !strings.Contains(err.Error(), "takes 11 levels") {
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
	set := testparty.Must(parameters.New(literal))
	client := keys.NewClient(set)
	server := testparty.Must(keys.Generate(client))
	paper := testparty.Must(relu.ByName(relu.Default))
	evaluator := testparty.Must(New(server, paper))
	mask := testparty.Must(evaluator.Mask(make([]float64, set.Values())))
	ct := rlwe.NewCiphertext(set.CKKS(), 1, 0)
	testparty.Check(rlwe.NewEncryptor(set.CKKS(), client.Secret()).EncryptZero(ct))
	var times Times
	for b.Loop() {
		testparty.Must(evaluator.Layer(ct.CopyNew(), mask, &times))
	}
	for name, phase := range map[string]time.Duration{"CtoS": times.CtoS, "sine": times.Sine, "ReLU": times.ReLU, "StoC": times.StoC} {
		b.ReportMetric(phase.Seconds()/float64(b.N), name+"-s/op")
	}
}
