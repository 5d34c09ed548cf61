package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/server"
)

// world is Sallyport in front of the fixture, several times, with what it is compared with.
type world struct {
	policies   []v1alpha1.RegoPolicy
	cache      cache.Cache
	store      *facts.Store
	cached     int64 // memory that the caches take, in bytes; less than nothing in a small world, if the collector found more meanwhile
	gates      map[string]*decision.Decider
	registries map[string]*prometheus.Registry
	handlers   map[string]http.Handler
	swaps      int
	edits      catalog.Catalog // which compiles what has changed
}

func newWorld(ctx context.Context, at site) (*world, error) {
	w := &world{
		gates: map[string]*decision.Decider{}, registries: map[string]*prometheus.Registry{}, handlers: map[string]http.Handler{},
	}
	var err error
	if w.policies, err = policies.Shipped(); err != nil {
		return nil, err
	}
	// The table says what two policies cost, whatever else is shipped.
	w.policies = slices.DeleteFunc(w.policies, func(p v1alpha1.RegoPolicy) bool {
		return !p.Spec.Library && p.Name != "operations-applicability" && p.Name != "operations-supersede"
	})
	if err := w.fillCaches(ctx, at); err != nil {
		return nil, err
	}
	w.handlers["/"+rowUnit] = &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
	for _, row := range []string{rowOne, rowTwo, rowRecorded, rowDenied} {
		asked := w.policies
		if row == rowOne {
			asked = without(asked, "operations-supersede")
		}
		var records io.Writer
		if row == rowRecorded {
			records = io.Discard
		}
		if err := w.gate(row, asked, records); err != nil {
			return nil, err
		}
	}
	return w, w.decideBy(w.policies)
}

func without(all []v1alpha1.RegoPolicy, name string) []v1alpha1.RegoPolicy {
	return slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.RegoPolicy) bool { return p.Name == name })
}

// gate makes a gate with a memory of its own.
func (w *world) gate(row string, asked []v1alpha1.RegoPolicy, records io.Writer) error {
	set, err := catalog.Compile(asked)
	if err != nil {
		return err
	}
	w.registries[row] = prometheus.NewRegistry()
	w.gates[row] = decision.NewDecider(set, w.store, record.NewRecorder(w.registries[row], records, false), time.Now)
	server.Register(w.gates[row], w.registries[row], func(endpoint string, h http.Handler) {
		if endpoint == server.ValidatePath {
			w.handlers["/"+row] = h
		}
	}, logr.Discard())
	return nil
}

// fillCaches gives facts as the manager does: out of caches of their own, and past them.
func (w *world) fillCaches(ctx context.Context, at site) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"VirtualMachine", "VirtualMachineOperation"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	config := &rest.Config{Host: at.APIServer, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(at.Authority)}, QPS: -1}
	var err error
	if w.cache, err = cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, DefaultTransform: facts.Compact}); err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
	}
	w.store = facts.NewStore(w.cache, direct)
	set, err := catalog.Compile(w.policies)
	if err != nil {
		return err
	}
	empty := heap()
	if err := w.store.Declare(ctx, set.Policy("operations-supersede").Reads()); err != nil { // the other one's are among them
		return err
	}
	go func() { _ = w.cache.Start(ctx) }()
	synced := func(context.Context) (bool, error) { return w.store.Synced() == nil, nil }
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Minute, true, synced)
	w.cached = heap() - empty
	return err
}

// swap has a gate decide by another revision of a policy, which is compiled as in a cluster, where one edit compiles one policy.
func (w *world) swap() error {
	w.swaps++
	edited := slices.Clone(w.policies)
	for i := range edited {
		if edited[i].Name == "operations-supersede" {
			edited[i] = *edited[i].DeepCopy()
			edited[i].Spec.TimeoutMilliseconds = int32(2000 + w.swaps)
		}
	}
	return w.decideBy(edited)
}

func (w *world) decideBy(objects []v1alpha1.RegoPolicy) error {
	set, states := w.edits.Build(context.Background(), objects, nil)
	for i := range states {
		if states[i].Err != nil {
			return states[i].Err
		}
	}
	w.gates[rowTwo].Swap(set)
	return nil
}

// checkPrograms checks that decisions were compared with those of topdown, and were the same.
func (w *world) checkPrograms() error {
	for row, registry := range w.registries {
		counted := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.Metric {
				result := ""
				for _, l := range m.Label {
					if l.GetName() == "result" {
						result = l.GetValue()
					}
				}
				counted[f.GetName()+result] += m.GetCounter().GetValue()
			}
		}
		decided := counted["sallyport_decisions_total"]
		switch {
		case counted["sallyport_checked_decisions_totaldiffers"] > 0:
			return fmt.Errorf("%s: a program is wrong", row)
		case decided > 0 && counted["sallyport_checked_decisions_totalsame"] == 0:
			return fmt.Errorf("%s: of %v decisions none was checked", row, decided)
		}
	}
	return nil
}

// serve serves over TLS, with the server that the manager has.
func (w *world) serve(ctx context.Context, folder string) (string, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return "", err
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	served := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: folder})
	for path, h := range w.handlers {
		served.Register(path, h)
	}
	failed := make(chan error, 1)
	go func() { failed <- served.Start(ctx) }()
	started := func(context.Context) (bool, error) {
		select {
		case err := <-failed:
			return false, err
		default:
			return served.StartedChecker()(nil) == nil, nil
		}
	}
	return fmt.Sprintf("https://127.0.0.1:%d", port), wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, started)
}
