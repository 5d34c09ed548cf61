package inputs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// change breaks one place of the request or of an answer.
type change struct {
	root   string // "request", or the kind that the answer is of
	path   []any  // keys and positions
	remove bool
	value  any // what is there instead, unless removed
}

func (c change) String() string {
	if c.remove {
		return fmt.Sprintf("%s%v deleted", c.root, c.path)
	}
	return fmt.Sprintf("%s%v = %s", c.root, c.path, shown(c.value))
}

// to gives the document with the change. The original stays as it is; a place that is not there any more changes nothing.
func (c change) to(document any) any { return c.at(document, c.path) }

func (c change) at(node any, path []any) any {
	if len(path) == 0 {
		return c.value
	}
	switch node := node.(type) {
	case object:
		key, _ := path[0].(string)
		child, ok := node[key]
		if !ok {
			return node
		}
		changed := maps.Clone(node)
		if c.remove && len(path) == 1 {
			delete(changed, key)
		} else {
			changed[key] = c.at(child, path[1:])
		}
		return changed
	case []any:
		i, ok := path[0].(int)
		if !ok || i >= len(node) {
			return node
		}
		changed := slices.Clone(node)
		changed[i] = c.at(node[i], path[1:])
		return changed
	}
	return node
}

// changed applies those of the changes that are for the root.
func changed(root string, document any, changes []change) any {
	for _, c := range changes {
		if c.root == root {
			document = c.to(document)
		}
	}
	return document
}

var bigString = strings.Repeat("x", 4096)

// replacements are of every type of JSON, and never a value that a field with a list of values can have.
var replacements = []any{
	nil, "", 0, false, []any{}, object{}, "Bogus", object{"bogus": object{"bogus": []any{nil, "Running"}}}, bigString,
}

// site is a place where a change can be made.
type site struct {
	root string
	path []any
}

// openers are the changes that may turn a denial into an allow, as regular expressions over what change.String gives.
var openers = []*regexp.Regexp{
	// Not forced: another operation than the one that was refused, or one that yields more easily.
	regexp.MustCompile(`^request\[object spec force\] (deleted|= false)$`),
	regexp.MustCompile(`^VirtualMachineOperation\[\d+ spec force\] (deleted|= false)$`),
	// Not being deleted.
	regexp.MustCompile(`^VirtualMachine\[metadata deletionTimestamp\] deleted$`),
	// Not looked at yet, so Pending, and idle.
	regexp.MustCompile(`^VirtualMachine\[status\] (deleted|= \{.*)$`),
	regexp.MustCompile(`^VirtualMachine\[status phase\] (deleted|= "")$`),
	// Idle.
	regexp.MustCompile(`^VirtualMachine\[status activeOperation\] deleted$`),
	// No run policy, which is like Manual.
	regexp.MustCompile(`^VirtualMachine\[spec\] = \{\}$`),
	regexp.MustCompile(`^VirtualMachine\[spec runPolicy\] deleted$`),
}

func (c change) opens() bool {
	text := c.String()
	matches := func(o *regexp.Regexp) bool { return o.MatchString(text) }
	return slices.ContainsFunc(openers, matches)
}

// draw breaks the site in a random way. What can be deleted are keys: an entry that is missing from a list is another list.
func (s site) draw(random *rand.Rand) change {
	c := change{root: s.root, path: s.path}
	if n := len(s.path); n > 0 {
		if _, key := s.path[n-1].(string); key && random.IntN(2) == 0 {
			c.remove = true
			return c
		}
	}
	for {
		c.value = replacements[random.IntN(len(replacements))]
		if list, ok := c.value.([]any); !ok || len(list) > 0 || len(s.path) > 0 {
			return c // [] for the whole list of operations would say that there are none
		}
	}
}

// sitesOf lists every place in a document, the document itself first, in an order that is always the same.
func sitesOf(root string, node any, path []any) []site {
	sites := []site{{root, slices.Clip(path)}}
	switch node := node.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			sites = append(sites, sitesOf(root, node[key], append(slices.Clip(path), key))...)
		}
	case []any:
		for i := range node {
			sites = append(sites, sitesOf(root, node[i], append(slices.Clip(path), i))...)
		}
	}
	return sites
}

// weighty are the keys that decisions rest on. Most changes are made there, not in labels and conditions.
var weighty = []any{
	"object", "spec", "type", "force", "virtualMachineName", "namespace", "metadata", "name", "uid", "status", "phase",
	"activeOperation", "undoing", "origin", "id", "migrate", "nodeName", "runtime", "unschedulable", "conditions", "runPolicy", "deletionTimestamp",
	"requestedBy", "requestedAt", "virtualMachineUID", "override", "labels", "annotations", "finalizers",
}

func isWeighty(s site) bool {
	return len(s.path) == 0 || slices.Contains(weighty, s.path[len(s.path)-1])
}

// drawChanges breaks one to three of the sites, which are in groups of equal weight.
func drawChanges(random *rand.Rand, groups [][]site) []change {
	changes := make([]change, 1+random.IntN(3))
	for i := range changes {
		sites := groups[random.IntN(len(groups))]
		s := sites[random.IntN(len(sites))]
		for random.IntN(4) != 0 && !isWeighty(s) {
			s = sites[random.IntN(len(sites))]
		}
		changes[i] = s.draw(random)
	}
	return changes
}

// shown is a document as it is printed.
func shown(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), bigString, fmt.Sprintf("x * %d", len(bigString)))
}

// dig follows keys through objects; the second result tells whether there is something, null included.
func dig(node any, keys ...string) (any, bool) {
	for _, key := range keys {
		o, ok := node.(object)
		if !ok {
			return nil, false
		}
		if node, ok = o[key]; !ok {
			return nil, false
		}
	}
	return node, true
}

// text gives a non-empty string, and false for everything else.
func text(node any, keys ...string) (string, bool) {
	value, _ := dig(node, keys...)
	s, _ := value.(string)
	return s, s != ""
}
