package requests_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	team := map[string]string{"team": "a"}
	requests := map[string]request{
		"no webhook":                         {func() error { return b.create("none", team) }, false},
		"a webhook that allows everything":   {func() error { return b.create("noop", team) }, false},
		"a policy of one rule":               {func() error { return b.create("teamed", team) }, false},
		"a policy of one rule, which denies": {func() error { return b.create("teamed", nil) }, true},
	}
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
		t.Logf("%d policies:", policies)
		costs := b.prices(requests)
		if of := costs["a policy of one rule"]["kube-apiserver"] / costs["a webhook that allows everything"]["kube-apiserver"]; of > 1.25 {
			t.Errorf("with %d policies, a request costs the API server %.2f times what it costs with a webhook that allows everything", policies, of)
		}
	}
	b.prices(b.guarded())
}

// guarded returns requests about which shipped policies are asked.
func (b *bench) guarded() map[string]request {
	b.Helper()
	labels := map[string]string{"app": "web"}
	pods := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web"}}},
	}
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "none", Name: "web", Annotations: map[string]string{v1alpha1.AnnotationMinReplicas: "2"}, Labels: map[string]string{v1alpha1.LabelDeletionProtection: "enabled"},
		},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(5)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pods},
	}
	b.must(b.Client.Create(b.Context(), web))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "web"}, Spec: pods.Spec}
	b.must(b.Client.Create(b.Context(), pod))
	scale := func(replicas int32) func() error {
		return func() error {
			return b.Client.SubResource("scale").Update(b.Context(), web.DeepCopy(), client.DryRunAll, client.WithSubResourceBody(&autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
			}))
		}
	}
	return map[string]request{
		"a Deployment is scaled":            {scale(4), false},
		"a Deployment is scaled too far":    {scale(1), true},
		"a protected Deployment is deleted": {func() error { return b.Client.Delete(b.Context(), web.DeepCopy(), client.DryRunAll) }, true},
		"a Pod is evicted": {func() error {
			return b.Client.SubResource("eviction").Create(b.Context(), pod.DeepCopy(), &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "web"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			})
		}, false},
		"a VirtualMachine is created": {func() error {
			return b.Client.Create(b.Context(), &v1alpha1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "new"},
				Spec:       v1alpha1.VirtualMachineSpec{RunPolicy: v1alpha1.RunPolicyAlwaysOn, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
			}, client.DryRunAll)
		}, false},
	}
}

// request is one that is measured again and again. It changes nothing, and is denied or not.
type request struct {
	make   func() error
	denied bool
}

// prices returns what requests cost: the medians of several rounds, in which they take turns.
func (b *bench) prices(requests map[string]request) map[string]price {
	b.Helper()
	rounds := map[string][]price{}
	for range 7 {
		for name, r := range requests {
			rounds[name] = append(rounds[name], b.cost(callers, func() {
				if err := r.make(); (err != nil) != r.denied {
					b.Errorf("%s: got %v", name, err)
				}
			}))
		}
	}
	all := map[string]price{}
	for name, costs := range rounds {
		all[name] = price{}
		for process := range costs[0] {
			var of []float64
			for _, c := range costs {
				of = append(of, c[process])
			}
			slices.Sort(of)
			all[name][process] = of[len(of)/2]
		}
		b.Logf("%s: %v", name, all[name])
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
