package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// Many operations are not watched all at once, and none is missed.
func TestWatchesAreBounded(t *testing.T) {
	var operations []*v1alpha1.VirtualMachineOperation
	for i := range 4 * watchesAtMost {
		o := cli.NewOperation("team", fmt.Sprintf("web-%d", i), v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop})
		o.Name, o.ResourceVersion = fmt.Sprintf("stop-%d", i), "1"
		operations = append(operations, o)
	}
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		end := make(chan struct{})
		funcs := interceptor.Funcs{Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
			done := operations[begun.Add(1)-1].DeepCopy()
			done.Status.Phase = v1alpha1.OperationCompleted
			done.Status.Conditions = []metav1.Condition{v1alpha1.ConditionCompleted.Condition(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, 1, "")}
			changes := make(chan watch.Event, 1)
			go func() {
				<-end
				changes <- watch.Event{Type: watch.Modified, Object: done}
			}()
			return watch.NewProxyWatcher(changes), nil
		}}
		c := &cli.Cluster{WithWatch: interceptor.NewClient(fake.NewClientBuilder().WithScheme(cli.Scheme).Build(), funcs)}
		o := &operate{Plugin: cli.New(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})}
		succeeded := make(chan bool)
		go func() { succeeded <- o.await(t.Context(), c, operations) }()
		synctest.Wait()
		if n := begun.Load(); n != watchesAtMost {
			t.Errorf("%d are watched at once, want %d", n, watchesAtMost)
		}
		close(end)
		if !<-succeeded || int(begun.Load()) != len(operations) {
			t.Errorf("%d of %d were watched, or one of them was not seen to succeed", begun.Load(), len(operations))
		}
	})
}

// A watch that is refused, too old, cut or answered by an API server that is down is begun again; one that is forbidden is not.
func TestWaitingSurvivesTroubleWithTheWatch(t *testing.T) {
	operation := cli.NewOperation("team", "web-1", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop})
	operation.Name, operation.UID, operation.ResourceVersion = "web-1-stop-x", "uid-1", "1"
	succeeded, another := operation.DeepCopy(), operation.DeepCopy()
	succeeded.Status.Phase = v1alpha1.OperationCompleted
	succeeded.Status.Conditions = []metav1.Condition{v1alpha1.ConditionCompleted.Condition(metav1.ConditionTrue, v1alpha1.ReasonSucceeded, 1, "")}
	another.UID = "uid-2"
	expired := apierrors.NewResourceExpired("too old")
	for name, tc := range map[string]struct {
		trouble error         // of asking for the first watch
		events  []watch.Event // of the first watch, which then ends
		listed  *v1alpha1.VirtualMachineOperation
		lists   int
		wants   string // in the error; empty is success
	}{
		"the network":          {errors.New("connection refused"), nil, succeeded, 1, ""},
		"a restart":            {apierrors.NewServiceUnavailable("starting"), nil, succeeded, 1, ""},
		"too old":              {expired, nil, operation, 1, ""},
		"too old, as an event": {nil, []watch.Event{{Type: watch.Error, Object: new(expired.Status())}}, operation, 1, ""},
		"cut":                  {nil, nil, nil, 0, ""},
		"deleted":              {nil, []watch.Event{{Type: watch.Deleted, Object: operation}}, nil, 0, "was deleted before it finished"},
		"deleted at its end":   {nil, []watch.Event{{Type: watch.Deleted, Object: succeeded}}, nil, 0, ""},
		"gone meanwhile":       {expired, nil, another, 1, "no longer exists; its result is unknown"},
		"no right to watch":    {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("not you")), nil, nil, 0, "continues in the cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			lists, watches := 0, 0
			funcs := interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					lists++
					list.SetResourceVersion("2")
					list.(*v1alpha1.VirtualMachineOperationList).Items = []v1alpha1.VirtualMachineOperation{*tc.listed.DeepCopy()}
					return nil
				},
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					events, trouble := tc.events, tc.trouble
					if watches++; watches > 1 {
						events, trouble = []watch.Event{{Type: watch.Modified, Object: succeeded}}, nil
					}
					changes := make(chan watch.Event, len(events))
					for _, e := range events {
						changes <- e
					}
					close(changes)
					return watch.NewProxyWatcher(changes), trouble
				},
			}
			var out bytes.Buffer
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(cli.Scheme).Build(), funcs)
			w := &waiter{client: c, out: &out, operation: operation, from: operation.ResourceVersion}
			err := w.wait(t.Context(), time.Minute)
			if got := errText(err); tc.wants == "" && err != nil || !strings.Contains(got, tc.wants) || lists != tc.lists {
				t.Errorf("got %q, want %q; %d lists, want %d; the user reads\n%s", got, tc.wants, lists, tc.lists, out.String())
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	condition := func(reason v1alpha1.ConditionReason) []metav1.Condition {
		return []metav1.Condition{v1alpha1.ConditionCompleted.Condition(metav1.ConditionTrue, reason, 1, "")}
	}
	for want, status := range map[string]v1alpha1.VirtualMachineOperationStatus{
		"":                                    {Phase: v1alpha1.OperationCompleted, Conditions: condition(v1alpha1.ReasonSucceeded)},
		"was superseded by another operation": {Phase: v1alpha1.OperationCompleted, Conditions: condition(v1alpha1.ReasonSuperseded)},
		"was superseded by the deletion of the machine": {Phase: v1alpha1.OperationCompleted, SupersededBy: &v1alpha1.OperationReference{UID: "u"}},
		"did not succeed: Completed":                    {Phase: v1alpha1.OperationCompleted},
		"did not succeed: Failed, Denied":               {Phase: v1alpha1.OperationFailed, Conditions: condition("Denied")},
	} {
		err := outcome(&v1alpha1.VirtualMachineOperation{Status: status})
		if got := errText(err); got != want {
			t.Errorf("%+v: got %q, want %q", status, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
