package relu

import (
	"math"
	"testing"
)

func TestPolynomialErrorIsAtMostTheStatedOne(t *testing.T) {
	const steps = 1 << 20
	worst, at := 0.0, 0.0
	for i := -steps; i <= steps; i++ {
		x := float64(i) / steps
		if difference := math.Abs(Plain(x) - max(x, 0)); difference > worst {
			worst, at = difference, x
		}
	}
	t.Logf("largest error 2^%.2f at %g", math.Log2(worst), at)
	if worst > MaximumError {
		t.Fatalf("error %g at %g", worst, at)
	}
	if worst < MaximumError/2 {
		t.Fatalf("the stated error is loose: %g", worst)
	}
}
