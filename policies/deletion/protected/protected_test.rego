package sallyport.deletion.protected_test

import data.sallyport.deletion.protected as policy
import data.sallyport.lib.override

_label := "sallyport.dev/deletion-protection"

_gc := "system:serviceaccount:kube-system:generic-garbage-collector"

_nc := "system:serviceaccount:kube-system:namespace-controller"

_parameters := {
	"garbageCollectors": [_gc],
	"namespaceControllers": [_nc],
	"exempt": [
		{"resources": ["pods"], "groups": ["system:nodes"], "users": ["podgc"]},
		{"resources": ["replicasets.apps"], "users": ["deployer"]},
		{"resources": ["widgets.example.com"], "groups": ["tinkerers"]},
	],
}

_owner := {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-9"}

_thing(labels, more) := {"metadata": object.union({"name": "x", "uid": "u-1", "namespace": "team-a", "labels": labels}, more)}

_plain := _thing({"app": "x"}, {})

_marked(value) := _thing({"app": "x", _label: value}, {})

_enabled := _marked("enabled")

_owned(owners) := _thing({_label: "enabled"}, {"ownerReferences": owners})

_terminating := _thing({_label: "enabled"}, {"deletionTimestamp": "2026-11-20T10:31:57Z"})

_base := {
	"kind": {"group": "apps", "version": "v1", "kind": "ReplicaSet"},
	"resource": {"group": "apps", "version": "v1", "resource": "replicasets"},
	"namespace": "team-a", "name": "x",
	"userInfo": {"username": "alice", "groups": ["system:authenticated"]},
}

_create(new) := object.union(_base, {"operation": "CREATE", "object": new, "oldObject": null})

_update(old, new) := object.union(_base, {"operation": "UPDATE", "object": new, "oldObject": old})

# For a collection, the API server sends one request per object, without a name.
_delete(old) := object.union(_base, {"operation": "DELETE", "name": "", "object": null, "oldObject": old})

_by(who, request) := object.union(request, {"userInfo": {"username": who}})

_in(group, request) := object.union(request, {"userInfo": {"username": "bob", "groups": ["a", group]}})

_of(group, resource, kind, request) := object.union(request, {
	"kind": {"group": group, "kind": kind},
	"resource": {"group": group, "resource": resource},
})

_cluster_scoped(request) := object.union(
	json.remove(_of("", "nodes", "Node", request), ["namespace", "oldObject/metadata/namespace"]),
	{"userInfo": request.userInfo},
)

# The verdict about a request. An invalid input is never allowed.
_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", sort([denial.reason | some denial in policy.deny])) if {
	policy.valid_input
	count(policy.deny) > 0
}

_verdict := "allow" if {
	policy.valid_input
	count(policy.deny) == 0
}

_asked(request) := {"request": request, "facts": {"namespace": null, "owner": null}}

_creations := {
	"with the label": {"object": _enabled, "verdict": "allow"},
	"without labels": {"object": {"metadata": {"name": "x"}}, "verdict": "allow"},
	"with labels that are null": {"object": {"metadata": {"name": "x", "labels": null}}, "verdict": "allow"},
	"with other labels": {"object": _plain, "verdict": "allow"},
	"with an owner": {"object": _owned([_owner]), "verdict": "allow"},
	"of a generated name": {"object": {"metadata": {"generateName": "x-", "labels": {_label: "enabled"}}}, "verdict": "allow"},
	"without a value": {"object": _marked(""), "verdict": "UnknownProtection"},
	"with true": {"object": _marked("true"), "verdict": "UnknownProtection"},
	"with another case": {"object": _marked("Enabled"), "verdict": "UnknownProtection"},
	"with disabled": {"object": _marked("disabled"), "verdict": "UnknownProtection"},
	"of a generated name with true": {
		"object": {"metadata": {"generateName": "x-", "labels": {_label: "true"}}},
		"verdict": "UnknownProtection",
	},
}

test_creation[note] if {
	some note, tc in _creations
	_verdict == tc.verdict with input as _asked(_create(tc.object)) with data.parameters as _parameters
}

test_dry_run_is_judged_as_what_it_tries if {
	request := object.union(_delete(_enabled), {"dryRun": true})
	_verdict == "DeletionProtected" with input as _asked(request) with data.parameters as _parameters
}

# Creating a subresource, such as an Eviction, stores no object.
test_creation_of_a_subresource_is_left_alone if {
	request := object.union(_create(_marked("true")), {"subResource": "eviction"})
	_verdict == "allow" with input as _asked(request) with data.parameters as _parameters
}

_renamed := object.union(_owner, {"name": "gone"})

_changes := {
	"of something else": {"old": _enabled, "new": _thing({_label: "enabled", "app": "y"}, {}), "verdict": "allow"},
	"that protects": {"old": _plain, "new": _enabled, "verdict": "allow"},
	"that protects what had no labels": {"old": {"metadata": {"name": "x"}}, "new": _enabled, "verdict": "allow"},
	"that protects, with an owner": {"old": _plain, "new": _owned([_owner]), "verdict": "allow"},
	"that takes the label off": {"old": _enabled, "new": _plain, "verdict": "ProtectionRemoved"},
	"that takes all labels off": {"old": _enabled, "new": _thing(null, {}), "verdict": "ProtectionRemoved"},
	"that leaves labels out": {"old": _enabled, "new": {"metadata": {"name": "x"}}, "verdict": "ProtectionRemoved"},
	"of the value": {"old": _enabled, "new": _marked("disabled"), "verdict": "ProtectionRemoved"},
	"to no value": {"old": _enabled, "new": _marked(""), "verdict": "ProtectionRemoved"},
	"that takes the label off and adds an owner": {
		"old": _enabled, "new": _thing({}, {"ownerReferences": [_owner]}),
		"verdict": "OwnerAdded, ProtectionRemoved",
	},
	"to a value that is none": {"old": _plain, "new": _marked("true"), "verdict": "UnknownProtection"},
	"of a value that was none": {"old": _marked("true"), "new": _marked("True"), "verdict": "UnknownProtection"},
	"beside a value that was none": {"old": _marked("true"), "new": _thing({_label: "true", "app": "y"}, {}), "verdict": "allow"},
	"that corrects a value": {"old": _marked("true"), "new": _enabled, "verdict": "allow"},
	"that takes a value off that was none": {"old": _marked("true"), "new": _plain, "verdict": "allow"},
	"that adds an owner": {"old": _enabled, "new": _owned([_owner]), "verdict": "OwnerAdded"},
	"that adds another owner": {
		"old": _owned([_owner]), "new": _owned([_owner, object.union(_owner, {"uid": "u-8"})]),
		"verdict": "OwnerAdded",
	},
	"that calls an owner otherwise": {"old": _owned([_owner]), "new": _owned([_renamed]), "verdict": "OwnerAdded"},
	"of an owner's group": {
		"old": _owned([_owner]), "new": _owned([object.union(_owner, {"apiVersion": "v1"})]),
		"verdict": "OwnerAdded",
	},
	"of an owner's version": {
		"old": _owned([_owner]), "new": _owned([object.union(_owner, {"apiVersion": "apps/v2"})]),
		"verdict": "allow",
	},
	"of whether an owner is in control": {
		"old": _owned([_owner]), "new": _owned([object.union(_owner, {"controller": true, "blockOwnerDeletion": true})]),
		"verdict": "allow",
	},
	"that orphans": {"old": _owned([_owner]), "new": _enabled, "verdict": "allow"},
	"that orphans, with null": {"old": _owned([_owner]), "new": _owned(null), "verdict": "allow"},
	"of an owner of what is not protected": {"old": _plain, "new": _thing({}, {"ownerReferences": [_owner]}), "verdict": "allow"},
	"of what is being deleted": {"old": _terminating, "new": _plain, "verdict": "allow"},
	"to a value that is none of what is being deleted": {
		"old": _thing({}, {"deletionTimestamp": "2026-11-20T10:31:57Z"}), "new": _marked("true"),
		"verdict": "allow",
	},
}

test_change[note] if {
	some note, tc in _changes
	_verdict == tc.verdict with input as _asked(_update(tc.old, tc.new)) with data.parameters as _parameters
}

# Some kinds let labels be changed with their status.
test_change_by_a_subresource[note] if {
	some note, tc in _changes
	request := object.union(_update(tc.old, tc.new), {"subResource": "status"})
	_verdict == tc.verdict with input as _asked(request) with data.parameters as _parameters
}

test_change_by_who_may_delete[note] if {
	some note, tc in {
		"the garbage collector": {"request": _by(_gc, _update(_owned([_owner]), _plain)), "verdict": "ProtectionRemoved"},
		"a namespace controller": {"request": _by(_nc, _update(_enabled, _plain)), "verdict": "ProtectionRemoved"},
		"the garbage collector, an owner": {"request": _by(_gc, _update(_enabled, _owned([_owner]))), "verdict": "OwnerAdded"},
		"who is exempt": {"request": _by("deployer", _update(_enabled, _plain)), "verdict": "allow"},
		"who is exempt and adopts": {"request": _by("deployer", _update(_enabled, _owned([_owner]))), "verdict": "OwnerAdded"},
		"who is exempt, another owner": {
			"request": _by("deployer", _update(_owned([_owner]), _owned([object.union(_owner, {"uid": "u-8"})]))),
			"verdict": "allow",
		},
		"who is exempt elsewhere": {"request": _by("podgc", _update(_enabled, _plain)), "verdict": "ProtectionRemoved"},
		"who is exempt, a value that is none": {"request": _by("deployer", _update(_plain, _marked("true"))), "verdict": "UnknownProtection"},
	}
	_verdict == tc.verdict with input as _asked(tc.request) with data.parameters as _parameters
}

_deletions := {
	"of what is protected": {"request": _delete(_enabled), "verdict": "DeletionProtected"},
	"of what has the label without a value": {"request": _delete(_marked("")), "verdict": "allow"},
	"of what has another value": {"request": _delete(_marked("true")), "verdict": "allow"},
	"of what is not protected": {"request": _delete(_plain), "verdict": "allow"},
	"of what has no labels": {"request": _delete({"metadata": {"name": "x"}}), "verdict": "allow"},
	"of what is being deleted": {"request": _delete(_terminating), "verdict": "allow"},
	"of what is in no namespace": {"request": _cluster_scoped(_delete(_enabled)), "verdict": "DeletionProtected"},
	"by the garbage collector, with an owner": {"request": _by(_gc, _delete(_owned([_owner]))), "verdict": "allow"},
	"by the garbage collector, without": {"request": _by(_gc, _delete(_enabled)), "verdict": "DeletionProtected"},
	"by the garbage collector, without owners left": {"request": _by(_gc, _delete(_owned([]))), "verdict": "DeletionProtected"},
	"by somebody, with an owner": {"request": _delete(_owned([_owner])), "verdict": "DeletionProtected"},
	"of a Pod by a node": {"request": _of("", "pods", "Pod", _in("system:nodes", _delete(_enabled))), "verdict": "allow"},
	"of a Pod by its collector": {"request": _of("", "pods", "Pod", _by("podgc", _delete(_enabled))), "verdict": "allow"},
	"of a Pod by somebody": {"request": _of("", "pods", "Pod", _delete(_enabled)), "verdict": "DeletionProtected"},
	"of a Pod by who may delete others": {
		"request": _of("", "pods", "Pod", _by("deployer", _delete(_enabled))),
		"verdict": "DeletionProtected",
	},
	"of something else by a node": {
		"request": _of("", "configmaps", "ConfigMap", _in("system:nodes", _delete(_enabled))),
		"verdict": "DeletionProtected",
	},
	"of pods of another group by a node": {
		"request": _of("metrics.k8s.io", "pods", "PodMetrics", _in("system:nodes", _delete(_enabled))),
		"verdict": "DeletionProtected",
	},
	"of a ReplicaSet by its controller": {"request": _by("deployer", _delete(_enabled)), "verdict": "allow"},
	"of a kind that nobody knows": {
		"request": _of("example.com", "widgets", "Widget", _delete(_enabled)),
		"verdict": "DeletionProtected",
	},
	"of such by a group": {
		"request": _of("example.com", "widgets", "Widget", _in("tinkerers", _delete(_enabled))),
		"verdict": "allow",
	},
	"by somebody without groups": {"request": _by("", _delete(_enabled)), "verdict": "DeletionProtected"},
}

test_deletion[note] if {
	some note, tc in _deletions
	_verdict == tc.verdict with input as _asked(tc.request) with data.parameters as _parameters
}

_namespace(more) := {"metadata": object.union({"name": "team-a", "uid": "u-2"}, more)}

_ended := _namespace({"deletionTimestamp": "2026-11-20T10:31:57Z"})

test_the_end_of_a_namespace[note] if {
	some note, tc in {
		"that is being deleted": {"namespace": _ended, "verdict": "allow"},
		"that is gone": {"namespace": null, "verdict": "allow"},
		"that is not": {"namespace": _namespace({}), "verdict": "DeletionProtected"},
	}
	facts := {"namespace": tc.namespace, "owner": null}
	_verdict == tc.verdict with input as {"request": _by(_nc, _delete(_enabled)), "facts": facts}
		with data.parameters as _parameters
}

test_the_namespace_controller_elsewhere[note] if {
	some note, request in {
		"what is in no namespace": _by(_nc, _cluster_scoped(_delete(_enabled))),
		"a namespace itself": _by(_nc, _of("", "namespaces", "Namespace", _delete(_enabled))),
	}
	policy.facts == {"namespace": null, "owner": null} with input.request as request with data.parameters as _parameters
	_verdict == "DeletionProtected" with input as _asked(request) with data.parameters as _parameters
}

test_facts_ask_for_the_namespace_that_is_emptied if {
	policy.facts == {"namespace": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"}, "owner": null}
		with input.request as _by(_nc, _delete(_enabled))
		with data.parameters as _parameters
}

test_facts_ask_for_nothing_else[note] if {
	some note, request in object.union_n([
		{$"a creation {note}": _create(tc.object) | some note, tc in _creations},
		{$"a change {note}": _update(tc.old, tc.new) | some note, tc in _changes},
		{$"a deletion {note}": tc.request | some note, tc in _deletions},
		{"the namespace controller and what is not protected": _by(_nc, _delete(_plain))},
		{"the namespace controller and what is being deleted": _by(_nc, _delete(_terminating))},
	])
	policy.facts == {"namespace": null, "owner": null} with input.request as request with data.parameters as _parameters
}

_way_out := _overriding(_delete(_enabled))

_overriding(request) := $"to override this policy temporarily: {override.command("deletion-protected", request, request.oldObject.metadata)}"

_details := {"group": "apps", "kind": "ReplicaSet", "name": "x", "field": "metadata.labels"}

test_denial[note] if {
	some note, tc in {
		"of a deletion": {"request": _delete(_enabled), "denial": {
			"reason": "DeletionProtected",
			"message": "ReplicaSet x in namespace team-a: deletion is not allowed",
			"cause": "its label sallyport.dev/deletion-protection is enabled",
			"remedy": _way_out,
			"details": _details,
		}},
		"of a deletion in no namespace": {"request": _cluster_scoped(_delete(_enabled)), "denial": {
			"reason": "DeletionProtected",
			"message": "Node x: deletion is not allowed",
			"cause": "its label sallyport.dev/deletion-protection is enabled",
			"remedy": _overriding(_cluster_scoped(_delete(_enabled))),
			"details": {"group": "", "kind": "Node", "name": "x", "field": "metadata.labels"},
		}},
		"of a label less": {"request": _update(_enabled, _plain), "denial": {
			"reason": "ProtectionRemoved",
			"message": "ReplicaSet x in namespace team-a: label sallyport.dev/deletion-protection cannot be removed",
			"cause": "it protects the object from deletion",
			"remedy": _way_out,
			"details": _details,
		}},
		"of another value": {"request": _update(_enabled, _marked("off")), "denial": {
			"reason": "ProtectionRemoved",
			"message": "ReplicaSet x in namespace team-a: label sallyport.dev/deletion-protection cannot change from enabled to \"off\"",
			"cause": "it protects the object from deletion",
			"remedy": _way_out,
			"details": _details,
		}},
		"of an owner": {"request": _update(_enabled, _owned([_owner])), "denial": {
			"reason": "OwnerAdded",
			"message": "ReplicaSet x in namespace team-a: adding owner Deployment web is not allowed",
			"cause": concat("", [
				"the object is protected from deletion (label sallyport.dev/deletion-protection=enabled) ",
				"and would be deleted together with that owner",
			]),
			"remedy": _way_out,
			"details": object.union(_details, {"field": "metadata.ownerReferences"}),
		}},
		"of a value that is none": {"request": _create(_marked("true")), "denial": {
			"reason": "UnknownProtection",
			"message": concat("", [
				"metadata.labels: value \"true\" of label sallyport.dev/deletion-protection does not protect ReplicaSet x in ",
				"namespace team-a",
			]),
			"remedy": "set it to enabled, or remove the label",
			"details": _details,
		}},
	}
	policy.deny == {tc.denial} with input as _asked(tc.request) with data.parameters as _parameters
}

_pool := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "name": "web", "uid": "u-5"}

_pool_object(metadata) := {"metadata": object.union({"name": "web", "uid": "u-5", "labels": {_label: "enabled"}}, metadata)}

_adoptions := {
	"by a protected pool": {"owners": [_pool], "fact": _pool_object({}), "verdict": "allow"},
	"by a protected machine": {"owners": [object.union(_pool, {"kind": "VirtualMachine"})], "fact": _pool_object({}), "verdict": "allow"},
	"by a pool that is not protected": {"owners": [_pool], "fact": _pool_object({"labels": {_label: "no"}}), "verdict": "OwnerAdded"},
	"by a pool that is being deleted": {
		"owners": [_pool], "fact": _pool_object({"deletionTimestamp": "2026-11-20T10:31:57Z"}),
		"verdict": "OwnerAdded",
	},
	"by another pool of the name": {"owners": [_pool], "fact": _pool_object({"uid": "u-6"}), "verdict": "OwnerAdded"},
	"by a pool that does not exist": {"owners": [_pool], "fact": null, "verdict": "OwnerAdded"},
	"by a pool and something else": {"owners": [_pool, _owner], "fact": null, "verdict": "OwnerAdded"},
	"by a pool of another group": {"owners": [object.union(_pool, {"apiVersion": "example.com/v1"})], "fact": null, "verdict": "OwnerAdded"},
	"by a pool that is unknown": {"owners": [_pool], "fact": {"metadata": {"uid": ""}}, "verdict": "not understood"},
	"with a fact that was not asked for": {"owners": [_owner], "fact": _pool_object({}), "verdict": "not understood"},
}

test_adoption[note] if {
	some note, tc in _adoptions
	facts := {"namespace": null, "owner": tc.fact}
	_verdict == tc.verdict with input as {"request": _update(_enabled, _owned(tc.owners)), "facts": facts} with data.parameters as _parameters
}

test_adoption_says_how_to_protect_the_owner if {
	request := _update(_enabled, _owned([_pool]))
	some denial in policy.deny with input as _asked(request) with data.parameters as _parameters
	startswith(denial.remedy, $"to protect that owner, too: kubectl label svmpool web -n team-a {_label}=enabled; to override")
}

test_facts_ask_for_an_owner_of_ours if {
	policy.facts.owner == {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "namespace": "team-a", "name": "web"}
		with input.request as _update(_enabled, _owned([_pool]))
		with data.parameters as _parameters
}
