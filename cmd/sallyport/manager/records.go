package manager

import (
	"fmt"
	"io"
	"os"
)

// recordsFile is where decision records go.
type recordsFile struct{ file *os.File }

func (o *Options) openRecords() (recordsFile, error) {
	switch o.Records {
	case "off":
		return recordsFile{}, nil
	case "stdout":
		return recordsFile{os.Stdout}, nil
	}
	file, err := os.OpenFile(o.Records, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return recordsFile{}, fmt.Errorf("opening --decision-records: %w", err)
	}
	return recordsFile{file}, nil
}

func (r recordsFile) writer() io.Writer {
	if r.file == nil {
		return nil
	}
	return r.file
}

// Close closes a file that was opened for records.
func (r recordsFile) Close() {
	if r.file != nil && r.file != os.Stdout {
		r.file.Close()
	}
}
