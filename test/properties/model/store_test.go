package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The two kinds of the model, as errors name them.
var (
	machines   = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "virtualmachines"}
	operations = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "virtualmachineoperations"}
)

// id says which object is meant.
type id struct {
	kind schema.GroupResource
	types.NamespacedName
}

func idOf(o client.Object) id {
	kind := operations
	if _, is := o.(*v1alpha1.VirtualMachine); is {
		kind = machines
	}
	return id{kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
}

// version is an object as it was from one write to the next. The object is never changed; it is nil from its deletion on.
type version struct {
	id
	object client.Object
}

// store is an API server for two kinds: what controller-runtime's fake client does for them, some fifty times faster, and with
// every version kept, for caches that lag behind. A test holds it against a real API server. It is not safe for concurrent
// use: in the model one goroutine goes on at a time.
type store struct {
	now     func() time.Time
	version int64
	made    int
	current map[id]client.Object
	names   []id // of all objects there ever were, in the order in which a list has them
	log     []version
	wrote   func(before, after client.Object)
}

func newStore(now func() time.Time) *store {
	return &store{now: now, current: map[id]client.Object{}, wrote: func(client.Object, client.Object) {}}
}

// commit makes a version the present one.
func (s *store) commit(of id, after client.Object) {
	before := s.current[of]
	if i, known := slices.BinarySearchFunc(s.names, of, byName); !known {
		s.names = slices.Insert(s.names, i, of)
	}
	s.version++
	if after == nil {
		delete(s.current, of)
	} else {
		after.SetResourceVersion(strconv.FormatInt(s.version, 10))
		s.current[of] = after
	}
	s.log = append(s.log, version{id: of, object: after})
	s.wrote(before, after)
}

func byName(a, b id) int {
	return cmp.Or(cmp.Compare(a.kind.Resource, b.kind.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// at gives an object as it was after so many writes.
func (s *store) at(of id, writes int) client.Object {
	if writes == len(s.log) {
		return s.current[of]
	}
	for _, v := range slices.Backward(s.log[:writes]) {
		if v.id == of {
			return v.object
		}
	}
	return nil
}

// operationsOf gives the operations of a machine as they were after so many writes, or all of them for no name.
func (s *store) operationsOf(namespace, machine string, writes int) []*v1alpha1.VirtualMachineOperation {
	var all []*v1alpha1.VirtualMachineOperation
	for _, of := range s.names {
		o, there := s.at(of, writes).(*v1alpha1.VirtualMachineOperation)
		if there && of.Namespace == namespace && (machine == "" || o.Spec.VirtualMachineName == machine) {
			all = append(all, o)
		}
	}
	return all
}

// read copies an object out of the store.
func (s *store) read(of id, writes int, into client.Object) error {
	found := s.at(of, writes)
	if found == nil {
		return apierrors.NewNotFound(of.kind, of.Name)
	}
	assign(into, found)
	return nil
}

// assign makes one object a copy of another.
func assign(into, from client.Object) {
	switch to := into.(type) {
	case *v1alpha1.VirtualMachine:
		from.(*v1alpha1.VirtualMachine).DeepCopyInto(to)
	case *v1alpha1.VirtualMachineOperation:
		from.(*v1alpha1.VirtualMachineOperation).DeepCopyInto(to)
	}
}

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

// create makes an object.
func (s *store) create(o client.Object) error {
	of := idOf(o)
	if s.current[of] != nil {
		return apierrors.NewAlreadyExists(of.kind, of.Name)
	}
	s.made++
	// UIDs sort in another order than the one in which they are made, and the same in each run.
	sum := fnv.New64a()
	fmt.Fprint(sum, s.made)
	fresh := copyOf(o)
	fresh.SetUID(types.UID(fmt.Sprintf("%016x", sum.Sum64())))
	fresh.SetGeneration(1)
	fresh.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	fresh.SetDeletionTimestamp(nil)
	setStatus(fresh, nil)
	s.commit(of, fresh)
	assign(o, fresh)
	return nil
}

// existing gives the object that a write is about, if the write may be made on it.
func (s *store) existing(o client.Object) (client.Object, error) {
	of := idOf(o)
	now := s.current[of]
	switch {
	case now == nil:
		return nil, apierrors.NewNotFound(of.kind, of.Name)
	case o.GetResourceVersion() == "":
		return nil, invalid(o, "metadata.resourceVersion", "must be specified for an update")
	case o.GetUID() != "" && o.GetUID() != now.GetUID():
		return nil, apierrors.NewConflict(of.kind, of.Name, errors.New("another object has that name now"))
	case o.GetResourceVersion() != now.GetResourceVersion():
		return nil, apierrors.NewConflict(of.kind, of.Name, errors.New("the object has been modified"))
	}
	return now, nil
}

func invalid(o client.Object, path, detail string) error {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: idOf(o).kind.Resource}
	return apierrors.NewInvalid(kind, o.GetName(), field.ErrorList{field.Forbidden(field.NewPath(path), detail)})
}

// updateStatus is an update of the subresource status: nothing but the status changes.
func (s *store) updateStatus(o client.Object) error {
	now, err := s.existing(o)
	if err != nil {
		return err
	}
	after := copyOf(now)
	setStatus(after, o)
	s.settle(o, now, after)
	return nil
}

// update is an update of everything but the status.
func (s *store) update(o client.Object) error {
	now, err := s.existing(o)
	if err != nil {
		return err
	}
	after := copyOf(now)
	if vm, is := after.(*v1alpha1.VirtualMachine); is {
		vm.Spec = *o.(*v1alpha1.VirtualMachine).Spec.DeepCopy()
		if !equality.Semantic.DeepEqual(vm.Spec, now.(*v1alpha1.VirtualMachine).Spec) {
			vm.Generation++
		}
	}
	after.SetLabels(o.GetLabels())
	after.SetAnnotations(o.GetAnnotations())
	after.SetFinalizers(o.GetFinalizers())
	if err := s.finalizers(now, after); err != nil {
		return err
	}
	s.settle(o, now, after)
	return nil
}

// settle stores what a write has come to, unless it has come to nothing, and gives the writer the result.
func (s *store) settle(o, before, after client.Object) {
	switch {
	case equality.Semantic.DeepEqual(before, after):
	case after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0:
		s.commit(idOf(o), nil)
	default:
		s.commit(idOf(o), after)
	}
	assign(o, after)
}

// finalizers refuses new ones on an object that is being deleted.
func (s *store) finalizers(before, after client.Object) error {
	for _, f := range after.GetFinalizers() {
		if after.GetDeletionTimestamp() != nil && !slices.Contains(before.GetFinalizers(), f) {
			return invalid(after, "metadata.finalizers", "no new finalizers can be added if the object is being deleted")
		}
	}
	return nil
}

// patch takes the merge patches that add and remove finalizers, and no others.
func (s *store) patch(o client.Object, p client.Patch) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var change struct {
		Metadata struct {
			ResourceVersion string
			Finalizers      json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &change); err != nil || p.Type() != types.MergePatchType || change.Metadata.ResourceVersion == "" {
		return fmt.Errorf("a patch that the model does not take: %s: %w", data, err)
	}
	of := idOf(o)
	now := s.current[of]
	switch {
	case now == nil:
		return apierrors.NewNotFound(of.kind, of.Name)
	case change.Metadata.ResourceVersion != now.GetResourceVersion():
		return apierrors.NewConflict(of.kind, of.Name, errors.New("the object has been modified"))
	}
	after := copyOf(now)
	if text := change.Metadata.Finalizers; text != nil { // null is none
		var finalizers []string
		if err := json.Unmarshal(text, &finalizers); err != nil {
			return err
		}
		after.SetFinalizers(finalizers)
	}
	if err := s.finalizers(now, after); err != nil {
		return err
	}
	s.settle(o, now, after)
	return nil
}

// remove deletes an object, or marks it if something keeps it.
func (s *store) remove(o client.Object, only *metav1.Preconditions) error {
	of := idOf(o)
	now := s.current[of]
	switch {
	case now == nil:
		return apierrors.NewNotFound(of.kind, of.Name)
	case only != nil && only.UID != nil && *only.UID != now.GetUID(),
		only != nil && only.ResourceVersion != nil && *only.ResourceVersion != now.GetResourceVersion():
		return apierrors.NewConflict(of.kind, of.Name, errors.New("the precondition failed"))
	case len(now.GetFinalizers()) == 0:
		s.commit(of, nil)
	case now.GetDeletionTimestamp() == nil:
		after := copyOf(now)
		at, grace := metav1.NewTime(s.now().Truncate(time.Second)), int64(0)
		after.SetDeletionTimestamp(&at)
		after.SetDeletionGracePeriodSeconds(&grace)
		after.SetGeneration(now.GetGeneration() + 1)
		s.commit(of, after)
	}
	return nil
}

// setStatus gives an object the status of another, or none.
func setStatus(into, from client.Object) {
	switch to := into.(type) {
	case *v1alpha1.VirtualMachine:
		to.Status = v1alpha1.VirtualMachineStatus{}
		if from != nil {
			from.(*v1alpha1.VirtualMachine).Status.DeepCopyInto(&to.Status)
		}
	case *v1alpha1.VirtualMachineOperation:
		to.Status = v1alpha1.VirtualMachineOperationStatus{}
		if from != nil {
			from.(*v1alpha1.VirtualMachineOperation).Status.DeepCopyInto(&to.Status)
		}
	}
}
