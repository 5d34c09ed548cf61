# Requests and facts that the policy does not understand.
package sallyport.placement.migration_test

_without(document, path) := json.remove(document, [path])

test_not_understood_operation[note] if {
	some note, request in object.union(
		{$"{path} missing": _without(_migrate, path) | some path in ["operation", "namespace", "object/spec", "object/spec/type", "object/spec/virtualMachineName"]},
		{
			"an unknown type": object.union(_migrate, {"object": {"spec": {"type": "Bogus"}}}),
			"no name of a node": object.union(_migrate, {"object": {"spec": {"migrate": {"nodeName": ""}}}}),
		},
	)
	_verdict == "not understood" with input as {"request": request, "facts": _naming(_on_node, _node({}), [])} with data.parameters as _parameters
}

test_not_understood_change[path] if {
	some path in [
		"operation", "namespace", "oldObject", "oldObject/metadata/name", "object/metadata/name", "object/spec", "oldObject/spec", "oldObject/spec/runtime",
	]
	request := _without(_update(_on_node, {"nodeName": "node-3"}, {"nodeName": "node-2"}), path)
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
	some note, facts in object.union_n([
		{$"{path} missing": _without(_good, path) | some path in [
			"vm", "vm/metadata/name", "vm/spec", "vm/spec/runtime", "vm/status/activeOperation/type", "vm/status/activeOperation/origin",
			"vm/status/migration/step", "node", "node/metadata/name", "servers", "moving",
		]},
		{$"{field} of a machine that moves is missing": object.union(_good, {"moving": [_without(_leaves, $"metadata/{field}")]}) |
			some field in ["name", "namespace"]
		},
		{
			"an unknown step": object.union(_good, {"vm": {"status": {"migration": {"step": "Bogus"}}}}),
			"a VSphereServer without a name": object.union(_good, {"vm": {"spec": {"runtime": {"vsphere": {"serverRef": {"name": ""}}}}}}),
		},
	])
	_verdict == "not understood" with input as {"request": _migrate, "facts": facts} with data.parameters as _parameters
}
