package plugin

import (
	"testing"
)

// What is held back is taken over, or made anew, by whoever holds the verb, and nothing else is: velero#2554.
func TestTakeOver(t *testing.T) {
	tm := newTeam(t)
	const held = `{"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "reason": "OwnedByAnother", "message": "held", "lastTransitionTime": "2026-01-02T15:04:05Z"}]}`
	for _, name := range []string{"web-1", "web-2"} {
		tm.machine(name, "Pending")
		tm.status("svm/"+name, held)
	}
	tm.machine("db-1", "Running")
	annotation := func(name, key string) string { return tm.get("svm/"+name, `.metadata.annotations.sallyport\.dev/`+key) }

	editor := tm.namespace + "-editor"
	tm.bind("rolebinding", "sallyport-edit", editor)
	tm.bind("rolebinding", "sallyport-view", editor)
	tm.sallyport("take-over svm web-1 --as "+editor, 1, "[machines-abandon/AbandonNotAllowed]", editor+" cannot set annotation sallyport.dev/take-over")
	tm.sallyport("make-anew svm web-1 --as "+editor, 1, "[machines-abandon/AbandonNotAllowed]")
	tm.sallyport("take-over svm web-1 --dry-run=client", 0, "virtualmachines.sallyport.dev/web-1 takes over", "(dry run)")
	tm.sallyport("take-over svm/web-1 --dry-run=server", 0, "(server dry run)")
	if got := annotation("web-1", "take-over"); got != "" {
		t.Errorf("web-1 has the annotation %s", got)
	}
	tm.sallyport("take-over svm --all", 0, "virtualmachines.sallyport.dev/web-1 takes over what the runtime has for its name", "web-2 takes over")
	for _, name := range []string{"web-1", "web-2"} {
		if got, uid := annotation(name, "take-over"), tm.get("svm/"+name, ".metadata.uid"); got != uid {
			t.Errorf("%s has the annotation %q, want its UID %s", name, got, uid)
		}
	}
	tm.sallyport("make-anew svm web-2", 0, "virtualmachines.sallyport.dev/web-2 is created anew")
	if over, anew := annotation("web-2", "take-over"), annotation("web-2", "make-anew"); over != "" || anew == "" {
		t.Errorf("web-2 has the annotations take-over=%q and make-anew=%q", over, anew)
	}
	if got := annotation("db-1", "take-over"); got != "" {
		t.Errorf("db-1, which runs, has the annotation %s", got)
	}
	tm.sallyport("take-over svm db-1", 1, "db-1: not held back")
	tm.sallyport("take-over svm", 1, "KIND with -l or --all", "--help")
	tm.sallyport("take-over svm web-1 --all", 1, "name cannot be provided when --all is specified", "--help")
}
