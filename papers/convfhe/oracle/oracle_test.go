// Package oracle decrypts with Lattigo (v6, Apache-2.0) what the library in Rust encrypted: papers/convfhe/ckks/testdata has a secret
// and ciphertexts, which papers/convfhe/ckks/src/tests/oracle.rs writes and pins. It is a test and nothing else: `make test-oracle`.
package oracle

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"math/cmplx"
	"os"
	"testing"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// oracleN is the degree of the ring of the file.
const oracleN = 1 << 10

// largestPrimes are those below 2^50 that are 1 modulo 2N, largest first.
func largestPrimes(count int) []uint64 {
	var primes []uint64
	for p := uint64(1<<50) - 2*oracleN + 1; len(primes) < count; p -= 2 * oracleN {
		if new(big.Int).SetUint64(p).ProbablyPrime(0) {
			primes = append(primes, p)
		}
	}
	return primes
}

func mulMod(x, y, p uint64) uint64 {
	high, low := bits.Mul64(x, y)
	_, rest := bits.Div64(high%p, low, p)
	return rest
}

func power(x, exponent, p uint64) uint64 {
	result := uint64(1)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result = mulMod(result, x, p)
		}
		x = mulMod(x, x, p)
	}
	return result
}

// coefficients are those of the polynomial whose value at psi^(2·rev(k) + 1) is values[k], by the definition.
func coefficients(values []uint64, p uint64) []uint64 {
	psi := uint64(0)
	for base := uint64(2); psi == 0 || power(psi, oracleN, p) != p-1; base++ {
		psi = power(base, (p-1)/(2*oracleN), p)
	}
	inverses := make([]uint64, 2*oracleN)
	for i := range inverses {
		inverses[(2*oracleN-i)%(2*oracleN)] = power(psi, uint64(i), p)
	}
	out := make([]uint64, oracleN)
	scale := power(oracleN, p-2, p)
	for i := range out {
		sum := uint64(0)
		for k, value := range values {
			exponent := 2*int(bits.Reverse16(uint16(k))>>6) + 1
			sum = (sum + mulMod(value, inverses[exponent*i%(2*oracleN)], p)) % p
		}
		out[i] = mulMod(sum, scale, p)
	}
	return out
}

// oracle is a file that is read from the beginning to the end.
type oracle struct {
	t    *testing.T
	rest *bytes.Reader
}

func (o oracle) bytes(count int) []byte {
	o.t.Helper()
	all := make([]byte, count)
	if n, err := o.rest.Read(all); err != nil || n != count {
		o.t.Fatalf("%d of %d bytes: %v", n, count, err)
	}
	return all
}

func (o oracle) header(want string) {
	o.t.Helper()
	if got := o.bytes(48); string(bytes.TrimRight(got, " ")) != want {
		o.t.Fatalf("%q, not %q", got, want)
	}
}

// polynomial reads residues of 50 bits each, the lowest bits first, modulo each prime.
func (o oracle) polynomial(primes []uint64, ringQ *ring.Ring) ring.Poly {
	o.t.Helper()
	poly := ringQ.NewPoly()
	for i, p := range primes {
		packed := o.bytes(oracleN * 50 / 8)
		values := make([]uint64, oracleN)
		for k := range values {
			for bit := range 50 {
				at := 50*k + bit
				values[k] |= uint64(packed[at/8]>>(at%8)&1) << bit
			}
		}
		copy(poly.Coeffs[i], coefficients(values, p))
	}
	ringQ.NTT(poly, poly)
	return poly
}

// The library in Rust (papers/convfhe/ckks) wrote a secret, an encryption of x, and one of x·y, rotated by one.
func TestLattigoDecryptsWhatTheOtherLibraryEncrypts(t *testing.T) {
	all, err := os.ReadFile("../ckks/testdata/insecure-n10.bin")
	if err != nil {
		t.Fatal(err)
	}
	// The six largest are special.
	primes := largestPrimes(8)
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{
		LogN: 10, Q: primes[6:], P: primes[:1], LogDefaultScale: 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := oracle{t, bytes.NewReader(all)}
	o.header("jaguar ckks sk 1insecure-n10")
	secret := rlwe.NewSecretKey(params)
	for k, digit := range o.bytes(oracleN) {
		for i, p := range params.Q() {
			secret.Value.Q.Coeffs[i][k] = [3]uint64{0, 1, p - 1}[digit]
		}
		secret.Value.P.Coeffs[0][k] = [3]uint64{0, 1, params.P()[0] - 1}[digit]
	}
	params.RingQP().NTT(secret.Value, secret.Value)
	params.RingQP().MForm(secret.Value, secret.Value)

	slot := func(j int) (x, y complex128) {
		at := float64(j)
		return complex(at/512, -at/1024), complex(1-at/256, 0.25)
	}
	for _, level := range []int{1, 0} {
		o.header("jaguar ckks ct 1insecure-n10")
		if got := o.bytes(1)[0]; int(got) != level {
			t.Fatalf("level %d, not %d", got, level)
		}
		ct := ckks.NewCiphertext(params, 1, level)
		ct.Scale = rlwe.NewScale(math.Float64frombits(binary.LittleEndian.Uint64(o.bytes(8))))
		ringQ := params.RingQ().AtLevel(level)
		// (a, b) here, (b, a) there.
		ct.Value[1] = o.polynomial(params.Q()[:level+1], ringQ)
		ct.Value[0] = o.polynomial(params.Q()[:level+1], ringQ)
		got := make([]complex128, oracleN/2)
		if err := ckks.NewEncoder(params).Decode(rlwe.NewDecryptor(params, secret).DecryptNew(ct), got); err != nil {
			t.Fatal(err)
		}
		for j := range got {
			want, _ := slot(j)
			if level == 0 {
				x, y := slot((j + 1) % len(got))
				want = x * y
			}
			// Noise of 2^10 a coefficient; the product's scale is 2^30.
			if bound := []float64{1e-3, 1e-7}[level]; cmplx.Abs(got[j]-want) > bound {
				t.Fatalf("level %d, slot %d: %v, not %v", level, j, got[j], want)
			}
		}
	}
	if o.rest.Len() != 0 {
		t.Fatalf("%d bytes left", o.rest.Len())
	}
}
