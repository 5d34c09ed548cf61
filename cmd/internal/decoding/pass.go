package decoding

import (
	"bufio"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/watch"
)

// bufferSize is how many bytes of a response are read and passed on at once.
const bufferSize = 32 << 10

func newScanner(from io.Reader) *scanner {
	return &scanner{from: bufio.NewReaderSize(from, bufferSize)}
}

type passing struct {
	Filter
	*scanner
	to io.Writer
}

// response filters an object or a list.
func (p *passing) response() error {
	if first, err := p.peek(); err != nil || first != '{' {
		_, err := io.Copy(p.to, p.from)
		return err
	}
	whole := copier{scanner: p.scanner, shorten: p.ShortenAnnotations} // the client of a single object may want its managedFields
	var o object
	list := false
	out, err := p.object(nil, func(out []byte, name string) (_ []byte, keep bool, err error) {
		if first, err := p.peek(); err != nil || name != "items" || first != '[' {
			return whole.member(out, name, 0, &o)
		}
		list = true
		out, err = p.items(out)
		return out, true, err
	})
	if err == nil && !list {
		out, err = p.judged(&o, out, false)
	}
	if undecodable := new(Error); errors.As(err, &undecodable) {
		out, err = undecodable.status(), nil
	}
	if err != nil {
		return err
	}
	if _, err := p.to.Write(out); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, p.from) // so that the connection can be used again
	return err
}

// items filters the items of a list.
func (p *passing) items(out []byte) ([]byte, error) {
	each := copier{p.scanner, p.DropManagedFields, p.ShortenAnnotations}
	out, err := append(out, '['), p.expect('[')
	for first := true; err == nil; {
		var c byte
		if c, err = p.within(); err != nil || c == ',' {
			continue
		}
		if c == ']' {
			return append(out, ']'), nil
		}
		if err = p.from.UnreadByte(); err != nil {
			break
		}
		before := len(out)
		if !first {
			out = append(out, ',')
		}
		at := len(out)
		if c != '{' { // the item is not an object, so the response is not a list of objects
			out, _, err = p.value(out, maxDepth)
			first = false
			continue
		}
		var o object
		if out, o, err = each.object(out); err != nil {
			break
		}
		var text []byte
		if text, err = p.judged(&o, out[at:], true); text == nil {
			out = out[:before]
		} else {
			out, first = append(out[:at], text...), false
		}
		if err == nil && len(out) >= bufferSize && p.Left != nil { // otherwise the whole response can still become an error
			_, err = p.to.Write(out)
			out = out[:0]
		}
	}
	return out, err
}

// events filters the events of a watch, and passes each on at once.
func (p *passing) events() error {
	each := copier{p.scanner, p.DropManagedFields, p.ShortenAnnotations}
	for out := []byte(nil); ; {
		switch _, err := p.next(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		err := p.from.UnreadByte()
		if err != nil {
			return err
		}
		var kind string
		var o object
		var from, to int
		out, err = p.object(out[:0], func(out []byte, name string) (_ []byte, keep bool, err error) {
			at := len(out)
			if name == "object" {
				out, o, err = each.object(out)
				from, to = at, len(out)
				return out, true, err
			}
			out, _, err = p.value(out, maxDepth)
			if name == "type" {
				kind = textOf(out[at:])
			}
			return out, true, err
		})
		if err == nil {
			out, err = p.event(watch.EventType(kind), &o, out, from, to)
		}
		if err != nil {
			return err
		}
		if len(out) == 0 {
			continue
		}
		if _, err := p.to.Write(append(out, '\n')); err != nil {
			return err
		}
	}
}

// event returns the event to pass on, which is empty if there is none. For an object that no longer decodes it is a deletion.
func (p *passing) event(kind watch.EventType, o *object, out []byte, from, to int) ([]byte, error) {
	if kind != watch.Added && kind != watch.Modified && kind != watch.Deleted {
		return out, nil
	}
	text, err := p.judged(o, out[from:to], p.Watches)
	if kind == watch.Deleted && p.Fine != nil {
		p.Fine(o.uid)
	}
	undecodable := new(Error)
	switch {
	case errors.As(err, &undecodable):
		kind, text = watch.Error, undecodable.status()
	case err != nil:
		return nil, err
	case text == nil && kind == watch.Added:
		return nil, nil
	case text == nil:
		kind, text = watch.Deleted, o.bare(out[from:to])
	case len(text) == to-from:
		return out, nil
	}
	return append(append([]byte(`{"type":"`+string(kind)+`","object":`), text...), '}'), nil
}

// judged returns the text of an object to pass on, nil if the object is left out. If leave is false, the object is not left out but an error.
func (p *passing) judged(o *object, text []byte, leave bool) ([]byte, error) {
	if p.Scheme == nil {
		return text, nil
	}
	e := decodes(p.Scheme, o, text, p.numbers)
	if e == nil {
		if p.Fine != nil {
			p.Fine(o.uid)
		}
		return text, nil
	}
	reduces := p.Reduce != nil && p.Reduce(o.kind)
	if !reduces && (p.Left == nil || !leave) {
		return nil, e
	}
	if p.Left != nil {
		p.Left(e)
	}
	if reduces {
		if less := without(text, "status"); decodes(p.Scheme, o, less, p.numbers) == nil {
			return less, nil
		}
		return o.bare(text), nil
	}
	return nil, nil
}
