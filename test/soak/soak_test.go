package soak

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
)

const (
	// connections is how many forgers there are.
	connections = 50
	// deadline is how long the API server waits, by the chart's webhook.timeoutSeconds.
	deadline = 5 * time.Second
)

// duration is seconds in CI; SALLYPORT_SOAK=10m is for by hand.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SALLYPORT_SOAK")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pair are two replicas behind one Service.
type pair struct {
	plane    *env.ControlPlane
	replicas []*install.Manager
}

func newPair(t *testing.T, flags map[string]string, more ...string) *pair {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: left out with -short")
	}
	ctrl.SetLogger(logr.Discard())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	logs, p := &install.Log{}, &pair{}
	binary, err := install.Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/sallyport")
	must(err)
	t.Setenv("GOGC", "100") // as in a cluster: programs of tests collect garbage more seldom
	p.plane, err = env.Start(context.WithoutCancel(t.Context()), env.Options{APIServerFlags: flags})
	must(err)
	sallyport, err := install.Prepare(t.Context(), p.plane)
	must(err)
	var closers []func() error
	t.Cleanup(func() {
		for _, end := range append(closers, sallyport.Remove, p.plane.Stop) {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("the end of what the managers logged:\n%s", install.Tail(logs.String(), 40))
		}
	})
	options := install.Options{Binary: binary, Flags: more, Records: io.Discard, Logs: io.Discard}
	if os.Getenv("SALLYPORT_SOAK_LOGS") != "" || len(more) > 0 {
		options.Logs = logs
	}
	var backends []install.Backend
	for i, name := range []string{"sallyport-a", "sallyport-b"} {
		m, err := sallyport.Manager(options, name, install.Ports{Webhook: 9444 + i, Metrics: 8082 + i, Health: 8092 + i})
		must(err)
		closers = append(closers, m.Stop)
		must(m.AwaitReady(t.Context()))
		p.replicas, backends = append(p.replicas, m), append(backends, m.Backend())
	}
	balancer, err := install.NewBalancer(net.JoinHostPort(sallyport.Address, strconv.Itoa(install.Port)), backends...)
	must(err)
	closers = append([]func() error{balancer.Close}, closers...)
	must(sallyport.AwaitJudgement(t.Context()))
	return p
}

// tally is of honest requests.
type tally struct {
	mu     sync.Mutex
	n      map[string]int
	slow   map[string]time.Duration
	failed map[string]int
}

func (a *tally) add(what string, took time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[what]++
	a.slow[what] = max(a.slow[what], took)
	if err == nil && took > deadline {
		err = fmt.Errorf("answered after the deadline")
	}
	if err != nil {
		a.failed[what+": "+err.Error()]++
	}
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sallyport.dev/v1alpha1", "kind": kind, "spec": spec, "metadata": map[string]any{"name": "honest", "namespace": "default"},
	}}
}

func honestMachine() *unstructured.Unstructured {
	return object("VirtualMachine", map[string]any{"runtime": map[string]any{"kubevirt": map[string]any{}}})
}

// throughAPIServer makes requests that both webhooks are asked about: one that is admitted, and one that is refused.
func (a *tally) throughAPIServer(ctx context.Context, c client.Client) {
	for ctx.Err() == nil {
		began := time.Now()
		err := c.Create(ctx, honestMachine(), client.DryRunAll)
		if ctx.Err() != nil {
			return
		}
		a.add("a machine that is admitted", time.Since(began)/2, err) // there are two webhooks
		began = time.Now()
		err = c.Create(ctx, object("VirtualMachineOperation", map[string]any{"type": "Start", "virtualMachineName": "nobody"}), client.DryRunAll)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			err = errors.New("it was admitted")
		case strings.Contains(err.Error(), "VirtualMachineNotFound"):
			err = nil
		}
		a.add("an operation that is refused", time.Since(began)/2, err)
	}
}

// direct sends reviews as the API server does.
func (a *tally) direct(ctx context.Context, address string) {
	review, err := install.Creation(honestMachine(), "ann")
	if err != nil {
		a.add("direct", 0, err)
		return
	}
	text, err := json.Marshal(review)
	if err != nil {
		a.add("direct", 0, err)
		return
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // whether it is trusted is tested elsewhere
	for ctx.Err() == nil {
		began := time.Now()
		err := func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/validate?timeout=5s", bytes.NewReader(text))
			if err != nil {
				return err
			}
			response, err := c.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			var answer admissionv1.AdmissionReview
			if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
				return fmt.Errorf("%s: %w", response.Status, err)
			}
			if !answer.Response.Allowed {
				return errors.New(answer.Response.Result.Message)
			}
			return nil
		}()
		if ctx.Err() != nil {
			return
		}
		a.add("direct", time.Since(began), err)
	}
}

// Whatever is sent in 50 connections, no honest request is refused or late, and no replica outgrows its limit.
func TestForgersBesideHonestRequests(t *testing.T) {
	depth.Only(t)
	p := newPair(t, nil)
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
