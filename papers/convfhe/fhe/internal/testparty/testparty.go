// Package testparty is both parties of a test in one: insecure keys, and encryption and decryption of coefficients.
package testparty

import (
	"math/rand"

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

// Must gives the value of a call that does not fail.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Check ends the tests with an error, if there is one.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// New makes keys.
func New(literal parameters.Literal) *Party {
	set := Must(parameters.New(literal))
	client := keys.NewClient(set)
	server := Must(keys.Generate(client))
	return &Party{Set: set, Client: client, Server: server, Encoder: ckks.NewEncoder(set.CKKS())}
}

// Encrypt puts values, one for each of the set's, into coefficients.
func (p *Party) Encrypt(values []float64, level int, scale float64) *rlwe.Ciphertext {
	spread := make([]float64, p.Set.CKKS().N())
	for v, x := range values {
		spread[v*p.Set.Gap()] = x
	}
	return p.EncryptAll(spread, level, scale)
}

// EncryptAll puts values into all coefficients of the ring.
func (p *Party) EncryptAll(values []float64, level int, scale float64) *rlwe.Ciphertext {
	plaintext := ckks.NewPlaintext(p.Set.CKKS(), level)
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(scale)
	Check(p.Encoder.Encode(values, plaintext))
	ct := Must(rlwe.NewEncryptor(p.Set.CKKS(), p.Client.Secret()).EncryptNew(plaintext))
	return ct
}

// DecryptAll gives all coefficients of the ring, at the ciphertext's scale.
func (p *Party) DecryptAll(ct *rlwe.Ciphertext) []float64 {
	plaintext := rlwe.NewDecryptor(p.Set.CKKS(), p.Client.Secret()).DecryptNew(ct)
	plaintext.IsBatched = false
	values := make([]float64, p.Set.CKKS().N())
	Check(p.Encoder.Decode(plaintext, values))
	return values
}

// Decrypt gives the set's values.
func (p *Party) Decrypt(ct *rlwe.Ciphertext) []float64 {
	all := p.DecryptAll(ct)
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
