package install

import (
	"bytes"
	"sync"
)

// Log collects what processes write, while they write it. The zero value is ready for use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String gives all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
