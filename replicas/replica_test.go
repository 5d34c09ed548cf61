package replicas

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
)

// quick has a replica renew its Lease often, and still count as live when this machine is busy.
func quick(name string) Options {
	return Options{Name: name, Duration: time.Minute, Renew: 50 * time.Millisecond}
}

// allow gives a user the rights that the documentation lists.
func (f *fixture) allow() *rest.Config {
	f.Helper()
	meta := metav1.ObjectMeta{Name: f.namespace, Namespace: f.namespace}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: f.namespace},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: f.namespace}},
		},
	} {
		f.Must(f.api.Create(f.Context(), o))
	}
	config, err := env.Shared(f.T).UserConfig(f.namespace)
	f.Must(err)
	as, err := client.New(config, client.Options{})
	f.Must(err)
	f.Eventually("the API server knows of it", func() bool {
		return as.List(f.Context(), &coordinationv1.LeaseList{}, client.InNamespace(f.namespace)) == nil
	})
	return config
}

func TestReplicasKnowOfEachOther(t *testing.T) {
	f := newFixture(t)
	config := f.allow()
	o := quick("a")
	o.UID, o.Version = "uid-of-the-pod", "v1"
	a, stop := f.start(config, o)
	b, _ := f.start(config, quick("b"))
	f.Eventually("each sees the other", func() bool { return f.sees(a, b) && f.sees(b, a) })

	versions, err := b.Versions(t.Context())
	f.Must(err)
	if diff := cmp.Diff(map[string]string{a.identity: "v1", b.identity: ""}, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}

	f.Must(a.Report(t.Context(), "certificate-a"))
	want := map[string]string{a.identity: "certificate-a", b.identity: ""}
	if diff := cmp.Diff(want, f.serving(b)); diff != "" {
		t.Errorf("once it is reported the others see it (-want +got):\n%s", diff)
	}
	b.ReportPolicies("policies-b")
	f.Eventually("policies are reported", func() bool {
		all, err := a.Policies(t.Context())
		f.Must(err)
		return cmp.Equal(all, map[string]string{a.identity: "", b.identity: "policies-b"})
	})

	lease := f.lease("sallyport-replica-a")
	f.Eventually("it is renewed", func() bool { return f.lease(lease.Name).Spec.RenewTime.After(lease.Spec.RenewTime.Time) })
	if got := f.lease(lease.Name).Spec.AcquireTime; !got.Equal(lease.Spec.AcquireTime) {
		t.Errorf("a renewal is no new beginning: from %v to %v", lease.Spec.AcquireTime, got)
	}
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "uid-of-the-pod"}}
	if diff := cmp.Diff(owners, lease.OwnerReferences); diff != "" {
		t.Errorf("it goes with its Pod (-want +got):\n%s", diff)
	}
	if owners := f.lease("sallyport-replica-b").OwnerReferences; len(owners) > 0 {
		t.Errorf("without a Pod it belongs to nobody, not to %v", owners)
	}

	stop()
	if !f.sees(b, a) {
		t.Error("who stops renewing has not left yet")
	}
	f.Must(a.Leave(t.Context()))
	if f.sees(b, a) || f.leases()[lease.Name] != nil {
		t.Error("it has left and is still there")
	}
	if err := a.Report(t.Context(), "late"); err == nil || f.leases()[lease.Name] != nil {
		t.Errorf("a report after that: %v", err)
	}
	f.Must(a.Leave(t.Context()))
}

func TestALeaseIsPutRight(t *testing.T) {
	f := newFixture(t)
	r, _ := f.start(f.config, quick("a"))
	f.Must(r.Report(t.Context(), "certificate"))
	r.ReportPolicies("policies")
	const name = "sallyport-replica-a"
	whole := func() bool {
		lease := f.leases()[name]
		return lease != nil && lease.Labels[Label] == "true" &&
			lease.Annotations[CertificateAnnotation] == "certificate" && lease.Annotations[PoliciesAnnotation] == "policies"
	}
	f.Eventually("all is reported", whole)

	before := f.lease(name)
	f.Must(f.api.Delete(t.Context(), before))
	f.Eventually("a deleted one is made anew", func() bool { return whole() && f.lease(name).UID != before.UID })

	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"sallyport.dev/replica":null,"theirs":"1"},"annotations":{"sallyport.dev/certificate":"forged","theirs":"2"}}}`))
	f.Must(f.api.Patch(t.Context(), before, patch))
	f.Eventually("an edited one is put right", whole)
	if lease := f.lease(name); lease.Labels["theirs"] != "1" || lease.Annotations["theirs"] != "2" {
		t.Errorf("what is not ours is gone: %v %v", lease.Labels, lease.Annotations)
	}
	r.ReportPolicies("")
	f.Eventually("an empty report is none", func() bool {
		_, is := f.lease(name).Annotations[PoliciesAnnotation]
		return !is
	})
}

func TestAContainerThatIsStartedAgainTakesItsLeaseOver(t *testing.T) {
	f := newFixture(t)
	old := f.replica("a")
	f.Must(old.Report(t.Context(), "of the process before"))
	begun := f.lease("sallyport-replica-a").Spec.AcquireTime
	f.add(time.Second)

	o := Options{Name: "a", UID: "uid-of-the-pod", Now: f.Now}
	r := f.replicaOf(f.config, o)
	f.renew(r)
	if diff := cmp.Diff(map[string]string{r.identity: ""}, f.serving(r)); diff != "" {
		t.Errorf("it has reported nothing, and the process before is not live (-want +got):\n%s", diff)
	}
	lease := f.lease("sallyport-replica-a")
	if len(f.leases()) != 1 || lease.Spec.AcquireTime.Equal(begun) || len(lease.OwnerReferences) != 1 {
		t.Errorf("it has not taken it over: %+v", lease)
	}
}

// Two processes of one name, which Kubernetes does not start, but people may.
func TestTwoProcessesOfOneName(t *testing.T) {
	f := newFixture(t)
	older, other := f.replica("a"), f.replica("b")
	f.Must(older.Report(t.Context(), "one"))
	newer := f.replica("a")
	f.Must(newer.Report(t.Context(), "two"))

	if got := f.serving(older); got[older.identity] != "one" || got[newer.identity] != "two" {
		t.Errorf("before it knows that its Lease is another's: %v", got)
	}
	for range 3 {
		f.renew(older)
		f.renew(newer)
	}
	want := map[string]string{older.identity: "one", newer.identity: "two", other.identity: ""}
	if diff := cmp.Diff(want, f.serving(other)); diff != "" {
		t.Errorf("both are counted (-want +got):\n%s", diff)
	}
	if all := f.leases(); len(all) != 2 || *all["sallyport-replica-a"].Spec.HolderIdentity != newer.identity {
		t.Errorf("they take turns: %v", all)
	}
	f.Must(older.Leave(t.Context()))
	if all := f.leases(); len(all) != 1 || all["sallyport-replica-a"] == nil {
		t.Errorf("who leaves takes its own Lease along: %v", all)
	}
	// Nor does who leaves before it knows.
	last := f.replica("a")
	f.renew(last)
	f.Must(newer.Leave(t.Context()))
	f.lease("sallyport-replica-a")
}

func TestTheAPIServerIsAway(t *testing.T) {
	f := newFixture(t)
	config, api := f.troubled()
	o := quick("a")
	o.Duration = 3 * time.Second // a request may take a third of it
	r, _ := f.start(config, o)
	watcher := f.replica("b")
	f.Eventually("it is there", func() bool { return f.sees(watcher, r) })

	api.how.Store(away)
	if err := r.Report(t.Context(), "while it is away"); err == nil || !strings.Contains(err.Error(), errTrouble.Error()) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Serving(t.Context()); err == nil {
		t.Error("nobody can know what is served")
	}
	api.how.Store(fine)
	f.Eventually("the report is made without another call", func() bool { return f.serving(watcher)[r.identity] == "while it is away" })

	api.how.Store(hangs)
	tried := api.tried.Load()
	for _, hash := range []string{"1", "2", "3"} {
		r.ReportPolicies(hash) // returns, or the test does not
	}
	f.Eventually("a request that hangs is given up", func() bool { return api.tried.Load() > tried+1 })
	api.how.Store(fine)
	f.Eventually("the last report is made", func() bool { return f.lease("sallyport-replica-a").Annotations[PoliciesAnnotation] == "3" })
}

func TestRepliesAreLost(t *testing.T) {
	f := newFixture(t)
	config, api := f.troubled()
	r := f.replicaOf(config, Options{Name: "a", Now: f.Now})
	for i, what := range []string{"the Lease is made", "it is renewed", "it is renewed again"} {
		hash := strings.Repeat("x", i+1)
		api.how.Store(replyLost)
		if err := r.Report(t.Context(), hash); err == nil {
			t.Errorf("%s: it cannot know", what)
		}
		if got := f.lease("sallyport-replica-a").Annotations[CertificateAnnotation]; got != hash {
			t.Fatalf("%s: got %q", what, got)
		}
		api.how.Store(fine)
		f.renew(r)
		if all := f.leases(); len(all) != 1 {
			t.Errorf("%s: it does not know its own Lease any more: %v", what, all)
		}
	}
	api.how.Store(replyLost)
	if err := r.Leave(t.Context()); err == nil {
		t.Error("it cannot know whether it has left")
	}
	api.how.Store(fine)
	f.Must(r.Leave(t.Context()))
	if all := f.leases(); len(all) > 0 {
		t.Errorf("it has not left: %v", all)
	}
}

func TestManyWriteAtATime(t *testing.T) {
	f := newFixture(t)
	r, _ := f.start(f.config, quick("a"))
	f.renew(r)
	done := make(chan error)
	for i := range 10 {
		go func() {
			r.ReportPolicies(strings.Repeat("p", i+1))
			done <- r.Report(context.WithoutCancel(t.Context()), strings.Repeat("c", i+1))
		}()
	}
	theirs := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"theirs":"x"}}}`))
	for range 10 {
		f.Must(f.api.Patch(t.Context(), f.lease("sallyport-replica-a"), theirs))
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	_, reports := r.own() // whichever was last
	f.Eventually("the last report stands", func() bool {
		all := f.lease("sallyport-replica-a").Annotations
		return all[CertificateAnnotation] == reports[CertificateAnnotation] && all[PoliciesAnnotation] == reports[PoliciesAnnotation] && all["theirs"] == "x"
	})
}

func TestNames(t *testing.T) {
	for name, says := range map[string]string{
		"":                       "cannot be the name of a replica",
		"My_Laptop":              "cannot be the name of a replica",
		strings.Repeat("x", 230): "longer than",
	} {
		if _, err := New(&rest.Config{}, Options{Namespace: "n", Name: name}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, o := range []Options{{Name: "a"}, {Namespace: "n", Name: "a", Duration: 1500 * time.Millisecond}, {Namespace: "n", Name: "a", Renew: 8 * time.Second}} {
		if _, err := New(&rest.Config{}, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if _, err := New(&rest.Config{}, Options{Namespace: "n", Name: strings.Repeat("x", 220)}); err != nil {
		t.Error(err)
	}
}
