package bootstrap

import (
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"

	"jaguar/fhe/internal/testparty"
)

// roundings is by how much a residue may differ where the same products are divided by P in another order.
const roundings = 16

func TestTheModulusIsRaisedAsLattigoRaisesIt(t *testing.T) {
	for _, literal := range literals {
		p := testparty.New(literal)
		e := newEvaluator(p)
		ct := p.Encrypt(testparty.Random(3, p.Set.Values()), 0, p.Set.RaisedScale())
		ct.IsBatched = true
		ct.LogDimensions = ring.Dimensions{Rows: 0, Cols: p.Set.Circuit().LogMaxSlots()}
		want := testparty.Must(e.circuit.ModUp(ct.CopyNew()))
		got := testparty.Must(e.raise(ct))
		if got.Level() != want.Level() || !got.Scale.InDelta(want.Scale, 30) || !got.IsNTT || !got.IsBatched {
			t.Fatalf("%s: level %d and scale %v, not %d and %v", literal.Name, got.Level(), got.Scale, want.Level(), want.Scale)
		}
		ringQ := p.Set.CKKS().RingQ()
		for part := range got.Value {
			off := ringQ.NewPoly()
			ringQ.Sub(got.Value[part], want.Value[part], off)
			ringQ.INTT(off, off)
			for i, sub := range ringQ.SubRings {
				for j, x := range off.Coeffs[i] {
					if min(x, sub.Modulus-x) > roundings {
						t.Fatalf("%s: coefficient %d of part %d modulo %d is off by %d", literal.Name, j, part, sub.Modulus, x)
					}
				}
			}
		}
	}
}

// An automorphism on all processors is Lattigo's, also in place.
func TestAutomorphismsAreLattigos(t *testing.T) {
	p := testparty.New(literals[0])
	e, params := newEvaluator(p), p.Set.CKKS()
	element := params.GaloisElementForComplexConjugation()
	level := p.Set.Circuit().Mod1ParametersLiteral.LevelQ
	ct := p.Encrypt(testparty.Random(4, p.Set.Values()), level, p.Set.ValueScale())
	want, got := rlwe.NewCiphertext(params, 1, level), rlwe.NewCiphertext(params, 1, level)
	testparty.Check(e.circuit.Automorphism(ct, element, want))
	testparty.Check(e.threads.Automorphism(ct, element, got))
	testparty.Check(e.threads.Automorphism(ct, element, ct))
	ringQ := params.RingQ().AtLevel(level)
	for part := range got.Value {
		if !ct.Value[part].Equal(&got.Value[part]) {
			t.Fatalf("part %d differs in place", part)
		}
		off := ringQ.NewPoly()
		ringQ.Sub(got.Value[part], want.Value[part], off)
		ringQ.INTT(off, off)
		for i := range level + 1 {
			for _, x := range off.Coeffs[i] {
				if min(x, ringQ.SubRings[i].Modulus-x) > roundings {
					t.Fatalf("part %d modulo %d is off by %d", part, ringQ.SubRings[i].Modulus, x)
				}
			}
		}
	}
}
