package soak

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/env/install"
)

const (
	// body is the largest that is read.
	body = 7 << 20
	// connections is how many forgers there are.
	connections = 50
)

func review(resource, kind, operation, object string) string {
	return fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "forged", "operation": %q,
"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": %[3]q}, "resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": %[2]q},
"name": "x", "namespace": "default", "userInfo": {"username": "system:admin", "groups": ["system:masters"]}, "object": %[4]s, "oldObject": %[4]s}}`, operation, resource, kind, object)
}

// machine is one with something in a field of it.
func machine(field, value string) string {
	return review("virtualmachines", "VirtualMachine", "UPDATE", fmt.Sprintf(
		`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "x", "namespace": "default", "uid": "u"}, "spec": {"runtime": {"kubevirt": {}}, %q: %s}}`, field, value))
}

// forgery is a way to spend what others need.
type forgery struct {
	name string
	// path of the webhook; empty means /validate.
	path string
	body func() string
	// slowly sends a byte a moment, never sends no more than the half.
	slowly, never bool
}

var forgeries = []forgery{
	{name: "a long number", body: func() string { return machine("cpu", strings.Repeat("9", 3_200_000)) }},
	{name: "a large exponent", body: func() string { return machine("cpu", "1e1000000") }},
	{name: "deep lists", body: func() string { return machine("cpu", strings.Repeat("[", 1_000_000)+strings.Repeat("]", 1_000_000)) }},
	{name: "many objects", body: func() string { return machine("more", "["+strings.Repeat("{},", body/6-200)+"{}]") }},
	{name: "as many objects as may be", body: func() string { return machine("memory", "["+strings.Repeat("{},", 110_000)+"{}]") }},
	{name: "as many that are usual", body: func() string { return machine("memory", "["+strings.Repeat("0,", 14_000)+"0]") }},
	{name: "a long text", body: func() string { return machine("runPolicy", `"`+strings.Repeat("x", 3_300_000)+`"`) }},
	{name: "a long text, to be changed", path: "/mutate", body: func() string { return machine("runPolicy", `"`+strings.Repeat("x", 3_300_000)+`"`) }},
	{name: "too much", body: func() string { return strings.Repeat(" ", 2*body) }},
	{name: "not JSON", body: func() string { return strings.Repeat("x", 100_000) }},
	{name: "a policy nobody has", path: "/validate/policies/x", body: func() string { return machine("cpu", "2") }},
	{name: "operations that are in order", body: func() string {
		return review("virtualmachineoperations", "VirtualMachineOperation", "CREATE", `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation",
"metadata": {"name": "x", "namespace": "default"}, "spec": {"type": "Start", "virtualMachineName": "x"}}`)
	}},
	{name: "a body that never comes", never: true, body: func() string { return strings.Repeat(" ", 1000) }},
	{name: "a large body that never comes", never: true, body: func() string { return strings.Repeat(" ", body) }},
	{name: "a slow body", slowly: true, body: func() string { return strings.Repeat(" ", body) }},
}

// forger sends forgeries to a replica until the context ends, in one connection after the other.
type forger struct {
	address string
	sent    *[16]atomic.Int64 // by forgery
}

func (f *forger) run(ctx context.Context, first int) {
	for i := first; ctx.Err() == nil; i++ {
		which := i % len(forgeries)
		if f.send(ctx, &forgeries[which]) == nil {
			f.sent[which].Add(1)
		}
	}
}

func (f *forger) send(ctx context.Context, what *forgery) error {
	path := what.path
	if path == "" {
		path = "/validate"
	}
	text := what.body()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", f.address) //nolint:gosec // a forger trusts anybody
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if what.never || what.slowly {
		return f.dawdle(conn, path, text, what.slowly)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://sallyport"+path+"?timeout=30s", strings.NewReader(text))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	for range 3 { // a connection is good for more than one
		request = request.Clone(ctx)
		request.Body = io.NopCloser(strings.NewReader(text))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	return nil
}

// dawdle sends the half of a body, at once or slowly, and waits for what becomes of it.
func (f *forger) dawdle(conn net.Conn, path, text string, slowly bool) error {
	if _, err := fmt.Fprintf(conn, "POST %s?timeout=30s HTTP/1.1\r\nHost: sallyport\r\nContent-Length: %d\r\n\r\n", path, len(text)); err != nil {
		return err
	}
	if !slowly {
		_, _ = io.WriteString(conn, text[:len(text)/2])
		_, _ = io.Copy(io.Discard, conn)
		return nil
	}
	for i := 0; i+1000 < len(text); i += 1000 {
		if _, err := io.WriteString(conn, text[i:i+1000]); err != nil {
			return nil //nolint:nilerr // it was hung up on, as it should
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// Whatever is sent in 50 connections, no honest request is refused or late, and no replica outgrows its limit.
func TestForgersBesideHonestRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	p := sharedPair(t)
	c, err := install.Client(p.plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	honest := &tally{n: map[string]int{}, slow: map[string]time.Duration{}, failed: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), duration(t))
	defer cancel()
	var all sync.WaitGroup
	var sent [16]atomic.Int64
	for i := range connections {
		all.Go(func() { (&forger{p.replicas[i%2].Webhooks(), &sent}).run(ctx, i) })
	}
	for range 2 {
		all.Go(func() { honest.throughAPIServer(ctx, c) })
	}
	had := p.watchMemory(t)
	for _, m := range p.replicas {
		all.Go(func() { honest.direct(ctx, m.Webhooks()) })
	}
	all.Wait()
	p.limitReplicas(t, had())
	for what, n := range honest.n {
		t.Logf("%s: %d, the slowest took %v", what, n, honest.slow[what])
	}
	for what, n := range honest.failed {
		t.Errorf("%d times %s", n, what)
	}
	if len(honest.n) != 3 {
		t.Errorf("only %v were asked", honest.n)
	}
	for i := range forgeries {
		t.Logf("%s: sent %d times", forgeries[i].name, sent[i].Load())
	}
}
