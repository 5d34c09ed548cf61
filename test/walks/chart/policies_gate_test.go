package chart

import (
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/test/support/env/install"
)

func (s *replicated) enforced() {
	s.Helper()
	s.Until("requests are judged", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, !ok && strings.Contains(text, "OwnerMissing")
	})
}

func (s *replicated) admitted(warning string) {
	s.Helper()
	s.Until("requests are admitted", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, ok && strings.Contains(text, warning)
	})
}

// ownKind is a request that policy operations-copies denies.
func (s *replicated) ownKind(words string) {
	s.Helper()
	s.refused(words, "apply --dry-run=server -f "+s.file(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {name: copy, namespace: default}
spec: {type: Start, virtualMachineName: x, virtualMachineUID: y}`))
}

// opened: by the command, and closed by it.
func (s *replicated) opened() {
	before := s.text()
	s.plugin("gate", "open", "--for", "1h", "--reason", "ticket 42")
	s.admitted("Warning: Sallyport's policies are not enforced: the gate is open until")
	s.ownKind("operations-copies/OperationCopied")
	s.shows("owners", v1alpha1.ConditionRegistered, "False", v1alpha1.ReasonGateOpen)
	s.Until("the status says so", func() (string, bool) { // and the Lease of the killed replica has run out
		got := s.plugin("gate", "status")
		return got, strings.Contains(got, `"ticket 42"`) && strings.Contains(got, "Replicas that are serving: 2")
	})
	// The chart says nothing about the annotations and the entries.
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set", "webhook.annotations.upgraded=yes"))
	s.admitted("the gate is open until")
	s.plugin("gate", "close")
	s.enforced()
	s.registered("owners")
	s.Until("the entries are as before", func() (string, bool) { return s.text(), s.text() == before })
}

func (s *replicated) closesItself() {
	o := registration.Opening{Until: time.Now().Add(10 * time.Second), Reason: "short"}
	v, m := s.configurations()
	o.Write(v)
	for _, c := range []client.Object{v, m} {
		registration.Ease(c)
		s.Must(s.Client.Update(s.Context(), c))
	}
	s.admitted("the gate is open until")
	s.enforced()
	s.registered("owners")
}

// openedUnserved: by the command, while no replica runs.
func (s *replicated) openedUnserved() {
	s.noReplica() // helm upgrade has brought them back
	s.refused("failed calling webhook", ownless)
	s.plugin("gate", "open", "--for", "1h", "--reason", "nobody serves")
	s.admitted("")
	s.ownKind("failed calling webhook")
	s.plugin("gate", "close")
	s.admitted("") // nobody could judge it
}

// brokenAPIService has replicas start while a group of the API is not served.
func (s *replicated) brokenAPIService() {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "kube-system", "name": "not-there"},
		},
	}}
	s.Must(s.Client.Create(s.Context(), o))
	s.Until("discovery is partial", func() (string, bool) {
		text, ok := s.try("get nodes.metrics.k8s.io")
		return text, !ok && strings.Contains(text, "metrics.k8s.io")
	})
	s.kubectl("scale deployment/" + install.Release + " --replicas=2 --namespace " + install.Namespace)
	s.rolledOut()
	s.enforced()
	s.passes(owned + s.file(deployment("owned")))
	s.registered("owners", "pods", "kept", "shrinks", "lenient", "marks")
	s.apply(owners("others", "")) // another policy, which needs discovery
	s.registered("others")
	s.kubectl("delete rego others")
	s.Must(s.Client.Delete(s.Context(), o))
}
