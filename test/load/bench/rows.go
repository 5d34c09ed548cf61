package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// request is a row in terms of what is asked: the same in process and over TLS.
type request struct {
	path    string
	bodies  [][]byte
	allowed bool
}

// Names of rows, for orders to a subject, and the paths at which it serves them.
const (
	rowUnit     = "unit"
	rowOne      = "one"
	rowTwo      = "two"
	rowRecorded = "recorded"
	rowDenied   = "denied"
)

var requests = map[string]request{
	rowUnit:     {"/" + rowUnit, bodies(1, idle), true},
	rowOne:      {"/" + rowOne, bodies(machines, idle), true},
	rowTwo:      {"/" + rowTwo, bodies(machines, idle), true},
	rowRecorded: {"/" + rowRecorded, bodies(machines, idle), true},
	rowDenied:   {"/" + rowDenied, bodies(machines, busy), false},
}

var isAllowed, isDenied = []byte(`"allowed":true`), []byte(`"allowed":false`)

// check tells whether a reply says what the row is to say.
func (r request) check(code int, reply []byte) error {
	want := isDenied
	if r.allowed {
		want = isAllowed
	}
	if code != http.StatusOK || !bytes.Contains(reply, want) {
		return fmt.Errorf("wanted %s, got HTTP %d %s", want, code, reply)
	}
	return nil
}

// body returns the body of the i-th request.
func (r request) body(i int) []byte { return r.bodies[i%len(r.bodies)] }

// rows are what a subject can do in process.
func (w *world) rows() (map[string]func(n int) error, error) {
	rows, err := w.others()
	if err != nil {
		return nil, err
	}
	for name, r := range requests {
		next := 0
		rows[name] = func(n int) error {
			for range n {
				next++
				if err := r.inProcess(w.handlers[r.path], r.body(next)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return rows, nil
}

func (r request) inProcess(h http.Handler, body []byte) error {
	asked, err := http.NewRequest(http.MethodPost, r.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	asked.Header.Set("Content-Type", "application/json")
	got := reply{header: http.Header{}, code: http.StatusOK}
	h.ServeHTTP(&got, asked)
	return r.check(got.code, got.Bytes())
}

// reply is a response writer.
type reply struct {
	bytes.Buffer
	header http.Header
	code   int
}

// Header of the response.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader keeps the code.
func (r *reply) WriteHeader(code int) { r.code = code }

// overTLS asks once, as the API server does.
func (r request) overTLS(c *http.Client, url string, body []byte) error {
	response, err := c.Post(url+r.path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return r.check(response.StatusCode, text)
}
