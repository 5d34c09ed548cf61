// Package kubevirt runs machines with the real virt-api and virt-controller of KubeVirt: make test-kubevirt. An agent plays the scheduler, the
// kubelet and virt-handler, because there is no node.
package kubevirt
