// Package testparty is both parties of a test in one: insecure keys, and encryption and decryption of coefficients.
package testparty

import (
	"math/rand"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// Party has the keys of both.
type Party struct {
	Set     *parameters.Set
	Client  *keys.Client
	Server  *keys.Server
	Encoder *ckks.Encoder
}

// New makes keys, or fails the test.
func New(t *testing.T, literal parameters.Literal) *Party {
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
	return &Party{Set: set, Client: client, Server: server, Encoder: ckks.NewEncoder(set.CKKS())}
}

// Encrypt puts values, one for each of the set's, into coefficients.
func (p *Party) Encrypt(t *testing.T, values []float64, level int, scale float64) *rlwe.Ciphertext {
	t.Helper()
	spread := make([]float64, p.Set.CKKS().N())
	for v, x := range values {
		spread[v*p.Set.Gap()] = x
	}
	return p.EncryptAll(t, spread, level, scale)
}

// EncryptAll puts values into all coefficients of the ring.
func (p *Party) EncryptAll(t *testing.T, values []float64, level int, scale float64) *rlwe.Ciphertext {
	t.Helper()
	plaintext := ckks.NewPlaintext(p.Set.CKKS(), level)
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(scale)
	if err := p.Encoder.Encode(values, plaintext); err != nil {
		t.Fatal(err)
	}
	ct, err := rlwe.NewEncryptor(p.Set.CKKS(), p.Client.Secret()).EncryptNew(plaintext)
	if err != nil {
		t.Fatal(err)
	}
	return ct
}

// DecryptAll gives all coefficients of the ring, at the ciphertext's scale.
func (p *Party) DecryptAll(t *testing.T, ct *rlwe.Ciphertext) []float64 {
	t.Helper()
	plaintext := rlwe.NewDecryptor(p.Set.CKKS(), p.Client.Secret()).DecryptNew(ct)
	plaintext.IsBatched = false
	values := make([]float64, p.Set.CKKS().N())
	if err := p.Encoder.Decode(plaintext, values); err != nil {
		t.Fatal(err)
	}
	return values
}

// Decrypt gives the set's values.
func (p *Party) Decrypt(t *testing.T, ct *rlwe.Ciphertext) []float64 {
	t.Helper()
	all := p.DecryptAll(t, ct)
	values := make([]float64, p.Set.Values())
	for v := range values {
		values[v] = all[v*p.Set.Gap()]
	}
	return values
}

// Random draws n values in [-1, 1), the same for the same seed.
func Random(seed int64, n int) []float64 {
	rng := rand.New(rand.NewSource(seed))
	values := make([]float64, n)
	for i := range values {
		values[i] = 2*rng.Float64() - 1
	}
	return values
}
