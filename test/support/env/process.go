package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// tailLines is how much of a log an error carries.
	tailLines = 25
	// tailBytes is how much of a log is kept.
	tailBytes = 64 << 10
)

// tail keeps the end of what is written to it.
type tail struct {
	copyTo io.Writer // may be nil

	mu  sync.Mutex
	buf []byte
}

func newTail(copyTo io.Writer) *tail { return &tail{copyTo: copyTo} }

// Write never fails: an error would end the pipe, and with it the process that writes.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	// Cut at twice the size, so that it is not done for every line.
	if len(t.buf) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	if t.copyTo != nil {
		_, _ = t.copyTo.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// last returns the last n lines.
func (t *tail) last(n int) string {
	lines := strings.Split(strings.TrimRight(t.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// runDir is the folder of one running control plane: whatever it writes, and the pids of its processes.
type runDir string

func (d runDir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// launcher writes the script that starts a component and returns its path. The script notes the pid, which envtest keeps
// to itself, and becomes the component.
func (d runDir) launcher(name, binary string) (string, error) {
	// A proxy of the environment would be asked for webhooks too: their host is <service>.<namespace>.svc, not loopback.
	// Whoever runs tests has more memory than time: garbage is collected more seldom.
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%s\nunset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY\nexport GOGC=\"${GOGC:-400}\"\nexec %s \"$@\"\n",
		quote(d.path(name+".pid")), quote(binary))
	path := d.path("run-" + name)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("launcher of %s: %w", name, err)
	}
	return path, nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// processes returns handles of the processes that the launchers of that name, or pattern, became, as far as they still run.
func (d runDir) processes(name string) []*os.Process {
	files, _ := filepath.Glob(d.path(name + ".pid"))
	var found []*os.Process
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			continue
		}
		// First the handle, then the look at whose it is: a pid that went to another process meanwhile is never taken.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Contains(cmdline, []byte(d)) {
			_ = process.Release()
			continue
		}
		found = append(found, process)
	}
	return found
}

// kill ends processes of the control plane and returns when they are gone. There is nothing to save in them, and an
// API server that is asked to stop waits for the watches of its clients.
func (d runDir) kill(name string) error {
	processes := d.processes(name)
	for _, p := range processes {
		if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("ending process %d: %w", p.Pid, err)
		}
	}
	for _, p := range processes {
		// Those who started them reap them; until then they can still be signalled.
		err := wait.PollUntilContextTimeout(context.Background(), 2*time.Millisecond, 10*time.Second, true,
			func(context.Context) (bool, error) { return p.Signal(nullSignal) != nil, nil })
		if err != nil {
			return fmt.Errorf("process %d was killed but has not ended: %w", p.Pid, err)
		}
		_ = p.Release()
	}
	return nil
}

// guardScript ends the control plane of a process that died without doing so (a test that ran into its timeout, a Ctrl-C)
// and removes its folder. It notices by the end of its standard input, which only that process could write to.
const guardScript = `read -r line && exit 0
for file in "$1"/*.pid; do
  read -r pid <"$file" && grep -qF "$1" "/proc/$pid/cmdline" && kill -KILL "$pid"
done
rm -rf "$1" || { sleep 1; rm -rf "$1"; }`

// guard starts the guard and returns the function that dismisses it.
func (d runDir) guard() (func(), error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "sallyport-env-guard", string(d))
	cmd.SysProcAttr = ownGroup()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard of the control plane: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard of the control plane: %w", err)
	}
	return func() {
		_, _ = io.WriteString(stdin, "dismissed\n")
		_ = cmd.Wait()
	}, nil
}

// Daemon is a process that is killed when the one that started it dies.
type Daemon struct {
	process *os.Process
	ended   chan struct{}
	err     error
}

// StartDaemon starts a command as a daemon, out of reach of the terminal's signals.
func StartDaemon(cmd *exec.Cmd) (*Daemon, error) {
	cmd.SysProcAttr = dieWithParent(ownGroup())
	d := &Daemon{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel takes this thread for the parent. It stays locked to the goroutine and so lives as long as that.
		runtime.LockOSThread()
		defer close(d.ended)
		err := cmd.Start()
		d.process = cmd.Process
		started <- err
		if err == nil {
			d.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return d, nil
}

// Ended is closed when the process is gone.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// Err says how the process ended; to be asked after Ended.
func (d *Daemon) Err() error { return d.err }

// Pause stops the process, until resume is called.
func (d *Daemon) Pause() (resume func() error, err error) {
	return func() error { return d.process.Signal(resumeSignal) }, d.process.Signal(pauseSignal)
}

// Kill ends the process without asking it, and returns when it is gone.
func (d *Daemon) Kill() error {
	if err := d.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", d.process.Pid, err)
	}
	<-d.ended
	return nil
}

// Stop asks the process to end, kills it if it has not done so in time, and returns when it is gone.
func (d *Daemon) Stop(patience time.Duration) error {
	if err := d.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("asking process %d to end: %w", d.process.Pid, err)
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(patience):
	}
	err := d.process.Kill()
	<-d.ended
	return errors.Join(fmt.Errorf("process %d did not end within %v and was killed", d.process.Pid, patience), err)
}
