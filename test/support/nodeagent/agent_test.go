package nodeagent_test

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/test/support/nodeagent"
)

const (
	vm  = types.UID("vm")
	ref = "registry.example.com/machines/ns/vm:move"
)

// site is an API server, a registry, and an agent with two nodes.
type site struct {
	*testing.T
	api   client.Client
	nodes *nodeagent.Agent
	round int64
}

func newSite(t *testing.T) *site {
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	// The fake API server gives no UIDs, and binds no Pods.
	api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, _ string, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
			bound := o.DeepCopyObject().(*corev1.Pod)
			bound.Spec.NodeName = sub.(*corev1.Binding).Target.Name
			return c.Patch(ctx, bound, client.MergeFrom(o))
		},
	})
	s := &site{T: t, api: api, nodes: nodeagent.New(api, "node-1", "node-2")}
	s.nodes.Transport = server.Client().Transport
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// pod creates a Pod of the machine that may go where the operator wants.
func (s *site) pod(name, from string, op corev1.NodeSelectorOperator, node string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{agent.LabelMachine: string(vm)}, Annotations: map[string]string{},
	}}
	if from != "" {
		p.Annotations[agent.AnnotationRestoreFrom] = from
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: []string{node}}}}},
	}}}
	s.must(s.api.Create(s.Context(), p))
	return s.steps(p)
}

// steps is enough of them for whatever is due.
func (s *site) steps(p *corev1.Pod) *corev1.Pod {
	s.Helper()
	for range 3 {
		s.must(s.nodes.Step(s.Context()))
	}
	now := &corev1.Pod{}
	if err := s.api.Get(s.Context(), client.ObjectKeyFromObject(p), now); !apierrors.IsNotFound(err) {
		s.must(err)
	}
	return now
}

// asks orders something of a machine, and gives what there is to report then.
func (s *site) asks(p *corev1.Pod, request agent.Request) agent.Report {
	s.Helper()
	s.round++
	now := p.DeepCopy()
	for key, value := range (agent.Order{Round: s.round, Request: request, Snapshot: ref}).Annotations() {
		metav1.SetMetaDataAnnotation(&now.ObjectMeta, key, value)
	}
	s.must(s.api.Patch(s.Context(), now, client.MergeFrom(p)))
	return s.report(p)
}

func (s *site) report(p *corev1.Pod) agent.Report {
	s.Helper()
	r, err := agent.ReportOf(s.steps(p).Annotations)
	s.must(err)
	return r
}

func (s *site) lives(want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.nodes.Live()[vm]); diff != "" {
		s.Errorf("what runs (-want +got):\n%s", diff)
	}
}

// saved makes a machine that has done some work, and hibernates it.
func (s *site) saved() (p *corev1.Pod, from string) {
	s.Helper()
	p = s.pod("one", "", corev1.NodeSelectorOpIn, "node-1")
	s.asks(p, agent.PowerOn)
	s.nodes.Work(vm)
	s.lives("node-1/one/1")
	r := s.asks(p, agent.Hibernate)
	digest, is := strings.CutPrefix(r.Saved, ref+"@")
	if r.State != agent.Hibernated || r.ObservedRound != s.round || !is {
		s.Fatalf("%+v", r)
	}
	s.lives()
	return p, strings.TrimSuffix(ref, ":move") + "@" + digest
}

func TestMove(t *testing.T) {
	s := newSite(t)
	p, from := s.saved()
	s.must(s.api.Delete(t.Context(), p))
	restored := s.pod("two", from, corev1.NodeSelectorOpNotIn, "node-1")
	if r := s.report(restored); r.State != agent.Running || r.InstanceID != "two/1" || restored.Spec.NodeName != "node-2" {
		t.Errorf("%+v on %s", r, restored.Spec.NodeName)
	}
	if got := s.nodes.Work(vm); got != 2 {
		t.Errorf("it goes on with %d", got)
	}
	s.lives("node-2/two/1")
	if got := s.nodes.Violations(); len(got) > 0 {
		t.Error(got)
	}
}

func TestWhatMustNotBeIsNoticed(t *testing.T) {
	s := newSite(t)
	p, from := s.saved()
	if r := s.asks(p, agent.Wake); r.State != agent.Running || r.InstanceID != "one/2" {
		t.Errorf("%+v", r)
	}
	s.nodes.Work(vm)
	s.pod("two", from, corev1.NodeSelectorOpIn, "node-2")
	want := []string{"the machine on node-2 goes back from 2 to 1", "the machine runs on node-2 and on node-1"}
	if diff := cmp.Diff(want, s.nodes.Violations()); diff != "" || len(s.nodes.Live()[vm]) != 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHibernationIsTakenBack(t *testing.T) {
	for held, runs := range map[agent.Request]int{agent.Hibernate: 1, nodeagent.Reporting: 0} {
		s := newSite(t)
		p := s.pod("one", "", corev1.NodeSelectorOpIn, "node-1")
		s.asks(p, agent.PowerOn)
		s.nodes.Hold(vm, held)
		if r := s.asks(p, agent.Hibernate); r.State != agent.Running || r.ObservedRound == s.round || len(s.nodes.Live()[vm]) != runs {
			t.Errorf("%s: %+v, %v", held, r, s.nodes.Live())
		}
		if r := s.asks(p, agent.Withdraw); r.State != agent.Running || r.ObservedRound != s.round || r.InstanceID != "one/1" || r.Saved != "" {
			t.Errorf("%s: %+v", held, r)
		}
		s.lives("node-1/one/1")
	}
}

func TestFailures(t *testing.T) {
	s := newSite(t)
	p, _ := s.saved()
	s.asks(p, agent.Wake)
	can := s.nodes.Fail(vm, agent.Hibernate, "no room")
	if r := s.asks(p, agent.Hibernate); r.State != agent.Running || r.ObservedRound != s.round || r.Message != "no room" {
		t.Errorf("%+v", r)
	}
	can()
	never := strings.TrimSuffix(ref, ":move") + "@sha256:" + strings.Repeat("0", 64)
	if r := s.report(s.pod("two", never, corev1.NodeSelectorOpIn, "node-2")); r.State != agent.Failed || r.Message == "" {
		t.Errorf("%+v", r)
	}
}

func TestNodeThatDies(t *testing.T) {
	s := newSite(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	s.must(s.api.Create(t.Context(), node))
	ready := func() corev1.ConditionStatus {
		s.must(s.nodes.Step(t.Context()))
		s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return node.Status.Conditions[0].Status
	}
	p := s.pod("one", "", corev1.NodeSelectorOpIn, "node-1")
	s.asks(p, agent.PowerOn)
	if got := ready(); got != corev1.ConditionTrue {
		t.Error(got)
	}
	s.nodes.Die("node-1")
	if r := s.asks(p, agent.PowerOff); r.State != agent.Running || ready() != corev1.ConditionUnknown {
		t.Errorf("%+v", r)
	}
	s.must(s.api.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	s.steps(p)
	s.lives("node-1/one/1")
	s.nodes.Revive("node-1")
	if got := ready(); got != corev1.ConditionTrue {
		t.Error(got)
	}
	s.lives()
}

func TestSchedule(t *testing.T) {
	s := newSite(t)
	for _, n := range []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{Unschedulable: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "node-2", Labels: map[string]string{"type": "other"}}},
	} {
		s.must(s.api.Create(t.Context(), &n))
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "one", Labels: map[string]string{agent.LabelMachine: "vm"}}}
	p.Spec.NodeSelector = map[string]string{"type": "virtual-kubelet"}
	s.must(s.api.Create(t.Context(), p))
	now := s.steps(p)
	says := func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Message == "0/2 nodes are available: node-1 is cordoned, node-2 does not have the labels of the Pod's node selector"
	}
	if now.Spec.NodeName != "" || !slices.ContainsFunc(now.Status.Conditions, says) {
		t.Errorf("%s %+v", now.Spec.NodeName, now.Status.Conditions)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
	s.must(s.api.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"type":"virtual-kubelet"}}}`))))
	if now := s.steps(p); now.Spec.NodeName != "node-2" {
		t.Errorf("%s %+v", now.Spec.NodeName, now.Status.Conditions)
	}
}
