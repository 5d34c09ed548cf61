//go:build !race

package vcenter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

// inVCenter are the machines that bear the mark of a VirtualMachine of the namespace, and how often each was powered on.
func (s *site) inVCenter() string {
	var all []string
	for _, path := range s.vcenter.Machines() {
		state := s.vcenter.State(path)
		if name, ours := strings.CutPrefix(state.ExtraConfig[machine.NameKey], s.name+"/"); ours && state.ExtraConfig[machine.OwnerKey] != "" {
			all = append(all, fmt.Sprintf("%s %s %d", name, state.Power, state.PowerOns))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// annotate writes the UID of an object into it.
func (s *site) annotate(o client.Object, key string) {
	s.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, o.GetUID())
	s.Must(stack.Client.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// lose deletes objects and leaves their machines, as the loss of the cluster does.
func (s *site) lose(vms []v1alpha1.VirtualMachine) {
	s.Helper()
	for i := range vms {
		s.annotate(&vms[i], v1alpha1.AnnotationAbandonInstance)
		s.remove(vms[i].DeepCopy())
	}
}

// backup gives an object as a backup tool restores it.
func backup[T client.Object](o T) T {
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	return o
}

// Of a backup that is restored beside the machines, no machine gets a second one: each is held back until it is taken over, and then
// goes on as it was (velero#2554, cluster-api#5957, crossplane#1410). What has been carried out is not carried out again. All of them are
// protected from deletion, which must not be in the way.
func TestRestoredBesideMachines(t *testing.T) {
	t.Parallel()
	s := maker(t)
	solo := s.made()
	solo.Name = "solo"
	s.shows(s.adopt(solo), asWanted)
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "ci"}, Spec: v1alpha1.VirtualMachinePoolSpec{
		Replicas: new(int32(2)), ScaleDownPolicy: v1alpha1.ScaleDownNewestFirst,
		VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: s.made().Spec},
	}}
	s.patiently(func() error { return stack.Client.Create(s.Context(), pool) })
	s.shows(pool, asWanted)
	restart := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "restart"}, Spec: v1alpha1.VirtualMachineOperationSpec{
		Type: v1alpha1.OperationRestart, VirtualMachineName: "solo", Force: true,
	}}
	s.patiently(func() error { return stack.Client.Create(s.Context(), restart) })
	const all = "ci-0 Running 1, ci-1 Running 1, solo Running 2"
	s.until("the machine was restarted", s.inVCenter, all)
	s.shows(solo, asWanted)

	var vms v1alpha1.VirtualMachineList
	s.Must(stack.Client.List(s.Context(), &vms, client.InNamespace(s.name)))
	s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(restart), restart))
	s.remove(restart.DeepCopy())
	s.remove(pool.DeepCopy())
	s.lose(vms.Items)
	if got := s.inVCenter(); got != all {
		t.Fatalf("before the restore vCenter has %s", got)
	}

	for i := range vms.Items {
		vm := protected(backup(&vms.Items[i]))
		vm.Status = v1alpha1.VirtualMachineStatus{}
		s.adopt(vm)
	}
	pool = protected(backup(pool))
	pool.Status = v1alpha1.VirtualMachinePoolStatus{}
	s.patiently(func() error { return stack.Client.Create(s.Context(), pool) })
	restart = backup(restart)
	restart.Status = v1alpha1.VirtualMachineOperationStatus{}
	if err := stack.Client.Create(s.Context(), restart); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "OperationCopied") {
		t.Errorf("an operation of the backup was created: %v", err)
	}
	for i := range vms.Items {
		vm := &vms.Items[i]
		s.warns(vm, "False", fmt.Sprintf("OwnedByAnother machine %q in vCenter %s is marked for %s/%s with another UID, as after a restore, or in another "+
			"cluster. To use it: kubectl sallyport take-over svm %[4]s -n %[3]s. To leave it alone and create another one: kubectl sallyport make-anew svm "+
			"%[4]s -n %[3]s", s.called(vm.Name), s.name, s.name, vm.Name))
	}
	s.until("the pool took its members in", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(pool), pool))
		if c := v1alpha1.ConditionAvailable.In(pool.Status.Conditions); c != nil {
			return c.Message
		}
		return ""
	}, fmt.Sprintf("0 of 2 members are ready; held back: ci-0, ci-1 (kubectl sallyport why svm NAME -n %s)", s.name))
	if got := s.inVCenter(); got != all {
		t.Fatalf("after the restore vCenter has %s", got)
	}

	for i := range vms.Items {
		s.annotate(&vms.Items[i], v1alpha1.AnnotationTakeOver)
	}
	for i := range vms.Items {
		s.shows(&vms.Items[i], asWanted)
	}
	s.shows(pool, asWanted)
	if got := s.inVCenter(); got != all {
		t.Errorf("in the end vCenter has %s", got)
	}
	// They are the restored ones' now, to the end.
	for i := range vms.Items {
		s.owned("/DC0/vm/"+s.called(vms.Items[i].Name), &vms.Items[i])
	}
	s.unprotect(pool)
	for i := range vms.Items {
		s.unprotect(&vms.Items[i])
	}
	s.remove(pool)
	for i := range vms.Items {
		s.remove(&vms.Items[i])
	}
	s.until("nothing is left", s.inVCenter, "")
}

// protected labels an object, so that it is not deleted.
func protected[T client.Object](o T) T {
	labels := map[string]string{v1alpha1.LabelDeletionProtection: v1alpha1.DeletionProtectionEnabled}
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
	return o
}

// unprotect takes the label off with an override.
func (s *site) unprotect(o client.Object) {
	s.Helper()
	override := fmt.Sprintf("deletion-protected; uid=%s; by=admin; until=%s; the test ends", o.GetUID(), time.Now().Add(20*time.Minute).UTC().Format(time.RFC3339))
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:%q}}}`, v1alpha1.LabelDeletionProtection, v1alpha1.AnnotationOverride, override)
	s.Must(stack.Client.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// called is what vCenter calls the only machine of a VirtualMachine.
func (s *site) called(name string) string {
	s.Helper()
	for _, path := range s.vcenter.Machines() {
		if s.vcenter.State(path).ExtraConfig[machine.NameKey] == s.name+"/"+name {
			return strings.TrimPrefix(path, "/DC0/vm/")
		}
	}
	s.Fatalf("vCenter has no machine of %s", name)
	return ""
}
