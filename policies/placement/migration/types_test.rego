# Requests and facts that the policy does not understand.
package sallyport.placement.migration_test

_wrong := {"null": null, "empty": "", "a number": 0, "a list": [], "an object": {}, "true": true, "unknown": "Bogus"}

_replaced(document, path, value) := object.union(json.remove(document, [path]), json.unmarshal(concat("", [
	concat("", [$"\{{json.marshal(key)}:" | some key in split(path, "/")]),
	json.marshal(value),
	concat("", ["}" | some _ in split(path, "/")]),
])))

# Each field of an operation's request, and which of the wrong values are not wrong there.
test_not_understood_operation[note] if {
	some path, harmless in {
		"operation": [],
		"namespace": ["unknown"],
		"object/spec": [],
		"object/spec/type": [],
		"object/spec/virtualMachineName": [],
		"object/spec/migrate": ["an object"],
		"object/spec/migrate/nodeName": ["unknown"],
	}
	some what, value in _wrong
	not what in harmless
	note := $"{path} {what}"
	_verdict == "not understood" with input as {"request": _replaced(_migrate, path, value), "facts": _naming(_on_node, _node({}), [])}
		with data.parameters as _parameters
}

test_not_understood_change[note] if {
	some path, harmless in {
		"operation": [],
		"namespace": ["unknown"],
		"oldObject": [],
		"oldObject/metadata/name": [],
		"object/metadata/name": [],
		"object/spec": ["an object"],
		"object/spec/nodeName": ["empty", "unknown"],
		"oldObject/spec": [],
		"oldObject/spec/nodeName": ["empty", "unknown"],
		"oldObject/spec/runtime": ["an object"],
		"oldObject/spec/runtime/vsphere": [],
		"oldObject/status": ["an object"],
	}
	some what, value in _wrong
	not what in harmless
	note := $"{path} {what}"
	request := _replaced(_update(_on_node, {"nodeName": "node-3"}, {"nodeName": "node-2"}), path, value)
	_verdict == "not understood" with input as {"request": request, "facts": _facts(null, _node({}), [])} with data.parameters as _parameters
}

_good := _naming(
	_vm(_pod, {
		"activeOperation": {"origin": "Operation", "type": "Migrate", "name": "m"},
		"undoing": [{"origin": "RunPolicy", "type": "Start"}],
		"migration": {"step": "Wake", "to": {"nodeName": "node-2"}, "was": {"nodeName": "node-1"}},
		"placement": {"nodeName": "node-1", "inPlaceOf": "node-3"},
	}),
	_node({}), [_leaves],
)

test_good if _verdict == "allow" with input as {"request": _migrate, "facts": _good} with data.parameters as _parameters

test_not_understood_facts[note] if {
	some path, harmless in {
		"vm": ["null"],
		"vm/metadata/name": [],
		"vm/spec": [],
		"vm/spec/runtime": ["an object"],
		"vm/spec/runtime/vsphere": [],
		"vm/spec/runtime/vsphere/serverRef": [],
		"vm/spec/runtime/vsphere/serverRef/name": ["unknown"],
		"vm/spec/nodeName": ["empty", "unknown"],
		"vm/status": ["an object"],
		"vm/status/nodeName": ["empty", "unknown"],
		"vm/status/activeOperation": ["null"],
		"vm/status/activeOperation/type": ["unknown"],
		"vm/status/activeOperation/origin": ["unknown"],
		"vm/status/activeOperation/name": ["empty", "unknown"],
		"vm/status/activeOperation/nodeName": ["empty", "unknown"],
		"vm/status/undoing": ["a list"],
		"vm/status/migration": ["null"],
		"vm/status/migration/step": [],
		"vm/status/migration/was": ["an object"],
		"vm/status/migration/was/nodeName": ["empty", "unknown"],
		"vm/status/placement": ["null"],
		"vm/status/placement/nodeName": ["unknown"],
		"vm/status/placement/inPlaceOf": ["empty", "unknown"],
		"node": ["null"],
		"node/metadata/name": [],
		"node/metadata/deletionTimestamp": ["unknown"],
		"node/spec": ["an object"],
		"node/spec/unschedulable": ["true"],
		"servers": ["a list"],
		"moving": ["a list"],
	}
	some what, value in _wrong
	not what in harmless
	note := $"{path} {what}"
	_verdict == "not understood" with input as {"request": _migrate, "facts": _replaced(_good, path, value)}
		with data.parameters as _parameters
}

# What machines of other namespaces are never decides whether a request is understood: each counts on the nodes that it names.
test_movers_of_any_shape[note] if {
	some note, mover in {$"{path} {what}": _replaced(_leaves, path, value) |
		some path in [
			"spec", "spec/nodeName", "spec/runtime", "status", "status/nodeName", "status/activeOperation", "status/migration",
			"status/migration/to", "status/placement", "status/undoing",
		]
		some what, value in _wrong
	}
	_verdict == "allow" with input as {"request": _migrate, "facts": object.union(_good, {"moving": [mover]})}
		with data.parameters as _parameters
}

test_not_understood_movers[note] if {
	some note, facts in object.union_n([
		{$"entry {what}": object.union(_good, {"moving": [value]}) | some what, value in _wrong},
		{$"namespace {what}": object.union(_good, {"moving": [_replaced(_leaves, "metadata/namespace", value)]}) |
			some what, value in _wrong
			what != "unknown"
		},
		{$"undoing {what}": _replaced(_good, "vm/status/undoing", [value]) | some what, value in _wrong},
		{$"{fact} missing": object.remove(_good, [fact]) | some fact, _ in _good},
	])
	_verdict == "not understood" with input as {"request": _migrate, "facts": facts} with data.parameters as _parameters
}

# What was not asked for is no answer.
test_not_understood_unasked[note] if {
	some note, facts in {
		"a machine": _facts(_on_node, null, null),
		"a node": _facts(null, _node({}), null),
		"others": _facts(null, null, []),
		"a VSphereServer": object.union(_nothing, {"server": {"metadata": {"name": "vc-1", "generation": 1}}}),
		"VSphereServers": object.union(_nothing, {"servers": []}),
	}
	_verdict == "not understood" with input as {"request": _operation("Stop", {}), "facts": facts} with data.parameters as _parameters
}
