package chart

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/test/support/env/install"
)

// The variables that choose a real cluster.
const clusterVariable, imageVariable = "SALLYPORT_TEST_KUBECONFIG", "SALLYPORT_TEST_IMAGE"

const (
	release   = install.Release
	namespace = install.Namespace
)

// site is where the walk takes place.
type site interface {
	// tools are the paths of kubectl, helm, and the administrator's kubeconfig.
	tools() (kubectl, helm, kubeconfig string)
	config() *rest.Config
	// chart is its folder, and settings what helm install needs here, as for --set.
	chart() string
	settings() []string
	// installed has the pods of a release run, uninstalled is for when it is gone.
	installed(*testing.T)
	uninstalled(*testing.T)
	// ask has one pod decide, past the API server.
	ask(ctx context.Context, pod string, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error)
	// local is the site if it is a local control plane, or nil.
	local() *localSite
}

// result of a program.
type result struct {
	stdout, stderr string
	code           int
}

// execute runs a program with an environment of its own.
func execute(ctx context.Context, path, stdin string, variables []string, args ...string) result {
	var out, errs strings.Builder
	command := exec.CommandContext(ctx, path, args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &out, &errs
	command.Env = append(os.Environ(), variables...)
	err := command.Run()
	r := result{out.String(), errs.String(), command.ProcessState.ExitCode()}
	if err != nil && r.code < 0 {
		r.stderr += err.Error()
	}
	return r
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.NewKlogr())
	os.Exit(m.Run())
}

func newSite(t *testing.T) site {
	t.Helper()
	if kubeconfig := os.Getenv(clusterVariable); kubeconfig != "" {
		return newClusterSite(t, kubeconfig, os.Getenv(imageVariable))
	}
	return newLocalSite(t)
}
