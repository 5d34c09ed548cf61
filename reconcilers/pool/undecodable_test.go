package pool

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A pool with a member that does not decode creates no other one in its place. Its conditions name the member and the commands to run.
func TestAPoolWaitsForAMemberThatCannotBeDecoded(t *testing.T) {
	f := newFixture(t, 3, v1alpha1.ScaleDownNewestFirst)
	const says = "VirtualMachine team/web-1 cannot be decoded: spec.memory: bad; to correct it, run `kubectl edit virtualmachine.sallyport.dev web-1 -n team`"
	live, poisoned := f.Live, true
	f.Live = interceptor.NewClient(f.server.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, members := list.(*v1alpha1.VirtualMachineList); members && poisoned {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: "Undecodable", Message: says}}
			}
			return live.List(ctx, list, options...)
		},
	})
	f.scale(4)
	before := f.left()
	for range 3 {
		status, _, err := f.look()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v", err)
		}
		for _, of := range []v1alpha1.ConditionType{v1alpha1.ConditionProgressing, v1alpha1.ConditionReady} {
			c := of.In(status.Conditions)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(v1alpha1.ReasonFailedCreate) || !strings.Contains(c.Message, says) {
				t.Errorf("%s: got %+v", of, c)
			}
		}
	}
	if got := f.left(); got != before {
		t.Errorf("members %s, want %s", got, before)
	}
	poisoned = false
	if status := f.settle(); status.Replicas != 4 || v1alpha1.ConditionReady.In(status.Conditions).Status != metav1.ConditionTrue {
		t.Errorf("when it can be decoded: %+v", status)
	}
}
