package main

import (
	"io"
	"net"
	"os"
	"sync"
)

// exit ends the process. Tests put something else here.
var exit = os.Exit

// ahead is how many bytes the other end may send before they are asked for: more than an input.
const ahead = 16 << 20

// isSocket says whether the end of in means that nobody waits for an answer. A file or a pipe ends behind its last message.
func isSocket(in io.Reader) bool {
	switch in := in.(type) {
	case net.Conn:
		return true
	case *os.File:
		info, err := in.Stat()
		return err == nil && info.Mode()&os.ModeSocket != 0
	}
	return false
}

// watched reads ahead from the other end, so that its end is noticed at once, also while something is computed for it.
type watched struct {
	closed  func()
	mu      sync.Mutex
	changed *sync.Cond
	held    []byte
	err     error
	busy    bool
}

// watch reads ahead from in, at most [ahead] bytes. If in ends while this end is at work ([watched.work]), closed is called.
func watch(in io.Reader, closed func()) *watched {
	w := &watched{closed: closed}
	w.changed = sync.NewCond(&w.mu)
	go func() {
		for some := make([]byte, 1<<16); ; {
			n, err := in.Read(some)
			w.take(some[:n], err)
			if err != nil {
				return
			}
		}
	}()
	return w
}

// take holds what was read. It waits while too much is held.
func (w *watched) take(some []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.held) > 0 && len(w.held)+len(some) > ahead {
		w.changed.Wait()
	}
	w.held = append(w.held, some...)
	w.err = err
	w.changed.Broadcast()
	w.look()
}

// work says whether something is computed from here on.
func (w *watched) work(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = busy
	w.look()
}

func (w *watched) look() {
	if w.busy && w.err != nil {
		w.closed()
	}
}

// Read implements [io.Reader].
func (w *watched) Read(to []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.held) == 0 && w.err == nil {
		w.changed.Wait()
	}
	if len(w.held) == 0 {
		return 0, w.err
	}
	n := copy(to, w.held)
	w.held = w.held[n:]
	w.changed.Broadcast()
	return n, nil
}
