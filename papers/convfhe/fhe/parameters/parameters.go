// Package parameters holds the CKKS parameter sets of the one-round protocol ConvFHE.
//
// A [Literal] is unchecked. [New] turns it into an immutable [Set], and refuses a literal whose security is not on record
// (params/ckks.json) unless its name begins with "insecure". The moduli are listed from the last one consumed to the first:
//
//	q0 | convolution | StoC | ReLU | sine | CtoS
//
// This is the order "Ours" of Table II in Kim and Guyot, "Optimized Privacy-Preserving CNN Inference With Fully Homomorphic
// Encryption" (IEEE TIFS 2023), with two differences. No modulus belongs to the extraction: its mask is multiplied to the value
// that waits for the sign polynomial, so it costs no level. And the moduli of convolution and ReLU have 36 bits.
package parameters

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/circuits/ckks/dft"
	"github.com/tuneinsight/lattigo/v6/circuits/ckks/mod1"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

const (
	// paperReLULevels are what the paper's composite polynomial and its last product take: 3 + 3 + 4 + 1 (Appendix B).
	paperReLULevels = 11
	// sineDegree and doubleAngles belong to the approximation of x mod 1 by a cosine (Han and Ki, CT-RSA 2020), for an
	// ephemeral secret of weight 32: |I(X)| < 16, except with probability 2^-138 (ePrint 2022/024).
	sineDegree    = 30
	doubleAngles  = 3
	sineInterval  = 16
	sineDepth     = 8
	logMessageGap = 8
	insecureName  = "insecure"
)

// Literal names sizes in bits; nothing of it is checked.
type Literal struct {
	// Name of the set. One that begins with "insecure" needs no security record.
	Name string
	// LogN is log2 of the ring's degree N.
	LogN int
	// LogValues is log2 of how many real values a ciphertext carries: they are the coefficients of a polynomial in
	// X^(N/2^LogValues). At most LogN; LogN-1 and less need only one ciphertext between CtoS and StoC (sparse packing).
	LogValues int
	// Weight is the Hamming weight of the secret, or 0 for a dense one: each coefficient is -1, 0 or 1 with the same chance.
	Weight int
	// EphemeralWeight is that of the secret under which the modulus is raised: it bounds what the sine has to reduce.
	EphemeralWeight int
	// ReLULevels is how many levels there are for ReLU: each composition in papers/convfhe/fhe/relu takes some of them.
	ReLULevels int
	// LogQ0, LogConvolution, LogReLU and LogSine are the sizes of one modulus each.
	LogQ0, LogConvolution, LogReLU, LogSine int
	// LogStoC and LogCtoS have one entry a modulus, in the order of the chain; an entry of LogStoC lists the scales of the
	// matrices that share the modulus.
	LogStoC [][]int
	// LogCtoS are the sizes of the moduli of CtoS, one matrix each.
	LogCtoS []int
	// LogP are the sizes of the moduli of key switching.
	LogP []int
}

// Default is N = 2^16, one ciphertext of 2^15 values, a dense secret. The paper's secret has weight 192. That was 134 bits by the
// attacks of its time; with those that use the ring's rotations (ePrint 2026/279) less than 128. Only the ephemeral secret, under
// q0·p0, needs to be sparse (ePrint 2022/024).
var Default = Literal{
	Name: "n16", LogN: 16, LogValues: 15, EphemeralWeight: 32, ReLULevels: paperReLULevels,
	LogQ0: 55, LogConvolution: 50, LogReLU: 36, LogSine: 55,
	LogStoC: [][]int{{36}, {30, 30}},
	LogCtoS: []int{53, 53, 53, 53},
	LogP:    []int{61, 61, 61, 61, 61},
}

// Coarse is [Default] with levels for a ReLU of degrees 7-15 only: less memory and time, four times the error.
var Coarse = variant("n16-relu8", func(l *Literal) { l.ReLULevels = 8 })

// Full is [Default] with a value in every coefficient: two ciphertexts between CtoS and StoC, as in the paper's wider layers.
var Full = variant("n16-full", func(l *Literal) { l.LogValues = 16 })

// InsecurePaper has the weight and the size of modulus of the paper's Table II: log QP = 1553, h = 192.
var InsecurePaper = variant("insecure-paper-n16-h192", func(l *Literal) { l.Weight, l.LogConvolution = 192, 49 })

// InsecureTest has the chain of [Default] in a ring of degree 2^10. It protects nothing, and is for tests.
var InsecureTest = variant("insecure-n10", func(l *Literal) { l.LogN, l.LogValues = 10, 9 })

// InsecureDense is [InsecureTest] with every coefficient in use: two ciphertexts between CtoS and StoC.
var InsecureDense = variant("insecure-n10-dense", func(l *Literal) { l.LogN, l.LogValues = 10, 10 })

// InsecureQuarter is [Default] in a ring of a quarter of the degree, for measuring in 3 GB. It protects nothing.
var InsecureQuarter = variant("insecure-n14", func(l *Literal) { l.LogN, l.LogValues = 14, 13 })

// variant is [Default] with another name and what change does to it.
func variant(name string, change func(l *Literal)) Literal {
	literal := Default
	literal.Name = name
	change(&literal)
	return literal
}

// Literals are all sets that have a name on the command line.
func Literals() []Literal {
	return []Literal{
		Default, Coarse, Full, InsecurePaper, InsecureTest, InsecureDense, InsecureQuarter,
	}
}

// ByName finds a literal of [Literals].
func ByName(name string) (Literal, error) {
	var names []string
	for _, literal := range Literals() {
		if literal.Name == name {
			return literal, nil
		}
		names = append(names, literal.Name)
	}
	return Literal{}, fmt.Errorf("parameters: no set is called %q; there are %s", name, strings.Join(names, ", "))
}

// Set is a checked parameter set. It does not change after [New].
type Set struct {
	literal  Literal
	ckks     ckks.Parameters
	circuit  bootstrapping.Parameters
	bits     float64
	security string
}

// New checks a literal. It fails if sizes contradict each other, if primes of such sizes do not exist, or if the set has no
// record of 128 bits and does not say that it is insecure.
func New(literal Literal) (*Set, error) {
	fail := func(format string, args ...any) (*Set, error) {
		return nil, fmt.Errorf("parameters %q: %s", literal.Name, fmt.Sprintf(format, args...))
	}
	if literal.LogN < 8 || literal.LogN > 17 {
		return fail("log N is %d, not 8 to 17", literal.LogN)
	}
	if literal.LogValues < 6 || literal.LogValues > literal.LogN {
		return fail("2^%d values a ciphertext, not 2^6 to N = 2^%d", literal.LogValues, literal.LogN)
	}
	if literal.ReLULevels < 1 || literal.ReLULevels > 20 {
		return fail("%d levels for ReLU, not 1 to 20", literal.ReLULevels)
	}
	if len(literal.LogStoC) == 0 || len(literal.LogCtoS) == 0 || len(literal.LogP) < 2 {
		return fail("needs moduli for StoC and CtoS, and two for key switching")
	}
	bits, security, err := literal.security()
	if err != nil {
		return nil, err
	}

	logQ := []int{literal.LogQ0, literal.LogConvolution}
	matrices := make([]int, 0, len(literal.LogStoC))
	for i := range literal.LogStoC {
		size := 0
		for _, scale := range literal.LogStoC[i] {
			size += scale
		}
		logQ = append(logQ, size)
		// Levels are consumed from the end of the chain.
		matrices = append(matrices, len(literal.LogStoC[len(literal.LogStoC)-1-i]))
	}
	for range literal.ReLULevels {
		logQ = append(logQ, literal.LogReLU)
	}
	for range sineDepth {
		logQ = append(logQ, literal.LogSine)
	}
	encode := make([]int, len(literal.LogCtoS))
	for i := range encode {
		encode[i] = 1
	}
	logQ = append(logQ, literal.LogCtoS...)

	secret := ring.Ternary{P: 2.0 / 3}
	if literal.Weight > 0 {
		secret = ring.Ternary{H: literal.Weight}
	}
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{
		LogN: literal.LogN, LogQ: logQ, LogP: literal.LogP, LogDefaultScale: literal.LogReLU,
		Xs: secret,
	})
	if err != nil {
		return fail("%v", err)
	}
	top, levelP := params.MaxLevel(), params.MaxLevelP()
	logSlots := min(literal.LogValues, literal.LogN) - 1
	circuit := bootstrapping.Parameters{
		ResidualParameters:      params,
		BootstrappingParameters: params,
		EphemeralSecretWeight:   literal.EphemeralWeight,
		CircuitOrder:            bootstrapping.Custom,
		CoeffsToSlotsParameters: dft.MatrixLiteral{
			Type: dft.HomomorphicEncode, Format: dft.RepackImagAsReal, LogSlots: logSlots,
			LevelQ: top, LevelP: levelP, Levels: encode, LogBSGSRatio: 1,
		},
		Mod1ParametersLiteral: mod1.ParametersLiteral{
			LevelQ: top - len(encode), LogScale: literal.LogSine, Mod1Type: mod1.CosDiscrete,
			LogMessageRatio: logMessageGap, K: sineInterval, Mod1Degree: sineDegree, DoubleAngle: doubleAngles,
		},
		SlotsToCoeffsParameters: dft.MatrixLiteral{
			Type: dft.HomomorphicDecode, Format: dft.RepackImagAsReal, LogSlots: logSlots,
			LevelQ: 1 + len(literal.LogStoC), LevelP: levelP, Levels: matrices, LogBSGSRatio: 1,
			// Lattigo's sine leaves values at the scale before ModUp, and its StoC undoes that. Ours leaves them at ReLU's scale.
			Scaling: new(big.Float).SetFloat64(math.Exp2(float64(literal.LogSine - logMessageGap - literal.LogReLU))),
		},
	}
	return &Set{literal: literal, ckks: params, circuit: circuit, bits: bits, security: security}, nil
}

// security looks both keys' modulus up: the secret's under QP, the ephemeral secret's under q0·p0.
func (l Literal) security() (bits float64, why string, err error) {
	if strings.HasPrefix(l.Name, insecureName) {
		return 0, "insecure: for tests and measurements only", nil
	}
	total := l.LogModulus()
	weight := l.Weight
	if weight == 0 {
		weight = 2 << l.LogN / 3
	}
	bits = math.Inf(1)
	for _, need := range []Record{
		{LogN: l.LogN, LogModulus: total, Weight: weight},
		{LogN: l.LogN, LogModulus: l.LogQ0 + l.LogP[0], Weight: l.EphemeralWeight},
	} {
		best := 0.0
		for _, r := range Records {
			if r.LogN == need.LogN && r.Weight <= need.Weight && r.LogModulus >= need.LogModulus {
				best = max(best, r.Bits)
			}
		}
		if best < MinimumBits {
			return 0, "", fmt.Errorf("parameters %q: N = 2^%d, log QP = %d, weight %d: no record of %d bits in params/ckks.json",
				l.Name, need.LogN, need.LogModulus, need.Weight, MinimumBits)
		}
		bits = min(bits, best)
	}
	return bits, fmt.Sprintf("%.0f bits on record", bits), nil
}

// LogModulus is log2 of QP, by the sizes asked for.
func (l Literal) LogModulus() int {
	total := l.LogQ0 + l.LogConvolution + l.ReLULevels*l.LogReLU + sineDepth*l.LogSine
	for _, scales := range l.LogStoC {
		for _, scale := range scales {
			total += scale
		}
	}
	for _, size := range l.LogCtoS {
		total += size
	}
	for _, size := range l.LogP {
		total += size
	}
	return total
}

// Name of the set.
func (s *Set) Name() string { return s.literal.Name }

// Security says in words how many bits are on record.
func (s *Set) Security() string { return s.security }

// CKKS are Lattigo's parameters of all ciphertexts.
func (s *Set) CKKS() ckks.Parameters { return s.ckks }

// Circuit are Lattigo's parameters of ModUp, CtoS, sine and StoC.
func (s *Set) Circuit() bootstrapping.Parameters { return s.circuit }

// EphemeralWeight is the Hamming weight of the secret under which the modulus is raised.
func (s *Set) EphemeralWeight() int { return s.literal.EphemeralWeight }

// Values is how many real values a ciphertext carries.
func (s *Set) Values() int { return 1 << s.literal.LogValues }

// Gap is how many coefficients lie between two values: value v is the coefficient of X^(v·Gap).
func (s *Set) Gap() int { return s.ckks.N() >> s.literal.LogValues }

// Dense says whether CtoS gives two ciphertexts, one for each half of the values.
func (s *Set) Dense() bool { return s.literal.LogValues == s.literal.LogN }

// InputLevel is the level of a ciphertext that a convolution takes. The product is rescaled to level 0.
func (s *Set) InputLevel() int { return 1 }

// ValueScale is the scale of a layer's input and output: a value in [-1, 1] is an integer up to this.
func (s *Set) ValueScale() float64 { return s.ckks.DefaultScale().Float64() }

// RaisedScale is the scale at level 0 before the modulus is raised: a value in [-1, 1] is at most q0/2^8.
func (s *Set) RaisedScale() float64 {
	return float64(uint64(1) << (s.literal.LogSine - logMessageGap))
}

// ReLULevels is how many levels there are between sine and StoC.
func (s *Set) ReLULevels() int { return s.literal.ReLULevels }

// StoCLevel is the level at which StoC begins, and ReLU ends.
func (s *Set) StoCLevel() int { return s.circuit.SlotsToCoeffsParameters.LevelQ }
