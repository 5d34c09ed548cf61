package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sallyport.dev/sallyport/webhooks/record"
)

// Input is a source of records, one a line, among other lines, plain or compressed by gzip.
type Input struct {
	// Name is the name in messages.
	Name string
	Open func() (io.ReadCloser, error)
	// Longest limits the bytes of a line; 0 means [DefaultLongest].
	Longest int
}

// DefaultLongest is the default limit of a line in bytes. Requests and facts of more than 256 KiB are not recorded.
const DefaultLongest = 16 << 20

// mostValues limits the values of a record: twice the limit for a recorded request, and for long lines one for each 64 bytes. A
// value takes more than a kilobyte while it is decoded and evaluated.
func mostValues(longest int) int { return max(64_000, longest/64) }

var (
	errTooLong = errors.New("the line is too long")
	errCut     = errors.New("the record is cut off: the input ends in it")
)

func (in *Input) longest() int { return cmp.Or(in.Longest, DefaultLongest) }

// values returns an upper limit of the number of values and member names in a text.
func values(text []byte) (n int) {
	for _, mark := range []string{",", "[", "{", ":"} {
		n += bytes.Count(text, []byte(mark))
	}
	return n
}

// line is one line of an input, or an error.
type line struct {
	number int
	text   []byte
	whole  bool // it ends with a newline
	most   int  // limit of the input's lines, in bytes
	err    error
}

// lines returns the lines of an input. A line that cannot be read is the last one.
func (in *Input) lines(yield func(line) bool) {
	number, more := 0, true
	begun := parts{}
	err := in.read(func(l line) bool {
		number++
		l.number, l.most = number, in.longest()
		if begun.join(&l) {
			if errors.Is(l.err, errTooLong) {
				l.err = fmt.Errorf("%w: more than %d bytes; to read longer lines, use --max-line-bytes", errTooLong, l.most)
			}
			more = yield(l)
		}
		return more
	})
	if err != nil {
		yield(line{number: number + 1, err: err})
		return
	}
	for _, text := range begun {
		if more = more && yield(line{number: number, text: text, most: in.longest()}); !more {
			return
		}
	}
}

func (in *Input) read(yield func(line) bool) error {
	file, err := in.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	if magic, _ := reader.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(reader)
		if err != nil {
			return err
		}
		reader = bufio.NewReaderSize(unzipped, 1<<20)
	}
	for more := true; more; {
		var l line
		l.text, l.whole, err = nextLine(reader, in.longest())
		switch {
		case errors.Is(err, errTooLong):
			l.err = err
		case errors.Is(err, io.EOF):
			_ = len(l.text) > 0 && yield(l)
			return nil
		case err != nil:
			return err
		}
		more = yield(l)
	}
	return nil
}

// nextLine returns a line without its newline. A line that is longer than most is skipped.
func nextLine(reader *bufio.Reader, most int) (text []byte, whole bool, err error) {
	tooLong := false
	for {
		part, err := reader.ReadSlice('\n')
		if tooLong = tooLong || len(text)+len(part) > most; tooLong {
			text = nil
		} else {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil && tooLong, errors.Is(err, io.EOF) && tooLong:
			return nil, err == nil, errTooLong
		case err == nil:
			return bytes.TrimSuffix(text, []byte("\n")), true, nil
		default:
			return text, false, err
		}
	}
}

// recordMarker is in every record, and in no other line.
var recordMarker = []byte(`"decisionRecord":`)

// recorded decodes the record of a line; nil if it has none. A prefix, such as that of kubectl logs --prefix, is skipped.
func (l *line) recorded() (*record.Record, error) {
	start := bytes.IndexByte(l.text, '{')
	if l.err != nil || start < 0 || !bytes.Contains(l.text, recordWord) {
		return nil, l.err
	}
	text := unwrapped(l.text[start:])
	if !bytes.Contains(text, recordMarker) {
		return nil, nil
	}
	if most := mostValues(l.most); values(text) > most {
		return nil, fmt.Errorf("the record has more than %d values; to read it, increase --max-line-bytes", most)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // keeps numbers exact
	recorded := &record.Record{}
	switch err := decoder.Decode(recorded); {
	case errors.Is(err, io.ErrUnexpectedEOF) && !l.whole:
		return nil, errCut
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the record is cut off: the line ends in it")
	case err != nil:
		return nil, fmt.Errorf("the record cannot be read: %w", err)
	case recorded.Version == 0:
		return nil, nil
	case recorded.Version != record.Version:
		return nil, fmt.Errorf("the record has version %d, but this program supports version %d; replay it with the release that wrote it",
			recorded.Version, record.Version)
	}
	if rest := bytes.TrimSpace(text[decoder.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("unexpected data after the record: %.40q", rest)
	}
	return recorded, nil
}
