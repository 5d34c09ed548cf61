// Package terminal prints text for terminals, in colour if the output is a terminal.
package terminal

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Colours of a terminal.
const (
	Bold  = "1"
	Red   = "31"
	Green = "1;32"
	Cyan  = "36"
)

const plain = "0"

func paint(colour string) string { return "\x1b[" + colour + "m" }

// Printer prints text for users. Its output is Safe.
type Printer struct {
	io.Writer
	colour bool
}

// NewPrinter returns a printer. It uses colours if out is a terminal and NO_COLOR is not set (https://no-color.org).
func NewPrinter(out io.Writer) Printer {
	if s, is := out.(*safe); is {
		out = s.to
	}
	file, ok := out.(*os.File)
	colour := ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
	return Printer{&safe{to: out, colour: colour}, colour}
}

// Say prints a line.
func (p Printer) Say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Paint returns the text in a colour.
func (p Printer) Paint(colour, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return paint(colour) + text + paint(plain)
}
