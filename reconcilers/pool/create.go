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
	// maxPerPass limits how many members are created or deleted in one pass.
	maxPerPass = 500
	// concurrency limits the requests in flight.
	concurrency = 16

	// fieldManager owns the fields that a pool writes in its members.
	manager = "sallyport-pool"
)

// create creates missing members at the lowest free numbers, and reports whether there were any. A member that is
// being deleted keeps its number until it is gone.
func (r *Reconciler) create(ctx context.Context, v *view) (bool, error) {
	missing := min(v.desired()-len(v.members), maxPerPass)
	if missing <= 0 {
		return false, nil
	}
	if did, err := r.adoptMembers(ctx, v, missing); did > 0 || err != nil {
		v.createErr = err
		return true, err
	}
	free := v.freeSlots()
	var err error
	waiting := false
	for tried := 0; missing > 0 && err == nil; tried += missing {
		if tried > 2*maxPerPass {
			err = fmt.Errorf("the names of %d members are taken by VirtualMachines of others", tried)
			break
		}
		slots := free(missing)
		var foreign, notReady atomic.Int32
		err = inBatches(ctx, missing, func(ctx context.Context, i int) error {
			ready, err := r.prepareDisks(ctx, v, slots[i])
			switch {
			case errors.Is(err, errForeign):
				foreign.Add(1)
				return nil
			case err != nil:
				return err
			case !ready:
				notReady.Add(1)
				return nil
			}
			ours, err := r.createMember(ctx, v, slots[i])
			if err == nil && !ours {
				foreign.Add(1)
			}
			return err
		})
		missing = int(foreign.Load())
		waiting = waiting || notReady.Load() > 0
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // the pool is terminating too
		return !waiting, nil // while waiting for a disk, other members may still have to be deleted
	}
	v.createErr = err
	return true, fmt.Errorf("creating members of VirtualMachinePool %s: %w", v.key(), err)
}

// freeSlots returns a function that returns the lowest numbers without a member, each once. Other VirtualMachines in
// the cache do not count: two processes with different caches would otherwise create a member each.
func (v *view) freeSlots() func(count int) []int {
	used := map[int]bool{}
	for _, m := range v.members {
		used[m.slot] = true
	}
	next := 0
	return func(count int) (slots []int) {
		for ; len(slots) < count; next++ {
			if !used[next] {
				slots = append(slots, next)
			}
		}
		return slots
	}
}

// createMember creates a member, and reports whether the VirtualMachine of that name is one: it may have been created
// concurrently.
func (r *Reconciler) createMember(ctx context.Context, v *view, slot int) (ours bool, err error) {
	vm := newMember(v.pool, v.hash, slot)
	err = r.Client.Create(ctx, vm, client.FieldOwner(manager))
	switch {
	case err == nil:
		r.Events.Eventf(v.pool, vm, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created VirtualMachine %s", vm.Name)
		return true, nil
	case apierrors.IsAlreadyExists(err):
		var existing v1alpha1.VirtualMachine
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(vm), &existing); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		return v.owns(&existing), nil
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.Events.Eventf(v.pool, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "VirtualMachine %s was not created: %s", vm.Name, err)
	}
	return false, err
}

// newMember returns a member for the current template.
func newMember(pool *v1alpha1.VirtualMachinePool, hash string, slot int) *v1alpha1.VirtualMachine {
	template := pool.Spec.VirtualMachineTemplate.DeepCopy()
	resolveDisks(pool.Name, slot, &template.Spec)
	return &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: memberName(pool.Name, slot),
			Labels: labelsOf(pool, hash), Annotations: stringsOf(template.Metadata.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))},
		},
		Spec: template.Spec,
	}
}

// labelsOf returns the labels of a member: those of the template, and those by which it is found.
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

// inBatches calls do count times, in concurrent batches of 1, 2, 4 and so on, so that an exhausted quota or a
// rejected template costs few requests. It stops after the first batch with an error.
func inBatches(ctx context.Context, count int, do func(context.Context, int) error) error {
	for done, size := 0, 1; done < count; done, size = done+size, 2*size {
		group := errgroup.Group{}
		group.SetLimit(concurrency)
		for i := done; i < min(done+size, count); i++ {
			group.Go(func() error { return do(ctx, i) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}
