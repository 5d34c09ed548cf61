package model

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// callTimeout bounds the calls of a runtime.
const callTimeout = 5 * time.Second

// apiClient is the API server as a process sees it, past its caches or through them. What it has no method for panics.
type apiClient struct {
	client.Client
	*process
	cached bool
}

// GroupVersionKindFor returns the kind for an object's Go type, without a call.
func (c *apiClient) GroupVersionKindFor(o kruntime.Object) (schema.GroupVersionKind, error) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return apiutil.GVKForObject(o, scheme)
}

// do has the scheduler decide about a call.
func (c *apiClient) do(ctx context.Context, of call, make func() error) error {
	w := workerOf(ctx)
	v := w.yield(of)
	if v == fail {
		return apierrors.NewTimeoutError("the API server did not answer", 1)
	}
	if v == touch && of.write {
		c.model.touch(idOf(of.object))
	}
	err := make()
	if v == lose {
		return apierrors.NewTimeoutError("the API server did not answer", 1)
	}
	return err
}

// writes says how many writes a read sees: those of before for a cache, which somebody may have moved on meanwhile.
func (c *apiClient) writes() int {
	if c.cached {
		return c.seen
	}
	return len(c.model.store.log)
}

// Get reads an object.
func (c *apiClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return c.do(ctx, call{verb: "get", object: o}, func() error {
		err := c.model.store.read(idOf(o), c.writes(), o)
		if vm, is := o.(*v1alpha1.VirtualMachine); is && err == nil {
			workerOf(ctx).claim = vm.DeepCopy()
		}
		return err
	})
}

// List reads the operations of a machine. There are no disks here: those have a model of their own.
func (c *apiClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*v1alpha1.VirtualDiskList); is {
		return nil
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	machine, _ := options.FieldSelector.RequiresExactMatch("spec.virtualMachineName")
	return c.do(ctx, call{verb: "list operations"}, func() error {
		into := list.(*v1alpha1.VirtualMachineOperationList)
		into.Items = nil
		for _, o := range c.model.store.operationsOf(options.Namespace, machine, c.writes()) {
			into.Items = append(into.Items, *o.DeepCopy())
		}
		return nil
	})
}

// Patch writes finalizers.
func (c *apiClient) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return c.do(ctx, call{verb: "patch", object: o, write: true}, func() error { return c.model.store.patch(o, p) })
}

// Delete deletes.
func (c *apiClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	return c.do(ctx, call{verb: "delete", object: o, write: true}, func() error {
		return c.model.store.remove(o, options.AsDeleteOptions().Preconditions)
	})
}

// Status writes statuses.
func (c *apiClient) Status() client.SubResourceWriter { return &statusClient{of: c} }

type statusClient struct {
	client.SubResourceWriter
	of *apiClient
}

// Update writes a status.
func (c *statusClient) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return c.of.do(ctx, call{verb: "update status of", object: o, write: true}, func() error { return c.of.model.store.updateStatus(o) })
}

// arbiter judges by the tables, unless the scheduler has it fail.
type arbiter struct{ *model }

func (a *arbiter) Arbitrate(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Admission, error) {
	if v := workerOf(ctx).yield(call{verb: "ask the policies about", object: o}); v == fail || v == lose {
		return operation.Admission{}, errors.New("a fact could not be read")
	}
	return a.tables.Arbitrate(ctx, o, vm, unfinished)
}

// outside of the limits a call is about to be made, and not on its way yet: its process may stand still there for long.
func outside(ctx context.Context, made *runtime.Call, next func(context.Context) error) error {
	if w := workerOf(ctx); made.Verb != runtime.VerbObserve {
		now := w.model.machine(made.Machine.Name)
		final := made.Verb == runtime.VerbDiscard && !w.claim.DeletionTimestamp.IsZero() // whatever changes, it is deleted
		if !final && (now == nil || now.ResourceVersion != w.claim.ResourceVersion) {
			w.model.violated("%s is about to %s, and has not seen that the machine was changed", w, made.Verb)
		}
		w.yield(call{verb: "about to " + string(made.Verb), outside: true})
	}
	return next(ctx)
}

// underWay has the scheduler decide when a call reaches the runtime, and whether its reply comes back. Other faults are the world's.
func underWay(ctx context.Context, made *runtime.Call, next func(context.Context) error) error {
	v := workerOf(ctx).yield(call{verb: strings.ToUpper(string(made.Verb)), write: made.Verb != runtime.VerbObserve})
	if v == fail {
		return runtime.NewUnavailable(nil, "the runtime did not answer")
	}
	err := next(ctx)
	if v == lose {
		return runtime.NewUnavailable(nil, "the runtime did not answer")
	}
	return err
}

// touch is a write of somebody who has nothing to do with it all.
func (m *model) touch(of id) {
	now := m.store.current[of]
	if now == nil {
		return
	}
	m.touched++
	after := copyOf(now)
	metav1.SetMetaDataAnnotation(objectMeta(after), "example.com/touched", time.Duration(m.touched).String())
	if err := m.store.update(after); err != nil {
		m.violated("touching %s: %v", of, err)
	}
}

func objectMeta(o client.Object) *metav1.ObjectMeta {
	if vm, is := o.(*v1alpha1.VirtualMachine); is {
		return &vm.ObjectMeta
	}
	return &o.(*v1alpha1.VirtualMachineOperation).ObjectMeta
}
