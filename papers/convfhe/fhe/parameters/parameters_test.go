package parameters

import (
	"strings"
	"testing"
)

func TestSetsWithoutARecordAreRefused(t *testing.T) {
	for name, literal := range map[string]Literal{
		"the paper's weight":         func() Literal { l := InsecurePaper; l.Name = "paper"; return l }(),
		"half the ring":              func() Literal { l := Default; l.LogN = 15; return l }(),
		"more modulus":               func() Literal { l := Default; l.LogP = append([]int{61}, l.LogP...); return l }(),
		"a sparser ephemeral secret": func() Literal { l := Default; l.EphemeralWeight = 16; return l }(),
	} {
		if _, err := New(literal); err == nil || !strings.Contains(err.Error(), "no record of 128 bits") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecureSetsAreOnRecord(t *testing.T) {
	for literal, least := range map[*Literal]float64{&Default: 144, &Full: 144, &Coarse: 156} {
		bits, _, err := literal.security()
		if err != nil || bits < least {
			t.Errorf("%s: %v bits, %v", literal.Name, bits, err)
		}
	}
}

func TestBadLiteralsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(l *Literal){
		"log N":        func(l *Literal) { l.LogN = 5 },
		"values":       func(l *Literal) { l.LogValues = 11 },
		"needs moduli": func(l *Literal) { l.LogP = nil },
		"InsecureTest": func(l *Literal) { l.LogReLU = 70 },
		"no record":    func(l *Literal) { l.Name = "other" },
	} {
		literal := InsecureTest
		literal.Name = "insecure InsecureTest"
		spoil(&literal)
		if _, err := New(literal); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ByName("n17"); err == nil || !strings.Contains(err.Error(), "n16") {
		t.Errorf("an unknown name: %v", err)
	}
}
