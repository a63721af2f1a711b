package frames

import (
	"bytes"
	"testing"
)

// FuzzReceive hands foreign bytes to the reader of frames: messages of any length up to a limit, then of a fixed one.
func FuzzReceive(f *testing.F) {
	var wire bytes.Buffer
	sender := New(nil, &wire)
	for _, err := range []error{sender.Progress(1, 20), sender.Send([]byte("a message")), sender.Send(nil)} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(wire.Bytes())
	f.Add([]byte("\x03\x02\x00\x00\x00no"))
	f.Add([]byte("\x01\xff\xff\xff\xff"))
	f.Add([]byte("\x01\x05\x00\x00\x00hello\x01\x05\x00\x00\x00hello\x10\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		const most = 64
		for _, length := range []int{-1, 9} {
			receiver := New(bytes.NewReader(input), nil)
			for {
				message, err := receiver.Receive(length, most, func(int, int) {})
				if err != nil {
					break
				}
				if len(message) > most || length >= 0 && len(message) != length {
					t.Fatalf("a message of %d bytes", len(message))
				}
			}
		}
	})
}
