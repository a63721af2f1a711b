package network

import (
	"encoding/json"
	"testing"

	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// FuzzParse reads descriptions, and places those that are sound.
func FuzzParse(f *testing.F) {
	set := testparty.Must(parameters.New(parameters.InsecureTest))
	for _, network := range []*Network{small(), wide()} {
		text := testparty.Must(json.Marshal(network))
		f.Add(text)
	}
	f.Add([]byte(`{"input":[1,1,1],"input_bound":1,"layers":[],"output":{"terms":[{"from":0,"out":1,"in":1,"height":1,"width":1,"stride":1,"weights":"AACAPw=="}],"bias":"AAAAAA=="}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		described, err := Parse(text)
		if err != nil {
			return
		}
		plan, err := NewPlan(described, set.Values())
		if err != nil {
			return
		}
		if plan.Check(set) == nil && plan.Calibrated() == nil {
			testparty.Must(plan.Public(set))
		}
	})
}

// FuzzParsePublic reads what a server says of its network, and encrypts an input for it.
func FuzzParsePublic(f *testing.F) {
	set := testparty.Must(parameters.New(parameters.InsecureTest))
	client := keys.NewClient(set)
	for _, network := range []*Network{small(), wide()} {
		plan := testparty.Must(NewPlan(network, set.Values()))
		text, err := json.Marshal(Public{
			Set: set.Name(), Input: plan.Grids[0], InputBound: 1, Outputs: plan.Outputs, OutputBound: 2,
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		told, err := ParsePublic(text, set)
		if err != nil {
			return
		}
		grid := told.Input
		// What a picture can have: more is only slow.
		if values := grid.Channels * grid.Height * grid.Width; values <= 1<<12 {
			testparty.Must(told.Encrypt(client, make([]float64, values)))
		}
	})
}
