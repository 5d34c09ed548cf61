package manager

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// openRecords returns the writer of decision records, nil if they are off, and a function that closes it.
func (o *Options) openRecords() (to io.Writer, end func() error, err error) {
	none := func() error { return nil }
	switch o.Records {
	case "off":
		return nil, none, nil
	case "stdout":
		return os.Stdout, none, nil
	}
	file := &recordFile{name: o.Records}
	if err := file.open(); err != nil {
		return nil, nil, fmt.Errorf("opening --decision-records: %w", err)
	}
	return file, func() error { return file.Close() }, nil
}

// recordFile appends lines to the file of a name. If that was rotated, so that the name has another file or none, it opens the new one.
// A line begins after the end of a line, even if a write before was not complete.
type recordFile struct {
	*os.File
	name string
	half bool // the file ends within a line
}

// Write appends one line.
func (f *recordFile) Write(line []byte) (int, error) {
	if !f.current() {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.half {
		if _, err := f.WriteString("\n"); err != nil {
			return 0, err
		}
		f.half = false
	}
	n, err := f.File.Write(line)
	f.half = 0 < n && n < len(line)
	return n, err
}

func (f *recordFile) current() bool {
	named, err := os.Stat(f.name)
	if err != nil {
		return false
	}
	is, err := f.Stat()
	return err == nil && os.SameFile(named, is)
}

func (f *recordFile) open() error {
	file, err := os.OpenFile(f.name, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrPermission) { // of a file that may only be written, its end is unknown
		file, err = os.OpenFile(f.name, os.O_APPEND|os.O_WRONLY, 0)
	}
	if err != nil {
		return err
	}
	if f.File != nil {
		_ = f.Close() // what was written to it is not buffered
	}
	f.File, f.half = file, endsWithinLine(file)
	return nil
}

func endsWithinLine(file *os.File) bool {
	is, err := file.Stat()
	if err != nil || !is.Mode().IsRegular() || is.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err = file.ReadAt(last, is.Size()-1)
	return err == nil && last[0] != '\n'
}
