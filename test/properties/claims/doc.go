// Package claims has a model of what shares PersistentVolumeClaims: VirtualMachines, VirtualMachinePools and VirtualDisks, beside machines of
// other users, with restores, snapshots, clones, releases, operations, lost objects and processes that die. The reconcilers and the runtimes are
// the real ones. On KubeVirt, what goes on beside Sallyport is played by a few lines, or, with the build tag kubevirt, by the real virt-api and
// virt-controller on a real API server. Machines that are Pods have an agent on their nodes.
//
// Whatever users do, Sallyport starts no machine while another one is on, or about to be, with a claim to which one of the two writes; it
// changes and removes no volume and no Pod that it did not add; it deletes no claim that a machine names; it asks nothing of a machine that
// KubeVirt restores or takes a snapshot of; and a machine that is not as it is wanted says why.
package claims
