package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// shows wants lines in what a user reads.
func shows(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
}

// note is an event as Sallyport's recorder makes it.
func note(about client.Object, apiVersion, kind, reason, text string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.GetNamespace(), GenerateName: "note-"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(),
		},
		Reason: reason, Message: text, Type: corev1.EventTypeWarning, Action: "Delete", EventTime: metav1.NewMicroTime(at),
		ReportingController: "sallyport", ReportingInstance: "sallyport-1",
	}
}

func TestWhyAWorkload(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	d := deployment(ns, 3)
	d.Labels[v1alpha1.LabelDeletionProtection] = "enabled"
	d.Annotations[v1alpha1.AnnotationMinReplicas], d.Annotations[v1alpha1.AnnotationScaleDown] = "2", "Deny"
	w.make(d)
	pods := &corev1.PodList{}
	w.until("there are its Pods", func(ctx context.Context) (bool, error) {
		err := w.List(ctx, pods, client.InNamespace(ns))
		return len(pods.Items) == 3, err
	})
	other := note(d, "apps/v1", "Deployment", "ScalingReplicaSet", "not ours", time.Now())
	other.ReportingController = "deployment-controller"
	w.make(other, note(d, "apps/v1", "Deployment", "Earlier", "long ago", time.Now().Add(-72*time.Hour)),
		note(d, "apps/v1", "Deployment", "Protected", "[guard/Protected] it is\nprotected", time.Now().Add(-3*time.Hour)))
	past := (&v1alpha1.Override{Policy: "guard", UID: d.UID, By: "alice", Until: time.Now().Add(30*time.Minute + 30*time.Second), Reason: "ticket 42"}).String()
	w.Must(w.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.AnnotationOverride, past))))

	for _, line := range []string{"deploy gate-sallyport", "deployments.apps/gate-sallyport", "deployment.v1.apps gate-sallyport"} {
		r := w.plugin("why "+line+" -n "+ns, 0)
		shows(t, r.stdout, "Deployment gate-sallyport in namespace "+ns, "Replicas: +3",
			"Guards: +label sallyport.dev/deletion-protection=enabled", " +annotation sallyport.dev/scale-down=Deny", " +annotation sallyport.dev/min-replicas=2",
			"Override: +policy guard, by alice, for another 30m: ticket 42",
			`Events: +Protected 3h ago: \[guard/Protected\] it is protected`, " +Earlier 3d ago: long ago",
			"Allowed now:  delete, scale --replicas=2, scale --replicas=0")
		if strings.Contains(r.stdout, "not ours") || strings.Contains(r.stdout, "Not known") || r.stderr != "" {
			t.Errorf("the user reads too much: %s%s", r.stdout, r.stderr)
		}
	}
	pod := pods.Items[0]
	shows(t, w.plugin("why po/"+pod.Name+" -n "+ns, 0).stdout,
		"Owner: +ReplicaSet "+pod.OwnerReferences[0].Name+" of Deployment gate-sallyport",
		" +its controller can recreate or rescale the object; see: kubectl sallyport why deployments.apps/gate-sallyport -n "+ns, "Allowed now:  delete")
	if got := w.replicasOf(d); got != 3 {
		t.Errorf("the question left %d replicas", got)
	}
	var known struct {
		Object   metav1.PartialObjectMetadata
		Replicas *int64
		Override *v1alpha1.Override
		Events   []any
		Requests []cli.Answer
	}
	w.Must(json.Unmarshal([]byte(w.plugin("why deploy/gate-sallyport -o json -n "+ns, 0).stdout), &known))
	requests := []cli.Verdict{known.Requests[0].Verdict, known.Requests[1].Verdict, known.Requests[2].Verdict}
	if known.Object.Name != d.Name || *known.Replicas != 3 || *known.Requests[2].Replicas != 0 || known.Override.Policy != "guard" ||
		len(known.Events) != 2 || !slices.Equal(requests, []cli.Verdict{cli.Accepted, cli.Accepted, cli.Accepted}) {
		t.Errorf("as JSON it is %+v", known)
	}
	for replicas, want := range map[int]string{1: "delete, scale --replicas=0", 0: "delete"} {
		w.Must(w.Patch(t.Context(), d, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas))))
		shows(t, w.plugin("why deploy gate-sallyport -n "+ns, 0).stdout, "Allowed now:  "+want)
	}
}

// What holds a deletion, and what is of no effect.
func TestWhyATerminatingObject(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	gone := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "gone", UID: "1", Controller: new(true)}
	unserved := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "x", UID: "2"}
	owner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner", Finalizers: []string{"example.com/owner"}}}
	w.make(owner)
	mine := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "held", Finalizers: []string{"example.com/a", "example.com/b"}, OwnerReferences: []metav1.OwnerReference{mine},
		Labels:      map[string]string{v1alpha1.LabelDeletionProtection: "Enabled"},
		Annotations: map[string]string{v1alpha1.AnnotationOverride: (&v1alpha1.Override{Policy: "guard", UID: "another", By: "alice", Until: time.Now().Add(time.Hour), Reason: "why"}).String()},
	}}
	w.make(held)
	r := w.plugin("why cm held -n "+ns, 0)
	shows(t, r.stdout, "Owner: +Secret owner .the object is deleted with its owner.", "Guards: +label .*=Enabled .no effect: the value must be enabled.", "Allowed now:  delete")
	if strings.Contains(r.stdout, "Override") {
		t.Errorf("an override for something else is told: %s", r.stdout)
	}
	w.Must(w.Delete(t.Context(), held))
	w.Must(w.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata": {"ownerReferences": `+inJSON(t, []metav1.OwnerReference{gone, unserved, mine})+`}}`))))
	w.Must(w.Delete(t.Context(), owner))
	shows(t, w.plugin("why configmap/held -n "+ns, 0).stdout, `Owner: +Secret gone \(does not exist\)`,
		` +Gadget x \(kind does not exist in this cluster\)`, ` +Secret owner \(being deleted\)`,
		"Deletion: +requested .* ago, waiting for finalizers example.com/a, example.com/b")

	spaces := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "going-"}}
	w.make(spaces)
	last := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: spaces.Name, Name: "last", Finalizers: []string{"example.com/last"}}}
	w.make(last)
	w.Must(w.Delete(t.Context(), spaces))
	w.until("the namespace says what holds it", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(spaces), spaces)
		return slices.ContainsFunc(spaces.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue
		}), err
	})
	r = w.plugin("why ns "+spaces.Name, 0)
	shows(t, r.stdout, "Namespace "+spaces.Name, "Deletion: +requested .* ago, waiting for finalizers kubernetes",
		" +NamespaceFinalizersRemaining True for .*, SomeFinalizersRemain: .*example.com/last in 1 resource instances")
	if strings.Contains(r.stdout, "False for") {
		t.Errorf("the user reads what is fine: %s", r.stdout)
	}
	w.forget(last)
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the user may not do was not judged by anybody; it differs from what somebody refuses in the same words.
func TestWhyWithoutRights(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	d := deployment(ns, 2)
	w.make(d)
	some := w.userWith("why-some", "get deployments.apps", "get,patch deployments.apps/scale", "delete statefulsets.apps")
	shows(t, w.pluginAs(some, "why deploy gate-sallyport -n "+ns, 0).stdout, `Unknown: +events: events is forbidden: .*`,
		"Allowed now: +scale --replicas=1, scale --replicas=0", "Forbidden now: +delete:",
		` +Forbidden: deployments.apps "gate-sallyport" is forbidden: User "why-some" cannot delete resource .*`)
	few := w.userWith("why-few", "get deployments.apps", "get customresourcedefinitions.apiextensions.k8s.io")
	shows(t, w.pluginAs(few, "why deploy gate-sallyport -n "+ns, 0).stdout, `Unknown: +events: .*`, ` +replicas: .* cannot get resource "deployments/scale" .*`,
		"Forbidden now:  delete:")
	shows(t, w.pluginAs(few, "why crd virtualmachines.sallyport.dev", 0).stdout, "CustomResourceDefinition virtualmachines.sallyport.dev", "Forbidden now:  delete:")
	shows(t, w.plugin("why crd/virtualmachines.sallyport.dev", 0).stdout, "Allowed now:  delete")
	w.pluginAs(few, "why secret x -n "+ns, 1, `Error from server (Forbidden): secrets "x" is forbidden`)

	names := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	w.make(&admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: names("keeps-" + ns),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!request.dryRun || request.namespace != '" + ns + "'", Message: "not here", Reason: new(metav1.StatusReasonForbidden),
			}},
		},
	}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: names("keeps-" + ns),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "keeps-" + ns, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	w.until("somebody refuses", func(ctx context.Context) (bool, error) {
		gone := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: d.Name}}
		return w.Delete(ctx, gone, client.DryRunAll) != nil, nil
	})
	shows(t, w.plugin("why deploy gate-sallyport -n "+ns, 0).stdout, "Allowed now:  scale --replicas=1, scale --replicas=0", "Denied now:   delete:",
		" +Forbidden: deployments.apps .* is forbidden: ValidatingAdmissionPolicy .* denied request: not here")
}

// registered has the API server ask a policy about other kinds, as the leader would.
func (tm *team) registered(policy, rules string) {
	tm.Helper()
	trusted := tm.get("validatingwebhookconfiguration/sallyport", ".webhooks[0].clientConfig.caBundle")
	port := tm.get("validatingwebhookconfiguration/sallyport", ".webhooks[0].clientConfig.service.port")
	tm.must("", "patch", "validatingwebhookconfiguration", "sallyport-policies", "--type=merge", "-p", fmt.Sprintf(`{"webhooks": [{
		"name": "%[1]s.policies.sallyport.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun", "failurePolicy": "Fail", "rules": %[2]s,
		"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %[3]q}},
		"clientConfig": {"caBundle": %[4]q, "service": {"namespace": "sallyport-system", "name": "sallyport-webhook", "port": %[5]s, "path": "/validate/policies/%[1]s"}}}]}`,
		policy, rules, tm.namespace, trusted, port))
	tm.atTheEnd("patch", "validatingwebhookconfiguration", "sallyport-policies", "--type=merge", "-p", `{"webhooks": null}`)
}

// A policy's refusal is told whole, with the way out.
func TestWhyAnObjectThatAPolicyKeeps(t *testing.T) {
	tm := newTeam(t)
	rules := `[{"apiGroups": ["apps", ""], "apiVersions": ["v1"], "resources": ["deployments", "deployments/scale", "configmaps"], "operations": ["DELETE", "UPDATE"]}]`
	policy := tm.ruleOn(rules, "keeps", "Enforce", "Kept", "Kept, in {input.request.namespace}; take the label off: kubectl label",
		`not input.request.object.spec.replicas == 2; input.request.resource.resource != "configmaps"`)
	tm.must(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3,
		"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`, "create", "-f", "-")
	tm.must("", "create", "configmap", "free")
	tm.registered(policy, rules)
	var r result
	tm.Eventually("the policy is asked", func() bool {
		r = tm.kubectl("", "sallyport", "why", "deploy/web")
		return strings.Contains(r.stdout, "Denied now:   delete, scale")
	})
	tm.reads("why deploy/web", r, 0)
	shows(t, r.stdout, "Allowed now:  scale --replicas=2", "Denied now:   delete, scale --replicas=0:",
		` {14}\[`+policy+`/Kept\] Kept, in team-\d+; take the label off: kubectl label`)
	shows(t, tm.sallyport("why cm free", 0).stdout, "ConfigMap free in namespace "+tm.namespace, "Allowed now:  delete")
	if got := tm.get("deploy/web", ".spec.replicas"); got != "3" {
		t.Errorf("the question left %s replicas", got)
	}
	tm.sallyport("why rego/"+policy, 0, "Policy status:", "kubectl sallyport policies "+policy, "Allowed now:  delete")
}
