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

// page is how many members are read live at a time. A cache gives all at once.
const page = 500

// member is a member of a pool.
type member struct {
	*v1alpha1.VirtualMachine
	slot int // the number in its name, -1 for another name
}

// going reports whether the member is being deleted.
func (m member) going() bool { return !m.DeletionTimestamp.IsZero() }

// ready reports whether the member runs. One that is moving does.
func (m member) ready() bool {
	return m.Status.Phase == v1alpha1.VirtualMachineRunning || m.Status.Phase == v1alpha1.VirtualMachineMigrating
}

// lost reports whether the runtime no longer has the member.
func (m member) lost() bool { return m.Status.Phase == v1alpha1.VirtualMachineFailed }

// heldBack reports whether the member is not made, because of what the runtime has for another VirtualMachine of its name.
func (m member) heldBack() bool {
	c := v1alpha1.ConditionReady.In(m.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonOwnedByAnother)
}

// target names the member beyond doubt.
func (m member) target() v1alpha1.ScaleDownTarget {
	return v1alpha1.ScaleDownTarget{Name: m.Name, UID: m.UID}
}

// look is a pool with its members as they were read, and what became of them in one pass.
type look struct {
	pool    *v1alpha1.VirtualMachinePool
	read    *v1alpha1.VirtualMachinePoolStatus // as it was read
	members []member                           // by slot
	disks   []*v1alpha1.VirtualDisk            // those of the pool, by name
	hash    string                             // of the template
	release string                             // that members are brought to, if the pool follows a VSphereTemplate and one is ready
	now     time.Time

	blocked  []blocked     // members that should go and do not
	held     []blocked     // members that should be replaced and are not
	failed   error         // why no more members were made
	readOnly bool          // there is something to do, and nothing is done
	unread   error         // a member or disk does not decode, so nothing is done
	lags     error         // why a member was not given the template
	again    time.Duration // when to look again, 0 for when something changes
}

// look reads a pool and its members. It gives nil for a pool that is gone or going.
func (r *Reconciler) look(ctx context.Context, from client.Reader, key types.NamespacedName, atATime int64) (*look, error) {
	l := &look{pool: &v1alpha1.VirtualMachinePool{}, now: r.Now()}
	if err := from.Get(ctx, key, l.pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !l.pool.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var err error
	if l.hash, err = templateHash(&l.pool.Spec.VirtualMachineTemplate); err != nil {
		return nil, err
	}
	l.read = l.pool.Status.DeepCopy()
	for _, read := range []func(context.Context, client.Reader, int64) error{l.readMembers, l.readDisks, l.readRelease} {
		if err := read(ctx, from, atATime); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// readMembers reads who has the label with the pool's UID and the pool for controller.
func (l *look) readMembers(ctx context.Context, from client.Reader, atATime int64) error {
	var list v1alpha1.VirtualMachineList
	for next := ""; ; next = list.Continue {
		list = v1alpha1.VirtualMachineList{} // members keep the items of the page before
		err := from.List(ctx, &list, client.InNamespace(l.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPoolUID: string(l.pool.UID)},
			client.UnsafeDisableDeepCopy, // members are never written on
			client.Limit(atATime), client.Continue(next))
		if err != nil {
			return fmt.Errorf("reading the members of VirtualMachinePool %s: %w", l.key(), err)
		}
		for i := range list.Items {
			vm := &list.Items[i]
			if l.has(vm) {
				l.members = append(l.members, member{VirtualMachine: vm, slot: slotOf(l.pool.Name, vm.Name)})
			}
		}
		if list.Continue == "" || atATime == 0 { // a cache gives everything, with a token that nobody takes
			break
		}
	}
	sortBySlot(l.members)
	return nil
}

func sortBySlot(members []member) {
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.Name, b.Name)) })
}

// has reports whether a VirtualMachine is a member, or a VirtualDisk one of the pool's.
func (l *look) has(o client.Object) bool {
	return o.GetLabels()[v1alpha1.LabelPoolUID] == string(l.pool.UID) && metav1.IsControlledBy(o, l.pool)
}

// key is the name of the pool.
func (l *look) key() types.NamespacedName { return client.ObjectKeyFromObject(l.pool) }

// desired is how many members are wanted.
func (l *look) desired() int {
	if l.pool.Spec.Replicas == nil {
		return 0
	}
	return int(*l.pool.Spec.Replicas)
}

// staying are the members that are not being deleted.
func (l *look) staying() []member {
	return slices.DeleteFunc(slices.Clone(l.members), member.going)
}

// due reports whether there may be something to do beside writing the status.
func (l *look) due() bool {
	return len(l.members) != l.desired() || len(l.pool.Status.Removing) > 0 || len(l.named()) > 0 || len(l.next()) > 0 || len(l.turns()) > 0 ||
		len(l.lacking()) > 0 || len(l.lagging()) > 0 || len(l.spent()) > 0
}

// named are the members that spec.scaleDownTargets has go.
func (l *look) named() []member {
	return l.among(l.pool.Spec.ScaleDownTargets)
}

// among gives those members of a list that are not being deleted.
func (l *look) among(list []v1alpha1.ScaleDownTarget) (found []member) {
	for _, m := range l.staying() {
		if slices.Contains(list, m.target()) {
			found = append(found, m)
		}
	}
	return found
}

// later has the pool looked at again after that time, or sooner.
func (l *look) later(d time.Duration) {
	d = max(d, time.Second)
	if l.again == 0 || d < l.again {
		l.again = d
	}
}

// memberName is the name of a member.
func memberName(pool string, slot int) string { return pool + "-" + strconv.Itoa(slot) }

// slotOf gives the number in the name of a member, -1 if there is none.
func slotOf(pool, name string) int {
	digits, is := strings.CutPrefix(name, pool+"-")
	slot, err := strconv.Atoi(digits)
	if !is || err != nil || memberName(pool, slot) != name {
		return -1
	}
	return slot
}

// templateHash tells templates apart. A release that knows more fields may have another hash for the same template: its members
// are then written once more, as they are.
func templateHash(t *v1alpha1.VirtualMachineTemplate) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("hashing the template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
