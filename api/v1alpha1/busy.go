package v1alpha1

// A Lease of coordination.k8s.io in the namespace of a machine marks the machine as busy, until the Lease expires. Every user who
// may write Leases there may mark machines.
const (
	// LabelBusyMachine on a Lease has the UID of the VirtualMachine that is busy. spec.holderIdentity says with what, such as the
	// URL of a job.
	LabelBusyMachine = "sallyport.dev/busy-machine"
	// AnnotationBusyStamp on a VirtualMachine is written after each write of such a Lease. Its value has no meaning: the change of the
	// object keeps a pool from deleting it based on an earlier read.
	AnnotationBusyStamp = "sallyport.dev/busy-stamp"
)
