package guards

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var pools = schema.GroupVersionKind{Group: "sallyport.dev", Version: "v1alpha1", Kind: "VirtualMachinePool"}

// pool is the manifest of a pool of virtual machines, with an annotation.
func pool(annotations, policy, replicas string) string {
	return fmt.Sprintf(`---
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachinePool
metadata: {name: web, annotations: %s}
spec:
  scaleDownPolicy: %s
  %s
  virtualMachineTemplate: {spec: {runtime: {pod: {}}}}
`, annotations, policy, replicas)
}

// explicitPool is a pool of two; one that is guarded gives up only members that are named.
func (t *trial) explicitPool(replicas string) string {
	if !t.guarded {
		return pool("{}", "NewestFirst", replicas)
	}
	return pool("{}", "Explicit", replicas)
}

// poolRows are about pools: with a limit, as of any workload, and with the scaleDownPolicy Explicit.
func poolRows() []row {
	limited := func(t *trial) { t.make(pool(t.annotations(atLeastTwo), "NewestFirst", "replicas: 2")) }
	explicit := func(t *trial) { t.make(t.explicitPool("replicas: 2")) }
	smaller := func(t *trial) bool { return t.replicas(pools) == 1 }
	feeds := func(line string) func(*trial) (string, bool) {
		return func(t *trial) (string, bool) { return t.fed(t.explicitPool("replicas: 1"), line) }
	}
	first := func(line string) func(*trial) {
		return func(t *trial) { t.mustKubectl(t.fed(t.explicitPool("replicas: 2"), line)) }
	}
	named := func(way string, make func(*trial), try func(*trial) (string, bool)) row {
		return row{way, make, try, notNamed, passes, passes, smaller}
	}
	return []row{
		{"a VirtualMachinePool: `kubectl scale`", limited, runs("scale svmpool/web --replicas=1"), belowMinimum, passes, passes, smaller},
		{"a VirtualMachinePool: `kubectl patch`", limited, runs("patch svmpool web --type=merge -p", one), belowMinimum, passes, belowMinimum, smaller},
		named("one with `scaleDownPolicy: Explicit`: `kubectl scale`", explicit, runs("scale svmpool/web --replicas=1")),
		named("so, by `kubectl edit`", explicit, runs("edit svmpool web")),
		named("so, by `kubectl patch`", explicit, runs("patch svmpool web --type=merge -p", one)),
		named("so, by `kubectl apply`", first("apply"), feeds("apply")),
		named("so, by `kubectl apply --server-side`", first("apply --server-side"), feeds("apply --server-side")),
		let("so, but for its `scaleDownPolicy` alone", explicit, runs("patch svmpool web --type=merge -p", `{"spec":{"scaleDownPolicy":"OldestFirst"}}`),
			func(t *trial) bool {
				is, _, _ := unstructured.NestedString(t.get(pools, "web").Object, "spec", "scaleDownPolicy")
				return is == "OldestFirst"
			}),
	}
}

// explicit: whoever lowers the replicas of an Explicit pool reads the same, in whatever way; and to take them out is nobody's way.
func (s *site) explicit() {
	t := &trial{site: s, guarded: true, space: s.namespace()}
	for _, line := range []string{"apply", "apply --server-side"} {
		t.mustKubectl(t.fed(t.explicitPool("replicas: 2"), line))
		t.Until("the pool has its members", func() (string, bool) {
			said, ok := t.kubectl("get svmpool web -o jsonpath={.status.replicas}")
			return said, ok && said == "2"
		})
		ways := map[string]func() (string, bool){
			"scale": func() (string, bool) { return t.kubectl("scale svmpool/web --replicas=1") },
			"patch": func() (string, bool) { return t.kubectl("patch svmpool web --type=merge -p", one) },
			"patch --subresource=scale": func() (string, bool) {
				return t.kubectl("patch svmpool web --subresource=scale --type=merge -p", one)
			},
			"edit": func() (string, bool) { return t.kubectl("edit svmpool web") },
			line:   func() (string, bool) { return t.fed(t.explicitPool("replicas: 1"), line) },
		}
		texts := map[string][]string{}
		for way, try := range ways {
			said, ok := try()
			if ok {
				t.Errorf("%s of fewer replicas passes: %s", way, said)
			}
			texts[denial(said)] = append(texts[denial(said)], way)
		}
		for text, ways := range texts {
			if len(texts) != 1 || !strings.Contains(text, "may not go from 2 to 1 replicas") || !strings.Contains(text, "`kubectl sallyport scale-down web --namespace "+t.space+" --vm web-") {
				t.Errorf("%v is told: %s", ways, text)
			}
		}
		if said, ok := t.fed(t.explicitPool(""), line); ok || !strings.Contains(said, "spec.replicas cannot be taken out once it is set") {
			t.Errorf("%s that drops replicas: %s", line, said)
		}
		if n := t.replicas(pools); n != 2 {
			t.Errorf("the pool is to have %d replicas, want 2", n)
		}
		t.release()
	}
	s.spaces.give(t.space)
}

// denial is what a policy says of all that kubectl does.
func denial(said string) string {
	_, text, _ := strings.Cut(said, "["+notNamed+"] ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}
