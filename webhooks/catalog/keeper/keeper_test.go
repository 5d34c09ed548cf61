package keeper_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// What is written to the cluster decides, as long as it can.
func TestEditsAreTakenUp(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	r := c.start(options{})
	r.await("the first build", func() bool { err := r.Ready(nil); return err != nil && err.Error() == "the cluster has no RegoPolicy" })
	if set, _ := r.Decides(); r.answer() != "nobody judges" || r.Hash() != "" || set != nil {
		t.Errorf("without a policy: %q, hash %q, set %v", r.answer(), r.Hash(), set)
	}
	changes := r.Subscribe()
	heard := func(name string) {
		t.Helper()
		if got := (<-changes).Object.GetName(); got != name {
			t.Errorf("told of %s", got)
		}
	}

	c.create(policy("p", saying("p", "one")))
	r.awaitReady()
	first := r.awaitState("p", current)
	heard("p")
	if set, states := r.Decides(); set.Hash() != r.Hash() || len(states) != 1 || states[0].ActiveHash != first.ActiveHash {
		t.Errorf("decides: %v, %+v", set, states)
	}
	if got := r.answer(); got != "[p/Never] one" {
		t.Errorf("got %q", got)
	}
	hash := r.Hash()

	c.edit(text(saying("p", "two")))
	second := r.awaitState("p", current)
	heard("p")
	if got := r.answer(); got != "[p/Never] two" || second.ActiveHash == first.ActiveHash || r.Hash() == hash {
		t.Errorf("got %q, revision %s", got, second.ActiveHash)
	}

	c.edit(text(nonsense))
	third := r.awaitState("p", lastGood)
	heard("p")
	if got := r.answer(); got != "[p/Never] two" || third.ActiveHash != second.ActiveHash || !strings.Contains(third.Err.Error(), "p/p.rego:3:6: ") {
		t.Errorf("got %q, %+v", got, third)
	}
	if err := r.Ready(nil); err != nil {
		t.Errorf("a policy on its last good revision: %v", err)
	}
	if got, want := r.metric("sallyport_policy_info"), "policy=p revision="+second.ActiveHash+" state=last_good 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	c.edit(func(p *v1alpha1.RegoPolicy) { p.Spec.Mode = v1alpha1.ModeAudit })
	r.await("relief", func() bool { return r.answer() == "" })
	r.awaitState("p", lastGood)
	heard("p")

	c.edit(func(p *v1alpha1.RegoPolicy) { p.Spec.Mode = v1alpha1.ModeEnforce; text(saying("p", "three"))(p) })
	r.awaitState("p", current)
	if got := r.answer(); got != "[p/Never] three" {
		t.Errorf("got %q", got)
	}
	if got, want := r.metric("sallyport_policy_reloads_total"), "result=current 3\nresult=last_good 2"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	heard("p")

	c.must(c.client.Delete(t.Context(), policy("p", "")))
	heard("p")
	r.await("the policy to be gone", func() bool { return r.answer() == "" && len(r.States()) == 0 })
	if err := r.Ready(nil); err == nil {
		t.Error("ready without a policy")
	}
}

// A replica that starts with a broken policy decides as the others do.
func TestRestartWithABrokenPolicy(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	c.create(policy("p", saying("p", "one")))
	before := c.start(options{})
	before.awaitReady()
	first := before.awaitState("p", current)
	before.store(first, 1)
	c.edit(text(saying("p", "two")))
	good := before.awaitState("p", current)
	before.store(good, 2)
	c.create(&appsv1.ControllerRevision{ // what somebody else left there
		ObjectMeta: metav1.ObjectMeta{Name: "p-unreadable", Namespace: c.namespace, Labels: map[string]string{keeper.PolicyLabel: "p"}},
		Data:       runtime.RawExtension{Raw: []byte(`{"policy":{}}`)}, Revision: 3,
	})
	first.Name = "q" // a revision of p that is labelled as one of q
	before.store(first, 4)
	c.edit(text(nonsense))
	before.awaitState("p", lastGood)
	before.stop()

	after := c.start(options{})
	after.awaitReady()
	if s := after.awaitState("p", lastGood); s.ActiveHash != good.ActiveHash || after.answer() != "[p/Never] two" || after.Hash() != before.Hash() {
		t.Errorf("got %q, %+v", after.answer(), s)
	}

	// Made again, the policy begins anew: what was good belonged to another one.
	c.must(c.client.Delete(t.Context(), policy("p", "")))
	c.create(policy("p", nonsense))
	after.awaitState("p", broken)
	if got := after.answer(); !strings.HasPrefix(got, "[p/CompileFailed] ") {
		t.Errorf("got %q", got)
	}
}

// A version that cannot compile what was good does not become ready; a policy that never was good keeps no version back.
func TestReadinessOfAVersionThatCannotCompile(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	c.create(policy("fine", saying("fine", "one")))
	c.create(policy("p", nonsense))
	r := c.start(options{})
	r.awaitReady()
	r.awaitState("p", broken)
	var p v1alpha1.RegoPolicy
	c.must(c.client.Get(t.Context(), client.ObjectKey{Name: "p"}, &p))
	p.Status.ActiveRevision = "0123456789ab"
	c.must(c.client.Status().Update(t.Context(), &p))
	r.await("the replica not to be ready", func() bool {
		err := r.Ready(nil)
		return err != nil && strings.HasPrefix(err.Error(), "policy p was active before, but none of its revisions can be used: policy p does not compile:\np/p.rego:3:6: ")
	})
	r.Replaces = func(context.Context) bool { return false }
	if err := r.Ready(nil); err != nil {
		t.Errorf("all replicas have this version, and none would be ready: %v", err)
	}
	r.Replaces = func(context.Context) bool { return true }
	if r.Ready(nil) == nil {
		t.Error("it would replace replicas of another version")
	}
	c.edit(text(saying("p", "two")))
	r.awaitReady()
}

// holding keeps kinds from being synced until it is let go.
type holding struct {
	*facts.Store
	mu      sync.Mutex
	held    string
	changed func()
}

func (h *holding) Notify(changed func()) {
	h.changed = changed
	h.Store.Notify(changed)
}

func (h *holding) Watch(ctx context.Context, policy string, reads []engine.Read) []facts.Lack {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range reads {
		if r.Kind == h.held {
			return []facts.Lack{{Read: r, Err: facts.ErrNotSynced}}
		}
	}
	return h.Store.Watch(ctx, policy, reads)
}

func (h *holding) hold(kind string) {
	h.mu.Lock()
	h.held = kind
	h.mu.Unlock()
	h.changed()
}

// Nothing decides before its caches are filled: the first set waits for that, and later a policy's older revision goes on.
func TestReadsAreWaitedFor(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	c.create(policy("fine", saying("fine", "fine")))
	c.create(policy("p", saying("p", "one"), v1alpha1.PolicyRead{APIVersion: "v1", Kind: "Service"}))
	store := &holding{held: "Service"}
	r := c.start(options{facts: func(s *facts.Store) keeper.Facts { store.Store = s; return store }})
	r.awaitState("p", func(s catalog.State) bool { return s.Problem == v1alpha1.ReasonReadsNotSynced && s.Active == nil })
	if err := r.Ready(nil); err == nil || !strings.Contains(err.Error(), "policy p: spec.reads: ") || r.answer() != "nobody judges" {
		t.Errorf("before the first set: %q, %v", r.answer(), err)
	}
	store.hold("Pod")
	r.awaitReady()
	if got := r.answer(); got != "[fine/Never] fine\n[p/Never] one" {
		t.Errorf("got %q", got)
	}

	c.edit(func(p *v1alpha1.RegoPolicy) {
		text(saying("p", "two"))(p)
		p.Spec.Reads = append(p.Spec.Reads, v1alpha1.PolicyRead{APIVersion: "v1", Kind: "Pod"})
	})
	c.create(policy("q", saying("q", "q"), v1alpha1.PolicyRead{APIVersion: "v1", Kind: "Pod"}))
	r.awaitState("p", func(s catalog.State) bool { return lastGood(s) && s.Problem == v1alpha1.ReasonReadsNotSynced })
	r.awaitState("q", func(s catalog.State) bool { return s.Active == nil && s.Problem == v1alpha1.ReasonReadsNotSynced })
	if got := r.answer(); got != "[fine/Never] fine\n[p/Never] one" || r.Ready(nil) != nil {
		t.Errorf("while new reads are filled: %q, %v", got, r.Ready(nil))
	}
	store.hold("")
	r.awaitState("p", current)
	r.awaitState("q", current)
	if got := r.answer(); got != "[fine/Never] fine\n[p/Never] two\n[q/Never] q" {
		t.Errorf("got %q", got)
	}
}

// A kind that is missing is the trouble of the policy that reads it, also for a replica that starts, and no longer than it is.
func TestMissingKind(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	group := strings.ReplaceAll(c.namespace, "-", "") + ".test"
	c.create(policy("fine", saying("fine", "fine")))
	c.create(policy("p", saying("p", "one"), v1alpha1.PolicyRead{APIVersion: group + "/v1", Kind: "Thing"}))
	r := c.start(options{})
	r.awaitReady()
	s := r.awaitState("p", func(s catalog.State) bool { return s.Problem == v1alpha1.ReasonKindNotServed })
	if got := r.answer(); !strings.HasPrefix(got, "[fine/Never] fine\n[p/FactUnavailable] ") || !strings.Contains(got, group+"/v1 Thing: the API server does not serve this kind") || s.Active != nil {
		t.Errorf("got %q", got)
	}
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}}}},
		},
	}
	c.must(env.Shared(t).InstallCRDs(t.Context(), crd))
	r.awaitState("p", current)
	if got := r.answer(); got != "[fine/Never] fine\n[p/Never] one" {
		t.Errorf("got %q", got)
	}
}

// The right that is missing is told as the rule that would give it, and is noticed when it is there.
func TestForbiddenKind(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	config, err := env.Shared(t).UserConfig(c.namespace)
	c.must(err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"regopolicies"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"controllerrevisions"}, Verbs: []string{"list", "watch"}},
	}}
	c.create(role)
	c.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: c.namespace}},
	})
	c.create(policy("fine", saying("fine", "fine")))
	c.create(policy("p", saying("p", "one"), v1alpha1.PolicyRead{APIVersion: "apps/v1", Kind: "Deployment"}))
	r := c.start(options{config: config})
	r.awaitReady()
	s := r.awaitState("p", func(s catalog.State) bool { return s.Problem == v1alpha1.ReasonReadsForbidden })
	want := []catalog.Grant{{APIGroup: "apps", Resource: "deployments", Verbs: []string{"get", "list", "watch"}}}
	if diff := cmp.Diff(want, s.Missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const rule = `{"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list","watch"]}`
	helm := "helm upgrade gate CHART --namespace " + c.namespace + ` --reuse-values --set-json 'rbac.reads={"deployments.apps":true}'`
	for _, want := range []string{rule, helm} {
		if !strings.Contains(s.Err.Error(), want) {
			t.Errorf("got %v\nwithout %s", s.Err, want)
		}
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: want[0].Verbs})
	c.must(c.client.Update(t.Context(), role))
	r.awaitState("p", current)
}

// Without the API server a replica goes on as it is.
func TestAPIServerIsAway(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	cp, err := env.Start(t.Context(), env.Options{CRDs: crds})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, cp.Config)
	c.must(c.client.Create(t.Context(), policy("p", saying("p", "one"), v1alpha1.PolicyRead{APIVersion: "v1", Kind: "Service"})))
	r := c.start(options{})
	r.awaitReady()
	hash := r.Hash()
	c.must(cp.Stop())
	r.await("the API server to be away", func() bool {
		return c.client.List(t.Context(), &v1alpha1.RegoPolicyList{}) != nil
	})
	for range 3 {
		if err := r.Ready(nil); err != nil || r.answer() != "[p/Never] one" || r.Hash() != hash {
			t.Errorf("got %q, %v", r.answer(), err)
		}
	}
}

// The first set has all policies of the release: with some of them, requests would be admitted that the others deny.
func TestPoliciesOfTheReleaseAreWaitedFor(t *testing.T) {
	c := newCluster(t, env.Shared(t).Config)
	c.create(policy("p", saying("p", "one")))
	r := c.start(options{ships: []string{"p", "q"}})
	r.await("the replica to say what it waits for", func() bool {
		err := r.Ready(nil)
		return err != nil && err.Error() == "1 RegoPolicies of the release do not exist yet, such as q"
	})
	if set, _ := r.Decides(); set != nil {
		t.Error("there is a set without a policy of the release")
	}
	c.create(policy("q", saying("q", "two")))
	r.awaitReady()
	if set, _ := r.Decides(); set.Policy("p") == nil || set.Policy("q") == nil {
		t.Error("the first set has not both")
	}
}
