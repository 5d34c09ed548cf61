package supersede

violation contains {"msg": msg} if {
	spec := input.review.object.spec
	some op in data.inventory.namespace[input.review.namespace]["sallyport.dev/v1alpha1"].VirtualMachineOperation
	op.spec.virtualMachineName == spec.virtualMachineName
	not op.status.phase in {"Completed", "Failed"}
	not yields(op.spec, spec)
	msg := sprintf("%s %s is %s and does not yield", [key(op.spec), op.metadata.name, op.status.phase])
}

yields(running, new) if key(new) in input.parameters.supersededBy[key(running)]

key(spec) := sprintf("%s force", [spec.type]) if spec.force

key(spec) := spec.type if not spec.force
