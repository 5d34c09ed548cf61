# METADATA
# title: Who may adopt or create a machine of KubeVirt
# description: >-
#   A VirtualMachine may adopt a VirtualMachine of KubeVirt only if the requester may update that one, whether or not it exists, and may
#   create one only if the requester may create VirtualMachines of KubeVirt in the namespace. The same applies to the template of a
#   VirtualMachinePool. The policy evaluates creations, and updates that change the runtime. Operations and later changes of the
#   VirtualMachine need no permission on the machine of KubeVirt.
package sallyport.machines.access

import data.sallyport.lib.machines
import data.sallyport.lib.shell

# METADATA
# title: Whether the requester may adopt or create the machine
# description: Evaluated only if the request sets or changes a runtime of KubeVirt.
facts["allowed"] := {"access": object.union(_needed, {
	"group": "kubevirt.io",
	"resource": "virtualmachines",
	"namespace": input.request.namespace,
})} if {
	_asks
}

facts["allowed"] := null if not _asks

valid_input if {
	machines.spec(input.request, "object").runtime
	is_string(_who)
	_known_machine
}

# METADATA
# title: The requester may not adopt or create the machine
# custom:
#   reason: KubeVirtNotAllowed
#   remedyInMessage: Ask an administrator of the namespace for the right in the message on VirtualMachines of KubeVirt.
deny contains {
	"reason": "KubeVirtNotAllowed",
	"message": $"{machines.field(input.request, "runtime.kubevirt")}: cannot {_action}",
	"cause": $"{_who} may not {_needed.verb} {_object} in namespace {input.request.namespace}",
	"remedy": concat("", [
		"ask an administrator of the namespace for that right; to check: ",
		$"kubectl auth can-i {shell.word(_needed.verb)} {shell.word(_object)} -n {shell.word(input.request.namespace)}",
	]),
	"details": object.union(object.filter(_needed, ["name"]), {
		"group": "kubevirt.io", "kind": "VirtualMachine",
		"field": machines.field(input.request, "runtime.kubevirt"),
	}),
} if {
	_asks
	not input.facts.allowed == true
}

_who := input.request.userInfo.username

_kubevirt := machines.spec(input.request, "object").runtime.kubevirt

# An unchanged runtime was evaluated when it was written.
_asks if {
	_kubevirt
	not _unchanged
}

_unchanged if {
	input.request.operation == "UPDATE"
	machines.spec(input.request, "oldObject").runtime.kubevirt == _kubevirt
}

_creates if is_object(_kubevirt.create)

_needed := {"verb": "create"} if _creates

_needed := {"verb": "update", "name": _name} if not _creates

_action := "create a VirtualMachine of KubeVirt" if _creates

_action := $"adopt VirtualMachine {_name} of KubeVirt" if not _creates

_object := "virtualmachines.kubevirt.io" if _creates

_object := $"virtualmachines.kubevirt.io/{_name}" if not _creates

# The machine of KubeVirt. Without a name in the runtime, it has the name of the VirtualMachine.
_name := object.get(_kubevirt, "name", input.request.object.metadata.name)

_known_machine if not _kubevirt

_known_machine if _creates

# A permission on no name would be one on all of them. A pool adopts none.
_known_machine if {
	not _creates
	not _of_pool
	is_string(_name)
	_name != ""
}

_of_pool if machines.of_pool(input.request)
