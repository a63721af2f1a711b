package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/tuneinsight/lattigo/v6/core/rlwe"

	"jaguar/fhe/answer"
	"jaguar/fhe/frames"
	"jaguar/fhe/keys"
	"jaguar/fhe/network"
	"jaguar/fhe/parameters"
	"jaguar/fhe/residues"
)

// maxFile bounds the files that are read whole: descriptions and samples.
const maxFile = 1 << 30

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

func setOf(name string) (*parameters.Set, error) {
	literal, err := parameters.ByName(name)
	if err != nil {
		return nil, err
	}
	return parameters.New(literal)
}

func sets(_ options, _ io.Reader, out io.Writer) error {
	for _, literal := range parameters.Literals() {
		set, err := parameters.New(literal)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-24s N = 2^%d, log QP = %.0f, %d values; %s\n", set.Name(), set.CKKS().LogN(), set.CKKS().LogQP(), set.Values(), set.Security())
		fmt.Fprintf(out, "%-24s keys %.2f GB over the wire, memory of `evaluate` about %.1f GB\n", "",
			float64(keys.WireBytes(set))/1e9, float64(memoryOf(set, nil))/1e9)
	}
	return nil
}

func keygen(o options, _ io.Reader, _ io.Writer) error {
	set, err := setOf(o.set)
	if err != nil {
		return err
	}
	client := keys.NewClient(set)
	if err := writeNew(o.secret, client.Write); err != nil {
		return err
	}
	if err := writeNew(o.keys, func(w io.Writer) error { return keys.Write(client, w) }); err != nil {
		return errors.Join(err, os.Remove(o.secret))
	}
	return nil
}

// describedIn reads a description.
func describedIn(path string) (*network.Network, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	described, err := network.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return described, nil
}

// planOf reads a description and places it in ciphertexts of the set.
func planOf(o options) (*parameters.Set, *network.Plan, error) {
	set, err := setOf(o.set)
	if err != nil {
		return nil, nil, err
	}
	described, err := describedIn(o.network)
	if err != nil {
		return nil, nil, err
	}
	plan, err := network.NewPlan(described, set.Values())
	if err != nil {
		return nil, nil, err
	}
	return set, plan, plan.Check(set)
}

// enough says whether there is memory for what needs so many bytes under a set.
func enough(set *parameters.Set, need int64) error {
	if there := available(); there > 0 && need > there {
		return fmt.Errorf("parameter set %q needs about %.1f GB of memory, %.1f GB are free", set.Name(), float64(need)/1e9, float64(there)/1e9)
	}
	return nil
}

// inputsOf reads a file of inputs; none, if it has no name.
func inputsOf(path string) (inputs [][]float64, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &inputs); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return inputs, nil
}

func calibrate(o options, _ io.Reader, out io.Writer) error {
	_, plan, err := planOf(o)
	if err != nil {
		return err
	}
	inputs := network.Inputs{Margin: o.margin, StressMargin: o.stressMargin}
	if inputs.Samples, err = inputsOf(o.samples); err != nil {
		return err
	}
	if inputs.Stress, err = inputsOf(o.stress); err != nil {
		return err
	}
	found, err := plan.Calibrate(inputs)
	if err != nil {
		return err
	}
	if err := writeJSON(o.out, plan.Network); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(found)
}

func simulate(o options, _ io.Reader, out io.Writer) error {
	_, plan, err := planOf(o)
	if err != nil {
		return err
	}
	samples, err := inputsOf(o.samples)
	if err != nil {
		return err
	}
	for i, sample := range samples {
		found, err := plan.Simulate(sample)
		if err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
		if err := json.NewEncoder(out).Encode(found); err != nil {
			return err
		}
	}
	return nil
}

func public(o options, _ io.Reader, _ io.Writer) error {
	set, plan, err := planOf(o)
	if err != nil {
		return err
	}
	told, err := plan.Public(set)
	if err != nil {
		return err
	}
	return writeJSON(o.out, told)
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeNew(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// clientOf reads what the client's commands need.
func clientOf(o options) (*keys.Client, *network.Public, error) {
	set, err := setOf(o.set)
	if err != nil {
		return nil, nil, err
	}
	text, err := readFile(o.public)
	if err != nil {
		return nil, nil, err
	}
	told, err := network.ParsePublic(text, set)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Open(o.secret)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	client, err := keys.ReadClient(set, bufio.NewReader(file))
	return client, told, err
}

// serve answers messages of so many bytes until the other end closes. It tells the other end why it gives up.
func serve(in io.Reader, out io.Writer, length int, reply func(peer *frames.Peer, message []byte) ([]byte, error)) error {
	peer := frames.New(in, out)
	for {
		message, err := peer.Receive(length, 0, nil)
		if err == io.EOF {
			return nil
		}
		var made []byte
		if err == nil {
			made, err = reply(peer, message)
		}
		if err != nil {
			return errors.Join(err, peer.Abort(err))
		}
		if err := peer.Send(made); err != nil {
			return err
		}
	}
}

func encrypt(o options, in io.Reader, out io.Writer) error {
	client, told, err := clientOf(o)
	if err != nil {
		return err
	}
	grid := told.Input
	return serve(in, out, 4*grid.Channels*grid.Height*grid.Width, func(_ *frames.Peer, message []byte) ([]byte, error) {
		input := make([]float64, len(message)/4)
		for i := range input {
			input[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(message[4*i:])))
		}
		cts, err := told.Encrypt(client, input)
		if err != nil {
			return nil, err
		}
		var made bytes.Buffer
		for _, ct := range cts {
			if err := residues.WriteCiphertext(&made, ct); err != nil {
				return nil, err
			}
		}
		return made.Bytes(), nil
	})
}

func decrypt(o options, in io.Reader, out io.Writer) error {
	client, told, err := clientOf(o)
	if err != nil {
		return err
	}
	set := client.Set()
	return serve(in, out, residues.CiphertextBytes(set), func(_ *frames.Peer, message []byte) ([]byte, error) {
		ct, err := residues.ReadCiphertext(bytes.NewReader(message), set, math.Exp2(float64(answer.LogScale(set))))
		if err != nil {
			return nil, err
		}
		logits, err := told.Decrypt(client, ct)
		var made []byte
		for _, logit := range logits {
			made = binary.LittleEndian.AppendUint64(made, math.Float64bits(logit))
		}
		return made, err
	})
}

func evaluate(o options, in io.Reader, out io.Writer) error {
	set, plan, err := planOf(o)
	if err != nil {
		return err
	}
	if err := plan.Calibrated(); err != nil {
		return err
	}
	if err := enough(set, memoryOf(set, plan)); err != nil {
		return err
	}
	debug.SetGCPercent(20)
	// Keys take a minute to read and layers half a minute each. Whoever is gone meanwhile waits for nothing, and the memory is needed.
	other := watch(in, func() {
		if isSocket(in) {
			exit(1)
		}
	})
	other.work(true)
	file, err := os.Open(o.keys)
	if err != nil {
		return err
	}
	defer file.Close()
	server, err := keys.Read(set, file)
	if err != nil {
		return err
	}
	evaluator, err := network.NewEvaluator(plan, server)
	if err != nil {
		return err
	}
	other.work(false)
	input := make([]*rlwe.Ciphertext, plan.Grids[0].Polynomials())
	size := len(input) * residues.CiphertextBytes(set)
	return serve(other, out, size, func(peer *frames.Peer, message []byte) ([]byte, error) {
		other.work(true)
		defer other.work(false)
		from := bytes.NewReader(message)
		for i := range input {
			var err error
			if input[i], err = residues.ReadCiphertext(from, set, set.ValueScale()); err != nil {
				return nil, err
			}
		}
		var lost error
		logits, err := evaluator.Evaluate(input, func(layer, layers int, _ network.Times) {
			lost = errors.Join(lost, peer.Progress(layer, layers))
		})
		if err := errors.Join(err, lost); err != nil {
			return nil, err
		}
		var made bytes.Buffer
		err = residues.WriteCiphertext(&made, logits)
		return made.Bytes(), err
	})
}

// available is how much memory the system can give, in bytes; 0 where it does not say.
func available() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
