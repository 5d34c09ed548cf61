package pod

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The names of Pods and of claims have the UID of their object, so that a restored object, which has another one, would get a second Pod
// and an empty disk beside those that it had. What an earlier object of its name has left is searched for in the cache: it has been there
// for a while.

// LabelTakenOver has the UID of the VirtualDisk that took over a claim. The claim keeps its name, and the UID in it.
const LabelTakenOver = "sallyport.dev/taken-over-by"

// succeed deals with the Pods that an earlier VirtualMachine of the name of m has: one is an OwnedByAnother error, or is taken over, if m
// says so, which it tells. A Pod that is going, or whose machine has ended, does not matter.
func (r *Runtime) succeed(ctx context.Context, m runtime.Machine) (did bool, err error) {
	if m.Earlier == runtime.MakeAnew {
		return false, nil
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(m.Namespace), client.HasLabels{agent.LabelMachine}); err != nil {
		return false, failed(err, "listing the Pods of machines")
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		first := nameOf(runtime.Machine{NamespacedName: m.NamespacedName, UID: types.UID(p.Labels[agent.LabelMachine])})
		return p.Labels[agent.LabelMachine] == string(m.UID) || p.Name != first && !strings.HasPrefix(p.Name, first+"-") ||
			!p.DeletionTimestamp.IsZero() || (&sight{pod: &p}).ended()
	})
	switch {
	case len(pods) == 0:
		return false, nil
	case m.Earlier != runtime.TakeOver:
		return false, runtime.NewHeldBack("svm", m.NamespacedName, "Pod %s", pods[0].Name)
	case len(pods) > 1:
		return false, runtime.NewOwnedByAnother(nil, "%d Pods are machines of an earlier VirtualMachine %s, such as %s and %s: delete all but the one to take over",
			len(pods), m.Name, pods[0].Name, pods[1].Name)
	}
	changed := pods[0].DeepCopy()
	changed.Labels[agent.LabelMachine], changed.OwnerReferences = string(m.UID), ownedBy(m)
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(&pods[0], client.MergeFromWithOptimisticLock{})); err != nil {
		return false, failed(err, "taking over Pod %s", changed.Name)
	}
	return true, nil
}

// ownedBy is the controller reference of what belongs to a machine.
func ownedBy(m runtime.Machine) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: m.Name, UID: m.UID}, v1alpha1.GroupVersion.WithKind("VirtualMachine")),
	}
}

// takenOver gives the Pod that the machine took over, whose name has another UID, or nil.
func (r *Runtime) takenOver(ctx context.Context, m runtime.Machine) (*corev1.Pod, error) {
	if m.InstanceID != "" || m.Earlier != runtime.TakeOver {
		return nil, nil
	}
	var list corev1.PodList
	err := r.Live.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabels{agent.LabelMachine: string(m.UID)})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// succeedDisk deals with the claims that an earlier VirtualDisk of the name of d has, as succeed does with Pods.
func (r *Runtime) succeedDisk(ctx context.Context, d runtime.Disk) (*corev1.PersistentVolumeClaim, error) {
	if d.Earlier == runtime.MakeAnew {
		return nil, nil
	}
	var list corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &list, client.InNamespace(d.Namespace), client.HasLabels{LabelDisk}); err != nil {
		return nil, failed(err, "listing the PersistentVolumeClaims of disks")
	}
	claims := slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool {
		return c.Name != claimName(d.Name, types.UID(c.Labels[LabelDisk])) || !c.DeletionTimestamp.IsZero()
	})
	switch {
	case len(claims) == 0:
		return nil, nil
	case d.Earlier != runtime.TakeOver:
		return nil, runtime.NewHeldBack("svd", d.NamespacedName, "PersistentVolumeClaim %s", claims[0].Name)
	case len(claims) > 1:
		return nil, runtime.NewOwnedByAnother(nil, "%d PersistentVolumeClaims are the disk of an earlier VirtualDisk %s, such as %s and %s: delete all but the "+
			"one to take over", len(claims), d.Name, claims[0].Name, claims[1].Name)
	}
	err := r.changeClaim(ctx, &claims[0], "taking over", func(c *corev1.PersistentVolumeClaim) { c.Labels[LabelTakenOver] = string(d.UID) })
	return &claims[0], err
}

// takenOverClaim gives the claim that the disk took over, or nil.
func (r *Runtime) takenOverClaim(ctx context.Context, d runtime.Disk) (*corev1.PersistentVolumeClaim, error) {
	if d.ID != "" {
		return nil, nil
	}
	var list corev1.PersistentVolumeClaimList
	err := r.Live.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabels{LabelTakenOver: string(d.UID)}, client.HasLabels{LabelDisk})
	for i := range list.Items {
		if err == nil && diskOf(&list.Items[i]).Name == d.Name {
			return &list.Items[i], nil
		}
	}
	return nil, err
}

// ownDisks notes of disks of a Pod that were taken over which they are now. The volumes of a Pod, which name them, cannot change.
func (r *Runtime) ownDisks(ctx context.Context, s *sight) error {
	for i, d := range s.disks {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.pod.Namespace, Name: claimName(d.Name, d.UID)}, claim)
		if client.IgnoreNotFound(err) != nil {
			return failed(err, "reading the PersistentVolumeClaim of VirtualDisk %s", d.Name)
		}
		if err == nil && claim.Labels[LabelTakenOver] != "" {
			s.disks[i].UID = diskOf(claim).UID
		}
	}
	return nil
}
