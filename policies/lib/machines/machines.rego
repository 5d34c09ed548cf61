# METADATA
# title: The machines of a request
# description: >-
#   A VirtualMachine is one machine. The template of a VirtualMachinePool stands for the members that are created from it. It is
#   evaluated when the pool is written, with the rights of that user, because the pool reconciler creates the members later.
package sallyport.lib.machines

# METADATA
# description: The spec of the machine in an object of the request (object or oldObject).
spec(request, side) := request[side].spec if not of_pool(request)

spec(request, side) := request[side].spec.virtualMachineTemplate.spec if of_pool(request)

# METADATA
# description: The path of a field of the machine's spec, such as runtime.vsphere, in the object that the user wrote.
field(request, path) := $"spec.{path}" if not of_pool(request)

field(request, path) := $"spec.virtualMachineTemplate.spec.{path}" if of_pool(request)

# METADATA
# description: Whether a spec.runtime names a machine that already exists. It may have any shape.
adopted(on) if {
	some runtime, creation in {"vsphere": "clone", "kubevirt": "create"}
	is_object(on[runtime])
	object.get(on[runtime], creation, null) == null
}

# METADATA
# description: Whether the request creates machines, so that the objects that they are created from must exist.
makes(request) if request.operation == "CREATE"

makes(request) if of_pool(request)

# METADATA
# description: Whether the request writes a VirtualMachinePool instead of a VirtualMachine.
of_pool(request) if request.resource.resource == "virtualmachinepools"
