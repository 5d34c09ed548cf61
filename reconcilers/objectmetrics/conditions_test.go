package objectmetrics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func condition(kind v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, since int64) metav1.Condition {
	c := kind.Condition(status, reason, 1, "")
	c.LastTransitionTime = metav1.Unix(since, 0)
	return c
}

// Conditions of all kinds are counted, with the time of the oldest. Neither names nor words that are not of the API become labels, and only
// the leader reports.
func TestConditions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	machine := func(name string, conditions ...metav1.Condition) *v1alpha1.VirtualMachine {
		return &v1alpha1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, CreationTimestamp: metav1.Unix(7, 0)},
			Status:     v1alpha1.VirtualMachineStatus{Conditions: conditions},
		}
	}
	objects := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(
		machine("a", condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstanceLost, 300),
			condition(v1alpha1.ConditionPlacementSettled, metav1.ConditionFalse, "TooManyMigrations", 500)),
		machine("b", condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstanceLost, 200),
			condition("Invented", metav1.ConditionTrue, "Invented", 1)),
		machine("new"),
		&v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: "vc"}, Status: v1alpha1.VSphereServerStatus{
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonConnected, 400)},
		}},
	).Build()
	elected := make(chan struct{})
	conditions := &Conditions{Cache: objects, Elected: elected, RuntimeOf: func(o runtime.Object) string {
		if _, is := o.(*v1alpha1.VirtualMachine); is {
			return "pod"
		}
		return ""
	}}
	if n := testutil.CollectAndCount(conditions); n != 0 {
		t.Errorf("a replica that does not lead reports %d metrics", n)
	}
	close(elected)
	text, err := testutil.CollectAndFormat(conditions, expfmt.TypeTextPlain, "sallyport_conditions", "sallyport_conditions_since_timestamp_seconds")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, values := range [][]string{{"sallyport_conditions", "1", "2", "1", "1"}, {"sallyport_conditions_since_timestamp_seconds", "400", "200", "7", "500"}} {
		for i, labels := range []string{
			`{kind="VSphereServer",reason="Connected",runtime="",status="True",type="Ready"}`,
			`{kind="VirtualMachine",reason="InstanceLost",runtime="pod",status="False",type="Ready"}`,
			`{kind="VirtualMachine",reason="None",runtime="pod",status="Unknown",type="Ready"}`,
			`{kind="VirtualMachine",reason="other",runtime="pod",status="False",type="PlacementSettled"}`,
		} {
			want = append(want, values[0]+labels+" "+values[i+1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
