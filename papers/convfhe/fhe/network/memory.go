package network

import (
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// MemoryBytes estimates what [Evaluator] takes with a client's keys: keys, the matrices of CtoS and StoC, masks, and as much again as
// a third of that for ciphertexts in flight and for the garbage collector at 20 %.
func MemoryBytes(set *parameters.Set) int64 {
	params, circuit := set.CKKS(), set.Circuit()
	limb := int64(params.N()) * 8
	diagonals := func(logSlots int, levels []int) (count int64) {
		matrices := 0
		for _, level := range levels {
			matrices += level
		}
		for left := matrices; left > 0; left-- {
			// A matrix of 2^k butterflies has at most 2^(k+1) - 1 diagonals.
			merged := (logSlots + left - 1) / left
			logSlots -= merged
			count += 1<<(merged+1) - 1
		}
		return count
	}
	encode, decode := circuit.CoeffsToSlotsParameters, circuit.SlotsToCoeffsParameters
	p := int64(params.PCount())
	matrices := diagonals(encode.LogSlots, encode.Levels) * (int64(encode.LevelQ) + 1 + p) * limb
	matrices += diagonals(decode.LogSlots+1, decode.Levels) * (int64(decode.LevelQ) + 1 + p) * limb
	total := keys.MemoryBytes(set) + matrices
	return total + total/3 + 256<<20
}
