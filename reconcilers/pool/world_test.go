package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/mortal"
)

const (
	namespace = "team-a"
	name      = "web"
)

var (
	poolKey     = types.NamespacedName{Namespace: namespace, Name: name}
	templateKey = types.NamespacedName{Namespace: namespace, Name: "ubuntu"}
	machines    = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "virtualmachines"}
)

// server is controller-runtime's fake API server, and what a real one with Sallyport does beyond it: UIDs, generations, finalizers,
// preconditions, and the policy on deletions.
type server struct {
	client.WithWatch
	now     time.Time
	uids    int
	refuses error // why no VirtualMachine is made, nil if one is
	asked   int   // how many were to be made
	// Whether no VSphereTemplate can be read.
	unreadable bool
	// Before a VirtualMachine is deleted or patched they are told.
	deleted, patched func(*v1alpha1.VirtualMachine)
	// Before a VirtualDisk is deleted this is told.
	diskDeleted func(*v1alpha1.VirtualDisk)
}

func newServer() *server {
	scheme := kruntime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		panic(err) // the types of this repository
	}
	nothing := func(*v1alpha1.VirtualMachine) {}
	s := &server{now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), deleted: nothing, patched: nothing,
		diskDeleted: func(*v1alpha1.VirtualDisk) {}}
	inner := fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.VirtualMachinePool{}, &v1alpha1.VirtualMachine{}, &v1alpha1.VirtualDisk{}, &v1alpha1.VSphereTemplate{}).
		WithIndex(&v1alpha1.VirtualMachinePool{}, byFollowed, followedKeys).Build()
	s.WithWatch = interceptor.NewClient(inner, interceptor.Funcs{Create: s.create, Patch: s.patch, Delete: s.delete})
	return s
}

func (s *server) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.VSphereTemplate); is && s.unreadable {
		return apierrors.NewServiceUnavailable("the API server is away")
	}
	return c.Get(ctx, key, o, opts...)
}

func (s *server) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if _, is := o.(*v1alpha1.VirtualMachine); is {
		if s.asked++; s.refuses != nil {
			return s.refuses
		}
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.NewTime(s.now))
	switch o.(type) {
	case *v1alpha1.VirtualMachine:
		o.SetFinalizers([]string{v1alpha1.VirtualMachineFinalizer})
	case *v1alpha1.VirtualDisk:
		o.SetFinalizers([]string{v1alpha1.VirtualDiskFinalizer})
	}
	return c.Create(ctx, o, opts...)
}

// patch counts every patch as one of the spec.
func (s *server) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if _, is := o.(*v1alpha1.VirtualDisk); is {
		return c.Patch(ctx, o, p, opts...)
	}
	now := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}
	if now.ResourceVersion == o.GetResourceVersion() {
		s.patched(now)
	}
	o.SetGeneration(o.GetGeneration() + 1)
	return c.Patch(ctx, o, p, opts...)
}

func (s *server) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	if d, is := o.(*v1alpha1.VirtualDisk); is {
		return s.deleteDisk(ctx, c, d, opts...)
	}
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is {
		return c.Delete(ctx, o, opts...)
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	now := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(vm), now); err != nil {
		return err
	}
	if !meets(now, options.Preconditions) {
		return apierrors.NewConflict(machines, vm.Name, errors.New("another one, or changed"))
	}
	if now.Labels[v1alpha1.LabelDeletionProtection] == v1alpha1.DeletionProtectionEnabled {
		return apierrors.NewForbidden(machines, vm.Name, errors.New("it is protected from deletion"))
	}
	if len(options.DryRun) > 0 || !now.DeletionTimestamp.IsZero() {
		return nil
	}
	s.deleted(now)
	return c.Delete(ctx, now)
}

func (s *server) deleteDisk(ctx context.Context, c client.WithWatch, d *v1alpha1.VirtualDisk, opts ...client.DeleteOption) error {
	now := &v1alpha1.VirtualDisk{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(d), now); err != nil {
		return err
	}
	if !meets(now, (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions) {
		return apierrors.NewConflict(machines, d.Name, errors.New("another one, or changed"))
	}
	if now.DeletionTimestamp.IsZero() {
		s.diskDeleted(now)
	}
	return c.Delete(ctx, now)
}

// meets tells whether an object is the one that a deletion is for.
func meets(o client.Object, p *metav1.Preconditions) bool {
	return p == nil || (p.UID == nil || *p.UID == o.GetUID()) && (p.ResourceVersion == nil || *p.ResourceVersion == o.GetResourceVersion())
}

// members are all that there are, by name.
func (s *server) members() []v1alpha1.VirtualMachine {
	var list v1alpha1.VirtualMachineList
	s.must(s.List(context.Background(), &list))
	return list.Items
}

// disks are all that there are, by name.
func (s *server) disks() []v1alpha1.VirtualDisk {
	var list v1alpha1.VirtualDiskList
	s.must(s.List(context.Background(), &list))
	return list.Items
}

func (s *server) pool() *v1alpha1.VirtualMachinePool {
	pool := &v1alpha1.VirtualMachinePool{}
	s.must(s.Get(context.Background(), poolKey, pool))
	return pool
}

// template is the VSphereTemplate that the pool refers to, nil if there is none.
func (s *server) template() *v1alpha1.VSphereTemplate {
	t := &v1alpha1.VSphereTemplate{}
	if err := s.Get(context.Background(), templateKey, t); err != nil {
		s.must(client.IgnoreNotFound(err))
		return nil
	}
	return t
}

// must ends everything on what cannot be: rapid shows it as a failure.
func (s *server) must(err error) {
	if err != nil {
		panic(err)
	}
}

// process is a manager that takes itself for the leader. Its cache has what it was told of, its calls may be its last, and before any of
// them something may happen.
type process struct {
	mortal.Process
	*Reconciler
	server *server
	cache  map[client.ObjectKey]client.Object
}

func newProcess(s *server) *process {
	p := &process{server: s, cache: map[client.ObjectKey]client.Object{}}
	live := p.Process.Client(interceptor.NewClient(s.WithWatch, interceptor.Funcs{Get: s.get}))
	cached := interceptor.NewClient(live, interceptor.Funcs{Get: p.cachedGet, List: p.cachedList})
	p.Reconciler = &Reconciler{Client: cached, Live: live, Events: &events.FakeRecorder{}, Now: func() time.Time { return s.now }}
	return p
}

// pass is one look at the pool. A process that dies of it is replaced by one that has the same old cache.
func (p *process) pass() (ctrl.Result, error) {
	result, err := p.Reconcile(context.Background(), ctrl.Request{NamespacedName: poolKey})
	p.Begin()
	return result, err
}

// told brings one object of the cache up to date, or all for no name. Others stay as they were, in whichever order things happened.
func (p *process) told(only string) {
	now := map[client.ObjectKey]client.Object{poolKey: p.server.pool()}
	for _, vm := range p.server.members() {
		now[client.ObjectKeyFromObject(&vm)] = &vm
	}
	for _, d := range p.server.disks() {
		now[client.ObjectKeyFromObject(&d)] = &d
	}
	if t := p.server.template(); t != nil {
		now[client.ObjectKeyFromObject(t)] = t
	}
	if only == "" {
		p.cache = now
		return
	}
	key := client.ObjectKey{Namespace: namespace, Name: only}
	if now[key] == nil {
		delete(p.cache, key)
	} else {
		p.cache[key] = now[key]
	}
}

func (p *process) cachedGet(_ context.Context, _ client.WithWatch, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch found := p.cache[k].(type) {
	case *v1alpha1.VirtualMachinePool:
		found.DeepCopyInto(o.(*v1alpha1.VirtualMachinePool))
	case *v1alpha1.VirtualMachine:
		found.DeepCopyInto(o.(*v1alpha1.VirtualMachine))
	case *v1alpha1.VSphereTemplate:
		found.DeepCopyInto(o.(*v1alpha1.VSphereTemplate))
	default:
		return apierrors.NewNotFound(machines, k.Name)
	}
	return nil
}

func (p *process) cachedList(_ context.Context, _ client.WithWatch, o client.ObjectList, _ ...client.ListOption) error {
	var all []kruntime.Object
	for _, key := range slices.SortedFunc(maps.Keys(p.cache), func(a, b client.ObjectKey) int {
		return cmp.Or(len(a.Name)-len(b.Name), strings.Compare(a.Name, b.Name))
	}) {
		_, machines := o.(*v1alpha1.VirtualMachineList)
		switch found := p.cache[key].(type) {
		case *v1alpha1.VirtualMachine:
			if machines {
				all = append(all, found.DeepCopy())
			}
		case *v1alpha1.VirtualDisk:
			if !machines {
				all = append(all, found.DeepCopy())
			}
		}
	}
	return meta.SetList(o, all)
}
