package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jaguar/fhe/answer"
	"jaguar/fhe/frames"
	"jaguar/fhe/internal/testparty"
	"jaguar/fhe/network"
	"jaguar/fhe/residues"
)

// files are what the commands leave in a folder.
type files struct {
	secret, keys, network, public string
	inputs                        [][]float64
}

const set = "insecure-n10"

// alone runs a command that talks to nobody.
func alone(arguments ...string) error {
	return run(arguments, strings.NewReader(""), io.Discard)
}

// prepare makes keys and a calibrated network of a convolution and a fully connected layer.
func prepare(t *testing.T) files {
	t.Helper()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	rng := rand.New(rand.NewSource(5))
	weights := func(n int) network.Floats {
		w := make(network.Floats, n)
		for i := range w {
			w[i] = rng.NormFloat64() / 4
		}
		return w
	}
	described := network.Network{
		Name: "two layers", Input: [3]int{1, 4, 4}, InputBound: 1,
		Layers: []network.Layer{{
			Name:  "convolution",
			Terms: []network.Term{{Out: 4, In: 1, Height: 3, Width: 3, Stride: 1, Padding: [4]int{1, 1, 1, 1}, Weights: weights(36)}},
			Bias:  weights(4),
		}},
		Output: network.Layer{
			Name:  "fully connected",
			Terms: []network.Term{{From: 1, Out: 3, In: 4, Height: 4, Width: 4, Stride: 1, Weights: weights(192)}},
			Bias:  weights(3),
		},
	}
	inputs := make([][]float64, 4)
	for i := range inputs {
		for range 16 {
			inputs[i] = append(inputs[i], float64(float32(2*rng.Float64()-1)))
		}
	}
	for name, value := range map[string]any{"described.json": described, "samples.json": inputs} {
		text := testparty.Must(json.Marshal(value))
		testparty.Check(os.WriteFile(in(name), text, 0o600))
	}
	made := files{in("secret"), in("keys"), in("network.json"), in("public.json"), inputs}
	testparty.Check(alone("keygen", "--set", set, "--secret", made.secret, "--keys", made.keys))
	testparty.Check(alone("calibrate", "--set", set, "--network", in("described.json"), "--samples", in("samples.json"), "--out", made.network))
	testparty.Check(alone("public", "--set", set, "--network", made.network, "--out", made.public))
	return made
}

// ask sends a message to a command over a Unix socket, and returns its answer.
func ask(t *testing.T, message []byte, progress func(done, of int), arguments ...string) ([]byte, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener := testparty.Must(net.Listen("unix", path))
	defer listener.Close()
	ended := make(chan error, 1)
	go func() { ended <- run(append(arguments, "--socket", path), nil, nil) }()
	connection := testparty.Must(listener.Accept())
	peer := frames.New(connection, connection)
	testparty.Check(peer.Send(message))
	reply, err := peer.Receive(-1, 1<<24, progress)
	connection.Close()
	return reply, errors.Join(err, <-ended)
}

func tensor(values []float64) []byte {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v)))
	}
	return raw
}

func TestFourCommandsGiveTheLogits(t *testing.T) {
	f := prepare(t)
	input := testparty.Must(ask(t, tensor(f.inputs[1]), nil, "encrypt", "--set", set, "--secret", f.secret, "--public", f.public))
	var told []int
	encrypted, err := ask(t, input, func(done, of int) { told = append(told, done, of) },
		"evaluate", "--set", set, "--keys", f.keys, "--network", f.network)
	testparty.Check(err)
	if len(told) != 4 || told[0] != 1 || told[2] != 2 || told[3] != 2 {
		t.Errorf("progress %v", told)
	}
	raw := testparty.Must(ask(t, encrypted, nil, "decrypt", "--set", set, "--secret", f.secret, "--public", f.public))
	_, plan, err := planOf(options{set: set, network: f.network})
	testparty.Check(err)
	want := testparty.Must(plan.Plain(f.inputs[1], plan.ReLU.Plain, nil))
	bound := plan.Network.Output.Bound
	for o := range want {
		got := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*o:]))
		if math.Abs(got-want[o]) > answer.MaximumError(bound)+bound*5e-4 {
			t.Errorf("logit %d is %g, not %g", o, got, want[o])
		}
	}

	// A client with another secret is told.
	folder := t.TempDir()
	other := filepath.Join(folder, "secret")
	testparty.Check(alone("keygen", "--set", set, "--secret", other, "--keys", filepath.Join(folder, "keys")))
	if _, err := ask(t, encrypted, nil, "decrypt", "--set", set, "--secret", other, "--public", f.public); err == nil || !strings.Contains(err.Error(), "another client") {
		t.Errorf("another secret: %v", err)
	}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	f := prepare(t)
	evaluation := []string{"evaluate", "--set", set, "--keys", f.keys, "--network", f.network}
	client := []string{"--set", set, "--secret", f.secret, "--public", f.public}
	long := bytes.Repeat([]byte{255}, residues.CiphertextBytes(testparty.Must(setOf(set))))
	for _, test := range []struct {
		arguments []string
		message   []byte
		want      string
	}{
		{evaluation, long, "coefficient 0 is"},
		{evaluation, long[1:], "not 32768"},
		{append([]string{"encrypt"}, client...), tensor([]float64{1}), "4 bytes, not 64"},
		{append([]string{"encrypt"}, client...), tensor(append([]float64{math.NaN()}, f.inputs[0][1:]...)), "its bound is 1"},
		{append([]string{"decrypt"}, client...), make([]byte, len(long)), ""},
	} {
		_, err := ask(t, test.message, nil, test.arguments...)
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, not %q", test.arguments[0], err, test.want)
		}
	}
	for want, arguments := range map[string][]string{
		"no command":         {"train"},
		"--set is missing":   {"keygen"},
		"no set is called":   {"keygen", "--set", "n99", "--secret", "a", "--keys", "b"},
		"file exists":        {"keygen", "--set", set, "--secret", f.secret, "--keys", f.keys + "2"},
		"what is \"more\"":   {"sets", "more"},
		"has no bound":       {"public", "--set", set, "--network", filepath.Join(filepath.Dir(f.network), "described.json"), "--out", "x"},
		"not keys":           {"evaluate", "--set", set, "--keys", f.network, "--network", f.network},
		"no such file":       {"decrypt", "--set", set, "--secret", "nowhere", "--public", f.public},
		"made for parameter": {"decrypt", "--set", "insecure-n10-dense", "--secret", f.secret, "--public", f.public},
	} {
		if err := alone(arguments...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", arguments, err)
		}
	}
	// A connection that ends within a message.
	if err := run(evaluation, strings.NewReader("\x01\x05\x00\x00\x00he"), io.Discard); err == nil || !strings.Contains(err.Error(), "ended within") {
		t.Errorf("a cut connection: %v", err)
	}
}

func TestEvaluationEndsWithItsConnection(t *testing.T) {
	f := prepare(t)
	left := make(chan int, 1)
	exit = func(code int) {
		left <- code
		// The rest of the process would be gone: this goroutine reads ahead, and nobody waits for it.
		select {}
	}
	defer func() { exit = os.Exit }()
	ours, theirs := net.Pipe()
	go evaluate(options{set: set, keys: f.keys, network: f.network}, theirs, theirs)
	// It reads its keys, and has not been asked for anything.
	ours.Close()
	select {
	case code := <-left:
		if code == 0 {
			t.Error("it ended as if nothing was wrong")
		}
	case <-time.After(time.Minute):
		t.Error("it goes on without anybody to answer")
	}
}

func TestAConnectionMayEndBehindTheAnswer(t *testing.T) {
	called := 0
	w := watch(strings.NewReader("message"), func() { called++ })
	w.work(false)
	text, err := io.ReadAll(w)
	if string(text) != "message" || err != nil || called != 0 {
		t.Errorf("%q, %v, closed %d times", text, err, called)
	}
	if w.work(true); called != 1 {
		t.Error("work begins for somebody who is gone")
	}
}

func TestAboutTellsSizes(t *testing.T) {
	f := prepare(t)
	tell := func(arguments ...string) (told figures) {
		var out bytes.Buffer
		testparty.Check(run(append([]string{"about", "--set", set}, arguments...), nil, &out))
		testparty.Check(json.Unmarshal(out.Bytes(), &told))
		return told
	}
	told := tell()
	info, err := os.Stat(f.keys)
	if err != nil || told.Keys != info.Size() {
		t.Errorf("keys of %d bytes are told, the file: %v, %v", told.Keys, info, err)
	}
	if told.Input != residues.CiphertextBytes(testparty.Must(setOf(set))) || told.Answer != told.Input || told.ClientMemory <= 0 {
		t.Errorf("%+v", told)
	}
	// A network's weights come on top: 36 and 192 of them.
	if with := tell("--network", f.network); with.Memory != told.Memory+228*14 {
		t.Errorf("%d bytes with a network, %d without", with.Memory, told.Memory)
	}
}

func TestBenchmarksWriteJSON(t *testing.T) {
	f := prepare(t)
	for _, test := range []struct {
		arguments []string
		fields    []string
		lines     int
	}{
		{[]string{"polynomials"}, []string{"name", "levels", "error", "curve"}, 3},
		{
			[]string{"bench-convolution", "--set", "insecure-n10-dense", "--batches", "4", "--kernels", "3,5"},
			[]string{"batch", "side", "kernel", "products_seconds", "vector_rotations"}, 2,
		},
		{[]string{"bench-layers", "--set", set, "--network", f.network, "--first", "1", "--repeats", "2"}, nil, 3},
	} {
		var out bytes.Buffer
		if err := run(test.arguments, strings.NewReader(""), &out); err != nil {
			t.Fatalf("%v: %v", test.arguments, err)
		}
		written := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(written) != test.lines {
			t.Errorf("%v: %d lines, not %d", test.arguments, len(written), test.lines)
		}
		for _, line := range written {
			var row map[string]any
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%v: %v", test.arguments, err)
			}
			for _, field := range test.fields {
				if _, there := row[field]; !there {
					t.Errorf("%v: no %q in %s", test.arguments, field, line)
				}
			}
		}
	}
	if err := run([]string{"bench-convolution", "--set", set, "--kernels", "3,x"}, nil, io.Discard); err == nil {
		t.Error("a kernel of x")
	}
}
