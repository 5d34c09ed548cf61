package charts_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/webhooks/grants"
)

// What policies may read is a list of its own: rights that Sallyport has for itself, or for a shipped policy, let no other policy read.
func TestPolicyReads(t *testing.T) {
	for values, want := range map[string]map[[2]string]bool{
		"": {
			{"mine", "pods"}: false, {"mine", "nodes"}: false, {"mine", "leases.coordination.k8s.io"}: false, {"mine", "namespaces"}: true,
			{"mine", "virtualmachines.sallyport.dev"}: true, {"machines-eviction", "pods"}: true, {"deletion-cascade", "pods"}: true,
			{"scaling-guard", "pods"}: false, {"scaling-guard", "deployments.apps"}: true,
		},
		"runtimes: {pod: {enabled: true}}": {
			{"mine", "pods"}: false, {"mine", "persistentvolumeclaims"}: false, {"machines-eviction", "pods"}: true,
		},
		"rbac: {create: false, reads: {pods: true, deployments.apps: false, configmaps: true}}": {
			{"mine", "pods"}: true, {"mine", "configmaps"}: true, {"mine", "deployments.apps"}: false, {"scaling-guard", "deployments.apps"}: true,
		},
		"policies: {machines-eviction: {enabled: false}}": {{"machines-eviction", "pods"}: false, {"deletion-cascade", "pods"}: true},
	} {
		text := find(render(t, values), "ConfigMap", "sallyport-policies").GetAnnotations()[shipping.ReadsAnnotation]
		reads, err := grants.ParseReads(text)
		if err != nil {
			t.Fatal(err)
		}
		for read, want := range want {
			resource, group, _ := strings.Cut(read[1], ".")
			if got := reads.Allow(read[0], group, resource); got != want {
				t.Errorf("with %q, policy %s may read %s: %v; the list is %s", values, read[0], read[1], got, text)
			}
		}
	}
}
