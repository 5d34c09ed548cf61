//go:build !race

package vmpods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/nodeagent"
	"sallyport.dev/sallyport/test/step"
)

// stack is what all tests of this package share.
var stack struct {
	plane     *env.ControlPlane
	sallyport *install.Sallyport
	client    client.WithWatch
	// registry has the snapshots of machines that are moved.
	registry *nodeagent.Registry
	logs     *os.File
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "sallyport-vmpods-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctrl.SetLogger(klog.NewKlogr())
	code = 1
	step.Parallel(8)
	if err = start(context.Background(), dir); err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 && stack.logs != nil {
		text, _ := os.ReadFile(stack.logs.Name())
		fmt.Fprintf(os.Stderr, "the manager's log:\n%s", text)
	}
	return code
}

func start(ctx context.Context, dir string) (err error) {
	if stack.logs, err = os.Create(filepath.Join(dir, "manager.log")); err != nil {
		return err
	}
	binary, err := install.Build(ctx, dir, "sallyport.dev/sallyport/cmd/sallyport")
	if err != nil {
		return err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	if stack.plane, err = env.Start(ctx, env.Options{CRDs: crds}); err != nil {
		return err
	}
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := rest.CopyConfig(stack.plane.Config)
	config.QPS = -1
	if stack.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	stack.registry = nodeagent.StartRegistry()
	authority := filepath.Join(dir, "registry.pem")
	if err := stack.registry.WriteAuthority(authority); err != nil {
		return err
	}
	stack.sallyport, err = install.Start(ctx, stack.plane, install.Options{
		Values: []string{"runtimes.pod.enabled=true", "runtimes.pod.snapshots.repository=" + stack.registry.Repository()},
		Binary: binary, Flags: []string{"--poll-interval", "200ms", "--pod-snapshot-ca-file", authority}, Logs: stack.logs,
	})
	return err
}

// stop ends what was started.
func stop() (err error) {
	if stack.sallyport != nil {
		err = stack.sallyport.Remove()
	}
	if stack.registry != nil {
		stack.registry.Close()
	}
	if stack.plane != nil {
		err = errors.Join(err, stack.plane.Stop())
	}
	return err
}
