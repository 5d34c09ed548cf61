package offline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/support/shipped"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// kyverno#11055, helm-charts#5500: templates render empty blocks. The API server decodes what is null in metadata, and in its own kinds,
// into Go types before a policy gets to see it; so does a review, in the request, in its old object and in the state.
func TestNullsAreWhatTheAPIServerMakesOfThem(t *testing.T) {
	const (
		plain  = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web%s}\nspec: {replicas: 2%s}\n"
		gadget = "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: a, namespace: default%s}\nspec: {replicas: 2%s}\n"
	)
	set := shipped.Set(t)
	for name, tc := range map[string]struct {
		format, metadata, spec string
		want                   string // of metadata without what is always there, and of spec
	}{
		"annotations":                    {plain, ", annotations: ", "", "map[] map[replicas:2]"},
		"labels":                         {plain, ", labels: ", "", "map[] map[replicas:2]"},
		"owner references":               {plain, ", ownerReferences: ", "", "map[] map[replicas:2]"},
		"finalizers":                     {plain, ", finalizers: ", "", "map[] map[replicas:2]"},
		"the value of an annotation":     {plain, ", annotations: {a: }", "", "map[annotations:map[a:]] map[replicas:2]"},
		"the value of a label":           {plain, ", labels: {a: }", "", "map[labels:map[a:]] map[replicas:2]"},
		"in a spec":                      {plain, "", ", strategy: , paused: , selector: {matchLabels: {a: }}", "map[] map[replicas:2 selector:map[matchLabels:map[a:]] strategy:map[]]"},
		"metadata of another kind":       {gadget, ", annotations: {a: }, labels: , ownerReferences: ", "", "map[annotations:map[a:]] map[replicas:2]"},
		"in the spec of another kind":    {gadget, "", ", x: ", "map[] map[replicas:2 x:<nil>]"},
		"what its type does not fit":     {plain, ", labels: ", ", paused: maybe, strategy: ", "map[] map[paused:maybe replicas:2 strategy:<nil>]"},
		"a quantity and lists of a spec": {plain, "", ", template: {spec: {containers: [{name: a, args: [], command: }], overhead: {cpu: }}}", "map[] map[replicas:2 template:map[spec:map[containers:[map[args:[] name:a]] overhead:map[cpu:0]]]]"},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(tc.format, tc.metadata, tc.spec)
			created := ask(t, reviewer(t, set, ""), text)
			is(t, created, Admitted, "")
			updated := ask(t, reviewer(t, set, text), text)
			is(t, updated, Admitted, "")
			for way, r := range map[string]*Result{"created": created, "updated": updated} {
				metadata := r.Object["metadata"].(map[string]any)
				for _, set := range []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"} {
					delete(metadata, set)
				}
				if diff := cmp.Diff(tc.want, fmt.Sprint(metadata, " ", r.Object["spec"])); diff != "" {
					t.Errorf("%s (-want +got):\n%s", way, diff)
				}
			}
		})
	}
}

// What is null guards nothing, and what is null where something is guarded is an empty value of the annotation, as on a cluster.
func TestNullsAreJudged(t *testing.T) {
	set := shipped.Set(t)
	for name, tc := range map[string]struct {
		old, text string
		verdict   Verdict
		said      string
	}{
		"no annotations":            {"", "annotations: ", Admitted, ""},
		"no annotations before":     {"annotations: ", "", Admitted, ""},
		"no owners":                 {"labels: {sallyport.dev/deletion-protection: enabled}", "labels: {sallyport.dev/deletion-protection: enabled}, ownerReferences: ", Admitted, ""},
		"an annotation":             {"annotations: {sallyport.dev/min-replicas: }", "annotations: {sallyport.dev/min-replicas: }", Denied, "AnnotationInvalid"},
		"a label that protects not": {"labels: {sallyport.dev/deletion-protection: enabled}", "labels: {sallyport.dev/deletion-protection: }", Denied, "ProtectionRemoved"},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(metadata string, replicas int) string {
				return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, %s}\nspec: {replicas: %d}\n", metadata, replicas)
			}
			is(t, ask(t, reviewer(t, set, with(tc.old, 5)), with(tc.text, 2)), tc.verdict, tc.said)
			old := document(t, with(tc.old, 5))
			is(t, ask(t, reviewer(t, set, ""), with(tc.text, 2), func(r *Request) { r.Old = &old }), tc.verdict, tc.said)
		})
	}
}

// An override counts if the state says that the requester may; otherwise a cluster may know more, and the result says so.
func TestOverridesInReviews(t *testing.T) {
	const (
		may = "---\napiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {user: alice, resourceAttributes: " +
			"{verb: override, group: sallyport.dev, resource: regopolicies, name: scaling-guard}}\nstatus: {allowed: %t}\n"
		override = `sallyport.dev/override: "scaling-guard; uid=u-1; by=alice; until=2026-05-04T03:30:00Z; ticket 42"`
	)
	set := shipped.Set(t)
	web := func(uid, annotation string, replicas int) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, %s annotations: {sallyport.dev/scale-down: Deny, %s}}\nspec: {replicas: %d}\n",
			uid, annotation, replicas)
	}
	for name, tc := range map[string]struct {
		state   string
		scale   bool
		verdict Verdict
		said    string
	}{
		"the requester may":         {web("uid: u-1,", "", 5) + fmt.Sprintf(may, true), false, Admitted, "is overridden until 2026-05-04T03:30:00Z"},
		"a state without UIDs":      {web("", "", 5) + fmt.Sprintf(may, true), false, Admitted, "is overridden until"},
		"the requester may not":     {web("uid: u-1,", "", 5) + fmt.Sprintf(may, false), false, Denied, "alice may not override policy scaling-guard"},
		"another object":            {web("uid: u-2,", "", 5) + fmt.Sprintf(may, true), false, Denied, "uid= must be the UID of this object"},
		"nobody knows":              {web("uid: u-1,", "", 5), false, Denied, "the override was not judged: "},
		"a scale":                   {web("uid: u-1,", override, 5) + fmt.Sprintf(may, true), true, Admitted, "is overridden until"},
		"a scale without a UID":     {web("", override, 5) + fmt.Sprintf(may, true), true, Admitted, "is overridden until"},
		"a scale that nobody knows": {web("", override, 5), true, Denied, "the override was not judged: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, reviewer(t, set, tc.state), web("", override, 2), func(r *Request) {
				if tc.scale {
					r.Subresource = Scale
				}
			})
			is(t, r, tc.verdict, tc.said)
			if warned := strings.Contains(strings.Join(r.Warnings, "\n"), "SubjectAccessReview"); warned {
				t.Errorf("a cluster warns of no SubjectAccessReview: %q", r.Warnings)
			}
		})
	}
}

// What a policy does not understand is named by its field, by whichever way the policy comes to look at it.
func TestFieldsThatAreNotUnderstoodAreNamed(t *testing.T) {
	set := shipped.Set(t)
	r := ask(t, reviewer(t, set, deployment(5)), "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: two}\n")
	is(t, r, Undecided, "[scaling-guard/InputNotUnderstood] policy evaluation failed: spec.replicas: must be an integer, is a string")
}
