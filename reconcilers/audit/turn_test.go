package audit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slowFor takes its time for the objects of all policies but one.
type slowFor struct {
	byLabel
	except string
}

func (s slowFor) Evaluate(ctx context.Context, policy string, resource schema.GroupVersionResource, o *unstructured.Unstructured) (Evaluation, error) {
	if policy != s.except {
		time.Sleep(2 * time.Second)
	}
	return s.byLabel.Evaluate(ctx, policy, resource, o)
}

// One audit held the only worker for ten minutes. Now those that take their time, however many, cost others a turn of each at most, and
// have their ten minutes although they wait for turns.
func TestAuditsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []client.Object
		for i := range 250 {
			objects = append(objects, deployment("a", fmt.Sprint("d-", i), ""))
		}
		for i := range underWay - 1 {
			slow := policy(nil)
			slow.Name = fmt.Sprint("slow-", i)
			objects = append(objects, slow)
		}
		r, _ := reconcilerOver(t, append(objects, policy(nil))...)
		r.Evaluator, r.turns = slowFor{byLabel{"r1"}, "owners"}, semaphore.NewWeighted(atOnce)
		ended := make(chan string, underWay)
		for i := range underWay - 1 {
			name := fmt.Sprint("slow-", i)
			go func() {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
					t.Error(err)
				}
				ended <- name
			}()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		if got := audit(t, r); counted(got) != 250 {
			t.Errorf("found %+v", got)
		}
		if took := time.Since(began); took > 2*underWay*slice {
			t.Errorf("it took %v beside %d that take their time", took, underWay-1)
		}
		for range underWay - 1 {
			if got := r.Violations(<-ended); counted(got) != 250 {
				t.Errorf("one that took its time found %+v", got)
			}
		}
	})
}

// A list that hangs is waited for no longer than the API server works at one.
func TestAListThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := reconcilerOver(t, policy(nil))
		r.Live = hanging{r.Live}
		if got := audit(t, r); got.Incomplete != "listing deployments.apps: the API server took longer than 1m0s" {
			t.Errorf("got %+v", got)
		}
	})
}

type hanging struct{ client.Reader }

func (hanging) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}
