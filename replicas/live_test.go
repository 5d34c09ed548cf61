package replicas

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Clocks of machines may differ: what counts is that a Lease is renewed.
func TestLiveByItsRenewals(t *testing.T) {
	for name, off := range map[string]time.Duration{"a clock like ours": 0, "one that is behind": -time.Hour, "one that is ahead": time.Hour, "one a bit behind": -50 * time.Second} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := f.replica("a")
			f.renew(r)
			other := f.replicaOf(f.config, Options{Name: "b", Now: func() time.Time { return f.Now().Add(off) }})
			f.Must(other.Report(t.Context(), "x"))
			if got := f.sees(r, other); got != (off > -time.Hour) {
				t.Errorf("at first sight: live is %v", got)
			}
			for range 5 { // longer than it counts
				f.add(5 * time.Second)
				f.renew(r)
				f.renew(other)
				if f.serving(r)[other.identity] != "x" {
					t.Fatal("it is renewed and does not count as live")
				}
			}
			f.add(10 * time.Second)
			f.renew(r)
			if !f.sees(r, other) {
				t.Error("it counts for as long as its Lease says")
			}
			f.change("sallyport-replica-b", func(lease *coordinationv1.Lease) {
				metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "theirs", "x")
			})
			f.add(5*time.Second + 1)
			f.renew(r)
			if f.sees(r, other) {
				t.Error("it was silent for longer than its Lease says; what others write into it is no renewal")
			}
			f.renew(other)
			if !f.sees(r, other) {
				t.Error("it is back")
			}
		})
	}
}

// While this process could not renew its own Lease the others need not have been able to either.
func TestNobodyIsDeadBecauseTheAPIServerWasAway(t *testing.T) {
	f := newFixture(t)
	r, other := f.replica("a"), f.replica("b")
	f.renew(r)
	f.renew(other)
	if !f.sees(r, other) {
		t.Fatal("it is live")
	}
	f.add(time.Hour) // without any renewal
	if !f.sees(r, other) {
		t.Error("the API server has just come back: it may be about to renew its Lease")
	}
	f.renew(r)
	f.add(10 * time.Second)
	f.renew(r)
	if !f.sees(r, other) {
		t.Error("it has not had its time yet")
	}
	f.add(5*time.Second + 1)
	f.renew(r)
	if f.sees(r, other) {
		t.Error("it has had its time")
	}
}

func TestLeasesOfReplicasThatAreGone(t *testing.T) {
	f := newFixture(t)
	r, skewed := f.replica("a"), f.replicaOf(f.config, Options{Name: "c", Now: func() time.Time { return f.Now().Add(-24 * time.Hour) }})
	f.renew(r)
	f.renew(skewed)
	long := metav1.NewMicroTime(f.Now().Add(-time.Hour))
	gone := func(name string, label string, spec coordinationv1.LeaseSpec) string {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: map[string]string{label: "true"}}, Spec: spec}
		f.Must(f.api.Create(t.Context(), lease))
		return name
	}
	old := gone("sallyport-replica-old", Label, coordinationv1.LeaseSpec{HolderIdentity: ptr.To("old_1"), RenewTime: &long, LeaseDurationSeconds: ptr.To[int32](15)})
	odd := gone("sallyport-replica-odd", Label, coordinationv1.LeaseSpec{})
	endless := gone("sallyport-replica-endless", Label, coordinationv1.LeaseSpec{HolderIdentity: ptr.To("e"), RenewTime: &long, LeaseDurationSeconds: ptr.To[int32](1<<31 - 1)})
	foreign := gone("sallyport-manager", "theirs", coordinationv1.LeaseSpec{RenewTime: &long})

	if got := f.serving(r); len(got) != 1 {
		t.Errorf("at first sight only it itself is live, not %v", got)
	}
	for range 10 {
		r.sweep(t.Context(), logr.Discard())
		if all := f.leases(); len(all) != 6 {
			t.Fatalf("too soon: %v", all)
		}
		f.add(15 * time.Second)
		f.renew(r)
		f.renew(skewed)
	}
	f.add(time.Second)
	r.sweep(t.Context(), logr.Discard())
	all := f.leases()
	if all[old] != nil || all[odd] != nil || all[endless] != nil {
		t.Error("what nobody has renewed for so long is still there")
	}
	if all[foreign] == nil || all["sallyport-replica-a"] == nil || all["sallyport-replica-c"] == nil {
		t.Errorf("what is no replica's, or renewed, is gone: %v", all)
	}
}

// The last that leaves knows that it is the last.
func TestOthersAfterTheEnd(t *testing.T) {
	f := newFixture(t)
	a, b := f.replica("a"), f.replica("b")
	f.renew(a)
	f.renew(b)
	others := func(r *Replica, want ...string) {
		t.Helper()
		got, err := r.Others(t.Context())
		f.Must(err)
		if !slices.Equal(got, want) {
			t.Errorf("the others are %v, want %v", got, want)
		}
	}
	others(b, a.identity)
	f.Must(a.Leave(t.Context()))
	others(a, b.identity)
	f.Must(b.Leave(t.Context()))
	others(b)

	// One that has crashed is none, as soon as its Lease has run out.
	c, crashed := f.replica("c"), f.replica("d")
	f.renew(c)
	f.renew(crashed)
	others(c, crashed.identity)
	for range 4 {
		f.add(5 * time.Second)
		f.renew(c)
	}
	f.Must(c.Leave(t.Context()))
	others(c)
}
