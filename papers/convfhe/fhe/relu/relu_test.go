package relu

import (
	"math"
	"strings"
	"testing"
)

func TestErrorsAreTheStatedOnes(t *testing.T) {
	const steps = 1 << 20
	levels, before := 0, 1.0
	for _, option := range Options() {
		worst, at := 0.0, 0.0
		for i := -steps; i <= steps; i++ {
			x := float64(i) / steps
			if difference := math.Abs(option.Plain(x) - max(x, 0)); difference > worst {
				worst, at = difference, x
			}
		}
		t.Logf("%s, %d levels: largest error 2^%.2f at %g", option.Name(), option.Levels(), math.Log2(worst), at)
		if worst > option.Error()*1.001 || worst < option.Error()*0.999 {
			t.Errorf("%s: error %g at %g, not %g", option.Name(), worst, at, option.Error())
		}
		if option.Levels() <= levels || option.Error() >= before {
			t.Errorf("%s: no more levels, or no smaller error, than the one before", option.Name())
		}
		levels, before = option.Levels(), option.Error()
	}
}

func TestOptionsAreFoundByName(t *testing.T) {
	paper, err := ByName("")
	if err != nil || paper.Name() != Default || paper.Levels() != 11 || paper.Error() > 1.0/1024 {
		t.Errorf("the paper's: %v, %v", paper, err)
	}
	if _, err := ByName("9-9"); err == nil || !strings.Contains(err.Error(), "7-7-13") {
		t.Errorf("an unknown name: %v", err)
	}
}
