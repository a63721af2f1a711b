package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strconv"
	"strings"

	"jaguar/fhe/bench"
	"jaguar/fhe/network"
	"jaguar/fhe/relu"
)

// lines writes JSON, a line a value, as they are measured.
type lines struct {
	encoder *json.Encoder
	err     error
}

func newLines(out io.Writer) *lines { return &lines{encoder: json.NewEncoder(out)} }

func (l *lines) write(value any) {
	if l.err == nil {
		l.err = l.encoder.Encode(value)
	}
}

// numbers reads "3,5,7".
func numbers(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 1<<16 {
			return nil, fmt.Errorf("%q is no list of sizes", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func benchConvolution(o options, _ io.Reader, out io.Writer) error {
	set, err := setOf(o.set)
	if err != nil {
		return err
	}
	batches, err := numbers(o.batches)
	if err != nil {
		return err
	}
	kernels, err := numbers(o.kernels)
	if err != nil {
		return err
	}
	written := newLines(out)
	err = bench.Convolutions(set, batches, kernels, o.repeats, o.vectors, func(row bench.Convolution) { written.write(row) })
	if err != nil {
		return err
	}
	return written.err
}

func benchLayers(o options, _ io.Reader, out io.Writer) error {
	set, err := setOf(o.set)
	if err != nil {
		return err
	}
	var networks []*network.Network
	for path := range strings.SplitSeq(o.network, ",") {
		described, err := describedIn(path)
		if err != nil {
			return err
		}
		networks = append(networks, described)
	}
	if err := enough(set, network.MemoryBytes(set)); err != nil {
		return err
	}
	// As in `evaluate`.
	debug.SetGCPercent(20)
	written := newLines(out)
	err = bench.Layers(set, networks, o.first, o.repeats,
		func(keys bench.Keys) { written.write(keys) }, func(layer bench.Layer) { written.write(layer) })
	if err != nil {
		return err
	}
	return written.err
}

// polynomials lists those for ReLU, with their errors over (0, 1]: [x, |ReLU(x) - polynomial|], x = 2^(-i/8).
func polynomials(_ options, _ io.Reader, out io.Writer) error {
	written := newLines(out)
	for _, option := range relu.Options() {
		var curve [][2]float64
		for i := 96; i >= 0; i-- {
			// The largest error between this point and the next one.
			x, worst := math.Exp2(-float64(i)/8), 0.0
			for part := range 64 {
				at := math.Exp2(-float64(i)/8 - float64(part)/512)
				worst = max(worst, math.Abs(option.Plain(at)-at))
			}
			curve = append(curve, [2]float64{x, worst})
		}
		written.write(struct {
			Name   string       `json:"name"`
			Levels int          `json:"levels"`
			Error  float64      `json:"error"`
			Curve  [][2]float64 `json:"curve"`
		}{option.Name(), option.Levels(), option.Error(), curve})
	}
	return written.err
}
