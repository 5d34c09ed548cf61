package grants_test

import (
	"testing"

	"sallyport.dev/sallyport/webhooks/grants"
)

func TestWhatPoliciesMayRead(t *testing.T) {
	reads, err := grants.ParseReads("pods=evictions+cascade,deployments.apps,services=a,services,jobs.batch,jobs.batch=a,,nodes=a,nodes=b")
	if err != nil {
		t.Fatal(err)
	}
	const want = "deployments.apps,jobs.batch,nodes=a+b,pods=evictions+cascade,services"
	if got := reads.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, tc := range []struct {
		policy, group, resource string
		want                    bool
	}{
		{"evictions", "", "pods", true},
		{"cascade", "", "pods", true},
		{"mine", "", "pods", false},
		{"mine", "metrics.k8s.io", "pods", false},
		{"mine", "apps", "deployments", true},
		{"mine", "", "services", true},
		{"mine", "batch", "jobs", true},
		{"b", "", "nodes", true},
		{"mine", "", "configmaps", false},
		{"mine", "sallyport.dev", "virtualmachines", true},
	} {
		if got := reads.Allow(tc.policy, tc.group, tc.resource); got != tc.want {
			t.Errorf("policy %s, %s.%s: got %v", tc.policy, tc.resource, tc.group, got)
		}
	}
	if none := (grants.Reads)(nil); none.Allow("p", "", "pods") || !none.Allow("p", "sallyport.dev", "virtualdisks") {
		t.Error("without a list, policies read Sallyport's own kinds")
	}
	for _, text := range []string{"=a", "pods=", "pods=a+", "*", "*.apps"} {
		if _, err := grants.ParseReads(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
