// Package env builds and starts a real Kubernetes control plane on this machine: etcd, kube-apiserver and, if asked for,
// kube-controller-manager, with kubectl to talk to it. Tests and the demo run against it; no container, no node and no
// root are needed, only Go and a module proxy the first time.
//
// Binaries and Helm build the programs once per Kubernetes version into the user's cache folder. Start runs a control plane that
// is the caller's own: other ports, other directories and another range of Service addresses than any other one on the
// machine, so that as many as memory allows run at the same time. Shared gives the tests of a package one in common.
//
// No node means that pods stay Pending and that nothing routes Service addresses. These lie in 127.0.0.0/8 instead, so
// that a local process can listen on a Service's own address and serve the webhooks of an unmodified chart there.
package env
