package requests_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// ruled returns a policy of one rule, about ConfigMaps in namespaces with a label.
func ruled(name, label string) *v1alpha1.RegoPolicy {
	p := policy("teamed", `
# METADATA
# title: The object has no team
# custom: {reason: NoTeam, remedy: Name the team.}
deny contains {"reason": "NoTeam", "message": "the object has no team"} if not input.request.object.data.team
`)
	p.Name, p.Spec.Reads, p.Spec.Match.NamespaceSelector.MatchLabels["measured"] = name, nil, label
	return p
}

// callers ask at once, as in the comparison of engines in the notes of releases.
const callers = 4

// A request about which a policy is asked costs the API server what it costs with any webhook, and no more if there are policies about other
// namespaces: about a tenth, and each of these is a selector.
func TestRequestsCostTheAPIServerWhatAnyWebhookDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	b := newBench(t, site.Start(t, site.Options{Values: []string{"decisionRecords.all=false"}}))
	for _, name := range []string{"none", "noop", "teamed"} {
		b.must(b.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"measured": name}}}))
	}
	b.addNoop("noop")
	made := 0
	for _, policies := range []int{1, 10, 40} {
		for ; made < policies; made++ {
			label := "elsewhere"
			if made == 0 {
				label = "teamed"
			}
			b.must(b.Client.Create(t.Context(), ruled(fmt.Sprintf("teamed-%d", made), label)))
		}
		b.must(step.Await(b.Context(), func(context.Context) (bool, error) {
			return b.active() == policies && b.create("teamed", nil) != nil, nil
		}))
		costs := b.prices()
		noop, one := costs["noop"], costs["teamed"]
		for _, row := range slices.Sorted(maps.Keys(costs)) {
			t.Logf("%d policies, %s: %v", policies, row, costs[row])
		}
		if of := one["kube-apiserver"] / noop["kube-apiserver"]; of > 1.25 {
			t.Errorf("with %d policies, a request costs the API server %.2f times what it costs with a webhook that allows everything", policies, of)
		}
	}
}

// prices returns what a creation of a ConfigMap costs by namespace, and what a denial costs: the medians of several rounds.
func (b *bench) prices() map[string]price {
	b.Helper()
	rounds := map[string][]price{}
	for range 7 {
		for _, row := range []string{"none", "noop", "teamed", "denied"} {
			namespace, data := row, map[string]string{"team": "a"}
			if row == "denied" {
				namespace, data = "teamed", nil
			}
			rounds[row] = append(rounds[row], b.cost(callers, func() {
				if err := b.create(namespace, data); (err != nil) != (row == "denied") {
					b.Errorf("%s: got %v", row, err)
				}
			}))
		}
	}
	all := map[string]price{}
	for row, costs := range rounds {
		all[row] = price{}
		for process := range costs[0] {
			var of []float64
			for _, c := range costs {
				of = append(of, c[process])
			}
			slices.Sort(of)
			all[row][process] = of[len(of)/2]
		}
	}
	return all
}

func (b *bench) create(namespace string, data map[string]string) error {
	return b.Client.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}, Data: data}, client.DryRunAll)
}

// active returns how many policies of this test decide.
func (b *bench) active() (n int) {
	var list v1alpha1.RegoPolicyList
	b.must(b.Client.List(b.Context(), &list))
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.Package == "example.teamed" && meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.ConditionActive)) {
			n++
		}
	}
	return n
}
