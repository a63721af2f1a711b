package layout

import (
	"strings"
	"testing"

	"jaguar/fhe/internal/testparty"
)

func TestScatterPutsEachValueInItsPlace(t *testing.T) {
	for pitch, polynomials := range map[int]int{1: 3, 2: 2, 4: 1} {
		grid := testparty.Must(New(3, 4, 5, 2, pitch))
		if grid.ColumnPitch != pitch || grid.RowPitch != 7*pitch || grid.Polynomials() != polynomials {
			t.Fatalf("%+v in %d polynomials", grid, grid.Polynomials())
		}
		tensor := make([]float64, 60)
		for i := range tensor {
			tensor[i] = float64(i + 1)
		}
		values := testparty.Must(grid.Scatter(tensor, 128))
		kept := 0.0
		for p, mask := range grid.Masks(128) {
			for v, keep := range mask {
				kept += keep
				if (keep == 0) != (values[p][v] == 0) {
					t.Fatalf("polynomial %d place %d has %g, its mask %g", p, v, values[p][v], keep)
				}
			}
		}
		if kept != 60 {
			t.Fatalf("the masks keep %g values", kept)
		}
		grid.each(func(p, v, i int) {
			if got := values[p][v]; got != tensor[i] {
				t.Fatalf("value %d is %g", i, got)
			}
		})
	}
}

// A stride moves nothing: (s·i, s·j) of a channel is (i, j) of the strided grid.
func TestStridedPlacesStay(t *testing.T) {
	grid := testparty.Must(New(4, 8, 8, 1, 4))
	strided := testparty.Must(grid.Strided(8, 4, 4, 2))
	for i := range 4 {
		for j := range 4 {
			if strided.At(3, i, j) != grid.At(3, 2*i, 2*j) {
				t.Fatalf("(%d, %d) moved", i, j)
			}
		}
	}
}

func TestWrapIsNegacyclic(t *testing.T) {
	for _, test := range []struct {
		index, place int
		sign         float64
	}{{5, 5, 1}, {8, 0, -1}, {15, 7, -1}, {16, 0, 1}, {-1, 7, -1}, {-9, 7, 1}} {
		if place, sign := Wrap(test.index, 8); place != test.place || sign != test.sign {
			t.Errorf("%d is at %d with sign %g", test.index, place, sign)
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	grid := testparty.Must(New(4, 8, 8, 1, 4))
	for want, err := range map[string]error{
		"a ciphertext has 256": grid.Fits(1, 256),
		"into a pitch of 9":    grid.Fits(2, 4096),
		"no power of two":      second(grid.Strided(4, 3, 3, 3)),
		"no grid":              second(New(0, 1, 1, 0, 1)),
		"pitch 3":              second(New(1, 1, 1, 0, 3)),
		"3 values for":         func() error { _, err := grid.Scatter(make([]float64, 3), 4096); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func second(_ Grid, err error) error { return err }
