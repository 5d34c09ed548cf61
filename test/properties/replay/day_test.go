package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/test/support/step"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
)

func TestMain(m *testing.M) { install.Main(m) }

const namespace = "day"

var (
	forms  = []string{"Start", "Stop", "Stop force", "Restart", "Restart force", "Migrate", "Migrate force", "Evict", "Evict force"}
	phases = []string{"Pending", "Stopped", "Starting", "Running", "Stopping", "Migrating", "Paused", "Failed"}
	// people ask for everything.
	people = []string{"ann", "bob", "system:serviceaccount:day:robot"}
)

// slug is a form or a phase as it stands in names.
func slug(word string) string { return strings.ToLower(strings.ReplaceAll(word, " ", "-")) }

// request is a new operation of the machine in that phase on which the other one runs.
type request struct{ phase, running, new, who string }

func (r request) machine() string { return slug(r.phase) + "-" + slug(r.running) }

func (r request) name() string { return r.machine() + "-then-" + slug(r.new) }

// spec of an operation on the machine.
func (r request) spec(form string) v1alpha1.VirtualMachineOperationSpec {
	word, force := strings.CutSuffix(form, " force")
	return v1alpha1.VirtualMachineOperationSpec{VirtualMachineName: r.machine(), Type: v1alpha1.OperationType(word), Force: force}
}

// requests are each operation over each other one in each phase, asked for by everybody.
func requests() []request {
	var all []request
	for _, phase := range phases {
		for _, running := range forms {
			for _, next := range forms {
				for _, who := range people {
					all = append(all, request{phase, running, next, who})
				}
			}
		}
	}
	return all
}

// site is a gate whose facts are those of an API server.
type site struct {
	client.Client
	gate    *decision.Decider
	records *ledger
}

func shippedPolicies(t *testing.T) []v1alpha1.RegoPolicy {
	t.Helper()
	objects := shipped.Default(t)
	for i := range objects {
		objects[i].Spec.TimeoutMilliseconds = 60_000 // nothing here is about time
	}
	return objects
}

func compiled(t *testing.T, objects []v1alpha1.RegoPolicy) *catalog.Set {
	t.Helper()
	set, err := catalog.Compile(objects)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newSite makes the machines, each with an operation that runs, and a gate that knows them.
func newSite(t *testing.T) *site {
	t.Helper()
	plane := env.Shared(t)
	s := &site{records: newLedger()}
	var err error
	if s.Client, err = install.Client(plane.Config); err != nil {
		t.Fatal(err)
	}
	s.make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, phase := range phases {
		for _, running := range forms {
			s.machine(t, request{phase: phase, running: running})
		}
	}
	set := compiled(t, shippedPolicies(t))
	cached, err := cache.New(plane.Config, cache.Options{DefaultTransform: facts.Compact})
	if err != nil {
		t.Fatal(err)
	}
	store := facts.NewStore(cached, s.Client)
	if err := store.Declare(t.Context(), set.Reads()); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := cached.Start(t.Context()); err != nil {
			t.Errorf("running the cache: %v", err)
		}
	}()
	synced := func(context.Context) (bool, error) { return store.Synced() == nil, nil }
	if err := step.Await(t.Context(), synced); err != nil {
		t.Fatalf("waiting for the caches: %v", err)
	}
	s.gate = decision.NewDecider(set, store, record.NewRecorder(prometheus.NewRegistry(), s.records, false), time.Now)
	return s
}

func (s *site) make(t *testing.T, o client.Object) {
	t.Helper()
	status := o.DeepCopyObject().(client.Object)
	if err := s.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
	if _, isNamespace := o.(*corev1.Namespace); isNamespace {
		return
	}
	status.SetResourceVersion(o.GetResourceVersion())
	if err := s.Status().Update(t.Context(), status); err != nil {
		t.Fatalf("setting the status of %T %s: %v", o, o.GetName(), err)
	}
}

func (s *site) machine(t *testing.T, r request) {
	t.Helper()
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.machine()}}
	vm.Spec.RunPolicy, vm.Spec.Runtime.Pod = v1alpha1.RunPolicyManual, &v1alpha1.PodRuntime{}
	vm.Status.Phase = v1alpha1.VirtualMachinePhase(r.phase)
	s.make(t, vm)
	running := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.machine()}, Spec: r.spec(r.running)}
	running.Status.Phase = v1alpha1.OperationInProgress
	s.make(t, running)
}

// live has the whole day happen, and gives its records.
func (s *site) live(t *testing.T) string {
	t.Helper()
	work := make(chan request)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for r := range work {
				if err := s.ask(t.Context(), r); err != nil {
					t.Errorf("%+v: %v", r, err)
				}
			}
		})
	}
	for _, r := range requests() {
		work <- r
	}
	close(work)
	all.Wait()
	return s.records.text(t, 2*len(requests())+len(requests())/len(people))
}

// ask does what an API server does with a request, and what a reconciler does when its turn comes.
func (s *site) ask(ctx context.Context, r request) error {
	operation := &v1alpha1.VirtualMachineOperation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VirtualMachineOperation"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.name()}, Spec: r.spec(r.new),
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(operation)
	if err != nil {
		return err
	}
	asked, err := install.Creation(&unstructured.Unstructured{Object: content}, r.who)
	if err != nil {
		return err
	}
	said, err := s.decide(ctx, asked, decision.Mutating)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(said.Patch)
	if err != nil {
		return err
	}
	if asked.Request.Object.Raw, err = patch.Apply(asked.Request.Object.Raw); err != nil {
		return err
	}
	if _, err := s.decide(ctx, asked, decision.Validating); err != nil || r.who != people[0] {
		return err
	}
	return s.arbitrate(ctx, r, asked.Request.Object.Raw)
}

func (s *site) decide(ctx context.Context, asked *admissionv1.AdmissionReview, endpoint string) (*admissionv1.AdmissionResponse, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	review, err := decision.Decode(body)
	if err != nil {
		return nil, err
	}
	s.records.begin()
	return s.gate.Answer(ctx, &decision.Question{Endpoint: endpoint, Review: review}), nil
}

func (s *site) arbitrate(ctx context.Context, r request, raw []byte) error {
	operation, machine := &v1alpha1.VirtualMachineOperation{}, &v1alpha1.VirtualMachine{}
	if err := json.Unmarshal(raw, operation); err != nil {
		return err
	}
	var unfinished v1alpha1.VirtualMachineOperationList
	if err := s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: r.machine()}, machine); err != nil {
		return err
	}
	err := s.List(ctx, &unfinished, client.InNamespace(namespace), client.MatchingFields{"spec.virtualMachineName": r.machine()})
	if err != nil {
		return err
	}
	s.records.begin()
	_, err = s.gate.Arbitrate(ctx, operation, machine, unfinished.Items)
	return err
}

// ledger takes the records. A decision may begin only when not too many are waiting to be written down: a gate loses records
// rather than to hold up requests, and none may be lost here.
type ledger struct {
	waiting chan struct{}
	mu      sync.Mutex
	lines   [][]byte
}

func newLedger() *ledger { return &ledger{waiting: make(chan struct{}, 100)} }

func (l *ledger) begin() { l.waiting <- struct{}{} }

// Write takes a record.
func (l *ledger) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, slices.Clone(line))
	<-l.waiting
	return len(line), nil
}

// text gives the records when there are so many.
func (l *ledger) text(t *testing.T, n int) string {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lines)
	}
	err := step.Await(t.Context(), func(context.Context) (bool, error) { return count() == n, nil })
	if err != nil {
		t.Fatalf("%d of %s were written: %v", count(), fmt.Sprintf("%d records", n), err)
	}
	return string(bytes.Join(l.lines, nil))
}
