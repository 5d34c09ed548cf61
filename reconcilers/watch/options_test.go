package watch_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/reconcilers/watch"
)

// Controllers of machines serve namespaces in turn, however many machines one has.
func TestNamespacesOfMachinesTakeTurns(t *testing.T) {
	o := watch.Options(time.Minute)
	q := o.NewQueue("", o.RateLimiter)
	defer q.ShutDown()
	for _, of := range []types.NamespacedName{{Namespace: "a", Name: "1"}, {Namespace: "a", Name: "2"}, {Namespace: "a", Name: "3"}, {Namespace: "b", Name: "1"}} {
		q.Add(reconcile.Request{NamespacedName: of})
	}
	for i, want := range []string{"a/1", "b/1", "a/2", "a/3"} {
		if got, _ := q.Get(); got.String() != want {
			t.Errorf("%d: got %s, want %s", i, got, want)
		}
	}
}
