package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Safe returns a writer that escapes untrusted text, such as names, messages and reasons, for a terminal. Control characters and
// characters that change the reading direction are written as in \u001b, which has the same meaning in JSON. Line breaks and tabs stay.
func Safe(out io.Writer) io.Writer {
	if s, is := out.(*safe); is {
		return s
	}
	return &safe{to: out}
}

// Line escapes line breaks, so that untrusted text cannot imitate a line of output.
func Line(text string) string { return strings.ReplaceAll(text, "\n", `\u000a`) }

// safe is the writer of Safe. It is safe for concurrent use if every caller writes whole lines. It passes the colours of a Printer and no
// other escape sequence.
type safe struct {
	mu     sync.Mutex
	to     io.Writer
	colour bool
	rest   []byte // the beginning of a character that the next write goes on with
}

// Write writes the text, except for an incomplete character at its end, which the next write completes.
func (s *safe) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, shown := slices.Concat(s.rest, text), make([]byte, 0, len(s.rest)+len(text))
	for s.rest = nil; len(all) > 0; {
		if n := s.painted(all); n > 0 {
			shown, all = append(shown, all[:n]...), all[n:]
			continue
		}
		if !utf8.FullRune(all) {
			s.rest = slices.Clone(all)
			break
		}
		r, n := utf8.DecodeRune(all)
		if commands(r) {
			shown = fmt.Appendf(shown, `\u%04x`, r)
		} else {
			shown = utf8.AppendRune(shown, r)
		}
		all = all[n:]
	}
	if _, err := s.to.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// painted returns the length of the colour sequence of a Printer that the text begins with.
func (s *safe) painted(text []byte) int {
	if s.colour {
		for _, colour := range []string{Bold, Red, Green, Cyan, plain} {
			if sequence := paint(colour); len(text) >= len(sequence) && string(text[:len(sequence)]) == sequence {
				return len(sequence)
			}
		}
	}
	return 0
}

// commands reports whether a character controls the terminal instead of being displayed.
func commands(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
