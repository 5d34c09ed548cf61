package offline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// workloads is a world of Deployments that scaling-guard limits in one way each, and of a kind that has its replicas elsewhere.
const workloads = `
apiVersion: v1
kind: List
items:
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: floor, annotations: {sallyport.dev/min-replicas: "3"}}, spec: {replicas: 5}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: unset, annotations: {sallyport.dev/min-replicas: "1"}}, spec: {}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: none, annotations: {sallyport.dev/min-replicas: "3"}}, spec: {replicas: 0}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: free}, spec: {replicas: 5}}
- {apiVersion: example.com/v1, kind: Fleet, metadata: {name: runners, annotations: {sallyport.dev/min-replicas: "2"}}, spec: {workers: {count: 4}}}
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: fleets.example.com}
  spec:
    group: example.com
    names: {kind: Fleet, plural: fleets}
    scope: Namespaced
    versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
      subresources: {scale: {specReplicasPath: .spec.workers.count, statusReplicasPath: .status.count}}
`

// workload is a Deployment with annotations and a spec.
func workload(name, annotations, spec string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, annotations: {%s}}\nspec: {%s}\n", name, annotations, spec)
}

func withReplicas(name string, replicas int) string {
	return workload(name, "", fmt.Sprintf("replicas: %d", replicas))
}

func fleet(count int) string {
	return fmt.Sprintf("apiVersion: example.com/v1\nkind: Fleet\nmetadata: {name: runners, annotations: {sallyport.dev/min-replicas: \"2\"}}\nspec: {workers: {count: %d}}\n", count)
}

// guarded is scaling-guard alone, with changes.
func guarded(t *testing.T, changes ...func(*v1alpha1.RegoPolicySpec)) (*catalog.Set, error) {
	t.Helper()
	all := shipped.Policies(t)
	all = slices.DeleteFunc(all, func(p v1alpha1.RegoPolicy) bool {
		return !slices.Contains([]string{"scaling-guard", "lib-override", "lib-schedule", "lib-shell"}, p.Name)
	})
	for _, change := range changes {
		change(&all[len(all)-1].Spec)
	}
	return catalog.Compile(all)
}

// parameter sets one of the parameters.
func parameter(t *testing.T, name, value string) func(*v1alpha1.RegoPolicySpec) {
	t.Helper()
	return func(spec *v1alpha1.RegoPolicySpec) {
		all := map[string]json.RawMessage{}
		if err := json.Unmarshal(spec.Parameters.Raw, &all); err != nil {
			t.Fatal(err)
		}
		all[name] = json.RawMessage(value)
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		spec.Parameters = &runtime.RawExtension{Raw: text}
	}
}

// withFleets has the policy asked about a kind of one's own.
func withFleets(spec *v1alpha1.RegoPolicySpec) {
	on := func(resource string, operations ...v1alpha1.MatchOperation) v1alpha1.PolicyResources {
		return v1alpha1.PolicyResources{APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Resources: []string{resource}, Operations: operations}
	}
	spec.Match.Resources = append(spec.Match.Resources,
		on("fleets", v1alpha1.MatchCreate, v1alpha1.MatchUpdate), on("fleets/scale", v1alpha1.MatchUpdate))
	spec.Reads = append(spec.Reads, v1alpha1.PolicyRead{APIVersion: "example.com/v1", Kind: "Fleet", Freshness: v1alpha1.ReadLive})
}

const (
	horizontal = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	floored    = `sallyport.dev/min-replicas: "3"`
	// judged is what the API server asks the policy, unasked what it need not.
	judged, unasked = "", "its matchCondition match-0.sallyport.dev/fewer-replicas-or-new-limits excludes this request"
)

// What the API server asks scaling-guard, and with what, for each way to write a number of replicas. What the policy says of it is tested beside
// it.
func TestScalingGuard(t *testing.T) {
	set, err := guarded(t)
	if err != nil {
		t.Fatal(err)
	}
	edited := func(*Request) {}
	for name, tc := range map[string]struct {
		file    string
		how     func(*Request)
		verdict Verdict
		text    string
	}{
		"scale, below":            {withReplicas("floor", 2), scaled, Denied, "[scaling-guard/BelowMinReplicas] Deployment floor: cannot scale from 5 to 2"},
		"scale, to the floor":     {withReplicas("floor", 3), scaled, Admitted, judged},
		"scale, up":               {withReplicas("floor", 6), scaled, Admitted, unasked},
		"scale, up from none":     {withReplicas("none", 1), scaled, Admitted, unasked},
		"scale, unset to one":     {withReplicas("unset", 1), scaled, Admitted, unasked},
		"scale, unset to none":    {withReplicas("unset", 0), scaled, Denied, "cannot scale from 1 to 0"},
		"a Scale":                 {"apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: floor}\nspec: {}\n", scaled, Denied, "cannot scale from 5 to 0"},
		"edit, below":             {workload("floor", floored, "replicas: 2"), edited, Denied, "403 BelowMinReplicas "},
		"edit, limit taken":       {withReplicas("floor", 5), edited, Admitted, unasked},
		"edit of something else":  {workload("floor", floored, "replicas: 5, paused: true"), edited, Admitted, unasked},
		"apply without the field": {workload("floor", floored, "paused: true"), edited, Denied, "cannot scale from 5 to 1"},
		"edit, unset to none":     {workload("unset", `sallyport.dev/min-replicas: "1"`, "replicas: 0"), edited, Denied, "cannot scale from 1 to 0"},
		"no annotation, created":  {workload("new", "sallyport.dev/scale-down: deny", "replicas: 5"), edited, Denied, `sallyport.dev/scale-down must be Allow or Deny, got "deny"`},
		"annotation, created":     {workload("new", floored, "replicas: 1"), edited, Admitted, judged},
		"created without":         {workload("new", "", "replicas: 1"), edited, Admitted, unasked},
		"another kind":            {fleet(1), scaled, Admitted, "no policy matches"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, reviewer(t, set, workloads), tc.file, tc.how)
			is(t, r, tc.verdict, tc.text)
			if wanted := tc.verdict == Denied || tc.text == judged; (len(r.Policies) > 0) != wanted {
				t.Errorf("the policy is asked: %t, want %t", !wanted, wanted)
			}
		})
	}
}

// What a team says in the parameters reaches the policy, as do its own kinds.
func TestScalingGuardAsConfigured(t *testing.T) {
	type change = func(*v1alpha1.RegoPolicySpec)
	night := parameter(t, "limits", `[{"name": "night", "minReplicas": 4, "users": ["`+horizontal+`"],
		"hours": {"from": "22:00", "to": "06:00", "timeZone": "Europe/Vienna"}}]`)
	fleets := parameter(t, "kinds", `{"fleets.example.com": {"replicas": ["spec", "workers", "count"], "default": 3}}`)
	by := func(user string) func(*Request) { return func(r *Request) { scaled(r); r.User = UserNamed(user) } }
	const morning, noon = "2026-05-04T03:59:59Z", "2026-05-04T04:00:00Z"
	for name, tc := range map[string]struct {
		changes []change
		file    string
		how     func(*Request)
		at      string
		verdict Verdict
		text    string
	}{
		"an autoscaler at night":      {[]change{night}, withReplicas("free", 3), by(horizontal), morning, Denied, "limit night of this policy (22:00 to 06:00 Europe/Vienna) has minReplicas 4"},
		"a kind of one's own, scaled": {[]change{withFleets, fleets}, fleet(1), scaled, noon, Denied, "kubectl scale fleets.example.com/runners -n default --replicas=2"},
		"a kind of one's own, up":     {[]change{withFleets, fleets}, fleet(5), scaled, noon, Admitted, unasked},
		"a kind that is not in reads": {[]change{withFleets, fleets, func(s *v1alpha1.RegoPolicySpec) { s.Reads = s.Reads[:len(s.Reads)-1] }}, fleet(1), scaled, noon, Undecided,
			"which spec.reads does not list: add {apiVersion: example.com/v1, kind: Fleet, freshness: Live} to spec.reads"},
		"a kind that is only in kinds":  {[]change{fleets}, fleet(1), scaled, noon, Admitted, "no policy matches"},
		"what is gone is not in limits": {[]change{night}, withReplicas("nobody", 3), func(*Request) {}, morning, Admitted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := guarded(t, tc.changes...)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			r, err := bundled.Reviewer(Options{Policies: set, State: documents(t, workloads), Namespace: "default", Now: func() time.Time { return at }})
			if err != nil {
				t.Fatal(err)
			}
			is(t, ask(t, r, tc.file, tc.how), tc.verdict, tc.text)
		})
	}
}

// A slip in the parameters is told by the path of the field.
func TestScalingGuardsParameters(t *testing.T) {
	for name, tc := range map[string]struct{ name, value, want string }{
		"no row of a limit":         {"limits", `[{"name": "a", "maxReplicas": 3}]`, "spec.parameters.limits[0].maxReplicas: unknown field"},
		"a limit of nothing":        {"limits", `[{"name": "a"}]`, "spec.parameters.limits[0]: Invalid value: must have scaleDown, minReplicas or maxScaleDown"},
		"a limit without name":      {"limits", `[{"minReplicas": 3}]`, "spec.parameters.limits[0].name: Required value"},
		"two of one name":           {"limits", `[{"name": "a", "minReplicas": 3}, {"name": "a", "minReplicas": 4}]`, "spec.parameters.limits[1]: Duplicate value"},
		"a number as text":          {"limits", `[{"name": "a", "minReplicas": "3"}]`, "spec.parameters.limits[0].minReplicas: Invalid value"},
		"another word":              {"limits", `[{"name": "a", "scaleDown": "Forbid"}]`, `spec.parameters.limits[0].scaleDown: Unsupported value: "Forbid": supported values: "Deny"`},
		"none at once":              {"limits", `[{"name": "a", "maxScaleDown": 0}]`, `spec.parameters.limits[0].maxScaleDown: Invalid value: 0: must be a number from 1, or a percentage from "1%" to "100%"`},
		"more than all at once":     {"limits", `[{"name": "a", "maxScaleDown": "101%"}]`, `spec.parameters.limits[0].maxScaleDown: Invalid value: "101%": must be`},
		"a number as text, at once": {"limits", `[{"name": "a", "maxScaleDown": "3"}]`, `spec.parameters.limits[0].maxScaleDown: Invalid value: "3": must be`},
		"half a replica":            {"limits", `[{"name": "a", "maxScaleDown": 1.5}]`, "spec.parameters.limits[0].maxScaleDown: Invalid value"},
		"no time of day":            {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "24:00", "timeZone": "UTC"}}]`, "spec.parameters.limits[0].hours.to: Invalid value"},
		"hours without zone":        {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "06:00"}}]`, "spec.parameters.limits[0].hours.timeZone: Required value"},
		"no hours":                  {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "22:00", "timeZone": "UTC"}}]`, "spec.parameters.limits[0].hours: Invalid value: from and to must be different times"},
		"no zone":                   {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "06:00", "timeZone": "Mars/Olympus"}}]`, "spec.parameters.limits[0].hours.timeZone: Invalid value: \"string\": unknown time zone Mars/Olympus"},
		"the zone of a machine":     {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "06:00", "timeZone": "Local"}}]`, `spec.parameters.limits[0].hours.timeZone: Invalid value: "Local": must be UTC, or a name in the time zone database`},
		"a distance from UTC":       {"limits", `[{"name": "a", "scaleDown": "Deny", "hours": {"from": "22:00", "to": "06:00", "timeZone": "+01:00"}}]`, `spec.parameters.limits[0].hours.timeZone: Invalid value: "+01:00": must be UTC, or a name`},
		"nobody":                    {"limits", `[{"name": "a", "scaleDown": "Deny", "users": []}]`, "spec.parameters.limits[0].users: Invalid value"},
		"not a list":                {"exempt", `{"users": "alice", "groups": []}`, "spec.parameters.exempt.users: Invalid value"},
		"no groups":                 {"exempt", `{"users": []}`, "spec.parameters.exempt.groups: Required value"},
		"a path as text":            {"kinds", `{"a.b": {"replicas": "spec.replicas", "default": 1}}`, "spec.parameters.kinds.a.b.replicas: Invalid value"},
		"no default":                {"kinds", `{"a.b": {"replicas": ["spec", "replicas"]}}`, "spec.parameters.kinds.a.b.default: Required value"},
		"a default of less":         {"kinds", `{"a.b": {"replicas": ["spec", "replicas"], "default": -1}}`, "spec.parameters.kinds.a.b.default: Invalid value"},
		"another parameter":         {"limit", `[]`, "spec.parameters.limit: unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := guarded(t, parameter(t, tc.name, tc.value)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v\ndoes not say %q", err, tc.want)
			}
		})
	}
}
