package bootstrap

import (
	"math"
	"math/rand"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
	"jaguar/fhe/relu"
)

// party is both parties of a test.
type party struct {
	set       *parameters.Set
	client    *keys.Client
	evaluator *Evaluator
	encoder   *ckks.Encoder
}

func newParty(t *testing.T, literal parameters.Literal) *party {
	t.Helper()
	set, err := parameters.New(literal)
	if err != nil {
		t.Fatal(err)
	}
	client := keys.NewClient(set)
	server, err := keys.Generate(client)
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := New(server)
	if err != nil {
		t.Fatal(err)
	}
	return &party{set: set, client: client, evaluator: evaluator, encoder: ckks.NewEncoder(set.CKKS())}
}

// encrypt puts values into coefficients at level 0.
func (p *party) encrypt(t *testing.T, values []float64) *rlwe.Ciphertext {
	t.Helper()
	spread := make([]float64, p.set.CKKS().N())
	for v, x := range values {
		spread[v*p.set.Gap()] = x
	}
	plaintext := ckks.NewPlaintext(p.set.CKKS(), 0)
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(p.set.RaisedScale())
	if err := p.encoder.Encode(spread, plaintext); err != nil {
		t.Fatal(err)
	}
	ct, err := rlwe.NewEncryptor(p.set.CKKS(), p.client.Secret()).EncryptNew(plaintext)
	if err != nil {
		t.Fatal(err)
	}
	return ct
}

func random(n int) []float64 {
	rng := rand.New(rand.NewSource(7))
	values := make([]float64, n)
	for i := range values {
		values[i] = 2*rng.Float64() - 1
	}
	return values
}

var literals = []parameters.Literal{parameters.InsecureTest, parameters.InsecureDense}

func TestSlotsHoldTheCoefficientsInTheMasksOrder(t *testing.T) {
	for _, literal := range literals {
		p := newParty(t, literal)
		values := random(p.set.Values())
		slots, err := p.evaluator.Slots(p.encrypt(t, values), &Times{})
		if err != nil {
			t.Fatal(err)
		}
		half := len(values) / 2
		length := len(values) / len(slots)
		for i, ct := range slots {
			ct.LogDimensions.Cols = logLength(length)
			got := make([]float64, length)
			if err := p.encoder.Decode(rlwe.NewDecryptor(p.set.CKKS(), p.client.Secret()).DecryptNew(ct), got); err != nil {
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
	for _, literal := range literals {
		p := newParty(t, literal)
		values := random(p.set.Values())
		keep := make([]float64, len(values))
		for v := range keep {
			keep[v] = float64(v % 3 % 2)
		}
		mask, err := p.evaluator.Mask(keep)
		if err != nil {
			t.Fatal(err)
		}
		ct, err := p.evaluator.Layer(p.encrypt(t, values), mask, &Times{})
		if err != nil {
			t.Fatal(err)
		}
		if ct.Level() != p.set.InputLevel() {
			t.Fatalf("%s: level %d, not %d", literal.Name, ct.Level(), p.set.InputLevel())
		}
		got := make([]float64, p.set.CKKS().N())
		if err := p.encoder.Decode(rlwe.NewDecryptor(p.set.CKKS(), p.client.Secret()).DecryptNew(ct), got); err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for v, x := range values {
			y := got[v*p.set.Gap()]
			worst = max(worst, math.Abs(y-keep[v]*relu.Plain(x)))
			if difference := math.Abs(y - keep[v]*max(x, 0)); difference > relu.MaximumError+2e-4 {
				t.Fatalf("%s: value %d: ReLU(%g)·%g is %g", literal.Name, v, x, keep[v], y)
			}
		}
		t.Logf("%s: error beside the polynomial: %g", literal.Name, worst)
	}
}
