package grants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Check tells whether a policy may make one object out of another, both as JSON. How it did so makes no difference: what is compared
// is what there is in the end.
func (p Patchable) Check(group, resource string, before, after []byte) error {
	extent := p.Extent(group, resource)
	if extent == "" {
		return fmt.Errorf("it patches %s: %s", Named(group, resource), p.Refusal(group, resource))
	}
	was, err := decode(before)
	if err != nil {
		return fmt.Errorf("reading the object: %w", err)
	}
	is, err := decode(after)
	if err != nil || is == nil {
		return fmt.Errorf("it makes of the object what is none: %.80s", after)
	}
	for _, path := range changed(was, is) {
		switch part, key := path.part, path.key; {
		case part == "metadata.annotations" && key != "" && below(key, v1alpha1.GroupName):
			return fmt.Errorf("it patches annotation %s of %s: no policy may patch an annotation that Sallyport acts on", key, Named(group, resource))
		case extent == All:
		case key == "":
			return fmt.Errorf("it patches %s of %s: only labels and annotations are granted; to grant all of it, run: %s",
				part, Named(group, resource), p.granting(group, resource, All))
		case reserved(key):
			return fmt.Errorf("it patches %s[%s] of %s: what Kubernetes or Sallyport acts on is not among the granted metadata; to grant all of the object, run: %s",
				part, key, Named(group, resource), p.granting(group, resource, All))
		}
	}
	return nil
}

// object is one whose members are not decoded as long as they are the same: a patch leaves what it does not touch as it was written.
type object map[string]json.RawMessage

func decode(text []byte) (o object, err error) {
	err = json.Unmarshal(text, &o)
	return o, err
}

// place is what a patch has changed: a part of the object, with a key of its labels or annotations.
type place struct{ part, key string }

// changed gives the places at which two objects differ.
func changed(was, is object) (places []place) {
	for _, field := range differing(was, is) {
		if field != "metadata" {
			places = append(places, place{part: field})
			continue
		}
		before, after, objects := members(was[field], is[field])
		if !objects {
			places = append(places, place{part: field})
			continue
		}
		for _, name := range differing(before, after) {
			part := "metadata." + name
			old, new, maps := members(before[name], after[name])
			if name != "labels" && name != "annotations" || !maps {
				places = append(places, place{part: part})
				continue
			}
			for _, key := range differing(old, new) {
				places = append(places, place{part, key})
			}
		}
	}
	return places
}

// members gives two values as objects; what is absent or null has no members.
func members(was, is json.RawMessage) (before, after object, objects bool) {
	for text, into := range map[*json.RawMessage]*object{&was: &before, &is: &after} {
		if len(*text) > 0 && json.Unmarshal(*text, into) != nil {
			return nil, nil, false
		}
	}
	return before, after, true
}

// differing gives the keys whose values differ, in their order.
func differing(was, is object) (keys []string) {
	all := maps.Clone(was)
	if all == nil {
		all = object{}
	}
	maps.Copy(all, is)
	for key := range all {
		before, had := was[key]
		after, has := is[key]
		if had != has || !same(before, after) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// same tells whether two values are the same, however they are written. Numbers are compared as they are written.
func same(was, is json.RawMessage) bool {
	if bytes.Equal(was, is) || bytes.Equal(compact(was), compact(is)) {
		return true // without decoding what is large
	}
	var before, after any
	for text, into := range map[*json.RawMessage]*any{&was: &before, &is: &after} {
		decoder := json.NewDecoder(bytes.NewReader(*text))
		decoder.UseNumber()
		if decoder.Decode(into) != nil {
			return false
		}
	}
	return reflect.DeepEqual(before, after)
}

// compact is a text without the spaces that a patched object has lost.
func compact(text []byte) []byte {
	var to bytes.Buffer
	to.Grow(len(text))
	if json.Compact(&to, text) != nil {
		return text
	}
	return to.Bytes()
}

// reserved tells whether Kubernetes or Sallyport acts on a label or an annotation. What app.kubernetes.io recommends only describes.
func reserved(key string) bool {
	return below(key, v1alpha1.GroupName) || below(key, "k8s.io") || below(key, "kubernetes.io") && !strings.HasPrefix(key, "app.kubernetes.io/")
}

// below tells whether a key is of a domain or one below it.
func below(key, domain string) bool {
	prefix, _, is := strings.Cut(key, "/")
	return is && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}
