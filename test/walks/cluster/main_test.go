// Package cluster uses Sallyport as people do: real kubectl, a real API server, Kubernetes' own controllers, and one manager as a process of
// its own. Nothing runs machines or Pods.
//
// Most tests are scripts of what users type and read, on one release whose machines are simulated. The others install Sallyport with other
// values, each on a control plane of its own: TestGuards tries every way to scale a workload down or to delete an object,
// TestObjectsThatCannotBeDecoded stores what nobody can read, TestReleaseWithoutSomeParts leaves parts of the chart out, and
// TestOnlyAPIServersAreAnswered has the API server show a certificate.
package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// stack is the release that the scripts share.
var stack site.Site

// editor is what kubectl edit runs: it leaves one replica of two.
const editor = "sed -i /^..replicas:/s/2/1/"

// Tests that run by themselves change what all see. Those that call t.Parallel follow them, and mostly wait.
func TestMain(m *testing.M) {
	step.Parallel(6)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	o, err := options(context.Background())
	if err == nil {
		err = os.Setenv("KUBE_EDITOR", editor)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return stack.Main(m, site.Options{Plane: o, Flags: []string{"--poll-interval", "200ms"}, Simulated: true, After: replays})
}

// onOld reports whether the tests run on the API server of an older Kubernetes, as with make test-old.
func onOld() bool { return os.Getenv("SALLYPORT_TEST_OLD") != "" }

func options(ctx context.Context) (o env.Options, err error) {
	// Nodes are ready as the scripts say, without a kubelet.
	flags := map[string]string{"controllers": "*,-node-lifecycle-controller"}
	o = env.Options{ControllerManager: true, ControllerManagerFlags: flags}
	if onOld() {
		// A controller manager must not be newer than the API server.
		o.ControllerManager = false
		if o.APIServer, err = env.OldAPIServer(ctx, nil, true); err != nil {
			return o, err
		}
	}
	return o, nil
}

// kubectl runs it as the administrator, or with --as, and returns what it prints.
func kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	stack.Up(t)
	stdout, stderr, code := stack.Plane.KubectlAs(t.Context(), stack.Plane.Kubeconfig(), strings.NewReader(stdin), args...)
	return stdout, stderr, code == 0
}

// must is kubectl with success.
func must(t *testing.T, stdin string, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, ok := kubectl(t, stdin, args...)
	if !ok {
		t.Fatalf("kubectl %s: %s", strings.Join(args, " "), stderr)
	}
	return stdout
}

func TestAPIServerIsOfTheVersionThatIsTested(t *testing.T) {
	want := env.KubernetesVersion()
	if onOld() {
		want = env.OldKubernetesVersion()
	}
	if got := must(t, "", "get", "--raw", "/version"); !strings.Contains(got, `"`+want+`"`) {
		t.Errorf("want %s: %s", want, got)
	}
}

// Each script says what it shows.
func TestOperations(t *testing.T) {
	t.Parallel()
	stack.Run(t, site.Scripts{Dir: "testdata/operations"})
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	stack.Run(t, site.Scripts{Dir: "testdata/overrides"})
}

func TestPools(t *testing.T) {
	t.Parallel()
	stack.Run(t, site.Scripts{Dir: "testdata/pools"})
}

// The scripts stop earlier with -short.
func TestWays(t *testing.T) {
	t.Parallel()
	stack.Run(t, site.Scripts{Dir: "testdata/ways"})
}

func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	stack.Run(t, site.Scripts{Dir: "testdata/outage", Alone: true})
}
