// Package bench times the parts of a convolutional layer: one convolution by kernel and batch, in coefficients and in slots (Figure 5
// of the paper), and layers by phase (Figure 6, Table III). Weights and inputs are random: times do not depend on them.
package bench

import (
	"fmt"
	"math"
	"math/rand"
	"syscall"
	"time"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"

	"jaguar/fhe/convolution"
	"jaguar/fhe/keys"
	"jaguar/fhe/layout"
	"jaguar/fhe/network"
	"jaguar/fhe/packing"
	"jaguar/fhe/parameters"
)

// Convolution is one row of Figure 5. Times are of one run.
type Convolution struct {
	// Batch is how many input and output channels there are, of Side × Side values each; they fill a ciphertext in coefficients and
	// two in slots.
	Batch  int `json:"batch"`
	Side   int `json:"side"`
	Kernel int `json:"kernel"`
	// Weights, Products and Packing are ours: making plaintexts, Algorithm 1, Algorithm 2.
	Weights  float64 `json:"weights_seconds"`
	Products float64 `json:"products_seconds"`
	Packing  float64 `json:"packing_seconds"`
	// Busy is the processor time of the three together.
	Busy float64 `json:"busy_seconds"`
	// Vector is the baseline: four convolutions of Batch/2 channels each, plaintexts made before. 0 if it was not timed.
	Vector float64 `json:"vector_seconds"`
	// VectorBusy is its processor time.
	VectorBusy float64 `json:"vector_busy_seconds"`
	// VectorRotations and VectorProducts are how many it takes in all.
	VectorRotations int `json:"vector_rotations"`
	VectorProducts  int `json:"vector_products"`
}

// Convolutions times full batches of these sizes by turns, so often.
func Convolutions(set *parameters.Set, batches, kernels []int, repeats int, vectors bool, row func(Convolution)) error {
	params, level := set.CKKS(), set.InputLevel()
	client := keys.NewClient(set)
	packer, err := keys.Packer(client)
	if err != nil {
		return err
	}
	encryptor := rlwe.NewEncryptor(params, client.Secret())
	ct := ckks.NewCiphertext(params, 1, level)
	if err := encryptor.EncryptZero(ct); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	for _, batch := range batches {
		side := int(math.Sqrt(float64(set.Values() / batch)))
		if batch < 2 || side*side*batch != set.Values() {
			return fmt.Errorf("bench: %d channels do not fill %d values with squares", batch, set.Values())
		}
		for range repeats {
			for _, size := range kernels {
				made, err := coefficients(set, packer, ct, batch, side, size)
				if err != nil {
					return err
				}
				if err := slots(client, &made, vectors); err != nil {
					return err
				}
				row(made)
			}
		}
	}
	return nil
}

// coefficients times ours.
func coefficients(set *parameters.Set, packer *packing.Packer, ct *rlwe.Ciphertext, batch, side, size int) (Convolution, error) {
	made := Convolution{Batch: batch, Side: side, Kernel: size}
	rng := rand.New(rand.NewSource(int64(batch)))
	kernel := convolution.Kernel{
		Out: batch, In: batch, Height: size, Width: size, Stride: 1, Weights: make([]float64, batch*batch*size*size),
	}
	for i := range kernel.Weights {
		kernel.Weights[i] = rng.NormFloat64()
	}
	// As in the paper, the picture's rows follow each other; its margin is cropped.
	grid, err := layout.New(batch, side, side, 0, batch)
	if err != nil {
		return made, err
	}
	params := set.CKKS()
	evaluator := ckks.NewEvaluator(params, nil)
	poly := params.RingQ().AtLevel(set.InputLevel()).NewPoly()
	sums := make([]*rlwe.Ciphertext, batch)
	before := busy()
	for o := range sums {
		begin := time.Now()
		if err := convolution.EncodeInto(set, kernel.Taps(grid, 0, o), math.Exp2(40), poly); err != nil {
			return made, err
		}
		made.Weights += time.Since(begin).Seconds()
		begin = time.Now()
		sum := ckks.NewCiphertext(params, 1, set.InputLevel())
		convolution.MulThenAdd(set, ct, poly, sum)
		sums[o] = ckks.NewCiphertext(params, 1, set.InputLevel()-1)
		if err := evaluator.Rescale(sum, sums[o]); err != nil {
			return made, fmt.Errorf("bench: %w", err)
		}
		made.Products += time.Since(begin).Seconds()
	}
	begin := time.Now()
	_, merges, err := packer.Pack(batch, func(o int) (*rlwe.Ciphertext, error) { return sums[o], nil }, logOf(batch*set.Gap()))
	made.Packing, made.Busy = time.Since(begin).Seconds(), busy()-before
	if err == nil && 1<<merges != batch {
		err = fmt.Errorf("bench: %d merges for %d channels", merges, batch)
	}
	return made, err
}

func logOf(x int) int { return int(math.Round(math.Log2(float64(x)))) }

// slots counts, and times if asked to, the baseline: one of its four convolutions, four times.
func slots(client *keys.Client, made *Convolution, timed bool) error {
	params, level := client.Set().CKKS(), client.Set().InputLevel()
	v := vector{channels: made.Batch / 2, side: made.Side, kernel: made.Kernel}
	rotations, products := v.counts()
	made.VectorRotations, made.VectorProducts = 4*rotations, 4*products
	if !timed {
		return nil
	}
	levelP := keys.PackingLevelP
	var galois []*rlwe.GaloisKey
	kgen := rlwe.NewKeyGenerator(params)
	for _, step := range v.rotations() {
		if step != 0 {
			shape := rlwe.EvaluationKeyParameters{LevelQ: &level, LevelP: &levelP}
			galois = append(galois, kgen.GenGaloisKeyNew(params.GaloisElement(step), client.Secret(), shape))
		}
	}
	v.evaluator = ckks.NewEvaluator(params, rlwe.NewMemEvaluationKeySet(nil, galois...))
	in := ckks.NewCiphertext(params, 1, level)
	if err := rlwe.NewEncryptor(params, client.Secret()).EncryptZero(in); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	plaintext := ckks.NewPlaintext(params, level)
	begin, before := time.Now(), busy()
	if _, err := v.convolve(in, func(int, int) (*rlwe.Plaintext, error) { return plaintext, nil }); err != nil {
		return err
	}
	made.Vector, made.VectorBusy = 4*time.Since(begin).Seconds(), 4*(busy()-before)
	return nil
}

// Layer is one layer of a network by phase, in seconds: a bar of Figure 6, or a part of Table III.
type Layer struct {
	Network string `json:"network"`
	// Index counts from 1; the last one makes the logits. Layers is how many there are.
	Index  int `json:"index"`
	Layers int `json:"layers"`
	// Ciphertexts is how many were bootstrapped.
	Ciphertexts int     `json:"ciphertexts"`
	Convolution float64 `json:"convolution_seconds"`
	Packing     float64 `json:"packing_seconds"`
	CtoS        float64 `json:"ctos_seconds"`
	Sine        float64 `json:"sine_seconds"`
	ReLU        float64 `json:"relu_seconds"`
	StoC        float64 `json:"stoc_seconds"`
	// Busy is the processor time of all of it: on a machine that does other work, too, it says more than the time that passed.
	Busy float64 `json:"busy_seconds"`
}

// busy is the processor time of this process so far, in seconds.
func busy() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// Keys are what a client's keys and their matrices took to make, and take.
type Keys struct {
	KeySeconds    float64 `json:"key_seconds"`
	MatrixSeconds float64 `json:"matrix_seconds"`
	WireBytes     int64   `json:"wire_bytes"`
	MemoryBytes   int64   `json:"memory_bytes"`
}

// Layers evaluates networks by turns, so often, each to its layer number `first` or, if that is 0, to its end. A network is
// calibrated with a random input if it was not.
func Layers(set *parameters.Set, networks []*network.Network, first, repeats int, made func(Keys), row func(Layer)) error {
	plans := make([]*network.Plan, len(networks))
	inputs := make([][]float64, len(networks))
	for i, described := range networks {
		plan, err := network.NewPlan(described, set.Values())
		if err != nil {
			return fmt.Errorf("%s: %w", described.Name, err)
		}
		rng := rand.New(rand.NewSource(int64(i)))
		inputs[i] = make([]float64, described.Input[0]*described.Input[1]*described.Input[2])
		for j := range inputs[i] {
			inputs[i][j] = (2*rng.Float64() - 1) * described.InputBound
		}
		if plan.Calibrated() != nil {
			calibration := network.Inputs{Samples: inputs[i : i+1], Margin: 1.5, StressMargin: 1}
			if _, err := plan.Calibrate(calibration); err != nil {
				return fmt.Errorf("%s: %w", described.Name, err)
			}
		}
		plans[i] = plan
	}
	begin := time.Now()
	client := keys.NewClient(set)
	server, err := keys.Generate(client)
	if err != nil {
		return err
	}
	took := Keys{KeySeconds: time.Since(begin).Seconds(), WireBytes: keys.WireBytes(set), MemoryBytes: network.MemoryBytes(set)}
	begin = time.Now()
	var evaluator *network.Evaluator
	for r := range repeats {
		for i, plan := range plans {
			if evaluator == nil {
				evaluator, err = network.NewEvaluator(plan, server)
			} else {
				evaluator, err = evaluator.With(plan)
			}
			if err != nil {
				return err
			}
			if r == 0 && i == 0 {
				took.MatrixSeconds = time.Since(begin).Seconds()
				made(took)
			}
			if err := layers(set, client, plan, evaluator, inputs[i], first, row); err != nil {
				return fmt.Errorf("%s: %w", plan.Network.Name, err)
			}
		}
	}
	return nil
}

// layers evaluates one network once.
func layers(
	set *parameters.Set, client *keys.Client, plan *network.Plan, evaluator *network.Evaluator, input []float64, first int, row func(Layer),
) error {
	public, err := plan.Public(set)
	if err != nil {
		return err
	}
	encrypted, err := public.Encrypt(client, input)
	if err != nil {
		return err
	}
	before := busy()
	_, err = evaluator.EvaluateFirst(encrypted, first, func(layer, layers int, times network.Times) {
		ciphertexts := 0
		if layer < len(plan.Grids) {
			ciphertexts = plan.Grids[layer].Polynomials()
		}
		row(Layer{
			Network: plan.Network.Name, Index: layer, Layers: layers, Ciphertexts: ciphertexts,
			Convolution: times.Convolution.Seconds(), Packing: times.Packing.Seconds(), CtoS: times.CtoS.Seconds(),
			Sine: times.Sine.Seconds(), ReLU: times.ReLU.Seconds(), StoC: times.StoC.Seconds(), Busy: busy() - before,
		})
		before = busy()
	})
	return err
}
