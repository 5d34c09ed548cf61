package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestWhyAMachine(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Stopped")
	name := tm.created(tm.sallyport("start web-1", 0))
	tm.status("svmop/"+name, unfinished("InProgress", "InProgress", "the runtime is busy", ""))
	tm.status("svm/web-1", `{"phase": "Starting", "activeOperation": {"id": "`+tm.get("svmop/"+name, ".metadata.uid")+`", "origin": "Operation",
		"name": "`+name+`", "type": "Start", "claimedAt": "2026-01-02T03:04:05.000000Z"}}`)
	r := tm.sallyport("why svm web-1", 0, "VirtualMachine web-1 in namespace "+tm.namespace, "Sallyport has not looked at it yet",
		"Start "+name, "InProgress: the runtime is busy", "AlwaysOnUnlessStoppedManually")
	for _, line := range []string{
		`(?m)^  accepted  stop, stop --force, delete$`,
		`(?m)^  refused   start, .*evict.*:$`,
		`(?m)^ {12}PhaseForbids: VirtualMachine web-1 is Starting and cannot carry out this$`,
		`(?m)^ {12}OperationInProgress: Start web-1-start-\w+ of VirtualMachine web-1 is InProgress and does not yield to this$`,
	} {
		if !regexp.MustCompile(line).MatchString(r.stdout) {
			t.Errorf("there is no line %s", line)
		}
	}
	if got := tm.must("", "get", "svmop", "-o", "name"); strings.Count(got, "\n") != 1 {
		t.Errorf("the question left something behind: %s", got)
	}
	var known machineReport
	if err := json.Unmarshal([]byte(tm.sallyport("why svm/web-1 -o json", 0).stdout), &known); err != nil {
		t.Fatal(err)
	}
	if known.Machine.Name != "web-1" || len(known.Unfinished) != 1 || len(known.Requests) != len(asked) || known.Requests[0].Reasons[0].Policy == "" {
		t.Errorf("known as JSON is %+v", known)
	}
	tm.sallyport("why svmop "+name, 0, "Start of VirtualMachine web-1", "InProgress: the runtime is busy", "which is this one", "Deadline:", "Asked for:")
	tm.sallyport("why svm nobody", 1, `Error from server (NotFound): virtualmachines.sallyport.dev "nobody" not found`)
	tm.sallyport("why svmop/nobody", 1, "operations are deleted some time after their end")
}

// One reason is enough where all are the same.
func TestWhyATerminatingMachine(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.must("", "delete", "svm", "web-1", "--wait=false")
	tm.sallyport("why web-1", 0, "Deletion:", "waits for the finalizers sallyport.dev/virtual-machine",
		"  accepted  delete\n  refused   start, stop, stop --force, restart, restart --force, migrate, migrate --force, evict, evict --force:\n"+
			"            VirtualMachineTerminating: VirtualMachine web-1 is being deleted, since 2")
}

// What people read, of everything at once. UPDATE=1 writes it anew.
func TestTexts(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 14, 5, 0, time.UTC)
	for name, r := range map[string]report{"machine": &machineReport{}, "operation": &operationReport{}, "ended": &operationReport{}} {
		t.Run(name, func(t *testing.T) {
			given, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(given, r); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

// golden compares with a file. UPDATE=1 writes it anew.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("people read\n%s\nand should read\n%s", got, want)
	}
}

func TestOutcomes(t *testing.T) {
	condition := func(reason v1alpha1.ConditionReason) []metav1.Condition {
		return []metav1.Condition{v1alpha1.ConditionCompleted.Condition(metav1.ConditionTrue, reason, 1, "")}
	}
	for want, status := range map[string]v1alpha1.VirtualMachineOperationStatus{
		"":                                 {Phase: v1alpha1.OperationCompleted, Conditions: condition(v1alpha1.ReasonSucceeded)},
		"was superseded by something else": {Phase: v1alpha1.OperationCompleted, Conditions: condition(v1alpha1.ReasonSuperseded)},
		"was superseded by the deletion of the machine": {Phase: v1alpha1.OperationCompleted, SupersededBy: &v1alpha1.OperationReference{UID: "u"}},
		"has not succeeded: Completed":                  {Phase: v1alpha1.OperationCompleted},
		"has not succeeded: Failed, Denied":             {Phase: v1alpha1.OperationFailed, Conditions: condition("Denied")},
	} {
		err := outcome(&v1alpha1.VirtualMachineOperation{Status: status})
		if got := errText(err); got != want {
			t.Errorf("%+v: got %q, want %q", status, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
