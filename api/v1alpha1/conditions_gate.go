package v1alpha1

// ConditionReadOnly of a VirtualMachine is true while Sallyport is read-only: it admits requests and observes machines, and sends nothing to
// runtimes. Absent otherwise. Set by the VirtualMachine reconciler.
const ConditionReadOnly ConditionType = "ReadOnly"

// Reasons of a VirtualMachine's conditions. Every kind whose reconciler would change something on a runtime has this one in its
// condition Ready, and a VMDiskImage in Imported.
const (
	// ReasonReadOnly (ReadOnly true, Ready false): the manager runs with the chart value
	// readOnly, or etcd was restored and no administrator has run kubectl sallyport resume.
	// What is pending goes on afterwards.
	ReasonReadOnly ConditionReason = "ReadOnly"
)

// Reasons of a RegoPolicy's conditions.
const (
	// ReasonGateOpen (Registered false, Ready false): the gate is open, so that requests
	// about kinds that are not Sallyport's are admitted with a warning. The message says
	// until when.
	ReasonGateOpen ConditionReason = "GateOpen"
)
