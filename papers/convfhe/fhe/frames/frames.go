// Package frames is how `jaguar` and `jaguar-fhe` talk over a pipe or a Unix socket: the frames of the project's transport
// (crates/wire/src/frame.rs), `[kind: u8][length: u32, little-endian][payload]`, with two more kinds.
//
//	| kind | payload                                                        |
//	|------|----------------------------------------------------------------|
//	| 1    | at most 1 MiB of a message                                     |
//	| 3    | at most 1 KiB of UTF-8 that says why; nothing follows it       |
//	| 16   | none: the message is complete                                  |
//	| 17   | progress: so many steps are done, of so many (u32, u32)        |
package frames

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	kindData     = 1
	kindAbort    = 3
	kindEnd      = 16
	kindProgress = 17

	maxData   = 1 << 20
	maxReason = 1 << 10
)

// Peer is the other end of a connection. [Peer.Progress] may be called from another goroutine than the rest.
type Peer struct {
	r  *bufio.Reader
	mu sync.Mutex
	w  *bufio.Writer
}

// New wraps a connection.
func New(r io.Reader, w io.Writer) *Peer {
	return &Peer{r: bufio.NewReader(r), w: bufio.NewWriter(w)}
}

// Aborted is what the other end gave as its reason.
type Aborted struct{ Reason string }

func (a Aborted) Error() string { return "the other end gave up: " + a.Reason }

// Send sends a message.
func (p *Peer) Send(message []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(message) > 0 {
		n := min(len(message), maxData)
		if err := p.frame(kindData, message[:n]); err != nil {
			return err
		}
		message = message[n:]
	}
	if err := p.frame(kindEnd, nil); err != nil {
		return err
	}
	return p.w.Flush()
}

// Progress tells how far this end is.
func (p *Peer) Progress(done, of int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	payload := binary.LittleEndian.AppendUint32(nil, uint32(done))
	payload = binary.LittleEndian.AppendUint32(payload, uint32(of))
	if err := p.frame(kindProgress, payload); err != nil {
		return err
	}
	return p.w.Flush()
}

// Abort tells why nothing more will come.
func (p *Peer) Abort(reason error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := reason.Error()
	for end := len(text); len(text) > maxReason; text = text[:end] {
		for end = min(end-1, maxReason); end > 0 && !utf8.RuneStart(text[end]); end-- {
		}
	}
	if err := p.frame(kindAbort, []byte(text)); err != nil {
		return err
	}
	return p.w.Flush()
}

func (p *Peer) frame(kind byte, payload []byte) error {
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	for _, part := range [][]byte{head, payload} {
		if _, err := p.w.Write(part); err != nil {
			return fmt.Errorf("frames: %w", err)
		}
	}
	return nil
}

// Receive receives a message of exactly `length` bytes, or of at most `most` if length is negative. progress, unless nil, hears
// how far the other end is meanwhile. It returns [io.EOF] if the connection ends before a message begins.
func (p *Peer) Receive(length, most int, progress func(done, of int)) ([]byte, error) {
	if length >= 0 {
		most = length
	}
	var message []byte
	for first := true; ; first = false {
		var head [5]byte
		if _, err := io.ReadFull(p.r, head[:]); err != nil {
			if first && err == io.EOF {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("frames: the connection ended behind %d bytes of a message: %w", len(message), err)
		}
		size := int(binary.LittleEndian.Uint32(head[1:]))
		limit := map[byte]int{kindData: maxData, kindAbort: maxReason, kindEnd: 0, kindProgress: 8}
		if allowed, known := limit[head[0]]; !known || size > allowed {
			return nil, fmt.Errorf("frames: a frame of kind %d with %d bytes", head[0], size)
		}
		if head[0] == kindData && len(message)+size > most {
			return nil, fmt.Errorf("frames: a message of more than %d bytes", most)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(p.r, payload); err != nil {
			return nil, fmt.Errorf("frames: the connection ended within a frame: %w", err)
		}
		switch head[0] {
		case kindData:
			message = append(message, payload...)
		case kindAbort:
			return nil, Aborted{Reason: strings.ToValidUTF8(string(payload), "?")}
		case kindEnd:
			if length >= 0 && len(message) != length {
				return nil, fmt.Errorf("frames: a message of %d bytes, not %d", len(message), length)
			}
			return message, nil
		case kindProgress:
			if size != 8 {
				return nil, fmt.Errorf("frames: progress of %d bytes", size)
			}
			if progress != nil {
				progress(int(binary.LittleEndian.Uint32(payload)), int(binary.LittleEndian.Uint32(payload[4:])))
			}
		}
	}
}
