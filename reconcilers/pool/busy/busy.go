// Package busy is how machines are marked as busy: what is in the Leases that do it, for those who write them and those who read them.
package busy

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Longest is how long one write of a Lease can mark a machine as busy. A job that takes longer renews it.
const Longest = 24 * time.Hour

// LeaseName is the name of the Lease of a machine. There is one for each, so that two jobs see each other.
func LeaseName(machine string) string { return machine + "-busy" }

// Mark has a Lease say that a machine is busy from now on for so long.
func Mark(lease *coordinationv1.Lease, vm *v1alpha1.VirtualMachine, holder string, now time.Time, during time.Duration) {
	since, seconds := metav1.NewMicroTime(now), int32(math.Ceil(min(during, Longest).Seconds()))
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder || Of(lease) != vm.UID {
		lease.Spec.AcquireTime = &since
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &holder, &since, &seconds
	metav1.SetMetaDataLabel(&lease.ObjectMeta, v1alpha1.LabelBusyMachine, string(vm.UID))
	// It goes with the machine. It is no controller of it, and holds nothing up.
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VirtualMachine", Name: vm.Name, UID: vm.UID,
	}}
}

// Of is the UID of the machine that a Lease marks as busy, empty if it marks none.
func Of(lease *coordinationv1.Lease) types.UID {
	return types.UID(lease.Labels[v1alpha1.LabelBusyMachine])
}

// Until returns when a Lease no longer marks its machine as busy. One that nobody holds, or that does not say how long it lasts, never
// was; one that was renewed in the future, by a clock that is ahead, lasts no longer than from now on. Policy pools-scale-down says the
// same in Rego.
func Until(lease *coordinationv1.Lease, now time.Time) time.Time {
	if Of(lease) == "" || Holder(lease) == "" || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	renewed := lease.Spec.RenewTime.Time
	if renewed.After(now) {
		renewed = now
	}
	return renewed.Add(min(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second, Longest))
}

// Note keeps a Lease by the UID of the machine that it marks, if that is busy now. Of several Leases for a machine the one counts that
// lasts longest.
func Note(leases map[types.UID]*coordinationv1.Lease, lease *coordinationv1.Lease, now time.Time) {
	until, other := Until(lease, now), leases[Of(lease)]
	if until.After(now) && (other == nil || Until(other, now).Before(until)) {
		leases[Of(lease)] = lease
	}
}

// Holder says with what the machine of a Lease is busy.
func Holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
