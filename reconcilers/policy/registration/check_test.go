package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What the API server would not ask about is told with the field, and the API server agrees.
func TestWhatCannotBeRegistered(t *testing.T) {
	f := newFixture(t)
	chart := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	chartMutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	f.Must(f.api.Get(t.Context(), client.ObjectKey{Name: f.name}, chart))
	f.Must(f.api.Get(t.Context(), client.ObjectKey{Name: f.name}, chartMutating))
	condition := func(expressions ...string) func(*v1alpha1.PolicyMatch) {
		return func(m *v1alpha1.PolicyMatch) {
			for i, e := range expressions {
				m.Conditions = append(m.Conditions, v1alpha1.MatchCondition{Name: fmt.Sprint("c", i), Expression: e})
			}
		}
	}
	resources := func(groups, versions, resources string) func(*v1alpha1.PolicyMatch) {
		return func(m *v1alpha1.PolicyMatch) {
			m.Resources[0].APIGroups, m.Resources[0].APIVersions, m.Resources[0].Resources = strings.Split(groups, ","), strings.Split(versions, ","), strings.Split(resources, ",")
		}
	}
	marked := func(m *v1alpha1.PolicyMatch) {
		m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.GroupName + "/mark": "true"}}
	}
	connects := func(m *v1alpha1.PolicyMatch) { m.Resources[0].Operations = []v1alpha1.MatchOperation{"CONNECT"} }
	for name, tc := range map[string]struct {
		changes []func(*v1alpha1.PolicyMatch)
		want    string // nothing: it can be registered
		// stricter tells that the API server would take it, and that it would mean nothing there.
		stricter bool
		// onlyPatches tells that it has no rules but patch rules.
		onlyPatches bool
	}{
		"as it is":                {},
		"conditions that compile": {changes: []func(*v1alpha1.PolicyMatch){condition(`object.metadata.name == "a"`, `!authorizer.group("").resource("pods").check("get").allowed()`)}},
		"a condition that does not compile": {
			changes: []func(*v1alpha1.PolicyMatch){condition("true", "object.metadata.name ==")}, want: "spec.match.conditions[1].expression: Invalid value: compilation failed: ",
		},
		"a condition that is no condition": {
			changes: []func(*v1alpha1.PolicyMatch){condition(`"yes"`)}, want: "spec.match.conditions[0].expression: Invalid value: must evaluate to bool but got string",
		},
		"a condition with an unknown variable": {
			changes: []func(*v1alpha1.PolicyMatch){condition(`params.x == 1`)}, want: "undeclared reference to 'params'",
		},
		"a condition of blanks": {changes: []func(*v1alpha1.PolicyMatch){condition("  ")}, want: "spec.match.conditions[0].expression: Required value"},
		"as many conditions as there can be": {changes: []func(*v1alpha1.PolicyMatch){func(m *v1alpha1.PolicyMatch) {
			for i := range 32 {
				condition(fmt.Sprintf("%d == %[1]d", i))(m)
				m.Conditions[i].Name = fmt.Sprint("c", i)
			}
			m.ExcludeUsers, m.ExcludeGroups = []string{"a"}, []string{"b"}
		}}},
		"all versions and others": {changes: []func(*v1alpha1.PolicyMatch){resources("apps", "v1,*", "deployments")}},
		"one and all of them":     {changes: []func(*v1alpha1.PolicyMatch){resources("apps", "*", "deployments,*"), marked}},
		"what is never asked about": {
			changes: []func(*v1alpha1.PolicyMatch){resources("coordination.k8s.io", "*", "leases")}, want: "spec.match.resources[0].resources[0], leases.coordination.k8s.io: nodes and leaders renew Leases", stricter: true,
		},
		"a wildcard on what is not marked": {
			changes: []func(*v1alpha1.PolicyMatch){resources("apps", "*", "*")}, want: "spec.match.resources[0].resources[0], *.apps: a wildcard would match", stricter: true,
		},
		"exec as a creation": {
			changes: []func(*v1alpha1.PolicyMatch){resources("", "v1", "pods/exec")}, want: "spec.match.resources[0].resources[0], pods/exec: it has only the operation CONNECT", stricter: true,
		},
		"exec": {changes: []func(*v1alpha1.PolicyMatch){resources("", "v1", "pods/exec"), connects}},
		"exec by labels": {
			changes: []func(*v1alpha1.PolicyMatch){resources("", "v1", "pods/exec"), connects, marked}, want: "spec.match.resources[0].resources[0], pods/exec: a CONNECT request has no labels", stricter: true,
		},
		"exec of a policy that only patches": {
			changes: []func(*v1alpha1.PolicyMatch){resources("", "v1", "pods/exec"), connects}, onlyPatches: true,
			want: "spec.match.resources[0].operations: no rule of the policy is asked about CONNECT: it has only patch rules", stricter: true,
		},
		"deletions of a policy that only patches": {
			changes: []func(*v1alpha1.PolicyMatch){func(m *v1alpha1.PolicyMatch) { m.Resources[0].Operations = []v1alpha1.MatchOperation{"DELETE"} }}, onlyPatches: true,
			want: "spec.match.resources[0].operations: no rule of the policy is asked about DELETE: it has only patch rules", stricter: true,
		},
		"Sallyport's own": {changes: []func(*v1alpha1.PolicyMatch){resources(v1alpha1.GroupName, "*", "virtualmachines")}},
		"RegoPolicies, about which the chart's webhook asks": {changes: []func(*v1alpha1.PolicyMatch){resources(v1alpha1.GroupName, "*", "regopolicies")}},
		"a condition of one on Sallyport's own": {
			changes: []func(*v1alpha1.PolicyMatch){resources(v1alpha1.GroupName, "*", "virtualmachines"), condition("object.")}, want: "spec.match.conditions[0].expression", stricter: true,
		},
		"Namespaces, by their labels": {changes: []func(*v1alpha1.PolicyMatch){resources("", "v1", "namespaces,pods"), func(m *v1alpha1.PolicyMatch) {
			m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			match := on("CU", "deployments.apps")
			for _, c := range tc.changes {
				c(&match)
			}
			asked := policy("guard", match)
			if tc.onlyPatches {
				asked.Validates, asked.Mutates = false, true
			}
			lines := f.Check(chartMutating, chart, &asked)
			got := strings.Join(lines, "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "spec.match") }) {
				t.Errorf("it says\n%s\nwant %s", got, tc.want)
			}
			if tc.stricter {
				return
			}
			s := f.newSides()[0]
			f.Must(f.read(t.Context(), s))
			next := map[string]*entry{}
			one := policy("guard", match)
			targets, _ := one.targets(s.covered, s.possible)
			for _, e := range newEntries(&one, targets, false, s.client("guard"), home) {
				if len(targets) > 0 {
					next[e.Name] = e
				}
			}
			refused, err := (&pass{Reconciler: f.Reconciler}).put(t.Context(), s, next)
			f.Must(err)
			if (len(refused) > 0) != (tc.want != "") {
				t.Errorf("the API server says %v", refused)
			}
		})
	}
}

// Rules that are never evaluated, and operations for which no rule is, are reported when the policy is written, and in the status of one
// that is stored.
func TestRulesThatNobodyAsks(t *testing.T) {
	patches := func(p *Policy) { p.Validates, p.Mutates = false, true }
	both := func(p *Policy) { p.Mutates = true }
	labelled := func(m v1alpha1.PolicyMatch, s metav1.LabelSelector) v1alpha1.PolicyMatch {
		m.ObjectSelector = &s
		return m
	}
	ungrouped := func(m v1alpha1.PolicyMatch) v1alpha1.PolicyMatch {
		m.Resources[0].APIGroups = nil
		return m
	}
	some := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	none := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	const onlyPatches = "spec.match.resources[0].operations: no rule of the policy is asked about DELETE: it has only patch rules, which are asked about CREATE and UPDATE; " +
		"leave DELETE out, or write deny or warn rules"
	for name, tc := range map[string]struct {
		policy Policy
		want   string // nothing: all is asked
	}{
		"denials of a deletion":           {policy("guard", on("D", "deployments.apps")), ""},
		"patches of what is deleted":      {policy("guard", on("D", "deployments.apps"), patches), onlyPatches},
		"patches, and a deletion":         {policy("guard", on("CD", "deployments.apps"), patches), onlyPatches},
		"patches of what is changed":      {policy("guard", on("CU", "deployments.apps"), patches), ""},
		"Sallyport's own":                 {policy("guard", on("D", "virtualmachines."+v1alpha1.GroupName), patches), onlyPatches},
		"both, of which one is not asked": {policy("guard", on("D", "deployments.apps"), both), "spec.match.resources: the policy has patch rules, which are asked about CREATE and UPDATE, and no resource has one of these operations: add one, or leave the rules out"},
		"both, on one resource each": {policy("guard", v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{
			someOf("C", "deployments.apps"), someOf("D", "statefulsets.apps"),
		}}, both), ""},
		"patches of RegoPolicies":          {policy("guard", on("C", "regopolicies."+v1alpha1.GroupName), patches), "spec.match.resources[0].resources[0], regopolicies." + v1alpha1.GroupName + ": it must always be possible"},
		"a Scale without a group":          {policy("guard", labelled(ungrouped(on("U", "deployments.apps/scale")), some)), "spec.match.resources[0].resources[0]: a Scale has no labels"},
		"a Scale with labels":              {policy("guard", labelled(on("U", "deployments.apps/scale"), some)), "spec.match.resources[0].resources[0]: a Scale has no labels, so spec.match.objectSelector never matches: match deployments/scale in a policy without objectSelector"},
		"a Scale without labels":           {policy("guard", labelled(on("U", "deployments.apps/scale"), none)), ""},
		"what else is asked by nobody":     {policy("guard", on("C", "deployments.apps"), func(p *Policy) { p.NeverEvaluated = []string{"spec.match.resources: why"} }), "spec.match.resources: why"},
		"one that cannot be asked at all":  {policy("guard", on("CD", "deployments.apps"), func(p *Policy) { p.Broken = true }), ""},
		"patches that are not granted yet": {policy("guard", on("CU", "deployments.apps"), patches, func(p *Policy) { p.MayNotPatch = func(string, string) string { return "" } }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			chart, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
			f.Must(f.api.Get(t.Context(), client.ObjectKey{Name: f.name}, chart))
			f.Must(f.api.Get(t.Context(), client.ObjectKey{Name: f.name}, mutating))
			if got := strings.Join(f.Check(mutating, chart, &tc.policy), "\n"); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("it says\n%s\nwant\n%s", got, tc.want)
			}
			if tc.policy.Broken {
				return
			}
			f.decide("1", tc.policy)
			f.settles()
			finding, _ := f.Finding("guard")
			if is := finding.Reason == v1alpha1.ReasonNotRegistrable; is != (tc.want != "") || !strings.HasPrefix(finding.Message, tc.want) {
				t.Errorf("there it is %s: %s", finding.Reason, finding.Message)
			}
		})
	}
}
