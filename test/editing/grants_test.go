package editing

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/depth"
)

// binding is what an administrator writes, and what bob would like to be in.
const binding = "create clusterrolebinding carols --clusterrole=cluster-admin --user=carol --dry-run=server -o=jsonpath={.subjects[*].name}"

// matching is a policy about a resource, as it is made and changed.
func matching(group, resource string) func(*v1alpha1.RegoPolicy) {
	return func(p *v1alpha1.RegoPolicy) {
		r := &p.Spec.Match.Resources[0]
		r.APIGroups, r.Resources = []string{group}, []string{resource}
		r.Operations = []v1alpha1.MatchOperation{v1alpha1.MatchCreate, v1alpha1.MatchUpdate}
	}
}

// patching has a policy patch what it matches.
func patching(patch string) func(*v1alpha1.RegoPolicy) {
	return module("_taken(name) if", "patch contains "+patch+" if input.request.object\n\n_taken(name) if")
}

// Whoever may write policies does not get by that what those may whose requests they patch.
func TestPolicyEditorsDoNotRule(t *testing.T) {
	depth.Only(t)
	p, a := bob(t), admin(t)
	const subject = `{"op": "add", "path": "/subjects/-", "value": {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}}`
	create := []string{"create", "-f", "-"}
	roles := matching("rbac.authorization.k8s.io", "clusterrolebindings")
	forget(t, "rule")

	refusal := "[policies-self/PatchNotGranted] RegoPolicy rule has patch rules, and matches resources that it may not patch: spec.match.resources[0].resources[0], "
	never := refusal + "clusterrolebindings.rbac.authorization.k8s.io: no policy may patch it: it controls access"
	p.refused(text(t, quota("rule", roles, patching(subject))), create, never)
	p.refused(text(t, quota("rule", matching("", "configmaps"), patching(subject))), create, refusal+"configmaps: policies may not patch it",
		`helm upgrade sallyport CHART --namespace sallyport-system --reuse-values --set-json 'patchable={"configmaps":"Metadata"}'`)

	// In two steps, of which each is harmless: patches come to the match, or the match to the patches.
	p.may(text(t, quota("rule", roles)), create...)
	p.refused(text(t, quota("rule", roles, patching(subject))), replace, never)
	p.may("", "delete", "regopolicy", "rule")
	p.may(text(t, quota("rule", matching("apps", "deployments"), patching(subject))), create...)
	p.refused("", patch("rule", `{"spec":{"match":{"resources":[{"apiGroups":["rbac.authorization.k8s.io"],"apiVersions":["*"],"resources":["clusterrolebindings"],"operations":["CREATE"]}]}}}`), never)
	// What is granted of Deployments is their labels and annotations.
	a.Eventually("Deployments are patched", func() bool {
		said := a.try("", "create", "deployment", "x", "--image=x", "--dry-run=server").stderr
		return strings.Contains(said, "[rule/ContractViolated]") && strings.Contains(said, "applying its patch")
	})
	p.may(text(t, quota("rule", matching("apps", "deployments"), patching(`{"op": "add", "path": "/spec/template/spec/serviceAccountName", "value": "admin"}`))), replace...)
	a.Eventually("what is not granted is refused", func() bool {
		said := a.try("", "create", "deployment", "x", "--image=x", "--dry-run=server").stderr
		return strings.Contains(said, "[rule/ContractViolated]") && strings.Contains(said, "it patches spec.template of deployments.apps: only labels and annotations are granted")
	})
	p.may(text(t, quota("rule", matching("apps", "deployments"), patching(`{"op": "add", "path": "/metadata/labels/seen", "value": "true"}`))), replace...)
	a.Eventually("labels are patched", func() bool {
		return a.try("", "create", "deployment", "x", "--image=x", "--dry-run=server", "-o=jsonpath={.metadata.labels.seen}").stdout == "true"
	})
	p.may("", "delete", "regopolicy", "rule")

	// What got in past Sallyport's admission is not asked for patches.
	back := aside(a)
	p.may(text(t, quota("rule", roles, patching(subject))), create...)
	message := shows(t, "rule", v1alpha1.ConditionRegistered, v1alpha1.ReasonNotRegistrable)
	back()
	if !strings.Contains(message, "no policy may patch it: it controls access") {
		t.Errorf("it shows %q", message)
	}
	if subjects := a.may("", strings.Fields(binding)...).stdout; subjects != "carol" {
		t.Errorf("the binding is for %s", subjects)
	}
	p.may("", "delete", "regopolicy", "rule")
}

// A right that is lacking is told to who writes the policy, with the command that grants it.
func TestUngrantedReadsAreToldAtOnce(t *testing.T) {
	p := bob(t)
	forget(t, "reading")
	said := p.may(text(t, quota("reading", func(p *v1alpha1.RegoPolicy) {
		p.Spec.Reads = []v1alpha1.PolicyRead{{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, {APIVersion: "apps/v1", Kind: "Deployment", Freshness: v1alpha1.ReadLive}}
	})), "create", "-f", "-").stderr
	for _, want := range []string{
		"Warning: RegoPolicy reading is not used in this version until Sallyport is allowed to ", "get, list, watch ingresses.networking.k8s.io; ",
		"to grant access, run: helm upgrade sallyport CHART --namespace sallyport-system --reuse-values --set-json 'rbac.reads={", `"ingresses.networking.k8s.io":true`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("kubectl says %q, without %q", said, want)
		}
	}
	p.may("", "delete", "regopolicy", "reading")
}

// What nobody would ask of a policy is refused, be it that its rules come to the match or the match to the rules.
func TestRulesThatNobodyAsksAreRefused(t *testing.T) {
	p := bob(t)
	forget(t, "silent")
	deletes := func(p *v1alpha1.RegoPolicy) {
		p.Spec.Match.Resources[0].Operations = []v1alpha1.MatchOperation{v1alpha1.MatchDelete}
	}
	const dead = "[policies-self/NotRegistrable] RegoPolicy silent cannot be registered with the API server: spec.match.resources: the policy has patch rules, which are asked about CREATE and UPDATE"
	silent := func(changes ...func(*v1alpha1.RegoPolicy)) string {
		return text(t, quota("silent", append([]func(*v1alpha1.RegoPolicy){matching("apps", "deployments"), patching(`{"op": "add", "path": "/metadata/labels/seen", "value": "true"}`)}, changes...)...))
	}
	create := []string{"create", "-f", "-"}
	p.refused(silent(deletes), create, dead)
	p.may(silent(), create...)
	p.refused("", patch("silent", `{"spec":{"match":{"resources":[{"apiGroups":["apps"],"apiVersions":["*"],"resources":["deployments"],"operations":["DELETE"]}]}}}`), dead)
	p.may("", "delete", "regopolicy", "silent")
}

// A misspelt field is the API server's to refuse, before any webhook is asked: kubectl create says it in one line with every such field.
func TestMisspeltFieldsAreRefusedByTheAPIServer(t *testing.T) {
	p := bob(t)
	forget(t, "misspelt")
	misspelt := strings.NewReplacer(`"onError"`, `"onEror"`, `"package"`, `"pakage"`).Replace(text(t, quota("misspelt", func(p *v1alpha1.RegoPolicy) { p.Spec.OnError = v1alpha1.OnErrorDeny })))
	for _, verb := range []string{"create", "apply"} {
		said := strings.TrimSpace(p.refused(misspelt, []string{verb, "-f", "-"}, `strict decoding error: unknown field "spec.onEror", unknown field "spec.pakage"`).stderr)
		if strings.Contains(said, "\n") {
			t.Errorf("kubectl %s says it in several lines:\n%s", verb, said)
		}
	}
}
