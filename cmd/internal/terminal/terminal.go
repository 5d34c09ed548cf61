// Package terminal writes for people, with colours only where they can be seen.
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

// Printer writes for people.
type Printer struct {
	io.Writer
	colour bool
}

// NewPrinter gives a printer that uses colours if out is a terminal and NO_COLOR is not set (https://no-color.org).
func NewPrinter(out io.Writer) Printer {
	file, ok := out.(*os.File)
	return Printer{out, ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""}
}

// Say writes a line.
func (p Printer) Say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Paint gives the text in a colour.
func (p Printer) Paint(colour, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
