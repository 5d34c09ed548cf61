// Package chart has Sallyport installed by Helm, and walks through what its users do with it from then on.
//
// By default that is a local control plane, where the pods are processes. To walk on a real cluster that has nothing of Sallyport
// in it, with an image that its nodes have or can pull:
//
//	SALLYPORT_TEST_KUBECONFIG=... SALLYPORT_TEST_IMAGE=registry/sallyport:tag go test -v ./test/walks/chart
package chart
