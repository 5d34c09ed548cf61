package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/test/support/env/install"
)

// A Deployment that somebody makes, with an owner and without.
const (
	owned   = "apply --dry-run=server -f " // of a file
	ownless = "create deployment ownless --image=x --dry-run=server"
)

// TestPoliciesOnOtherKinds has policies of people's own on kinds that are not Sallyport's: how they come to be enforced, what passes whatever
// happens, and that they go as they came.
func TestPoliciesOnOtherKinds(t *testing.T) {
	t.Parallel()
	s := newReplicated(t, onlyOwn(t)...)
	s.step("a policy on Deployments", (*replicated).comes)
	s.step("one from policy new", (*replicated).begun)
	s.step("objects that there were before", (*replicated).sparesWhatWas)
	s.step("labels of namespaces", (*replicated).relabelled)
	s.step("what there is not", (*replicated).missed)
	s.step("under load", (*replicated).loaded)
	s.step("subresources and deletions and changes", (*replicated).others)
	if !testing.Short() {
		s.step("a replica that follows late", (*replicated).laggards)
		s.step("a replica that is killed", (*replicated).killed)
		s.step("what cannot be registered", (*replicated).unregistrable)
		s.step("a read that is not granted", (*replicated).grants)
		s.step("connections to Pods", (*replicated).connects)
		s.step("policies at random", (*replicated).anyPolicies)
		s.step("a new policy that is broken", (*replicated).broken)
		s.step("entries that somebody edits", (*replicated).drifts)
		s.step("the gate is opened and closed", (*replicated).opened)
		s.step("commands of alerts", (*replicated).commandsOfAlerts)
		s.step("the gate closes by itself", (*replicated).closesItself)
		s.step("nobody answers", (*replicated).unanswered)
		s.step("the gate is opened while nobody answers", (*replicated).openedUnserved)
		s.step("replicas start while an API service is broken", (*replicated).brokenAPIService)
	}
	s.step("policies go", (*replicated).goes)
	s.step("release and uninstall", (*replicated).uninstalled)
}

func (s *replicated) comes() {
	s.kubectl("create deployment legacy --image=x")
	s.kubectl("create namespace team")
	if v, m := s.entries(); len(v)+len(m) > 0 {
		s.Fatalf("as installed, policies are asked: %v %v", v, m)
	}
	before := s.pods()
	s.apply(owners("owners", ""))
	applied := time.Now()
	s.Until("it is enforced", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, !ok && strings.Contains(text, "[owners/OwnerMissing] label owner is missing")
	})
	s.Logf("enforced %d ms after kubectl apply had returned", time.Since(applied).Milliseconds())
	s.registered("owners")
	s.event("owners", "Registered", "CREATE, UPDATE of deployments.apps")
	if now := s.pods(); !slices.Equal(now, before) {
		s.Errorf("replicas were restarted for it: %v, they were %v", now, before)
	}
	for range 10 { // whichever replica is asked
		s.refused("OwnerMissing", ownless)
		s.refused("OwnerMissing", ownless+" --namespace team")
	}
	s.passes(owned + s.file(deployment("owned")))
	for _, namespace := range []string{"kube-system", install.Namespace} {
		s.passes(ownless + " --namespace " + namespace)
	}
}

// begun: written by the program, tested, applied, and made strict.
func (s *replicated) begun() {
	s.kubectl("delete rego owners")
	folder := filepath.Join(s.TempDir(), "policies")
	s.run(s.Options.Binary, "policy", "new", "owner", "--dir", folder)
	s.run(s.Options.Binary, "policy", "test", filepath.Join(folder, "owner"), "--coverage", "100")
	s.apply(s.run(s.Options.Binary, "policy", "manifest", filepath.Join(folder, "owner")))
	s.registered("owner")
	s.Until("it warns", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, ok && strings.Contains(text, "Warning: [owner/OwnerMissing]")
	})
	s.kubectl("patch rego owner --type=merge -p", `{"spec": {"mode": "Enforce"}}`)
	s.Until("it refuses", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, !ok && strings.Contains(text, "[owner/OwnerMissing]")
	})
	s.kubectl("delete rego owner")
	s.apply(owners("owners", ""))
	s.registered("owners")
	s.Until("the other one is enforced again", func() (string, bool) {
		text, ok := s.try(ownless)
		return text, !ok && strings.Contains(text, "denied the request: [owners/OwnerMissing]")
	})
}

// deployment is one with an owner.
func deployment(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {owner: a}}, spec: {replicas: 2, selector: {matchLabels: {app: x}},
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: x}]}}}}`, name)
}

// sparesWhatWas: books about an object that no policy would admit now are kept all the same.
func (s *replicated) sparesWhatWas() {
	patch := func(more string) []string { return []string{"--type=merge", "-p", more} }
	s.refused("OwnerMissing", "patch deployment legacy", patch(`{"spec":{"replicas":3}}`)...)
	s.refused("OwnerMissing", "label deployment legacy a=b")
	s.passes("patch deployment legacy", patch(`{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`)...)
	s.passes("patch deployment legacy", patch(`{"metadata":{"finalizers":["example.com/a"]}}`)...)
	s.passes("patch deployment legacy --subresource=status", patch(`{"status":{"observedGeneration":7}}`)...)
	s.passes("delete deployment legacy --wait=false") // which is not what the policy is about
	s.passes("annotate deployment legacy a=b")        // it is terminating
	s.passes("patch deployment legacy", patch(`{"metadata":{"finalizers":null}}`)...)
	s.kubectl("wait deployment/legacy --for=delete --timeout=3m")
}

// loaded: no request is lost, and none is judged by half of a registration.
func (s *replicated) loaded() {
	question := func(name string, labels map[string]any) install.Question {
		return install.Question{Name: name, Object: func() *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment",
				"metadata": map[string]any{"generateName": "load-", "namespace": "team", "labels": labels},
				"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}, "template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "x"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "x"}}},
				}},
			}}
		}}
	}
	load, err := install.NewLoad(s.Context(), s.Plane.Config, question("owned", map[string]any{"owner": "a"}), question("ownless", nil))
	s.Must(err)
	usual := install.Answers{"owned": {install.Admitted}, "ownless": {"[owners/OwnerMissing] label owner is missing"}}
	settled := func(what string) {
		s.Helper()
		_, err := load.More(s.Context(), 5)
		s.Must(err)
		s.Log(what)
	}
	settled("as it is")
	s.apply(marks)
	s.registered("marks")
	settled("with another policy, which also changes objects")
	s.apply(owners("owners", "  timeoutMilliseconds: 3000"))
	s.registered("owners")
	settled("with an edit")
	s.kubectl("delete rego marks")
	s.Until("it is not asked any more", func() (string, bool) {
		v, m := s.entries()
		return fmt.Sprint(v, m), !slices.Contains(v, "marks") && !slices.Contains(m, "marks")
	})
	settled("without the other one")
	if !testing.Short() {
		leader, _ := s.leader()
		s.kubectl("delete pod " + leader + " --wait --namespace " + install.Namespace)
		s.rolledOut()
	}
	s.apply(marks)
	s.registered("marks", "owners")
	settled("with the other one again, and without -short with another leader")
	replies := load.Since(0, time.Time{})
	load.End()
	if err := usual.Check(replies); err != nil {
		s.Error(err)
	}
	s.Logf("%d requests, none lost", len(replies))
}

func (s *replicated) others() {
	s.apply(shrinks, kept, pods, lenient)
	s.registered("shrinks", "kept", "pods", "lenient", "marks")
	v, m := s.entries()
	if !slices.Equal(v, []string{"kept", "lenient", "marks", "owners", "pods", "shrinks"}) || !slices.Equal(m, []string{"marks"}) {
		s.Errorf("asked are %v and, to change objects, %v", v, m)
	}

	s.apply(deployment("web"))
	if text := s.kubectl("get deployment web -o jsonpath={.metadata.annotations.marked}"); text != "true" {
		s.Errorf("it was not changed: %q", text)
	}
	s.refused("[shrinks/Shrinks] no replicas are taken away", "scale deployment/web --replicas=1")
	s.passes("scale deployment/web --replicas=3")

	for _, namespace := range []string{"kept-1", "kept-not", "not-kept"} {
		s.kubectl("create namespace " + namespace)
		s.kubectl("create configmap a --namespace " + namespace)
	}
	s.kubectl("label namespace kept-1 kept-not keep=true")
	s.Until("replicas have seen the labels", func() (string, bool) {
		text, ok := s.try("delete configmap a --dry-run=server --namespace kept-1")
		return text, !ok
	})
	s.refused("[kept/Kept] it is kept", "delete configmap a --namespace kept-1")
	s.passes("delete configmap a --dry-run=server --namespace kept-not")
	s.passes("delete configmap a --dry-run=server --namespace not-kept")
	s.passes("delete configmap a --dry-run=server --namespace kept-1 --as=bob --as-group=system:masters")
	s.passes("delete configmap a --dry-run=server --namespace kept-1 --as=eve --as-group=system:masters --as-group=janitors")
	s.refused("it is kept", "delete configmap a --dry-run=server --namespace kept-1 --as=eve --as-group=system:masters")
	// The namespace's end is the namespace controller's work, which the policy leaves out.
	s.passes("delete namespace kept-1 --timeout=3m")
}

// laggards hold up what makes the API server ask more, by name, and for as long as they live.
func (s *replicated) laggards() {
	laggard, err := replicas.New(s.Plane.Config, replicas.Options{
		Namespace: install.Namespace, Name: "laggard", Duration: 2 * time.Second, Renew: 500 * time.Millisecond,
	})
	s.Must(err)
	start := func() (stop context.CancelFunc) {
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = laggard.Start(ctx)
		}()
		return func() { cancel(); <-done }
	}
	laggard.ReportPolicies("0123456789abcdef")
	stop := start()
	s.Until("its Lease is there", func() (string, bool) {
		return s.try("get lease sallyport-replica-laggard --namespace " + install.Namespace)
	})

	s.apply(owners("late", ""))
	s.Until("it says that nobody else is waited for", func() (string, bool) { // the other replica follows at once
		message := s.shows("late", v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonWaitingForReplicas)
		return message, strings.Contains(message, "Not yet: laggard.")
	})
	if v, _ := s.entries(); slices.Contains(v, "late") {
		s.Error("it is asked while a replica does not know it")
	}
	s.Until("it has followed", func() (string, bool) {
		hash := s.hash()
		laggard.ReportPolicies(hash) // which another policy may change meanwhile
		v, _ := s.entries()
		return hash, slices.Contains(v, "late")
	})
	s.registered("late")

	// Its Lease runs out when it is gone without a word.
	s.apply(owners("later", ""))
	s.shows("later", v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonWaitingForReplicas)
	s.kubectl("delete rego late") // which waits for nobody
	s.Until("it is not asked any more", func() (string, bool) {
		v, _ := s.entries()
		return fmt.Sprint(v), !slices.Contains(v, "late")
	})
	if v, _ := s.entries(); slices.Contains(v, "later") {
		s.Errorf("asked are %v", v)
	}
	stop()
	s.registered("later")
	s.kubectl("delete rego later")
}

// hash is what the replica that leads has reported.
func (s *replicated) hash() string {
	s.Helper()
	leader, _ := s.leader()
	lease := &coordinationv1.Lease{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: install.Namespace, Name: "sallyport-replica-" + leader}, lease))
	return lease.Annotations[replicas.PoliciesAnnotation]
}

func (s *replicated) killed() {
	leader, other := s.leader()
	for _, name := range []string{other, leader} {
		manager, err := s.Kubelet.Manager(name)
		s.Must(err)
		policy := "after-" + name[len(name)-5:]
		s.apply(owners(policy, ""))
		s.Must(manager.Kill())
		s.registered(policy)
		s.Until("both replicas are ready again", func() (string, bool) { return s.ready() })
		s.kubectl("delete rego " + policy)
	}
}

func (s *replicated) ready() (string, bool) {
	text := s.kubectl("get deployment " + install.Release + " -o jsonpath={.status.readyReplicas} --namespace " + install.Namespace)
	return text, text == "2"
}

// unregistrable: what the API server would not ask is refused, and is not ready where it got in all the same.
func (s *replicated) unregistrable() {
	for words, match := range map[string]string{
		`spec.match.excludeNamespaces[0]: Invalid value: "kube-*"`: `
    resources: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments], operations: [CREATE]}]
    excludeNamespaces: ["kube-*"]`,
		"spec.match.conditions[0].expression: Invalid value: compilation failed": `
    resources: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments], operations: [CREATE]}]
    conditions: [{name: slip, expression: "object.metadata.name =="}]`,
		"spec.match.resources[0].resources[0], leases.coordination.k8s.io: nodes and leaders renew Leases": `
    resources: [{apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: [UPDATE]}]`,
	} {
		file := s.file(policyOf("greedy", "  match:"+match, denies("Never", "never", `input.request.object.spec.replicas == 77`), tested(`{"object": {"spec": {"replicas": 77}}}`)))
		s.refused(words, "apply -f "+file)
	}
	// Past Sallyport's own admission.
	s.kubectl("apply -f " + s.file(policyOf("greedy", `
  match:
    resources:
    - {apiGroups: [apps], apiVersions: ["*"], resources: ["*/scale", statefulsets], operations: [UPDATE]}
    - {apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: [UPDATE]}
`, denies("Never", "never", `input.request.object.spec.replicas == 77`), tested(`{"object": {"spec": {"replicas": 77}}}`))) +
		" --as=" + s.Sallyport.User() + " --as-group=system:masters")
	message := s.shows("greedy", v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonNotRegistrable)
	for _, text := range []string{"spec.match.resources[0].resources[0], *.apps/scale", "spec.match.resources[1].resources[0], leases.coordination.k8s.io",
		"Registered for the rest: UPDATE of statefulsets.apps."} {
		if !strings.Contains(message, text) {
			s.Errorf("it says %q, without %q", message, text)
		}
	}
	s.event("greedy", "NotRegistrable", "leases.coordination.k8s.io")
	s.shows("greedy", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotRegistrable)
	s.kubectl("delete rego greedy")
}

// missed: who misses a resource by a little is told which one was meant, and the policy is not ready.
func (s *replicated) missed() {
	said := s.kubectl("apply -f " + s.file(strings.Replace(owners("missed", ""), "[deployments]", "[deployment]", 1)))
	if want := "Warning: [policies-self] RegoPolicy missed is not evaluated for every resource that it matches: " +
		"spec.match.resources[0].resources[0]: there is no deployment.apps; did you mean deployments.apps?"; !strings.Contains(said, want) &&
		!strings.Contains(said, strings.Replace(want, "[policies-self] ", "", 1)) {
		s.Errorf("it says %s", said)
	}
	s.shows("missed", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonResourceNotServed)
	if row := s.kubectl("get rego missed --no-headers"); !strings.Contains(row, "False") || !strings.Contains(row, "ResourceNotServed") {
		s.Errorf("kubectl get rego shows %s", row)
	}
	s.kubectl("delete rego missed")
}

var helmArgument = regexp.MustCompile(`--reuse-values --set-json '([^']*)'`)

// grants: what a user reads is enough to grant the right.
func (s *replicated) grants() {
	s.apply(policyOf("reads", `
  match:
    resources: [{apiGroups: [apps], apiVersions: [v1], resources: [statefulsets], operations: [CREATE]}]
  reads: [{apiVersion: networking.k8s.io/v1, kind: Ingress, indexes: ["spec.rules[].host,spec.ingressClassName"]}]
`, `
facts.others := {
	"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "namespace": input.request.namespace,
	"fields": {"spec.ingressClassName": "public", "spec.rules[].host": "example.com"},
}

`+denies("Taken", "there are Ingresses", `count(input.facts.others) > 0`), `
test_refused[note] if {
	some note, others in {"one": [{}]}
	count(policy.deny) == 1 with input as {"request": {"namespace": "a"}, "facts": {"others": others}}
}`))
	message := s.shows("reads", v1alpha1.ConditionReadsGranted, metav1.ConditionFalse, v1alpha1.ReasonReadsForbidden)
	s.Log(message)
	found := helmArgument.FindStringSubmatch(message)
	if found == nil || !strings.Contains(message, `{"apiGroups":["networking.k8s.io"],"resources":["ingresses"],"verbs":["get","list","watch"]}`) {
		s.Fatalf("it does not say how to grant it: %s", message)
	}
	s.shows("reads", v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonNoGoodRevision)
	const statefulSet = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {selector: {matchLabels: {app: x}},
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: x}]}}}}`
	s.kubectl("create ingress inner --class=private --rule=example.com/=x:80")
	s.kubectl("create ingress other --class=public --rule=example.org/=x:80")
	s.passes(owned + s.file(statefulSet))
	before := s.pods()
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set-json", found[1]))
	s.shows("reads", v1alpha1.ConditionReadsGranted, metav1.ConditionTrue, v1alpha1.ReasonReadsGranted)
	s.registered("reads")
	s.passes(owned + s.file(statefulSet))
	s.kubectl("create ingress taken --class=public --rule=example.org/=x:80 --rule=example.com/=x:80")
	s.Until("it is enforced", func() (string, bool) { // a denial that the API server confirms, which selects by neither of the fields
		text, ok := s.try(owned + s.file(statefulSet))
		return text, !ok && strings.Contains(text, "[reads/Taken] there are Ingresses")
	})
	if now := s.pods(); !slices.Equal(now, before) {
		s.Errorf("replicas were restarted for it: %v, they were %v", now, before)
	}
	s.kubectl("delete rego reads")
}

// broken: a slip that got in past Sallyport's own admission stands in nobody's way before it was ever good.
func (s *replicated) broken() {
	slip := strings.Replace(owners("slip", ""), "deny contains {", "deny contains } {", 1)
	s.kubectl("apply -f " + s.file(slip) + " --as=" + s.Sallyport.User() + " --as-group=system:masters")
	s.shows("slip", v1alpha1.ConditionRegistered, metav1.ConditionFalse, v1alpha1.ReasonNoGoodRevision)
	if v, _ := s.entries(); slices.Contains(v, "slip") {
		s.Error("it is asked")
	}
	s.passes(owned + s.file(deployment("owned")))
	s.kubectl("delete rego slip")
}

func (s *replicated) drifts() {
	before := s.text()
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		for _, edit := range []string{`[{"op": "remove", "path": "/webhooks"}]`, `[{"op": "remove", "path": "/webhooks/0"}]`,
			`[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`,
			`[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`,
			`[{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}]`} {
			s.kubectl("patch "+kind+" "+configuration+" --type=json -p", edit)
			s.Until("it is put back", func() (string, bool) { now := s.text(); return now, now == before })
		}
	}
}

// unanswered: while nobody answers, policies do what their onError says, and nothing is in the way of who would answer.
func (s *replicated) noReplica() {
	s.Helper()
	s.kubectl("scale deployment/" + install.Release + " --replicas=0 --namespace " + install.Namespace)
	s.Until("no replica is left", func() (string, bool) { return fmt.Sprint(s.pods()), len(s.pods()) == 0 })
}

func (s *replicated) unanswered() {
	s.noReplica()
	const nobody = "failed calling webhook"
	s.refused(nobody, owned+s.file(deployment("owned")))
	s.refused(nobody, "run bare --image=x --dry-run=server")
	s.refused(nobody, "scale deployment/web --replicas=4")
	s.passes("create service clusterip bare --tcp=80 --dry-run=server") // its policy would refuse it, and lets pass what it cannot judge
	for _, namespace := range []string{"kube-system", install.Namespace} {
		s.passes(ownless + " --namespace " + namespace)
		s.passes("run bare --image=x --dry-run=server --namespace " + namespace)
	}
	s.passes("patch deployment web --type=merge -p", `{"metadata":{"finalizers":["example.com/a"]}}`)
	s.passes("patch deployment web --subresource=status --type=merge -p", `{"status":{"observedGeneration":9}}`)
	s.passes("delete deployment web --wait=false --cascade=orphan")
	s.passes("patch deployment web --type=merge -p", `{"metadata":{"finalizers":null}}`)

	before := s.text()
	for _, way := range []string{"--server-side=true", "--server-side=false"} {
		s.Must(s.Sallyport.Upgrade(s.Context(), way, "--force-conflicts="+strings.TrimPrefix(way, "--server-side="), "--set", "webhook.annotations.upgraded="+way[2:8]))
		if now := s.text(); now != before {
			s.Errorf("helm upgrade %s has changed the entries:\n%s\nwant\n%s", way, now, before)
		}
	}
}

func (s *replicated) goes() {
	s.kubectl("delete rego marks shrinks kept lenient")
	s.Until("they are not asked any more", func() (string, bool) {
		v, m := s.entries()
		return fmt.Sprint(v, m), slices.Equal(v, []string{"owners", "pods"}) && len(m) == 0
	})
	// In an emergency this is a way out at once.
	s.kubectl("patch rego owners --type=merge -p", `{"spec":{"mode":"Audit"}}`)
	s.Until("it refuses nothing", func() (string, bool) {
		v, _ := s.configurations()
		text, ok := s.try(ownless)
		return text, ok && *v.Webhooks[0].FailurePolicy == "Ignore"
	})
	s.kubectl("patch rego owners --type=merge -p", `{"spec":{"mode":"Enforce"}}`)
	s.Until("it refuses again", func() (string, bool) { text, ok := s.try(ownless); return text, !ok })
	s.registered("owners")
}

// uninstalled: nobody is asked any more from the release on, and nothing is made anew.
func (s *replicated) uninstalled() {
	said := s.plugin("release", "--all")
	if !strings.Contains(said, "Unregistered on other kinds: owners, pods") {
		s.Errorf("it says %s", said)
	}
	s.Until("requests pass", func() (string, bool) { return s.try(ownless) })
	s.passes("run bare --image=x --dry-run=server")

	// And without it, while replicas run.
	s.kubectl("scale deployment/" + install.Release + " --replicas=2 --namespace " + install.Namespace)
	s.rolledOut()
	s.registered("owners", "pods")
	s.Until("it refuses again", func() (string, bool) { text, ok := s.try(ownless); return text, !ok })
	s.Must(s.Sallyport.Uninstall(s.Context()))
	s.Until("no replica is left", func() (string, bool) { return fmt.Sprint(s.pods()), len(s.pods()) == 0 })
	s.Until("requests pass", func() (string, bool) { return s.try(ownless) })
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if left := s.kubectl("get " + kind + " -o name"); strings.Contains(left, "sallyport") {
			s.Errorf("left are %s", left)
		}
	}
}
