package offline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// identity is the unique key of an object.
type identity struct {
	schema.GroupKind
	namespace, name string
}

func (i identity) String() string {
	if i.namespace == "" {
		return fmt.Sprintf("%s %s", i.Kind, i.name)
	}
	return fmt.Sprintf("%s %s/%s", i.Kind, i.namespace, i.name)
}

func identityOf(u *unstructured.Unstructured) identity {
	return identity{u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName()}
}

// storedObject is an object of the world.
type storedObject struct {
	*unstructured.Unstructured
	place  string
	number int // in order of creation
}

// World has all objects besides the requests, as the API server would have stored them: fields that it sets are filled in.
type World struct {
	kinds      *Kinds
	namespace  string
	now        func() time.Time
	objects    map[identity]*storedObject
	answers    []answer
	namespaces bool // it lists all namespaces
	assumed    map[string]bool
	// generated are generated UIDs and resource versions.
	generated map[string]bool
	number    int
	warnings  []string
}

// answer is a SubjectAccessReview with its result.
type answer struct {
	authorizationv1.SubjectAccessReview
	place string
}

// newWorld makes a world of documents. Objects without a namespace are in the given one, if their kind is namespaced.
func newWorld(k *Kinds, documents []Document, namespace string, now func() time.Time) (*World, error) {
	w := &World{
		kinds: k, namespace: namespace, now: now,
		objects: map[identity]*storedObject{}, assumed: map[string]bool{}, generated: map[string]bool{},
	}
	var errs []error
	for i := range documents { // first, because other objects may be of the kinds that they define
		if isKind(&documents[i], "apiextensions.k8s.io", "CustomResourceDefinition") {
			crd, err := definitionOf(&documents[i])
			if err == nil {
				k.learn(crd)
			}
			errs = append(errs, err)
		}
	}
	for i := range documents {
		errs = append(errs, w.load(&documents[i]))
	}
	return w, errors.Join(errs...)
}

func isKind(d *Document, group, kind string) bool {
	u := unstructured.Unstructured{Object: d.Object}
	return u.GroupVersionKind().GroupKind() == schema.GroupKind{Group: group, Kind: kind}
}

func (w *World) load(d *Document) error {
	if isKind(d, authorizationv1.GroupName, "SubjectAccessReview") {
		return w.loadAnswer(d)
	}
	stored, err := w.stored(d)
	if err != nil {
		return err
	}
	id := identityOf(stored)
	if other := w.objects[id]; other != nil {
		return d.errorf("%s is also in %s", id, other.place)
	}
	w.store(stored, d.Place())
	return nil
}

// store adds or replaces an object.
func (w *World) store(u *unstructured.Unstructured, place string) {
	id := identityOf(u)
	if id.GroupKind == namespaceKind {
		w.namespaces = true
	}
	number := w.next()
	if old := w.objects[id]; old != nil {
		number = old.number
	}
	w.objects[id] = &storedObject{Unstructured: u, place: place, number: number}
}

var namespaceKind = schema.GroupKind{Kind: "Namespace"}

func (w *World) remove(id identity) { delete(w.objects, id) }

func (w *World) get(id identity) *unstructured.Unstructured {
	if found := w.objects[id]; found != nil {
		return found.Unstructured
	}
	return nil
}

// all returns the objects for which keep returns true, in order of creation.
func (w *World) all(keep func(*storedObject) bool) (found []*storedObject) {
	for t := range maps.Values(w.objects) {
		if keep(t) {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *storedObject) int { return cmp.Compare(a.number, b.number) })
	return found
}

// next returns numbers in place of the API server's random or rising ones, so that the same files give the same result.
func (w *World) next() int {
	w.number++
	return w.number
}

func (w *World) newUID() types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.next()))
}

func (w *World) newVersion() string { return strconv.Itoa(w.next()) }

// identify sets the UID and version of a request's object if the stored ones are generated: the files mean the same object.
func (w *World) identify(u *unstructured.Unstructured, uid, version string) {
	if uid != "" && w.generated[string(u.GetUID())] {
		u.SetUID(types.UID(uid))
	}
	if version != "" && w.generated[u.GetResourceVersion()] {
		u.SetResourceVersion(version)
	}
}

// overrideUID returns the UID in the object's override, for objects without a UID.
func overrideUID(u *unstructured.Unstructured) string {
	o, err := v1alpha1.ParseOverride(u.GetAnnotations()[v1alpha1.AnnotationOverride])
	if err != nil {
		return ""
	}
	return string(o.UID)
}

// stored makes of a document the object that the API server would have stored.
func (w *World) stored(d *Document) (*unstructured.Unstructured, error) {
	k, err := w.kinds.of(d)
	if err != nil {
		return nil, err
	}
	u := (&unstructured.Unstructured{Object: d.Object}).DeepCopy()
	unknown, err := k.prune(u)
	if err != nil {
		return nil, d.errorf("%w", err)
	}
	for _, field := range unknown {
		w.warnings = append(w.warnings, fmt.Sprintf("%s: %s has no field %q, it is left out", d.Place(), k.Kind, field))
	}
	if k.schema != nil {
		k.schema.setDefaults(u)
	}
	if u.GetName() == "" {
		return nil, d.errorf("metadata.name is missing")
	}
	switch {
	case !k.namespaced:
		u.SetNamespace("")
	case u.GetNamespace() == "":
		u.SetNamespace(w.namespace)
	}
	w.fill(u)
	return u, nil
}

// fill sets missing fields that the API server sets.
func (w *World) fill(u *unstructured.Unstructured) {
	if u.GetUID() == "" {
		u.SetUID(types.UID(cmp.Or(overrideUID(u), string(w.newUID()))))
		w.generated[string(u.GetUID())] = true
	}
	if u.GetResourceVersion() == "" {
		u.SetResourceVersion(w.newVersion())
		w.generated[u.GetResourceVersion()] = true
	}
	if u.GetGeneration() == 0 {
		u.SetGeneration(1)
	}
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(metav1.NewTime(w.now().UTC().Truncate(time.Second).Add(-defaultAge)))
	}
}

// defaultAge is the age of objects without a creation timestamp.
const defaultAge = time.Minute

func (w *World) loadAnswer(d *Document) error {
	a := answer{place: d.Place()}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(d.Object, &a.SubjectAccessReview, true); err != nil {
		return d.errorf("reading the SubjectAccessReview: %w", err)
	}
	_, answered := d.Object["status"].(map[string]any)
	switch {
	case a.Spec.ResourceAttributes == nil || a.Spec.ResourceAttributes.Verb == "" || a.Spec.ResourceAttributes.Resource == "":
		return d.errorf("the SubjectAccessReview needs spec.resourceAttributes with verb and resource")
	case a.Spec.User == "":
		return d.errorf("the SubjectAccessReview needs spec.user")
	case !answered:
		return d.errorf("the SubjectAccessReview needs status.allowed, which is its answer")
	}
	for _, other := range w.answers {
		if other.Status.Allowed != a.Status.Allowed && other.covers(&a.Spec) && a.covers(&other.Spec) {
			return d.errorf("the SubjectAccessReview has another answer than the one in %s", other.place)
		}
	}
	w.answers = append(w.answers, a)
	return nil
}

// assumedNamespace returns a namespace that a request is in and the world does not have.
func (w *World) assumedNamespace(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(name)
	u.SetLabels(map[string]string{corev1.LabelMetadataName: name})
	_ = unstructured.SetNestedField(u.Object, string(corev1.NamespaceActive), "status", "phase") // of a map that was just made
	w.fill(u)
	return u
}
