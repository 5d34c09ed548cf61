package v1alpha1

// What marks a machine as busy: a Lease of coordination.k8s.io in its namespace, until that expires. Who may mark machines is who
// may write Leases there.
const (
	// LabelBusyMachine on a Lease has the UID of the VirtualMachine that is busy. spec.holderIdentity says with what, such as the
	// URL of a job.
	LabelBusyMachine = "sallyport.dev/busy-machine"
	// AnnotationBusyStamp on a VirtualMachine is written after each write of such a Lease. Its value says nothing that counts: that
	// the object has changed is what keeps a pool from deleting it by what it saw before.
	AnnotationBusyStamp = "sallyport.dev/busy-stamp"
)
