package network

// maxChecks is how many numbers go with the logits of a network of which the client can see that they are zero. Each is random, if
// a value left the interval of ReLU's polynomial by enough to fill the modulus, and then lies among the noise with a chance of
// 2^-11 ([Public.Decrypt]).
const maxChecks = 4

// places are some of one ciphertext that hold no value, so that [Evaluator.check] finds zeros there.
type places struct {
	value, part int
	places      []int
}

// idle are such places of all ciphertexts that a ReLU made and of which the logits are sums.
func (p *Plan) idle() []places {
	var found []places
	looked := map[int]bool{0: true}
	for _, term := range p.Network.Output.Terms {
		if looked[term.From] {
			continue
		}
		looked[term.From] = true
		for part, mask := range p.Grids[term.From].Masks(p.Values) {
			at := places{value: term.From, part: part}
			for v := 0; v < len(mask) && len(at.places) < maxChecks; v++ {
				if mask[v] == 0 {
					at.places = append(at.places, v)
				}
			}
			if len(at.places) > 0 {
				found = append(found, at)
			}
		}
	}
	return found
}

// Checks is how many numbers that are zero in a right answer go with the logits: sums of places of the last values that no value
// stands at, which Ext has set to zero. Slots do not mix as long as all numbers fit the modulus. A value beyond the interval makes ReLU's
// polynomial so large that they do not, and then every place of its ciphertext is random, also those that should be zero. There are no
// checks where every place holds a value.
func (p *Plan) Checks() int {
	if len(p.idle()) == 0 || p.Outputs+maxChecks > p.Values {
		return 0
	}
	return maxChecks
}
