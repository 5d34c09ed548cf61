package vsphereserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

const (
	// maxOrphans limits the orphaned machines in the status; the schema has the same limit.
	maxOrphans = 20
	// maxConfirmed limits the live reads for machines without a cached VirtualMachine. Further ones count as
	// orphaned.
	maxConfirmed = 100
	// The limits of the schema. The text of a mark is not trusted: users of vCenter can write it.
	maxOrphanPath, maxOrphanUID, maxOrphanName = 512, 64, 317
)

// orphans reports machines whose mark names a VirtualMachine that does not exist. They are only reported: the mark
// does not prove the owner, and they may belong to another cluster.
func (r *Reconciler) orphans(ctx context.Context, server *v1alpha1.VSphereServer, marked []Marked) error {
	var machines v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing VirtualMachines: %w", err)
	}
	known := map[types.UID]bool{}
	for i := range machines.Items {
		known[machines.Items[i].UID] = true
	}
	marked = slices.DeleteFunc(slices.Clone(marked), func(m Marked) bool { return known[m.Owner] })
	slices.SortFunc(marked, func(a, b Marked) int { return cmp.Compare(a.Path, b.Path) })
	var all []v1alpha1.VSphereOrphan
	for i, m := range marked {
		if i < maxConfirmed {
			exists, err := r.exists(ctx, m)
			if err != nil {
				return err
			}
			if exists {
				continue
			}
		}
		orphan := v1alpha1.VSphereOrphan{Path: m.Path, UID: m.Owner, VirtualMachine: m.Name}
		if len(orphan.Path) > maxOrphanPath || len(orphan.UID) > maxOrphanUID || len(orphan.VirtualMachine) > maxOrphanName {
			orphan = v1alpha1.VSphereOrphan{Path: strings.ToValidUTF8(orphan.Path[:min(len(orphan.Path), maxOrphanPath)], "")}
		}
		all = append(all, orphan)
	}
	all = slices.CompactFunc(all, func(a, b v1alpha1.VSphereOrphan) bool { return a.Path == b.Path })
	server.Status.OrphanCount = int32(len(all))
	server.Status.Orphans = all[:min(len(all), maxOrphans)]
	t := v1alpha1.ConditionMachinesKnown
	if len(all) == 0 && t.In(server.Status.Conditions) == nil {
		return nil
	}
	c := t.Condition(metav1.ConditionTrue, v1alpha1.ReasonMachinesKnown, server.Generation, "")
	if len(all) > 0 {
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonOrphanedMachines, server.Generation, fmt.Sprintf(
			"%d machines have the mark of a VirtualMachine that does not exist in this cluster, such as %s of VirtualMachine %q: create the VirtualMachine again "+
				"and take the machine over (kubectl sallyport take-over), or remove sallyport.owner from its extraConfig, unless it belongs to another cluster",
			len(all), all[0].Path, all[0].VirtualMachine))
	}
	v1alpha1.SetCondition(&server.Status.Conditions, c, r.Now())
	return nil
}

// exists reads live whether a VirtualMachine with that name and UID exists, which the cache may not contain yet.
func (r *Reconciler) exists(ctx context.Context, m Marked) (bool, error) {
	namespace, name, is := strings.Cut(m.Name, "/")
	if !is || namespace == "" || name == "" {
		return false, nil
	}
	vm := &v1alpha1.VirtualMachine{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, vm)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading VirtualMachine %s: %w", m.Name, err)
	}
	return vm.UID == m.Owner, nil
}

var orphansDesc = prometheus.NewDesc("sallyport_vsphere_orphaned_machines",
	"Number of machines in vCenters that have the mark of a VirtualMachine that does not exist. See status.orphans of the VSphereServers.", nil, nil)

// Orphans returns a collector of the number of orphaned machines, which only the leader reports.
func Orphans(servers client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &objectmetrics.Collector[*v1alpha1.VSphereServerList]{
		Cache: servers, Elected: elected, Descs: []*prometheus.Desc{orphansDesc},
		New: func() *v1alpha1.VSphereServerList { return &v1alpha1.VSphereServerList{} },
		Of: func(list *v1alpha1.VSphereServerList, report objectmetrics.Report) {
			sum := 0
			for i := range list.Items {
				sum += int(list.Items[i].Status.OrphanCount)
			}
			report(orphansDesc, sum)
		},
	}
}
