package plugin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

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
	said := fmt.Sprint(*pool.Spec.Replicas)
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

// sender sends a request of the plugin, and hook does it for requests of one method.
type (
	sender func() (*http.Response, error)
	hook   func(sender) (*http.Response, error)
)

// intercepted runs a command line of the plugin, by a local clock that is that much ahead. The hooks send its requests, by method.
func (w *world) intercepted(line string, ahead time.Duration, hooks map[string]hook) result {
	w.Helper()
	streams, _, out, errs := genericiooptions.NewTestIOStreams()
	p := cli.New(streams)
	p.Clock.Local = func() time.Time { return time.Now().Add(ahead) }
	decoding := p.Flags.WrapConfigFn
	p.Flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config = decoding(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				send := func() (*http.Response, error) { return next.RoundTrip(r) }
				if h := hooks[r.Method]; h != nil {
					return h(send)
				}
				return send()
			})
		})
		return config
	}
	code := run(w.Context(), p, append([]string{"--kubeconfig", w.plane.Kubeconfig()}, strings.Fields(line)...))
	return result{out.String(), errs.String(), code}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
			line := "scale-down ci --vm ci-1 -n " + pool.Namespace
			if tc.from > 0 {
				line += fmt.Sprint(" --from ", tc.from)
			}
			r := w.intercepted(line, 0, map[string]hook{http.MethodPatch: func(send sender) (*http.Response, error) {
				if !done {
					done = true
					theirs := pool.DeepCopy()
					theirs.Spec.Replicas = &tc.theirs
					if tc.names >= 0 {
						theirs.Spec.ScaleDownTargets = []v1alpha1.ScaleDownTarget{targetNamed(members[tc.names])}
					}
					w.Must(w.Update(t.Context(), theirs))
				}
				return send()
			}})
			if (r.code == 0) != (tc.err == "") || !strings.Contains(r.stderr, tc.err) || !strings.Contains(r.stdout, tc.said) {
				t.Errorf("exit %d, %q, %q; want %q, %q", r.code, r.stdout, r.stderr, tc.said, tc.err)
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

// poolOf is a pool with so many replicas.
func poolOf(namespace string, replicas int32) *v1alpha1.VirtualMachinePool {
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ci"}}
	pool.Spec.Replicas, pool.Spec.ScaleDownPolicy = &replicas, v1alpha1.ScaleDownExplicit
	pool.Spec.VirtualMachineTemplate.Spec.Runtime.Pod = &v1alpha1.PodRuntime{}
	return pool
}

// memberOf is a member of a pool.
func memberOf(pool *v1alpha1.VirtualMachinePool, slot int, finalizers ...string) *v1alpha1.VirtualMachine {
	m := vm(pool.Namespace, fmt.Sprintf("%s-%d", pool.Name, slot), finalizers...)
	m.Labels = map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelPoolUID: string(pool.UID)}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind(cli.PoolKind))}
	return m
}

func targetNamed(m *v1alpha1.VirtualMachine) v1alpha1.ScaleDownTarget {
	return v1alpha1.ScaleDownTarget{Name: m.Name, UID: m.UID}
}
