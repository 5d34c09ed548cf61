package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// Apply has patches change an object, one after another, and gives it as it is then, with the operations of RFC 6902 that have done so.
func Apply(object []byte, patches []Patch) (changed []byte, operations []Patch, err error) {
	if len(object) == 0 { // json-patch would leave nothing unchanged, and call that success
		return nil, nil, errors.New("the request has no object")
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

// operations are what a merge patch does to an object, as RFC 7386 has it: parents that are not there are made, and null removes.
func (p Patch) operations(object []byte) ([]Patch, error) {
	current, err := ParseValue(object)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	is, err := current.Decode()
	if err != nil {
		return nil, err
	}
	merge, err := p.Merge.Decode()
	if err != nil {
		return nil, err
	}
	m := &merging{}
	m.into("", is, merge.(map[string]any))
	return m.operations, m.err
}

type merging struct {
	operations []Patch
	err        error
}

func (m *merging) into(path string, object any, merge map[string]any) {
	members, ok := object.(map[string]any)
	if !ok {
		m.add(path, without(merge))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(merge)) {
		at := path + "/" + escaped(key)
		was, there := members[key]
		inner, nested := merge[key].(map[string]any)
		switch {
		case merge[key] == nil && there:
			m.operations = append(m.operations, Patch{Op: "remove", Path: at})
		case nested:
			m.into(at, was, inner)
		case merge[key] != nil && (!there || !reflect.DeepEqual(was, merge[key])):
			m.add(at, merge[key])
		}
	}
}

func (m *merging) add(path string, what any) {
	value, err := ValueOf(what)
	m.err = errors.Join(m.err, err)
	m.operations = append(m.operations, Patch{Op: "add", Path: path, Value: &value})
}

// without is what a merge patch makes where there was nothing: nulls remove what is not there.
func without(merge map[string]any) map[string]any {
	made := map[string]any{}
	for key, value := range merge {
		if inner, nested := value.(map[string]any); nested {
			value = without(inner)
		}
		if value != nil {
			made[key] = value
		}
	}
	return made
}

// Paths are the fields that a patch is about, as JSON pointers.
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
		all = []string{path} // an empty map, to be made
	}
	slices.Sort(all)
	return all
}

var escaped = strings.NewReplacer("~", "~0", "/", "~1").Replace
