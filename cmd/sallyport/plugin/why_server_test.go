package plugin

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What a vCenter says of itself, as a person reads it. Marks of machines are whatever somebody has written.
func TestServersInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	ready := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) []metav1.Condition {
		c := v1alpha1.ConditionReady.Condition(status, reason, 1, message)
		c.LastTransitionTime = metav1.NewTime(now.Add(-3 * time.Minute))
		return []metav1.Condition{c}
	}
	connected := ready(metav1.ConditionTrue, v1alpha1.ReasonConnected, "")
	orphan := func(n int, of string) v1alpha1.VSphereOrphan {
		return v1alpha1.VSphereOrphan{Path: fmt.Sprintf("/dc/vm/web-%02d", n), UID: "0f0e", VirtualMachine: of}
	}
	var many []v1alpha1.VSphereOrphan
	for n := range 12 {
		many = append(many, orphan(n, "shop/web"))
	}
	for name, r := range map[string]*serverReport{
		"server-new":         {},
		"server-connected":   {Reconciled: true, Conditions: connected},
		"server-unavailable": {Reconciled: true, Conditions: ready(metav1.ConditionUnknown, v1alpha1.ReasonRuntimeUnavailable, "vCenter vc-1 did not answer in time")},
		"server-orphans": {Reconciled: true, Conditions: connected, OrphanCount: 2, Orphans: []v1alpha1.VSphereOrphan{
			{Path: "/dc/vm/unreadable"}, orphan(1, "shop/web-1"),
		}},
		"server-many-orphans": {Reconciled: true, Conditions: connected, OrphanCount: 30, Orphans: many},
		"server-hostile-mark": {Reconciled: true, Conditions: connected, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{
			orphan(1, "$(touch x)/web; rm -rf /"),
		}},
		"server-nameless-mark": {Reconciled: true, Conditions: connected, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{{Path: "/dc/vm/a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

func TestWhyAServer(t *testing.T) {
	w := newWorld(t)
	name := w.namespace() // which no other test has
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VSphereServerSpec{
		URL: "https://vc.example.org", CredentialsSecretRef: v1alpha1.CredentialsSecretReference{Name: "vc"},
		Trust: v1alpha1.VSphereTrust{CABundle: "-----BEGIN CERTIFICATE-----"},
	}}
	w.make(server)
	server.Status = v1alpha1.VSphereServerStatus{ObservedGeneration: server.Generation, OrphanCount: 1, Orphans: []v1alpha1.VSphereOrphan{
		{Path: "/dc/vm/shop/web-1", UID: "0f0e", VirtualMachine: "shop/web-1"},
	}}
	w.Must(w.Status().Update(w.Context(), server))
	shows(t, w.plugin("why svsrv "+name, 0).stdout, "VSphereServer "+name, "Waiting for: +nothing",
		"Orphans: +/dc/vm/shop/web-1: VirtualMachine shop/web-1 \\(UID 0f0e\\) does not exist", "Next step: +to manage a machine again, create its VirtualMachine, and then: kubectl sallyport take-over svm web-1 -n shop")
}
