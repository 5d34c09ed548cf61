package plugin

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// What Sallyport would act on after a restore of etcd is listed before it is allowed. That nothing is sent until then, and that it is
// afterwards, is tested by TestFailover of test/walks/chart.
func TestResume(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport("resume", 0, "No restore of etcd waits for this command")
	const configuration = "validatingwebhookconfiguration/sallyport-policies"
	tm.must("", "annotate", configuration, "sallyport.dev/restored=2026-11-29T10:00:00Z")
	const looked = `{"type": "ReadOnly", "status": "True", "reason": "ReadOnly", "message": "", "lastTransitionTime": "2026-11-29T10:00:00Z"}`
	for name, message := range map[string]string{
		"differs": "the machine is off, and run policy AlwaysOn wants it on: " + runtime.Message(runtime.ErrRestored),
		"missing": runtime.Message(runtime.ErrRestored),
		"done":    "",
	} {
		tm.machine(name, "Stopped")
		tm.status("svm/"+name, fmt.Sprintf(`{"conditions": [%s, {"type": "Ready", "status": "False", "reason": "ReadOnly", "message": %q,
			"lastTransitionTime": "2026-11-29T10:00:00Z"}]}`, looked, message))
	}
	tm.machine("unseen", "Stopped")
	listed := []string{"A restore of etcd was noticed at 2026-11-29T10:00:00Z", "has not looked at since", "resume --yes"}
	r := tm.sallyport("resume", 1, listed...)
	rows := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		if cells := strings.Fields(line); len(cells) > 2 && cells[0] == tm.namespace {
			rows[cells[1]] = strings.Join(cells[2:], " ")
		}
	}
	want := map[string]string{
		"VirtualMachine/differs": "the machine is off, and run policy AlwaysOn wants it on",
		"VirtualMachine/missing": "the machine does not exist yet",
	}
	if fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("listed: %v, want %v", rows, want)
	}
	tm.sallyport("resume --yes --dry-run=server", 0, "acts on machines again (server dry run)")
	tm.sallyport("resume", 1, listed...)
	tm.sallyport("resume --yes", 0, "VirtualMachine/differs", "acts on machines again")
	tm.sallyport("resume", 0, "No restore of etcd waits for this command")
}
