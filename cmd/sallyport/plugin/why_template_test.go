package plugin

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What a template says of itself, as a person reads it.
func TestTemplatesInShort(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	domain := func(name string, step v1alpha1.VSphereTemplateStep, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string, releases ...string) v1alpha1.VSphereFailureDomainStatus {
		c := v1alpha1.ConditionReady.Condition(status, reason, 1, message)
		c.LastTransitionTime = metav1.NewTime(now.Add(-3 * time.Minute))
		d := v1alpha1.VSphereFailureDomainStatus{Name: name, Step: step, Conditions: []metav1.Condition{c}}
		for i, r := range releases {
			if i == 0 {
				d.Release = r
			}
			d.Versions = append(d.Versions, v1alpha1.VSphereTemplateVersion{Release: r, Name: "ubuntu-" + r})
		}
		return d
	}
	importing := domain("a", v1alpha1.VSphereTemplateImporting, metav1.ConditionFalse, v1alpha1.ReasonTemplateInProgress, "release 3 is in progress", "2", "1")
	importing.Progress = new(int32(40))
	for name, r := range map[string]*templateReport{
		"template-new": {},
		"template-done": {Reconciled: true, Users: []string{"svm/web-1", "svmpool/ci"}, Status: v1alpha1.VSphereTemplateStatus{FailureDomains: []v1alpha1.VSphereFailureDomainStatus{
			domain("a", v1alpha1.VSphereTemplateDone, metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, "", "2"),
		}}},
		"template-under-way": {Reconciled: true, Status: v1alpha1.VSphereTemplateStatus{FailureDomains: []v1alpha1.VSphereFailureDomainStatus{
			importing,
			domain("b", v1alpha1.VSphereTemplateWaiting, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "spec.failureDomains[b].folder: vCenter vc-1 has no folder at /dc/vm/b, or does not show it"),
		}}},
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

func TestWhyATemplate(t *testing.T) {
	w := newWorld(t)
	namespace := w.namespace()
	o := &v1alpha1.VSphereTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ubuntu"}, Spec: v1alpha1.VSphereTemplateSpec{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"}, Name: "ubuntu", Release: "1",
		Source:         v1alpha1.VSphereTemplateSource{URL: "https://images.example.org/1.ova", SHA256: strings.Repeat("a", 64)},
		FailureDomains: []v1alpha1.VSphereFailureDomain{{Name: "a", Folder: "/dc/vm/a", ResourcePool: "/dc/host/a", Datastore: "/dc/datastore/a", Network: "/dc/network/a"}},
	}}
	w.make(o)
	spec := v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"},
		Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: "ubuntu"}},
			Folder:   "/dc/vm/a", ResourcePool: "/dc/host/a", Datastore: "/dc/datastore/a", Networks: []v1alpha1.InventoryPath{"/dc/network/a"},
		},
	}}}
	w.make(
		&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"}, Spec: spec},
		&v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made"}, Spec: spec, Status: v1alpha1.VirtualMachineStatus{InstanceID: "i"}},
	)
	w.make(&v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ci"}, Spec: v1alpha1.VirtualMachinePoolSpec{
		ScaleDownPolicy: v1alpha1.ScaleDownNewestFirst, VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: spec},
	}})
	shows(t, w.plugin("why svst ubuntu -n "+namespace, 0).stdout, "VSphereTemplate ubuntu in namespace "+namespace,
		"Releases: +none", "Waiting for: +reconciliation of the latest change", "Used by: +svm/waiting, svmpool/ci")
}
