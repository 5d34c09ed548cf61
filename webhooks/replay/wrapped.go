package replay

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// recordWord is in every line with a record, even if the record is quoted.
var recordWord = []byte("decisionRecord")

// docker is the prefix of lines of Docker's driver json-file: each has a line of the program, or a part of one.
var docker = []byte(`{"log":"`)

// mostStreams limits the streams of a log. Docker has stdout and stderr.
const mostStreams = 16

// parts are the incomplete lines by stream. Together they are no longer than one line may be.
type parts map[string][]byte

// join replaces a line of Docker by the program's line, and reports whether that is complete. Other lines are complete.
func (p parts) join(l *line) bool {
	if l.err != nil || !bytes.HasPrefix(l.text, docker) {
		return true
	}
	var wrapped struct{ Log, Stream string }
	if json.Unmarshal(l.text, &wrapped) != nil {
		return true
	}
	p[wrapped.Stream] = append(p[wrapped.Stream], wrapped.Log...)
	text, held := p[wrapped.Stream], 0
	for _, begun := range p {
		held += len(begun)
	}
	if held > l.most || len(p) > mostStreams {
		clear(p)
		l.text, l.err = nil, errTooLong
		return true
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		return false
	}
	delete(p, wrapped.Stream)
	l.text, l.whole = bytes.TrimSuffix(text, []byte("\n")), true
	return true
}

// mostWraps limits how many collectors may have wrapped a record in lines of their own.
const mostWraps = 4

// unwrapped returns the record in a line of JSON: the value of one of its fields, or a string that begins with the record. A string
// that only quotes a record is none. A line without a record is returned unchanged.
func unwrapped(text []byte) []byte {
	if found := unwrap(text, mostWraps); found != nil {
		return found
	}
	return text
}

func unwrap(text []byte, most int) []byte {
	if bytes.HasPrefix(text, []byte(`{"decisionRecord"`)) {
		return text
	}
	var fields map[string]json.RawMessage
	if most < 0 || json.Unmarshal(text, &fields) != nil || fields[string(recordWord)] != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := []byte(fields[name])
		var quoted string
		if json.Unmarshal(value, &quoted) == nil {
			value = bytes.TrimSpace([]byte(quoted))
		}
		if bytes.HasPrefix(value, []byte("{")) && bytes.Contains(value, recordWord) {
			if found := unwrap(value, most-1); found != nil {
				return found
			}
		}
	}
	return nil
}
