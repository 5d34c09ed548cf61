package chart

import (
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// sealed keeps everybody out of Pods with a label, and shells out of all.
var sealed = policyOf("sealed", `
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [pods/exec, pods/attach, pods/portforward], operations: [CONNECT]}]
  reads: [{apiVersion: v1, kind: Pod, freshness: Live}]
`, `
facts.pod := {"parent": true}

# METADATA
# title: Nobody connects to a sealed Pod
# custom: {reason: Sealed, remedy: Read its log.}
deny contains {
	"reason": "Sealed", "code": 403, "message": $"Pod {input.request.name} is sealed against {input.request.kind.kind}",
	"details": {"kind": "Pod", "name": input.request.name},
} if {
	input.facts.pod.metadata.labels.sealed == "true"
}

# METADATA
# title: Nobody runs a shell
# custom: {reason: Shell, remedy: Run the program itself.}
deny contains {"reason": "Shell", "code": 403, "message": $"{input.request.object.command[0]} is a shell"} if {
	input.request.object.command[0] in {"sh", "bash"}
	input.request.oldObject == null
}
`, `
_request := {"name": "db", "kind": {"kind": "PodExecOptions"}, "object": {"command": ["sh"]}, "oldObject": null}

test_refused[note] if {
	some note, labels in {"one": {"sealed": "true"}}
	count(policy.deny) == 2 with input as {"request": _request, "facts": {"pod": {"metadata": {"labels": labels}}}}
}`)

// connects: whoever connects to a Pod is refused before the API server dials its node; who is not gets as far as that.
func (s *replicated) connects() {
	exec := strings.Replace(sealed, "operations: [CONNECT]", "operations: [CREATE]", 1)
	s.refused("[policies-self/NotRegistrable] RegoPolicy sealed cannot be registered with the API server:\nspec.match.resources[0].resources[0], pods/exec: it has only the operation CONNECT, not CREATE",
		"apply -f "+s.file(exec))
	s.grant("pods")
	s.apply(sealed)
	s.registered("sealed")
	if message := s.shows("sealed", v1alpha1.ConditionRegistered, metav1.ConditionTrue, v1alpha1.ReasonRegistered); message !=
		"Registered for CONNECT of pods/exec, pods/attach, pods/portforward." {
		s.Errorf("it says %s", message)
	}
	for name, labels := range map[string]string{"db": `{sealed: "true"}`, "web": "{}"} {
		s.apply(`{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, labels: ` + labels + `}, spec: {containers: [{name: c, image: x, tty: true, stdin: true}]}}`)
		s.kubectl("patch pod "+name+" --subresource=status --type=merge -p", `{"status": {"phase": "Running"}}`)
	}
	s.Until("it is enforced", func() (string, bool) {
		text, ok := s.try("exec db -- date")
		return text, !ok && strings.Contains(text, "[sealed/Sealed] Pod db is sealed against PodExecOptions. Read its log.")
	})
	s.refused("[sealed/Sealed] Pod db is sealed against PodAttachOptions", "attach db")
	s.refused("[sealed/Sealed] Pod db is sealed against PodPortForwardOptions", "port-forward pod/db 18080:80")
	s.refused("[sealed/Shell] sh is a shell", "exec web -- sh -c date")
	s.refused(`kubectl sallyport override sealed pods/db -n default --reason "..."`, "exec db -- date")
	const dialled = "pod web does not have a host assigned"
	for _, line := range []string{"exec web -- date", "attach web", "port-forward pod/web 18080:80"} {
		s.refused(dialled, line)
	}
	said := s.run(filepath.Join(s.Dir, "kubectl-sallyport"), "explain", "pod", "web", "--subresource", "exec", "--kubeconfig", s.Plane.Kubeconfig(), "--", "sh")
	if !strings.Contains(said, "CONNECT of pods/exec web in namespace default") || !strings.Contains(said, "sh is a shell") {
		s.Errorf("explain says %s", said)
	}
	s.plugin("override", "sealed", "pods/db", "--reason", "drill")
	s.refused("pod db does not have a host assigned", "exec db -- date")
	s.kubectl("delete rego sealed")
	s.kubectl("delete pod db web --force --grace-period=0")
}
