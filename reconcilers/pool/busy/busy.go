// Package busy defines the Leases that mark machines as busy, for their writers and readers.
package busy

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Longest is the maximum time for which one write of a Lease marks a machine as busy. A longer job renews it.
const Longest = 24 * time.Hour

// LeaseName returns the name of a machine's Lease. There is one per machine, so that two jobs see each other.
func LeaseName(machine string) string { return machine + "-busy" }

// Mark sets a Lease that marks a machine as busy from now on for a duration.
func Mark(lease *coordinationv1.Lease, vm *v1alpha1.VirtualMachine, holder string, now time.Time, during time.Duration) {
	since, seconds := metav1.NewMicroTime(now), int32(math.Ceil(min(during, Longest).Seconds()))
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder || Of(lease) != vm.UID {
		lease.Spec.AcquireTime = &since
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &holder, &since, &seconds
	metav1.SetMetaDataLabel(&lease.ObjectMeta, v1alpha1.LabelBusyMachine, string(vm.UID))
	// The Lease is garbage-collected with the machine, and does not block its deletion.
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VirtualMachine", Name: vm.Name, UID: vm.UID,
	}}
}

// Of returns the UID of the machine that a Lease marks as busy, or "".
func Of(lease *coordinationv1.Lease) types.UID {
	return types.UID(lease.Labels[v1alpha1.LabelBusyMachine])
}

// Until returns when a Lease no longer marks its machine as busy. A Lease without a holder or a duration never does;
// one that was renewed in the future, by a fast clock, counts as renewed now. Policy pools-scale-down has the same
// rules in Rego.
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

// Note adds a Lease to the map by the UID of its machine, if that is busy now. Of several Leases for a machine the
// longest counts.
func Note(leases map[types.UID]*coordinationv1.Lease, lease *coordinationv1.Lease, now time.Time) {
	until, other := Until(lease, now), leases[Of(lease)]
	if until.After(now) && (other == nil || Until(other, now).Before(until)) {
		leases[Of(lease)] = lease
	}
}

// Holder returns what keeps the machine of a Lease busy.
func Holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
