// Package residues writes and reads polynomials and ciphertexts: residues of 8 bytes, little-endian, modulus by modulus. No lengths
// are written; they follow from the parameters, so that nothing that is read says how much to allocate.
package residues

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/ring/ringqp"

	"jaguar/fhe/parameters"
)

// Write writes a polynomial: its residues modulo the primes of Q, then those of P.
func Write(w io.Writer, poly ringqp.Poly) error {
	for _, rows := range [][][]uint64{poly.Q.Coeffs, poly.P.Coeffs} {
		for _, row := range rows {
			if err := binary.Write(w, binary.LittleEndian, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read fills a polynomial that has its size. It fails at the end of the input and at the first residue that is not reduced.
func Read(r io.Reader, set *parameters.Set, poly ringqp.Poly) error {
	if err := readRows(r, poly.Q.Coeffs, set.CKKS().Q()); err != nil {
		return err
	}
	return readRows(r, poly.P.Coeffs, set.CKKS().P())
}

func readRows(r io.Reader, rows [][]uint64, moduli []uint64) error {
	for i, row := range rows {
		if err := binary.Read(r, binary.LittleEndian, row); err != nil {
			return err
		}
		for j, residue := range row {
			if residue >= moduli[i] {
				return fmt.Errorf("coefficient %d is %d modulo %d", j, residue, moduli[i])
			}
		}
	}
	return nil
}

// CiphertextBytes is how long a ciphertext at the input level is. The client's input and the server's answer are such.
func CiphertextBytes(set *parameters.Set) int { return 2 * (set.InputLevel() + 1) * set.CKKS().N() * 8 }

// WriteCiphertext writes a ciphertext of degree 1 at the input level, in NTT form.
func WriteCiphertext(w io.Writer, ct *rlwe.Ciphertext) error {
	for _, poly := range ct.Value {
		if err := Write(w, ringqp.Poly{Q: poly}); err != nil {
			return fmt.Errorf("ciphertext: %w", err)
		}
	}
	return nil
}

// ReadCiphertext reads what [WriteCiphertext] wrote, with this scale.
func ReadCiphertext(r io.Reader, set *parameters.Set, scale float64) (*rlwe.Ciphertext, error) {
	ct := rlwe.NewCiphertext(set.CKKS(), 1, set.InputLevel())
	ct.IsNTT, ct.IsBatched = true, false
	ct.Scale = rlwe.NewScale(scale)
	ct.LogDimensions = ring.Dimensions{Rows: 0, Cols: set.CKKS().LogMaxSlots()}
	for _, poly := range ct.Value {
		if err := Read(r, set, ringqp.Poly{Q: poly}); err != nil {
			return nil, fmt.Errorf("ciphertext: %w", err)
		}
	}
	return ct, nil
}
