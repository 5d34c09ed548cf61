// Package audit reads the audit log of an API server, of which tests learn who has asked for what.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Events returns the events of a log in their order, without one that is still being written.
func Events(log string) (all []auditv1.Event, err error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("decoding a line of the audit log: %w: %.200s", err, line)
		}
		all = append(all, e)
	}
}
