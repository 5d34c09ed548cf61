package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
)

// pool makes a VirtualMachinePool, and waits until it is as wanted.
func (tm *team) pool(name string, replicas int, policy, more string) {
	tm.Helper()
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "metadata": {"name": %q}, "spec": {
		"replicas": %d, "scaleDownPolicy": %q,
		"virtualMachineTemplate": {"metadata": {"labels": {"app": "web", "tier": "front"}}, "spec": {"runtime": {"pod": {}}%s}}}}`,
		name, replicas, policy, more), "create", "-f", "-")
	tm.members(name, replicas)
}

// members waits until a pool has so many members, all of them run, and nothing is left to be done.
func (tm *team) members(pool string, replicas int) {
	tm.Helper()
	for _, is := range []string{fmt.Sprintf(".status.replicas}=%d", replicas), ".status.conditions[?(@.type=='Ready')].status}=True"} {
		tm.must("", "wait", "svmpool/"+pool, "--for=jsonpath={"+is, "--timeout=10m") // a thousand take their time
	}
}

func (tm *team) names(selector string) string {
	tm.Helper()
	return tm.must("", "get", "svm", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
}

func TestPool(t *testing.T) {
	tm := newTeam(t)
	tm.pool("web", 3, "NewestFirst", "")
	if got := tm.names("app=web,tier=front"); got != "web-0 web-1 web-2" {
		t.Fatalf("the members are %s", got)
	}
	// A member that is deleted by hand comes again, under its own name.
	uid := tm.get("svm/web-1", ".metadata.uid")
	tm.must("", "delete", "svm", "web-1", "--timeout=3m")
	tm.must("", "wait", "svm/web-1", "--for=create", "--timeout=3m")
	tm.members("web", 3)
	if again := tm.get("svm/web-1", ".metadata.uid"); again == uid {
		t.Error("web-1 is what it was")
	}

	tm.must("", "scale", "svmpool", "web", "--replicas=1")
	tm.members("web", 1)
	tm.must("", "delete", "svmpool", "web", "--timeout=3m")
	tm.must("", "wait", "svm", "-l", "app=web", "--for=delete", "--timeout=3m")
}

// A change of the template comes to the members that are there: what was taken out of it goes, what others wrote stays.
func TestPoolTemplate(t *testing.T) {
	t.Parallel() // it waits ten seconds between two starts
	tm := newTeam(t)
	tm.pool("web", 2, "NewestFirst", `, "restartApprovalMode": "Automatic"`)
	tm.must("", "label", "svm", "web-0", "owner=ann")
	tm.must("", "patch", "svmpool", "web", "--type=merge", "-p",
		`{"spec": {"virtualMachineTemplate": {"metadata": {"labels": {"tier": null, "ring": "1"}}, "spec": {"cpu": 2}}}}`)
	tm.await("svmpool/web", ".status.observedGeneration", "2")
	tm.members("web", 2)
	if got := tm.names("ring=1,!tier"); got != "web-0 web-1" {
		t.Errorf("the label was changed on %q", got)
	}
	if got := tm.names("owner=ann"); got != "web-0" {
		t.Errorf("the label that somebody else wrote is on %q", got)
	}
	if got := tm.get("svm/web-1", ".spec.cpu"); got != "2" {
		t.Errorf("web-1 has cpu %s", got)
	}
	// One whose restart is for people to approve says so.
	tm.must("", "patch", "svmpool", "web", "--type=merge", "-p",
		`{"spec": {"virtualMachineTemplate": {"spec": {"cpu": 4, "restartApprovalMode": "Manual"}}}}`)
	tm.await("svmpool/web", ".status.restartPendingReplicas", "2")
	tm.await("svmpool/web", ".status.conditions[?(@.type=='Synced')].reason", "RestartPendingApproval")
	tm.must("", "wait", "svmpool/web", "--for=condition=Available", "--timeout=3m")
}

func TestPoolGarbage(t *testing.T) {
	for _, how := range depth.Of([]string{"foreground", "orphan"}, []string{"background", "foreground", "orphan"}) {
		t.Run(how, func(t *testing.T) {
			tm := newTeam(t)
			tm.pool("web", 2, "Explicit", "")
			tm.must("", "delete", "svmpool", "web", "--cascade="+how, "--timeout=3m")
			if how != "orphan" {
				tm.must("", "wait", "svm", "--all", "--for=delete", "--timeout=3m")
				return
			}
			if got := tm.names("app=web"); got != "web-0 web-1" {
				t.Errorf("there are %q", got)
			}
			// A pool of the same name takes in what the earlier one left, as one that was restored does.
			tm.pool("web", 3, "Explicit", "")
			if got := tm.names("app=web"); got != "web-0 web-1 web-2" {
				t.Errorf("there are %q", got)
			}
			tm.must("", "delete", "svmpool", "web", "--cascade=foreground", "--timeout=3m")
			tm.must("", "wait", "svm", "--all", "--for=delete", "--timeout=3m")
		})
	}
}

func TestPoolIsRefused(t *testing.T) {
	tm := newTeam(t)
	const template = `"virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}}}`
	for what, c := range map[string]struct{ name, spec, says string }{
		"a name that is too long":   {strings.Repeat("a", 59), `"scaleDownPolicy": "Explicit", ` + template, "metadata.name must have at most 58 characters"},
		"a name with dots":          {"a.b", `"scaleDownPolicy": "Explicit", ` + template, "and no dots"},
		"no policy":                 {"web", template, "spec.scaleDownPolicy: Required value"},
		"too many":                  {"web", `"replicas": 5001, "scaleDownPolicy": "Explicit", ` + template, "spec.replicas"},
		"no unavailability":         {"web", `"scaleDownPolicy": "Explicit", "rollout": {"maxUnavailable": "0%"}, ` + template, "spec.rollout.maxUnavailable must be"},
		"no template to follow":     {"web", `"scaleDownPolicy": "Explicit", "rollout": {"followTemplate": true}, ` + template, "spec.rollout.followTemplate needs spec.virtualMachineTemplate.spec.runtime.vsphere.clone.template.templateRef"},
		"a target twice":            {"web", `"scaleDownPolicy": "Explicit", "scaleDownTargets": [{"name": "a", "uid": "1"}, {"name": "b", "uid": "1"}], ` + template, "spec.scaleDownTargets[1]: Duplicate value"},
		"a label of the pool's own": {"web", `"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"metadata": {"labels": {"sallyport.dev/pool": "x"}}, "spec": {"runtime": {"pod": {}}}}`, "are set by the pool"},
		"a dead node for all":       {"web", `"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"metadata": {"annotations": {"sallyport.dev/source-fenced": "x"}}, "spec": {"runtime": {"pod": {}}}}`, "are for one object"},
		"an override for all":       {"web", `"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"metadata": {"annotations": {"sallyport.dev/override": "x"}}, "spec": {"runtime": {"pod": {}}}}`, "are for one object"},
		"machines that are adopted": {"web", `"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"spec": {"runtime": {"vsphere": {"serverRef": {"name": "vc"}, "inventoryPath": "/dc/vm/a"}}}}`, "adopts none"},
	} {
		t.Run(what, func(t *testing.T) {
			(&team{T: step.T{T: t}, namespace: tm.namespace}).refused(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool",
				"metadata": {"name": %q}, "spec": {%s}}`, c.name, c.spec), []string{"create", "-f", "-"}, c.says)
		})
	}
	tm.pool("web", 1, "Explicit", "")
	tm.refused("", []string{"patch", "svmpool", "web", "--type=merge", "-p", `{"spec": {"replicas": null}}`}, "spec.replicas cannot be removed once it is set")
}

// A pool makes each member with one request, and writes its own status once a second while something changes. A member that is started
// has its status written twice: it is taken, and its runtime about to be told; and it runs. Some of that may be tried twice.
func TestPoolWrites(t *testing.T) {
	depth.Only(t)
	tm := newTeam(t)
	const members = 200
	began := time.Now()
	tm.pool("web", members, "NewestFirst", "")
	made, took := tm.writes(), time.Since(began)
	t.Logf("%d members in %.1f s: %v", members, took.Seconds(), made)
	for what, most := range map[string]int{
		"create virtualmachines/": members, "update virtualmachines/status": 2*members + members/4,
		"update virtualmachinepools/status": 5 + 2*int(took.Seconds()),
		"patch virtualmachines/":            0, "delete virtualmachines/": 0,
	} {
		if made[what] > most {
			t.Errorf("%s: %d, want at most %d", what, made[what], most)
		}
	}
}

// writes counts what the manager wrote in the namespace, by verb and resource.
func (tm *team) writes() map[string]int {
	tm.Helper()
	log, err := os.ReadFile(stack.audit)
	tm.Must(err)
	counts := map[string]int{}
	for line := range strings.Lines(string(log)) {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Namespace, Resource, Subresource string }
		}
		tm.Must(json.Unmarshal([]byte(line), &e))
		if e.User.Username == stack.sallyport.User() && e.ObjectRef.Namespace == tm.namespace {
			counts[e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource]++
		}
	}
	return counts
}
