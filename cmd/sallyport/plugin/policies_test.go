package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/test/support/step"
)

// policy is one that is at the API server.
func policy(name, pkg, mode string) *v1alpha1.RegoPolicy {
	p := &v1alpha1.RegoPolicy{}
	p.APIVersion, p.Kind, p.Name = v1alpha1.GroupVersion.String(), cli.PolicyKind, name
	p.Spec = v1alpha1.RegoPolicySpec{
		Package: pkg, Mode: v1alpha1.PolicyMode(mode),
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachines"},
			Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate},
		}}},
		Modules: []v1alpha1.PolicyModule{{Name: "m.rego", Source: "package " + pkg + "\n"}},
	}
	return p
}

func TestPoliciesAreListed(t *testing.T) {
	w := newWorld(t)
	w.plugin("policies", 0, "No resources found")
	good, bad := policy("good", "acme.good", "Enforce"), policy("bad", "acme.bad", "Warn")
	good.Status = v1alpha1.RegoPolicyStatus{ObservedGeneration: 1, ActiveRevision: "0123456789abcdef", Violations: &v1alpha1.PolicyViolations{
		AuditedAt: metav1.Now(), Objects: 9, Count: new(int32(3)),
	}, Conditions: []metav1.Condition{
		{Type: "Active", Status: "True", Reason: "CurrentRevision", LastTransitionTime: metav1.Now()},
	}}
	bad.Status = v1alpha1.RegoPolicyStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
		{Type: "Compiled", Status: "False", Reason: "CompileFailed", Message: "m.rego:1:1: rego_parse_error", LastTransitionTime: metav1.Now()},
	}}
	ns := w.namespace()
	one, other := lease(ns, "sallyport-replica-a", "a", 15*time.Second), lease(ns, "sallyport-replica-b", "b", 15*time.Second)
	gone := lease(ns, "sallyport-replica-c", "c", 15*time.Second)
	gone.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
	one.Annotations = map[string]string{replicas.PoliciesAnnotation: "aaaa", replicas.DenialsAnnotation: `{"bad":{"wouldDeny":3}}`}
	other.Annotations = map[string]string{replicas.PoliciesAnnotation: "aaaa", replicas.DenialsAnnotation: `{"bad":{"denied":1,"wouldDeny":20},"no more":{"denied":1}}`}
	w.make(good, bad, one, other, gone)
	const table = "" +
		"NAME  MODE     ACTIVE   REVISION    DENIED  WOULD DENY  VIOLATIONS  EDITED\n" +
		"bad   Warn     unknown  -           1       23          -           -\n" +
		"good  Enforce  current  0123456789  0       0           3           -\n\n" +
		"bad:\n" +
		"  CompileFailed for 0s: m.rego:1:1: rego_parse_error\n"
	r := w.plugin("policies", 0)
	if got := steady(r.stdout); got != table {
		t.Errorf("the user reads\n%s\nand should read\n%s", got, table)
	}
	other.Annotations[replicas.PoliciesAnnotation] = "bbbb"
	w.Must(w.Update(t.Context(), other))
	w.plugin("policies", 0, "The replicas have different policies", "  "+ns+"/sallyport-replica-a  aaaa\n  "+ns+"/sallyport-replica-b  bbbb\n")

	w.plugin("policies rego/bad", 0, "RegoPolicy bad, package acme.bad\n", "CREATE of virtualmachines.sallyport.dev", "m.rego:1:1: rego_parse_error")
	w.plugin("policies nothing", 1, `Error from server (NotFound): regopolicies.sallyport.dev "nothing" not found`)
	if got := w.plugin("policies -o name", 0).stdout; got != "regopolicy.sallyport.dev/bad\nregopolicy.sallyport.dev/good\n" {
		t.Errorf("the names are %q", got)
	}
	list := &v1alpha1.RegoPolicyList{}
	if err := yaml.Unmarshal([]byte(w.plugin("policies -o yaml", 0).stdout), list); err != nil || list.Kind != "RegoPolicyList" || len(list.Items) != 2 {
		t.Errorf("as YAML it is %+v, %v", list, err)
	}
	object := &v1alpha1.RegoPolicy{}
	if err := json.Unmarshal([]byte(w.plugin("policies good -o json", 0).stdout), object); err != nil || object.Kind != cli.PolicyKind || object.Name != "good" {
		t.Errorf("as JSON it is %+v, %v", object, err)
	}
	if got := w.plugin("policies good -o jsonpath={.spec.mode}", 0).stdout; got != "Enforce" {
		t.Errorf("the mode is %q", got)
	}
	w.plugin("policies -o wide", 1, `unable to match a printer suitable for the output format "wide"`)
	nobody := w.userWith("policies-nobody")
	w.pluginAs(nobody, "policies", 1, `Error from server (Forbidden): regopolicies.sallyport.dev is forbidden`)
	reader := w.userWith("policies-reader", "list regopolicies.sallyport.dev")
	r = w.pluginAs(reader, "policies", 0, "bad   Warn", "good  Enforce  current", "Note: cannot tell whether a replica of Sallyport is serving: leases.coordination.k8s.io is forbidden")
	if strings.Contains(r.stderr, "Warning") {
		t.Errorf("who may not read Leases is told %s", r.stderr)
	}
}

// A status that nobody keeps says what was.
func TestPoliciesThatNobodyServes(t *testing.T) {
	w := newWorld(t)
	good := policy("good", "acme.good", "Enforce")
	good.Status = v1alpha1.RegoPolicyStatus{ObservedGeneration: 1, ActiveRevision: "0123456789abcdef", ReportedAt: new(metav1.Now()), Conditions: []metav1.Condition{
		{Type: "Active", Status: "True", Reason: "CurrentRevision", LastTransitionTime: metav1.Now()},
	}}
	ns := w.namespace()
	gone := lease(ns, "sallyport-replica-a", "a", 15*time.Second)
	gone.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
	gone.Annotations = map[string]string{replicas.PoliciesAnnotation: "aaaa"}
	w.make(good, gone)
	reader := w.userWith("unserved-reader", "get,list regopolicies.sallyport.dev")

	const nobody = "no replica of Sallyport is serving: no policy is evaluated at the moment\n"
	if r := w.plugin("policies", 0, "good  Enforce  none    0123456789"); r.stderr != "Warning: "+nobody {
		t.Errorf("without a replica the user reads %s", r.stderr)
	}
	w.plugin("policies good", 0, "Active:    none: "+nobody, "Warning: "+nobody)
	if r := w.plugin("policies -o name", 0); r.stderr != "" {
		t.Errorf("programs read %s", r.stderr)
	}
	machine := vm(ns, "web-1")
	w.make(machine)
	w.plugin("why svm web-1 -n "+ns, 0, "Warning: "+nobody)
	w.plugin("explain svm web-1 -n "+ns, 0, "Warning: "+nobody)
	w.plugin("start web-1 --wait --timeout 1s -n "+ns, 1, "Warning: "+nobody)

	w.Must(w.DeleteAllOf(t.Context(), &v1alpha1.VirtualMachineOperation{}, client.InNamespace(ns)))
	starting := lease(ns, "sallyport-replica-b", "b", 15*time.Second)
	w.make(starting)
	w.plugin("policies", 0, "Warning: no replica of Sallyport is serving, 1 is starting: no policy is evaluated at the moment")
	starting.Annotations = map[string]string{replicas.PoliciesAnnotation: "aaaa"}
	w.Must(w.Update(t.Context(), starting))
	if r := w.plugin("policies", 0, "good  Enforce  current"); r.stderr != "" {
		t.Errorf("with a replica the user reads %s", r.stderr)
	}

	// Who may not read Leases has the age of the status.
	w.pluginAs(reader, "policies", 0, "good  Enforce  current", "Note: cannot tell")
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(good), good))
	good.Status.ReportedAt = new(metav1.NewTime(time.Now().Add(-4 * 24 * time.Hour)))
	w.Must(w.Status().Update(t.Context(), good))
	w.pluginAs(reader, "policies", 0, "good  Enforce  none", "Warning: Sallyport last confirmed the status of its policies 4d ago; probably no replica is serving")
	if table, _, _ := w.plane.Kubectl(t.Context(), "get", "rego", "good"); !strings.Contains(table, "REPORTED") || !strings.Contains(table, "4d") {
		t.Errorf("kubectl get shows\n%s", table)
	}

	// After an uninstall the objects themselves say it.
	w.Must(w.Delete(t.Context(), starting))
	w.plugin("release --all", 0, "Marked as not evaluated: all RegoPolicies\n")
	if table, _, _ := w.plane.Kubectl(t.Context(), "get", "rego", "good"); !strings.Contains(table, "NobodyDecides") {
		t.Errorf("after the release kubectl get shows\n%s", table)
	}
	w.pluginAs(reader, "policies", 0, "good  Enforce  none", "Warning: the last replica of Sallyport has shut down: no policy is evaluated at the moment")
}

// steady leaves out how long something is so, for a machine that is slow.
func steady(text string) string {
	for _, word := range strings.Fields(text) {
		age, last := strings.CutSuffix(word, ":")
		if d, err := time.ParseDuration(age); last && err == nil && d < time.Hour {
			text = strings.Replace(text, "for "+word, "for 0s:", 1)
		}
	}
	return text
}

// release makes the ConfigMap of a release, and ships what is in it.
func (w *world) release(version string, policies ...*v1alpha1.RegoPolicy) *corev1.ConfigMap {
	w.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace(), Name: "gate-policies",
			Labels: map[string]string{cli.NameLabel: cli.Product}, Annotations: map[string]string{shipping.ReleaseAnnotation: version},
		},
		Data: map[string]string{},
	}
	for _, p := range policies {
		text, err := yaml.Marshal(p)
		w.Must(err)
		cm.Data[p.Name+".yaml"] = string(text)
	}
	w.make(cm)
	shipped, err := shipping.Read(cm, nil)
	w.Must(err)
	for i := range shipped {
		w.Must(shipping.Reset(w.Context(), w.Client, &shipped[i]))
		w.Cleanup(func() { w.forget(&shipped[i]) })
	}
	return cm
}

func (w *world) edit(name, patch string) {
	w.Helper()
	if _, errs, code := w.plane.Kubectl(w.Context(), "patch", "rego", name, "--type=merge", "-p", patch); code != 0 {
		w.Fatal(errs)
	}
}

func (w *world) spec(name string) *v1alpha1.RegoPolicySpec {
	w.Helper()
	p := &v1alpha1.RegoPolicy{}
	w.Must(w.Get(w.Context(), client.ObjectKey{Name: name}, p))
	return &p.Spec
}

func TestPoliciesReset(t *testing.T) {
	w := newWorld(t)
	w.plugin("policies reset --all", 1, "no ConfigMap with shipped policies found", "check whether Sallyport is installed")
	w.release("1.2.3", policy("alpha", "acme.alpha", "Enforce"), policy("beta", "acme.beta", "Enforce"))
	own := policy("own", "acme.own", "Audit")
	own.TypeMeta = metav1.TypeMeta{}
	w.make(own)

	w.plugin("policies reset --all", 0, "Nothing to reset: all 2 policies are unchanged from release 1.2.3\n")
	w.plugin("policies reset alpha", 0, "regopolicy.sallyport.dev/alpha unchanged: no field was edited\n")
	w.edit("alpha", `{"spec": {"mode": "Warn", "match": {"excludeUsers": ["bob"]}}}`)
	const edits = "  spec.match.excludeUsers\n  spec.mode\n"
	w.plugin("policies reset --all --dry-run=client", 0, "regopolicy.sallyport.dev/alpha reset (dry run)\n"+edits)
	w.plugin("policies reset alpha --dry-run=server", 0, "regopolicy.sallyport.dev/alpha reset (server dry run)\n"+edits)
	if got := w.spec("alpha"); got.Mode != v1alpha1.ModeWarn || len(got.Match.ExcludeUsers) != 1 {
		t.Errorf("a dry run has changed something: %+v", got)
	}
	reader := w.userWith("resetter", "get,list regopolicies.sallyport.dev", "list configmaps")
	editor := w.userWith("reset-editor", "get,list,patch regopolicies.sallyport.dev")
	w.pluginAs(editor, "policies reset alpha", 1, `cannot list resource "configmaps"`,
		"Without this right, Sallyport resets a policy on request: kubectl annotate --overwrite regopolicies.sallyport.dev NAME sallyport.dev/release=reset")
	w.pluginAs(reader, "policies reset alpha", 1, "resetting alpha: ", `cannot patch resource "regopolicies" in API group "sallyport.dev"`)
	if r := w.plugin("policies reset rego/alpha beta", 0); r.stdout != "regopolicy.sallyport.dev/alpha reset\n"+edits+
		"regopolicy.sallyport.dev/beta unchanged: no field was edited\n" {
		t.Errorf("the user reads %s", r.stdout)
	}
	if got := w.spec("alpha"); got.Mode != v1alpha1.ModeEnforce || got.Match.ExcludeUsers != nil {
		t.Errorf("it was not reset: %+v", got)
	}

	w.Must(w.Delete(t.Context(), &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "beta"}}))
	w.plugin("policies reset --all", 0, "regopolicy.sallyport.dev/beta created\n")
	if got := w.spec("beta").Package; got != "acme.beta" {
		t.Errorf("made was %s", got)
	}

	w.edit("beta", `{"spec": {"onError": "Allow"}}`)
	w.plugin("policies reset own nothing beta", 1,
		"error: RegoPolicy own is not a shipped policy; release 1.2.3 ships the policies alpha, beta\n",
		"error: RegoPolicy nothing does not exist; ", "regopolicy.sallyport.dev/beta reset\n  spec.onError\n")
	w.completes("policies reset alpha", "beta")
	w.completes("policies", "alpha beta own reset")
	w.completes("policies alpha", "")
}

// One broken key of the ConfigMap does not keep the others from being reset.
func TestPoliciesResetWithABrokenConfigMap(t *testing.T) {
	w := newWorld(t)
	cm := w.release("1.2.3", policy("alpha", "acme.alpha", "Enforce"))
	cm.Data["beta.yaml"] = "kind: Nonsense"
	w.Must(w.Update(t.Context(), cm))
	w.edit("alpha", `{"spec": {"mode": "Warn"}}`)
	w.plugin("policies reset --all", 1, cm.Namespace+"/gate-policies, key beta.yaml", "regopolicy.sallyport.dev/alpha reset\n")
	other := cm.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace(), Name: "x", Labels: cm.Labels, Annotations: cm.Annotations}
	w.make(other)
	w.plugin("policies reset alpha", 1, "found several ConfigMaps with shipped policies: ", "select one with -n NAMESPACE")
	w.plugin("policies reset alpha -n "+cm.Namespace, 1, "regopolicy.sallyport.dev/alpha unchanged")
}

// completes wants those words to be offered after a line.
func (w *world) completes(line, want string) {
	w.Helper()
	streams, _, out, errs := genericiooptions.NewTestIOStreams()
	args := append([]string{"__complete", "--kubeconfig=" + w.plane.Kubeconfig()}, strings.Fields(line)...)
	code := run(w.Context(), cli.New(streams), append(args, ""))
	offered, _, _ := strings.Cut(out.String(), ":")
	var words []string
	for text := range strings.Lines(offered) {
		word, _, _ := strings.Cut(strings.TrimSpace(text), "\t")
		words = append(words, word)
	}
	slices.Sort(words)
	if got := strings.Join(words, " "); code != 0 || got != want {
		w.Errorf("after %q it offers %q, want %q; exit %d, %s", line, got, want, code, errs)
	}
}

// Who looks right after a reset reads what is, and not what was.
func TestPoliciesResetIsSeen(t *testing.T) {
	w := newWorld(t)
	w.release("1.2.3", policy("alpha", "acme.alpha", "Enforce"), policy("beta", "acme.beta", "Enforce"))
	const unseen = " does not reflect the reset yet; if this persists, check that Sallyport is running: kubectl sallyport policies\n"
	for _, name := range []string{"alpha", "beta"} {
		w.edit(name, `{"spec": {"mode": "Warn"}}`)
		w.shows(name, "spec.mode")
	}
	if r := w.plugin("policies reset --all --dry-run=server", 0); r.stderr != "" {
		t.Errorf("after a dry run the user reads %s", r.stderr)
	}
	if r := w.plugin("policies reset --all", 0); r.stderr != "The status of alpha, beta"+unseen {
		t.Errorf("without a manager the user reads %s", r.stderr)
	}
	w.edit("alpha", `{"spec": {"mode": "Audit"}}`)
	reset := func() bool { return w.spec("alpha").Mode == v1alpha1.ModeEnforce }
	var manager sync.WaitGroup
	manager.Go(func() {
		_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) { return reset(), nil })
		w.shows("alpha", "spec.mode") // it looked a moment too early
		w.shows("alpha")
	})
	w.patience = patience
	r := w.plugin("policies reset alpha", 0)
	if now := w.plugin("policies alpha", 0).stdout; r.stderr != "" || strings.Contains(now, "Problems:") || strings.Contains(now, "Edited:") {
		t.Errorf("the user reads %s and then\n%s", r.stderr, now)
	}
	manager.Wait()
}

// shows writes the status of a policy as the manager would, with what was edited, if anything.
func (w *world) shows(name string, edited ...string) {
	w.Helper()
	p := &v1alpha1.RegoPolicy{}
	w.Must(w.Get(w.Context(), client.ObjectKey{Name: name}, p))
	c := v1alpha1.ConditionEdited.Condition(metav1.ConditionFalse, v1alpha1.ReasonAsShipped, p.Generation, "")
	if p.Status.EditedFields = edited; len(edited) > 0 {
		c = v1alpha1.ConditionEdited.Condition(metav1.ConditionTrue, v1alpha1.ReasonFieldsEdited, p.Generation, "Edited fields: ...")
	}
	c.LastTransitionTime = metav1.Now()
	meta.SetStatusCondition(&p.Status.Conditions, c)
	p.Status.ObservedGeneration = p.Generation
	w.Must(w.Status().Update(w.Context(), p))
}

// What Helm has installed is what the commands look for.
func TestTheChartIsFound(t *testing.T) {
	tm := newTeam(t)
	tm.must("", "patch", "rego", "operations-applicability", "--type=merge", "-p", `{"spec": {"timeoutMilliseconds": 900}}`)
	for _, step := range []struct{ line, text string }{
		{"policies reset operations-applicability", "regopolicy.sallyport.dev/operations-applicability reset\n  spec.timeoutMilliseconds\n"},
		{"policies reset --all", "Nothing to reset"},
		{"policies operations-applicability", "2000 ms"},
		{"release --all --force --dry-run=client", "scale Deployment sallyport in namespace sallyport-system from "},
	} {
		args := append([]string{"sallyport"}, strings.Fields(step.line)...)
		out, errs, code := started.plane.KubectlAs(t.Context(), started.plane.Kubeconfig(), nil, args...)
		tm.reads(step.line, result{out, errs, code}, 0, step.text)
	}
}

// audits plays the manager: it takes the next audit of policy on that is asked for, and finds that much.
func (w *world) audits(found v1alpha1.PolicyViolations) {
	w.Helper()
	done, before := make(chan struct{}), &v1alpha1.RegoPolicy{}
	w.Must(w.Get(w.Context(), client.ObjectKey{Name: "on"}, before))
	go func() {
		defer close(done)
		_ = step.Await(w.Context(), func(ctx context.Context) (bool, error) {
			p := &v1alpha1.RegoPolicy{}
			if err := w.Get(ctx, client.ObjectKey{Name: "on"}, p); err != nil {
				return false, err
			}
			asked := p.Annotations[v1alpha1.AnnotationAudit]
			if asked == before.Annotations[v1alpha1.AnnotationAudit] {
				return false, nil
			}
			found.AuditedAt, found.Requested = metav1.Now(), asked
			p.Status.Violations = &found
			return w.Status().Update(ctx, p) == nil, nil
		})
	}()
	w.Cleanup(func() { <-done })
}

func TestAuditNow(t *testing.T) {
	w := newWorld(t)
	off, none, on := policy("off", "acme.off", "Enforce"), policy("none", "acme.none", "Enforce"), policy("on", "acme.on", "Warn")
	none.Spec.BackgroundAudit, on.Spec.BackgroundAudit = v1alpha1.AuditEnabled, v1alpha1.AuditEnabled
	on.Status.ActiveRevision = "0123456789abcdef"
	w.plugin("audit", 2, "no RegoPolicy to audit: no active RegoPolicy has spec.backgroundAudit: Enabled")
	w.make(off, none, on)
	w.plugin("audit off", 2, `RegoPolicy off is not audited because spec.backgroundAudit is Disabled; to enable it: kubectl patch rego off`)
	w.plugin("audit none", 2, "RegoPolicy none cannot be audited because it has no active revision")
	w.plugin("audit nowhere", 2, "not found")
	w.plugin("audit on off", 2, "specify at most one POLICY")
	w.plugin("audit on --wait=false", 0, "audit of on requested")
	w.plugin("audit on --timeout=1ms", 2, "waiting for the audit of on: no result after 1ms")
	w.audits(v1alpha1.PolicyViolations{Objects: 3, Count: new(int32(0))})
	w.plugin("audit on", 0, "on: audit requested", "on: 0 of 3 objects violate the policy")
	w.audits(v1alpha1.PolicyViolations{Objects: 3, Count: new(int32(2)), First: []v1alpha1.PolicyViolation{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "x", Reason: "OwnerMissing", Message: "label owner is missing"},
	}})
	w.plugin("audit", 1, "on: 2 of 3 objects violate the policy\n  ConfigMap a/x: OwnerMissing: label owner is missing\n  and 1 more\n")
	w.audits(v1alpha1.PolicyViolations{Objects: 3, Incomplete: "listing x: no"})
	w.plugin("audit rego/on", 2, "on: at least 0 of 3 audited objects violate the policy; incomplete: listing x: no")
	w.audits(v1alpha1.PolicyViolations{Objects: 3, AtLeast: 1, Incomplete: "listing x: no"})
	w.plugin("audit on -o jsonpath={.status.violations.atLeast}", 1, "1")
}

// policies lists as kubectl get does.
func TestPoliciesAsKubectlGet(t *testing.T) {
	w := newWorld(t)
	alpha := policy("alpha", "acme.alpha", "Enforce")
	alpha.TypeMeta, alpha.Labels = metav1.TypeMeta{}, map[string]string{"team": "a"}
	beta := policy("beta", "acme.beta", "Warn")
	beta.TypeMeta = metav1.TypeMeta{}
	w.make(alpha, beta)
	if got := w.plugin("policies -l team=a", 0).stdout; !strings.Contains(got, "\nalpha  Enforce") || strings.Contains(got, "beta") {
		t.Errorf("the rows are %q", got)
	}
	if got := w.plugin("policies -l team!=a -o name", 0).stdout; got != "regopolicy.sallyport.dev/beta\n" {
		t.Errorf("the name is %q", got)
	}
	w.plugin("policies alpha -l team=a", 1, "name cannot be provided when a selector is specified")
	w.plugin("policies -l team=(", 1, `--selector "team=(": `)
}
