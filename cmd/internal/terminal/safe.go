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

// Safe gives a writer for people's eyes to which text of anybody's may be written: names, messages, reasons. What would command
// the terminal, or turn the order of what is read, is written as \u001b, which in JSON is the same text. Lines and tabs stay.
func Safe(out io.Writer) io.Writer {
	if s, is := out.(*safe); is {
		return s
	}
	return &safe{to: out}
}

// Line gives a text as one line, for where what follows a line break would be taken for something of ours.
func Line(text string) string { return strings.ReplaceAll(text, "\n", `\u000a`) }

// safe is such a writer, of several at a time too, each of whom writes whole lines. It lets through the colours of a Printer that has some,
// and no other sequence.
type safe struct {
	mu     sync.Mutex
	to     io.Writer
	colour bool
	rest   []byte // the beginning of a character that the next write goes on with
}

// Write writes all of the text, but for a character that is not whole yet.
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

// painted gives the length of a colour of ours that the text begins with.
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

// commands tells whether a character does something else than to be seen. That a character cannot be decoded is seen.
func commands(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
