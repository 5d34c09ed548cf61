//go:build kubevirt

package kubevirt

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/test/support/virt"
)

// settle waits until Kubernetes has carried out a change of a claim, since the suite looks at once.
func settle(t *testing.T, s *site, o client.Object, err error, deleted bool) error {
	if _, is := o.(*corev1.PersistentVolumeClaim); is && err == nil {
		s.in(t).Eventually("claim "+o.GetName()+" is settled", func() bool { return s.Settled(s.Context(), client.ObjectKeyFromObject(o), deleted) })
	}
	return err
}

// imageClaim returns what a disk of an image is made from. Nothing copies its data.
func imageClaim(t *testing.T, s *site, namespace string) runtime.DiskSource {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "image"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(virt.StorageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")}},
		},
	}
	s.in(t).Must(s.Create(t.Context(), claim))
	return runtime.DiskSource{Image: "image-uid", Snapshot: "image", Claim: client.ObjectKeyFromObject(claim)}
}

// plugInFlight observes a disk while KubeVirt plugs it into a machine that is on, and while it unplugs it.
func plugInFlight(t *testing.T, s *site) {
	h := newHarness(t, s, true)
	s = s.in(t)
	rt, m, d := h.Runtime.(*kubevirt.Runtime), h.Machine(t, "plugging"), h.Disk(t, "plugged")
	is := func(what string, want func(runtime.Observation) bool) {
		t.Helper()
		s.Until(what, func() (string, bool) {
			seen, err := rt.Observe(t.Context(), m)
			s.Must(err)
			return fmt.Sprintf("%+v", seen), want(seen)
		})
	}
	quiet := func(disks int) func(runtime.Observation) bool {
		return func(o runtime.Observation) bool {
			return o.Quiet() && o.Power == v1alpha1.PowerRunning && len(o.Disks) == disks && o.Plugging == ""
		}
	}
	plugging := func(o runtime.Observation) bool { return o.Plugging != "" }
	_, err := rt.Ensure(t.Context(), m)
	s.Must(err)
	s.Must(rt.PowerOn(t.Context(), m))
	is("the machine is on", quiet(0))
	d.ID, err = rt.EnsureDisk(t.Context(), d)
	s.Must(err)
	m = m.With(d)

	release := s.Agent.Hold(m.NamespacedName, runtime.TaskReconfigure)
	for range 2 {
		s.Must(rt.Attach(t.Context(), m, d))
		is("the disk is being plugged in", plugging)
	}
	if err := rt.Detach(t.Context(), m, d.UID); !runtime.IsInvalidState(err) {
		t.Errorf("detaching what is being attached: %v", err)
	}
	if err := rt.Migrate(t.Context(), m, runtime.Target{}); !runtime.IsInvalidState(err) {
		t.Errorf("moving while a disk is being attached: %v", err)
	}
	release()
	is("the disk is plugged in", quiet(1))
	release = s.Agent.Hold(m.NamespacedName, runtime.TaskReconfigure)
	for range 2 {
		s.Must(rt.Detach(t.Context(), m, d.UID))
		is("the disk is being unplugged", plugging)
	}
	if err := rt.DeleteDisk(t.Context(), d); !runtime.IsInvalidState(err) {
		t.Errorf("deleting what is being detached: %v", err)
	}
	release()
	is("the disk is unplugged", quiet(0))

	release = s.Agent.Hold(m.NamespacedName, runtime.TaskReconfigure)
	s.Must(rt.Attach(t.Context(), m, d))
	is("the disk is being plugged in again", plugging)
	s.Must(rt.PowerOff(t.Context(), m, runtime.Graceful)) // the disk may never be plugged in
	is("the machine is off", func(o runtime.Observation) bool { return o.Quiet() && o.Power == v1alpha1.PowerStopped })
	release()
	s.Must(rt.Detach(t.Context(), m, d.UID))
	s.Must(rt.DeleteDisk(t.Context(), d))
}

// declarative has KubeVirt plug in what the templates of machines have, and waits until virt-api has heard of it.
func (s *site) declarative(t *testing.T) {
	s = s.in(t)
	var list virtv1.KubeVirtList
	s.Must(s.List(t.Context(), &list))
	list.Items[0].Spec.Configuration.DeveloperConfiguration.FeatureGates = []string{"DeclarativeHotplugVolumes"}
	s.Must(s.Update(t.Context(), &list.Items[0]))
	rt, m := connect(t, s, &faults{}), machine(s.namespace(), "gates", true)
	_, err := rt.Ensure(t.Context(), m)
	s.Must(err)
	s.reach(rt, m, v1alpha1.PowerRunning)
	s.Eventually("virt-api has the feature gate", func() bool {
		none := &virtv1.RemoveVolumeOptions{Name: "none", DryRun: []string{metav1.DryRunAll}}
		return apierrors.IsBadRequest(rt.Subresources.Put(t.Context(), "virtualmachineinstances", m.NamespacedName, "removevolume", none))
	})
	s.reach(rt, m, v1alpha1.PowerStopped)
}
