package grants

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Check returns an error if policies may not change before to after, both as valid JSON. Only the results are compared, not the patches.
func (p Patchable) Check(group, resource string, before, after []byte) error {
	extent := p.Extent(group, resource)
	if extent == "" {
		return fmt.Errorf("it patches %s: %s", Named(group, resource), p.Refusal(group, resource))
	}
	was, is := engine.Text(before), engine.Text(after)
	if !is.IsObject() {
		return fmt.Errorf("its result is not an object: %.80s", after)
	}
	own := defaultedFields[Named(group, resource)]
	for _, path := range changedPlaces(was, is) {
		switch part, key := path.part, path.key; {
		case slices.Contains(own, path):
		case part == "metadata.annotations" && key != "" && inDomain(key, v1alpha1.GroupName):
			return fmt.Errorf("it patches annotation %s of %s: no policy may patch an annotation that Sallyport acts on", key, Named(group, resource))
		case extent == All:
		case key == "":
			return fmt.Errorf("it patches %s of %s: only labels and annotations are granted; to grant all of it, run: %s",
				part, Named(group, resource), p.grantCommand(group, resource, All))
		case reserved(key):
			return fmt.Errorf("it patches %s[%s] of %s: what Kubernetes or Sallyport acts on is not among the granted metadata; to grant all of the object, run: %s",
				part, key, Named(group, resource), p.grantCommand(group, resource, All))
		}
	}
	return nil
}

// changedPlace is a changed part of an object, with the key if it is in labels or annotations.
type changedPlace struct{ part, key string }

// changedPlaces returns the places at which two objects differ: fields of metadata and spec, and keys of labels and annotations.
func changedPlaces(was, is engine.Value) (places []changedPlace) {
	for _, field := range differingMembers(was, is, "metadata", "spec") {
		before, after := was.Get(field), is.Get(field)
		if field != "metadata" && field != "spec" || !areObjects(before, after) {
			places = append(places, changedPlace{part: field})
			continue
		}
		for _, name := range differingMembers(before, after, "labels", "annotations") {
			part, old, new := field+"."+name, before.Get(name), after.Get(name)
			if part != "metadata.labels" && part != "metadata.annotations" || !areObjects(old, new) {
				places = append(places, changedPlace{part: part})
				continue
			}
			for _, key := range differingMembers(old, new) {
				places = append(places, changedPlace{part, key})
			}
		}
	}
	return places
}

// areObjects reports whether both values are objects or null.
func areObjects(was, is engine.Value) bool {
	return (was.IsNull() || was.IsObject()) && (is.IsNull() || is.IsObject())
}

// differingMembers returns the sorted names of the members that differ. A null member differs from none. Objects of those names differ if their
// texts do: the caller compares their members, and decoding all of a large spec would take much memory.
func differingMembers(was, is engine.Value, objects ...string) []string {
	before, after := map[string]engine.Value{}, map[string]engine.Value{}
	was.Each(func(name string, v engine.Value) { before[name] = v })
	is.Each(func(name string, v engine.Value) { after[name] = v })
	maps.DeleteFunc(before, func(name string, old engine.Value) bool {
		v, there := after[name]
		same := there && bytes.Equal(old.Raw(), v.Raw())
		if byMembers := slices.Contains(objects, name) && areObjects(old, v); !same && there && !byMembers {
			same = old.Equal(v)
		}
		if same {
			delete(after, name)
		}
		return same
	})
	maps.Copy(after, before)
	return slices.Sorted(maps.Keys(after))
}

// reserved reports whether Kubernetes or Sallyport acts on a label or annotation. Those of app.kubernetes.io are only descriptive.
func reserved(key string) bool {
	return inDomain(key, v1alpha1.GroupName) || inDomain(key, "k8s.io") || inDomain(key, "kubernetes.io") && !strings.HasPrefix(key, "app.kubernetes.io/")
}

// inDomain reports whether a key is in a domain or one of its subdomains.
func inDomain(key, domain string) bool {
	prefix, _, is := strings.Cut(key, "/")
	return is && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}
