package install

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/test/support/env"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.NewKlogr())
	env.Main(m, env.Options{})
}

// What a manager is run with is what the release says, as it is at the moment.
func TestARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cp := env.Shared(t)
	s, err := Prepare(t.Context(), cp, "runtimes.pollInterval=7s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	}()
	has := func(flag string) {
		t.Helper()
		if !slices.Contains(s.deployed.args, flag) {
			t.Errorf("the manager is run with %q, without %s", s.deployed.args, flag)
		}
	}
	has("--poll-interval=7s")
	if err := s.Upgrade(t.Context(), "--set", "runtimes.resyncInterval=9s"); err != nil {
		t.Fatal(err)
	}
	has("--poll-interval=7s")
	has("--resync-interval=9s")
	if err := s.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.clientset.CoreV1().Services(Namespace).Get(t.Context(), Service, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its end the release still has its Service (%v)", err)
	}
	if err := s.Install(t.Context()); err != nil {
		t.Error(err)
	}
}
