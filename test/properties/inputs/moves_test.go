package inputs_test

import (
	"regexp"
	"slices"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

const (
	nodeKind = "Node"
	nodeName = "node-2" // where a Migrate is to take the machine
)

// nodeOf makes a node that machines can be moved to.
func nodeOf() object {
	return object{
		"apiVersion": "v1", "kind": nodeKind,
		"metadata": object{"name": nodeName, "uid": "uid-" + nodeName, "creationTimestamp": "2026-11-01T08:00:00Z"},
		"spec":     object{"unschedulable": false},
		"status":   object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
	}
}

// aboutNode asks for a node, or nil.
func aboutNode(name string) engine.Query { return engine.Query{Kind: nodeKind, Name: name} }

// moves tells whether an operation is about the node of its machine.
func moves(spec any) bool {
	kind, _ := text(spec, "type")
	return kind == "Migrate" || kind == "Evict"
}

var nameOfNode = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// migrates is the opinion of placement-migration. No world has as many machines that are being moved as it takes to meet the limit.
func migrates(spec, vm any, w *world, subject facts.Subject) opinion {
	to, ok := optional(spec, "migrate", "nodeName")
	if migrate, set := dig(spec, "migrate"); set && !isObject(migrate) || !ok {
		return opinion{problem: "migrate cannot be read"}
	}
	if !moves(spec) {
		return opinion{}
	}
	var node any
	if nameOfNode.MatchString(to) {
		node = w.answer(aboutNode(to), subject)
	}
	moving, ok := w.answer(engine.Query{Kind: machineKind, Fields: map[string]string{"status.phase": "Migrating"}}, subject).([]any)
	switch {
	case !ok:
		return opinion{problem: "the list of machines is none"}
	case vm != nil && !isMovable(vm) || slices.ContainsFunc(moving, func(vm any) bool { return !isMovable(vm) }):
		return opinion{problem: "a machine cannot be read"}
	case node != nil && !isNode(node, to):
		return opinion{problem: "the node cannot be read"}
	case vm == nil || to == "":
		return opinion{}
	case has(vm, "status.nodeName", to):
		return opinion{reason: "AlreadyOnNode"}
	case node == nil:
		return opinion{reason: "NodeUnknown"}
	}
	return opinion{reason: againstNode(node)}
}

// againstNode is why no machine can be moved to a node.
func againstNode(node any) string {
	conditions, _ := dig(node, "status", "conditions")
	list, _ := conditions.([]any)
	ready := slices.ContainsFunc(list, func(c any) bool { return has(c, "type", "Ready") && has(c, "status", "True") })
	_, deleted := dig(node, "metadata", "deletionTimestamp")
	cordoned, _ := dig(node, "spec", "unschedulable")
	switch {
	case !ready || deleted:
		return "NodeNotReady"
	case cordoned == true:
		return "NodeUnschedulable"
	}
	return ""
}

// isMovable tells whether that can be read of a machine which matters where it is moved.
func isMovable(vm any) bool {
	_, named := text(vm, "metadata", "name")
	runtime, _ := dig(vm, "spec", "runtime")
	status, set := dig(vm, "status")
	if !named || !isObject(runtime) || set && !isObject(status) {
		return false
	}
	if node, set := dig(status, "nodeName"); set && !isString(node) {
		return false
	}
	if claim, set := dig(status, "activeOperation"); set && claim != nil && !isHolder(claim) {
		return false
	}
	undoing, set := dig(status, "undoing")
	entries, list := undoing.([]any)
	return (list || !set) && !slices.ContainsFunc(entries, func(entry any) bool { return !isHolder(entry) })
}

// isHolder tells whether an entry of undoing, or a claim, can be read.
func isHolder(holder any) bool {
	_, typed := text(holder, "type")
	_, from := text(holder, "origin")
	name, set := dig(holder, "name")
	return typed && from && (!set || isString(name))
}

// isNode tells whether that can be read of a node which matters to machines that are moved there.
func isNode(node any, name string) bool {
	_, since := optional(node, "metadata", "deletionTimestamp")
	spec, set := dig(node, "spec")
	cordoned, says := dig(node, "spec", "unschedulable")
	_, boolean := cordoned.(bool)
	return has(node, "metadata.name", name) && since && (!set || isObject(spec)) && (!says || boolean)
}

// optional gives a string that may be missing but not be empty or anything else.
func optional(node any, keys ...string) (string, bool) {
	value, ok := text(node, keys...)
	_, set := dig(node, keys...)
	return value, ok || !set
}

func isString(value any) bool { _, is := value.(string); return is }

func isObject(value any) bool { _, is := value.(object); return is }
