package offline

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Change is a field that the cluster changed.
type Change struct {
	// Op is add, remove or change.
	Op string `json:"op"`
	// Path is the path of the field, such as spec.force or metadata.labels[sallyport.dev/virtual-machine].
	Path string `json:"path"`
	Old  any    `json:"old,omitempty"`
	New  any    `json:"new,omitempty"`
	// By is "schema", "server" or "policy" with its name.
	By string `json:"by"`

	keys []string
}

// changes compares the object after each stage, to find out what changed each field.
func (p *pending) changes() []Change {
	by := map[string]Change{}
	before := p.sent
	for _, s := range p.stages {
		for _, c := range differences(nil, before, s.object) {
			c.By = s.by
			if s.by == "policies" {
				c.By = p.patcher(c.keys)
			}
			if earlier, twice := by[c.Path]; twice {
				c.Old = earlier.Old
				c.Op = operation(earlier.Op != "add", c.Op != "remove")
			}
			by[c.Path] = c
		}
		before = s.object
	}
	maps.DeleteFunc(by, func(_ string, c Change) bool {
		return c.Op == "" || reflect.DeepEqual(c.Old, c.New) && c.Op == "change"
	})
	all := slices.SortedFunc(maps.Values(by), func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return slices.DeleteFunc(all, func(c Change) bool { return isPartOf(all, c) })
}

// isPartOf reports whether a change is part of another: a default in a field that was then removed as a whole.
func isPartOf(all []Change, c Change) bool {
	return slices.ContainsFunc(all, func(whole Change) bool {
		return len(whole.keys) < len(c.keys) && slices.Equal(whole.keys, c.keys[:len(whole.keys)])
	})
}

func operation(was, is bool) string {
	switch {
	case was && is:
		return "change"
	case was:
		return "remove"
	case is:
		return "add"
	}
	return ""
}

// setByServer are the metadata fields that the API server sets in every object; their changes are not reported.
var setByServer = []string{
	"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion", "namespace", "name", "selfLink",
	"managedFields",
}

// differences compares maps recursively, and lists as a whole.
func differences(keys []string, before, after map[string]any) (found []Change) {
	all := map[string]any{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := append(slices.Clone(keys), name)
		if len(path) == 2 && path[0] == "metadata" && slices.Contains(setByServer, name) {
			continue
		}
		old, was := before[name]
		value, is := after[name]
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := value.(map[string]any)
		switch {
		case wasMap && isMap:
			found = append(found, differences(path, oldMap, newMap)...)
		case was != is || !reflect.DeepEqual(old, value):
			found = append(found, Change{Op: operation(was, is), Path: written(path), Old: old, New: value, keys: path})
		}
	}
	return found
}

func written(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		switch {
		case strings.ContainsAny(key, "./"):
			b.WriteString("[" + key + "]")
		case i > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}

// patcher returns the policy that patched a field, or "policies" if that is ambiguous.
func (p *pending) patcher(keys []string) string {
	for _, v := range p.result.Policies {
		for _, patch := range v.Patches {
			if slices.ContainsFunc(patch.Paths(), func(path string) bool { return related(pointer(path), keys) }) {
				return "policy " + v.Policy
			}
		}
	}
	return "policies"
}

func pointer(path string) []string {
	keys := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, key := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
	}
	last := keys[len(keys)-1]
	if _, err := strconv.Atoi(last); err == nil || last == "-" { // an element: the list as a whole has changed
		keys = keys[:len(keys)-1]
	}
	return keys
}

// related reports whether one of the paths is a prefix of the other.
func related(a, b []string) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}
