package plugin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/webhooks/offline"
)

func operation(name, kind string) string {
	return fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation", "metadata": {"name": %q},
		"spec": {"virtualMachineName": "web-1", "type": %q}}`, name, kind)
}

// explain runs the plugin with a request on standard input.
func (tm *team) explain(stdin, line string, code int, texts ...string) result {
	tm.Helper()
	r := tm.kubectl(stdin, append([]string{"sallyport", "explain"}, strings.Fields(line)...)...)
	tm.reads("explain "+line, r, code, texts...)
	return r
}

func TestExplain(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.explain(operation("stop-1", "Stop"), "-f -", 0, "CREATE of virtualmachineoperations.sallyport.dev stop-1 in namespace "+tm.namespace,
		"defaults: changes the object: add /spec/requestedAt",
		"operations-supersede: allows: deny at supersede.rego:53 needs `some op in _unfinished`, but there is none",
		"facts.vm  VirtualMachine web-1 in namespace "+tm.namespace+": found web-1",
		`servers-quota: not evaluated: spec.match.resources[0] resources has ["virtualmachines"], not "virtualmachineoperations"`)
}

// What is in the way of a policy that is asked, of one that is not, and of one that is not the API server's to ask.
func TestExplainWhoIsAsked(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.must(operation("stop-1", "Stop"), "create", "-f", "-")
	tm.explain(operation("migrate-1", "Migrate"), "-f - --policy operations-supersede", 0,
		"operations-supersede: denies: [OperationInProgress] VirtualMachine web-1: migrate is not allowed because Stop stop-1 is pending")
	tm.explain(operation("stop-2", "Stop"), "-f - --policy nothing", 1, "RegoPolicy nothing does not exist; policies are: defaults, ")
	tm.explain(operation("stop-2", "Stop"), "-f - --policy lib-operations", 1, "is a library")
	// The object itself is not among what it is held against.
	tm.explain("", "svmop stop-1 --policy operations-supersede", 0, "allows: deny at supersede.rego:53 needs `some op in _unfinished`, but there is none")
	tm.explain("", "svm web-1 --operation UPDATE --policy servers-tenancy", 0,
		"servers-tenancy: not evaluated: webhook validate.sallyport.dev is not called: its matchCondition changes-more-than-status-or-finalizers excludes this request")
	tm.explain(strings.Replace(operation("stop-3", "Stop"), `"type"`, `"tpye"`, 1), "-f -", 0, `denied before any policy is evaluated`, `unknown field "spec.tpye"`)
	r := tm.explain(operation("migrate-1", "Migrate"), "-f - --policy operations-supersede -o json", 0)
	var report offline.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if e := report.Results[0].Explanations; len(e) != 1 || e[0].Verdict != "denied" || len(e[0].Rules) == 0 {
		t.Errorf("as JSON it is %s", r.stdout)
	}
}

// explainBy is explain by a user with a kubeconfig of their own.
func (tm *team) explainBy(user, stdin, line string, code int, texts ...string) {
	tm.Helper()
	kubeconfig, err := started.plane.UserKubeconfig(user)
	if err != nil {
		tm.Fatal(err)
	}
	args := append([]string{"explain", "--namespace", tm.namespace}, strings.Fields(line)...)
	tm.reads("explain "+line, plugged(tm.Context(), stdin, kubeconfig, args, cli.DefaultPatience), code, texts...)
}

// bind gives a user a ClusterRole, of the cluster or of the team's namespace.
func (tm *team) bind(kind, role, user string) {
	tm.Helper()
	name := role + "-" + user
	tm.must("", "create", kind, name, "--clusterrole="+role, "--user="+user)
	tm.atTheEnd("delete", kind, name, "--namespace", tm.namespace)
}

// A user reads what policies ask with their own rights, and is told what they may not read.
func TestExplainWithOwnRights(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	user := tm.namespace + "-user"
	stop := operation("stop-1", "Stop")
	tm.explainBy(user, stop, "-f -", 1, `regopolicies.sallyport.dev is forbidden: User "`+user+`" cannot list`,
		"To get access, ask a cluster administrator to run: kubectl create clusterrolebinding sallyport-policy-viewer-USER --clusterrole=sallyport-policy-viewer --user=USER")
	tm.bind("clusterrolebinding", "sallyport-policy-viewer", user)
	tm.explainBy(user, stop, "-f - --policy operations-supersede", 0, "by "+user,
		"operations-supersede: evaluated, but the result is unknown, because you may not read the objects that it reads: ",
		`User "`+user+`" cannot list resource "virtualmachineoperations" in API group "sallyport.dev" in the namespace "`+tm.namespace+`"`)
	tm.bind("rolebinding", "sallyport-view", user)
	tm.must(stop, "create", "-f", "-")
	const refuses = "operations-supersede: denies: [OperationInProgress] VirtualMachine web-1: migrate is not allowed because Stop stop-1 is pending"
	migrate := operation("migrate-1", "Migrate")
	tm.explainBy(user, migrate, "-f - --policy operations-supersede", 0, "by "+user, refuses)
	// Somebody else's request, too: to ask takes no right to impersonate.
	tm.explainBy(user, migrate, "-f - --policy operations-supersede --as bob", 0, "by bob", refuses)
}

// With --as the caller reads, and the user whom it names is judged: their rights too, whatever the caller has.
func TestExplainAsSomebodyElse(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.must(operation("stop-1", "Stop"), "create", "-f", "-")
	nobody := tm.namespace + "-nobody"
	tm.explain(operation("migrate-1", "Migrate"), "-f - --policy operations-supersede --as "+nobody, 0, "by "+nobody,
		"operations-supersede: denies: [OperationInProgress] VirtualMachine web-1: migrate is not allowed because Stop stop-1 is pending")
	owner := tm.namespace + "-owner"
	tm.bind("clusterrolebinding", "cluster-admin", owner)
	abandoned := `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "web-2",
		"annotations": {"sallyport.dev/abandon-instance": "gone"}}, "spec": {"runtime": {"pod": {}}}}`
	const line = "-f - --policy machines-abandon --as "
	tm.explain(abandoned, line+nobody, 0, "machines-abandon: denies: [AbandonNotAllowed]", nobody+" cannot set annotation sallyport.dev/abandon-instance")
	tm.explain(abandoned, line+owner, 0, "machines-abandon: allows")
	tm.explain(abandoned, line+nobody+" --as-group system:masters", 0, "machines-abandon: allows")
}

const owners = `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "RegoPolicy", "metadata": {"name": %[1]q}, "spec": {
	"package": %[2]q, "onError": "Allow", "modules": [{"name": "owner.rego", "source": %[3]q}], "tests": [{"name": "owner_test.rego", "source": %[5]q}], "match": {
		"resources": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}],
		"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %[4]q}}}}}`

// A policy about another kind is asked only if it is registered.
func TestExplainAForeignPolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	tm := newTeam(t)
	name := tm.namespace + "-owners"
	pkg := "acme." + strings.ReplaceAll(name, "-", "_")
	module := "# METADATA\n# title: Owners\n# description: For a test.\npackage " + pkg + `

valid_input if is_object(input.request.object.metadata)

# METADATA
# title: No owner
# custom: {reason: NoOwner, remedy: Add the label.}
deny contains {"reason": "NoOwner", "message": "no owner"} if {
	not input.request.object.metadata.labels.owner
}
`
	test := fmt.Sprintf("package %[1]s_test\n\nimport data.%[1]s as policy\n\ntest_no_owner if count(policy.deny) == 1 with input.request.object.metadata as {}\n", pkg)
	tm.must(fmt.Sprintf(owners, name, pkg, module, tm.namespace, test), "create", "-f", "-")
	tm.atTheEnd("delete", "rego", name, "--wait=false")
	deployment := `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"owner": "me"}}, "spec": {
		"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`
	tm.explain(deployment, "-f - --policy "+name, 0, name+": not evaluated: no webhook configuration sends CREATE of deployments.apps to it",
		"(if it were: allows: deny at owner.rego:12 needs `not input.request.object.metadata.labels.owner`, which is false")
	entry := fmt.Sprintf(`{"webhooks": [{"name": "%[1]s.policies.sallyport.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
		"clientConfig": {"service": {"namespace": "sallyport-system", "name": "sallyport-webhook", "path": "/validate/policies/%[1]s"}},
		"rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}]}]}`, name)
	tm.must("", "patch", "validatingwebhookconfiguration", "sallyport-policies", "-p", entry)
	tm.atTheEnd("patch", "validatingwebhookconfiguration", "sallyport-policies", "-p",
		fmt.Sprintf(`{"webhooks": [{"$patch": "delete", "name": "%s.policies.sallyport.dev"}]}`, name))
	tm.explain(deployment, "-f - --policy "+name, 0, name+": allows: deny at owner.rego:12 needs `not input.request.object.metadata.labels.owner`, which is false for input.request.object.metadata.labels.owner=\"me\"")
	tm.explain(strings.Replace(deployment, `"owner": "me"`, "", 1), "-f - --policy "+name, 0, name+": denies: [NoOwner] no owner (owner.rego:11)")
	tm.must(deployment, "create", "-f", "-")
	tm.explain("", "deploy web --policy "+name, 0, "allows: ")
	tm.explain("", "deploy web --operation DELETE --policy "+name, 0, name+`: not evaluated: `, `operations has ["CREATE"], not "DELETE"`)
}
