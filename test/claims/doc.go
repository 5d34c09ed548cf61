// Package claims has a model of what shares PersistentVolumeClaims: VirtualMachines and VirtualDisks on KubeVirt, beside KubeVirt machines
// of other users, with restores, clones, releases, lost objects and processes that die. The reconcilers and the runtime are the real ones, on
// an API server in memory; a few lines stand for virt-controller and for the garbage collector.
//
// Whatever users do, Sallyport starts no machine while another one is on, or about to be, with a claim to which one of the two writes; it
// changes and removes no volume that it did not add; it deletes no claim that a machine names; and a machine that is not as it is wanted
// says why.
package claims
