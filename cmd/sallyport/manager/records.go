package manager

import (
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
	file, err := os.OpenFile(o.Records, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening --decision-records: %w", err)
	}
	return file, file.Close, nil
}
