package bootstrap

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/parameters"
	"jaguar/fhe/relu"
)

// chain is a set of sizes in bits.
type chain struct {
	q0, convolution, relu, sine, cToS int
	sToC                              [][]int
	p                                 []int
}

func equal(size, count int) []int {
	sizes := make([]int, count)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// Errors of slots and layers by sizes of moduli. They are reported as log2: of the slots' error behind the sine, beside the sine
// itself; of the layer's, beside the polynomial of the same slots.
//
//	go test ./bootstrap -run '^$' -bench Precision -benchtime 1x
//	JAGUAR_LOG_N=14 go test …                                         in a larger ring (2^10 otherwise; 2^16 takes 12 GB)
func BenchmarkPrecision(b *testing.B) {
	logN := 10
	if given, err := strconv.Atoi(os.Getenv("JAGUAR_LOG_N")); err == nil {
		logN = given
	}
	today := [][]int{{36}, {30, 30}}
	for _, c := range []chain{
		{55, 50, 36, 55, 53, today, equal(61, 5)},
		{55, 50, 36, 55, 50, today, equal(50, 6)},
		{50, 50, 36, 50, 50, today, equal(50, 6)},
		{50, 50, 36, 50, 50, [][]int{{36}, {30}, {30}}, equal(50, 6)},
		{50, 50, 36, 50, 50, [][]int{{36}, {36}, {36}}, equal(50, 6)},
		{50, 50, 40, 50, 50, [][]int{{40}, {30}, {30}}, equal(50, 6)},
		{50, 50, 41, 50, 50, [][]int{{41}, {33}, {33}}, equal(50, 6)},
		{50, 50, 40, 50, 46, [][]int{{40}, {36}, {36}}, equal(50, 6)},
		{50, 50, 36, 50, 50, [][]int{{36}, {30}, {30}}, equal(50, 7)},
		{50, 50, 38, 50, 46, [][]int{{38}, {30}, {30}}, equal(50, 7)},
		{50, 50, 36, 50, 46, today, equal(50, 6)},
		{50, 50, 36, 50, 42, today, equal(50, 6)},
		{49, 50, 36, 49, 49, today, equal(50, 6)},
		{48, 50, 36, 48, 48, today, equal(48, 6)},
		{46, 50, 36, 46, 46, today, equal(50, 6)},
		{44, 44, 36, 44, 44, today, equal(44, 6)},
	} {
		literal := parameters.Default
		literal.Name, literal.LogN, literal.LogValues = "insecure-precision", logN, logN-1
		literal.LogQ0, literal.LogConvolution, literal.LogReLU, literal.LogSine = c.q0, c.convolution, c.relu, c.sine
		literal.LogCtoS, literal.LogStoC, literal.LogP = equal(c.cToS, 4), c.sToC, c.p
		name := fmt.Sprintf("q0=%d,relu=%d,sine=%d,ctos=%d,stoc=%v,p=%dx%d", c.q0, c.relu, c.sine, c.cToS, c.sToC, len(c.p), c.p[0])
		if want := os.Getenv("JAGUAR_CHAIN"); want != "" && want != name {
			continue
		}
		b.Run(name, func(b *testing.B) {
			p := testparty.New(literal)
			for b.Loop() {
				precision(b, p)
			}
			b.ReportMetric(float64(literal.LogModulus()), "log2-QP")
		})
	}
}

func precision(b *testing.B, p *testparty.Party) {
	b.Helper()
	option := testparty.Must(relu.ByName(relu.Default))
	evaluator := testparty.Must(New(p.Server, option))
	values := testparty.Random(7, p.Set.Values())
	ones := make([]float64, len(values))
	for v := range ones {
		ones[v] = 1
	}
	mask := testparty.Must(evaluator.Mask(ones))
	slots := testparty.Must(evaluator.Slots(p.Encrypt(values, 0, p.Set.RaisedScale()), &Times{}))
	ct := slots[0].CopyNew()
	ct.LogDimensions.Cols = logLength(len(values))
	got := make([]float64, len(values))
	testparty.Check(p.Encoder.Decode(rlwe.NewDecryptor(p.Set.CKKS(), p.Client.Secret()).DecryptNew(ct), got))
	// What the sine gives: a period is q0 at the scale before ModUp.
	period := float64(p.Set.CKKS().Q()[0]) / p.Set.RaisedScale()
	sum, worst := 0.0, 0.0
	for k, x := range slotOrder(values, len(values)/2) {
		difference := got[k] - math.Sin(2*math.Pi*x/period)*period/(2*math.Pi)
		sum, worst = sum+difference*difference, max(worst, math.Abs(difference))
	}
	b.ReportMetric(math.Log2(math.Sqrt(sum/float64(len(values)))), "log2-rms-slots")
	b.ReportMetric(math.Log2(worst), "log2-max-slots")
	testparty.Check(evaluator.Rectify(slots, mask, &Times{}))
	layer := testparty.Must(evaluator.Coefficients(slots, &Times{}))
	sum, worst = 0, 0
	sorted := p.Decrypt(layer)
	for v, x := range values {
		difference := sorted[v] - option.Plain(math.Sin(2*math.Pi*x/period)*period/(2*math.Pi))
		sum, worst = sum+difference*difference, max(worst, math.Abs(difference))
	}
	b.ReportMetric(math.Log2(math.Sqrt(sum/float64(len(values)))), "log2-rms-layer")
	b.ReportMetric(math.Log2(worst), "log2-max-layer")
}
