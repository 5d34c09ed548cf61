package replay_test

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/decision"
)

func selecting(tier string) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	}
}

// Which policies a request meets, and in which mode, is found out again with the labels of then.
func TestNamespacesAreThoseOfThen(t *testing.T) {
	red := deny("Red", "true")
	w := world{answers: map[string]any{"Namespace": map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ns", "labels": map[string]any{"tier": "gold"}},
	}}}
	warned := func(s *v1alpha1.RegoPolicySpec) {
		s.NamespaceModes = []v1alpha1.NamespaceMode{{
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}, Mode: v1alpha1.ModeWarn,
		}}
	}
	for name, tc := range map[string]struct {
		was, now v1alpha1.RegoPolicy
		want     string
	}{
		"as before":               {policy("p", red, selecting("gold")), policy("p", red, selecting("gold")), ""},
		"not selected any more":   {policy("p", red, selecting("gold")), policy("p", red, selecting("silver")), "1 denied>admitted p gone Red"},
		"selected now":            {policy("p", red, selecting("silver")), policy("p", red, selecting("gold")), "1 admitted>denied p new Red"},
		"selected whatever":       {policy("p", red, selecting("silver")), policy("p", red), "1 admitted>denied p new Red"},
		"a mode for it":           {policy("p", red, selecting("gold")), policy("p", red, warned), "1 denied>admitted p verdict denied -> warned"},
		"labels nobody asked for": {policy("p", red), policy("p", red, selecting("gold")), "1? p FactNotRecorded namespace"},
		"the same in a new mode":  {policy("p", red), policy("p", red, warned), "1? p FactNotRecorded namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := replayed(t, recorded(t, w, list(tc.was), request(t, "cm", `{}`)), tc.now)
			if got := told(s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// overrideFact is a request of somebody that has an override of policy p.
func overrideFact(t *testing.T, until string) func(*admissionv1.AdmissionRequest) {
	t.Helper()
	return func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "annotations": {
			"sallyport.dev/override": "p; uid=; by=ann; until=%s; the disk is full"}}, "spec": {"red": true}}`, until)
		r.UserInfo = authenticationv1.UserInfo{Username: "ann"}
	}
}

// Whether an override counts is known from then.
func TestOverrides(t *testing.T) {
	red, other := deny("Red", "input.request.object.spec.red"), deny("Reddish", "input.request.object.spec.red")
	const soon, past = "2026-11-20T10:30:00Z", "2026-11-20T09:30:00Z"
	nobody := func(s *v1alpha1.RegoPolicySpec) { s.Override = v1alpha1.OverrideNobody }
	for name, tc := range map[string]struct {
		may      bool
		until    string
		was, now []v1alpha1.RegoPolicy
		want     string
	}{
		"as before":                  {true, soon, list(policy("p", red)), list(policy("p", red)), ""},
		"another reason, overridden": {true, soon, list(policy("p", red)), list(policy("p", other)), "1 admitted>admitted p gone Red, 1 admitted>admitted p new Reddish"},
		"nothing to override":        {true, soon, list(policy("p", red)), list(policy("p", deny("Never", "false"))), "1 admitted>admitted p gone Red"},
		"no override any more":       {true, soon, list(policy("p", red)), list(policy("p", red, nobody)), "1 admitted>denied p verdict overridden -> denied"},
		"not by who may not":         {false, soon, list(policy("p", red)), list(policy("p", other)), "1 denied>denied p gone Red, 1 denied>denied p new Reddish"},
		"not when it has ended":      {true, past, list(policy("p", red)), list(policy("p", red)), ""},
		"of another policy":          {true, soon, list(policy("p", red)), list(policy("p", red), policy("q", other)), "1 admitted>denied q new Reddish"},
		"nobody asked then":          {true, soon, list(policy("p", deny("Never", "false"))), list(policy("p", red)), "1? p FactNotRecorded override"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{answers: map[string]any{"override": tc.may}}
			_, s := replayed(t, recorded(t, w, tc.was, request(t, "cm", `{}`, overrideFact(t, tc.until))), tc.now...)
			if got := told(s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A webhook of one policy asked that policy and no other, and so does a replay.
func TestPoliciesThatWereAskedAlone(t *testing.T) {
	red, big := policy("p", deny("Red", "true")), policy("q", deny("Big", "true"))
	text := taken(t, world{}, list(red, big), func(g *decision.Decider) {
		g.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Only: "p", Review: request(t, "cm", `{}`)})
		g.Answer(t.Context(), &decision.Question{Endpoint: decision.Mutating, Only: "p", Review: request(t, "cm", `{}`)})
	})
	if _, s := replayed(t, text, red, big); told(s) != "" || s.Decisions != 2 {
		t.Errorf("the same: %s", told(s))
	}
	if _, s := replayed(t, text, policy("p", deny("Never", "false")+stamp), big); told(s) != "1 admitted>admitted p patches, 1 denied>admitted p gone Red" {
		t.Errorf("another: %s", told(s))
	}
}

// inventory is a world with a VSphereServer that lets namespace ns use a folder.
func inventory(folder string) world {
	return world{answers: map[string]any{
		"Namespace": map[string]any{"metadata": map[string]any{"name": "ns"}},
		"VSphereServer": map[string]any{"metadata": map[string]any{"name": "vc"}, "spec": map[string]any{"tenants": []any{map[string]any{
			"name": "a", "adopt": true, "folders": []any{folder}, "namespaces": map[string]any{"names": []any{"ns"}},
		}}}},
	}}
}

// What is asked about a machine without a request is asked of those policies only that were asked then.
func TestMachinesAreAskedAboutAgain(t *testing.T) {
	shipped := shipped.Policies(t)
	never := policy("never", deny("Never", "true"), func(s *v1alpha1.RegoPolicySpec) {
		s.Match.Resources[0].APIGroups, s.Match.Resources[0].APIVersions, s.Match.Resources[0].Resources = []string{"*"}, []string{"*"}, []string{"virtualmachines"}
	})
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}}
	vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: "/dc/vm/a/web", InstanceUUID: "50120a8b-7a3c-4bde-9f00-0123456789ab",
	}
	for folder, want := range map[string]string{"/dc/vm/a": "", "/dc/vm/b": "1 denied>admitted servers-tenancy verdict denied -> audited"} {
		text := taken(t, inventory(folder), append(shipped, never), func(g *decision.Decider) {
			if _, err := g.Admits(t.Context(), vm); err != nil {
				t.Error(err)
			}
		})
		if _, s := replayed(t, text, append(slices.Clone(shipped), never)...); told(s) != "" || s.Decisions != 1 {
			t.Errorf("%s, the same: %s", folder, told(s))
		}
		edited := slices.Clone(shipped)
		for i := range edited {
			if edited[i].Name == "servers-tenancy" {
				edited[i].Spec.Mode = v1alpha1.ModeAudit
			}
		}
		if _, s := replayed(t, text, append(edited, never)...); told(s) != want {
			t.Errorf("%s, in mode Audit: %s", folder, told(s))
		}
	}
}

// A reconciler acts on the outcome, so another one is a flip. Nobody acts on that of a denial.
func TestOutcomesOfArbitration(t *testing.T) {
	onOperations := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.Resources[0] = v1alpha1.PolicyResources{
			APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachineoperations"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
		}
	}
	takes := func(name, condition string) v1alpha1.RegoPolicy {
		return policy("p", fmt.Sprintf("outcome.supersedes contains %q if %s\n\n", name, condition)+deny("Starts", `input.request.object.spec.type == "Start"`), onOperations)
	}
	operation := func(kind v1alpha1.OperationType) func(g *decision.Decider) {
		return func(g *decision.Decider) {
			o := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "ns", UID: "u"}}
			o.Spec.VirtualMachineName, o.Spec.Type = "web", kind
			if _, err := g.Arbitrate(t.Context(), o, nil, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		kind v1alpha1.OperationType
		now  v1alpha1.RegoPolicy
		want string
	}{
		"the same":         {"Stop", takes("a", "true"), ""},
		"another":          {"Stop", takes("b", "true"), "1 admitted>admitted p outcome"},
		"none":             {"Stop", takes("a", "false"), "1 admitted>admitted p outcome"},
		"of a denial":      {"Start", takes("b", "true"), ""},
		"none of a denial": {"Start", takes("a", "false"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := taken(t, world{}, list(takes("a", "true")), operation(tc.kind))
			if _, s := replayed(t, text, tc.now); told(s) != tc.want || s.Decisions != 1 {
				t.Errorf("got %q of %d decisions, want %q", told(s), s.Decisions, tc.want)
			}
		})
	}
}
