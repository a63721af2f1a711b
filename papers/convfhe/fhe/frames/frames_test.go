package frames

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestMessagesProgressAndAborts(t *testing.T) {
	var wire bytes.Buffer
	sender := New(nil, &wire)
	long := bytes.Repeat([]byte("jaguar"), maxData/3)
	reason := errors.New(strings.Repeat("ü", maxReason))
	for _, err := range []error{
		sender.Progress(1, 20), sender.Send(long), sender.Send(nil), sender.Abort(reason),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	receiver := New(&wire, nil)
	told := 0
	got, err := receiver.Receive(len(long), 0, func(done, of int) { told = 100*done + of })
	if err != nil || !bytes.Equal(got, long) || told != 120 {
		t.Fatalf("%d bytes, %d, %v", len(got), told, err)
	}
	if got, err := receiver.Receive(-1, 10, nil); err != nil || len(got) != 0 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	var aborted Aborted
	if _, err := receiver.Receive(-1, 10, nil); !errors.As(err, &aborted) || !strings.HasPrefix(reason.Error(), aborted.Reason) || len(aborted.Reason) < maxReason-1 {
		t.Fatalf("%d bytes of a reason, %v", len(aborted.Reason), err)
	}
	if _, err := receiver.Receive(-1, 10, nil); err != io.EOF {
		t.Fatal(err)
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	for name, wire := range map[string]string{
		"kind 2":           "\x02\x00\x00\x00\x00",
		"kind 1 with":      "\x01\x01\x00\x10\x00",
		"more than 10":     "\x01\x0b\x00\x00\x00hello world",
		"ended behind":     "\x01\x00",
		"ended within":     "\x01\x05\x00\x00\x00he",
		"progress of 3":    "\x11\x03\x00\x00\x00abc",
		"kind 17 with 255": "\x11\xff\x00\x00\x00",
	} {
		if _, err := New(strings.NewReader(wire), nil).Receive(-1, 10, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := New(strings.NewReader("\x10\x00\x00\x00\x00"), nil).Receive(3, 0, nil); err == nil {
		t.Error("an empty message for one of 3 bytes")
	}
}
