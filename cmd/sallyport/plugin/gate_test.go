package plugin

import (
	"strings"
	"testing"
)

// Whoever may patch the webhook configurations may open and close the gate, for a day at most. That the leader closes it is tested by
// test/walks/chart: none leads here.
func TestGate(t *testing.T) {
	tm := newTeam(t)
	annotations := func() string {
		return tm.get("validatingwebhookconfiguration/sallyport-policies", ".metadata.annotations")
	}
	editor := tm.namespace + "-editor"
	tm.sallyport("gate open --for 1h", 1, "--reason is required")
	tm.sallyport("gate open --for 25h --reason x", 1, "invalid --for 25h0m0s: must be between 1m and 24h0m0s")
	tm.sallyport("gate open --for 1h --reason x --as "+editor, 1, "finding the gate", "cannot get resource")
	tm.sallyport("gate open --for 1h --reason x --dry-run=server", 0, "The gate is open until", "(server dry run)")
	tm.sallyport("gate close", 0, "The gate is closed")
	tm.sallyport("gate status", 0, "The gate is closed", "Replicas that are serving: 1")
	if got := annotations(); strings.Contains(got, "gate") {
		t.Errorf("the annotations are %s", got)
	}

	tm.sallyport("gate open --for 1h --reason ticket-42", 0, "The gate is open until", "To close it: kubectl sallyport gate close")
	tm.sallyport("gate status", 0, "The gate is open until", "ticket-42", "the API server admits requests for")
	for _, kind := range []string{"validating", "mutating"} {
		others := `.webhooks[?(@.name!="deletion-protected.own.sallyport.dev")].failurePolicy`
		if got := tm.get(kind+"webhookconfiguration/sallyport-policies", others); strings.Contains(got, "Fail") {
			t.Errorf("if no replica answers, %s webhooks %s", kind, got)
		}
	}
	if got := tm.get("validatingwebhookconfiguration/sallyport-policies", `.webhooks[?(@.name=="deletion-protected.own.sallyport.dev")].failurePolicy`); got != "Fail" {
		t.Errorf("Sallyport's own kinds are not protected: %s", got)
	}
	if got := tm.get("validatingwebhookconfiguration/sallyport", ".webhooks[*].failurePolicy"); got != "Fail Fail" {
		t.Errorf("Sallyport's own kinds are not guarded: %s", got)
	}
	tm.must(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "sallyport-deletion-protected",
		"annotations": {"meta.helm.sh/release-name": "gate", "meta.helm.sh/release-namespace": "sallyport-system"}},
		"spec": {"failurePolicy": "Ignore", "matchConstraints": {"resourceRules": [
			{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]}, "validations": [{"expression": "true"}]}}`, "create", "-f", "-")
	tm.sallyport("gate open --for 2h --reason ticket-43", 0, "The gate was open until", "ticket-42", "Warning: the floor stays closed: ",
		"helm upgrade gate charts/sallyport -n sallyport-system --reuse-values --set floor.enabled=false\n")
	tm.must("", "delete", "validatingadmissionpolicy", "sallyport-deletion-protected")
	tm.sallyport("gate close", 0, "The gate is closed")
	if got := annotations(); strings.Contains(got, "gate") {
		t.Errorf("the annotations are %s", got)
	}
}
