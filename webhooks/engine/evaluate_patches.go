package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// mostPatched limits the size of an object that is patched, in bytes. No API server stores an object of that size, and patching it
// takes many times its memory.
const mostPatched = 2 << 20

// Apply applies patches to an object in order. It returns the result and the equivalent operations of RFC 6902.
func Apply(object []byte, patches []Patch) (changed []byte, operations []Patch, err error) {
	if len(object) == 0 { // json-patch would leave nothing unchanged, and call that success
		return nil, nil, errors.New("the request has no object")
	}
	if len(object) > mostPatched {
		return nil, nil, fmt.Errorf("the object has more than %d MiB", mostPatched>>20)
	}
	for _, p := range patches {
		due := []Patch{p}
		if p.Merge != nil {
			if due, err = p.operations(object); err != nil {
				return nil, nil, err
			}
		}
		if object, err = apply(object, due); err != nil {
			return nil, nil, err
		}
		operations = append(operations, due...)
	}
	return object, operations, nil
}

func apply(object []byte, operations []Patch) ([]byte, error) {
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	return decoded.Apply(object)
}

// operations returns the operations of a merge patch (RFC 7386): missing parents are created, and null removes.
func (p Patch) operations(object []byte) ([]Patch, error) {
	current, err := ParseValue(object)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	return merging("", current, *p.Merge), nil
}

func merging(path string, object, merge Value) (operations []Patch) {
	add := func(path string, v Value) { operations = append(operations, Patch{Op: "add", Path: path, Value: &v}) }
	if !object.IsObject() {
		add(path, withoutNulls(merge))
		return operations
	}
	wanted := map[string]Value{}
	merge.Each(func(name string, v Value) { wanted[name] = v })
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		at, v := path+"/"+escaped(name), wanted[name]
		was, there := object.member(name)
		switch {
		case v.IsNull() && there:
			operations = append(operations, Patch{Op: "remove", Path: at})
		case v.IsObject():
			operations = append(operations, merging(at, was, v)...)
		case !v.IsNull() && (!there || !was.Equal(v)):
			add(at, v)
		}
	}
	return operations
}

// withoutNulls returns the result of merging into nothing: nulls are dropped.
func withoutNulls(merge Value) Value {
	if !merge.IsObject() {
		return merge
	}
	made := members{}
	merge.Each(func(name string, v Value) {
		if v = withoutNulls(v); !v.IsNull() {
			made[name] = v
		}
	})
	return Value{from: made}
}

// Paths returns the fields that a patch changes, as JSON pointers.
func (p Patch) Paths() []string {
	if p.Merge == nil {
		return []string{p.Path}
	}
	return leaves("", *p.Merge)
}

func leaves(path string, v Value) (all []string) {
	if !v.IsObject() {
		return []string{path}
	}
	v.Each(func(name string, member Value) { all = append(all, leaves(path+"/"+escaped(name), member)...) })
	if len(all) == 0 {
		all = []string{path} // an empty map, to be created
	}
	slices.Sort(all)
	return all
}

var escaped = strings.NewReplacer("~", "~0", "/", "~1").Replace
