// Command jaguar-fhe is the one-round protocol ConvFHE: keys, encryption, evaluation and decryption. `jaguar` drives it; it can be
// used by hand.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

const usage = `jaguar-fhe: private inference in one round

  jaguar-fhe sets
      parameter sets, their security, the size of keys, memory
  jaguar-fhe about --set SET [--network FILE]
      the same of one set, as JSON, for programs; with a network, the memory that its evaluation takes
  jaguar-fhe keygen --set SET --secret FILE --keys FILE
      draws a secret (it stays with the client) and the server's keys
  jaguar-fhe calibrate --set SET --network FILE --samples FILE [--margin 1.5] [--stress FILE [--stress-margin 1.2]] --out FILE
      finds the layers' bounds; both files are JSON: inputs [C, H, W], one after the other. Says as JSON what it found
  jaguar-fhe simulate --set SET --network FILE --samples FILE
      evaluates a calibrated network without encryption: a line of JSON for each input, how far its values reach, and its logits
  jaguar-fhe public --set SET --network FILE --out FILE
      what a client is told of a calibrated network: no weights
  jaguar-fhe encrypt --set SET --secret FILE --public FILE
      takes messages of float32, little-endian; gives ciphertexts
  jaguar-fhe evaluate --set SET --keys FILE --network FILE
      takes ciphertexts, gives encrypted logits, and progress by layer
  jaguar-fhe decrypt --set SET --secret FILE --public FILE
      takes encrypted logits, gives messages of float64, little-endian

  jaguar-fhe polynomials
      those that stand for ReLU, their levels and errors, as JSON
  jaguar-fhe bench-convolution --set SET [--batches 4,16,64,256] [--kernels 3,5,7] [--repeats 1] [--vectors]
      times one convolution by kernel and batch; --vectors times the same in slots, too
  jaguar-fhe bench-layers --set SET --network FILE[,FILE...] [--first LAYERS] [--repeats 1]
      times networks by layer and phase, by turns, with keys of its own

The commands from encrypt to decrypt talk over stdin and stdout, or over a Unix socket with --socket PATH, until the other end closes. The frames are
those of papers/convfhe/fhe/frames. Sets with "insecure" in their name protect nothing.
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "jaguar-fhe:", err)
		os.Exit(1)
	}
}

// options are the flags of all commands; a command names those that it needs.
type options struct {
	set, secret, keys, network, public, samples, stress, out, socket string
	margin, stressMargin                                             float64
	batches, kernels                                                 string
	repeats, first                                                   int
	vectors                                                          bool
}

// command is one of the subcommands.
type command struct {
	needs []string
	run   func(o options, in io.Reader, out io.Writer) error
}

func commands() map[string]command {
	return map[string]command{
		"sets":      {nil, sets},
		"about":     {[]string{"set"}, about},
		"keygen":    {[]string{"set", "secret", "keys"}, keygen},
		"calibrate": {[]string{"set", "network", "samples", "out"}, calibrate},
		"simulate":  {[]string{"set", "network", "samples"}, simulate},
		"public":    {[]string{"set", "network", "out"}, public},
		"encrypt":   {[]string{"set", "secret", "public"}, encrypt},
		"evaluate":  {[]string{"set", "keys", "network"}, evaluate},
		"decrypt":   {[]string{"set", "secret", "public"}, decrypt},

		"polynomials":       {nil, polynomials},
		"bench-convolution": {[]string{"set"}, benchConvolution},
		"bench-layers":      {[]string{"set", "network"}, benchLayers},
	}
}

func run(arguments []string, in io.Reader, out io.Writer) error {
	if len(arguments) == 0 || arguments[0] == "help" || strings.HasPrefix(arguments[0], "-") {
		_, err := io.WriteString(out, usage)
		return err
	}
	name := arguments[0]
	chosen, known := commands()[name]
	if !known {
		return fmt.Errorf("no command is called %q; `jaguar-fhe help` lists them", name)
	}
	var o options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for flagName, to := range map[string]*string{
		"set": &o.set, "secret": &o.secret, "keys": &o.keys, "network": &o.network, "public": &o.public,
		"samples": &o.samples, "stress": &o.stress, "out": &o.out, "socket": &o.socket,
	} {
		flags.StringVar(to, flagName, "", "")
	}
	flags.Float64Var(&o.margin, "margin", 1.5, "")
	flags.Float64Var(&o.stressMargin, "stress-margin", 1.2, "")
	flags.StringVar(&o.batches, "batches", "4,16,64,256", "")
	flags.StringVar(&o.kernels, "kernels", "3,5,7", "")
	flags.IntVar(&o.repeats, "repeats", 1, "")
	flags.IntVar(&o.first, "first", 0, "")
	flags.BoolVar(&o.vectors, "vectors", false, "")
	if err := flags.Parse(arguments[1:]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: what is %q?", name, flags.Arg(0))
	}
	for _, needed := range chosen.needs {
		if flags.Lookup(needed).Value.String() == "" {
			return fmt.Errorf("%s: --%s is missing", name, needed)
		}
	}
	if o.socket != "" {
		connection, err := net.Dial("unix", o.socket)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer connection.Close()
		in, out = connection, connection
	}
	if err := chosen.run(o, in, out); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// writeNew writes a file that must not be there yet, readable by its owner only; an incomplete one is removed.
func writeNew(path string, write func(w io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	return errors.Join(write(file), file.Sync(), file.Close())
}
