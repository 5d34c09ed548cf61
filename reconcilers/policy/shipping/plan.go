package shipping

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// plan compares an object with what is shipped.
type plan struct {
	live    *fields // nil if there is no object
	shipped *fields
	owners
	// last is the set of fields shipped last, nil if unknown.
	last *fieldpath.Set
	// key is the name of the record of what is shipped now.
	key string
}

func newPlan(live *unstructured.Unstructured, shipped *v1alpha1.RegoPolicy) (*plan, error) {
	p := &plan{owners: owners{fieldpath.NewSet(), fieldpath.NewSet()}}
	var err error
	if p.shipped, p.key, err = recorded(shipped); err != nil {
		return nil, fmt.Errorf("RegoPolicy %s as it is shipped: %w", shipped.Name, err)
	}
	if live == nil {
		return p, nil
	}
	if p.live, err = fieldsOf(live.Object); err == nil {
		p.owners, err = ownersOf(live.GetManagedFields())
	}
	if err != nil {
		return nil, fmt.Errorf("RegoPolicy %s: %w", live.GetName(), err)
	}
	p.last = lastShipped(live.GetAnnotations(), p.ours)
	return p, nil
}

// recorded returns the fields of a shipped policy, with the record of its own fields among its annotations.
func recorded(shipped *v1alpha1.RegoPolicy) (*fields, string, error) {
	f, err := fieldsOfPolicy(shipped)
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(f.content)
	if err != nil {
		return nil, "", err
	}
	hash := sha256.Sum256(text)
	key := recordPrefix + hex.EncodeToString(hash[:8])
	record, err := f.set.RecursiveDifference(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"))).ToJSON()
	if err != nil {
		return nil, "", err
	}
	if err := unstructured.SetNestedField(f.content, string(record), "metadata", "annotations", key); err != nil {
		return nil, "", err
	}
	f, err = fieldsOf(f.content)
	return f, key, err
}

func lastShipped(annotations map[string]string, applied *fieldpath.Set) *fieldpath.Set {
	for key, text := range annotations {
		if !strings.HasPrefix(key, recordPrefix) || !applied.Has(fieldpath.MakePathOrDie("metadata", "annotations", key)) {
			continue
		}
		set := fieldpath.NewSet()
		if set.FromJSON(strings.NewReader(text)) == nil {
			return set
		}
	}
	return nil
}

// done reports whether what is shipped now has been applied.
func (p *plan) done() bool {
	return p.live != nil && p.ours.Has(fieldpath.MakePathOrDie("metadata", "annotations", p.key))
}

// wanted returns the fields to apply: those shipped, without those that users changed or removed.
func (p *plan) wanted() *fieldpath.Set {
	set := fieldpath.NewSet()
	for path := range p.shipped.set.All() {
		if p.follows(path) {
			set.Insert(slices.Clone(path))
		}
	}
	return set
}

// follows reports whether a field follows the release.
func (p *plan) follows(path fieldpath.Path) bool {
	if p.live == nil {
		return true
	}
	shipped, _ := find(p.shipped.content, path)
	live, there := find(p.live.content, path)
	switch {
	case there && (p.container(path, live) || same(live, shipped)):
		return true
	case !there && p.removed(path):
		return false
	}
	return p.yields(path)
}

// container reports whether a path has descendants both in what is shipped and in the object: then each descendant is
// compared separately.
func (p *plan) container(path fieldpath.Path, live any) bool {
	_, parts := below(p.shipped.set, path)
	switch live.(type) {
	case map[string]any, []any:
		return !parts.Empty()
	}
	return false
}

// removed reports whether a user removed a missing field, an ancestor of it, or all of its siblings. Labels and
// annotations are always ours to write: they mark what is shipped.
func (p *plan) removed(path fieldpath.Path) bool {
	if *path[0].FieldName == "metadata" {
		return false
	}
	if p.last == nil || p.last.Has(path) {
		return true
	}
	for n := 2; n < len(path); n++ {
		above, there := find(p.live.content, path[:n])
		at, parts := below(p.last, path[:n])
		switch {
		case !there:
			return at || !parts.Empty()
		case nothingIn(above):
			return !parts.Empty()
		}
	}
	return false
}

func nothingIn(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return true
}

// yields reports whether everything that must be removed to set a field is ours alone.
func (p *plan) yields(path fieldpath.Path) bool {
	for n := 1; n < len(path); n++ { // a leaf where the release has a container
		if at, parts := below(p.live.set, path[:n]); at && parts.Empty() && !p.alone(path[:n]) {
			return false
		}
	}
	at, deeper := below(p.live.set, path)
	if at && !p.alone(path) {
		return false
	}
	return every(deeper, func(rest fieldpath.Path) bool { return p.alone(append(slices.Clone(path), rest...)) })
}

func (p *plan) alone(path fieldpath.Path) bool { return p.ours.Has(path) && !p.others.Has(path) }

// changes reports whether applying the fields would change anything, even if only their owner.
func (p *plan) changes(set *fieldpath.Set) bool {
	if p.live == nil || !p.ours.Equals(set) {
		return true
	}
	return !every(set.Leaves(), func(path fieldpath.Path) bool {
		shipped, _ := find(p.shipped.content, path)
		live, there := find(p.live.content, path)
		return there && same(live, shipped)
	})
}

// every reports whether all fields of a set satisfy is. Leaving a loop over Set.All early panics, so it always runs
// to the end.
func every(set *fieldpath.Set, is func(fieldpath.Path) bool) bool {
	all := true
	set.Iterate(func(path fieldpath.Path) { all = all && is(path) })
	return all
}

func (p *plan) configuration(live *unstructured.Unstructured, name string, set *fieldpath.Set) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: p.shipped.extract(set)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u = u.DeepCopy()
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetName(name)
	if live != nil {
		u.SetUID(live.GetUID())
		u.SetResourceVersion(live.GetResourceVersion())
	}
	return u
}

// without removes fields from a set that the API server reports as owned by others, and reports whether there were
// any. It handles conflicts that could not be foreseen.
func without(set *fieldpath.Set, refused error) (*fieldpath.Set, bool) {
	var status apierrors.APIStatus
	if !errors.As(refused, &status) || status.Status().Details == nil {
		return set, false
	}
	theirs := map[string]bool{}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			theirs[cause.Field] = true
		}
	}
	out := fieldpath.NewSet()
	for path := range set.All() {
		if theirs[path.String()] {
			out.Insert(slices.Clone(path))
		}
	}
	return set.RecursiveDifference(out), !out.Empty()
}
