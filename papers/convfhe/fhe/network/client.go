package network

import (
	"encoding/json"
	"errors"
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
	// Outputs is how many logits there are, OutputBound the bound by which they are divided: none may be larger.
	Outputs     int     `json:"outputs"`
	OutputBound float64 `json:"output_bound"`
	// Checks is how many numbers stand behind the logits that are zero in a right answer ([Plan.Checks]).
	Checks int `json:"checks,omitempty"`
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
		Outputs: p.Outputs, OutputBound: p.Network.Output.Bound, Checks: p.Checks(),
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
	case p.Checks < 0 || p.Checks > maxChecks || p.Outputs+p.Checks > set.CKKS().N():
		return nil, fmt.Errorf("network: %d checks behind %d outputs", p.Checks, p.Outputs)
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

// Decrypt reads the logits, rounded by [answer.Round]. It fails if the answer was not made with this client's keys ([ErrSpoilt]), and
// if a value left the interval of ReLU's polynomial on the way ([ErrLeft]), as far as the answer shows it.
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
	return p.read(coefficients)
}

// ErrSpoilt is an answer that these keys do not open.
var ErrSpoilt = errors.New("network: the answer is spoilt, or was made with the keys of another client")

// ErrLeft is an answer that means nothing. What it holds is not told: who sees numbers of a wrong answer may learn of the secret.
var ErrLeft = errors.New("the answer means nothing, and is not shown: a value inside the network left the range in which its polynomial stands for " +
	"ReLU. The input is unlike those that the model was calibrated with. Another input may work; the model's operator can calibrate with " +
	"inputs like this one, or with a larger --margin")

// read finds the logits among the coefficients of an answer, and looks whether it can be right.
func (p *Public) read(coefficients []float64) ([]float64, error) {
	const noise = 2 * answer.RelativeNoise
	distance := len(coefficients) >> bits.Len(uint(p.Outputs+p.Checks-1))
	// Between the numbers there is noise, and nothing else. Under another key there would be anything.
	for i, c := range coefficients {
		if (i%distance != 0 || i/distance >= p.Outputs+p.Checks) && !(math.Abs(c) <= noise) {
			return nil, ErrSpoilt
		}
	}
	for check := range p.Checks {
		if !(math.Abs(coefficients[(p.Outputs+check)*distance]) <= noise) {
			return nil, ErrLeft
		}
	}
	values := make([]float64, p.Outputs)
	for o := range values {
		logit := coefficients[o*distance] * p.OutputBound
		if !(math.Abs(logit) <= p.OutputBound+answer.MaximumError(p.OutputBound)) {
			return nil, ErrLeft
		}
		values[o] = answer.Round(logit, p.OutputBound)
	}
	return values, nil
}
