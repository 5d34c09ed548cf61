package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// most is how many members are made or deleted in one pass.
	most = 500
	// together is how many requests are under way at a time.
	together = 16

	// manager is who the fields are by that a pool writes in its members.
	manager = "sallyport-pool"
)

// create makes the members that are missing, at the lowest numbers that are free, and tells whether there were any. One that is being
// deleted has its place until it is gone.
func (r *Reconciler) create(ctx context.Context, l *look) (bool, error) {
	missing := min(l.desired()-len(l.members), most)
	if missing <= 0 {
		return false, nil
	}
	if did, err := r.takeIn(ctx, l, missing); did > 0 || err != nil {
		l.failed = err
		return true, err
	}
	free := l.free()
	var err error
	waits := false
	for tried := 0; missing > 0 && err == nil; tried += missing {
		if tried > 2*most {
			err = fmt.Errorf("the names of %d members are taken by VirtualMachines of others", tried)
			break
		}
		slots := free(missing)
		var others, waiting atomic.Int32
		err = inBatches(ctx, missing, func(ctx context.Context, i int) error {
			ready, err := r.prepareDisks(ctx, l, slots[i])
			switch {
			case errors.Is(err, errForeign):
				others.Add(1)
				return nil
			case err != nil:
				return err
			case !ready:
				waiting.Add(1)
				return nil
			}
			ours, err := r.createMember(ctx, l, slots[i])
			if err == nil && !ours {
				others.Add(1)
			}
			return err
		})
		missing = int(others.Load())
		waits = waits || waiting.Load() > 0
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // the pool goes, too
		return !waits, nil // while a disk is waited for others may have to be deleted
	}
	l.failed = err
	return true, fmt.Errorf("creating members of VirtualMachinePool %s: %w", l.key(), err)
}

// free gives the lowest numbers that no member has, each once. What a cache knows of other VirtualMachines does not count: two who look
// at different ones would make a member each.
func (l *look) free() func(count int) []int {
	taken := map[int]bool{}
	for _, m := range l.members {
		taken[m.slot] = true
	}
	next := 0
	return func(count int) (slots []int) {
		for ; len(slots) < count; next++ {
			if !taken[next] {
				slots = append(slots, next)
			}
		}
		return slots
	}
}

// createMember makes a member, and tells whether the VirtualMachine of that name is one: somebody may have been faster.
func (r *Reconciler) createMember(ctx context.Context, l *look, slot int) (ours bool, err error) {
	vm := newMember(l.pool, l.hash, slot)
	err = r.Client.Create(ctx, vm, client.FieldOwner(manager))
	switch {
	case err == nil:
		r.Events.Eventf(l.pool, vm, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created VirtualMachine %s", vm.Name)
		return true, nil
	case apierrors.IsAlreadyExists(err):
		var there v1alpha1.VirtualMachine
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(vm), &there); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		return l.has(&there), nil
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.Events.Eventf(l.pool, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "VirtualMachine %s was not created: %s", vm.Name, err)
	}
	return false, err
}

// newMember is a member as the template has it.
func newMember(pool *v1alpha1.VirtualMachinePool, hash string, slot int) *v1alpha1.VirtualMachine {
	template := pool.Spec.VirtualMachineTemplate.DeepCopy()
	resolve(pool.Name, slot, &template.Spec)
	return &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: memberName(pool.Name, slot),
			Labels: labelsOf(pool, hash), Annotations: stringsOf(template.Metadata.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))},
		},
		Spec: template.Spec,
	}
}

// labelsOf are the labels of a member: those of the template, and those by which it is found.
func labelsOf(pool *v1alpha1.VirtualMachinePool, hash string) map[string]string {
	labels := stringsOf(pool.Spec.VirtualMachineTemplate.Metadata.Labels)
	maps.Copy(labels, map[string]string{
		v1alpha1.LabelPoolUID: string(pool.UID), v1alpha1.LabelPool: pool.Name, v1alpha1.LabelTemplateHash: hash,
	})
	return labels
}

func stringsOf[S ~string](of map[string]S) map[string]string {
	all := make(map[string]string, len(of))
	for k, v := range of {
		all[k] = string(v)
	}
	return all
}

// inBatches does so many things, one at first and twice as many each time, so that a quota that is used up, or a template that is
// refused, costs few requests. After a batch in which something failed it ends, with the first error.
func inBatches(ctx context.Context, count int, do func(context.Context, int) error) error {
	for done, size := 0, 1; done < count; done, size = done+size, 2*size {
		group := errgroup.Group{}
		group.SetLimit(together)
		for i := done; i < min(done+size, count); i++ {
			group.Go(func() error { return do(ctx, i) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}
