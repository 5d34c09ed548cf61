package chart

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/audit"
	"sallyport.dev/sallyport/test/support/definitions"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/rbac"
)

// ownlessCount is how many Ingresses there are in team-a without an owner before there is any policy.
const ownlessCount = 25

// TestAuditsOfWhatExists is how people learn what a policy would refuse of the objects that exist. At first there is no audit on a
// schedule.
func TestAuditsOfWhatExists(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	s := newReplicated(t, "audits.reports=true", "audits.interval=0s")
	s.step("a kind that may not be listed", (*replicated).auditsForbidden)
	s.step("what a new policy would refuse", (*replicated).auditsNew)
	s.step("the kinds of reports come later", (*replicated).reportsLater)
	s.step("somebody edits and deletes a report", (*replicated).reportsEdited)
	s.step("objects without a namespace", (*replicated).auditsCluster)
	s.step("a policy changes", (*replicated).auditsChanged)
	s.step("somebody asks for an audit", (*replicated).auditsAsked)
	s.step("on a schedule", (*replicated).auditsScheduled)
	s.step("another leader", (*replicated).auditsTakenOver)
	s.step("audits that nobody wants any more", (*replicated).auditsEnd)
	s.step("roles are exactly what is used for reports", (*replicated).auditRights)
}

// ingress makes an Ingress, which nothing in the control plane cares for, and no shipped policy reads.
func (s *replicated) ingress(namespace, name string, labels map[string]string) {
	s.Helper()
	s.Must(s.Client.Create(s.Context(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "x", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}))
}

// fronts refuses Ingresses without a label.
func fronts(label, more string) string {
	return policyOf("fronts", "  backgroundAudit: Enabled\n"+more+`
  match:
    resources: [{apiGroups: [networking.k8s.io], apiVersions: ["*"], resources: [ingresses], operations: [CREATE, UPDATE]}]
`, denies("OwnerMissing", "label owner is missing", "not input.request.object.metadata.labels."+label), tested(`{"object": {"metadata": {"name": "x"}}}`))
}

func (s *replicated) rego(name string) *v1alpha1.RegoPolicy {
	s.Helper()
	p := &v1alpha1.RegoPolicy{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: name}, p))
	return p
}

// violations waits until status.violations of the present generation has that many, and gives it.
func (s *replicated) violations(policy string, count int32) *v1alpha1.PolicyViolations {
	s.Helper()
	var got *v1alpha1.PolicyViolations
	s.Until(fmt.Sprintf("%s would refuse %d objects", policy, count), func() (string, bool) {
		p := s.rego(policy)
		got = p.Status.Violations
		return fmt.Sprintf("%+v", got), got != nil && got.Revision == p.Status.ActiveRevision && p.Status.ObservedGeneration == p.Generation && got.Count != nil && *got.Count == count
	})
	return got
}

// reported waits until the report of a policy in a namespace, "" for the ClusterReport, has that summary, "" for no report.
func (s *replicated) reported(policy, namespace, summary string) {
	s.Helper()
	line := "get clusterreports.openreports.io sallyport-" + policy
	if namespace != "" {
		line = "get reports.openreports.io sallyport-" + policy + " --namespace " + namespace
	}
	s.Until(fmt.Sprintf("the report of %s in %q says %q", policy, namespace, summary), func() (string, bool) {
		text, ok := s.try(line + " --ignore-not-found -o jsonpath={.summary.pass}/{.summary.fail}/{.summary.warn}")
		return text, ok && text == summary
	})
}

// auditsForbidden: what may not be listed is said, and not taken for nothing.
func (s *replicated) auditsForbidden() {
	s.kubectl("create namespace team-a")
	s.kubectl("create namespace team-b")
	for i := range ownlessCount {
		s.ingress("team-a", fmt.Sprintf("d-%02d", i), nil)
	}
	s.ingress("team-a", "owned", map[string]string{"owner": "a"})
	s.ingress("team-b", "owned", map[string]string{"owner": "a"})
	s.ingress("kube-system", "ownless", nil)
	s.apply(fronts("owner", ""))
	message := s.shows("fronts", v1alpha1.ConditionAudited, metav1.ConditionFalse, v1alpha1.ReasonAuditIncomplete)
	if want := "Sallyport may not list ingresses.networking.k8s.io; to grant access, add {ingresses.networking.k8s.io: true} to the chart value rbac.reads"; message != want {
		s.Errorf("it says %q, want %q", message, want)
	}
	if v := s.rego("fronts").Status.Violations; v.Count != nil || v.Objects != 0 || v.Incomplete != message {
		s.Errorf("it says %+v", v)
	}
	if row := strings.Fields(s.kubectl("get rego fronts --no-headers -o custom-columns=:.status.violations.count")); !slices.Equal(row, []string{"<none>"}) {
		s.Errorf("nothing was looked at, and the count is %q", row)
	}
	table := slices.Collect(strings.Lines(s.plugin("policies")))
	column := slices.Index(strings.Fields(strings.ReplaceAll(table[0], "WOULD DENY", "WOULD_DENY")), "VIOLATIONS")
	for _, row := range table {
		if strings.HasPrefix(row, "fronts ") && strings.Fields(row)[column] != "-" {
			s.Errorf("nothing was looked at, and it says\n%s", row)
		}
	}
	s.shows("fronts", v1alpha1.ConditionReported, metav1.ConditionFalse, v1alpha1.ReasonReportsNotServed)
	s.grant("ingresses.networking.k8s.io")
}

// grant has Sallyport read a kind, and returns when the API server knows.
func (s *replicated) grant(resource string) {
	s.Helper()
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set-json", fmt.Sprintf(`rbac.reads={%q:true}`, resource)))
	s.Until("Sallyport may list "+resource, func() (string, bool) { return s.try("auth can-i list " + resource + " --as=" + s.Sallyport.User()) })
}

func (s *replicated) auditsNew() {
	s.shows("fronts", v1alpha1.ConditionAudited, metav1.ConditionTrue, v1alpha1.ReasonAudited)
	v := s.violations("fronts", ownlessCount)
	if v.Objects != ownlessCount+2 || v.Undecided != 0 || v.Incomplete != "" || len(v.First) != 20 {
		s.Errorf("it found %d of %d objects, %d undecided, first %d, %q", *v.Count, v.Objects, v.Undecided, len(v.First), v.Incomplete)
	}
	want := v1alpha1.PolicyViolation{
		APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "team-a", Name: "d-07", Reason: "OwnerMissing", Message: "label owner is missing",
	}
	if got := v.First[7]; got != want {
		s.Errorf("the eighth is %+v, want %+v", got, want)
	}
}

// reportsLater: nothing has to be restarted when somebody installs the definitions.
func (s *replicated) reportsLater() {
	s.shows("fronts", v1alpha1.ConditionReported, metav1.ConditionFalse, v1alpha1.ReasonReportsNotServed)
	if !strings.Contains(s.Logs.String(), "the cluster does not have the kinds Report and ClusterReport") {
		s.Error("the log does not say that there are no reports")
	}
	before := s.pods()
	s.Must(s.Plane.InstallCRDs(s.Context(), definitions.Reports(s)...))
	if got := s.shows("fronts", v1alpha1.ConditionReported, metav1.ConditionTrue, v1alpha1.ReasonReported); got != "Reports: 1, with 25 results." {
		s.Errorf("it says %q", got)
	}
	s.reported("fronts", "team-a", "1/25/0")
	s.reported("fronts", "team-b", "")
	s.reported("fronts", "kube-system", "")
	s.Log(s.kubectl("get reports.openreports.io --all-namespaces"))
	if now := s.pods(); !slices.Equal(now, before) {
		s.Errorf("replicas were restarted for it: %v, they were %v", now, before)
	}
}

// reportsEdited: the next audit restores a report that another client has edited or deleted.
func (s *replicated) reportsEdited() {
	s.kubectl(`patch report.openreports.io sallyport-fronts --namespace team-a --type merge --patch {"summary":{"fail":0},"results":[]}`)
	s.audits(1, "fronts")
	s.reported("fronts", "team-a", "1/25/0")
	s.kubectl("delete report.openreports.io sallyport-fronts --namespace team-a")
	s.audits(1, "fronts")
	s.reported("fronts", "team-a", "1/25/0")
}

// auditsCluster has what is in no namespace in a ClusterReport.
func (s *replicated) auditsCluster() {
	s.apply(policyOf("labelled", `
  backgroundAudit: Enabled
  mode: Warn
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [namespaces], operations: [CREATE]}]
`, denies("StageMissing", "label stage is missing", `
	startswith(input.request.object.metadata.name, "team-")
	not input.request.object.metadata.labels.stage`), tested(`{"object": {"metadata": {"name": "team-x"}}}`)))
	v := s.violations("labelled", 2)
	if v.First[0].Name != "team-a" || v.First[0].Namespace != "" || v.First[1].Name != "team-b" {
		s.Errorf("it found %+v", v.First)
	}
	s.reported("labelled", "", fmt.Sprintf("%d/0/2", v.Objects-2))
	s.kubectl("label namespace team-a stage=test")
	s.kubectl("patch rego labelled --type=merge -p", `{"spec": {"mode": "Enforce"}}`)
	s.reported("labelled", "", fmt.Sprintf("%d/1/0", v.Objects-1))
	s.kubectl("label namespace team-b stage=test")
	s.kubectl("patch rego labelled --type=merge -p", `{"spec": {"mode": "Warn"}}`)
	s.violations("labelled", 0)
	s.reported("labelled", "", "")
}

// auditsChanged: an edit has the objects looked at again, without waiting for anything.
func (s *replicated) auditsChanged() {
	s.apply(fronts("squad", ""))
	s.violations("fronts", ownlessCount+2)
	s.reported("fronts", "team-a", "0/26/0")
	s.reported("fronts", "team-b", "0/1/0")
	s.apply(fronts("owner", "  mode: Warn"))
	s.violations("fronts", ownlessCount)
	s.reported("fronts", "team-a", "1/0/25")
	s.reported("fronts", "team-b", "")
}

// audits asks for an audit with the plugin, and waits for it.
func (s *replicated) audits(want int, args ...string) string {
	s.Helper()
	command := exec.CommandContext(s.Context(), filepath.Join(s.Dir, "kubectl-sallyport"), append([]string{"audit", "--kubeconfig", s.Plane.Kubeconfig()}, args...)...)
	text, err := command.CombinedOutput()
	if code := command.ProcessState.ExitCode(); code != want {
		s.Errorf("audit %v exits with %d, %v, want %d: %s", args, code, err, want, text)
	}
	return string(text)
}

// auditsAsked: who does not want to wait has it done, with a right to change the policy and no other.
func (s *replicated) auditsAsked() {
	s.ingress("team-b", "ownless", nil) // which it warns of only
	s.audits(1, "fronts")
	s.violations("fronts", ownlessCount+1)
	s.reported("fronts", "team-b", "1/0/1")
	s.Until("the Ingress has an event that says why it was admitted", func() (string, bool) {
		text := s.kubectl("get events --namespace team-b --field-selector involvedObject.name=ownless,reason=OwnerMissing -o custom-columns=:.type,:.message --no-headers")
		return text, strings.Contains(text, "Warning   [fronts/OwnerMissing] label owner is missing (CREATE, admitted because the policy's mode is Warn)")
	})
	s.kubectl("delete ingress ownless --namespace team-b")
	generation := s.rego("fronts").Generation
	if text := s.audits(1, "fronts"); !strings.Contains(text, "fronts: 25 of 27 objects violate the policy\n  Ingress team-a/d-00: OwnerMissing: label owner is missing\n") ||
		!strings.Contains(text, "  and 5 more\n") {
		s.Errorf("it prints %s", text)
	}
	s.audits(0, "labelled")
	s.audits(2, "deletion-protected")
	if now := s.rego("fronts").Generation; now != generation {
		s.Errorf("the policy has generation %d, and had %d", now, generation)
	}
}

// auditsScheduled: what somebody has mended vanishes, and what is new appears.
func (s *replicated) auditsScheduled() {
	s.kubectl("label ingress d-03 --namespace team-a owner=a")
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set", "audits.interval=1s"))
	s.rolledOut()
	v := s.violations("fronts", ownlessCount-1)
	if slices.ContainsFunc(v.First, func(v v1alpha1.PolicyViolation) bool { return v.Name == "d-03" }) {
		s.Error("what was mended is still named")
	}
	s.reported("fronts", "team-a", "2/0/24")
	s.kubectl("delete ingress d-04 --namespace team-a")
	s.violations("fronts", ownlessCount-2)
	s.reported("fronts", "team-a", "2/0/23")
	s.ingress("team-b", "ownless", nil) // which it warns of only
	s.violations("fronts", ownlessCount-1)
	s.reported("fronts", "team-b", "1/0/1")
}

// auditsTakenOver: who leads next finds the same, and has nothing to write.
func (s *replicated) auditsTakenOver() {
	version := func() string {
		return s.kubectl("get report.openreports.io sallyport-fronts --namespace team-a -o jsonpath={.metadata.resourceVersion}")
	}
	before := version()
	holder := func() string {
		return s.kubectl("get lease sallyport-manager -o jsonpath={.spec.holderIdentity} --namespace " + install.Namespace)
	}
	leader, _ := s.leader()
	manager, err := s.Kubelet.Manager(leader)
	s.Must(err)
	led := holder()
	s.Must(manager.Kill())
	// Which may be the same pod, whose process is started again.
	s.Until("another process leads", func() (string, bool) { now := holder(); return now, now != led && now != "" })
	audited := s.rego("fronts").Status.Violations.AuditedAt
	s.Until("it has made its audit", func() (string, bool) {
		now := s.rego("fronts").Status.Violations.AuditedAt
		return now.String(), now.After(audited.Time)
	})
	if now := version(); now != before {
		s.Errorf("the report has the version %s, and had %s: nothing has changed", now, before)
	}
	s.onlyLeaders()
}

// onlyLeaders holds who wrote what audits find, as the audit log of the API server tells, against who led at that moment. Each
// replica is known by its token.
func (s *replicated) onlyLeaders() {
	s.Helper()
	type write struct {
		by   string
		what string
		at   time.Time
	}
	var led, wrote []write
	events, err := audit.Events(s.Audit)
	s.Must(err)
	for i := range events {
		e := &events[i]
		o := e.ObjectRef
		if e.User.Username != s.Sallyport.User() || o == nil || e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" {
			continue
		}
		by := strings.Join(e.User.Extra["authentication.kubernetes.io/credential-id"], "")
		switch {
		case o.Resource == "leases" && o.Name == "sallyport-manager":
			led = append(led, write{by, "the lease", e.StageTimestamp.Time})
		case o.APIGroup == "openreports.io", o.Resource == "regopolicies" && o.Subresource == "status":
			wrote = append(wrote, write{by, o.Resource + " " + o.Name, e.RequestReceivedTimestamp.Time})
		}
	}
	leaders := map[string]int{}
	for _, w := range wrote {
		leader := ""
		for _, l := range led {
			if l.at.Before(w.at) {
				leader = l.by
			}
		}
		if leaders[w.by]++; w.by == "" || w.by != leader {
			s.Errorf("%s was written by %q at %v, and %q led", w.what, w.by, w.at, leader)
		}
	}
	if len(leaders) < 3 { // at first, after the upgrade, and the one that followed
		s.Errorf("there were the leaders %v", slices.Collect(maps.Keys(leaders)))
	}
	s.Logf("%d writes by %d leaders", len(wrote), len(leaders))
}

// auditsEnd: a policy that does not want it has no reports, and neither has one that is gone.
func (s *replicated) auditsEnd() {
	s.kubectl("patch rego fronts --type=merge -p", `{"spec": {"backgroundAudit": "Disabled"}}`)
	s.reported("fronts", "team-a", "")
	s.reported("fronts", "team-b", "")
	s.Until("its status says nothing of it", func() (string, bool) {
		is := s.rego("fronts").Status
		return fmt.Sprintf("%+v", is), is.Violations == nil && meta.FindStatusCondition(is.Conditions, string(v1alpha1.ConditionAudited)) == nil &&
			meta.FindStatusCondition(is.Conditions, string(v1alpha1.ConditionReported)) == nil
	})
	s.kubectl("patch rego fronts --type=merge -p", `{"spec": {"backgroundAudit": "Enabled"}}`)
	s.reported("fronts", "team-a", "2/0/23")
	s.kubectl("delete rego fronts labelled")
	s.Until("no report is left", func() (string, bool) {
		text := s.kubectl("get reports.openreports.io,clusterreports.openreports.io --all-namespaces -o name")
		return text, text == ""
	})
}

// auditRights: roles grant what is done about reports and nothing else, and of what audits list nothing was missing but what was
// to be.
func (s *replicated) auditRights() {
	clientset, err := kubernetes.NewForConfig(s.Plane.Config)
	s.Must(err)
	account := strings.Split(s.Sallyport.User(), ":")
	grants, err := rbac.Granted(s.Context(), clientset, account[2], account[3])
	s.Must(err)
	uses, err := rbac.UsedBy(s.Audit, s.Sallyport.User())
	s.Must(err)
	ofReports := 0
	for _, g := range grants {
		if g.Group == "openreports.io" {
			ofReports++
		}
	}
	if ofReports != 10 {
		s.Errorf("%d rights are granted for reports", ofReports)
	}
	for _, finding := range rbac.Compare(grants, uses, install.Namespace) {
		switch missing := strings.HasPrefix(finding, "missing: "); {
		case missing && strings.HasPrefix(finding, "missing: list ingresses.networking.k8s.io in all namespaces or in none was forbidden"):
		case missing, strings.Contains(finding, "openreports.io"):
			s.Error(finding)
		}
	}
}
