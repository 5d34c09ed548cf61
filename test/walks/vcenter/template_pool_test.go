//go:build !race

package vcenter

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// following is a pool of two that follows VSphereTemplate ubuntu and was not created yet.
func (s *site) following() *v1alpha1.VirtualMachinePool {
	spec := s.fromTemplate("").Spec
	spec.RestartApprovalMode = v1alpha1.RestartAutomatic
	return &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "ci"}, Spec: v1alpha1.VirtualMachinePoolSpec{
		Replicas: new(int32(2)), ScaleDownPolicy: v1alpha1.ScaleDownExplicit,
		VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: spec},
		Rollout:                v1alpha1.PoolRollout{FollowTemplate: true},
	}}
}

// members waits until a pool says that of its rollout, and its members run and are of these releases.
func (s *site) members(pool *v1alpha1.VirtualMachinePool, synced v1alpha1.ConditionReason, releases ...string) {
	s.Helper()
	s.until("the members are of these releases", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(pool), pool))
		got := ""
		if c := v1alpha1.ConditionSynced.In(pool.Status.Conditions); c != nil {
			got = c.Reason
		}
		for i := range releases {
			vm := &v1alpha1.VirtualMachine{}
			if stack.Client.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: fmt.Sprintf("ci-%d", i)}, vm) == nil && vm.Status.Template != nil {
				got += fmt.Sprintf(" %s %s", vm.Status.Phase, vm.Status.Template.Release)
			}
		}
		return got
	}, func() string {
		want := string(synced)
		for _, release := range releases {
			want += " Running " + release
		}
		return want
	}())
}

// The members of a pool are replaced, one after the other, when their template has another release, and a busy one when it is idle.
func TestPoolFollowsItsTemplate(t *testing.T) {
	t.Parallel()
	s := maker(t)
	i := s.images()
	s.clonesImages()
	o := s.template(i.Add("1", vcsim.OVA()))
	o.Spec.KeepVersions = 1
	s.create(o)
	pool := s.following()
	s.patiently(func() error { return stack.Client.Create(s.Context(), pool) })
	s.members(pool, v1alpha1.ReasonPoolSynced, "1", "1")

	first := &v1alpha1.VirtualMachine{}
	s.Must(stack.Client.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: "ci-0"}, first))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: busy.LeaseName(first.Name)}}
	busy.Mark(lease, first, "job", time.Now(), time.Hour)
	s.create(lease)
	s.releases(o, i.Add("2", vcsim.OVA()), "2")
	s.members(pool, v1alpha1.ReasonMembersBusy, "1", "2")

	s.Must(stack.Client.Delete(t.Context(), lease))
	update(s, first, func(vm *v1alpha1.VirtualMachine) { // a pool that waits for a Lease looks every half a minute, and when a member changes
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, v1alpha1.AnnotationBusyStamp, "idle")
	})
	s.members(pool, v1alpha1.ReasonPoolSynced, "2", "2")
	s.tells(pool, "Normal SuccessfulDelete deleted VirtualMachine ci-0, created from release 1, to replace it with release 2 of VSphereTemplate ubuntu")
	if !testing.Short() {
		s.releases(o, i.Add("2", vcsim.OVA()), "1")
		s.members(pool, v1alpha1.ReasonPoolSynced, "1", "1")
	}
	s.remove(pool)
}
