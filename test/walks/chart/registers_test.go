package chart

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// foreignPolicy is about ConfigMaps, which it also changes.
const foreignPolicy = `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: walk-configmaps}
spec:
  package: walk.configmaps
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + team + `}}
  modules:
  - name: configmaps.rego
    source: |
      # METADATA
      # title: ConfigMaps say that they were seen
      # description: But for those of a certain name, of which there are none.
      package walk.configmaps

      valid_input if is_string(input.request.object.metadata.name)

      patch contains {"op": "add", "path": "/data", "value": {"seen": "true"}} if not input.request.object.data

      # METADATA
      # title: The name is refused
      # custom: {reason: NameRefused, remedy: Choose another one.}
      deny contains {"reason": "NameRefused", "code": 403, "message": "that is no name for a ConfigMap"} if {
        input.request.object.metadata.name == "walk-refused"
      }
  tests:
  - name: configmaps_test.rego
    source: |
      package walk.configmaps_test

      import data.walk.configmaps as policy

      test_the_name_is_refused[note] if {
        some note, name in {"it": "walk-refused"}
        count(policy.deny) == 1 with input as {"request": {"object": {"metadata": {"name": name}}}}
      }
`

// registers has a policy on another kind enforced without anything being installed or restarted, and forgotten.
func (w *walk) registers() {
	const refused = "create configmap walk-refused --dry-run=server --namespace " + team
	w.throughout("a policy on another kind", w.usual, func() {
		w.create(foreignPolicy)
		w.kubectl("wait rego/walk-configmaps --for=condition=" + string(v1alpha1.ConditionRegistered) + " --timeout=3m")
		w.Until("it is enforced", func() (string, bool) {
			r := w.try("", strings.Fields(refused)...)
			return r.stdout + r.stderr, strings.Contains(r.stderr, "[walk-configmaps/NameRefused] that is no name for a ConfigMap")
		})
		if seen := w.kubectl("create configmap walk --dry-run=server -o jsonpath={.data.seen} --namespace " + team); seen != "true" {
			w.Errorf("the ConfigMap was not changed: %q", seen)
		}
		w.kubectl("create configmap walk-refused --dry-run=server --namespace " + metav1.NamespaceDefault)
		w.kubectl("delete rego walk-configmaps")
		w.Until("it is forgotten", func() (string, bool) {
			r := w.try("", strings.Fields(refused)...)
			return r.stderr, r.code == 0
		})
	})
}
