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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// deadline is how long the API server waits, by the chart's webhook.timeoutSeconds.
const deadline = 5 * time.Second

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

// pair are replicas behind one Service.
type pair struct {
	plane    *env.ControlPlane
	replicas []*install.Manager
	logs     install.Log
	closers  []func() error // called in reverse order
}

// shared are two replicas for all tests.
var shared struct {
	sync.Once
	*pair
	err error
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if shared.pair != nil {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func sharedPair(t *testing.T) *pair {
	t.Helper()
	shared.Do(func() { shared.pair, shared.err = newPair(context.Background()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() { shared.tell(t) })
	return shared.pair
}

// newPair starts an API server and two replicas. On an error, close ends what was started.
func newPair(ctx context.Context) (p *pair, err error) {
	p = &pair{}
	dir, err := os.MkdirTemp("", "sallyport-soak-")
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, func() error { return os.RemoveAll(dir) })
	binary, err := install.Build(ctx, dir, "sallyport.dev/sallyport/cmd/sallyport")
	if err != nil {
		return p, err
	}
	// As in a cluster: programs of tests collect garbage more seldom.
	if err := os.Setenv("GOGC", "100"); err != nil {
		return p, err
	}
	if p.plane, err = env.Start(ctx, env.Options{}); err != nil {
		return p, err
	}
	p.closers = append(p.closers, p.plane.Stop)
	sallyport, err := install.Prepare(ctx, p.plane)
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, sallyport.Remove)
	options := install.Options{Binary: binary, Flags: []string{"--poll-interval=200ms"}, Records: io.Discard, Logs: io.Discard}
	if os.Getenv("SALLYPORT_SOAK_LOGS") != "" {
		options.Logs = &p.logs
	}
	var backends []install.Backend
	for i := range 2 {
		m, err := sallyport.Manager(options, fmt.Sprint("sallyport-", i), install.Ports{Webhook: 9444 + i, Metrics: 8082 + i, Health: 8092 + i})
		if err != nil {
			return p, err
		}
		p.replicas, backends, p.closers = append(p.replicas, m), append(backends, m.Backend()), append(p.closers, m.Stop)
		if err := m.AwaitReady(ctx); err != nil {
			return p, err
		}
	}
	balancer, err := install.NewBalancer(net.JoinHostPort(sallyport.Address, strconv.Itoa(install.Port)), backends...)
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, balancer.Close)
	return p, sallyport.AwaitJudgement(ctx)
}

// close ends everything.
func (p *pair) close() error {
	var errs []error
	for _, end := range slices.Backward(p.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// tell logs the end of what the managers logged, if the test fails.
func (p *pair) tell(t *testing.T) {
	if t.Failed() {
		t.Logf("the end of what the managers logged:\n%s", install.Tail(p.logs.String(), 40))
	}
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
	return object("VirtualMachine", map[string]any{"runtime": map[string]any{"pod": map[string]any{"image": "example.com/guest:1"}}})
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
