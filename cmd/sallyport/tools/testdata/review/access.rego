# METADATA
# title: Who may use a machine
# description: The requester must hold the verb use on the VirtualMachine.
package sallyport.example.access

facts["may"] := {"access": {
	"verb": "use",
	"group": "sallyport.dev",
	"resource": "virtualmachines",
	"namespace": input.request.namespace,
	"name": input.request.object.spec.virtualMachineName,
}}

valid_input if is_boolean(input.facts.may)

# METADATA
# title: The requester may not use the machine
# custom: {reason: NotYours, remedy: Ask its owner.}
deny contains {"reason": "NotYours", "message": $"{input.request.userInfo.username} may not use it"} if not input.facts.may
