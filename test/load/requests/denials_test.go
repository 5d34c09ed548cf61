package requests_test

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

var most = flag.Int("objects", 20_000, "objects beside those that are measured")

// modules have the two rules that are measured: of two ConfigMaps with one host, of which there is one, and of more ConfigMaps of a team
// than a quota allows, which are few: what denies rests on an object, and on a count.
var modules = map[string]string{
	"hosts": `
facts.others := {"apiVersion": "v1", "kind": "ConfigMap", "fields": {"data.host": object.get(input.request.object, ["data", "host"], "")}}

# METADATA
# title: The host is taken
# custom: {reason: HostTaken, remedy: Choose another.}
deny contains {"reason": "HostTaken", "message": $"{other.metadata.name} has the host"} if {
	some other in input.facts.others
}
`,
	"teams": `
facts.others := {"apiVersion": "v1", "kind": "ConfigMap", "fields": {"data.team": object.get(input.request.object, ["data", "team"], "")}}

# METADATA
# title: The team has enough
# custom: {reason: TooMany, remedy: Delete some.}
deny contains {"reason": "TooMany", "message": "the team has three"} if count(input.facts.others) > 2
`,
}

const tests = `package example.%[1]s_test

import data.example.%[1]s as policy

test_denied if {
	others := [{"metadata": {"name": name}} | some name in ["a", "b", "c"]]
	count(policy.deny) > 0 with input as {"request": {"object": {}}, "facts": {"others": others}}
}
`

// head is that of a module.
func head(name string) string {
	return "# METADATA\n# title: T\n# description: D\npackage example." + name + "\n\nvalid_input if is_object(input.request)\n"
}

// policy returns a policy with a rule about ConfigMaps in the namespaces that have its name as a label, and the fields by which it reads others.
func policy(name, rule string, indexes ...string) *v1alpha1.RegoPolicy {
	return &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "example." + name, Modules: []v1alpha1.PolicyModule{{Name: name + ".rego", Source: head(name) + rule}},
		Tests: []v1alpha1.PolicyTest{{Name: name + "_test.rego", Source: fmt.Sprintf(tests, name)}},
		Reads: []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "ConfigMap", Indexes: indexes}},
		Match: &v1alpha1.PolicyMatch{
			Resources: []v1alpha1.PolicyResources{{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"measured": name}},
		},
	}}
}

// A denial that names an object costs about the same whatever else the list holds, in the API server and in the replica together.
func TestDenialsCostWhatTheyRestOn(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	s := site.Start(t, site.Options{Values: []string{"rbac.reads.configmaps=true"}})
	b := newBench(t, s)
	for name, index := range map[string]string{"hosts": "data.host", "teams": "data.team"} {
		b.must(s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"measured": name}}}))
		b.must(s.Client.Create(t.Context(), policy(name, modules[name], index)))
	}
	b.must(s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "crowd"}}))
	few := b.measure(100)
	many := b.measure(*most)
	t.Logf("milliseconds of CPU, %d objects: %v; %d objects: %v", 100, few, *most, many)
	if of := many["hosts denied"] / few["hosts denied"]; of > 2 {
		t.Errorf("a denial beside %d objects costs %.1f times as much as beside 100", *most, of)
	}
	if of := many["hosts denied"] / many["hosts admitted"]; of > 3 {
		t.Errorf("a denial costs %.1f times as much as an admission", of)
	}
}

// configMap returns a ConfigMap with a host and a team of its own, or those of the i-th one.
func configMap(namespace, name string, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"host": fmt.Sprintf("host-%d", i), "team": fmt.Sprintf("team-%d", i/3)},
	}
}

// measure fills the crowd and returns the CPU time of a request of each kind, the least of several rounds.
func (b *bench) measure(objects int) map[string]float64 {
	b.Helper()
	var all errgroup.Group
	all.SetLimit(8)
	for ; b.made < objects; b.made++ {
		o := configMap("crowd", fmt.Sprintf("c-%d", b.made), b.made)
		all.Go(func() error { return b.Client.Create(b.Context(), o) })
	}
	b.must(all.Wait())
	for _, namespace := range []string{"hosts", "teams"} { // until the caches have the last ones
		b.must(step.Await(b.Context(), func(context.Context) (bool, error) { return b.ask(namespace, objects-4) != nil, nil }))
	}
	costs := map[string]float64{}
	for range 5 {
		for _, namespace := range []string{"hosts", "teams"} {
			for what, i := range map[string]int{"admitted": -1000, "denied": objects - 4} {
				cost := b.cost(1, func() {
					if err := b.ask(namespace, i); (err == nil) != (i < 0) || err != nil && !apierrors.IsForbidden(err) {
						b.Errorf("%s, %s: got %v", namespace, what, err)
					}
				})
				key := namespace + " " + what
				if known, ok := costs[key]; !ok || cost.total() < known {
					costs[key] = cost.total()
				}
			}
		}
	}
	return costs
}

// ask asks for a ConfigMap with the host and team of the i-th one.
func (b *bench) ask(namespace string, i int) error {
	return b.Client.Create(b.Context(), configMap(namespace, "new", i), client.DryRunAll)
}
