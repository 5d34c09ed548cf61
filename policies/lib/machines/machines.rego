# METADATA
# title: The machines that a request is about
# description: >-
#   A VirtualMachine is one machine. The template of a VirtualMachinePool stands for those that are made from it, which are judged
#   when the pool is written, for whoever writes it: the pool reconciler makes them later, in nobody's name.
package sallyport.lib.machines

# METADATA
# description: What a machine is to be, in an object of the request (object or oldObject).
spec(request, side) := request[side].spec if not of_pool(request)

spec(request, side) := request[side].spec.virtualMachineTemplate.spec if of_pool(request)

# METADATA
# description: What users call a field of a machine's spec, such as runtime.vsphere, in the object that they have written.
field(request, path) := $"spec.{path}" if not of_pool(request)

field(request, path) := $"spec.virtualMachineTemplate.spec.{path}" if of_pool(request)

# METADATA
# description: Whether machines are made because of the request, so that what they are made of has to be there.
makes(request) if request.operation == "CREATE"

makes(request) if of_pool(request)

# METADATA
# description: Whether the request writes a pool, and not a machine.
of_pool(request) if request.resource.resource == "virtualmachinepools"
