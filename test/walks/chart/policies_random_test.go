package chart

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
)

// subject is something that a policy may name, rightly or not, and an object whose creation is what its author means.
type subject struct {
	group, version, resource string
	object                   string
}

var subjects = []subject{
	{"", "v1", "configmaps", `{apiVersion: v1, kind: ConfigMap}`},
	{"", "v1", "serviceaccounts", `{apiVersion: v1, kind: ServiceAccount}`},
	{"apps", "v1", "deployments", probedDeployment},
	{v1alpha1.GroupName, "v1alpha1", "virtualmachines", `{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachine, spec: {runtime: {kubevirt: {}}}}`},
	// Slips.
	{"apps", "v1", "deployment", probedDeployment},
	{"apps", "v9", "deployments", probedDeployment},
	{"", "v1", "deployments", probedDeployment},
	{"apps/v1", "v1", "deployments", probedDeployment},
	{"coordination.k8s.io", "v1", "leases", `{apiVersion: coordination.k8s.io/v1, kind: Lease}`},
}

const probedDeployment = `{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: x}},
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: x}]}}}}`

// drawn is a policy at random, with the subjects that it names.
type drawn struct {
	*v1alpha1.RegoPolicy
	subjects []subject
}

// mostly draws the first of several more often than not.
func mostly[T any](t *rapid.T, what string, usual T, others ...T) T {
	if rapid.IntRange(0, 2).Draw(t, what+"?") > 0 {
		return usual
	}
	return rapid.SampledFrom(others).Draw(t, what)
}

// policies at random, all of which refuse whatever they are asked about.
var drawnPolicies = rapid.Custom(func(t *rapid.T) drawn {
	d := drawn{RegoPolicy: &v1alpha1.RegoPolicy{}}
	selector := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	match := &v1alpha1.PolicyMatch{
		ExcludeNamespaces: mostly(t, "excluded", nil, []string{"elsewhere"}),
		ExcludeUsers:      mostly(t, "users", nil, []string{"somebody"}),
		NamespaceSelector: mostly(t, "namespaces", nil,
			selector("kubernetes.io/metadata.name", "In", "default"), selector("a b", "DoesNotExist"), selector("team", "Is", "a"), selector("team", "NotIn", "*")),
		ObjectSelector: mostly(t, "objects", nil, selector("owner", "Exists"), selector("owner", "In"), selector("owner", "NotIn", "b c")),
	}
	for i, expression := range mostly(t, "conditions", nil,
		[]string{`request.namespace == "default"`}, []string{"true", `has(object.metadata)`}, []string{"true", `object.metadata.name ==`}, []string{`"text"`}, []string{"params.a"}, []string{" "}) {
		match.Conditions = append(match.Conditions, v1alpha1.MatchCondition{Name: fmt.Sprint("c", i), Expression: expression})
	}
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 2*len(subjects)-1), 1, 2, rapid.ID).Draw(t, "subjects") {
		s := subjects[i%4]
		if i < len(subjects) {
			s = subjects[i]
		}
		version := s.version
		if version != "v9" {
			version = mostly(t, "version", "*", s.version)
		}
		d.subjects = append(d.subjects, s)
		match.Resources = append(match.Resources, v1alpha1.PolicyResources{
			APIGroups: []string{s.group}, APIVersions: []string{version}, Resources: []string{s.resource}, Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate},
		})
	}
	if err := yaml.Unmarshal([]byte(policyOf("drawn", "", denies("Judged", "it is judged", `is_string(input.request.operation)`), tested(`{"operation": "CREATE"}`))), d.RegoPolicy); err != nil {
		t.Fatal(err)
	}
	d.Spec.Match = match
	d.Spec.Reads = mostly(t, "reads", nil,
		[]v1alpha1.PolicyRead{{APIVersion: "sallyport.dev/v1alpha1", Kind: "VirtualMachine"}}, []v1alpha1.PolicyRead{{APIVersion: "batch/v1", Kind: "Job"}})
	d.Spec.Mode = rapid.SampledFrom([]v1alpha1.PolicyMode{v1alpha1.ModeEnforce, v1alpha1.ModeWarn, v1alpha1.ModeAudit}).Draw(t, "mode")
	d.Spec.OnError = rapid.SampledFrom([]v1alpha1.PolicyErrorAction{v1alpha1.OnErrorDeny, v1alpha1.OnErrorAllow}).Draw(t, "onError")
	return d
})

// anyPolicies are Ready if and only if every replica judges what they name, asked by the API server. A policy that is refused is
// stored all the same, as if nobody had answered. With -rapid.checks there are that many.
func (s *replicated) anyPolicies() {
	n := 12
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "rapid.checks" {
			n, _ = strconv.Atoi(f.Value.String())
		}
	})
	as := rest.CopyConfig(s.Plane.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: s.Sallyport.User(), Groups: []string{"system:masters"}}
	unchecked, err := install.Client(as)
	s.Must(err)
	counts := map[string]int{}
	for seed := range n {
		d := drawnPolicies.Example(seed)
		d.Name = fmt.Sprint("drawn-", seed)
		how := "admitted"
		if err := s.Client.Create(s.Context(), d.DeepCopy()); err != nil {
			how = "refused"
			if !strings.Contains(err.Error(), "policies-self") {
				s.Fatalf("seed %d: %v", seed, err)
			}
			s.Must(unchecked.Create(s.Context(), d.DeepCopy()))
		}
		ready, judged := s.settled(d, seed)
		counts[fmt.Sprintf("%s, ready is %v", how, ready)]++
		if ready != judged {
			text, _ := yaml.Marshal(d.Spec.Match)
			s.Errorf("seed %d: %s; Ready is %v, and judged is %v:\n%s%s", seed, how, ready, judged, text,
				s.kubectl("get rego "+d.Name+" -o", `jsonpath={range .status.conditions[*]}{.type} {.status} {.reason} {.message}{"\n"}{end}`))
		}
		s.Must(s.Client.Delete(s.Context(), d.RegoPolicy))
	}
	s.Logf("%d policies: %v", n, counts)
}

// settled gives whether a policy is ready, when that is its last word, and whether it is asked by the API server and decides on
// every replica about all that it names.
func (s *replicated) settled(d drawn, seed int) (ready, judged bool) {
	s.Helper()
	object := &v1alpha1.RegoPolicy{}
	s.Until(d.Name+" has settled", func() (string, bool) {
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: d.Name}, object))
		c, reads := meta.FindStatusCondition(object.Status.Conditions, "Ready"), meta.FindStatusCondition(object.Status.Conditions, "ReadsGranted")
		if c == nil || c.Status == metav1.ConditionUnknown || c.Reason == string(v1alpha1.ReasonWaitingForReplicas) || reads != nil && reads.Status == metav1.ConditionUnknown {
			return fmt.Sprintf("%+v", object.Status.Conditions), false
		}
		ready = c.Status == metav1.ConditionTrue
		return "", true
	})
	judged = true
	for i, subject := range d.subjects {
		judged = judged && s.judged(object, subject, fmt.Sprintf("probe-%d-%d", seed, i))
	}
	return ready, judged
}

// judged tells whether the present revision of a policy is asked about the creation of a subject, by the API server, and would judge
// it in every replica.
func (s *replicated) judged(policy *v1alpha1.RegoPolicy, of subject, name string) bool {
	s.Helper()
	revision := policy.Name + "@" + policy.Status.ActiveRevision
	object := &unstructured.Unstructured{}
	s.Must(yaml.Unmarshal([]byte(of.object), &object.Object))
	object.SetNamespace("default")
	object.SetName(name)
	object.SetLabels(map[string]string{"owner": "a"})
	// What comes of it is in the audit log.
	_ = s.Client.Create(s.Context(), object.DeepCopy(), client.DryRunAll, client.FieldOwner(name))
	log, err := os.Open(s.Audit)
	s.Must(err)
	defer log.Close()
	seen, asked := false, false
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, "fieldManager="+name+"&") || strings.Contains(line, "fieldManager="+name+`"`) {
			seen, asked = true, asked || strings.Contains(line, revision)
		}
		if err != nil {
			break
		}
	}
	if !seen {
		s.Fatalf("the request %s is not in the audit log", name)
	}
	for _, pod := range s.Kubelet.Replicas() {
		review, err := install.Creation(object, "admin")
		s.Must(err)
		answer, err := s.Kubelet.Ask(s.Context(), pod, review)
		s.Must(err)
		asked = asked && policy.Status.ActiveRevision != "" && decided(answer, revision)
	}
	return asked
}

func decided(answer *admissionv1.AdmissionResponse, revision string) bool {
	return strings.Contains(answer.AuditAnnotations["policies"], revision)
}
