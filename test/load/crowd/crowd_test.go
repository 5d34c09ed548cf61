// Package crowd_test decides about machines beside a hundred thousand others.
package crowd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/server"
)

const (
	// perNamespace is how many machines a namespace has, and ours how many namespaces share the quota.
	perNamespace, ours = 100, 10
	// fatBytes is how long an annotation of each machine in the last namespace is.
	fatBytes = 1 << 20

	api = "/apis/sallyport.dev/v1alpha1/"
)

// apiServer serves namespaces with machines on one vCenter. The machines are made when they are read.
type apiServer struct {
	machines, limit int // limit is that of the quota
	fat             atomic.Bool
	served          atomic.Int64 // machines
}

// page writes a page of a list of n objects.
func page(w http.ResponseWriter, r *http.Request, apiVersion, kind string, n int, object func(i int) string) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case query.Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to, more := n, ""
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < n {
		to = from + limit
		more = strconv.Itoa(to)
	}
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"7","continue":%q},"items":[`, apiVersion, kind, more)
	for i := from; i < to; i++ {
		if i > from {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = io.WriteString(w, object(i))
	}
	_, _ = io.WriteString(w, "]}")
}

func (s *apiServer) namespaces() int { return s.machines / perNamespace }

func (s *apiServer) machine(i int) string {
	s.served.Add(1)
	fat := ""
	if s.fat.Load() && i/perNamespace == s.namespaces()-1 {
		fat = strings.Repeat("x", fatBytes)
	}
	conditions := strings.Repeat(`,{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the machine is as its spec requires","observedGeneration":3,"reason":"Settled","status":"True","type":"Settled"}`, 2)
	return fmt.Sprintf(`{"apiVersion":"sallyport.dev/v1alpha1","kind":"VirtualMachine","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"a":%q},`+
		`"finalizers":["sallyport.dev/virtual-machine"],"generation":3,"labels":{"app":"web"},"name":"web-%d","namespace":"team-%d","resourceVersion":"%[2]d",`+
		`"uid":"9d0f1a5e-6f6b-4e5c-9a44-%012[2]d"},"spec":{"cpu":2,"memory":"2Gi","runPolicy":"AlwaysOn","restartApprovalMode":"Manual","runtime":{"vsphere":{"clone":{`+
		`"datastore":"/dc/datastore/d","folder":"/dc/vm/a","networks":["/dc/network/n"],"resourcePool":"/dc/host/c","template":{"inventoryPath":"/dc/vm/t"}},`+
		`"serverRef":{"name":"vc-1"}}}},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the machine is Running as its run policy requires",`+
		`"observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"}%[4]s],"instanceID":"vm-%[2]d","nodeName":"esx-1","observedGeneration":3,"phase":"Running"}}`,
		fat, i, i/perNamespace, conditions)
}

func (s *apiServer) server(int) string {
	names := make([]string, ours)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint("team-", i))
	}
	places := `"folders":["/dc/vm/a"],"resourcePools":["/dc/host/c"],"datastores":["/dc/datastore/d"],"networks":["/dc/network/n"],"templates":["/dc/vm/t"]`
	quota := ""
	if s.limit > 0 {
		quota = fmt.Sprintf(`,"quota":{"machines":%d,"memory":"10Ti"}`, s.limit)
	}
	return fmt.Sprintf(`{"apiVersion":"sallyport.dev/v1alpha1","kind":"VSphereServer","metadata":{"name":"vc-1","resourceVersion":"7","uid":"vc"},"spec":{"tenants":[`+
		`{"name":"ours","namespaces":{"names":[%s]},%s%s},`+
		`{"name":"others","namespaces":{"selector":{"matchLabels":{"team":"false"}}},%[2]s}]}}`, strings.Join(names, ","), places, quota)
}

func (s *apiServer) start(t testing.TB) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api+"virtualmachines", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "sallyport.dev/v1alpha1", "VirtualMachine", s.machines, s.machine)
	})
	mux.HandleFunc("GET "+api+"namespaces/{namespace}/virtualmachines", func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("namespace"), "team-"))
		page(w, r, "sallyport.dev/v1alpha1", "VirtualMachine", perNamespace, func(j int) string { return s.machine(i*perNamespace + j) })
	})
	mux.HandleFunc("GET "+api+"vsphereservers", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "sallyport.dev/v1alpha1", "VSphereServer", 1, s.server)
	})
	mux.HandleFunc("GET "+api+"vsphereservers/vc-1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, s.server(0))
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "v1", "Namespace", s.namespaces(), func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team-%d","uid":"%[1]d","resourceVersion":"7","labels":{"team":"%t"}}}`, i, i < ours)
		})
	})
	served := httptest.NewServer(mux)
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	return served.URL
}

// setOf compiles a shipped policy, with the libraries.
func setOf(t testing.TB, policy string) *catalog.Set {
	t.Helper()
	shipped := shipped.Policies(t)
	set, err := catalog.Compile(slices.DeleteFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return !p.Spec.Library && p.Name != policy }))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// gate returns a policy in front of the API server, and how many bytes its caches take. Its facts are cached if caches are wanted.
func (s *apiServer) gate(t testing.TB, policy string, cached bool) (gate *decision.Decider, bytes uint64) {
	t.Helper()
	set := setOf(t, policy)
	scheme := kuberuntime.NewScheme()
	for _, add := range []func(*kuberuntime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("VirtualMachine"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("VSphereServer"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	config := &rest.Config{Host: s.start(t), QPS: -1}
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	var caches cache.Cache
	if cached {
		if caches, err = cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, DefaultTransform: facts.Compact}); err != nil {
			t.Fatal(err)
		}
	}
	store := facts.NewStore(caches, direct)
	if cached {
		before := heap()
		if err := store.Declare(t.Context(), set.Policy(policy).Reads()); err != nil {
			t.Fatal(err)
		}
		go func() { _ = caches.Start(t.Context()) }()
		synced := func(context.Context) (bool, error) { return store.Synced() == nil, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 10*time.Minute, true, synced); err != nil {
			t.Fatal(err)
		}
		bytes = heap() - before
	}
	return decision.NewDecider(set, store, record.NewRecorder(prometheus.NewRegistry(), nil, false), time.Now), bytes
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const machine = `{"apiVersion":"sallyport.dev/v1alpha1","kind":"VirtualMachine","metadata":{"name":"new","namespace":"team-0","uid":"new",
"creationTimestamp":"2026-11-20T10:00:00Z"},"spec":{"cpu":2,"memory":"2Gi","runtime":{"vsphere":{"serverRef":{"name":"vc-1"},"clone":{"datastore":"/dc/datastore/d",
"folder":"/dc/vm/a","networks":["/dc/network/n"],"resourcePool":"/dc/host/c","template":{"inventoryPath":"/dc/vm/t"}}}}}}`

func newMachine(t testing.TB) *v1alpha1.VirtualMachine {
	t.Helper()
	vm := &v1alpha1.VirtualMachine{}
	if err := json.Unmarshal([]byte(machine), vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// cloned reports whether the machine may be cloned, by facts that are read live.
func cloned(t testing.TB, gate *decision.Decider) bool {
	t.Helper()
	placement, err := gate.Admits(t.Context(), newMachine(t))
	if err != nil {
		t.Fatal(err)
	}
	return !placement.Denied
}

// handlerOf returns the validating endpoint of a gate.
func handlerOf(gate *decision.Decider) (validating http.Handler) {
	server.Register(gate, prometheus.NewRegistry(), func(endpoint string, h http.Handler) {
		if endpoint == server.ValidatePath {
			validating = h
		}
	}, logr.Discard())
	return validating
}

// admitted reports whether the machine is admitted, by cached facts.
func admitted(t testing.TB, handler http.Handler) bool {
	t.Helper()
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"r-1","operation":"CREATE","namespace":"team-0","name":"new",` +
		`"kind":{"group":"sallyport.dev","version":"v1alpha1","kind":"VirtualMachine"},"userInfo":{"username":"alice"},"oldObject":null,` +
		`"resource":{"group":"sallyport.dev","version":"v1alpha1","resource":"virtualmachines"},"object":` + machine + `}}`
	reply := httptest.NewRecorder()
	handler.ServeHTTP(reply, httptest.NewRequest(http.MethodPost, server.ValidatePath, strings.NewReader(body)))
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(reply.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, reply.Body)
	}
	if !answer.Response.Allowed && answer.Response.Result.Reason != "QuotaExceeded" {
		t.Fatalf("got %+v", answer.Response.Result)
	}
	return answer.Response.Allowed
}

// However many machines other tenants of a vCenter have, and however large they are, a quota counts those of its own namespaces, and reads no
// others.
func TestQuotaBesideOtherTenants(t *testing.T) {
	s := &apiServer{machines: 12_000}
	s.fat.Store(true)
	for limit, want := range map[int]bool{ours * perNamespace: false, ours*perNamespace + 1: true} {
		s.limit = limit
		gate, _ := s.gate(t, "servers-quota", false)
		s.served.Store(0)
		if got := cloned(t, gate); got != want {
			t.Errorf("limit %d: allowed %t", limit, got)
		}
		if read := s.served.Load(); read != ours*perNamespace {
			t.Errorf("%d machines were read", read)
		}
	}
}

// Without a quota no machine is read.
func TestNoQuotaReadsNoMachines(t *testing.T) {
	s := &apiServer{machines: 12_000}
	gate, _ := s.gate(t, "servers-quota", false)
	if read := s.served.Load(); !cloned(t, gate) || read > 0 {
		t.Errorf("%d machines were read", read)
	}
}

// partly notes what policies read of each object of a list.
type partly struct {
	facts map[string]any // by name
	parts map[string]*engine.Part
}

func (p partly) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return p }

func (p partly) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if q.Name == "" {
		p.parts[q.Kind] = q.Part
	}
	v, err := engine.ValueOf(p.facts[q.Fact])
	return engine.Answer{Value: v, Live: true}, err
}

// Of the machines that it counts, the quota reads no annotations: however long these are, counting costs the same.
func TestCountingReadsNoAnnotations(t *testing.T) {
	s := &apiServer{machines: perNamespace, limit: 1}
	decoded := func(text string) (object any) {
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	source := partly{parts: map[string]*engine.Part{}, facts: map[string]any{
		"server": decoded(s.server(0)), "namespaces": []any{decoded(`{"metadata":{"name":"team-0"}}`)}, "machines": []any{},
	}}
	gate := decision.NewDecider(setOf(t, "servers-quota"), source, record.NewRecorder(prometheus.NewRegistry(), nil, false), time.Now)
	if !cloned(t, gate) {
		t.Error("denied")
	}
	text, err := json.Marshal(source.parts["VirtualMachine"])
	if err != nil || string(text) == "null" || strings.Contains(string(text), "annotations") || strings.Contains(string(text), "conditions") {
		t.Errorf("read is %s, %v", text, err)
	}
}

// BenchmarkQuota measures an admission under a quota for 1,000 machines, beside others of the same vCenter. It reports the processor time and
// what the caches of the policy take.
func BenchmarkQuota(b *testing.B) {
	for _, machines := range []int{10_000, 100_000} {
		for name, cached := range map[string]bool{"cached": true, "live": false} {
			b.Run(fmt.Sprintf("%s/%d", name, machines), func(b *testing.B) {
				s := &apiServer{machines: machines, limit: machines}
				gate, bytes := s.gate(b, "servers-quota", cached)
				decide := func() bool { return cloned(b, gate) }
				if cached {
					handler := handlerOf(gate)
					decide = func() bool { return admitted(b, handler) }
				}
				b.ReportAllocs()
				for b.Loop() {
					if !decide() {
						b.Fatal("denied")
					}
				}
				b.ReportMetric(float64(bytes)/float64(machines), "cached-B/machine")
			})
		}
	}
}
