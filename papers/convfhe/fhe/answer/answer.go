// Package answer makes what the server sends safe to give away, and reads it at the client.
//
// The server's last ciphertext carries more than logits. Its other coefficients are sums over weights, and its noise depends on
// weights, on the client's values and on its key. Three steps remove that:
//
//  1. [packing.Packer.Trace] removes every coefficient that is no logit, and none of the zeros that are checks.
//  2. An encryption of zero under the client's public key makes the random half of the ciphertext independent of what was computed
//     (RLWE with a secret that the server draws).
//  3. Noise that is uniform in [-R, R] hides the noise of steps 1 and 2 at every coefficient.
//
// The bound. Let E bound the absolute value of the noise that steps 1 and 2 leave at one coefficient. Two uniform distributions on
// 2R+1 integers that are E apart have the statistical distance E/(2R+1), so all N coefficients give at most N·E/(2R+1) a query:
// [Noise.LogDistance]. At coefficients with logits the error of the computation itself (bootstrapping, polynomial) is added to E and
// is far larger. There, noise hides it only as far as R covers it: what a client learns are the logits of the network as the
// polynomial computes it, up to R. It must not give decrypted numbers to the server: rounded ones, or the label ([Round]).
package answer

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"

	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

const (
	// headroom is log2 of how much larger than its bound a logit may be before it wraps around.
	headroom = 3
	// noiseBits and gridBits: noise reaches 2^-9 of the bound of the logits, the client rounds to 2^-8 of it.
	noiseBits = 9
	gridBits  = 8
)

// RelativeNoise is R beside the integer that stands for a logit as large as its bound.
const RelativeNoise = 1.0 / (1 << noiseBits)

// LogScale is log2 of the integer that stands for a logit as large as its bound.
func LogScale(set *parameters.Set) int {
	return int(math.Floor(logModulus(set))) - 1 - headroom
}

// logModulus is log2 of the modulus of the answer.
func logModulus(set *parameters.Set) float64 {
	total := 0.0
	for _, q := range set.CKKS().Q()[:set.InputLevel()+1] {
		total += math.Log2(float64(q))
	}
	return total
}

// Noise is how much is added, and what it hides.
type Noise struct {
	// LogRange is log2 of R.
	LogRange int
	// LogError is log2 of E, the largest noise of packing and of the fresh encryption of zero.
	LogError float64
	// LogDistance is log2 of the statistical distance of one answer from one whose noise of that kind is 0.
	LogDistance float64
}

// Derive bounds the noise for this set and so many outputs.
//
// A key switch has one digit of at most q0·q1/2, so the key's errors give at most N·(q0·q1/2)·6σ/P; dividing by P rounds both halves
// by less than 1, which gives 1 + h, h the secret's weight. A merge of packing takes noise n to at most 4·n + that, a step of the
// trace to 2·n + that. A fresh encryption of zero has at most N·6σ + 6σ·(1 + h), for a ternary v. Errors are cut off at 6σ.
func Derive(set *parameters.Set, weight, outputs int) Noise {
	const tail = 6 * 3.2
	logN := set.CKKS().LogN()
	n, h := math.Exp2(float64(logN)), float64(weight)
	logP := 0.0
	for _, p := range set.CKKS().P()[:keys.PackingLevelP+1] {
		logP += math.Log2(float64(p))
	}
	switching := 1 + h + n*tail*math.Exp2(logModulus(set)-1-logP)
	merges := int(math.Ceil(math.Log2(float64(max(outputs, 1)))))
	most := 0.0
	for step := range logN {
		if step < merges {
			most = 4*most + switching
		} else {
			most = 2*most + switching
		}
	}
	most += n*tail + tail*(1+h)
	noise := Noise{LogRange: LogScale(set) - noiseBits, LogError: math.Log2(most)}
	noise.LogDistance = float64(logN) + noise.LogError - float64(noise.LogRange) - 1
	return noise
}

// Flood is steps 2 and 3 for a ciphertext at [parameters.Set.InputLevel], in NTT form.
func Flood(server *keys.Server, ct *rlwe.Ciphertext, noise Noise) error {
	set := server.Set()
	if ct.Level() != set.InputLevel() {
		return fmt.Errorf("answer: the ciphertext has level %d, not %d", ct.Level(), set.InputLevel())
	}
	params := set.CKKS()
	// Parameters without P: the encryption of zero is v·pk + e itself.
	plain, err := rlwe.NewParametersFromLiteral(rlwe.ParametersLiteral{
		LogN: params.LogN(), Q: params.Q()[:set.InputLevel()+1], NTTFlag: true,
	})
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	zero := rlwe.NewCiphertext(plain, 1, set.InputLevel())
	if err := rlwe.NewEncryptor(plain, server.Public()).EncryptZero(zero); err != nil {
		return fmt.Errorf("answer: encryption of zero: %w", err)
	}
	ringQ := params.RingQ().AtLevel(set.InputLevel())
	hidden, err := uniform(ringQ, noise.LogRange)
	if err != nil {
		return err
	}
	ringQ.NTT(hidden, hidden)
	for i := range ct.Value {
		ringQ.Add(ct.Value[i], zero.Value[i], ct.Value[i])
	}
	ringQ.Add(ct.Value[0], hidden, ct.Value[0])
	return nil
}

// uniform draws a polynomial whose coefficients are uniform in [-2^logRange, 2^logRange).
func uniform(ringQ *ring.Ring, logRange int) (ring.Poly, error) {
	if logRange < 1 || logRange > 126 {
		return ring.Poly{}, fmt.Errorf("answer: noise of %d bits", logRange)
	}
	poly := ringQ.NewPoly()
	raw := make([]byte, 16*ringQ.N())
	if _, err := rand.Read(raw); err != nil {
		return ring.Poly{}, fmt.Errorf("answer: no randomness: %w", err)
	}
	bits := logRange + 1
	for level, sub := range ringQ.SubRings[:ringQ.Level()+1] {
		q := sub.Modulus
		high := new(big.Int).Lsh(big.NewInt(1), 64)
		carry := high.Mod(high, new(big.Int).SetUint64(q)).Uint64()
		offset := new(big.Int).Lsh(big.NewInt(1), uint(logRange))
		shift := offset.Mod(offset, new(big.Int).SetUint64(q)).Uint64()
		brc := ring.GenBRedConstant(q)
		for j := range ringQ.N() {
			lo, hi := binary.LittleEndian.Uint64(raw[16*j:]), binary.LittleEndian.Uint64(raw[16*j+8:])
			if bits < 64 {
				lo, hi = lo&(1<<bits-1), 0
			} else {
				hi &= 1<<(bits-64) - 1
			}
			residue := ring.BRed(hi%q, carry, q, brc) + lo%q + q - shift
			poly.Coeffs[level][j] = residue % q
		}
	}
	clear(raw)
	return poly, nil
}

// Round rounds a logit to the grid of 2^-8 of its bound: coarser than the noise.
func Round(logit, bound float64) float64 {
	step := bound * math.Exp2(-gridBits)
	return math.Round(logit/step) * step
}

// MaximumError bounds what noise and rounding change a logit by.
func MaximumError(bound float64) float64 {
	return bound * (math.Exp2(-noiseBits) + math.Exp2(-gridBits-1) + math.Exp2(-40))
}
