package network

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/answer"
	"jaguar/fhe/keys"
)

// Encrypt encrypts an input [C, H, W]. It fails if a value exceeds the input's bound.
func (p *Plan) Encrypt(client *keys.Client, input []float64) (*rlwe.Ciphertext, error) {
	set := client.Set()
	if p.Values != set.Values() {
		return nil, fmt.Errorf("network: planned for %d values a ciphertext, the parameters have %d", p.Values, set.Values())
	}
	if most := largest(input); !(most <= p.Network.InputBound) {
		return nil, fmt.Errorf("network: the input has the value %g, its bound is %g", most, p.Network.InputBound)
	}
	values, err := p.Grids[0].Scatter(input, p.Values)
	if err != nil {
		return nil, err
	}
	spread := make([]float64, set.CKKS().N())
	for v, x := range values {
		spread[v*set.Gap()] = x / p.Network.InputBound
	}
	plaintext := ckks.NewPlaintext(set.CKKS(), set.InputLevel())
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(set.ValueScale())
	if err := ckks.NewEncoder(set.CKKS()).Encode(spread, plaintext); err != nil {
		return nil, fmt.Errorf("network: input: %w", err)
	}
	ct, err := rlwe.NewEncryptor(set.CKKS(), client.Secret()).EncryptNew(plaintext)
	if err != nil {
		return nil, fmt.Errorf("network: input: %w", err)
	}
	return ct, nil
}

// Decrypt reads the logits, rounded by [answer.Round].
func (p *Plan) Decrypt(client *keys.Client, logits *rlwe.Ciphertext) ([]float64, error) {
	set := client.Set()
	if logits.Degree() != 1 || logits.Level() != set.InputLevel() {
		return nil, fmt.Errorf("network: the answer has degree %d and level %d, not 1 and %d",
			logits.Degree(), logits.Level(), set.InputLevel())
	}
	plaintext := rlwe.NewDecryptor(set.CKKS(), client.Secret()).DecryptNew(logits)
	plaintext.IsBatched = false
	plaintext.Scale = rlwe.NewScale(math.Exp2(float64(answer.LogScale(set))))
	coefficients := make([]float64, set.CKKS().N())
	if err := ckks.NewEncoder(set.CKKS()).Decode(plaintext, coefficients); err != nil {
		return nil, fmt.Errorf("network: answer: %w", err)
	}
	distance := set.CKKS().N() >> bits.Len(uint(p.Outputs-1))
	values := make([]float64, p.Outputs)
	for o := range values {
		values[o] = answer.Round(coefficients[o*distance]*p.Network.Output.Bound, p.Network.Output.Bound)
	}
	return values, nil
}
