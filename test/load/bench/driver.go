package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// process is what is measured, from outside.
type process struct {
	command *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
}

func launch(command *exec.Cmd) (*process, error) {
	orders, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = os.Stderr
	return &process{command: command, orders: orders, answers: bufio.NewScanner(answers)}, command.Start()
}

func (p *process) line() (string, error) {
	if p.answers.Scan() {
		return p.answers.Text(), nil
	}
	return "", fmt.Errorf("%s has ended: %w", p.command.Path, p.command.Wait())
}

func (p *process) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(p.orders, format+"\n", args...); err != nil {
		return "", err
	}
	return p.line()
}

// order has it do something.
func (p *process) order(format string, args ...any) error {
	answer, err := p.ask(format, args...)
	if err == nil && answer != "ok" {
		err = fmt.Errorf(format+": %s", append(args, answer)...)
	}
	return err
}

// number asks for one.
func (p *process) number(what string) (int64, error) {
	answer, err := p.ask("%s", what)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer, 10, 64)
}

func (p *process) cpu() (time.Duration, error) {
	n, err := p.number("cpu")
	return time.Duration(n), err
}

func (p *process) stop() {
	p.orders.Close()
	_ = p.command.Wait()
}

// sallyport is a subject from outside.
type sallyport struct {
	*process
	api     *apiServer
	address string
	cached  int // memory of its caches, in bytes
	client  *http.Client
}

// startSallyport starts a subject in a world with that many unfinished operations.
func startSallyport(operations int, folder string) (*sallyport, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &sallyport{api: startAPIServer(operations), client: asAPIServer()}
	at, err := json.Marshal(site{APIServer: s.api.URL, Authority: s.api.authority(), Folder: folder})
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), siteVariable+"="+string(at))
	if s.process, err = launch(command); err != nil {
		return nil, err
	}
	hello, err := s.line()
	if err == nil {
		if _, wrong := fmt.Sscanf(hello, "%s %d", &s.address, &s.cached); wrong != nil {
			err = fmt.Errorf("a subject: %s", hello)
		}
	}
	return s, err
}

func (s *sallyport) stop() {
	s.process.stop()
	s.api.CloseClientConnections()
	s.api.Close()
}

// asAPIServer speaks HTTP/1.1 over connections that it keeps, as kube-apiserver speaks to the webhook of a Service.
func asAPIServer() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}, // the certificate was made a moment ago
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 16,
	}}
}

// way is one way to measure a row.
type way struct {
	of   *process
	do   func(n int) error
	n    int             // requests in a batch
	took []time.Duration // CPU time of a request, by round
}

// inProcess calls the handler where it is.
func (s *sallyport) inProcess(row string) *way {
	return &way{of: s.process, do: func(n int) error { return s.order("run %s %d", row, n) }}
}

// overTLS sends requests from here.
func (s *sallyport) overTLS(row string) *way {
	next := 0
	r := requests[row]
	return &way{of: s.process, do: func(n int) error {
		for range n {
			next++
			if err := r.overTLS(s.client, s.address, r.body(next)); err != nil {
				return err
			}
		}
		return nil
	}}
}

// ways are those of all rows.
func ways(rows []*row) (all []*way) {
	for _, r := range rows {
		if all = append(all, r.direct); r.served != nil {
			all = append(all, r.served)
		}
	}
	return all
}

func (w *way) batch(n int) (time.Duration, error) {
	before, err := w.of.cpu()
	if err != nil {
		return 0, err
	}
	if err := w.do(n); err != nil {
		return 0, err
	}
	after, err := w.of.cpu()
	return (after - before) / time.Duration(n), err
}

// measure runs all ways by turns, so that whatever else the machine does falls on all of them. A batch is as many requests as
// take that much CPU time.
func measure(ways []*way, rounds int, batch time.Duration) error {
	for _, w := range ways {
		if _, err := w.batch(3); err != nil { // connections, pools
			return err
		}
		cost, err := w.batch(20)
		if err != nil {
			return err
		}
		w.n, w.took = max(3, int(batch/max(cost, time.Microsecond))), nil
	}
	for round := range rounds {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			cost, err := w.batch(w.n)
			if err != nil {
				return err
			}
			w.took = append(w.took, cost)
		}
	}
	return nil
}
