package parameters

// Record is one line of params/ckks.json: what is known of a ring, a modulus and a weight.
type Record struct {
	LogN, LogModulus, Weight int
	// Bits is log2 of the gates of the cheapest line on record.
	Bits float64
}

// MinimumBits is the least security that a set without "insecure" in its name may have.
const MinimumBits = 128

// Records say what params/ckks.json says; `params/ckks.py --claims` compares them.
var Records = []Record{
	{16, 1447, 43690, 156.3},
	{16, 1555, 43690, 144.6},
	{16, 116, 32, 160.6},
}
