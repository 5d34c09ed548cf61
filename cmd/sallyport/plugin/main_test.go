package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// stack is what the tests that need a cluster share: a control plane with Sallyport's webhooks, but without its reconcilers,
// so that nobody but the tests says how a machine is. They run only for as long as it takes to ship the policies.
type stack struct {
	dir       string
	plane     *env.ControlPlane
	sallyport *install.Sallyport
}

var started *stack

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // as main does
	code := m.Run()
	if started != nil {
		if err := started.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if err := stopBare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

var start = sync.OnceValue(func() error {
	started = &stack{}
	return started.start(context.Background())
})

func (s *stack) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "kubectl-sallyport-"); err != nil {
		return err
	}
	o := install.Options{}
	if o.Binary, err = install.Build(ctx, s.dir, "sallyport.dev/sallyport/cmd/sallyport"); err != nil {
		return err
	}
	if err := install.Plugin(s.dir, o.Binary); err != nil {
		return err
	}
	// What another control plane once served on this port is of no interest.
	if err := os.Setenv("KUBECACHEDIR", filepath.Join(s.dir, "cache")); err != nil {
		return err
	}
	// This is how kubectl finds plugins.
	if err := os.Setenv("PATH", s.dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	// Watches are ended by the API server after a second or two, as they are in a cluster after an hour.
	s.plane, err = env.Start(ctx, env.Options{APIServerFlags: map[string]string{"min-request-timeout": "1"}})
	if err != nil {
		return err
	}
	if s.sallyport, err = install.Start(ctx, s.plane, o); err != nil {
		return err
	}
	c, err := client.New(s.plane.Config, client.Options{})
	if err != nil {
		return err
	}
	if err := registered(ctx, c); err != nil {
		return err
	}
	if err := s.sallyport.Stop(); err != nil {
		return err
	}
	if err := lead(ctx, c); err != nil {
		return err
	}
	return s.sallyport.Resume(ctx, o)
}

// registered waits until the leader has registered the policies: nobody leads later.
func registered(ctx context.Context, c client.Client) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		var of admissionregistrationv1.ValidatingWebhookConfiguration
		err := c.Get(ctx, types.NamespacedName{Name: "sallyport-policies"}, &of)
		return slices.ContainsFunc(of.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return strings.HasPrefix(w.Name, "deletion-protected.own.")
		}), err
	})
}

// lead takes the lease of Sallyport's leader, which has ended, so that the next manager runs no reconcilers.
func lead(ctx context.Context, c client.Client) error {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: "sallyport-manager"}, lease); err != nil {
		return err
	}
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("the tests"), new(int32(86400))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	return c.Update(ctx, lease)
}

func (s *stack) stop() error {
	var errs []error
	if s.sallyport != nil {
		errs = append(errs, s.sallyport.Remove())
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

var teams atomic.Int32

// team is a namespace of one test's own.
type team struct {
	step.T
	namespace string
}

func newTeam(t *testing.T) *team {
	t.Helper()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	tm := &team{T: step.T{T: t}, namespace: fmt.Sprintf("team-%d", teams.Add(1))}
	tm.must("", "create", "namespace", tm.namespace)
	return tm
}

// result of one kubectl.
type result struct {
	stdout, stderr string
	code           int
}

// kubectl runs it in the team's namespace. The plugin runs in this process instead of as a child of kubectl's, which costs a third as
// much; that kubectl finds it is tested by TestKubectlCompletes, TestTheChartIsFound, and what waits.
func (tm *team) kubectl(stdin string, args ...string) result {
	tm.Helper()
	args = append(args, "--namespace", tm.namespace)
	if args[0] == "sallyport" {
		return plugged(tm.Context(), stdin, started.plane.Kubeconfig(), args[1:], cli.DefaultPatience)
	}
	out, errs, code := started.plane.KubectlAs(tm.Context(), started.plane.Kubeconfig(), strings.NewReader(stdin), args...)
	return result{out, errs, code}
}

// plugged runs the plugin in this process.
func plugged(ctx context.Context, stdin, kubeconfig string, args []string, patience time.Duration) result {
	streams, in, out, errs := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	p := cli.New(streams)
	p.Patience = patience
	code := run(ctx, p, append([]string{"--kubeconfig", kubeconfig}, args...))
	return result{out.String(), errs.String(), code}
}

// must is kubectl with success.
func (tm *team) must(stdin string, args ...string) string {
	tm.Helper()
	r := tm.kubectl(stdin, args...)
	if r.code != 0 {
		tm.Fatalf("kubectl %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// atTheEnd runs kubectl once the test is over.
func (tm *team) atTheEnd(args ...string) {
	tm.Cleanup(func() {
		if _, errs, code := started.plane.Kubectl(context.Background(), args...); code != 0 {
			tm.Error(errs)
		}
	})
}

// mayOverride gives a user the verb for policies: for one of that name, or without one for all.
func (tm *team) mayOverride(user string, policy ...string) {
	tm.Helper()
	args := []string{"create", "clusterrole", user, "--verb=override", "--resource=regopolicies.sallyport.dev"}
	for _, name := range policy {
		args = append(args, "--resource-name="+name)
	}
	tm.must("", args...)
	tm.must("", "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
	tm.atTheEnd("delete", "clusterrole/"+user, "clusterrolebinding/"+user)
}

// sallyport runs the plugin, and wants that exit code and those texts in what a user reads.
func (tm *team) sallyport(line string, code int, texts ...string) result {
	tm.Helper()
	r := tm.kubectl("", append([]string{"sallyport"}, strings.Fields(line)...)...)
	tm.reads(line, r, code, texts...)
	return r
}

func (tm *team) reads(line string, r result, code int, texts ...string) {
	tm.Helper()
	read := r.stdout + r.stderr
	if r.code != code {
		tm.Errorf("kubectl sallyport %s: exit %d, want %d:\n%s", line, r.code, code, read)
	}
	for _, text := range texts {
		if !strings.Contains(read, text) {
			tm.Errorf("kubectl sallyport %s: the user reads\n%s\nwithout %q", line, read, text)
		}
	}
	tm.Logf("$ kubectl sallyport %s\n%s%s(exit %d)", line, r.stdout, r.stderr, r.code)
}

// machine makes a VirtualMachine and, as its reconciler would, gives it a phase.
func (tm *team) machine(name, phase string, spec ...string) {
	tm.Helper()
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": %q},
		"spec": {"runtime": {"pod": {}}%s}}`, name, strings.Join(spec, "")), "create", "-f", "-")
	tm.status("svm/"+name, fmt.Sprintf(`{"phase": %q}`, phase))
}

// status writes a status as a reconciler would.
func (tm *team) status(object, status string) {
	tm.Helper()
	tm.must("", "patch", object, "--subresource=status", "--type=merge", "-p", `{"status": `+status+`}`)
}

// get gives a field of an object by JSONPath.
func (tm *team) get(object, path string) string {
	tm.Helper()
	return tm.must("", "get", object, "-o", "jsonpath={"+path+"}")
}

// created is the name of the only operation in what was printed.
func (tm *team) created(r result) string {
	tm.Helper()
	_, rest, found := strings.Cut(r.stdout, "virtualmachineoperation.sallyport.dev/")
	name, _, _ := strings.Cut(rest, " ")
	if !found {
		tm.Fatalf("no operation in %q", r.stdout)
	}
	return name
}
