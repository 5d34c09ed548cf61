package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
	"sallyport.dev/sallyport/webhooks/record"
)

var create = []string{"create", "-f", "-"}

// starting is a machine that a Start is bringing up.
func starting(t *testing.T) *team {
	t.Helper()
	tm := newTeam(t)
	tm.machine("web-1", "Stopped")
	t.Cleanup(stack.world.Hold(tm.uid("web-1"), runtime.TaskPowerOn))
	tm.must(operation("start-1", "web-1", "Start"), create...)
	tm.await("svmop/start-1", ".status.phase", "InProgress")
	return tm
}

// The main job: while a Start is unfinished, another one is refused with what blocks and what would be accepted, however it
// is asked for; a Stop takes its place.
func TestStartDuringStartIsRefusedAndStopAdmitted(t *testing.T) {
	reads := []string{
		"[operations-supersede/OperationInProgress] VirtualMachine web-1: start is not allowed because Start start-1 is in progress",
		"allowed now: stop, stop --force",
	}
	ways := map[string][]string{
		"create":                create,
		"server-side dry-run":   {"create", "--dry-run=server", "-f", "-"},
		"apply":                 {"apply", "-f", "-"},
		"server-side apply":     {"apply", "--server-side", "-f", "-"},
		"server-side apply dry": {"apply", "--server-side", "--dry-run=server", "-f", "-"},
	}
	for name, args := range ways {
		if !depth.Deep() && name != "create" && name != "apply" {
			continue
		}
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			tm := starting(t)
			tm.refused(operation("start-2", "web-1", "Start"), args, reads...)
			// With HTTP 409 kubectl would take the refusal of an apply for a conflict of field managers, and say so.
			if r := tm.kubectl(operation("start-2", "web-1", "Start"), args...); strings.Contains(r.stderr, "managers") {
				t.Errorf("the user reads advice about something else:\n%s", r.stderr)
			}
			tm.must(operation("stop-1", "web-1", "Stop"), args...)
		})
	}
	t.Run("generateName", func(t *testing.T) {
		tm := starting(t)
		tm.refused(operation("start-", "web-1", "Start"), create, reads...)
		tm.must(operation("stop-", "web-1", "Stop"), create...)
	})
}

func TestDryRunLeavesNothingBehind(t *testing.T) {
	tm := starting(t)
	tm.must(operation("stop-1", "web-1", "Stop"), "create", "--dry-run=server", "-f", "-")
	tm.refused("", []string{"get", "svmop", "stop-1"}, "not found")
	tm.must(operation("stop-2", "web-1", "Stop"), create...) // an admitted dry-run blocks nobody
	awaitRecords(t, tm.namespace, "exactly the two records of the dry-run marked so", func(records []record.Record) bool {
		marked := map[string]int{}
		for _, r := range records {
			if r.DryRun {
				marked[r.Endpoint]++
			}
		}
		return len(marked) == 2 && marked["mutate"] == 1 && marked["validate"] == 1
	})
}

// What is wrong with a request is said by whoever knows best: the schema, or a policy. The message names the field.
func TestBadOperationsAreRefusedByName(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.machine("old-1", "Running")
	tm.must("", "patch", "svm", "old-1", "--type=merge", "-p", `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	tm.must("", "delete", "svm", "old-1", "--wait=false")
	tm.machine("always-1", "Running", `, "runPolicy": "AlwaysOn"`)
	for name, tc := range map[string]struct {
		manifest string
		texts    []string
	}{
		"no such machine": {operation("op", "nobody", "Stop"),
			[]string{"spec.virtualMachineName", "[operations-applicability/VirtualMachineNotFound]", "nobody does not exist in namespace"}},
		"force on Start":        {operation("op", "web-1", "Start", `, "force": true`), []string{"spec.force"}},
		"unknown type":          {operation("op", "web-1", "Explode"), []string{"spec.type", "Explode", `"Restart"`}},
		"no machine named":      {operation("op", "", "Stop"), []string{"spec.virtualMachineName"}},
		"a terminating machine": {operation("op", "old-1", "Stop"), []string{"VirtualMachineTerminating", "old-1: stop is not allowed because it is being deleted"}},
		"against the run policy": {operation("op", "always-1", "Stop"),
			[]string{"RunPolicyForbids", "stop is not allowed because its run policy is AlwaysOn", "restart"}},
		"against the phase": {operation("op", "web-1", "Start"), []string{"PhaseForbids", "web-1: start is not allowed because its phase is Running"}},
	} {
		t.Run(name, func(t *testing.T) {
			tm := &team{T: step.T{T: t}, namespace: tm.namespace}
			tm.refused(tc.manifest, create, tc.texts...)
		})
	}
}

// Who asked, when, and for which machine is said by the webhook. A client that says it has a copy, as out of a backup, which lost its
// status and would be carried out again: velero#2554.
func TestOperationsAreStamped(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	for field, value := range map[string]string{
		"virtualMachineUID": `"forged"`, "requestedAt": `"2001-01-01T00:00:00.000000000Z"`, "requestedBy": `{"username": "forged"}`, "override": `"forged"`,
	} {
		manifest := operation("copy-1", "web-1", "Stop", fmt.Sprintf(`, %q: %s`, field, value))
		for _, how := range [][]string{create, append(slices.Clone(create), "--dry-run=server"), {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}}[:depth.Of(1, 4)] {
			tm.refused(manifest, how, "[operations-copies/OperationCopied]", "kubectl sallyport stop web-1 -n "+tm.namespace)
		}
	}
	tm.must(operation("stop-1", "web-1", "Stop"), create...)
	// What it has become is no more accepted than what was forged.
	exported := tm.must("", "get", "svmop/stop-1", "-o", `go-template={"apiVersion":"{{.apiVersion}}","kind":"{{.kind}}","metadata":{"name":"again"},`+
		`"spec":{"type":"Stop","virtualMachineName":"web-1","virtualMachineUID":"{{.spec.virtualMachineUID}}","requestedAt":"{{.spec.requestedAt}}",`+
		`"requestedBy":{"username":"{{.spec.requestedBy.username}}"}}}`)
	tm.refused(exported, create, "[operations-copies/OperationCopied]")
	if got, want := tm.get("svmop/stop-1", ".spec.virtualMachineUID"), tm.get("svm/web-1", ".metadata.uid"); got != want {
		t.Errorf("virtualMachineUID is %q, want the machine's %q", got, want)
	}
	who := tm.must("", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if got := tm.get("svmop/stop-1", ".spec.requestedBy.username"); got != who {
		t.Errorf("requestedBy is %q, want %q", got, who)
	}
	if got := tm.get("svmop/stop-1", ".spec.requestedAt"); strings.HasPrefix(got, "2001") || !regexp.MustCompile(`\.\d{9}Z$`).MatchString(got) {
		t.Errorf("requestedAt is %q", got)
	}
	if got := tm.get("svmop/stop-1", `.metadata.labels.sallyport\.dev/virtual-machine`); got != "web-1" {
		t.Errorf("the label names machine %q", got)
	}
	if got := tm.get("svm/web-1", ".metadata.finalizers"); !strings.Contains(got, "sallyport.dev/virtual-machine") {
		t.Errorf("the machine's finalizers are %s", got)
	}
}

// A VirtualMachine that is deleted goes when nothing of it is on the runtime any more, and not before.
func TestDeletionWaitsForWhatIsOnTheRuntime(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Stopped")
	tm.must("", "delete", "svm", "web-1", "--timeout=3m") // kubectl waits until it is gone
	tm.machine("web-2", "Stopped")
	uid := tm.uid("web-2")
	release := stack.world.Hold(uid, runtime.TaskDelete)
	tm.must("", "delete", "svm", "web-2", "--wait=false")
	tm.machine("web-3", "Stopped")
	tm.must("", "delete", "svm", "web-3", "--timeout=3m") // by then the reconciler has seen web-2 too
	if got := tm.get("svm/web-2", ".metadata.finalizers"); !strings.Contains(got, "sallyport.dev/virtual-machine") {
		t.Errorf("the machine on the runtime was forgotten: finalizers %s", got)
	}
	release()
	tm.must("", "wait", "--for=delete", "svm/web-2", "--timeout=3m")
	if _, exists := stack.world.Instance(uid); exists {
		t.Error("the VirtualMachine is gone, its machine is not")
	}
}

func TestOperationsAreImmutableButNotTheirMetadata(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	manifest := operation("stop-1", "web-1", "Stop")
	tm.must(manifest, create...)
	tm.await("svmop/stop-1", ".status.phase", "Completed")
	stamp := tm.get("svmop/stop-1", ".spec.requestedAt")
	tm.refused("", []string{"patch", "svmop", "stop-1", "--type=merge", "-p", `{"spec": {"force": true}}`}, "create another operation")
	// A client that sends back only what it knows of the spec does not change it.
	tm.replace(strings.Replace(manifest, `"name": "stop-1"`, `"name": "stop-1", "labels": {"ticket": "42"}`, 1))
	if got := tm.get("svmop/stop-1", ".spec.requestedAt"); got != stamp {
		t.Errorf("requestedAt became %q, was %q", got, stamp)
	}
	if got := tm.get("svmop/stop-1", ".metadata.labels.ticket"); got != "42" {
		t.Errorf("the label is %q", got)
	}
}

// replace replaces an object that a reconciler may be changing at the same time: kubectl reads it and writes it.
func (tm *team) replace(manifest string) {
	tm.Helper()
	err := step.Await(tm.Context(), func(context.Context) (bool, error) {
		r := tm.kubectl(manifest, "replace", "-f", "-")
		if r.code != 0 && !strings.Contains(r.stderr, "the object has been modified") {
			return false, errors.New(r.stderr)
		}
		return r.code == 0, nil
	})
	if err != nil {
		tm.Fatalf("kubectl replace: %v", err)
	}
}

func TestFinishedOperationsBlockNobody(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Stopped")
	t.Cleanup(stack.world.Hold(tm.uid("web-1"), runtime.TaskPowerOn))
	tm.must(operation("start-1", "web-1", "Start", `, "activeDeadlineSeconds": 1`), create...)
	tm.await("svmop/start-1", ".status.phase", "Failed")
	// At once: a cache that still shows the last one unfinished must not refuse.
	tm.must(operation("stop-1", "web-1", "Stop"), create...) // whether the machine is still Starting or already Stopped
	tm.await("svmop/stop-1", ".status.phase", "Completed")
	tm.must(operation("start-2", "web-1", "Start"), create...)
}

func TestOperationsOfOtherMachinesAndNamespacesBlockNobody(t *testing.T) {
	tm := starting(t)
	tm.machine("web-2", "Stopped")
	tm.must(operation("start-2", "web-2", "Start"), create...)
	other := &team{T: step.T{T: t}, namespace: tm.namespace + "-b"}
	other.must("", "create", "namespace", other.namespace)
	other.machine("web-1", "Stopped")
	other.must(operation("start-1", "web-1", "Start"), create...)
}

// A denial is never from a cache that is behind, and its record says where each fact came from.
func TestDenialsAreConfirmedLive(t *testing.T) {
	tm := starting(t)
	tm.refused(operation("start-2", "web-1", "Start"), create)
	records := awaitRecords(t, tm.namespace, "a denial", func(records []record.Record) bool {
		return len(records) > 0 && !records[len(records)-1].Allowed
	})
	last := records[len(records)-1]
	for _, p := range last.Policies {
		for name, fact := range p.Facts {
			if fact.Query != nil && (!fact.Live || fact.ResourceVersion == "") {
				t.Errorf("%s denied on fact %s, live %v at resourceVersion %q", p.Policy, name, fact.Live, fact.ResourceVersion)
			}
		}
	}
	audit, err := os.ReadFile(stack.audit)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"validate.sallyport.dev/decision":"` + string(last.ID) + `"`; !strings.Contains(string(audit), want) {
		t.Errorf("the audit log does not have %s", want)
	}
	metrics, err := stack.sallyport.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics, `sallyport_decisions_total{endpoint="validate",mode="Enforce",policy="operations-supersede",reason="OperationInProgress",verdict="denied"}`) {
		t.Errorf("the denial is not counted: %v", err)
	}
}
