package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// poolOf is a pool with so many replicas, of which those are named to go.
func poolOf(namespace string, replicas int32, named ...v1alpha1.ScaleDownTarget) *v1alpha1.VirtualMachinePool {
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ci"}}
	pool.Spec.Replicas, pool.Spec.ScaleDownPolicy, pool.Spec.ScaleDownTargets = &replicas, v1alpha1.ScaleDownExplicit, named
	pool.Spec.VirtualMachineTemplate.Spec.Runtime.Pod = &v1alpha1.PodRuntime{}
	return pool
}

// memberOf is a member of a pool.
func memberOf(pool *v1alpha1.VirtualMachinePool, slot int, finalizers ...string) *v1alpha1.VirtualMachine {
	m := vm(pool.Namespace, fmt.Sprintf("%s-%d", pool.Name, slot), finalizers...)
	m.Labels = map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelPoolUID: string(pool.UID)}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind(poolKind))}
	return m
}

func targetOf(name, uid string) v1alpha1.ScaleDownTarget {
	return v1alpha1.ScaleDownTarget{Name: name, UID: types.UID(uid)}
}

// What one write does to a pool of five with the members ci-0 to ci-4, of which ci-3 is named to go and ci-4 is being deleted, and
// with an entry of a member that is gone.
func TestShrink(t *testing.T) {
	pool := poolOf("team", 5, targetOf("ci-3", "u-3"), targetOf("ci-2", "u-gone"))
	pool.UID = "u-pool"
	var members []v1alpha1.VirtualMachine
	for slot := range 5 {
		m := memberOf(pool, slot)
		m.UID = types.UID(fmt.Sprintf("u-%d", slot))
		if slot == 4 {
			m.DeletionTimestamp = new(metav1.NewTime(time.Now()))
		}
		members = append(members, *m)
	}
	named := targetOf("ci-3", "u-3")
	for name, tc := range map[string]struct {
		vms       string
		told, err string
		replicas  int32
		targets   []v1alpha1.ScaleDownTarget
	}{
		"one":                    {"ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"by kind":                {"svm/ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"two":                    {"ci-2 ci-1@u-1", "scaled from 5 to 3, removing ci-2, ci-1", "", 3, []v1alpha1.ScaleDownTarget{named, targetOf("ci-2", "u-2"), targetOf("ci-1", "u-1")}},
		"twice":                  {"ci-0 ci-0@u-0 ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"named before":           {"ci-3", "unchanged; already in spec.scaleDownTargets: ci-3", "", 5, []v1alpha1.ScaleDownTarget{named}},
		"named before, and one":  {"ci-3 ci-0 ci-3", "scaled from 5 to 4, removing ci-0; already in spec.scaleDownTargets: ci-3", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"named before, and gone": {"ci-2@u-gone", "unchanged; already in spec.scaleDownTargets: ci-2", "", 5, []v1alpha1.ScaleDownTarget{named}},
		"no member":              {"ci-9", "", "VirtualMachinePool ci: ci-9 is not a member; nothing was changed; members that can be removed: ci-0, ci-1, ci-2", 0, nil},
		"another of the name":    {"ci-0@u-9", "", "ci-0 has UID u-0, not u-9", 0, nil},
		"being deleted":          {"ci-4", "", "ci-4 is already being deleted", 0, nil},
		"one of them wrong":      {"ci-0 ci-9 ci-4", "", "ci-9 is not a member; ci-4 is already being deleted; nothing was changed; members that can be removed: ci-1, ci-2", 0, nil},
		"no UID behind @":        {"ci-0@", "", `invalid --vm "ci-0@": must be NAME or NAME@UID`, 0, nil},
		"another kind":           {"svmop/ci-0", "", "svmop/ci-0 is not a VirtualMachine", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := wantedOf(strings.Fields(tc.vms))
			var s shrink
			if err == nil {
				s, err = shrinkOf(pool, members, wanted)
			}
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%v does not say %q", err, tc.err)
			case tc.err != "":
				return
			case err != nil || s.describe(5) != tc.told || s.replicas != tc.replicas:
				t.Errorf("%q with %d replicas, %v; want %q with %d", s.describe(5), s.replicas, err, tc.told, tc.replicas)
			}
			if diff := cmp.Diff(tc.targets, s.targets); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEligibleIsForReading(t *testing.T) {
	pool := poolOf("team", 12)
	var members []v1alpha1.VirtualMachine
	for slot := range 12 {
		m := memberOf(pool, slot)
		m.UID = types.UID(m.Name)
		members = append(members, *m)
	}
	for named, want := range map[int]string{
		0:  "ci-0, ci-1, ci-2, ci-3, ci-4, ci-5, ci-6, ci-7, ci-8, ci-9 and 2 more",
		2:  "ci-2, ci-3, ci-4, ci-5, ci-6, ci-7, ci-8, ci-9, ci-10, ci-11",
		12: "none",
	} {
		var targets []v1alpha1.ScaleDownTarget
		for _, m := range members[:named] {
			targets = append(targets, targetOf(m.Name, string(m.UID)))
		}
		if got := eligible(members, targets); got != want {
			t.Errorf("with %d named: %q, want %q", named, got, want)
		}
	}
}

// poolAt makes a pool with as many members as replicas.
func (w *world) poolAt(replicas int32) (*v1alpha1.VirtualMachinePool, []*v1alpha1.VirtualMachine) {
	w.Helper()
	pool := poolOf(w.namespace(), replicas)
	w.make(pool)
	var members []*v1alpha1.VirtualMachine
	for slot := range int(replicas) {
		members = append(members, memberOf(pool, slot, "example.com/kept"))
		w.make(members[slot])
	}
	return pool, members
}

// wanted tells the replicas of a pool and who is named to go.
func (w *world) wanted(pool *v1alpha1.VirtualMachinePool) string {
	w.Helper()
	w.Must(w.Get(w.Context(), client.ObjectKeyFromObject(pool), pool))
	said := fmt.Sprint(replicasOf(pool))
	for _, t := range pool.Spec.ScaleDownTargets {
		said += " " + t.Name
	}
	return said
}

func TestScaleDown(t *testing.T) {
	w := newWorld(t)
	pool, members := w.poolAt(5)
	in := " -n " + pool.Namespace
	is := func(want string) {
		t.Helper()
		if got := w.wanted(pool); got != want {
			t.Errorf("the pool is %q, want %q", got, want)
		}
	}
	w.plugin("scale-down ci --vm ci-1 --from 4"+in, 1, "error: VirtualMachinePool ci has 5 replicas, not 4 as --from requires; nothing was changed")
	w.plugin("scale-down ci --vm ci-1 --vm ci-9"+in, 1, "ci-9 is not a member; nothing was changed")
	w.plugin("scale-down ci --vm ci-1 --dry-run=client"+in, 0, "scaled from 5 to 4, removing ci-1 (dry run)")
	w.plugin("scale-down ci --vm ci-1 --dry-run=server"+in, 0, "scaled from 5 to 4, removing ci-1 (server dry run)")
	is("5")
	w.plugin("scale-down svmpool/ci --vm ci-1 --vm svm/ci-1 --vm ci-3@"+string(members[3].UID)+" --from 5"+in, 0,
		"virtualmachinepool.sallyport.dev/ci scaled from 5 to 3, removing ci-1, ci-3")
	is("3 ci-1 ci-3")
	w.plugin("scale-down ci --vm ci-1 --from 5"+in, 1, "has 3 replicas, not 5 as --from requires")
	w.plugin("scale-down ci --vm ci-1"+in, 0, "unchanged; already in spec.scaleDownTargets: ci-1")
	is("3 ci-1 ci-3")

	// The one that was named goes; another one is being deleted by hand.
	w.forget(members[1])
	w.Must(w.Delete(t.Context(), members[0]))
	w.plugin("scale-down ci --vm ci-0"+in, 1, "ci-0 is already being deleted; nothing was changed; members that can be removed: ci-2, ci-4")
	w.plugin("scale-down ci --vm ci-4"+in, 0, "scaled from 3 to 2, removing ci-4")
	is("2 ci-3 ci-4")

	w.plugin("scale-down ci"+in, 1, "--vm is required: specify the members to remove", "--help")
	w.plugin("scale-down --vm ci-2"+in, 1, "specify exactly one VirtualMachinePool")
	w.plugin("scale-down svm/ci --vm ci-2"+in, 1, "svm/ci is not a VirtualMachinePool: use NAME or svmpool/NAME")
	w.plugin("scale-down other --vm ci-2"+in, 1, "Error from server (NotFound)")
	pool.Finalizers = []string{"example.com/kept"}
	w.Must(w.Update(t.Context(), pool))
	w.Must(w.Delete(t.Context(), pool))
	w.plugin("scale-down ci --vm ci-2"+in, 1, "VirtualMachinePool ci is being deleted together with its members")
}

// intercepted is a cluster whose requests are held up.
func (w *world) intercepted(namespace string, funcs interceptor.Funcs) *cluster {
	w.Helper()
	c, err := client.NewWithWatch(w.plane.Config, client.Options{Scheme: scheme})
	w.Must(err)
	return &cluster{WithWatch: interceptor.NewClient(c, funcs), config: w.plane.Config, namespace: namespace}
}

// Somebody else writes the pool between our look at it and our write: nothing of theirs is lost, and what was said of it before is
// looked at again.
func TestScaleDownBesideAnother(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		from      int32
		theirs    int32
		names     int // the member whom they name
		said, err string
		is        string
	}{
		"they scale up":              {theirs: 7, names: -1, said: "scaled from 7 to 6, removing ci-1", is: "6 ci-1"},
		"they name another":          {theirs: 2, names: 0, said: "scaled from 2 to 1, removing ci-1", is: "1 ci-0 ci-1"},
		"they name the same":         {theirs: 2, names: 1, said: "unchanged; already in spec.scaleDownTargets: ci-1", is: "2 ci-1"},
		"they name the same, --from": {from: 3, theirs: 2, names: 1, err: "has 2 replicas, not 3 as --from requires", is: "2 ci-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, w.plane)
			pool, members := w.poolAt(3)
			done := false
			c := w.intercepted(pool.Namespace, interceptor.Funcs{Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption,
			) error {
				if !done {
					done = true
					theirs := pool.DeepCopy()
					theirs.Spec.Replicas = &tc.theirs
					if tc.names >= 0 {
						theirs.Spec.ScaleDownTargets = []v1alpha1.ScaleDownTarget{targetOf(members[tc.names].Name, string(members[tc.names].UID))}
					}
					w.Must(w.Update(ctx, theirs))
				}
				return c.Patch(ctx, o, patch, opts...)
			}})
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			o := &scaleDown{plugin: newPlugin(streams), from: tc.from, expects: tc.from > 0, dryRun: dryRunNone}
			err := o.run(t.Context(), c, "ci", []v1alpha1.ScaleDownTarget{{Name: "ci-1"}})
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || !strings.Contains(out.String(), tc.said) {
				t.Errorf("%q, %v; want %q, %q", out.String(), err, tc.said, tc.err)
			}
			if got := w.wanted(pool); got != tc.is {
				t.Errorf("the pool is %q, want %q", got, tc.is)
			}
		})
	}
}

// What the refusal of a scale-down says would pass does, and all ways to write fewer replicas read the same.
func TestTheWayOutOfAScaleDownThatNamesNobody(t *testing.T) {
	tm := newTeam(t)
	tm.must(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "metadata": {"name": "ci"}, "spec": {"replicas": 3,
		"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}}}}}`, "create", "-f", "-")
	uid := tm.get("svmpool/ci", ".metadata.uid")
	for slot := range 3 {
		tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "ci-%d",
			"labels": {"sallyport.dev/pool": "ci", "sallyport.dev/pool-uid": %[2]q}, "ownerReferences": [{"apiVersion": "sallyport.dev/v1alpha1",
			"kind": "VirtualMachinePool", "name": "ci", "uid": %[2]q, "controller": true}]}, "spec": {"runtime": {"pod": {}}}}`, slot, uid), "create", "-f", "-")
	}
	said := ""
	for _, line := range []string{"scale svmpool/ci --replicas=1", `patch svmpool ci --type=merge -p {"spec":{"replicas":1}}`} {
		r := tm.kubectl("", strings.Fields(line)...)
		_, text, found := strings.Cut(r.stderr, "denied the request: ")
		if r.code != 1 || !found || said != "" && text != said {
			t.Fatalf("kubectl %s: exit %d: %s\nbefore: %s", line, r.code, r.stderr, said)
		}
		said = text
	}
	_, command, _ := strings.Cut(said, "; allowed: ")
	words := strings.Fields(command)
	tm.must("", words[1:]...)
	want := slices.Sorted(slices.Values(slices.DeleteFunc(words[6:], func(word string) bool { return word == "--vm" })))
	got := strings.Fields(tm.get("svmpool/ci", ".spec.scaleDownTargets[*].name"))
	slices.Sort(got)
	if replicas := tm.get("svmpool/ci", ".spec.replicas"); replicas != "1" || len(got) != 2 || !slices.Equal(got, want) {
		t.Errorf("after %q the pool has %s replicas and names %q", words, replicas, got)
	}
}
