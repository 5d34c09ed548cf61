package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/demo/denial"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/nodeagent"
	"sallyport.dev/sallyport/test/support/storage"
)

// The machines of the demo.
const web1, web2, db1 = "web-1", "web-2", "db-1"

// The login of Sallyport at the vCenter.
const loginName, loginPassword = "sallyport@vsphere.local", "between-two-doors"

// visible is how long a task of the vCenter takes, and the interval at which the managers poll it.
const visible = 150 * time.Millisecond

// stage is the environment of the demo: a control plane, the place of the machines, the installation of Sallyport, and a temporary folder.
type stage struct {
	dir       string
	plane     *env.ControlPlane
	api       ctrlclient.Client
	place     place
	vcenter   *vcsim.VCenter // nil if the place is KubeVirt
	sallyport *install.Sallyport
	options   install.Options
	kubelet   *install.Kubelet // nil until there are pods
	registry  *nodeagent.Registry
	ovas      *vcsim.Images
	agent     *nodeagent.Agent // nil until there are nodes
	storage   *storage.Storage // nil until a machine boots from an image
	undo      []func() error
}

// newStage also returns the stage with an error, so that the caller can close it.
func newStage(ctx context.Context, p terminal.Printer, first, onKubeVirt bool) (s *stage, err error) {
	s = &stage{}
	if s.dir, err = os.MkdirTemp("", "sallyport-demo-"); err != nil {
		return s, err
	}
	s.onClose(func() error { return os.RemoveAll(s.dir) })
	// The programs collect garbage less often: the demo has more memory than time.
	if err := errors.Join(s.keepTemporaries(), s.linkPrograms(), os.Setenv("GOGC", cmp.Or(os.Getenv("GOGC"), "400"))); err != nil {
		return s, err
	}
	startPlace := s.startVCenter
	if onKubeVirt {
		startPlace = s.startKubeVirt
		if err := s.prepareKubeVirt(ctx, p); err != nil {
			return s, err
		}
	}
	p.Say("Starting a Kubernetes control plane on this machine (etcd, kube-apiserver, kube-controller-manager) ...")
	started, shown := make(chan error, 1), make(chan struct{})
	go func() {
		// Its progress is printed below the denial.
		started <- s.startControlPlane(ctx, func(format string, args ...any) { <-shown; p.Say("  "+format, args...) })
	}()
	if first {
		err = denial.Show(ctx, p, s.dir, s.path(programs, sallyport))
	}
	close(shown)
	err = errors.Join(err, <-started)
	if s.plane != nil {
		s.onClose(s.plane.Stop)
	}
	if err != nil {
		return s, err
	}
	for _, start := range []func(context.Context, terminal.Printer) error{startPlace, s.unpackSallyport} {
		if err := start(ctx, p); err != nil {
			return s, err
		}
	}
	return s, nil
}

// keepTemporaries moves temporary files into the folder of the stage, so that they are removed with it, for example those of an
// interrupted linker or of kubectl edit.
func (s *stage) keepTemporaries() error {
	temporary := s.path("tmp")
	return errors.Join(os.Mkdir(temporary, 0o700), os.Setenv("TMPDIR", temporary), os.Setenv("GOTMPDIR", temporary))
}

func (s *stage) onClose(undo func() error) { s.undo = append(s.undo, undo) }

// close undoes all steps in reverse order.
func (s *stage) close() (err error) {
	for _, undo := range slices.Backward(s.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

// programs is the folder for PATH, and sallyport a program in it.
const programs, sallyport = "bin", "sallyport"

// linkPrograms puts this program into the folder for PATH under the names of sallyport and its kubectl plugin.
func (s *stage) linkPrograms() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder := s.path(programs)
	return errors.Join(
		os.Mkdir(folder, 0o700), os.Symlink(self, s.path(programs, sallyport)), install.Plugin(folder, self),
		os.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH")),
	)
}

func (s *stage) startControlPlane(ctx context.Context, logf func(string, ...any)) error {
	// It ends after what needs it, not with the context.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	interruptible := context.AfterFunc(ctx, end)
	var err error
	options := env.Options{ControllerManager: true, ControllerManagerFlags: install.ControllerManagerFlags(), Logf: logf}
	if k, is := s.place.(*kubeVirt); is {
		if err := k.Configure(&options); err != nil {
			return err
		}
	}
	s.plane, err = env.Start(lasting, options)
	interruptible()
	if err != nil {
		return err
	}
	if s.api, err = install.Client(s.plane.Config); err != nil {
		return err
	}
	helm, err := env.Helm(ctx, logf)
	if err != nil {
		return err
	}
	return errors.Join(os.Symlink(s.plane.Assets.Kubectl, s.path(programs, "kubectl")), os.Symlink(helm, s.path(programs, "helm")))
}

func (s *stage) startVCenter(ctx context.Context, p terminal.Printer) (err error) {
	p.Say("Starting a simulated vCenter with three machines, %s off, %s and %s on, a template, and a web server with images ...", web1, web2, db1)
	if s.vcenter, err = vcsim.Start(vcsim.Options{Step: visible}); err != nil {
		return err
	}
	s.place = vSphere{s.vcenter}
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
	if _, err = s.vcenter.AddTemplate(ubuntu); err != nil {
		return err
	}
	return s.serveImages()
}

// unpackSallyport prepares helm install. All replicas write to the same two files.
func (s *stage) unpackSallyport(context.Context, terminal.Printer) (err error) {
	s.options = install.Options{
		Binary: s.path(programs, sallyport),
		// Poll more often and shut down faster than in a cluster, so that the demo is fast. On a busy machine the balancer learns late of a replica that ends.
		Flags: []string{"--poll-interval", visible.String(), "--shutdown-delay", "3s", "--certificate-settle", "300ms"},
	}
	for name, writer := range map[string]*io.Writer{records: &s.options.Records, managerLog: &s.options.Logs} {
		file, err := os.OpenFile(s.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		s.onClose(file.Close)
		*writer = file
	}
	if s.vcenter != nil { // there are machines of the pod runtime, too
		if err := s.startRegistry(); err != nil {
			return err
		}
	}
	if s.sallyport, err = install.Unpack(s.plane); err != nil {
		return err
	}
	s.onClose(s.sallyport.Remove)
	return nil
}

// runPods runs the pods of the installed release as processes.
func (s *stage) runPods(ctx context.Context) error {
	err := s.sallyport.Adopt(ctx)
	if err != nil {
		return err
	}
	if s.kubelet, err = s.sallyport.NewKubelet(ctx, s.options); err != nil {
		return err
	}
	s.onClose(s.kubelet.Close)
	return nil
}

// The files of the managers in the folder of the demo.
const records, managerLog = "decisions.jsonl", "manager.log"

func (s *stage) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *stage) logTail() string {
	text, _ := os.ReadFile(s.path(managerLog))
	return install.Tail(string(text), 15)
}

// explain prints what to do next.
func (s *stage) explain(p terminal.Printer) {
	p.Say(`
The cluster stays up for your own commands. In another terminal:

  %s

  kubectl get svm,svmop                            # in namespace %s, as an administrator
  kubectl sallyport start web-2 --wait
  kubectl sallyport stop web-2 --wait              # the guest still ignores this; Ctrl-C stops only the waiting
  kubectl sallyport why svm web-2                  # what it waits for, and which operations are allowed
  kubectl sallyport stop web-2 --force --wait
  kubectl sallyport policies                       # which policies are active, and which fields were edited
  kubectl edit rego operations-supersede           # the next request uses the edited policy
  kubectl explain svmop.spec
  sallyport matrix                                 # which operations supersede which (shipped policy)
  kubectl get pods -n sallyport-system             # the replicas: restart, scale or delete them

To uninstall Sallyport (the helm install command above installs it again):

  kubectl sallyport release --all
  helm uninstall sallyport -n sallyport-system

Files:

  Decision records:  %s
  Manager logs:      %s
  Walkthrough:       docs/getting-started.md

Ctrl-C here ends the demo and removes everything.`,
		p.Paint(terminal.Bold, fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH", s.plane.Kubeconfig(), s.path(programs))),
		team, s.path(records), s.path(managerLog))
}
