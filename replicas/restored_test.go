package replicas

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A process that has seen a later version of its Lease than there is ends, once it has recorded why. TestFailover of test/walks/chart restores etcd.
func TestEtcdIsRestored(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture, *Replica){
		"the Lease is older": func(f *fixture, r *Replica) { // the write meets a conflict
			r.known.ResourceVersion = "1"
		},
		"the Lease was made later": func(f *fixture, r *Replica) {
			f.Must(r.leases.Delete(f.Context(), r.name, metav1.DeleteOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			recorded := 0
			r := f.replicaOf(f.config, Options{Name: "a", Restored: func(context.Context) error {
				if recorded++; recorded < 3 {
					return errors.New("the API server is not ready")
				}
				return nil
			}})
			f.renew(r)
			f.Must(r.Confirm(f.Context()))
			r.version = "9" + r.version // as before the restore
			meanwhile(f, r)
			if err := r.Confirm(f.Context()); !errors.Is(err, ErrRestored) {
				t.Errorf("before something is done: %v", err)
			}
			if err := r.Report(f.Context(), "certificate"); !errors.Is(err, ErrRestored) {
				t.Errorf("a report: %v", err)
			}
			if err := r.Start(f.Context()); !errors.Is(err, ErrRestored) || recorded != 3 {
				t.Errorf("it ended with %v, and recorded that %d times", err, recorded)
			}
			f.renew(f.replica("a")) // the next process of that name
		})
	}
}
