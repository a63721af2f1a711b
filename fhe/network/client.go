package network

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/answer"
	"jaguar/fhe/keys"
	"jaguar/fhe/layout"
	"jaguar/fhe/parameters"
)

// Public is all that a client knows of a network: where its input's values stand, and how its logits are scaled.
type Public struct {
	// Set is the name of the parameter set.
	Set string `json:"set"`
	// Input is where the input stands.
	Input layout.Grid `json:"input"`
	// InputBound is the largest absolute value of an input.
	InputBound float64 `json:"input_bound"`
	// Outputs is how many logits there are, OutputBound the bound by which they are divided.
	Outputs     int     `json:"outputs"`
	OutputBound float64 `json:"output_bound"`
}

// Public is what a client of this plan is told.
func (p *Plan) Public(set *parameters.Set) (*Public, error) {
	if err := p.Check(set); err != nil {
		return nil, err
	}
	if err := p.Calibrated(); err != nil {
		return nil, err
	}
	return &Public{
		Set: set.Name(), Input: p.Grids[0], InputBound: p.Network.InputBound,
		Outputs: p.Outputs, OutputBound: p.Network.Output.Bound,
	}, nil
}

// ParsePublic reads the JSON of [Public], for this set, and checks it.
func ParsePublic(text []byte, set *parameters.Set) (*Public, error) {
	p := new(Public)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	grid := p.Input
	switch {
	case p.Set != set.Name():
		return nil, fmt.Errorf("network: made for parameter set %q, not %q", p.Set, set.Name())
	case min(grid.Channels, grid.Height, grid.Width) < 1 || max(grid.Channels, grid.Height, grid.Width) > maxChannels:
		return nil, fmt.Errorf("network: input [%d, %d, %d]", grid.Channels, grid.Height, grid.Width)
	case grid.ColumnPitch < 1 || grid.ColumnPitch&(grid.ColumnPitch-1) != 0 || grid.ColumnPitch > set.Values() || grid.RowPitch < grid.ColumnPitch*grid.Width || grid.RowPitch > set.Values():
		return nil, fmt.Errorf("network: pitches %d and %d for [%d, %d, %d]", grid.ColumnPitch, grid.RowPitch, grid.Channels, grid.Height, grid.Width)
	case p.Outputs < 1 || p.Outputs > set.Values():
		return nil, fmt.Errorf("network: %d outputs", p.Outputs)
	case !(p.InputBound > 0) || !(p.OutputBound > 0) || math.IsInf(p.InputBound+p.OutputBound, 0):
		return nil, fmt.Errorf("network: bounds %g and %g", p.InputBound, p.OutputBound)
	}
	return p, grid.Fits(0, set.Values())
}

// Ciphertexts is how many an input takes.
func (p *Public) Ciphertexts() int { return p.Input.Polynomials() }

// Encrypt encrypts an input [C, H, W] in [Public.Ciphertexts]. It fails if a value exceeds the input's bound.
func (p *Public) Encrypt(client *keys.Client, input []float64) ([]*rlwe.Ciphertext, error) {
	set := client.Set()
	if most := largest(input); !(most <= p.InputBound) {
		return nil, fmt.Errorf("network: the input has the value %g, its bound is %g", most, p.InputBound)
	}
	parts, err := p.Input.Scatter(input, set.Values())
	if err != nil {
		return nil, err
	}
	encoder, encryptor := ckks.NewEncoder(set.CKKS()), rlwe.NewEncryptor(set.CKKS(), client.Secret())
	cts := make([]*rlwe.Ciphertext, len(parts))
	for i, values := range parts {
		spread := make([]float64, set.CKKS().N())
		for v, x := range values {
			spread[v*set.Gap()] = x / p.InputBound
		}
		plaintext := ckks.NewPlaintext(set.CKKS(), set.InputLevel())
		plaintext.IsBatched = false
		plaintext.Scale = rlwe.NewScale(set.ValueScale())
		if err := encoder.Encode(spread, plaintext); err != nil {
			return nil, fmt.Errorf("network: input: %w", err)
		}
		if cts[i], err = encryptor.EncryptNew(plaintext); err != nil {
			return nil, fmt.Errorf("network: input: %w", err)
		}
	}
	return cts, nil
}

// Decrypt reads the logits, rounded by [answer.Round]. It fails if the answer was not made with this client's keys.
func (p *Public) Decrypt(client *keys.Client, logits *rlwe.Ciphertext) ([]float64, error) {
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
	// Between the logits there is noise, and nothing else. Under another key there would be anything.
	for i, c := range coefficients {
		if (i%distance != 0 || i/distance >= p.Outputs) && math.Abs(c) > 2*answer.RelativeNoise {
			return nil, fmt.Errorf("network: the answer is spoilt, or was made with the keys of another client")
		}
	}
	values := make([]float64, p.Outputs)
	for o := range values {
		values[o] = answer.Round(coefficients[o*distance]*p.OutputBound, p.OutputBound)
	}
	return values, nil
}
