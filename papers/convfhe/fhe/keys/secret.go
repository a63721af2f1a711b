package keys

import (
	"bytes"
	"fmt"
	"io"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/parameters"
)

// secretHeader begins a secret's file.
func secretHeader(set *parameters.Set) []byte {
	return fmt.Appendf(nil, "jaguar convfhe secret 1 %-32s\n", set.Name())
}

// Write writes the secret: a header, and one byte a coefficient: 0, 1 or 2 for 0, 1 and -1.
func (c *Client) Write(w io.Writer) error {
	ringQ := c.set.CKKS().RingQ().AtLevel(0)
	poly := ringQ.NewPoly()
	ringQ.IMForm(c.secret.Value.Q, poly)
	ringQ.INTT(poly, poly)
	all := secretHeader(c.set)
	for j, residue := range poly.Coeffs[0] {
		switch residue {
		case 0, 1:
			all = append(all, byte(residue))
		case ringQ.SubRings[0].Modulus - 1:
			all = append(all, 2)
		default:
			return fmt.Errorf("keys: coefficient %d of the secret is not -1, 0 or 1", j)
		}
	}
	poly.Zero()
	_, err := w.Write(all)
	clear(all)
	if err != nil {
		return fmt.Errorf("keys: secret: %w", err)
	}
	return nil
}

// ReadClient reads what [Client.Write] wrote for this set.
func ReadClient(set *parameters.Set, r io.Reader) (*Client, error) {
	params := set.CKKS()
	header := secretHeader(set)
	all := make([]byte, len(header)+params.N())
	if _, err := io.ReadFull(r, all); err != nil {
		return nil, fmt.Errorf("keys: secret: %w", err)
	}
	defer clear(all)
	if !bytes.HasPrefix(all, header) {
		return nil, fmt.Errorf("keys: this is no secret of parameter set %q", set.Name())
	}
	secret := rlwe.NewSecretKey(params)
	ringQP := params.RingQP()
	fill := func(rows [][]uint64, moduli []uint64) error {
		for i, q := range moduli {
			for j, digit := range all[len(header):] {
				if digit > 2 {
					return fmt.Errorf("keys: coefficient %d of the secret is spoilt", j)
				}
				rows[i][j] = [3]uint64{0, 1, q - 1}[digit]
			}
		}
		return nil
	}
	if err := fill(secret.Value.Q.Coeffs, params.Q()); err != nil {
		return nil, err
	}
	if err := fill(secret.Value.P.Coeffs, params.P()); err != nil {
		return nil, err
	}
	ringQP.NTT(secret.Value, secret.Value)
	ringQP.MForm(secret.Value, secret.Value)
	return &Client{set: set, secret: secret}, nil
}
