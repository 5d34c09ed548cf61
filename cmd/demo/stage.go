package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/vcsim"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
)

// The machines of the demo.
const web1, web2, db1 = "web-1", "web-2", "db-1"

// inventory is the folder that they are in.
const inventory = "/DC0/vm/"

// The login of Sallyport at the vCenter.
const loginName, loginPassword = "sallyport@vsphere.local", "between-two-doors"

// visible is how long a task of the vCenter takes: long enough to be seen, too short to be bored.
const visible = 300 * time.Millisecond

// stage is what the demo plays on: a control plane, a vCenter, Sallyport, and a folder of its own.
type stage struct {
	dir       string
	plane     *env.ControlPlane
	vcenter   *vcsim.VCenter
	sallyport *install.Sallyport
	undo      []func() error
}

// newStage gives the stage also with an error, to be closed as far as it was made.
func newStage(ctx context.Context, p terminal.Printer) (s *stage, err error) {
	s = &stage{}
	if _, err := exec.LookPath("go"); err != nil {
		return s, fmt.Errorf("looking for Go, which builds what the demo runs: %w; see https://go.dev/dl", err)
	}
	if s.dir, err = os.MkdirTemp("", "sallyport-demo-"); err != nil {
		return s, err
	}
	s.onClose(func() error { return os.RemoveAll(s.dir) })
	for _, start := range []func(context.Context, terminal.Printer) error{s.buildPrograms, s.startControlPlane, s.startVCenter, s.startSallyport} {
		if err := start(ctx, p); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stage) onClose(undo func() error) { s.undo = append(s.undo, undo) }

// close undoes all, the last first.
func (s *stage) close() (err error) {
	for _, undo := range slices.Backward(s.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

// programs are what a user has: the plugin of kubectl, and what also runs in the cluster.
var programs = []string{"sallyport.dev/sallyport/cmd/kubectl-sallyport", "sallyport.dev/sallyport/cmd/sallyport"}

// buildPrograms makes a folder for PATH, with what a user types but for kubectl.
func (s *stage) buildPrograms(ctx context.Context, p terminal.Printer) error {
	p.Say("Building sallyport, and kubectl-sallyport, its plugin for kubectl (a minute the first time) ...")
	bin := s.path("bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", bin + "/"}, programs...)...)
	build.Cancel = func() error { return build.Process.Signal(syscall.SIGINT) } // it then removes what it has made so far
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs: %w; needed are a clone of the repository as the working folder (make demo) and a "+
			"module proxy that can be reached (GOPROXY)\n%s", err, out)
	}
	return os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func (s *stage) startControlPlane(ctx context.Context, p terminal.Printer) error {
	p.Say("Starting a Kubernetes control plane on this machine (etcd, kube-apiserver) ...")
	// It ends after what needs it, not with the context.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	interruptible := context.AfterFunc(ctx, end)
	logf := func(format string, args ...any) { p.Say("  "+format, args...) }
	var err error
	s.plane, err = env.Start(lasting, env.Options{Logf: logf})
	interruptible()
	if err != nil {
		return err
	}
	s.onClose(s.plane.Stop)
	helm, err := env.Helm(ctx, logf)
	if err != nil {
		return err
	}
	return errors.Join(os.Symlink(s.plane.Assets.Kubectl, s.path("bin/kubectl")), os.Symlink(helm, s.path("bin/helm")))
}

func (s *stage) startVCenter(_ context.Context, p terminal.Printer) (err error) {
	p.Say("Starting a simulated vCenter with three machines: %s is off, %s and %s are on ...", web1, web2, db1)
	if s.vcenter, err = vcsim.Start(vcsim.Options{Step: visible}); err != nil {
		return err
	}
	s.onClose(func() error { s.vcenter.Close(); return nil })
	s.vcenter.SetUser(url.UserPassword(loginName, loginPassword))
	for _, name := range []string{web1, web2, db1} {
		path, err := s.vcenter.AddMachine(name)
		if err != nil {
			return err
		}
		if name != web1 {
			s.vcenter.SetPower(path, v1alpha1.PowerRunning)
		}
	}
	return nil
}

func (s *stage) startSallyport(ctx context.Context, p terminal.Printer) error {
	p.Say("Installing Sallyport with Helm; its manager makes a certificate and ships the policies ...")
	logs, err := os.Create(s.path("manager.log"))
	if err != nil {
		return err
	}
	s.onClose(logs.Close)
	s.sallyport, err = install.Start(ctx, s.plane, install.Options{
		Binary: s.path("bin/sallyport"), Logs: logs,
		// It looks more often than it need, so that nobody waits for it here.
		Flags: []string{"--decision-records", s.path("decisions.jsonl"), "--poll-interval", "300ms", "--resync-interval", "2s"},
	})
	if err != nil {
		return fmt.Errorf("%w\nthe end of what the manager logged:\n%s", err, s.logTail())
	}
	s.onClose(s.sallyport.Remove)
	return nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// logTail gives the end of the manager's log.
func (s *stage) logTail() string {
	const most = 15
	text, _ := os.ReadFile(s.path("manager.log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// explain says how to go on.
func (s *stage) explain(p terminal.Printer) {
	p.Say(`
All of this stays up for you to try. In another terminal:

  %s

  kubectl get svm,svmop                            # in namespace %s, as an administrator
  kubectl sallyport start web-2 --wait
  kubectl sallyport stop web-2 --wait              # its guest still ignores this: Ctrl-C stops only the waiting
  kubectl sallyport why svm web-2                  # what it waits for, and what would be accepted
  kubectl sallyport stop web-2 --force --wait
  kubectl sallyport policies                       # which decide, and what was edited
  kubectl edit rego operations-supersede           # the next request is judged by what you save
  kubectl explain svmop.spec
  sallyport matrix                                 # which operation takes the place of which, as shipped

  Every decision, with all that it was made from:  %s
  What the manager logs:                           %s
  The same, step by step:                          docs/getting-started.md

Ctrl-C here ends and removes everything.`,
		p.Paint(terminal.Bold, fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH", s.plane.Kubeconfig(), s.path("bin"))),
		team, s.path("decisions.jsonl"), s.path("manager.log"))
}
