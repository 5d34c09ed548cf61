package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/step"
)

// ended is the status of an operation that has ended.
func ended(phase, reason, message, rest string) string {
	completed := "False"
	if phase == "Completed" {
		completed = "True"
	}
	return fmt.Sprintf(`{"phase": %q, "completionTime": "2026-01-02T03:04:05Z"%s, "conditions": [{"type": "Completed", "status": %q,
		"reason": %q, "message": %q, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}`, phase, rest, completed, reason, message)
}

// unfinished is the status of an operation on its way.
func unfinished(phase, reason, message, rest string) string {
	return strings.Replace(ended(phase, reason, message, rest), `"completionTime": "2026-01-02T03:04:05Z"`, `"observedGeneration": 1`, 1)
}

// waiting is a plugin that waits for an operation.
type waiting struct {
	*team
	command   *exec.Cmd
	stdout    bytes.Buffer
	stderr    string // a file, which can be read meanwhile
	done      chan struct{}
	operation string
}

// waitFor runs a command that waits, and returns when its operation is there.
func (tm *team) waitFor(line string) *waiting {
	tm.Helper()
	w := &waiting{team: tm, done: make(chan struct{}), stderr: filepath.Join(tm.TempDir(), "stderr")}
	stderr, err := os.Create(w.stderr)
	if err != nil {
		tm.Fatal(err)
	}
	defer stderr.Close()
	args := append(append([]string{"sallyport"}, strings.Fields(line)...), "--wait", "--namespace", tm.namespace)
	w.command = exec.CommandContext(tm.Context(), started.plane.Assets.Kubectl, args...)
	w.command.Stdout, w.command.Stderr = &w.stdout, stderr
	w.command.Env = append(os.Environ(), "KUBECONFIG="+started.plane.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(started.dir, "cache"))
	if err := w.command.Start(); err != nil {
		tm.Fatal(err)
	}
	go func() {
		defer close(w.done)
		_ = w.command.Wait() // the exit code is looked at in end
	}()
	w.until(": Pending: waiting to be reconciled")
	w.operation = strings.TrimSpace(tm.must("", "get", "svmop", "-o", "name", "--sort-by=.spec.virtualMachineName"))
	return w
}

// until waits until the user has read a text.
func (w *waiting) until(text string) {
	w.Helper()
	err := step.Await(w.Context(), func(context.Context) (bool, error) {
		return strings.Contains(w.read(), text), nil
	})
	if err != nil {
		w.Fatalf("waiting for %q in\n%s", text, w.read())
	}
}

// read is what the user has read so far.
func (w *waiting) read() string {
	w.Helper()
	text, err := os.ReadFile(w.stderr)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// end wants the command to end with that exit code and those texts, in that order.
func (w *waiting) end(code int, texts ...string) {
	w.Helper()
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		w.Fatalf("still waiting: %s", w.read())
	}
	line := strings.Join(w.command.Args[2:], " ")
	w.reads(line, result{w.stdout.String(), w.read(), w.command.ProcessState.ExitCode()}, code)
	rest := w.read()
	for _, text := range texts {
		var found bool
		if _, rest, found = strings.Cut(rest, text); !found {
			w.Errorf("%s: %q is not in its place", line, text)
		}
	}
}

func TestWaitingForSuccess(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	w := tm.waitFor("stop web-1")
	tm.status(w.operation, unfinished("Pending", "Waiting", "waiting for Restart op-2 to be undone", ""))
	w.until("waiting for Restart op-2 to be undone")
	time.Sleep(3 * time.Second) // meanwhile the API server ends the watch
	tm.status(w.operation, unfinished("InProgress", "InProgress", "the guest shuts down", `, "progress": 40`))
	w.until("40 %")
	tm.status(w.operation, ended("Completed", "Succeeded", "the machine was seen in the wanted state", ""))
	w.end(0, ": Pending: waiting to be reconciled\n", ": Pending, Waiting: waiting for Restart op-2 to be undone\n",
		": InProgress, 40 %: the guest shuts down\n", ": Completed, Succeeded: the machine was seen in the wanted state\n")
}

func TestWaitingInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		line   string
		happen func(*waiting)
		texts  []string
	}{
		"superseded": {"stop web-1", func(w *waiting) {
			w.status(w.operation, ended("Completed", "Superseded", "superseded by operation web-1-restart-x", `, "supersededBy": {"name": "web-1-restart-x", "uid": "u"}`))
		}, []string{"error: Stop web-1-stop-", " of web-1 was superseded by operation web-1-restart-x\n"}},
		"failed": {"stop web-1 --force", func(w *waiting) {
			w.status(w.operation, ended("Failed", "DeadlineExceeded", "the operation did not finish within 10m0s of its creation", ""))
		}, []string{"error: forced Stop web-1-stop-", "did not succeed: Failed, DeadlineExceeded: the operation did not finish within 10m0s"}},
		"deleted": {"stop web-1", func(w *waiting) { w.must("", "delete", w.operation) },
			[]string{"error: Stop web-1-stop-", "was deleted before it finished"}},
		"too long": {"stop web-1 --timeout 2s", func(*waiting) {},
			[]string{"error: timed out after 2s waiting for web-1-stop-", "continues in the cluster", "kubectl sallyport why svmop/web-1-stop-", "kubectl delete svmop/web-1-stop-"}},
		"interrupted": {"stop web-1", func(w *waiting) {
			_ = w.command.Process.Signal(syscall.SIGINT)
		}, []string{"error: stopped waiting for web-1-stop-", "continues in the cluster"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			tm := newTeam(t)
			tm.machine("web-1", "Running")
			w := tm.waitFor(tc.line)
			tc.happen(w)
			w.end(1, tc.texts...)
		})
	}
}

// One that has ended is deleted when its time is up; that it succeeded is still seen.
func TestWaitingForOneThatIsSoonDeleted(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	w := tm.waitFor("stop web-1 --ttl 0s")
	tm.must("", "patch", w.operation, "--type=merge", "-p", `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	tm.status(w.operation, ended("Completed", "Succeeded", "done", ""))
	tm.must("", "delete", w.operation, "--wait=false")
	tm.must("", "patch", w.operation, "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
	w.end(0, "Completed, Succeeded: done")
}

// All are waited for at once, and one that fails does not hide how the others ended.
func TestWaitingForSeveral(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.machine("web-2", "Running")
	w := tm.waitFor("stop web-1 web-2 nobody")
	operations := strings.Fields(w.operation)
	tm.status(operations[1], ended("Failed", "RuntimeFailed", "no disk", ""))
	tm.status(operations[0], ended("Completed", "Succeeded", "done", ""))
	w.end(1)
	for _, text := range []string{"Completed, Succeeded: done", "of web-2 did not succeed: Failed, RuntimeFailed: no disk", "nobody does not exist"} {
		if !strings.Contains(w.read(), text) {
			t.Errorf("the user does not read %q", text)
		}
	}
}
