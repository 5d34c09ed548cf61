package install

import (
	"bytes"
	"strings"
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

// Tail gives the last lines of what managers have logged, without what is logged of each probe.
func Tail(text string, most int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "healthz check failed") && !strings.Contains(line, "TLS handshake error") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
