package vsphereserver

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// maxHosts limits the hosts in the status; a vCenter cannot have more.
	maxHosts = 2500
	// maxPlaces limits the places of each kind; the schema has the same limit.
	maxPlaces = 300
)

// sortedHosts returns the hosts sorted by name, without duplicates: the status is a map by their names.
func sortedHosts(hosts []v1alpha1.VSphereHost) []v1alpha1.VSphereHost {
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(a, b v1alpha1.VSphereHost) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Cluster, b.Cluster))
	})
	hosts = slices.CompactFunc(hosts, func(a, b v1alpha1.VSphereHost) bool { return a.Name == b.Name })
	return hosts[:min(len(hosts), maxHosts)]
}

// sortedInventory sorts each list and removes duplicates. A list that is too long is truncated and marked as
// incomplete.
func sortedInventory(inventory v1alpha1.VSphereInventory) *v1alpha1.VSphereInventory {
	for _, places := range []*v1alpha1.VSpherePlaces{
		&inventory.Templates, &inventory.Folders, &inventory.ResourcePools, &inventory.Datastores, &inventory.Networks,
	} {
		paths := slices.Compact(slices.Sorted(slices.Values(places.Paths)))
		if len(paths) > maxPlaces {
			paths, places.Complete = paths[:maxPlaces], false
		}
		places.Paths = paths
	}
	return &inventory
}

func (r *Reconciler) setReady(server *v1alpha1.VSphereServer, t *trouble) {
	server.Status.ObservedGeneration = server.Generation
	ready := v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonConnected, server.Generation, "")
	if t != nil {
		ready = v1alpha1.ConditionReady.Condition(t.status, t.reason, server.Generation, t.message)
	}
	v1alpha1.SetCondition(&server.Status.Conditions, ready, r.Now())
}

// recordEvent records an event if condition Ready has changed.
func (r *Reconciler) recordEvent(before, server *v1alpha1.VSphereServer) {
	was := meta.FindStatusCondition(before.Status.Conditions, string(v1alpha1.ConditionReady))
	is := meta.FindStatusCondition(server.Status.Conditions, string(v1alpha1.ConditionReady))
	if was != nil && was.Reason == is.Reason && was.Message == is.Message {
		return
	}
	if is.Status == metav1.ConditionTrue {
		r.Events.Eventf(server, nil, corev1.EventTypeNormal, is.Reason, "Connect", "connected to vCenter %s", server.Status.Version)
		return
	}
	r.Events.Eventf(server, nil, corev1.EventTypeWarning, is.Reason, "Connect", "%s", is.Message)
}
