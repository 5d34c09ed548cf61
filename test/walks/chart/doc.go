// Package chart has Sallyport as Helm installs it, with two replicas that are real processes.
//
//   - TestWalk is what users do with a release from its installation to its end, and TestUpgrade upgrades one.
//   - TestPoliciesOnOtherKinds and TestAuditsOfWhatExists have policies of people's own on kinds that are not Sallyport's.
//   - TestCertManager has others issue the certificate of the webhooks.
//   - TestFaults takes away what replicas need, and TestFailover kills the one that leads.
//
// TestWalk runs on a local control plane, where the pods are processes. To walk on a real cluster that has nothing of Sallyport in it,
// with an image that its nodes have or can pull:
//
//	SALLYPORT_TEST_KUBECONFIG=... SALLYPORT_TEST_IMAGE=registry/sallyport:tag go test -v -run TestWalk ./test/walks/chart
package chart
