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
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The names of Pods and claims contain the UID of their object, so a restored object, which has another one, would
// get a second Pod and an empty disk beside its old ones. Leftovers of an earlier object of its name are searched for
// in the cache: they are not new.

// labelFormerMachine contains the UID of the VirtualMachine that had the claim before the current one.
const labelFormerMachine = "sallyport.dev/former-machine"

// asleep returns an error for a machine that would start from disks whose former machine is in a snapshot: its move
// was not completed before a restore, and the disks may be inconsistent without its memory. Users who may edit claims
// can write their labels, so the only consequence is a wait. If the registry does not answer, the machine is not held
// back.
func (r *Runtime) asleep(ctx context.Context, m runtime.Machine, disks []held) error {
	if r.Snapshots == nil || m.Earlier == runtime.MakeAnew {
		return nil
	}
	for _, d := range disks {
		former := m
		former.UID = types.UID(d.claim.Labels[labelFormerMachine])
		if former.UID == "" || former.UID == m.UID {
			continue
		}
		ref, err := r.Snapshots.Left(ctx, former)
		if err != nil || ref == "" {
			continue
		}
		return runtime.NewOwnedByAnother(nil, "the machine that last used VirtualDisk %s is in snapshot %s, which a move left when its VirtualMachine was lost, "+
			"as before a restore. Sallyport cannot restore it for another VirtualMachine. To start from the disks without it, as after a power failure: "+
			"%s", d.Name, ref, commands.Line("kubectl", "sallyport", "make-anew", "svm", m.Name, "-n", m.Namespace))
	}
	return nil
}

// succeed checks for Pods of an earlier VirtualMachine of m's name: such a Pod is an OwnedByAnother error, or is
// taken over if m says so, which it reports. Pods that are being deleted, or whose machine has ended, are ignored.
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

func ownedBy(m runtime.Machine) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: m.Name, UID: m.UID}, v1alpha1.GroupVersion.WithKind("VirtualMachine")),
	}
}

// takenOver returns the Pod that the machine took over, whose name has another UID, or nil.
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
