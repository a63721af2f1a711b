package keys

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"jaguar/fhe/parameters"
)

func newSet(t *testing.T) *parameters.Set {
	t.Helper()
	set, err := parameters.New(parameters.InsecureTest)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestKeysSurviveTheWire(t *testing.T) {
	set := newSet(t)
	client := NewClient(set)
	var wire bytes.Buffer
	if err := Write(client, &wire); err != nil {
		t.Fatal(err)
	}
	if int64(wire.Len()) != WireBytes(set) {
		t.Fatalf("%d bytes, %d announced", wire.Len(), WireBytes(set))
	}
	whole := wire.Bytes()
	server, err := Read(set, bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	// The keys work: b + a·s of the public key is small.
	ringQ := set.CKKS().RingQ().AtLevel(set.InputLevel())
	sum := ringQ.NewPoly()
	ringQ.MulCoeffsMontgomery(server.Public().Value[1].Q, client.Secret().Value.Q, sum)
	ringQ.Add(sum, server.Public().Value[0].Q, sum)
	ringQ.IMForm(sum, sum)
	ringQ.INTT(sum, sum)
	for j, residue := range sum.Coeffs[0] {
		if q := ringQ.SubRings[0].Modulus; min(residue, q-residue) > 40 {
			t.Fatalf("coefficient %d of the public key's error is %d", j, min(residue, q-residue))
		}
	}

	other := newSet(t)
	for name, spoil := range map[string]func(b []byte) []byte{
		"unexpected EOF":   func(b []byte) []byte { return b[:len(b)-1] },
		"are not keys":     func(b []byte) []byte { b[30] ^= 1; return b },
		"coefficient 0 is": func(b []byte) []byte { copy(b[len(header(set))+32:], bytes.Repeat([]byte{255}, 8)); return b },
		"header":           func(b []byte) []byte { return nil },
	} {
		if _, err := Read(other, bytes.NewReader(spoil(bytes.Clone(whole)))); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// full is a disk on which nothing more fits.
type full struct{ left int }

var errFull = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestAFullDiskIsTold(t *testing.T) {
	if err := Write(NewClient(newSet(t)), &full{left: 3 << 20}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
}

func TestSecretSurvivesItsFile(t *testing.T) {
	set := newSet(t)
	client := NewClient(set)
	var file bytes.Buffer
	if err := client.Write(&file); err != nil {
		t.Fatal(err)
	}
	read, err := ReadClient(set, bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !read.Secret().Equal(client.Secret()) {
		t.Fatal("another secret")
	}
	spoilt := bytes.Clone(file.Bytes())
	spoilt[len(spoilt)-1] = 3
	for _, bad := range []io.Reader{bytes.NewReader(spoilt), bytes.NewReader(file.Bytes()[1:]), bytes.NewReader(nil)} {
		if _, err := ReadClient(set, bad); err == nil {
			t.Error("a spoilt secret was read")
		}
	}
}
