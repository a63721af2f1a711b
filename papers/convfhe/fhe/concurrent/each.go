// Package concurrent spreads what Lattigo does on one goroutine over all processors: key switches by their digits, and products with
// matrices by their rotations. The results are the same, up to rounding.
package concurrent

import (
	"errors"
	"runtime"
	"sync"
)

// Each calls f(0) to f(n-1) on as many goroutines as there are processors, and returns the errors. A goroutine stops at its first.
func Each(n int, f func(i int) error) error { return Few(runtime.GOMAXPROCS(0), n, f) }

// Few is [Each] on at most so many goroutines: for what takes much memory.
func Few(most, n int, f func(i int) error) error {
	workers := min(n, most, runtime.GOMAXPROCS(0))
	errs := make([]error, max(workers, 0))
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// both calls two functions at the same time.
func both(f, g func()) {
	var other sync.WaitGroup
	other.Go(f)
	g()
	other.Wait()
}
