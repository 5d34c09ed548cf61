package chart

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// The API server that traffic plays learns of changes late, and its clock is behind.
const (
	late   = settle / 2
	behind = 1500 * time.Millisecond
)

// Questions of the load, and what they are answered.
const aMachine, aStart = "a machine", "a Start of no machine"

var judged = install.Answers{aMachine: {install.Admitted}, aStart: {"[operations-"}}

// traffic is requests through both API servers, and handshakes as those of a third one: API servers keep connections, and would seldom see
// another certificate.
type traffic struct {
	s      *certSite
	loads  [2]*install.Load
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex
	handshakes int
	failed     []error
	leaves     map[string]bool
}

func (s *certSite) startTraffic() *traffic {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t := &traffic{s: s, cancel: cancel, leaves: map[string]bool{}}
	var err error
	for i, config := range []*rest.Config{s.Plane.Config, s.second} {
		t.loads[i], err = install.NewLoad(ctx, config,
			install.Question{Name: aMachine, Object: func() *unstructured.Unstructured {
				return object("VirtualMachine", map[string]any{"runtime": map[string]any{"kubevirt": map[string]any{}}})
			}, Changed: func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) > 0 }},
			install.Question{Name: aStart, Object: func() *unstructured.Unstructured {
				return object("VirtualMachineOperation", map[string]any{"type": "Start", "virtualMachineName": "none"})
			}})
		s.Must(err)
	}
	watched, err := install.Watched(ctx, s.Plane.Config, "")
	s.Must(err)
	t.done.Go(func() { t.shake(ctx, watched) })
	s.Cleanup(func() {
		cancel()
		t.done.Wait()
		for _, load := range t.loads {
			load.End()
		}
	})
	return t
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "spec": spec,
		"metadata": map[string]any{"generateName": "load-", "namespace": "default"},
	}}
}

// seen are the caBundles at a moment.
type seen struct {
	at      time.Time
	bundles map[string]bool
}

// shake makes handshakes with each replica that is ready, by each caBundle as it was some time ago.
func (t *traffic) shake(ctx context.Context, watched client.Reader) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	var history []seen
	for ctx.Err() == nil {
		now := seen{time.Now(), map[string]bool{}}
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		for _, name := range []string{install.Release, install.Release + "-policies"} {
			if err := watched.Get(ctx, client.ObjectKey{Name: name}, c); err == nil {
				for i := range c.Webhooks {
					now.bundles[string(c.Webhooks[i].ClientConfig.CABundle)] = true
				}
			}
		}
		history = append(history, now)
		for len(history) > 1 && time.Since(history[1].at) >= late {
			history = history[1:]
		}
		t.round(ctx, history[0].bundles)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (t *traffic) round(ctx context.Context, bundles map[string]bool) {
	ready := 0
	for _, name := range t.s.Kubelet.Replicas() {
		m, err := t.s.Kubelet.Manager(name)
		if err != nil || !m.Backend().Ready(ctx) {
			continue
		}
		ready++
		for bundle := range bundles {
			leaf, err := handshake(ctx, m.Webhooks(), bundle)
			t.note(leaf, err)
		}
	}
	if ready == 0 && ctx.Err() == nil {
		t.note("", errors.New("no replica is ready"))
	}
}

func (t *traffic) note(leaf string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handshakes++
	if err != nil {
		t.failed = append(t.failed, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
		return
	}
	t.leaves[leaf] = true
}

func handshake(ctx context.Context, address, bundle string) (leaf string, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	dialer := &tls.Dialer{Config: &tls.Config{
		RootCAs: roots, ServerName: install.Service + "." + install.Namespace + ".svc", Time: func() time.Time { return time.Now().Add(-behind) },
	}}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() != nil {
			return "", nil // the test ends
		}
		return "", err
	}
	defer c.Close()
	return hash(c.(*tls.Conn).ConnectionState().PeerCertificates[0]), nil
}

// counted is how much there was at a moment.
type counted struct {
	at         time.Time
	replies    [2]int
	handshakes int
}

func (t *traffic) now() counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed, t.leaves = nil, map[string]bool{}
	return counted{time.Now(), [2]int{t.loads[0].Now(), t.loads[1].Now()}, t.handshakes}
}

// more waits until there are so many more replies to each question through each API server.
func (s *certSite) more(few int) {
	s.Helper()
	for _, load := range s.traffic.loads {
		_, err := load.More(s.Context(), few)
		s.Must(err)
	}
}

// faults are what a step may cause.
type faults struct {
	handshakes bool // that are refused, and what follows from it
	away       bool // requests through the first API server that nobody decides, because that one or etcd is away
	both       bool // and through the second
	killed     int  // so many requests through each API server that no replica answers, because it was killed
}

// step does something while requests are made, and adds a row to the table. Requests that were refused or undecided and handshakes that
// failed are errors, unless they are allowed.
func (s *certSite) step(name string, allowed faults, do func(*certSite)) {
	s.Helper()
	from := s.traffic.now()
	s.Step(name, func(t step.T) {
		inner, release := *s, *s.replicated
		inner.replicated, release.T = &release, t
		do(&inner)
		inner.more(3)
	})
	answers := judged
	if allowed.away || allowed.both { // the machine that is not there is looked for in the API server, which is asked for rights, too
		answers = judged.With(aStart, "[operations-", "[defaults/FactUnavailable]", "[defaults/DeadlineExceeded]").
			With(aMachine, install.Admitted, "[machines-access/FactUnavailable]", "[machines-access/DeadlineExceeded]")
	}
	var counts, refused, undecided [2]int
	for i, load := range s.traffic.loads {
		replies := load.Since(from.replies[i], from.at)
		counts[i] = len(replies)
		for _, r := range replies {
			away, webhook := allowed.both || allowed.away && i == 0, r.Err != nil && strings.Contains(r.Err.Error(), "webhook")
			switch err := answers.Check([]install.Reply{r}); {
			case err == nil:
			case r.Err != nil && away && !webhook, webhook && undecided[i] < allowed.killed:
				undecided[i]++
			default:
				if refused[i]++; !allowed.handshakes && refused[i] < 5 {
					s.Errorf("API server %d: %v", i+1, err)
				}
			}
		}
	}
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	*s.rows = append(*s.rows, fmt.Sprintf("| %s | %.0f s | %d | %d, %d | %d, %d | %d, %d | %d | %d |", name, time.Since(from.at).Seconds(), len(s.traffic.leaves),
		counts[0], counts[1], refused[0], refused[1], undecided[0], undecided[1], s.traffic.handshakes-from.handshakes, len(s.traffic.failed)))
	if n := len(s.traffic.failed); n > 0 && !allowed.handshakes && allowed.killed == 0 {
		s.Errorf("%d handshakes failed: %v", n, errors.Join(s.traffic.failed[:min(n, 5)]...))
	}
}

// table logs what there was in each step.
func (s *certSite) table() {
	s.Logf("\n| step | time | certificates served | requests through each API server | refused, or undecided by webhooks | the API server was away, or a replica killed | handshakes | failed |\n|---|---|---|---|---|---|---|---|\n%s",
		strings.Join(*s.rows, "\n"))
}

// hash returns the hash of a certificate, as replicas report it.
func hash(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
