package main

import (
	"encoding/json"
	"io"

	"jaguar/fhe/keys"
	"jaguar/fhe/network"
	"jaguar/fhe/parameters"
	"jaguar/fhe/residues"
)

// figures are what a program must know of a parameter set, and of a network under it, before it starts anything.
type figures struct {
	Set      string `json:"set"`
	Security string `json:"security"`
	// Bytes of the keys' file, of an encrypted input (without a network: of one ciphertext of it), and of an answer.
	Keys   int64 `json:"keys"`
	Input  int   `json:"input"`
	Answer int   `json:"answer"`
	// Memory is what `evaluate` takes, ClientMemory what `keygen` takes, the largest of a client's commands; in bytes, estimated.
	Memory       int64 `json:"memory"`
	ClientMemory int64 `json:"client_memory"`
	// ReLULevels is how many levels there are for ReLU's polynomial.
	ReLULevels int `json:"relu_levels"`
}

func about(o options, _ io.Reader, out io.Writer) error {
	set, err := setOf(o.set)
	if err != nil {
		return err
	}
	var plan *network.Plan
	if o.network != "" {
		if _, plan, err = planOf(o); err != nil {
			return err
		}
	}
	// Without a network: of one ciphertext.
	inputs := 1
	if plan != nil {
		inputs = plan.Grids[0].Polynomials()
	}
	return json.NewEncoder(out).Encode(figures{
		Set: set.Name(), Security: set.Security(),
		Keys: keys.WireBytes(set), Input: inputs * residues.CiphertextBytes(set), Answer: residues.CiphertextBytes(set),
		Memory: memoryOf(set, plan), ClientMemory: keys.ClientMemoryBytes(set), ReLULevels: set.ReLULevels(),
	})
}

// memoryOf estimates what `evaluate` takes: a thirteenth more than [network.MemoryBytes], which whole networks at full size exceeded by
// up to 7 % (docs/protocols/convfhe.md); a twenty-fourth for each ciphertext of the widest value beyond the first, since two at a time
// are bootstrapped and all of them are held; and a network's weights, as they are parsed and as they are read.
func memoryOf(set *parameters.Set, plan *network.Plan) int64 {
	base := network.MemoryBytes(set)
	total := base + base/13
	if plan == nil {
		return total
	}
	widest := 1
	for _, grid := range plan.Grids {
		widest = max(widest, grid.Polynomials())
	}
	total += int64(widest-1) * (base / 24)
	for _, layer := range append([]network.Layer{plan.Network.Output}, plan.Network.Layers...) {
		for _, term := range layer.Terms {
			total += int64(len(term.Weights)) * (8 + 6)
		}
	}
	return total
}
