package decoding

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// maxDepth is how deeply the values of an object can be nested, as in a review (webhooks/engine). JSON libraries stop at 10,000 levels: the
	// API server stores an object with that many, and a list with the object has two more.
	maxDepth = 200
	// maxSize is the size limit of one object, in bytes. The API server stores 1.5 MiB, and writes some characters as six bytes.
	maxSize = 64 << 20
	// longNumber is how many characters a quantity may have, and longExponent how many digits its exponent. Go's decoder does not return
	// in time for longer ones.
	longNumber, longExponent = 256, 4
)

// scanner copies JSON without spaces. It matches brackets and finds the ends of strings. The decoder that reads the copy validates the rest.
type scanner struct {
	from *bufio.Reader
	// numbers is set if a string of the object may be a number that takes long to decode.
	numbers bool
	scratch []byte
}

// next reads the first byte that is not a space.
func (s *scanner) next() (byte, error) {
	for {
		switch c, err := s.from.ReadByte(); {
		case err != nil:
			return 0, err
		case c != ' ' && c != '\n' && c != '\r' && c != '\t':
			return c, nil
		}
	}
}

// within reads the next byte inside a value, where the end of the text is an error.
func (s *scanner) within() (byte, error) {
	c, err := s.next()
	return c, inside(err)
}

func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// peek returns the first byte of the next value without consuming it.
func (s *scanner) peek() (byte, error) {
	c, err := s.within()
	if err != nil {
		return 0, err
	}
	return c, s.from.UnreadByte()
}

// text appends a string whose opening quote has been read.
func (s *scanner) text(out []byte) ([]byte, error) {
	out = append(out, '"')
	for start := len(out); len(out) <= maxSize; {
		part, err := s.from.ReadSlice('"')
		out = append(out, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return out, inside(err)
		}
		text := out[start : len(out)-1]
		if escapes := len(text) - len(bytes.TrimRight(text, `\`)); escapes%2 == 0 {
			s.numbers = s.numbers || isLongNumber(text)
			return out, nil
		}
	}
	return out, errTooLarge
}

var (
	errSyntax   = errors.New("the answer of the API server is not the JSON of objects")
	errTooLarge = fmt.Errorf("the API server sent an object of more than %d MiB", maxSize>>20)
)

// isLongNumber reports whether a string may be a number that takes long to decode.
func isLongNumber(text []byte) bool {
	if len(text) == 0 || !bytes.ContainsRune([]byte("+-.0123456789"), rune(text[0])) {
		return false
	}
	digits := len(text) - len(bytes.TrimRight(text, "0123456789"))
	before := bytes.TrimRight(text[:len(text)-digits], "+-")
	return len(text) > longNumber || digits > longExponent && bytes.HasSuffix(bytes.ToLower(before), []byte("e"))
}

// value appends the next value. It replaces objects and lists at a depth of more than most with null, and reports that as deep.
func (s *scanner) value(out []byte, most int) (_ []byte, deep bool, err error) {
	for depth := 0; ; {
		c, err := s.within()
		if err != nil {
			return out, deep, err
		}
		switch c {
		case '"':
			out, err = s.text(out)
		case '{', '[':
			if depth == most {
				deep = true
				out, err = append(out, "null"...), s.skip()
				break
			}
			depth++
			out = append(out, c)
		case '}', ']':
			depth--
			out = append(out, c)
		default:
			if out = append(out, c); depth == 0 {
				out, err = s.literal(out)
			}
		}
		switch {
		case err != nil:
			return out, deep, err
		case len(out) > maxSize:
			return out, deep, errTooLarge
		case depth <= 0:
			return out, deep, nil
		}
	}
}

// skip reads the rest of an object or list whose opening bracket has been read.
func (s *scanner) skip() error {
	for depth := 1; depth > 0; {
		c, err := s.within()
		switch c {
		case '"':
			s.scratch, err = s.text(s.scratch[:0])
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// literal appends the rest of a number, true, false or null.
func (s *scanner) literal(out []byte) ([]byte, error) {
	for {
		switch c, err := s.from.ReadByte(); {
		case errors.Is(err, io.EOF): // the whole text is one literal
			return out, nil
		case err != nil:
			return out, err
		case bytes.ContainsRune([]byte(",]} \n\r\t"), rune(c)):
			return out, s.from.UnreadByte()
		default:
			out = append(out, c)
		}
	}
}

// member appends the value of a member of an object. If keep is false, the member is left out.
type member func(out []byte, name string) (_ []byte, keep bool, err error)

// object appends an object. The function appends the value of each member.
func (s *scanner) object(out []byte, value member) ([]byte, error) {
	if err := s.expect('{'); err != nil {
		return out, err
	}
	out = append(out, '{')
	for first := true; ; {
		c, err := s.within()
		if c == ',' {
			c, err = s.within()
		}
		switch {
		case err != nil:
			return out, err
		case c == '}':
			return append(out, '}'), nil
		case c != '"':
			return out, errSyntax
		}
		before := len(out)
		if !first {
			out = append(out, ',')
		}
		at := len(out)
		if out, err = s.text(out); err != nil {
			return out, err
		}
		name := textOf(out[at:])
		if err = s.expect(':'); err != nil {
			return out, err
		}
		var keep bool
		if out, keep, err = value(append(out, ':'), name); err != nil {
			return out, err
		}
		if keep {
			first = false
		} else {
			out = out[:before]
		}
	}
}

// expect reads a bracket or colon.
func (s *scanner) expect(want byte) error {
	c, err := s.within()
	if err == nil && c != want {
		return errSyntax
	}
	return err
}

// textOf returns the string of a JSON literal, empty if the literal is not a string.
func textOf(literal []byte) (text string) {
	if bytes.IndexByte(literal, '\\') < 0 && len(literal) >= 2 && literal[0] == '"' {
		return string(literal[1 : len(literal)-1])
	}
	_ = json.Unmarshal(literal, &text) // fails if the literal is not a string
	return text
}
