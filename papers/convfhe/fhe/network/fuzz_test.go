package network

import (
	"encoding/json"
	"testing"

	"jaguar/fhe/keys"
	"jaguar/fhe/parameters"
)

// FuzzParse reads descriptions, and places those that are sound.
func FuzzParse(f *testing.F) {
	set, err := parameters.New(parameters.InsecureTest)
	if err != nil {
		f.Fatal(err)
	}
	for _, network := range []*Network{small(), wide()} {
		text, err := json.Marshal(network)
		if err != nil {
			f.Fatal(err)
		}
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
			if _, err := plan.Public(set); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzParsePublic reads what a server says of its network, and encrypts an input for it.
func FuzzParsePublic(f *testing.F) {
	set, err := parameters.New(parameters.InsecureTest)
	if err != nil {
		f.Fatal(err)
	}
	client := keys.NewClient(set)
	for _, network := range []*Network{small(), wide()} {
		plan, err := NewPlan(network, set.Values())
		if err != nil {
			f.Fatal(err)
		}
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
			if _, err := told.Encrypt(client, make([]float64, values)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
