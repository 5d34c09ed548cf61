package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
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
func (s *guardSite) explicit() {
	t := &trial{guardSite: s, guarded: true, space: s.namespace()}
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
			if len(texts) != 1 || !strings.Contains(text, "cannot scale from 2 to 1") || !strings.Contains(text, "kubectl sallyport scale-down web -n "+t.space+" --vm web-") {
				t.Errorf("%v is told: %s", ways, text)
			}
		}
		if said, ok := t.fed(t.explicitPool(""), line); ok || !strings.Contains(said, "spec.replicas cannot be removed once it is set") {
			t.Errorf("%s that drops replicas: %s", line, said)
		}
		if n := t.replicas(pools); n != 2 {
			t.Errorf("the pool is to have %d replicas, want 2", n)
		}
		t.release()
	}
	s.spaces.give(t.space)
}

// busy: where the policy says so, replicas are not lowered by members that a Lease marks as busy, in neither way to write them.
func (s *guardSite) busy() {
	const parameters = `{"spec":{"parameters":{"busyMembers":%q}}}`
	t := &trial{guardSite: s, guarded: true, space: s.namespace()}
	t.make(pool("{}", "NewestFirst", "replicas: 2"))
	t.Until("the pool has its members", func() (string, bool) {
		said, ok := t.kubectl("get svmpool web -o jsonpath={.status.replicas}")
		return said, ok && said == "2"
	})
	for _, name := range []string{"web-0", "web-1"} {
		t.make(fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %s-busy, labels: {%s: %s}},
  spec: {holderIdentity: job of %[1]s, renewTime: "2999-01-01T00:00:00.000000Z", leaseDurationSeconds: 600}}`,
			name, v1alpha1.LabelBusyMachine, t.get(machines, name).GetUID()))
	}
	scale, patch := "scale svmpool/web --replicas=1 --dry-run=server", "patch svmpool web --dry-run=server --type=merge -p"
	s.edit("pools-scale-down", fmt.Sprintf(parameters, "Refuse"))
	t.Until("a Scale is refused", func() (string, bool) {
		said, ok := t.kubectl(scale)
		return said, !ok && strings.Contains(said, "[pools-scale-down/MembersBusy] ") && strings.Contains(said, "web-1 is busy with job of web-1 until ")
	})
	if said, ok := t.kubectl(patch, one); ok || !strings.Contains(said, "[pools-scale-down/MembersBusy] ") {
		t.Errorf("a patch of the pool, with busy members: %s", said)
	}
	named := fmt.Sprintf(`{"spec":{"replicas":1,"scaleDownTargets":[{"name":"web-1","uid":%q}]}}`, t.get(machines, "web-1").GetUID())
	if said, ok := t.kubectl(patch, named); !ok {
		t.Errorf("a busy member by name: %s", said)
	}
	t.mustKubectl(t.kubectl("delete lease web-0-busy"))
	for _, try := range [][]string{{scale}, {patch, one}} {
		if said, ok := t.kubectl(try[0], try[1:]...); !ok {
			t.Errorf("one member is idle: %s", said)
		}
	}
	t.release()
	s.edit("pools-scale-down", fmt.Sprintf(parameters, "Wait"))
	s.spaces.give(t.space)
}

// denial is what a policy says of all that kubectl does.
func denial(said string) string {
	_, text, _ := strings.Cut(said, "["+notNamed+"] ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}
