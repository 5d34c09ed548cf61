package chart

import (
	"fmt"
	"slices"
)

// guards keeps namespaces as they are that have a label; to take the label off is to change one, too.
var guards = policyOf("guards", `
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [namespaces, configmaps], operations: [UPDATE]}]
    namespaceSelector: {matchLabels: {guard: "on"}}
    excludeNamespaces: [spare]
`, denies("Guarded", "the namespace is guarded", `input.request.name != "kube-root-ca.crt"`), tested(`{"name": "x"}`))

// relabelled: a namespace is guarded by the labels that it has, and by those that a request gives it.
func (s *replicated) relabelled() {
	s.apply(guards)
	s.registered("guards")
	if v, _ := s.entries(); !slices.Contains(v, "guards") || !slices.Contains(v, "guards.namespaces.sallyport.dev") {
		s.Errorf("asked are %v", v)
	}
	for _, namespace := range []string{"guarded", "spare", "open"} {
		guard := "on"
		if namespace == "open" {
			guard = "off"
		}
		s.apply(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {guard: "%s"}}}`, namespace, guard))
		s.kubectl("create configmap a --namespace " + namespace)
	}
	const refused = `admission webhook "guards.namespaces.sallyport.dev" denied the request: [guards/Guarded] the namespace is guarded`
	s.refused(refused, "label namespace guarded guard=off --overwrite")
	s.refused(refused, "label namespace guarded guard-")
	s.refused(refused, "label namespace guarded a=b")
	s.refused(refused, "replace -f "+s.file(`{apiVersion: v1, kind: Namespace, metadata: {name: guarded, labels: {kubernetes.io/metadata.name: kube-system}}}`))
	s.refused(refused, "label namespace open guard=on --overwrite")
	s.refused(`admission webhook "guards.policies.sallyport.dev"`, "label configmap a a=b --namespace guarded")
	s.passes("label namespace open a=b")
	s.passes("label configmap a a=b --namespace open")
	s.passes("label namespace spare guard=off --overwrite")
	s.passes("label namespace kube-system guard=on")
	s.passes("label namespace kube-system guard-")
	// It ends all the same.
	s.passes("delete namespace guarded --timeout=3m")
	s.kubectl("delete rego guards")
	s.Until("it is not asked any more", func() (string, bool) {
		v, _ := s.entries()
		return fmt.Sprint(v), !slices.ContainsFunc(v, func(name string) bool { return name == "guards" || name == "guards.namespaces.sallyport.dev" })
	})
}
