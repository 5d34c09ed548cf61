package sallyport.images.children_test

import data.sallyport.images.children as policy
import data.sallyport.lib.override

_uid := "0f3b"

_labels := {"sallyport.dev/disk-image": _uid, "sallyport.dev/import-attempt": "1"}

_claim := {"metadata": {"name": $"vmdi-{_uid}-1", "namespace": "team-a", "labels": _labels, "ownerReferences": [_volume]}}

_volume := {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": $"vmdi-{_uid}-1", "uid": "u-9"}

_other := {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u-8"}

_delete(who) := {
	"operation": "DELETE", "namespace": "team-a", "kind": {"group": "", "kind": "PersistentVolumeClaim"},
	"resource": {"group": "", "resource": "persistentvolumeclaims"}, "userInfo": {"username": who}, "oldObject": _claim,
}

_update(who, object_) := object.union(_delete(who), {"operation": "UPDATE", "object": object_})

_parameters := {"accounts": ["sallyport", "cdi"], "garbageCollectors": ["gc"], "namespaceControllers": ["nc"]}

_images := [{"metadata": {"name": "debian", "uid": "u-2"}}, {"metadata": {"name": "ubuntu", "uid": _uid}}]

_namespace := {"metadata": {"name": "team-a"}}

_ended := "2026-11-20T10:31:57Z"

_verdict := "not understood" if not policy.valid_input

_verdict := concat(", ", [denial.reason | some denial in policy.deny]) if policy.valid_input

_asked_images := {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VMDiskImage", "namespace": "team-a"}

_asked_namespace := {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"}

# Who deletes it, what is asked, and the verdict if the image exists.
_users := {
	"ann": {"images": _images, "namespace": null, "verdict": "ImageDataNeeded"},
	"sallyport": {"images": null, "namespace": null, "verdict": ""},
	"cdi": {"images": null, "namespace": null, "verdict": ""},
	"gc": {"images": null, "namespace": null, "verdict": ""},
	"nc": {"images": _images, "namespace": _namespace, "verdict": "ImageDataNeeded"},
}

test_deleted[who] if {
	some who, tc in _users
	facts := policy.facts with input.request as _delete(who) with data.parameters as _parameters
	facts == {
		"images": {true: _asked_images, false: null}[tc.images != null],
		"namespace": {true: _asked_namespace, false: null}[tc.namespace != null],
	}
	_verdict == tc.verdict with data.parameters as _parameters
		with input as {"request": _delete(who), "facts": {"images": tc.images, "namespace": tc.namespace}}
}

# The garbage collector has no business with what has no owner.
test_garbage_collector_without_an_owner if {
	request := json.remove(_delete("gc"), ["oldObject/metadata/ownerReferences"])
	_verdict == "ImageDataNeeded" with data.parameters as _parameters
		with input as {"request": request, "facts": {"images": _images, "namespace": null}}
}

test_deleted_with_the_namespace[note] if {
	some note, namespace in {"gone": null, "ended": object.union(_namespace, {"metadata": {"deletionTimestamp": _ended}})}
	_verdict == "" with data.parameters as _parameters
		with input as {"request": _delete("nc"), "facts": {"images": _images, "namespace": namespace}}
}

_not_of_an_image := {
	"another name": {"name": "precious"},
	"another attempt": {"labels": {"sallyport.dev/import-attempt": "2"}},
	"a prime claim of CDI": {"name": "prime-0f3b"},
	"it is being deleted": {"deletionTimestamp": _ended},
}

test_other_objects[note] if {
	some note, change in _not_of_an_image
	request := object.union(_delete("ann"), {"oldObject": {"metadata": change}})
	policy.facts == {"images": null, "namespace": null} with input.request as request with data.parameters as _parameters
	_verdict == "" with data.parameters as _parameters
		with input as {"request": request, "facts": {"images": null, "namespace": null}}
}

test_without_the_labels if {
	request := json.remove(_delete("ann"), ["oldObject/metadata/labels"])
	_verdict == "" with data.parameters as _parameters with input as {"request": request, "facts": {"images": null, "namespace": null}}
}

# What is left of an image that does not exist can be deleted.
test_orphans if {
	every images in [[], [_images[0]]] {
		_verdict == "" with data.parameters as _parameters
			with input as {"request": _delete("ann"), "facts": {"images": images, "namespace": null}}
	}
}

_changes := {
	"nothing": {"object": _claim, "judged": false},
	"an annotation": {"object": object.union(_claim, {"metadata": {"annotations": {"a": "b"}}}), "judged": false},
	"another label": {"object": object.union(_claim, {"metadata": {"labels": {"a": "b"}}}), "judged": false},
	"an owner less": {"object": json.remove(_claim, ["metadata/ownerReferences"]), "judged": false},
	"the label of the image": {"object": json.remove(_claim, ["metadata/labels/sallyport.dev~1disk-image"]), "judged": true},
	"all labels": {"object": json.remove(_claim, ["metadata/labels"]), "judged": true},
	"the attempt": {"object": object.union(_claim, {"metadata": {"labels": {"sallyport.dev/import-attempt": "2"}}}), "judged": true},
	"an owner more": {"object": object.union(_claim, {"metadata": {"ownerReferences": [_volume, _other]}}), "judged": true},
}

test_changed[note] if {
	some note, change in _changes
	request := _update("ann", change.object)
	images := {true: _images, false: null}[change.judged]
	_verdict == {true: "ImageDataDetached", false: ""}[change.judged] with data.parameters as _parameters
		with input as {"request": request, "facts": {"images": images, "namespace": null}}
	_verdict == "" with data.parameters as _parameters
		with input as {"request": _update("cdi", change.object), "facts": {"images": null, "namespace": null}}
}

# The garbage collector and the namespace controller delete, and change nothing.
test_changed_by_controllers[who] if {
	some who in ["gc", "nc"]
	_verdict == "ImageDataDetached" with data.parameters as _parameters with input as {
		"request": _update(who, _changes["all labels"].object), "facts": {"images": _images, "namespace": null},
	}
}

test_messages if {
	deleted := _delete("ann")
	policy.deny == {{
		"reason": "ImageDataNeeded", "details": {"group": "", "kind": "PersistentVolumeClaim", "name": "vmdi-0f3b-1"},
		"message": "PersistentVolumeClaim vmdi-0f3b-1 in namespace team-a: deletion is not allowed",
		"cause": "it belongs to VMDiskImage ubuntu",
		"remedy": concat("", [
			"to delete the image with its data, once no disk uses it: kubectl delete vmdiskimages ubuntu -n team-a; ",
			$"to override this policy temporarily: {override.command("images-children", deleted, _claim.metadata)}",
		]),
	}} with input as {"request": deleted, "facts": {"images": _images, "namespace": null}} with data.parameters as _parameters
	changed := _update("ann", _changes["all labels"].object)
	policy.deny == {{
		"reason": "ImageDataDetached",
		"details": {"group": "", "kind": "PersistentVolumeClaim", "name": "vmdi-0f3b-1", "field": "metadata.labels"},
		"message": concat("", [
			"PersistentVolumeClaim vmdi-0f3b-1 in namespace team-a: changing its labels sallyport.dev/disk-image and ",
			"sallyport.dev/import-attempt, or adding owners, is not allowed",
		]),
		"cause": "it belongs to VMDiskImage ubuntu",
		"remedy": $"keep them; to override this policy temporarily: {override.command("images-children", changed, _claim.metadata)}",
	}} with input as {"request": changed, "facts": {"images": _images, "namespace": null}} with data.parameters as _parameters
}

test_not_understood[note] if {
	some note, request in object.union_n([
		{$"{path} missing": json.remove(_update("ann", _changes["all labels"].object), [path]) |
			some path in ["operation", "object/metadata", "oldObject/metadata", "oldObject/metadata/name"]
		},
		{$"owner without {field}": object.union(_delete("ann"), {"oldObject": {"metadata": {"ownerReferences": [_volume, json.remove(_other, [field])]}}}) |
			some field in ["kind", "name", "uid"]
		},
	])
	_verdict == "not understood" with data.parameters as _parameters with input as {"request": request, "facts": {"images": _images, "namespace": null}}
}

test_not_understood_images[field] if {
	some field in ["name", "uid"]
	images := [{"metadata": object.remove({"name": "a", "uid": "b"}, [field])}]
	_verdict == "not understood" with data.parameters as _parameters
		with input as {"request": _delete("ann"), "facts": {"images": images, "namespace": null}}
}
