package pool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// page is the page size of live lists. A cache returns everything at once.
const page = 500

type member struct {
	*v1alpha1.VirtualMachine
	slot int // the number in its name, -1 for another name
}

func (m member) deleting() bool { return !m.DeletionTimestamp.IsZero() }

// ready reports whether the member runs, possibly while it is being moved.
func (m member) ready() bool {
	return m.Status.Phase == v1alpha1.VirtualMachineRunning || m.Status.Phase == v1alpha1.VirtualMachineMigrating
}

// stopped reports whether the member is off as it should be.
func (m member) stopped() bool {
	c := v1alpha1.ConditionReady.In(m.Status.Conditions)
	return m.Status.Phase == v1alpha1.VirtualMachineStopped && c != nil && c.Status == metav1.ConditionTrue
}

// lost reports whether the runtime no longer has the member.
func (m member) lost() bool { return m.Status.Phase == v1alpha1.VirtualMachineFailed }

// ownedByAnother reports whether the member cannot be created because the runtime has an instance of another
// VirtualMachine of that name.
func (m member) ownedByAnother() bool {
	c := v1alpha1.ConditionReady.In(m.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonOwnedByAnother)
}

func (m member) asTarget() v1alpha1.ScaleDownTarget {
	return v1alpha1.ScaleDownTarget{Name: m.Name, UID: m.UID}
}

// view is a pool with its members as read, and the results of one pass.
type view struct {
	pool    *v1alpha1.VirtualMachinePool
	before  *v1alpha1.VirtualMachinePoolStatus // the status as read
	members []member                           // by slot
	disks   []*v1alpha1.VirtualDisk            // of the pool, by name
	hash    string                             // of the template
	release string                             // release to which members are updated, if the pool follows a VSphereTemplate that has a ready one
	now     time.Time

	blocked      []blocked     // members that cannot be deleted
	notReplaced  []blocked     // members that cannot be replaced
	createErr    error         // why no more members were created
	halt         error         // why nothing is done of what there is to do
	updateErr    error         // why a member was not updated to the template
	requeueAfter time.Duration // when to requeue, 0 for no time
}

// read reads a pool and its members. It returns nil if the pool does not exist or is being deleted.
func (r *Reconciler) read(ctx context.Context, from client.Reader, key types.NamespacedName, limit int64) (*view, error) {
	v := &view{pool: &v1alpha1.VirtualMachinePool{}, now: r.Now()}
	if err := from.Get(ctx, key, v.pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !v.pool.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var err error
	if v.hash, err = templateHash(&v.pool.Spec.VirtualMachineTemplate); err != nil {
		return nil, err
	}
	v.before = v.pool.Status.DeepCopy()
	for _, read := range []func(context.Context, client.Reader, int64) error{v.readMembers, v.readDisks, v.readRelease} {
		if err := read(ctx, from, limit); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *view) readMembers(ctx context.Context, from client.Reader, atATime int64) error {
	var list v1alpha1.VirtualMachineList
	for next := ""; ; next = list.Continue {
		list = v1alpha1.VirtualMachineList{} // members keep the items of the previous page
		err := from.List(ctx, &list, client.InNamespace(v.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPoolUID: string(v.pool.UID)},
			client.UnsafeDisableDeepCopy, // members are never modified
			client.Limit(atATime), client.Continue(next))
		if err != nil {
			return fmt.Errorf("reading the members of VirtualMachinePool %s: %w", v.key(), err)
		}
		for i := range list.Items {
			vm := &list.Items[i]
			if v.owns(vm) {
				v.members = append(v.members, member{VirtualMachine: vm, slot: slotOf(v.pool.Name, vm.Name)})
			}
		}
		if list.Continue == "" || atATime == 0 { // a cache returns everything, with an unusable token
			break
		}
	}
	sortBySlot(v.members)
	return nil
}

func sortBySlot(members []member) {
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.Name, b.Name)) })
}

// owns reports whether a VirtualMachine or VirtualDisk belongs to the pool.
func (v *view) owns(o client.Object) bool {
	return o.GetLabels()[v1alpha1.LabelPoolUID] == string(v.pool.UID) && metav1.IsControlledBy(o, v.pool)
}

func (v *view) key() types.NamespacedName { return client.ObjectKeyFromObject(v.pool) }

func (v *view) desired() int {
	if v.pool.Spec.Replicas == nil {
		return 0
	}
	return int(*v.pool.Spec.Replicas)
}

// remaining returns the members that are not being deleted.
func (v *view) remaining() []member {
	return slices.DeleteFunc(slices.Clone(v.members), member.deleting)
}

// due reports whether there may be work to do beyond writing the status.
func (v *view) due() bool {
	return len(v.members) != v.desired() || len(v.pool.Status.Removing) > 0 || len(v.targeted()) > 0 || len(v.updatable()) > 0 || len(v.batches()) > 0 ||
		len(v.withoutDisks()) > 0 || len(v.outdatedDisks()) > 0 || len(v.unneededDisks()) > 0
}

func (v *view) targeted() []member {
	return v.findTargets(v.pool.Spec.ScaleDownTargets)
}

// findTargets returns the members of a list that are not being deleted.
func (v *view) findTargets(list []v1alpha1.ScaleDownTarget) (found []member) {
	for _, m := range v.remaining() {
		if slices.Contains(list, m.asTarget()) {
			found = append(found, m)
		}
	}
	return found
}

// requeueIn requeues the pool after that time or earlier.
func (v *view) requeueIn(d time.Duration) {
	d = max(d, time.Second)
	if v.requeueAfter == 0 || d < v.requeueAfter {
		v.requeueAfter = d
	}
}

func memberName(pool string, slot int) string { return pool + "-" + strconv.Itoa(slot) }

// slotOf returns the number in the name of a member, or -1.
func slotOf(pool, name string) int {
	digits, is := strings.CutPrefix(name, pool+"-")
	slot, err := strconv.Atoi(digits)
	if !is || err != nil || memberName(pool, slot) != name {
		return -1
	}
	return slot
}

// templateHash returns the hash of a template. A release with new fields may compute another hash for the same
// template; members are then updated once, without any change to their spec.
func templateHash(t *v1alpha1.VirtualMachineTemplate) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("hashing the template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
